"""Published CoPhy, read from files that the tests write by hand in its layout, and from our own export."""

import re
import subprocess
import sys
import warnings

import numpy as np
import pytest

from sprii_envs import dependencies
from sprii_envs.banks import StoreError
from sprii_envs.banks.generated import PublishedError
from sprii_envs.cophy import bank as cophy
from sprii_envs.cophy.objects import COLOURS, FRAMES, LEVELS
from sprii_envs.cophy.published import import_cophy
from sprii_envs.videos import count_frames, smaller

FOLDERS = {"balls": "ballsCF/3", "collision": "collisionCF", "blocktower": "blocktowerCF/3"}
TYPES = {"yellow": "sphere", "green": "cylinder_up", "blue": "cylinder_down", "red": "sphere"}
SHOWN = {"balls": ["cyan", "red", "lime"], "collision": ["red", "green"], "blocktower": ["yellow", "red", "blue"]}
"""Scene → colours in the order of colors.txt, which is not that of the slots."""


def write_video(file, frames, **how):
    imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
    size = frames.shape[2], frames.shape[1]
    stream = imageio_ffmpeg.write_frames(file, size, fps=5, codec="libx264rgb", pix_fmt_out="rgb24", quality=None,
                                         macro_block_size=2, output_params=["-crf", "0"], **how)  # fmt: skip
    stream.send(None)
    for frame in frames:
        stream.send(np.ascontiguousarray(frame))
    stream.close()


def pixels(number, video, scene="balls", side=224):
    """Frames that differ everywhere: a ramp along each axis, and a colour of the example, video and time."""
    t, y, x = np.meshgrid(np.arange(FRAMES[scene]), np.arange(side), np.arange(side), indexing="ij")
    return np.stack([y % 256, x % 256, (7 * t + 50 * number + 100 * (video == "cd")) % 256], -1).astype(np.uint8)


def state(number, video, colour, width=13, scene="balls"):
    """What is different for every example, video, colour, time and entry, (T, width)."""
    first = 100 * number + 10 * COLOURS[scene].index(colour) + 5 * (video == "cd")
    told = first + np.arange(FRAMES[scene])[:, None] / 100 + np.arange(width) / 1000 + 0.25
    if width == 13:
        told[:, 3:7] /= np.linalg.norm(told[:, 3:7], axis=1, keepdims=True)
    return told


def properties(scene, colour):
    """Of a colour, at published levels."""
    slot, levels = COLOURS[scene].index(colour), LEVELS[scene]
    names = ["mass", "friction", "restitution"][: 2 + (scene != "blocktower")]
    return [levels[name][(slot + i) % len(levels[name])] for i, name in enumerate(names)]


def example(root, scene, number, padded=True, videos=True, gone=None):
    """One example, in the published layout; `gone` is a colour that the second video lacks."""
    folder = root / FOLDERS[scene] / f"{number:05d}"
    for video in ("ab", "cd"):
        place = folder / video
        place.mkdir(parents=True)
        shown = [colour for colour in SHOWN[scene] if video == "ab" or colour != gone]
        told = [f"shape=big type={TYPES[c]} size=1 color={c}" if scene == "collision" else c for c in shown]
        (place / "colors.txt").write_text("\n".join(told))
        for name, width in (("states", 13), ("bboxes", 4)):
            slots = COLOURS[scene] if padded else shown
            columns = [state(number, video, c, width, scene) * (c in shown) for c in slots]
            np.save(place / f"{name}.npy", np.stack(columns, axis=1))
        if videos:
            write_video(place / "rgb.mp4", pixels(number, video, scene))
    shown = COLOURS[scene] if scene != "blocktower" else SHOWN[scene]
    confounders = np.array([properties(scene, c) if c in SHOWN[scene] else [0.0, 0.0, 0.0] for c in shown])
    np.save(folder / "confounders.npy", confounders + 0.01)  # float noise, rounded away
    if scene == "blocktower":
        (folder / "gravity.txt").write_text("gravity_x=0.5 gravity_y=-0.5\n")
    else:
        (folder / "explanations.txt").write_text(f"object {number}\n moved\n")
    return folder


def lists(root, scene, variant="normal", **ids):
    (root / "splits").mkdir(parents=True, exist_ok=True)
    told = {"balls": "ballsCF_3", "collision": f"collisionCF_{variant}", "blocktower": f"blocktowerCF_3_{variant}"}
    for split in ("train", "val", "test"):
        text = "".join(f"{number:05d}\n" for number in ids.get(split, ()))
        (root / "splits" / f"{told[scene]}_{split}.txt").write_text(text)


def archive(root, scene, videos=False, **how):
    for number in (1, 2, 3):
        example(root, scene, number, videos=videos, **how)
    lists(root, scene, train=[3, 1], val=[2])
    return root


def read(root, path, scene="balls", **how):
    return import_cophy(root, path, scene, len(SHOWN[scene]), **{"videos": False} | how)


def check(bank, scene, videos=("ab", "cd"), shown=None):
    shown = SHOWN[scene] if shown is None else shown
    for row, name in enumerate(bank.table["example"].tolist()):
        for video in videos:
            found = {"states": cophy.states(bank, [row], video)[0], "boxes": cophy.boxes(bank, [row], video)[0]}
            for slot, colour in enumerate(COLOURS[scene]):
                for what, width in (("states", 13), ("boxes", 4)):
                    expected = state(int(name), video, colour, width, scene) * (colour in shown)
                    np.testing.assert_array_equal(found[what][:, slot], expected.astype(np.float32))


@pytest.mark.parametrize("scene", SHOWN)
def test_files_written_by_hand_are_read(tmp_path, scene):
    seen = []
    root = archive(tmp_path / "CoPhy_224", scene)
    bank = read(root, tmp_path / "bank", scene, progress=lambda *told: seen.append(told))
    assert seen == [(done, 3) for done in range(4)]
    assert bank.table["example"].tolist() == ["00003", "00001", "00002"]
    assert bank.table["split"].tolist() == ["train", "train", "validation"]
    check(bank, scene)
    slots = cophy.slots(bank, [1])
    kinds = {"balls": [0, 0, 0], "collision": [0, 1], "blocktower": [3, 3, 3]}[scene]
    for slot, colour in enumerate(COLOURS[scene]):
        there = colour in SHOWN[scene]
        assert slots.kind[0, slot] == (kinds[SHOWN[scene].index(colour)] if there else -1)
        told = [slots.mass[0, slot], slots.friction[0, slot], slots.restitution[0, slot]]
        assert told == ([*properties(scene, colour), 0.0][:3] if there else [0.0, 0.0, 0.0])
    tower = scene == "blocktower"
    assert slots.gravity.tolist() == [[0.5, -0.5, -10.0] if tower else [0.0, 0.0, -10.0]]
    assert bank.table["explanation"].tolist() == (
        [""] * 3 if tower else ["object 3 moved", "object 1 moved", "object 2 moved"]
    )
    assert bank.origin["kind"] == "published"
    assert bank.notes == {}
    assert read(tmp_path, tmp_path / "bank", scene).fingerprint == bank.fingerprint  # which is there, root one above


def test_videos_are_kept_as_pixels_of_a_size_of_ones_own(tmp_path):
    root = tmp_path / "data"
    example(root, "collision", 1)
    lists(root, "collision", train=[1])
    bank = read(root, tmp_path / "bank", "collision", videos=True, size=56)
    for video in ("ab", "cd"):
        expected = pixels(1, video, "collision").reshape(15, 56, 4, 56, 4, 3).mean(axis=(2, 4))
        found = cophy.frames(bank, [0], video, [[14, 0]], 56)[0]
        assert np.abs(found - expected[[14, 0]]).max() <= 0.5 + 1e-3
        half = cophy.frames(bank, [0], video, None, 28)[0]
        assert np.abs(half - expected.reshape(15, 28, 2, 28, 2, 3).mean(axis=(2, 4))).max() <= 1.0
    with pytest.raises(ValueError, match="size is 112; legal: 1 to 56"):
        cophy.frames(bank, [0], "ab", [0], 112)
    for times, said in (
        (5, r"times has shape \(\)"),
        ([[0], [1], [2]], r"times has shape \(3, 1\); legal: \(T,\), or \(1"),
    ):
        with pytest.raises(ValueError, match=said):
            cophy.frames(bank, [0], "ab", times, 28)


def test_pictures_are_made_smaller_by_averaging_areas():
    rng = np.random.default_rng(0)
    picture = rng.integers(0, 256, (2, 20, 15, 3), dtype=np.uint8)
    fine = picture.repeat(12, 1).repeat(12, 2).astype(np.float64)  # 240 × 180, a multiple of 12 both ways
    expected = fine.reshape(2, 12, 20, 12, 15, 3).mean(axis=(2, 4))
    assert np.abs(smaller(picture, 12) - expected).max() <= 0.5 + 1e-3
    with pytest.raises(ValueError, match="size is 16; legal: 1 to 15, for the pictures are 15×20"):
        smaller(picture, 16)


def test_defect_1_states_that_are_not_padded_go_to_their_colours(tmp_path):
    bank = read(archive(tmp_path / "data", "blocktower", padded=False), tmp_path / "bank", "blocktower")
    check(bank, "blocktower")
    root = tmp_path / "removed"
    example(root, "blocktower", 1, padded=False, videos=False, gone="red")
    lists(root, "blocktower", train=[1])
    bank = read(root, tmp_path / "other", "blocktower")
    check(bank, "blocktower", ["ab"])
    check(bank, "blocktower", ["cd"], ["yellow", "blue"])
    assert bank.table["kind_0"].tolist() == [3]  # red: it is in ab, which tells what persists


def test_blocktowers_confounders_are_by_object_padded_or_not(tmp_path):
    root = archive(tmp_path / "data", "blocktower")
    for number in (1, 2, 3):
        file = root / FOLDERS["blocktower"] / f"0000{number}" / "confounders.npy"
        np.save(file, np.concatenate([np.load(file), np.zeros((1, 2))]))
    slots = cophy.slots(read(root, tmp_path / "bank", "blocktower"), [0])
    for colour in SHOWN["blocktower"]:
        slot = COLOURS["blocktower"].index(colour)
        assert [slots.mass[0, slot], slots.friction[0, slot]] == properties("blocktower", colour)


def test_defect_1_frictions_in_gravity_txt_are_warned_of_and_listed(tmp_path):
    root = archive(tmp_path / "data", "blocktower")
    for number in (1, 2):
        (root / FOLDERS["blocktower"] / f"0000{number}" / "gravity.txt").write_text("gravity_x=1.0 gravity_y=0.5")
    with pytest.warns(UserWarning, match=r"00001/gravity.txt holds 1, 0.5, out of -0.5, 0, 0.5") as told:
        bank = read(root, tmp_path / "bank", "blocktower")
    assert len(told) == 1
    assert bank.notes == {"gravity": ["00001", "00002"]}
    assert bank.table["gravity_x"].tolist() == [0.5, 1.0, 1.0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(archive(tmp_path / "good", "blocktower"), tmp_path / "good-bank", "blocktower")


def test_defect_2_levels_stay_apart(tmp_path):
    root, levels = tmp_path / "data", LEVELS["collision"]
    for number in (1, 2, 3):
        folder = example(root, "collision", number, videos=False)
        confounders = np.zeros((4, 3))
        confounders[[3, 1]] = [levels[name][number - 1] for name in ("mass", "friction", "restitution")]
        np.save(folder / "confounders.npy", confounders)
    lists(root, "collision", train=[1, 2, 3])
    slots = cophy.slots(read(root, tmp_path / "bank", "collision"), [0, 1, 2])
    for name in ("mass", "friction", "restitution"):
        assert getattr(slots, name)[:, 3].tolist() == list(levels[name])


def test_defect_3_pictures_are_not_normalised(tmp_path):
    root = tmp_path / "data"
    example(root, "collision", 1)
    lists(root, "collision", train=[1])
    bank = read(root, tmp_path / "bank", "collision", videos=True, size=224)
    np.testing.assert_array_equal(cophy.frames(bank, [0], "cd", None, 224)[0], pixels(1, "cd", "collision"))


def test_defect_4_a_path_may_contain_the_names_of_videos(tmp_path):
    root = archive(tmp_path / "cd" / "abcd" / "ab", "balls")
    check(read(root, tmp_path / "bank_cd"), "balls")


def test_defect_5_balls_keep_all_three_axes_in_every_split(tmp_path):
    bank = read(archive(tmp_path / "data", "balls"), tmp_path / "bank")
    for split in ("train", "validation"):
        rows = np.flatnonzero(bank.table["split"] == split)
        assert np.ptp(cophy.states(bank, rows, "cd")[:, 0, 0, :3], axis=-1).all()
        assert cophy.states(bank, rows, "cd").shape[1:] == (30, 9, 13)


def ball(*names):
    return lambda root: root.joinpath("ballsCF", "3", "00001", *names)


STATES, BOXES, COLORS, CONFOUNDERS = (
    ball("cd", "states.npy"), ball("ab", "bboxes.npy"), ball("ab", "colors.txt"), ball("confounders.npy"),
)  # fmt: skip


def changed(file, change):
    def damage(root):
        array = np.load(file(root))
        np.save(file(root), change(array))

    return damage


def put(place, value):
    def change(array):
        array[place] = value
        return array

    return change


DAMAGE = [
    (lambda root: STATES(root).unlink(), "cd/states.npy is missing"),
    (lambda root: STATES(root).write_bytes(STATES(root).read_bytes()[:900]), "states.npy cannot be read as an array"),
    (lambda root: STATES(root).write_bytes(b"PK\x03\x04"), "states.npy cannot be read as an array"),
    (lambda root: STATES(root).write_bytes(b"\x80\x04N."), "states.npy .*: it is no array of numbers"),
    (lambda root: STATES(root).write_bytes(b""), "cd/states.npy cannot be read as an array"),
    (changed(STATES, lambda a: a[:29]), r"is float64 of shape \(29, 9, 13\), expected numbers of shape \(30, 3"),
    (changed(STATES, lambda a: a[:, :4]), r"of shape \(30, 4, 13\), expected"),
    (changed(STATES, put((3, 0, 2), np.nan)), "cd/states.npy holds NaN or infinity"),
    (changed(STATES, put((3, 0, 2), -1.1e6)), r"cd/states.npy holds -1.1e\+06 in frame 3, expected at most 1e\+06"),
    (changed(STATES, put((3, 0, slice(3, 7)), 0.0)), "states.npy has a quaternion of length 0 in frame 3, expected 1"),
    (changed(BOXES, put((4, 0, 3), 0.0)), "bboxes.npy: y1 is .* and y2 0 in frame 4, expected y1 ≤ y2"),
    (changed(STATES, put((slice(None), 0), 0.0)), "has the objects lime, cyan in its first frame; colors.txt"),
    (changed(STATES, lambda a: a.astype(str)), "states.npy is <U"),
    (changed(BOXES, lambda a: a[..., :3]), r"ab/bboxes.npy is float64 of shape \(30, 9, 3\)"),
    (lambda root: np.save(STATES(root), np.array([None])), "cannot be read as an array: .*Python objects"),
    (lambda root: COLORS(root).write_text("red cyan pink"), "colors.txt holds 'red cyan pink', expected colours"),
    (lambda root: COLORS(root).write_text("red\nred\nlime"), "holds red twice"),
    (lambda root: COLORS(root).write_text(""), "colors.txt is empty"),
    (lambda root: COLORS(root).write_bytes(b"\xff\xfe"), "colors.txt cannot be read"),
    (lambda root: COLORS(root).unlink(), "ab/colors.txt is missing"),
    (changed(CONFOUNDERS, put((0, 0), 3.0)), "confounders.npy: mass of red is 3, expected one of 1, 2, 5"),
    (changed(CONFOUNDERS, put((0, 2), 0.16)), "confounders.npy: restitution of red is 0.2, expected one of"),
    (changed(CONFOUNDERS, lambda a: a[:, :2]), r"confounders.npy is float64 of shape \(9, 2\), expected"),
    (changed(CONFOUNDERS, put((0, 0), np.inf)), "confounders.npy holds NaN or infinity"),
    (lambda root: ball("explanations.txt")(root).unlink(), "explanations.txt is missing"),
    (lambda root: ball()(root).rename(root / "elsewhere"), "00001 is missing"),
]  # fmt: skip


@pytest.mark.parametrize(("damage", "said"), DAMAGE)
def test_damage_is_one_error_or_a_listed_drop(tmp_path, damage, said):
    root = archive(tmp_path / "data", "balls")
    damage(root)
    with pytest.raises(PublishedError, match=f"{said}.*; damaged='drop' \\(--drop\\) leaves such examples out"):
        read(root, tmp_path / "bank")
    assert not (tmp_path / "bank").exists()
    bank = read(root, tmp_path / "bank", damaged="drop")  # the same recording, which has 00003 already
    assert bank.table["example"].tolist() == ["00003", "00002"]
    assert list(bank.notes["dropped"]) == ["00001"]
    assert re.search(said, bank.notes["dropped"]["00001"])
    check(bank, "balls")
    with pytest.raises(PublishedError, match=r"lacks 1 examples, such as 00001: .*; legal: damaged='drop'"):
        read(root, tmp_path / "bank")  # it is finished now, and not what is asked for


@pytest.mark.parametrize("kind", ["flipped", "zeroed"])
def test_a_video_of_the_right_length_whose_bits_are_damaged(tmp_path, kind):
    from sprii_envs.videos import write_video as write_lossy

    root = tmp_path / "data"
    for number in (1, 2):
        folder = example(root, "collision", number)
        for video in ("ab", "cd"):
            write_lossy(folder / video / "rgb.mp4", pixels(number, video, "collision"), 5)
    lists(root, "collision", train=[1, 2])
    video = root / "collisionCF" / "00001" / "ab" / "rgb.mp4"
    data, rng = bytearray(video.read_bytes()), np.random.default_rng(0)
    middle = len(data) // 2
    if kind == "zeroed":
        data[middle : middle + 200] = bytes(200)
    else:
        for at in rng.choice(np.arange(len(data) // 4, 3 * len(data) // 4), 40, replace=False):
            data[at] ^= int(rng.integers(1, 256))
    video.write_bytes(data)
    assert count_frames(video) == 15
    with pytest.raises(PublishedError, match=r"ab/rgb.mp4 cannot be decoded as a video: ") as told:
        read(root, tmp_path / "bank", "collision", videos=True)
    assert str(told.value).count("rgb.mp4") == 1
    reasons = [
        read(root, tmp_path / name, "collision", videos=True, damaged="drop").notes["dropped"]["00001"]
        for name in ("one", "two")
    ]
    assert reasons[0] == reasons[1]  # FFmpeg's addresses are left out, so that banks are equal
    assert "0x" not in reasons[0]


@pytest.mark.parametrize("text", ["gravity_x=0.5", "gravity_x=nan gravity_y=0.5", "0.5 0.5", "gravity_x=a gravity_y=b"])
def test_a_gravity_that_is_none(tmp_path, text):
    root = archive(tmp_path / "data", "blocktower")
    (root / "blocktowerCF" / "3" / "00001" / "gravity.txt").write_text(text)
    with pytest.raises(PublishedError, match=rf"gravity.txt holds '{text}', expected 'gravity_x=<number>"):
        read(root, tmp_path / "bank", "blocktower")


def test_collision_needs_types(tmp_path):
    root = archive(tmp_path / "data", "collision")
    for text in ("red\ngreen", "type=cube color=red\ntype=sphere color=green"):
        (root / "collisionCF" / "00001" / "ab" / "colors.txt").write_text(text)
        with pytest.raises(
            PublishedError, match=r"expected type=sphere\|cylinder_up\|cylinder_down … color=<one of ye"
        ):
            read(root, tmp_path / "bank", "collision")
    (root / "collisionCF" / "00001" / "ab" / "colors.txt").write_text("type=sphere color=red\ntype=sphere color=green")
    with pytest.raises(PublishedError, match=r"cd.colors.txt tells of green otherwise than that of ab"):
        read(root, tmp_path / "bank", "collision")


def test_damaged_videos(tmp_path):
    root = tmp_path / "data"
    video = example(root, "collision", 1) / "cd" / "rgb.mp4"
    lists(root, "collision", train=[1])
    whole = video.read_bytes()
    for damage, said in (
        (lambda: video.write_bytes(whole[: len(whole) // 2]), "rgb.mp4 cannot be decoded as a video"),
        (lambda: write_video(video, pixels(1, "cd", "collision")[:14]), "it has 14 frames, expected 15"),
        (lambda: write_video(video, pixels(1, "cd", "balls")), "it has more frames, expected 15"),
        (lambda: write_video(video, pixels(1, "cd", "collision", 32)), "size is 112; legal: 1 to 32"),
        (lambda: video.write_text("no video"), "rgb.mp4 cannot be decoded as a video"),
        (video.unlink, "rgb.mp4 does not exist"),
    ):
        damage()
        with pytest.raises(PublishedError, match=said):
            read(root, tmp_path / "bank", "collision", videos=True)
    assert read(root, tmp_path / "states", "collision").columns == ("ab_states", "ab_boxes", "cd_states", "cd_boxes")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s: (s / "ballsCF_3_test.txt").unlink(), r"split 'test': .*splits holds no list of it; expected one"),
        (lambda s: (s / "ballsCF_validation_3.txt").write_text(""), "ballsCF_validation_3.txt are both lists of it"),
        (lambda s: (s / "ballsCF_3_test.txt").write_text("00001\n"), "00001 is in the list of train already"),
        (lambda s: (s / "ballsCF_3_test.txt").write_text("..\n"), r"_test.txt, line 1 is '..', expected an id"),
    ],
)  # fmt: skip
def test_lists_of_ids(tmp_path, change, said):
    root = archive(tmp_path / "data", "balls")
    change(root / "splits")
    with pytest.raises(PublishedError, match=said):
        read(root, tmp_path / "bank")
    with pytest.raises(PublishedError, match=r"^splits is '.*/none': split 'train': .*/none holds no list of it"):
        read(root, tmp_path / "bank", splits=tmp_path / "none")
    (tmp_path / "mine").write_text("ballsCF/3/00002\n\n 00003/ \n")
    bank = read(root, tmp_path / "bank", splits={"validation": tmp_path / "mine"})
    assert bank.table["example"].tolist() == ["00002", "00003"]
    assert bank.splits == ("validation",)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"damaged": "skip"}, "damaged is 'skip'; legal: error, drop"),
        ({"variant": "moving_sphere"}, "variant is 'moving_sphere'; legal: normal"),
        ({"size": 225, "videos": True}, "size is 225"),
        ({"workers": 0}, "workers is 0"),
        ({"splits": {"val": "x"}}, "splits has val; legal: some of train, validation, test"),
        ({"splits": {}}, "splits has none"),
    ],
)
def test_arguments_are_refused_before_anything_is_read(tmp_path, how, said):
    with pytest.raises(ValueError, match=said):
        read(archive(tmp_path / "data", "balls"), tmp_path / "bank", **how)
    assert {p.name for p in tmp_path.iterdir()} == {"data"}


def test_what_to_install_is_said_before_anything_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(dependencies, "is_absent", lambda package: package == "imageio_ffmpeg")
    with pytest.raises(dependencies.PackageImportError, match=r"needs imageio_ffmpeg: pip install 'sprii\[cophy\]'"):
        read(tmp_path, tmp_path / "bank", videos=True)


def test_a_killed_import_goes_on_with_any_number_of_workers(tmp_path):
    root = tmp_path / "data"
    for number in range(1, 10):
        example(root, "balls", number, videos=False)
    lists(root, "balls", train=range(1, 10))
    STATES(root).unlink()
    script = tmp_path / "script.py"
    script.write_text(f"""
import os, signal
from sprii_envs.banks import recorded
from sprii_envs.cophy.published import import_cophy
recorded.SYNC_SECONDS = 0.0
def kill(done, total):
    if done == 5:
        os.kill(os.getpid(), signal.SIGKILL)
if __name__ == "__main__":
    import_cophy({str(root)!r}, {str(tmp_path / "bank")!r}, "balls", 3, videos=False, damaged="drop", progress=kill)
""")
    assert subprocess.run([sys.executable, script], capture_output=True).returncode == -9
    seen = []
    bank = read(root, tmp_path / "bank", damaged="drop", workers=2, progress=lambda *told: seen.append(told))
    assert seen[0] == (5, 9)
    assert bank.fingerprint == read(root, tmp_path / "whole", damaged="drop").fingerprint
    assert list(bank.notes["dropped"]) == ["00001"]
    lists(root, "balls", train=range(2, 10))
    with pytest.raises(StoreError, match="holds another bank"):
        read(root, tmp_path / "bank")
