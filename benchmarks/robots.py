"""What it costs to import a tree of RH20T, which is written first, in the published layout.

    python benchmarks/robots.py [--episodes 1000] [--frames 100] [--workers 1] [--keep FOLDER]

Videos are hard links to one file of 320×180, decoded anew for every scene; the other files are of each scene its own,
of two cameras. One scene in fifty lacks its gripper. The import of a tenth of the scenes is beside that of all: memory
that grew with a tree would show. A peak is that of the process that imports, and of FFmpeg.
"""

import argparse
import contextlib
import json
import os
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from sprii_envs.arguments import option
from sprii_envs.processes import pool
from sprii_envs.robots import arms
from sprii_envs.robots.rh20t import import_rh20t
from sprii_envs.videos import write_video

CAMERAS, START, EACH = ("750612070851", "039422060546"), 1_630_000_000_000, 8


def write(root: Path, episodes: int, frames: int) -> None:
    """A tree of tasks of eight scenes, whose motions are the stand-in's."""
    root.mkdir(parents=True)
    video = root / "video.mp4"
    y, x, t = np.arange(180)[:, None], np.arange(320), np.arange(frames)[:, None, None]
    grey = ((x + y + 2 * t) % 256).astype(np.uint8)
    write_video(video, np.repeat(grey[..., None], 3, axis=-1), 10)
    times = START + 100 * np.arange(frames)
    for number in range(episodes):
        task, user = divmod(number, EACH)
        folder = root / f"task_{task:04d}_user_{user:04d}_scene_0001_cfg_0001"
        camera, place = folder / f"cam_{CAMERAS[0]}", folder / "transformed"
        camera.mkdir(parents=True)
        place.mkdir()
        os.link(video, camera / "color.mp4")
        _save(camera / "timestamps.npy", {"color": times.tolist(), "depth": times.tolist()})
        told = {"rating": 2 + number % 8, "calib": START, "calib_quality": 3, "start_time": START}
        (folder / "metadata.json").write_text(json.dumps(told))
        found = arms.motions(0, [task], [user], frames=frames)
        force, tcp, width = found.force[0], found.tcp[0], found.gripper[0, :, 0]
        for name, columns in (
            ("tcp", {"tcp": tcp, "robot_ft": force}),
            ("force_torque", {"raw": force, "zeroed": force}),
        ):
            rows = [
                {"timestamp": int(at) - 20, **{key: values[i] for key, values in columns.items()}}
                for i, at in enumerate(times)
            ]
            _save(place / f"{name}_base.npy", dict.fromkeys(CAMERAS, rows))
        hand = {
            int(at) - 30: {"gripper_command": [w, 0.0], "gripper_info": [w, 40.0, 0.0]}
            for at, w in zip(times, width, strict=True)
        }
        if number % 50 != 7:
            _save(place / "gripper.npy", dict.fromkeys(CAMERAS, hand))
    video.unlink()


def _save(file: Path, told: object) -> None:
    np.save(file, np.array(told, object), allow_pickle=True)


def imported(root: str, path: str, workers: int, some: int | None) -> tuple[float, float, float, str]:
    """Seconds, peaks in MiB of this process and its children, and what the bank holds; of all scenes or the first."""
    source = Path(root)
    if some is not None:
        source = Path(path).with_suffix(".tree")
        source.mkdir()
        for folder in sorted(Path(root).iterdir())[:some]:
            (source / folder.name).symlink_to(folder)
    before = time.perf_counter()
    bank = import_rh20t(source, path, workers=workers)
    took = time.perf_counter() - before
    size = sum(file.stat().st_size for file in Path(path).iterdir())
    own, children = (
        resource.getrusage(who).ru_maxrss / 1024 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    text = (
        f"{len(bank.table):,} episodes, {size / 1e6:,.0f} MB; left out: {bank.notes['left_out']}; {bank.notes['split']}"
    )
    return took, own, children, text


def main() -> None:
    """Print time and memory of both imports."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--episodes", type=option(least=2 * EACH), default=1000)
    parser.add_argument("--frames", type=option(least=64), default=100)
    parser.add_argument("--workers", type=option(), default=1)
    parser.add_argument(
        "--keep", type=Path, help="a new folder for the tree and the banks; by default they are removed"
    )
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        before = time.perf_counter()
        write(folder / "RH20T_cfg1", options.episodes, options.frames)
        print(f"written: {options.episodes:,} scenes of {options.frames} frames, {time.perf_counter() - before:.0f} s")
        print("| scenes | time | a scene | peak | FFmpeg's peak | bank |\n|---|---|---|---|---|---|")
        for count in (max(EACH, options.episodes // 10), options.episodes):
            some = None if count == options.episodes else count
            with pool(1) as executor:  # a process of its own, so that its peak is its own
                told = executor.submit(
                    imported, str(folder / "RH20T_cfg1"), str(folder / f"bank_{count}"), options.workers, some
                ).result()
            took, own, children, text = told
            print(
                f"| {count:,} | {took:.0f} s | {took / count:.2f} s | {own:.0f} MiB | {children:.0f} MiB | {text} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
