"""Time to read a batch of windows of 64×64 frames from a bank, from memory and from the disk.

    python benchmarks/windows.py [--bank PATH] [--episodes 4000] [--rounds 20]

Without --bank it builds a D-Clean bank with stored frames in a temporary folder (1 GB for 4,000 episodes). "Cold" drops
the file's pages first (`posix_fadvise`, once nothing maps them; no root needed); the last column, what the kernel says
was really read from the disk a batch, tells whether that worked. Batches of 96 windows × 24 frames, 9.4 MB.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

from sprii_envs.arguments import option
from sprii_envs.banks import D_CLEAN, Bank, build
from sprii_envs.relations import WindowSampler
from sprii_envs.relations.table import Rows
from sprii_envs.rendering import Frame

BATCH, HISTORY, SIZE = 96, 24, 64
LEARNER = 0.1  # seconds that a learner computes between two batches


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bank", type=Path, help="a bank that stores 64×64 frames")
    parser.add_argument("--episodes", type=option(), default=4000)
    parser.add_argument("--rounds", type=option(), default=20)
    arguments = parser.parse_args()
    if arguments.bank is not None:
        measure(arguments.bank, arguments.rounds)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bank"
        build(D_CLEAN.replace(systems={"train": arguments.episodes // 4}, rollouts=4, frames=SIZE), path)
        measure(path, arguments.rounds)


def measure(path: Path, rounds: int) -> None:
    file = path / Bank.open(path).column("frames").file
    print(f"{file.stat().st_size / 1e9:.2f} GB of frames; {BATCH} windows × {HISTORY} frames of {SIZE}×{SIZE}\n")
    print(f"{'':<46}{'median':>10}{'best':>10}{'from disk':>12}")
    out = np.empty((BATCH, HISTORY, SIZE, SIZE), np.uint8)
    batches = draw(Bank.open(path), rounds)
    from_memory(path, file, batches, out)
    from_disk(path, file, batches, out)


def draw(bank: Bank, rounds: int) -> list[tuple[Rows, Rows]]:
    """Random (rows, starts) of legal windows."""
    rng = np.random.default_rng(0)
    sampler = WindowSampler(bank.table, history=HISTORY, horizon=0)
    rows = [rng.integers(0, len(bank), BATCH) for _ in range(rounds)]
    return [(some, sampler.starts(some, seed=step)) for step, some in enumerate(rows)]


def from_memory(path: Path, file: Path, batches: list[tuple[Rows, Rows]], out: Frame) -> None:
    with open(file, "rb") as opened:
        while opened.read(1 << 24):
            pass
    bank = Bank.open(path)
    calls: dict[str, Callable[[Rows, Rows], object]] = {
        "warm": lambda rows, starts: bank.windows("frames", rows, starts, HISTORY),
        "warm, into one array": lambda rows, starts: bank.windows("frames", rows, starts, HISTORY, out),
        "warm, Bank.frames": lambda rows, starts: bank.frames(rows, starts, HISTORY, out=out),
        "warm, prefetch alone": lambda rows, starts: bank.prefetch("frames", rows, starts, HISTORY),
        "warm, states": lambda rows, starts: bank.windows("states", rows, starts, HISTORY),
    }
    for label, call in calls.items():
        call(*batches[0])
        row(label, [timed(lambda call=call, w=w: call(*w)) for w in batches])


def from_disk(path: Path, file: Path, batches: list[tuple[Rows, Rows]], out: Frame) -> None:
    """Every call finds nothing in memory, but the last, which finds what was prefetched."""
    touched, plain, asked, later = [], [], [], []
    for batch in batches:
        bank = cold(path, file)
        touched.append(timed(lambda bank=bank, batch=batch: touch(bank["frames"], *batch)))
        del bank  # mapped pages cannot be dropped
        bank = cold(path, file)
        plain.append(timed(lambda bank=bank, batch=batch: bank.windows("frames", *batch, HISTORY, out)))
        del bank
        bank = cold(path, file)
        asked.append(timed(lambda bank=bank, batch=batch: bank.prefetch("frames", *batch, HISTORY)))
        time.sleep(LEARNER)
        later.append(timed(lambda bank=bank, batch=batch: bank.windows("frames", *batch, HISTORY, out)))
        del bank
    row("cold, slices of the memory map", touched)
    row("cold", plain)
    row("cold, prefetch alone", asked)
    row(f"cold, {1e3 * LEARNER:.0f} ms after prefetch: one batch ahead", later)


def touch(frames: Frame, rows: Rows, starts: Rows) -> Frame:
    """What plain indexing does, without asking the kernel for anything."""
    return np.stack([frames[row, start : start + HISTORY] for row, start in zip(rows, starts, strict=True)])


def cold(path: Path, file: Path) -> Bank:
    """The bank, opened when none of the file's pages are in memory."""
    with open(file, "rb") as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    bank = Bank.open(path)
    _ = bank.table, bank["frames"]
    return bank


def timed(call: Callable[[], object]) -> tuple[float, int]:
    """Seconds, and bytes read from the disk meanwhile."""
    before, start = disk(), time.perf_counter()
    call()
    return time.perf_counter() - start, disk() - before


def disk() -> int:
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:  # no such file off Linux
        return 0
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))


def row(label: str, times: list[tuple[float, int]]) -> None:
    seconds, read = zip(*times, strict=True)
    print(f"{label:<46}{1e3 * median(seconds):>7.2f} ms{1e3 * min(seconds):>7.2f} ms{np.mean(read) / 1e6:>9.1f} MB")


if __name__ == "__main__":
    main()
