"""One scene of RH20T as arrays: its files read, joined to the times of its pictures, and checked.

task_0001_user_0016_scene_0004_cfg_0001/      a scene; …_human, where a person acts
  metadata.json           rating, calib, calib_quality, start_time, finish_time
  cam_<serial>/           color.mp4 or color/color.mp4; timestamps.npy: {"color": [ms], "depth": [ms]}
  transformed/            pickled dicts, by serial of a camera
    tcp.npy, tcp_base.npy                    lists of {timestamp, tcp (7), robot_ft (6)}
    force_torque.npy, force_torque_base.npy  lists of {timestamp, raw (6), zeroed (6)}
    high_freq_data.npy                       such lists, of "base" or a serial, at a higher rate
    gripper.npy                              {ms: {gripper_command, gripper_info}}
    joint.npy                                {ms: vector}; or that without serials

Positions are metres, quaternions w, x, y, z, gripper widths millimetres.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sprii_envs import files
from sprii_envs.arguments import MANY, check, flag, integer, shown
from sprii_envs.banks import StreamSpec
from sprii_envs.robots import restricted
from sprii_envs.robots.alignment import Series, continuous, joined, series, unbroken
from sprii_envs.videos import count_frames, read_grey

NAME = re.compile(r"task_(\d{4})_user_(\d{4})_scene_(\d{4})_cfg_(\d{4})(_human)?")
CAMERAS: Mapping[int, str] = {1: "750612070851"}
"""Configuration → serial of the camera that is read where none is named."""
JOINTS: Mapping[int, int] = {1: 7, 2: 7, 3: 6, 4: 6, 5: 7, 6: 7, 7: 7}
"""Configuration → joints of its arm; further columns of the file are no joints."""
WITHOUT_SENSOR = 5
"""The configuration whose arm (Franka) has no force sensor of its own: `robot_ft` of the arm is read."""
FARTHEST = 10.0
"""Metres from the origin beyond which a tool is nowhere."""
FORCE, TCP, GRIPPER = 6, 7, 1


class SceneError(Exception):
    """Why a scene is left out: a word for the kind of reason, and the reason."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(kind, reason)
        self.kind, self.reason = kind, reason


@dataclass(frozen=True)
class Layout:
    """What is read of scenes.

    Attributes:
        config: configuration of the robot, 1 … 7.
        camera: serial of the camera whose pictures and times are taken; None: the one of `CAMERAS`.
        size: of the pictures, pixels along a side.
        base: whether forces and poses are in the frame of the robot's base; otherwise in that of the camera.
        high_frequency: whether forces are taken from `high_freq_data.npy`.
        joints: whether joint angles are read.
        rating: the least that a scene may have, 0 … 9; calibration: the least `calib_quality`, or None for any.
        frames: the fewest that a scene may have.
        oldest: ms, how old the last sample of a stream may be at a frame.

    Raises:
        ValueError: for a value that no recording has, naming it.
    """

    config: int = 1
    camera: str | None = None
    size: int = 96
    base: bool = True
    high_frequency: bool = False
    joints: bool = False
    rating: int = 2
    calibration: int | None = None
    frames: int = 64
    oldest: int = 1000

    def __post_init__(self) -> None:
        """ValueError, see above."""
        check(self, integer, "config", least=1, most=max(JOINTS))
        check(self, integer, "size", least=8, most=360)
        check(self, flag, "base", "high_frequency", "joints")
        check(self, integer, "rating", most=9)
        check(self, integer, "calibration", optional=True)
        check(self, integer, "frames", least=1, most=MANY)
        check(self, integer, "oldest", least=1)
        camera = CAMERAS.get(self.config) if self.camera is None else self.camera
        if not isinstance(camera, str) or not re.fullmatch(r"\w+", camera):
            legal = "a serial, as 750612070851 of cam_750612070851"
            needed = f", for config {self.config} has no usual one" if self.camera is None else ""
            raise ValueError(f"Layout.camera is {shown(self.camera)}; legal: {legal}{needed}")
        object.__setattr__(self, "camera", camera)
        if self.high_frequency and self.config == WITHOUT_SENSOR:
            raise ValueError(
                f"Layout.high_frequency is True; legal of configuration {self.config}, without sensor: False"
            )

    @property
    def serial(self) -> str:
        """The camera's."""
        return str(self.camera)

    @property
    def streams(self) -> dict[str, StreamSpec]:
        """Columns, with an entry a frame."""
        return streams(self.size) | ({"joint": StreamSpec((JOINTS[self.config],))} if self.joints else {})


def streams(size: int) -> dict[str, StreamSpec]:
    """Columns of every bank of manipulation: grey pictures, force and torque, pose, gripper's width and command."""
    return {
        "frames": StreamSpec((size, size), "uint8"),
        "force": StreamSpec((FORCE,)),
        "tcp": StreamSpec((TCP,)),
        "gripper": StreamSpec((GRIPPER,)),
        "action": StreamSpec((GRIPPER,)),
    }


@dataclass(frozen=True)
class Timed:
    """A scene without its pictures: which frames of the video are kept, and what was known at each."""

    video: Path
    count: int
    kept: slice
    times: NDArray[np.int64]
    arrays: dict[str, NDArray[np.float32]]


def labels(name: str, folder: Path, layout: Layout) -> dict[str, Any]:
    """Labels of a scene, from its name and metadata; SceneError for one that is not wanted."""
    match = NAME.fullmatch(name)
    if match is None or match[5]:
        raise SceneError("human", "a person acts in it") if match else SceneError("name", "not the name of a scene")
    if int(match[4]) != layout.config:
        raise SceneError("configuration", f"its configuration is {int(match[4])}, wanted {layout.config}")
    told = _metadata(folder / "metadata.json")
    rating, quality = told["rating"], told["calib_quality"]
    if not rating >= layout.rating:
        raise SceneError("rating", f"its rating is {rating}, wanted at least {layout.rating}")
    if layout.calibration is not None and not quality >= layout.calibration:
        raise SceneError("calibration", f"its calib_quality is {quality}, wanted at least {layout.calibration}")
    return {
        "system": f"task_{match[1]}",
        "example": name,
        "task": int(match[1]),
        "user": int(match[2]),
        "place": int(match[3]),
        "config": layout.config,
        "rating": rating,
        "calib": str(told.get("calib", "")),
        "calib_quality": quality,
        "start_time": told["start_time"],
        "finish_time": told["finish_time"],
    }


def _metadata(file: Path) -> dict[str, Any]:
    """The metadata, with a rating; other numbers are integers, or -1 where none is told."""
    try:
        told = files.read_json(file)
    except files.FileError as error:
        raise SceneError("metadata", str(error)) from None
    for name in ("rating", "calib_quality", "start_time", "finish_time"):
        value: Any = told.get(name)
        whole = isinstance(value, int | float) and not isinstance(value, bool) and value % 1 == 0 and abs(value) < 2**53
        if name == "rating" and not whole:
            raise SceneError("metadata", f"{file}: its rating is {shown(value)}, expected an integer")
        told[name] = int(value) if whole else -1
    return told


def timed(folder: Path, layout: Layout) -> Timed:
    """A scene without its pictures; SceneError for one that is damaged, too short, or lacks something."""
    camera = folder / f"cam_{layout.serial}"
    if not camera.is_dir():
        there = ", ".join(sorted(each.name for each in folder.glob("cam_*"))) or "none"
        raise SceneError("camera", f"camera is {layout.serial!r}, but {camera.name} is missing; there: {there}")
    video = next((file for place in ("", "color") if (file := camera / place / "color.mp4").is_file()), None)
    if video is None:
        raise SceneError("video", f"{camera} holds no color.mp4")
    at = _frame_times(camera / "timestamps.npy")
    if len(at) < layout.frames:
        raise SceneError("frames", f"it has {len(at)} frames, wanted at least {layout.frames}")
    arrays, fresh = {}, np.ones(len(at), bool)
    for name, samples in _families(folder / "transformed", layout).items():
        arrays[name], age = joined(samples, at)
        if not (age <= layout.oldest).any():
            raise SceneError(name, f"no sample of {name} is near a frame in time")
        fresh &= age <= layout.oldest
    kept, hole = unbroken(fresh)
    count = kept.stop - kept.start
    if count < layout.frames:
        raise SceneError("frames", f"samples of all streams are there in {count} frames, wanted {layout.frames}")
    if hole is not None:
        raise SceneError("hole", f"at frame {hole} a stream's last sample is older than {layout.oldest} ms")
    arrays = {name: values[kept].astype(np.float32) for name, values in arrays.items()}
    arrays["tcp"][:, 3:] = continuous(arrays["tcp"][:, 3:].astype(np.float64))
    for name, values in arrays.items():
        if (odd := ~np.isfinite(values).all(axis=1)).any():
            raise SceneError(name, f"{name} holds NaN or infinity at frame {kept.start + int(odd.argmax())}")
    lengths = np.linalg.norm(arrays["tcp"][:, 3:], axis=1)
    if abs(lengths[worst := int(np.argmax(abs(lengths - 1.0)))] - 1.0) > 0.1:
        told = f"a quaternion of its tool has the length {lengths[worst]:.3g} at frame {kept.start + worst}"
        raise SceneError("tcp", f"{told}, legal: 1")
    away = np.linalg.norm(arrays["tcp"][:, :3], axis=1)
    if away[worst := int(away.argmax())] > FARTHEST:
        told = f"its tool is {away[worst]:.3g} m away at frame {kept.start + worst}"
        raise SceneError("tcp", f"{told}, legal: at most {FARTHEST:g}")
    return Timed(video, len(at), kept, at[kept], arrays)


def check_video(scene: Timed) -> None:
    """SceneError unless the video has a frame a time; nothing is decoded."""
    try:
        found = count_frames(scene.video)
    except files.FileError as error:
        raise SceneError("video", str(error)) from None
    if found != scene.count:
        raise SceneError("video", f"{scene.video} has {found} frames, and {scene.count} times")


def pictures(scene: Timed, size: int) -> NDArray[np.uint8]:
    """Frames that are kept, in grey, (T, size, size); SceneError for damage, ValueError for a size beyond them."""
    try:
        return read_grey(scene.video, scene.count, size, scene.kept)
    except files.FileError as error:
        raise SceneError("video", str(error)) from None


def _load(file: Path) -> Any:
    try:
        return restricted.load(file)
    except restricted.RefusedPickleError as error:
        raise SceneError("pickle", str(error)) from None
    except files.FileError as error:
        raise SceneError(file.stem, str(error)) from None


def _frame_times(file: Path) -> NDArray[np.int64]:
    told = _load(file)
    try:
        at = np.asarray(told["color"]).reshape(-1)
        times = series(at, np.zeros((len(at), 0))).times
        at = at.astype(np.float64)
    except (TypeError, ValueError, KeyError, IndexError):
        raise SceneError("timestamps", f"{file} tells no times of color frames in ms") from None
    if not (np.diff(at) > 0.0).all():
        first = int(np.argmin(np.diff(at) > 0.0)) + 1
        raise SceneError("timestamps", f"{file}: frame {first} is not later than the one before")
    return times


def _families(folder: Path, layout: Layout) -> dict[str, Series]:
    """Each stream on times of its own; SceneError for a file that is missing or holds something else."""
    ending = "_base" if layout.base else ""
    place = folder / f"tcp{ending}.npy"
    poses = _of_serial(place, layout.serial)
    found = {"tcp": _samples("tcp", place, poses, "tcp", TCP)}
    if layout.config == WITHOUT_SENSOR:
        found["force"] = _samples("force", place, poses, "robot_ft", FORCE)
    else:
        file, key = folder / f"force_torque{ending}.npy", layout.serial
        if layout.high_frequency:
            file, key = folder / "high_freq_data.npy", "base" if layout.base else layout.serial
        found["force"] = _samples("force", file, _of_serial(file, key), "zeroed", FORCE)
    file = folder / "gripper.npy"
    hand = [{**_dict(v, file, f"its sample of {t}"), "timestamp": t} for t, v in _by_time(file, layout.serial)]
    for name, key in (("gripper", "gripper_info"), ("action", "gripper_command")):
        found[name] = _samples("gripper", file, hand, key, GRIPPER)
    if layout.joints:
        file = folder / "joint.npy"
        angles = [{"timestamp": t, "joint": v} for t, v in _by_time(file, layout.serial)]
        found["joint"] = _samples("joint", file, angles, "joint", JOINTS[layout.config])
    return found


def _of_serial(file: Path, serial: str) -> Any:
    told = _dict(_load(file), file)
    if serial not in told:
        there = ", ".join(str(key)[:20] for key in list(told)[:8]) or "nothing"
        raise SceneError(file.stem, f"{file} holds nothing of {serial}, but: {there}")
    return told[serial]


def _by_time(file: Path, serial: str) -> Iterable[tuple[Any, Any]]:
    """(time, value) of a dict by time, with or without serials above."""
    told = _dict(_load(file), file)
    if told and all(isinstance(key, int | float | np.number) for key in told):
        return told.items()
    return _dict(_of_serial(file, serial), file, f"what it has of {serial}").items()


def _dict(value: Any, file: Path, what: str = "what it holds") -> dict[Any, Any]:
    if not isinstance(value, dict):
        kind = "a list or array" if isinstance(value, list | tuple | np.ndarray) else f"of type {type(value).__name__}"
        raise SceneError(file.stem, f"{file}: {what} is {kind}, expected a dict")
    return value


def _samples(name: str, file: Path, told: Any, key: str, width: int) -> Series:
    """The first `width` numbers of an entry of each sample; poses and forces have no more than these."""
    exact = name in ("tcp", "force")
    times: list[Any] = []
    values = []
    try:
        for sample in told:
            entry = np.atleast_1d(np.asarray(sample[key]))
            if entry.ndim != 1 or entry.size < width or (exact and entry.size != width):
                raise ValueError(f"has {key} of the shape {entry.shape}, expected {width} numbers")
            if entry.dtype.kind in "SU":
                raise ValueError(f"has {key} as text, expected numbers")
            values.append(entry[:width].astype(np.float64))
            times.append(sample["timestamp"])
    except (TypeError, ValueError, KeyError, IndexError) as error:
        why = f"is without {error}" if isinstance(error, KeyError) else error
        raise SceneError(name, f"{file}: sample {len(times)} {why}") from None
    try:
        return series(times, np.array(values).reshape(-1, width))
    except (TypeError, ValueError) as error:
        raise SceneError(name, f"{file}: {error}") from None
