"""Published grasps, read from files that the tests write in their layout, whole and damaged."""

import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from sprii_envs.banks import RecordedBank, Recording, StoreError
from sprii_envs.banks.generated import PublishedError
from sprii_envs.robots.baxter import COUNTS, HARDNESS, import_baxter, read_grasp, split_grasps

COUNT = (3, 1, 1)
IDS = (1, 2, 3, 10, 170)
FOLDERS = {"cube": "Cubes", "cylinder": "Cylinders"}


def samples(shape: str, level: int, grasp: int) -> NDArray[np.float64]:
    """What is different for every configuration, grasp, sample and taxel."""
    first = 1000 * (shape == "cube") + 300 * level + grasp
    return first + np.arange(80)[:, None] / 100 + np.arange(16) / 10_000


def file_of(root: Path, shape: str, level: int, grasp: int, name: str = "peak80_{}.csv") -> Path:
    return root / "Dataset" / FOLDERS[shape] / "80_Samples" / str(level) / name.format(grasp)


def text(array: NDArray[np.float64], newline: str = "\n") -> str:
    return newline.join(",".join(map(repr, row)) for row in array.tolist()) + newline


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "published"
    for shape in FOLDERS:
        for level in range(3):
            for grasp in IDS:
                file = file_of(root, shape, level, grasp)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text(samples(shape, level, grasp)))
            short = file_of(root, shape, level, 0).parents[2] / "40_Samples" / str(level)
            short.mkdir(parents=True)
            (short / "peak40_1.csv").write_text(text(samples(shape, level, 1)[:40]))
            (short / "peak40_999.csv").write_text("other windows of the same grasps")
        (file_of(root, shape, 0, 0).parents[1] / "3").mkdir()  # a hardness that only one shape has
    (file_of(root, "cube", 0, 0).parent / "._peak80_1.csv").write_bytes(b"\0")
    (file_of(root, "cube", 0, 0).parent / "notes.txt").write_text("9")
    return root


def test_every_sample_is_where_it_was_published(tree: Path, tmp_path: Path):
    told = []
    bank = import_baxter(tree, tmp_path / "bank", counts=COUNT, progress=lambda done, of: told.append((done, of)))
    assert told[0] == (0, 30)
    assert told[-1] == (30, 30)
    assert bank.origin["kind"] == "published"
    assert bank.notes == {}
    table = bank.table
    assert set(table["length"].tolist()) == {80}
    assert sorted(set(table["grasp"].tolist())) == list(IDS)
    read = bank.windows("tactile", table["episode"], [0] * 30, 80)
    for i in range(30):
        shape, level = str(table["shape"][i]), int(table["level"][i])
        np.testing.assert_array_equal(read[i], samples(shape, level, int(table["grasp"][i])).astype(np.float32))
        assert table["hardness"][i] == HARDNESS[shape][level]
        assert table["system"][i] == f"{shape}-{level}"
    again = import_baxter(tree / "Dataset", tmp_path / "bank", counts=COUNT)  # opened, not read again
    assert again.fingerprint == bank.fingerprint
    with pytest.raises(StoreError, match="holds another bank"):
        import_baxter(tree, tmp_path / "bank", counts=(2, 2, 1))


def test_the_split_is_one_permutation_for_all_configurations(tree: Path, tmp_path: Path):
    table = import_baxter(tree, tmp_path / "bank", counts=COUNT).table
    drawn = np.random.default_rng(20260822).permutation(sorted(IDS)).tolist()
    expected = dict(zip(drawn, ["train"] * 3 + ["validation", "confirmation"], strict=True))
    for grasp, split in zip(table["grasp"].tolist(), table["split"].astype(str).tolist(), strict=True):
        assert expected[grasp] == split
    whole = split_grasps(range(1, 171))
    drawn = np.random.default_rng(20260822).permutation(np.arange(1, 171)).tolist()
    assert [g for g, split in whole.items() if split == "train"] == drawn[:110]
    assert [g for g, split in whole.items() if split == "confirmation"] == drawn[140:]
    assert sum(COUNTS) == 170


def damage(tree: Path, kind: str) -> tuple[str, str]:
    """Damage one grasp; what is left out, and the reason."""
    file, array = file_of(tree, "cylinder", 1, 10), samples("cylinder", 1, 10)
    if kind == "short":
        file.write_text(text(array[:79]))
        return "cylinder-1, grasp 10", "has 79 rows, expected 80"
    if kind == "long":
        file.write_text("a,b\n" + text(array))
        return "cylinder-1, grasp 10", "has 81 rows, expected 80"
    if kind == "columns":
        lines = text(array).splitlines()
        file.write_text("\n".join([*lines[:6], lines[6].rpartition(",")[0], *lines[7:]]))
        return "cylinder-1, grasp 10", "row 7 has 15 columns, expected 16"
    if kind in ("nan", "1e39", "1e300", "inf", "", "x1", "1_0", "١٢"):
        lines = text(array).splitlines()
        cells = lines[4].split(",")
        lines[4] = ",".join([*cells[:2], kind, *cells[3:]])
        file.write_text("\n".join(lines))
        large = {"1e39": "1e+39", "1e300": "1e+300"}
        told = {each: f"{each!r}, expected a number" for each in ("", "x1", "1_0", "١٢")}
        told |= {each: f"{shown}, expected a number that float32 holds" for each, shown in large.items()}
        return "cylinder-1, grasp 10", f"row 5, column 3 is {told.get(kind, f'{kind}, expected a finite number')}"
    if kind == "bytes":
        file.write_bytes(b"\xff\xfe\x00\xd8" + text(array).encode())
        return "cylinder-1, grasp 10", "cannot be read as text"
    if kind == "latin":
        file.write_bytes(text(array).encode()[:-9] + b"\xb5\n")
        return "cylinder-1, grasp 10", "cannot be read as text"
    if kind == "large":
        file.write_bytes(b"0" * (1 << 21))
        return "cylinder-1, grasp 10", "is larger than 1,048,576 bytes"
    if kind == "twice":
        file_of(tree, "cylinder", 1, 10, "b_{}.csv").write_text(text(array))
        return "cylinder-1, grasp 10", "are both of the grasp 10; keep one of them"
    if kind == "gone":
        file.unlink()
        return "cylinder-1, grasp 10", "holds no file of the grasp 10"
    file.unlink()
    file.mkdir()
    return "cylinder-1, grasp 10", "cannot be read"


KINDS = (
    "short",
    "long",
    "columns",
    "nan",
    "inf",
    "1e39",
    "1e300",
    "1_0",
    "١٢",
    "",
    "x1",
    "bytes",
    "latin",
    "large",
    "twice",
    "gone",
    "folder",
)


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_grasp_stops_the_import_or_is_left_out_and_listed(tree: Path, tmp_path: Path, kind: str):
    what, why = damage(tree, kind)
    with pytest.raises(PublishedError, match=re.escape(why)):
        import_baxter(tree, tmp_path / "bank", counts=COUNT)
    assert not list(tmp_path.glob("bank*/*"))
    bank = import_baxter(tree, tmp_path / "bank", counts=COUNT, damaged="drop")
    assert list(bank.notes["dropped"]) == [what]
    assert why in bank.notes["dropped"][what]
    assert len(bank.table) == 29
    whole = split_grasps(IDS, COUNT)  # a damaged file moves no other grasp
    assert all(whole[g] == s for g, s in zip(bank.table["grasp"].tolist(), bank.table["split"].tolist(), strict=True))


def test_a_file_that_is_no_grasp_stops_nothing_and_is_listed(tree: Path, tmp_path: Path):
    (file_of(tree, "cylinder", 1, 10).parent / "README.csv").write_text("no number")
    bank = import_baxter(tree, tmp_path / "bank", counts=COUNT)
    assert len(bank.table) == 30
    assert list(bank.notes["dropped"]) == ["Cylinders/80_Samples/1/README.csv"]
    assert "has no number of a grasp at the end of its name" in next(iter(bank.notes["dropped"].values()))


def test_recordings_that_changed_are_told_from_another_bank(tree: Path, tmp_path: Path):
    import_baxter(tree, tmp_path / "bank", counts=COUNT)
    file_of(tree, "cube", 0, 1).write_text(text(samples("cube", 0, 1) + 1.0))
    with pytest.raises(StoreError, match=r"holds another bank .*has changed since: the checksum of its files differs"):
        import_baxter(tree, tmp_path / "bank", counts=COUNT)
    with pytest.raises(StoreError, match=r"another bank \(its counts is \[3, 1, 1\], not \[2, 2, 1\]"):
        import_baxter(tree, tmp_path / "bank", counts=(2, 2, 1))


@pytest.mark.parametrize("encoded", ["crlf", "cr", "bom", "utf-16", "spaces", "blank", "exponents", "upper"])
def test_other_encodings_and_ends_of_lines_are_read_alike(tmp_path: Path, encoded: str):
    array = samples("cube", 2, 3)
    plain = text(array)
    told = {
        "crlf": text(array, "\r\n").encode(),
        "cr": text(array, "\r").encode(),
        "bom": plain.encode("utf-8-sig"),
        "utf-16": plain.encode("utf-16"),
        "spaces": plain.replace(",", " , ").encode(),
        "blank": (plain + "\n \n").encode(),
        "exponents": "\n".join(",".join(f"{x:.12e}" for x in row) for row in array).encode(),
        "upper": plain.encode(),
    }
    file = tmp_path / ("a1.CSV" if encoded == "upper" else "a1.csv")
    file.write_bytes(told[encoded])
    np.testing.assert_array_equal(read_grasp(file), array.astype(np.float32))


def test_a_configuration_that_is_missing_or_a_count_that_differs_is_an_error(tree: Path, tmp_path: Path):
    for damaged in ("error", "drop"):
        with pytest.raises(PublishedError, match=r"holds grasps of 5 ids \(1 to 170\), expected 170"):
            import_baxter(tree, tmp_path / "bank", damaged=damaged)
    with pytest.raises(ValueError, match=r"counts is \(4, 1\); legal: grasps of train, validation, confirmation"):
        import_baxter(tree, tmp_path / "bank", counts=(4, 1))
    with pytest.raises(ValueError, match="damaged is 'skip'; legal: error, drop"):
        import_baxter(tree, tmp_path / "bank", counts=COUNT, damaged="skip")
    folder = file_of(tree, "cylinder", 2, 1).parent
    for file in folder.iterdir():
        file.unlink()
    with pytest.raises(PublishedError, match="Cylinders/80_Samples/2 holds no grasp; grasps lie in Dataset"):
        import_baxter(tree, tmp_path / "bank", counts=COUNT, damaged="drop")
    folder.rmdir()
    with pytest.raises(PublishedError, match="Cylinders/80_Samples/2 is missing"):
        import_baxter(tree, tmp_path / "bank", counts=COUNT, damaged="drop")
    with pytest.raises(PublishedError, match="is missing"):
        import_baxter(tmp_path / "nowhere", tmp_path / "bank")
    assert not (tmp_path / "bank").exists()


def test_a_killed_import_goes_on_and_ends_in_the_same_bytes(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    damage(tree, "short")
    whole = import_baxter(tree, tmp_path / "whole", counts=COUNT, damaged="drop")
    append, seen = Recording.append, []

    def killed(self: Recording, arrays, **labels) -> None:
        if len(seen) == 25:
            raise KeyboardInterrupt
        seen.append(labels["grasp"])
        append(self, arrays, **labels)

    with monkeypatch.context() as patch:
        patch.setattr(Recording, "append", killed)
        with pytest.raises(KeyboardInterrupt):
            import_baxter(tree, tmp_path / "bank", counts=COUNT, damaged="drop")
    assert not (tmp_path / "bank").exists()
    done: list[int] = []
    bank = import_baxter(tree, tmp_path / "bank", counts=COUNT, damaged="drop", progress=lambda at, of: done.append(at))
    assert done[0] == 25
    assert bank.fingerprint == whole.fingerprint
    assert RecordedBank(tmp_path / "bank").notes == whole.notes
    file_of(tree, "cube", 0, 1).write_text(text(samples("cube", 0, 2)))  # other contents are another bank
    with pytest.raises(StoreError, match="the checksum of its files differs"):
        import_baxter(tree, tmp_path / "bank", counts=COUNT, damaged="drop")
