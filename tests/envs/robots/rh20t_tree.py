"""Scenes of RH20T in the published layout, small: every number in a file tells the time at which it was taken."""

import json
import os

import numpy as np

from sprii_envs.videos import write_video

CAMERA, OTHER = "750612070851", "039422060546"
T0 = 1_630_000_000_000
FRAMES, SIZE = 70, (24, 32)


def value(times, row):
    """What stands in row `row` of a sample of each time, (N,)."""
    return (np.asarray(times, np.float64) - T0) / 1e5 + row


def turn(times):
    """Unit quaternions (N, 4), w, x, y, z, of a rotation that goes on; every other one with the other sign."""
    angle = np.asarray([(t - T0) / 2000 for t in times])
    sign = np.where(np.arange(len(angle)) % 2, -1.0, 1.0)
    return sign[:, None] * np.stack([np.cos(angle / 2), np.sin(angle / 2), 0 * angle, 0 * angle], axis=1)


def times_of(frames=FRAMES):
    """Times of each stream: no two have one clock, and forces have another number of samples."""
    end = T0 + 100 * frames
    return {
        "frames": [T0 + 100 * i for i in range(frames)],
        "tcp": list(range(T0 - 70, end, 90)),
        "force": list(range(T0 - 35, end, 50)),
        "gripper": list(range(T0 - 240, end, 230)),
        "joint": list(range(T0 - 10, end, 110)),
        "high": list(range(T0 - 3, end, 10)),
    }


def name_of(task, user=1, place=1, config=1):
    return f"task_{task:04d}_user_{user:04d}_scene_{place:04d}_cfg_{config:04d}"


def samples(times, **columns):
    rows = zip(times, *columns.values(), strict=True)
    return [{"timestamp": row[0]} | dict(zip(columns, row[1:], strict=True)) for row in rows]


def save(file, told):
    file.parent.mkdir(parents=True, exist_ok=True)
    np.save(file, told, allow_pickle=True)


def video(root, frames=FRAMES):
    """A video of grey frames: the left half is 3 × the number of the frame, the right half 255 minus that."""
    file = root / f"video_{frames}.mp4"
    if not file.exists():
        left = 3 * np.arange(frames)[:, None, None, None] * np.ones((1, *SIZE, 3), int)
        right = np.arange(SIZE[1])[:, None] >= SIZE[1] // 2
        root.mkdir(parents=True, exist_ok=True)
        write_video(file, np.where(right, 255 - left, left).astype(np.uint8), 10, exact=True)
    return file


def scene(root, task, user=1, place=1, config=1, frames=FRAMES, camera=CAMERA, inner=False, ending="", **metadata):
    """One scene; `inner` puts the video into a folder of its own."""
    folder = root / (name_of(task, user, place, config) + ending)
    when = times_of(frames)
    told = {"rating": 5, "calib": 1_629_900_000_000, "calib_quality": 3, "start_time": T0, "finish_time": T0 + 9000}
    folder.mkdir(parents=True)
    (folder / "metadata.json").write_text(json.dumps(told | metadata))
    place_of = folder / f"cam_{camera}" / ("color" if inner else "")
    place_of.mkdir(parents=True)
    os.link(video(root / "videos", frames), place_of / "color.mp4")
    save(folder / f"cam_{camera}" / "timestamps.npy", {"color": when["frames"], "depth": when["frames"][::2]})
    for ending_of, shift in (("", 50.0), ("_base", 0.0)):
        xyz = np.stack([value(when["tcp"], k / 10 + shift / 100) for k in range(3)], axis=1)
        pose = np.concatenate([xyz, turn(when["tcp"])], axis=1)
        robot = np.stack([value(when["tcp"], 30 + k + shift) for k in range(6)], axis=1)
        force = np.stack([value(when["force"], 10 + k + shift) for k in range(6)], axis=1)
        save(folder / "transformed" / f"tcp{ending_of}.npy",
             {s: samples(when["tcp"], tcp=pose, robot_ft=robot) for s in (camera, OTHER)})  # fmt: skip
        save(folder / "transformed" / f"force_torque{ending_of}.npy",
             {s: samples(when["force"], raw=force + 5, zeroed=force) for s in (camera, OTHER)})  # fmt: skip
    width = [[value([t], 0)[0] * 10, 40.0, 1.0] for t in when["gripper"]]
    hand = {t: {"gripper_command": [w[0] + 5, 0.0], "gripper_info": w}
            for t, w in zip(when["gripper"], width, strict=True)}  # fmt: skip
    save(folder / "transformed" / "gripper.npy", {camera: hand})
    angles = {t: np.concatenate([value([t] * 7, np.arange(7)), np.full(7, 99.0)]) for t in when["joint"]}
    save(folder / "transformed" / "joint.npy", {camera: angles})
    fast = np.stack([value(when["high"], 10 + k) for k in range(6)], axis=1)
    save(folder / "transformed" / "high_freq_data.npy", {"base": samples(when["high"], zeroed=fast, raw=fast)})
    return folder


def tree(root, tasks=5, each=4, **how):
    """`each` scenes of tasks 1 … in a folder that holds nothing else."""
    for task in range(1, tasks + 1):
        for user in range(1, each + 1):
            scene(root, task, user, **how)
    return root


def change(folder, file, how):
    """A pickled file of a scene as `how(what it held)` gives it."""
    told = np.load(folder / file, allow_pickle=True).item()
    save(folder / file, how(told) or told)


def known(times, at):
    """The latest of `times` that is not behind `at`."""
    return max(t for t in times if t <= at)
