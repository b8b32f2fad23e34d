"""Export in the published layout, and the way back: equal but for what a video loses."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mujoco")
pytest.importorskip("imageio_ffmpeg")

from sprii_envs.banks import StoreError
from sprii_envs.cophy import bank as cophy
from sprii_envs.cophy.bank import CoPhyProtocol, build_cophy
from sprii_envs.cophy.exporting import export_cophy
from sprii_envs.cophy.objects import COLOURS, PALETTE
from sprii_envs.cophy.pictures import masks
from sprii_envs.cophy.published import import_cophy
from sprii_envs.videos import read_video

LEAST_PSNR = 38.0
"""dB at 112 pixels; 40 to 43 are measured: H.264 at a quality that is hardly seen."""


@pytest.mark.parametrize(
    ("profile", "seed"),
    [(("balls", 2, "normal", 1, 1, 0), 0), (("collision", 2, "moving_cylinder", 1, 0, 1), 0),
     (("blocktower", 4, "normal", 2, 0, 0), 3)],
)  # fmt: skip
def test_what_is_exported_is_read_again(tmp_path, profile, seed):
    scene, objects, variant, *_ = profile
    bank = build_cophy(CoPhyProtocol(*profile, seed=seed), tmp_path / "bank")
    export_cophy(bank, tmp_path / "CoPhy_224")
    back = import_cophy(tmp_path, tmp_path / "back", scene, objects, variant=variant)
    for name in bank.table.columns:  # ids, splits, kinds, confounders, gravity, explanations
        np.testing.assert_array_equal(back.table[name], bank.table[name], err_msg=name)
    for column in bank.columns:  # states and boxes: to the last bit
        np.testing.assert_array_equal(back.stream(column).values, bank.stream(column).values, err_msg=column)
    for video in ("ab", "cd"):
        drawn = cophy.frames(bank, [0, 1], video, None, 112).astype(np.float64)
        read = cophy.frames(back, [0, 1], video, None, 112)
        assert 10 * np.log10(255**2 / np.mean((drawn - read) ** 2)) > LEAST_PSNR


def test_files_of_an_example(tmp_path):
    bank = build_cophy(CoPhyProtocol("blocktower", 3, "normal", 2, 0, 0, seed=1), tmp_path / "bank")
    export_cophy(bank, tmp_path / "out", size=64)
    row = next(i for i, text in enumerate(bank.table["explanation"]) if text.startswith("remove"))
    folder = tmp_path / "out" / "blocktowerCF" / "3" / bank.table["example"][row]
    assert {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()} == {
        "confounders.npy", "gravity.txt", "explanations.txt",
        *(f"{v}/{n}" for v in ("ab", "cd") for n in ("states.npy", "bboxes.npy", "colors.txt", "rgb.mp4", "segm.mp4")),
    }  # fmt: skip
    shown = {video: (folder / video / "colors.txt").read_text().split() for video in ("ab", "cd")}
    gone = bank.table["explanation"][row].removeprefix("remove color=")
    assert set(shown["ab"]) - set(shown["cd"]) == {gone}
    slots = cophy.slots(bank, [row])
    order = [COLOURS["blocktower"].index(colour) for colour in shown["ab"]]
    confounders = np.load(folder / "confounders.npy", allow_pickle=False)
    np.testing.assert_array_equal(confounders, np.stack([slots.mass, slots.friction], -1)[0, order])
    segments = read_video(folder / "ab" / "segm.mp4", 30)
    states = np.load(folder / "ab" / "states.npy")
    drawn = masks("blocktower", states, np.repeat(slots.kind, 30, axis=0), 64)
    assert {tuple(colour) for colour in np.unique(segments.reshape(-1, 3), axis=0)} <= {(0, 0, 0), *PALETTE.values()}
    for slot, colour in enumerate(COLOURS["blocktower"]):
        np.testing.assert_array_equal((segments == PALETTE[colour]).all(-1), drawn == slot)
    listed = (tmp_path / "out" / "splits" / "blocktowerCF_3_normal_train.txt").read_text().split()
    assert listed == bank.table["example"].tolist()


def test_a_killed_export_goes_on_and_holds_whole_examples_only(tmp_path):
    bank = build_cophy(CoPhyProtocol("collision", 2, "normal", 6, 0, 0), tmp_path / "bank")
    script = tmp_path / "script.py"
    script.write_text(f"""
import os, signal
from sprii_envs.banks import open_store
from sprii_envs.cophy import exporting
written = []
def write_video(path, *arguments, **how):
    written.append(path)
    if len(written) == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return before(path, *arguments, **how)
before, exporting.write_video = exporting.write_video, write_video
exporting.export_cophy(open_store({str(tmp_path / "bank")!r}), {str(tmp_path / "out")!r}, size=32)
""")
    assert subprocess.run([sys.executable, script], capture_output=True).returncode == -9
    folder = tmp_path / "out" / "collisionCF"
    whole = [p for p in folder.iterdir() if not p.name.startswith(".")]
    assert [p.name for p in whole] == ["0"]
    times = {p: p.stat().st_mtime_ns for p in whole}
    seen = []
    export_cophy(bank, tmp_path / "out", size=32, workers=2, progress=lambda *told: seen.append(told))
    assert (seen[0], seen[-1]) == ((1, 6), (6, 6))
    assert times == {p: p.stat().st_mtime_ns for p in whole}
    export_cophy(bank, tmp_path / "at once", size=32)
    for file in (p for p in (tmp_path / "at once").rglob("*") if p.is_file()):
        other = tmp_path / "out" / file.relative_to(tmp_path / "at once")
        assert other.read_bytes() == file.read_bytes(), file
    assert not [p for p in folder.iterdir() if p.name.endswith(".part")]


def test_what_is_no_place_for_an_export_is_refused(tmp_path):
    bank = build_cophy(CoPhyProtocol("collision", 2, "normal", 1, 0, 0), tmp_path / "bank")
    other = build_cophy(CoPhyProtocol("collision", 2, "normal", 1, 0, 0, seed=1), tmp_path / "other")
    export_cophy(bank, tmp_path / "out", size=32)
    with pytest.raises(StoreError, match="holds the export of another bank or size"):
        export_cophy(other, tmp_path / "out", size=32)
    for place in (tmp_path / "bank", tmp_path / "bank" / "inner"):
        before = sorted(p.name for p in (tmp_path / "bank").iterdir())
        with pytest.raises(StoreError, match=r"bank holds a bank, and .* would be in it"):
            export_cophy(bank, place, size=32)
        assert sorted(p.name for p in (tmp_path / "bank").iterdir()) == before
    (tmp_path / "full" / "collisionCF" / "00001").mkdir(parents=True)
    with pytest.raises(StoreError, match="is not empty, and no export"):
        export_cophy(bank, tmp_path / "full", size=32)
    with pytest.raises(ValueError, match="size is 33; legal: even numbers"):
        export_cophy(bank, tmp_path / "odd", size=33)
    read = import_cophy(tmp_path / "out", tmp_path / "back", "collision", 2, size=16, splits=_lists(tmp_path))
    with pytest.raises(ValueError, match="size is 32; legal: 1 to 16"):
        export_cophy(read, tmp_path / "large", size=32)
    assert not (tmp_path / "large").exists()


def _lists(root: Path) -> dict[str, Path]:
    return {"train": root / "out" / "splits" / "collisionCF_normal_train.txt"}
