"""Windows a second of one data set in every kind of store, and the memory of an index of 10 million episodes.

    python benchmarks/stores.py [--episodes 400] [--rounds 20] [--index 10000000]

Batches are 96 windows of 24 steps of 8 numbers, or 16 windows of 8 pictures of 64×64×3, from random places of warm
files. "S3" is a server of moto on this machine, with 20 episodes; it reads the whole object for each range of it, so it
shows that the path works, not what an object storage gives. The index is of synthetic episodes, from which related
pairs are sampled; nothing of it is on a disk.
"""

import argparse
import contextlib
import importlib
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import numpy as np

from sprii_envs.arguments import option
from sprii_envs.banks import RecordedBank, Recording, Store, StreamSpec
from sprii_envs.banks.lance import write_lance
from sprii_envs.banks.lerobot import LeRobotStore, export_lerobot
from sprii_envs.banks.lerobot.layout import rows
from sprii_envs.relations import SAME_SYSTEM, EpisodeTable, PairSampler, WindowSampler

LENGTH, SIDE = 200, 64
STATES, PICTURES = (96, 24), (16, 8)  # windows of steps
S3 = 20  # episodes there


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--episodes", type=option(least=8), default=400)
    parser.add_argument("--rounds", type=option(), default=20)
    parser.add_argument("--index", type=option(least=1000), default=10_000_000)
    arguments = parser.parse_args()
    index(arguments.index)  # first: the peak of memory is of the whole process
    with tempfile.TemporaryDirectory() as folder:
        reading(Path(folder), arguments.episodes, arguments.rounds)


def recorded(folder: Path, episodes: int) -> RecordedBank:
    rng = np.random.default_rng(0)
    spots = rng.integers(0, 255, (SIDE, SIDE + LENGTH, 3), dtype=np.uint8)
    streams = {"states": StreamSpec((8,)), "frames": StreamSpec((SIDE, SIDE, 3), "uint8")}
    with Recording(folder / "bank", streams) as recording:
        for i in range(episodes):
            frames = np.stack([spots[:, t : t + SIDE] for t in range(LENGTH)])
            recording.append({"states": rng.random((LENGTH, 8)), "frames": frames}, system=i // 4)
    return RecordedBank(folder / "bank")


def reading(folder: Path, episodes: int, rounds: int) -> None:
    bank = recorded(folder, episodes)
    print(f"\n{episodes} episodes of {LENGTH} steps\n")
    print(f"{'':<40}{'windows/s of states':>22}{'of pictures':>16}")
    row("memory map", bank, rounds)
    row("Lance, folder", write_lance(bank, folder / "lance"), rounds)
    with s3() as options:
        if options is not None:
            some = bank.table.select(np.arange(min(S3, episodes)))
            row("Lance, S3 of moto", write_lance(bank, "s3://bucket/store", table=some, options=options), 3)
    names = export_lerobot(bank, folder / "lerobot", fps=30)
    lerobot = LeRobotStore.open(folder / "lerobot")
    row("LeRobot: numbers mapped, video decoded", lerobot, rounds, names)
    file = next((folder / "lerobot" / "data").rglob("*.parquet"))
    seconds = timed(lambda: rows(file, ["observation.state"], 0))
    print(f"{'Parquet, a row group a window':<40}{1 / seconds:>22,.0f}")


def row(label: str, store: Store, rounds: int, names: dict[str, str] | None = None) -> None:
    told = [
        speed(store, (names or {}).get(c, c), *shape, rounds) for c, shape in (("states", STATES), ("frames", PICTURES))
    ]
    print(f"{label:<40}{told[0]:>22,.0f}{told[1]:>16,.0f}", flush=True)


def speed(store: Store, column: str, count: int, length: int, rounds: int) -> float:
    rng = np.random.default_rng(1)
    ids = store.table["episode"]
    draws = [(rng.choice(ids, count), rng.integers(0, LENGTH - length, count)) for _ in range(rounds + 1)]
    store.windows(column, *draws[0], length)
    return count / median(timed(lambda d=d: store.windows(column, *d, length)) for d in draws[1:])


def timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


@contextlib.contextmanager
def s3() -> Iterator[dict[str, str] | None]:
    """Options of a server with a bucket, or None without moto."""
    try:
        boto3, moto = importlib.import_module("boto3"), importlib.import_module("moto.server")
    except ImportError:
        print("moto is not installed: no S3")
        yield None
        return
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = moto.ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    url = "http://{}:{}".format(*server.get_host_and_port())
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    boto3.client("s3", endpoint_url=url, region_name="us-east-1", **keys).create_bucket(Bucket="bucket")
    try:
        yield {"endpoint": url, "allow_http": "true", "region": "us-east-1", **keys}
    finally:
        server.stop()


def index(episodes: int) -> None:
    """Memory of a table and its samplers, and whether sampling adds to it."""
    print(f"an index of {episodes:,} episodes, 4 a system, with a split and two properties")
    before = resident()
    systems = np.repeat(np.arange(-(-episodes // 4)), 4)[:episodes]
    rng = np.random.default_rng(0)
    columns = {
        "episode": np.arange(episodes),
        "system": systems,
        "length": np.full(episodes, LENGTH),
        "split": np.zeros(episodes, np.int64),
        "mass": rng.random(systems[-1] + 1)[systems],
        "task": systems % 100,
    }
    start = time.perf_counter()
    table = EpisodeTable(columns)
    del columns, systems
    told("table", before, episodes, time.perf_counter() - start)
    start = time.perf_counter()
    pairs = PairSampler(table, SAME_SYSTEM, distinct="system")
    windows = WindowSampler(table, history=24, horizon=16)
    windows.batch(0, pairs.batch(0, 96))
    told("with samplers of pairs and windows", before, episodes, time.perf_counter() - start)
    for batches in (100, 1000):
        start = time.perf_counter()
        for step in range(batches):
            windows.batch(step, pairs.batch(step, 96))
        told(f"after {batches:,} batches of 96 pairs", before, episodes, (time.perf_counter() - start))
    each, memory = (peak() - before) / episodes, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    print(f"at its peak {each:.0f} bytes an episode: {memory / 1e9:.0f} GB hold {memory / each / 1e6:,.0f} million")


def told(label: str, before: int, episodes: int, seconds: float) -> None:
    grown = resident() - before
    print(f"  {label:<40}{grown / 1e9:>7.2f} GB{grown / episodes:>7.0f} bytes an episode{seconds:>9.2f} s", flush=True)


def resident() -> int:
    """Bytes in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak() -> int:
    """Bytes in memory at most so far."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    main()
