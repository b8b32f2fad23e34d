"""RH20T, published recordings of many manipulation tasks, read into a recorded bank; see `scenes` for the layout."""

import functools
import hashlib
import warnings
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from sprii_envs import files
from sprii_envs.arguments import WORKERS, integer
from sprii_envs.banks import RecordedBank, Recording, StoreError
from sprii_envs.banks.generated import Arrays, Episodes, Labels, Progress, PublishedError, record_episodes
from sprii_envs.banks.recorded import MANIFEST
from sprii_envs.dependencies import require
from sprii_envs.processes import BrokenProcessPool, in_order
from sprii_envs.robots import scenes
from sprii_envs.robots.scenes import NAME, Layout, SceneError
from sprii_envs.robots.splits import fewest, split_tasks, told

LEAST = 4
"""Episodes of a task that is kept."""


class Left(NamedTuple):
    """Why a scene is left out."""

    kind: str
    reason: str


def import_rh20t(
    root: files.StrPath,
    path: files.StrPath,
    config: int = 1,
    *,
    camera: str | None = None,
    size: int = 96,
    base: bool = True,
    high_frequency: bool = False,
    joints: bool = False,
    rating: int = 2,
    calibration: int | None = None,
    frames: int = 64,
    oldest: int = 1000,
    seed: int = 0,
    workers: int = 1,
    progress: Progress | None = None,
) -> RecordedBank:
    """Read the scenes of a robot configuration into a bank at `path`, or open it if it is there already.

    An entry of each column is a frame of the color video: `frames` (size, size) uint8 grey, `force` (6) N and N·m with
    the sensor zeroed, `tcp` (7) position m and quaternion w, x, y, z, `gripper` (1) width in mm, `action` (1) the
    commanded width, and with `joints` `joint` (7, or 6 of UR5) rad. All but the pictures are the last samples at or
    before the frame's time, each stream by times of its own; frames before the first or behind the last are cut.
    A scene is one episode, its task the `system`; whole tasks are in one split, see `splits`.

    Scenes are surveyed first, without their pictures, for a task needs four good ones and the split needs all tasks;
    then they are read one after another, and after a kill the same call goes on. A scene that is damaged or not
    wanted is left out: `notes["dropped"]` tells why of each, `notes["left_out"]` how many for which kind of reason,
    `notes["split"]` how many tasks each split has. A pickle that asks for anything but arrays and containers is never
    run: its scene is left out, with a warning. So are too few tasks for all splits told of.

    Args:
        root: the folder that holds the scenes, or one that holds it as `RH20T_cfg1`, ….
        config: of the robot, 1 … 7; scenes of others are left out.
        camera: serial of the camera; needed but for configuration 1.
        size: of the pictures: the whole picture, squeezed to a square, made by averaging areas.
        base: whether forces and poses are in the frame of the robot's base, or in that of the camera.
        high_frequency: take forces from `high_freq_data.npy`, which are fresher at a frame.
        joints: whether joint angles are read, too.
        rating, calibration, frames, oldest: what a scene must have; see `scenes.Layout`.
        seed: of the permutation of tasks.
        workers: processes that read.
        progress: (done, total): scenes while they are surveyed, then episodes.

    Raises:
        ValueError: for arguments that no recording has, such as a size beyond that of its pictures.
        PublishedError: where there is no scene, or none is left.
        StoreError: for a path that holds another bank, and for a killed worker.
        PackageImportError: without imageio-ffmpeg.
    """
    workers = integer("workers", workers, least=1, most=WORKERS)
    layout = Layout(config, camera, size, base, high_frequency, joints, rating, calibration, frames, oldest)
    seed = integer("seed", seed)
    require("reading RH20T's videos", "'sprii[robots]'", "imageio_ffmpeg")
    folder = _folder(root, layout.config)
    names = sorted(each.name for each in folder.iterdir() if NAME.fullmatch(each.name))
    if not names:
        raise PublishedError(f"{folder} holds no scene, such as task_0001_user_0016_scene_0004_cfg_0001")
    origin = {
        "kind": "published",
        "benchmark": "rh20t",
        "layout": asdict(layout),
        "seed": seed,
        "scenes": hashlib.sha256("\n".join(names).encode()).hexdigest(),
    }
    if (files.absolute(path) / MANIFEST).exists():  # which needs no survey
        return record_episodes(path, layout.streams, origin, 0, 0, lambda recording: (_ for _ in ()), progress)
    read_one = functools.partial(_read, folder, layout)
    dropped = _surveyed(folder, layout, names, workers, progress)
    have = Counter(_task(name) for name in names if name not in dropped)
    splits = split_tasks((task for task, count in have.items() if count >= LEAST), seed)
    few = [name for name in names if name not in dropped and _task(name) not in splits]
    dropped |= {name: Left("few", f"its task has {have[_task(name)]} good scenes, wanted {LEAST}") for name in few}
    chosen = [name for name in names if name not in dropped]
    if not chosen:
        kinds = ", ".join(f"{count} {kind}" for kind, count in _kinds(dropped).items())
        name, left = next(iter(dropped.items()))
        raise PublishedError(
            f"{folder}: no task has {LEAST} scenes that can be used; left out: {kinds}, such as {name}: {left.reason}"
        )
    if len(splits) < (least := fewest()):
        warnings.warn(
            f"{told(splits)}: a validation and a test split need {least} tasks of {LEAST} good scenes at least",
            stacklevel=2,
        )
    read_one(chosen[0])  # a size beyond the pictures is told of before anything is written

    def episodes(recording: Recording) -> Episodes:
        done = {row["example"] for row in recording.rows}
        for row in recording.rows:  # of a run that was stopped: a scene mended since may have changed who is where
            if row["split"] != splits.get(row["system"]):
                raise StoreError(
                    f"{files.absolute(path)}: {row['system']} was read into the split {row['split']}, and is of "
                    f"{splits.get(row['system'], 'none')} now: the scenes in {folder} have changed; remove the bank "
                    "and import it anew"
                )
        left = [name for name in chosen if name not in done]
        with closing(in_order(read_one, left, min(workers, max(1, len(left))))) as read:
            for name, found in zip(left, read, strict=True):
                if isinstance(found, Left):
                    dropped[name] = found
                else:
                    yield found[0] | {"split": splits[found[0]["system"]]}, found[1]
        kept = Counter(row["system"] for row in recording.rows)
        short = {task: kept[task] for task in sorted(splits) if kept[task] < LEAST}  # the survey decodes no video
        recording.notes |= {
            "split": told(splits),
            "dropped": {name: dropped[name].reason for name in sorted(dropped)},
            "left_out": _kinds(dropped),
        } | ({"short": short} if short else {})

    room = len(chosen) * layout.frames * sum(spec.entry_bytes for spec in layout.streams.values())
    return record_episodes(path, layout.streams, origin, len(chosen), room, episodes, progress)


def _folder(root: files.StrPath, config: int) -> Path:
    folder = files.absolute(root)
    inner = folder / f"RH20T_cfg{config}"
    folder = inner if inner.is_dir() else folder
    if not folder.is_dir():
        raise PublishedError(f"{folder} is missing; it holds a folder a scene")
    return folder


def _task(name: str) -> str:
    return name[:9]


def _surveyed(
    folder: Path, layout: Layout, names: Sequence[str], workers: int, progress: Progress | None
) -> dict[str, Left]:
    """Scene → why it is left out, as far as that can be told without decoding a video."""
    dropped: dict[str, Left] = {}
    survey = functools.partial(_survey, folder, layout)
    try:
        with closing(in_order(survey, names, min(workers, len(names)))) as surveyed:
            for done, (name, left) in enumerate(zip(names, surveyed, strict=True), 1):
                if left is not None:
                    dropped[name] = left
                if progress is not None:
                    progress(done, len(names))
    except BrokenProcessPool as error:
        raise StoreError(f"{folder}: a worker was killed or could not start; nothing was written") from error
    if refused := [left.reason for left in dropped.values() if left.kind == "pickle"]:
        warnings.warn(f"scenes left out for their pickles: {len(refused)}, such as {refused[0]}", stacklevel=3)
    return dropped


def _survey(folder: Path, layout: Layout, name: str) -> Left | None:
    try:
        scenes.labels(name, folder / name, layout)
        scenes.check_video(scenes.timed(folder / name, layout))
    except SceneError as error:
        return Left(error.kind, error.reason)
    return None


def _read(folder: Path, layout: Layout, name: str) -> tuple[Labels, Arrays] | Left:
    try:
        labels = scenes.labels(name, folder / name, layout)
        scene = scenes.timed(folder / name, layout)
        return labels, {"frames": scenes.pictures(scene, layout.size), **scene.arrays}
    except SceneError as error:
        return Left(error.kind, error.reason)


def _kinds(dropped: dict[str, Left]) -> dict[str, int]:
    """Kind of reason → scenes, the most first."""
    return dict(Counter(left.kind for left in dropped.values()).most_common())
