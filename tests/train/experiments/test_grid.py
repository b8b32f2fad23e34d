"""Grids of toy cells: folders, failures, resume, and nothing run twice."""

import hashlib
import json
import multiprocessing
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from queued import Queue
from toy_cells import ToyCell

from sprii_envs import files
from sprii_train.checkpoints import CheckpointError, write_tensors
from sprii_train.experiments.cells import Report, folder_of, locked, result_of, work
from sprii_train.experiments.grid import run_grid
from sprii_train.experiments.progress import display
from sprii_train.experiments.targets.base import arrays_of


def starts(cell: ToyCell, root: Path) -> int:
    path = folder_of(cell, root) / "starts"
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_folder_is_named_by_the_hash_of_the_identity(tmp_path: Path):
    cell = ToyCell("align-seed0", 2.0)
    text = json.dumps({"name": "align-seed0", "value": 2.0}, sort_keys=True)
    expected = f"align-seed0-{hashlib.sha256(text.encode()).hexdigest()[:10]}"
    assert folder_of(cell, tmp_path) == tmp_path / expected
    assert folder_of(replace(cell, steps=9, breaks_at=2), tmp_path).name == expected  # not in its identity
    assert folder_of(replace(cell, value=2.5), tmp_path).name != expected
    assert not list(tmp_path.iterdir())


def test_failure_resume_and_nothing_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    good, bad = ToyCell("good", 1.5), ToyCell("bad", 2.5, breaks_at=2)
    cells = [good, bad]

    with pytest.raises(ArithmeticError, match="planned failure of bad") as told:
        run_grid(cells, tmp_path, workers=1)
    assert "its traceback is in" in told.value.__notes__[0]
    assert "toy_cells.py" in (folder_of(bad, tmp_path) / "traceback.txt").read_text()
    assert (folder_of(good, tmp_path) / "done.json").exists()
    assert not (folder_of(bad, tmp_path) / "done.json").exists()

    results = run_grid([bad, good], tmp_path, workers=1)
    assert results == [
        {"arm": "bad", "value": 2.5, "resumed_at": 2},
        {"arm": "good", "value": 1.5, "resumed_at": 0},
    ]
    assert not (folder_of(bad, tmp_path) / "traceback.txt").exists()
    assert (starts(good, tmp_path), starts(bad, tmp_path)) == (1, 2)
    assert (folder_of(bad, tmp_path) / "steps").read_text().split() == ["1", "2", "3", "4"]

    def forbidden(*_: object) -> None:
        raise AssertionError("everything is done: no process is needed")

    monkeypatch.setattr(multiprocessing, "get_context", forbidden)
    assert run_grid(cells, tmp_path) == results[::-1]
    (folder_of(good, tmp_path) / "done.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"good-.*done\.json is damaged"):
        run_grid(cells, tmp_path)
    (folder_of(good, tmp_path) / "done.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"holds no results; remove it"):
        run_grid(cells, tmp_path)


def test_a_failure_says_where_its_traceback_is_and_many_alike_are_told_once(tmp_path: Path, capfd):
    cells = [ToyCell(name, breaks_at=2) for name in ("bad", "worse")]
    cells.append(replace(cells[0], value=3.0))  # its words are those of the first
    with pytest.raises(ArithmeticError, match="planned failure") as told:
        run_grid(cells, tmp_path, launcher=Queue(1))
    assert "its traceback is in" in told.value.__notes__[0]
    said = capfd.readouterr().err
    assert said.count("planned failure of bad;") == said.count("planned failure of worse;") == 1
    text = (folder_of(cells[0], tmp_path) / "traceback.txt").read_text()
    assert "toy_cells.py" in text
    assert "ArithmeticError: planned failure of bad" in text


def test_cells_may_hold_functions_without_a_name(tmp_path: Path):
    cell: Any = ToyCell("plain", steps=3)
    object.__setattr__(cell, "store", lambda folder: folder)
    assert run_grid([cell], tmp_path, workers=1)[0]["arm"] == "plain"


@dataclass(frozen=True)
class PlacedCell(ToyCell):
    """Tells where it runs."""

    def run(self, folder: Path, report: Report) -> dict[str, Any]:
        return {"cwd": os.getcwd(), "word": os.environ.get("SPRII_TEST_WORD"), "threads": torch.get_num_threads()}


def test_a_cell_has_the_environment_and_the_folder_of_its_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Not those of the grid before, whose server it may be forked from."""
    monkeypatch.chdir(tmp_path)
    for word, threads in (("first", 1), ("second", 2), (None, 1)):
        if word is None:
            monkeypatch.delenv("SPRII_TEST_WORD")
        else:
            monkeypatch.setenv("SPRII_TEST_WORD", word)
        folder = tmp_path / str(word)
        folder.mkdir()
        monkeypatch.chdir(folder)
        (row,) = run_grid([PlacedCell("placed")], tmp_path / f"cells-{word}", workers=1, threads=threads)
        assert row == {"cwd": str(folder), "word": word, "threads": threads}


@dataclass(frozen=True)
class MeasuredCell(ToyCell):
    """A cell whose result has a code."""

    code: str = "a"

    def measurement(self) -> dict[str, str]:
        return {"code": self.code}


def test_a_result_of_another_measurement_is_measured_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    cell = MeasuredCell("one", 1.5)
    row = {"arm": "one", "value": 1.5, "resumed_at": 0}
    assert run_grid([cell], tmp_path, launcher=Queue(1)) == [row]
    assert "done already" not in capsys.readouterr().err
    assert run_grid([cell], tmp_path, launcher=Queue(1)) == [row]
    assert f"1 of 1 cells are done already in {tmp_path}\n" in capsys.readouterr().err
    other = replace(cell, code="b")
    assert folder_of(other, tmp_path) == folder_of(cell, tmp_path)
    assert run_grid([other], tmp_path, launcher=Queue(1)) == [row | {"resumed_at": 4}]
    assert starts(cell, tmp_path) == 2
    assert (folder_of(cell, tmp_path) / "steps").read_text().split() == ["1", "2", "3", "4"]  # not trained again


@dataclass(frozen=True)
class ArraysCell(MeasuredCell):
    """A cell that writes a file beside its result."""

    arrays = "done.safetensors"

    def run(self, folder: Path, report: Report) -> dict[str, Any]:
        (folder / self.arrays).write_bytes(bytes(100))
        return super().run(folder, report)


def entry_of(data: bytes) -> dict[str, Any]:
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def flip(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"1.5", b"1.6").replace(bytes(100), bytes(99) + b"1"))


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("done.json", flip, r"done\.json is damaged: its checksum is another; remove it and repeat"),
        ("done.json", lambda path: path.write_text("[" * 200_000), r"done\.json is damaged: JSON nested without end"),
        ("done.json", lambda path: path.write_text("[]"), r"done\.json is damaged: list where an object"),
        ("done.json", lambda path: path.write_bytes(b""), r"done\.json is damaged: not JSON"),
        ("done.safetensors", flip, r"done\.safetensors is damaged: its checksum is another; remove .*done\.json"),
        ("done.safetensors", Path.unlink, r"done\.safetensors is missing.*remove .*done\.json"),
        ("done.safetensors", lambda path: path.write_bytes(b""), r"done\.safetensors is damaged: truncated: 0 bytes"),
    ],
)
def test_damaged_results_are_named(tmp_path: Path, name: str, damage: Callable[[Path], Any], message: str):
    cell = ArraysCell("one", 1.5)
    row = {"arm": "one", "value": 1.5, "resumed_at": 0, "kept": entry_of(bytes(100))}
    assert run_grid([cell], tmp_path, launcher=Queue(1)) == [row]
    assert run_grid([cell], tmp_path, launcher=Queue(1)) == [row]
    damage(folder_of(cell, tmp_path) / name)
    with pytest.raises(CheckpointError, match=message):
        run_grid([cell], tmp_path, launcher=Queue(1))
    (folder_of(cell, tmp_path) / "done.json").unlink()  # the advice
    assert run_grid([cell], tmp_path, launcher=Queue(1)) == [row | {"resumed_at": 4}]


@dataclass(frozen=True)
class TensorsCell(ArraysCell):
    """One whose arrays and row tell the code that they were measured by."""

    def run(self, folder: Path, report: Report) -> dict[str, Any]:
        write_tensors(folder / self.arrays, {"code": torch.tensor([float(ord(self.code))])})
        return {"arm": self.name, "code": self.code}


def replaced(cell: TensorsCell, root: Path) -> TensorsCell:
    """The cell measured again, as another process with other code does."""
    other = replace(cell, code="b")
    work(other, root, lambda *_: None)
    return other


@pytest.mark.parametrize("name", ["read_json", "check_file"])
def test_a_cell_that_is_replaced_between_the_reads_is_read_again(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """After its row, or before its arrays are compared: never one of each, and nothing is called damaged."""
    cell, other = TensorsCell("one"), TensorsCell("one", code="b")
    work(cell, tmp_path, lambda *_: None)
    original, times = getattr(files, name), 0

    def then_replaced(*args: Any, **kwargs: Any) -> Any:
        nonlocal times
        times += 1
        monkeypatch.setattr(files, name, original)
        if name == "check_file":
            work(other, tmp_path, lambda *_: None)
            return original(*args, **kwargs)
        found = original(*args, **kwargs)
        work(other, tmp_path, lambda *_: None)
        return found

    monkeypatch.setattr(files, name, then_replaced)
    assert result_of(cell, tmp_path) is None  # it is of the other's code now
    assert times == 1
    data = (folder_of(cell, tmp_path) / cell.arrays).read_bytes()
    assert result_of(other, tmp_path) == {"arm": "one", "code": "b", "kept": entry_of(data)}


def test_no_row_stands_by_arrays_while_they_are_measured_again(tmp_path: Path):
    """Killed in between, the cell is not done, and is measured again."""
    cell = TensorsCell("one")
    work(cell, tmp_path, lambda *_: None)

    class Killed(BaseException):
        pass

    class Other(TensorsCell):
        def run(self, folder: Path, report: Report) -> dict[str, Any]:
            super().run(folder, report)
            assert result_of(cell, tmp_path) is None
            raise Killed

    with pytest.raises(Killed):
        work(Other("one", code="b"), tmp_path, lambda *_: None)
    assert result_of(cell, tmp_path) is None
    work(cell, tmp_path, lambda *_: None)
    assert (result_of(cell, tmp_path) or {})["code"] == "a"


def test_a_row_refuses_arrays_that_took_the_place_of_its_own(tmp_path: Path):
    cell = TensorsCell("one")
    work(cell, tmp_path, lambda *_: None)
    row, path = result_of(cell, tmp_path), folder_of(cell, tmp_path) / cell.arrays
    assert row is not None
    read = {"arrays": {"m": str(path)}, "kept": {"m": row["kept"]}}
    assert arrays_of(read, "m")["code"].tolist() == [float(ord("a"))]
    replaced(cell, tmp_path)
    with pytest.raises(
        CheckpointError, match=r"done\.safetensors has been replaced since the row .* repeat the command"
    ):
        arrays_of(read, "m")
    path.unlink()
    with pytest.raises(CheckpointError, match=r"done\.safetensors does not exist; repeat the command"):
        arrays_of(read, "m")


def test_a_lock_is_no_link_and_goes_with_its_holder(tmp_path: Path):
    (tmp_path / "precious").write_text("kept")
    (tmp_path / ".lock").symlink_to(tmp_path / "precious")
    with pytest.raises(CheckpointError, match="a lock must be a plain file"), locked(tmp_path / ".lock"):
        pass
    assert (tmp_path / "precious").read_text() == "kept"


def test_one_cell_given_twice_runs_once(tmp_path: Path):
    cell = ToyCell("twin", steps=3)
    assert run_grid([cell, cell], tmp_path, workers=2) == [{"arm": "twin", "value": 1.0, "resumed_at": 0}] * 2
    assert starts(cell, tmp_path) == 1


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch):
    """Two cells told of in lines, by a clock that is set by hand."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    now = [0.0]
    with display([ToyCell("a", steps=10), ToyCell("b", steps=20)], lambda: now[0]) as shown:
        yield now, shown


def test_plain_progress_lines(plain, capsys: pytest.CaptureFixture[str]):
    now, shown = plain
    for now[0], (cell, step) in zip((5.0, 12.0, 21.0), (("a", 3), ("b", 5), ("b", 6)), strict=True):
        shown.told(cell, step, 0.5)
    assert capsys.readouterr().err == "    12 s  8/30 steps  a 3, b 5\n"


def test_a_line_a_minute_while_no_step_is_taken(plain, capsys: pytest.CaptureFixture[str]):
    now, shown = plain
    shown.told("a", 10, float("nan"))
    for now[0] in (30.0, 59.0, 61.0, 62.0, 115.0):
        shown.told("a", 10, float("nan"))  # a launcher may say the same again and again
        shown.running({"a", "b"})
    now[0] = 125.0
    shown.told("b", 4, float("nan"))
    for now[0] in (182.0, 186.0):
        shown.running({"b"})
    assert capsys.readouterr().err.splitlines() == [
        "    61 s  10/30 steps  a measuring, b no step yet",
        "   125 s  14/30 steps  a measuring, b 4",
        "   186 s  14/30 steps  b 4",
    ]


def test_whoever_asked_is_told_of_each_cell_that_ended_well_while_others_go_on(tmp_path: Path):
    cells = [ToyCell("a"), ToyCell("b", breaks_at=2), ToyCell("c"), ToyCell("d")]
    done: list[list[str]] = []

    def look() -> None:
        done.append([cell.name for cell in cells if result_of(cell, tmp_path) is not None])

    with pytest.raises(ArithmeticError, match="planned failure of b"):
        run_grid(cells, tmp_path, workers=1, finished=look)
    assert done == [["a"], ["a", "c"]]
    done.clear()
    run_grid(cells, tmp_path, workers=1, finished=look)  # the last one of all is the result's
    assert done == []
