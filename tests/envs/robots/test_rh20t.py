"""RH20T, read from a tree that the tests write in its layout; every number there tells its time."""

import json
import os
import re
import shutil

import numpy as np
import pytest
from rh20t_tree import CAMERA, FRAMES, OTHER, T0, change, known, name_of, save, scene, times_of, tree, value

from sprii_envs import dependencies
from sprii_envs.banks import StoreError
from sprii_envs.banks.generated import PublishedError
from sprii_envs.robots import rh20t, scenes
from sprii_envs.robots.rh20t import import_rh20t
from sprii_envs.robots.splits import counts, fewest

pytest.importorskip("imageio_ffmpeg")
GOOD = name_of(1)


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """One task of four scenes, which no test changes."""
    return tree(tmp_path_factory.mktemp("published") / "RH20T_cfg1", tasks=1)


@pytest.fixture
def root(published, tmp_path):
    """A copy for a test to damage; videos are linked."""
    shutil.copytree(published, tmp_path / "RH20T_cfg1", copy_function=lambda a, b: shutil.copy(a, b))
    return tmp_path / "RH20T_cfg1"


def read(root, path, **how):
    return import_rh20t(root, path, **{"size": 16} | how)


def column(bank, name, row):
    return bank.windows(name, [row], [0], int(bank.table["length"][row]))[0]


def test_a_tree_is_read(tmp_path):
    tree(tmp_path / "RH20T_cfg1", tasks=5)
    seen = []
    bank = read(tmp_path, tmp_path / "bank", progress=lambda *told: seen.append(told))
    assert seen == [(i, 20) for i in range(1, 21)] + [(i, 20) for i in range(21)]
    assert bank.table["example"].tolist() == [name_of(task, user) for task in range(1, 6) for user in range(1, 5)]
    assert bank.table["system"].tolist() == [f"task_{task:04d}" for task in range(1, 6) for _ in range(4)]
    assert bank.table["length"].tolist() == [FRAMES] * 20
    assert set(bank.table["calib_quality"]) == {3}
    assert bank.origin["kind"] == "published"
    order = np.random.default_rng(0).permutation(5)
    splits = dict(zip(bank.table["task"].tolist(), bank.table["split"].tolist(), strict=True))
    assert [splits[1 + i] for i in order] == ["train"] * 3 + ["validation", "test"]
    assert bank.notes["split"] == "5 tasks: 3 train, 1 validation, 1 test; scaled from 74, 25 and 25 of 124"
    assert bank.notes["dropped"] == {}
    frames = column(bank, "frames", 3).astype(int)
    expected = 3 * np.arange(FRAMES)[:, None, None]
    assert abs(frames[:, :, :8] - expected).max() <= 1
    assert abs(frames[:, :, 8:] - (255 - expected)).max() <= 1


def test_too_few_tasks_for_all_splits_are_told_of(published, tmp_path):
    """The least number is what the proportion of 74, 25, 25 gives each split one of."""
    with pytest.warns(UserWarning, match="1 tasks: 1 train, 0 validation, 0 test.* need 3 tasks of 4 good scenes"):
        read(published, tmp_path / "bank")
    assert [min(counts(tasks)) for tasks in range(1, 6)] == [0, 0, 1, 1, 1]
    assert fewest() == 3


def test_each_family_has_its_own_timestamps(published, tmp_path):
    """The published reader kept one list of times, of whichever family was read first, and indexed all others by it."""
    bank = read(published, tmp_path / "bank", joints=True)
    when = times_of()
    found = {name: column(bank, name, 0) for name in ("force", "tcp", "gripper", "action", "joint")}
    for i, at in enumerate(when["frames"]):
        expected = {
            "force": [value(known(when["force"], at), 10 + k) for k in range(6)],
            "tcp": [value(known(when["tcp"], at), k / 10) for k in range(3)],
            "gripper": [10 * value(known(when["gripper"], at), 0)],
            "action": [10 * value(known(when["gripper"], at), 0) + 5],
            "joint": [value(known(when["joint"], at), k) for k in range(7)],
        }
        for name, row in expected.items():
            np.testing.assert_allclose(found[name][i][: len(row)], row, rtol=1e-6, err_msg=f"{name} at frame {i}")
    turns = found["tcp"][:, 3:]
    assert ((turns[1:] * turns[:-1]).sum(axis=1) > 0).all()
    half = np.array([known(when["tcp"], at) - T0 for at in when["frames"]]) / 4000
    np.testing.assert_allclose(np.abs(turns[:, 0]), np.abs(np.cos(half)), atol=1e-6)


def test_frames_of_the_camera_and_forces_of_the_fast_file(published, tmp_path):
    when = times_of()
    camera = read(published, tmp_path / "camera", base=False)
    np.testing.assert_allclose(column(camera, "force", 0)[0, 0], value(known(when["force"], T0), 60), rtol=1e-6)
    np.testing.assert_allclose(column(camera, "tcp", 0)[0, 0], value(known(when["tcp"], T0), 0.5), rtol=1e-6)
    fast = read(published, tmp_path / "fast", high_frequency=True)
    expected = [value(known(when["high"], at), 10) for at in when["frames"]]
    np.testing.assert_allclose(column(fast, "force", 0)[:, 0], expected, rtol=1e-6)


@pytest.mark.parametrize(("config", "joints"), [(3, 6), (5, 7)])
def test_other_configurations(config, joints, tmp_path):
    for user in range(4):
        folder = scene(tmp_path / "tree", 1, user, config=config, camera="123", inner=user % 2 == 0)
        if config == 5:
            (folder / "transformed" / "force_torque_base.npy").unlink()
        change(folder, "transformed/joint.npy", lambda told: told["123"])  # without serials
    bank = read(tmp_path / "tree", tmp_path / "bank", config=config, camera="123", joints=True)
    found, when = column(bank, "joint", 0), times_of()
    assert found.shape == (FRAMES, joints)
    np.testing.assert_allclose(found[0], [value(known(when["joint"], T0), k) for k in range(joints)], rtol=1e-6)
    first = value(known(when["tcp"], T0), 30) if config == 5 else value(known(when["force"], T0), 10)
    np.testing.assert_allclose(column(bank, "force", 0)[0, 0], first, rtol=1e-6)


def cut(file, part=0.6):
    data = file.read_bytes()
    file.unlink()  # which may be linked elsewhere
    file.write_bytes(data[: int(part * len(data))])


def cut_behind(file):
    """Keep the index of an MP4, which is moved to its front, and lose the end of its pictures."""
    import subprocess

    import imageio_ffmpeg

    front = file.with_name("front.mp4")
    command = [
        imageio_ffmpeg.get_ffmpeg_exe(),
        "-v",
        "error",
        "-i",
        file,
        "-c",
        "copy",
        "-movflags",
        "faststart",
        front,
    ]
    subprocess.run(command, check=True)
    cut(front, 0.9)
    front.replace(file)


def of_camera(how):
    """A change of what the camera's serial holds."""

    def changed(told):
        told[CAMERA] = how(told[CAMERA])

    return changed


def first_entry(key, entry):
    def changed(told):
        told[20][key] = entry(told[20][key])
        return told

    return of_camera(changed)


def promise(file):
    """An array of a hundred numbers whose header tells of 10^12: as long a header, for NumPy pads it."""
    np.save(file, np.zeros(100))
    data = file.read_bytes().replace(b"(100,), }          ", b"(1000000000000,), }")
    file.write_bytes(data)


def metadata(**told):
    def changed(folder):
        file = folder / "metadata.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | told))

    return changed


def file(name, how):
    return lambda folder: how(folder / name)


def pickled(name, how):
    return lambda folder: change(folder, name, how)


TCP, FORCE, HAND = (f"transformed/{name}.npy" for name in ("tcp_base", "force_torque_base", "gripper"))
CLOCK, VIDEO = f"cam_{CAMERA}/timestamps.npy", f"cam_{CAMERA}/color.mp4"


class Hostile:
    def __reduce__(self):
        return os.system, ("touch mark",)


DAMAGED = {
    "a low rating": ("rating", "its rating is 1, wanted at least 2", metadata(rating=1)),
    "no rating": ("metadata", "its rating is None, expected an integer", metadata(rating=None)),
    "no metadata": ("metadata", "metadata.json does not exist", file("metadata.json", os.remove)),
    "text for metadata": ("metadata", "damaged: not JSON", file("metadata.json", lambda f: f.write_text("{"))),
    "a truncated video": ("video", "color.mp4 cannot be decoded as a video", file(VIDEO, cut)),
    "a video without its end": ("video", r"color.mp4 has \d+ frames, and 70 times", file(VIDEO, cut_behind)),
    "an empty video": ("video", "cannot be decoded", file(
        VIDEO, lambda f: (f.unlink(), f.touch()))),
    "no video": ("video", "holds no color.mp4", file(VIDEO, os.remove)),
    "another camera": (
        "camera", f"cam_{CAMERA} is missing; there: cam_x", lambda f: (f / f"cam_{CAMERA}").rename(f / "cam_x")),
    "samples of another camera": ("tcp_base", f"nothing of {CAMERA}, but: {OTHER}", pickled(
        TCP, lambda t: t.pop(CAMERA) and None)),
    "no gripper": ("gripper", "gripper.npy is missing", file(HAND, os.remove)),
    "an empty gripper": ("gripper", "no sample of gripper is near", pickled(HAND, of_camera(lambda t: {}))),
    "a gripper without its width": ("gripper", "gripper.npy: sample 0 is without 'gripper_info'", pickled(
        HAND, of_camera(
        lambda told: {t: {"gripper_command": [1.0]} for t in told}))),
    "no forces": ("force", "no sample of force is near", pickled(FORCE, of_camera(lambda t: []))),
    "a force of five": ("force", r"base.npy: sample 20 has zeroed of the shape \(5,\), expected 6 numbers", pickled(
        FORCE, first_entry("zeroed", lambda v: v[:5]))),
    "a NaN": ("force", "force holds NaN or infinity at frame 1[01]$", pickled(
        FORCE, first_entry("zeroed", lambda v: v * np.nan))),
    "a tool far away": ("tcp", "is 20 m away at frame 1[89], legal: at most 10", pickled(TCP, first_entry(
        "tcp", lambda v: np.concatenate([[20.0, 0.0, 0.0], v[3:]])))),
    "no turn at all": ("tcp", "has the length 0 at frame 1[89], legal: 1", pickled(
        TCP, first_entry("tcp", lambda v: v * [1, 1, 1, 0, 0, 0, 0]))),
    "a time that is NaN": ("tcp", "tcp_base.npy: the time of sample 20 is nan, no number of milliseconds", pickled(
        TCP, first_entry("timestamp", lambda t: np.nan))),
    "a time as text": ("tcp", r"the time of sample 20 is '\d+', no number of milliseconds", pickled(
        TCP, first_entry("timestamp", str))),
    "numbers as text": ("force", "sample 20 has zeroed as text, expected numbers", pickled(
        FORCE, first_entry("zeroed", lambda v: [str(x) for x in v]))),
    "a sample that is no dict": ("gripper", r"gripper.npy: its sample of \d+ is a list or array, expected", pickled(
        HAND, of_camera(lambda told: {t: [1.0] for t in told}))),
    "frames that go back": ("timestamps", "frame 5 is not later than the one before", pickled(
        CLOCK, lambda t: {"color": [*t["color"][:5], t["color"][3], *t["color"][6:]]})),
    "no times": ("timestamps", "tells no times of color", pickled(CLOCK, lambda t: {"depth": t["color"]})),
    "few frames": ("frames", "it has 60 frames, wanted at least 64", pickled(
        CLOCK, lambda t: {"color": t["color"][:60]})),
    "a stream that ends early": ("frames", "are there in 5[0-9] frames, wanted 64", pickled(
        TCP, of_camera(lambda t: [s for s in t if s["timestamp"] < T0 + 4000]))),
    "a hole": ("hole", "at frame 50 a stream's last sample is older than 1000 ms", pickled(
        TCP, of_camera(lambda t: [s for s in t if not T0 + 3990 <= s["timestamp"] < T0 + 5500]))),
    "a list for a dict": ("tcp_base", "tcp_base.npy: what it holds is a list or array, expected a dict", pickled(
        TCP, lambda t: [t])),
    "a cut pickle": ("tcp_base", "tcp_base.npy is damaged or refused", file(TCP, cut)),
    "a header that promises more": ("tcp_base", "its header tells of 8,000,000,000,000 bytes, 800 are there", file(
        TCP, promise)),
    "an empty file": ("tcp_base", "tcp_base.npy cannot be read", file(TCP, lambda f: f.write_bytes(b""))),
}  # fmt: skip


def test_damaged_scenes_are_left_out_and_listed(root, tmp_path):
    """All kinds of damage in one tree: each is told of by its scene, and the good ones are as ever."""
    for number, (_, _, damage) in enumerate(DAMAGED.values()):
        damage(scene(root, 10, number, 9))
    scene(root, 1, 8, ending="_human")
    scene(root, 1, 8, config=2)
    scene(root, 7)
    bank = read(root, tmp_path / "bank")
    assert len(bank.table) == 4
    dropped, kinds = bank.notes["dropped"], []
    for number, (name, (kind, reason, _)) in enumerate(DAMAGED.items()):
        kinds.append(kind)
        assert re.search(reason, dropped[name_of(10, number, 9)]), name
    more = {
        name_of(1, 8) + "_human": ("human", "a person acts in it"),
        name_of(1, 8, config=2): ("configuration", "its configuration is 2, wanted 1"),
        name_of(7): ("few", "its task has 1 good scenes, wanted 4"),
    }
    for name, (kind, reason) in more.items():
        kinds.append(kind)
        assert dropped[name] == reason
    assert len(dropped) == len(DAMAGED) + len(more)
    assert bank.notes["left_out"] == {kind: kinds.count(kind) for kind in kinds}


def test_samples_out_of_order_are_sorted(root, published, tmp_path):
    for name in (TCP, FORCE):
        change(root / GOOD, name, of_camera(lambda told: told[::-1]))
    change(root / GOOD, HAND, of_camera(lambda told: dict(reversed(told.items()))))
    one, other = read(root, tmp_path / "a"), read(published, tmp_path / "b")
    for name in one.columns:
        np.testing.assert_array_equal(column(one, name, 0), column(other, name, 0))


def test_frames_without_samples_are_cut_at_both_ends(root, tmp_path):
    change(root / GOOD, TCP, of_camera(lambda told: [s for s in told if s["timestamp"] > T0 + 180]))
    bank = read(root, tmp_path / "bank")
    assert bank.table["length"].tolist() == [FRAMES - 2, *[FRAMES] * 3]
    assert abs(column(bank, "frames", 0)[0, :, :8].astype(int) - 6).max() <= 1
    np.testing.assert_allclose(
        column(bank, "force", 0)[0, 0], value(known(times_of()["force"], T0 + 200), 10), rtol=1e-6
    )


def test_a_hostile_pickle_is_not_run(root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(root / GOOD / HAND, {CAMERA: Hostile()})
    scene(root, 1, 5)
    with pytest.warns(
        UserWarning, match=r"left out for their pickles: 1, such as .*gripper\.npy asks for posix.system"
    ):
        bank = read(root, tmp_path / "bank")
    assert not (tmp_path / "mark").exists()
    assert bank.notes["left_out"] == {"pickle": 1}
    assert "gripper.npy asks for posix.system" in bank.notes["dropped"][GOOD]


def test_what_the_survey_could_not_see_is_left_out_too(root, tmp_path, monkeypatch):
    """A video that breaks while it is decoded: its scene is gone, and its task is told to be short."""
    monkeypatch.setattr(scenes, "check_video", lambda scene: None)
    cut(root / GOOD / VIDEO)
    bank = read(root, tmp_path / "bank")
    assert len(bank.table) == 3
    assert list(bank.notes["dropped"]) == [GOOD]
    assert bank.notes["short"] == {"task_0001": 3}


def test_a_video_of_the_right_length_whose_bits_are_damaged_is_left_out(root, tmp_path):
    video = root / GOOD / VIDEO
    data = bytearray(video.read_bytes())
    media = data.index(b"mdat")
    size = int.from_bytes(data[media - 4 : media], "big")
    data[media + size // 2 : media + size // 2 + size // 8] = bytes(size // 8)
    video.write_bytes(data)
    bank = read(root, tmp_path / "bank")
    assert list(bank.notes["dropped"]) == [GOOD]
    assert "color.mp4 cannot be decoded as a video" in bank.notes["dropped"][GOOD]


class Stopped(Exception):
    pass


def stop_at(*point):
    def tell(*told):
        if told == point:
            raise Stopped

    return tell


def test_an_import_goes_on_after_a_kill_in_the_same_bytes(root, tmp_path):
    os.remove(root / GOOD / VIDEO)
    for user in (5, 6):
        scene(root, 1, user)
    scene(root, 1, 7, rating=0)
    scene(root, 2)
    with pytest.raises(Stopped):
        read(root, tmp_path / "a", progress=stop_at(3, 5))
    assert not (tmp_path / "a").exists()
    one, other = read(root, tmp_path / "a"), read(root, tmp_path / "b", workers=2)
    assert one.fingerprint == other.fingerprint
    assert len(one.table) == 5
    assert one.notes["left_out"] == {"video": 1, "rating": 1, "few": 1}


def test_a_task_keeps_its_split_when_an_import_goes_on(root, tmp_path, monkeypatch):
    scene(root, 1, 7, rating=0)  # surveyed, and not read
    with pytest.raises(Stopped):
        read(root, tmp_path / "bank", progress=stop_at(2, 4))
    monkeypatch.setattr(rh20t, "split_tasks", lambda tasks, seed: dict.fromkeys(tasks, "test"))
    with pytest.raises(StoreError, match=r"was read into the split train, and is of test now.*remove the bank"):
        read(root, tmp_path / "bank")


def test_a_bank_that_is_there_is_opened_unread(published, tmp_path, monkeypatch):
    bank = read(published, tmp_path / "bank")
    monkeypatch.setattr(scenes, "labels", lambda *told: pytest.fail("read again"))
    assert read(published, tmp_path / "bank").fingerprint == bank.fingerprint
    with pytest.raises(StoreError, match="its seed is 0, not 1"):
        read(published, tmp_path / "bank", seed=1)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"config": 0}, "config is 0; legal: an integer >= 1, at most 7"),
        ({"config": 2}, "camera is None; legal: a serial"),
        ({"camera": "../x"}, r"camera is '\.\./x'; legal: a serial"),
        ({"size": 4}, "size is 4"),
        ({"rating": 10}, "rating is 10"),
        ({"workers": 0}, "workers is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"config": 5, "camera": "1", "high_frequency": True}, "high_frequency is True"),
    ],
)
def test_arguments_that_no_recording_has(how, said, tmp_path):
    with pytest.raises(ValueError, match=said):
        read(tmp_path, tmp_path / "bank", **how)
    assert not list(tmp_path.iterdir())


def test_a_size_beyond_the_pictures_is_told_before_anything_is_written(published, tmp_path):
    with pytest.raises(ValueError, match="size is 30; legal: 1 to 24, for the pictures are 32×24"):
        read(published, tmp_path / "bank", size=30)
    assert not list(tmp_path.iterdir())


def test_what_to_install_is_said_before_anything_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(dependencies, "is_absent", lambda package: package == "imageio_ffmpeg")
    with pytest.raises(dependencies.PackageImportError, match=r"needs imageio_ffmpeg: pip install 'sprii\[robots\]'"):
        read(tmp_path, tmp_path / "bank")


def test_roots_without_scenes(published, tmp_path):
    with pytest.raises(PublishedError, match="gone is missing"):
        read(tmp_path / "gone", tmp_path / "bank")
    (tmp_path / "empty").mkdir()
    with pytest.raises(PublishedError, match="empty holds no scene, such as task_0001"):
        read(tmp_path / "empty", tmp_path / "bank")
    with pytest.raises(PublishedError, match="no task has 4 scenes that can be used; left out: 4 camera"):
        read(published, tmp_path / "bank", camera="1")
