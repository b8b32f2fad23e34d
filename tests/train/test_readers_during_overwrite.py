"""Readers while a writer replaces what they read: always the old or the new, never a mixture.

pytest -m slow -s tests/train/test_readers_during_overwrite.py     # prints the counts
"""

import multiprocessing
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sprii_envs.banks import D_CLEAN, Bank, build, open_store
from sprii_envs.files import read_json, replace_folder, write_json
from sprii_train.experiments.findings import scoreboard
from sprii_train.reports.page import Page, Table, write_page

sys.path.append(str(Path(__file__).parents[1] / "envs"))
sys.path.append(str(Path(__file__).parent))

from faults import NAME, Kept, contents, told  # pyright: ignore[reportMissingImports]
from test_faults_of_runs import EVERY as RUNS  # pyright: ignore[reportMissingImports]
from test_faults_of_runs import read_cell  # pyright: ignore[reportMissingImports]
from test_faults_of_stores import EVERY as STORES  # pyright: ignore[reportMissingImports]

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")]
SECONDS, LEAST = 4.0, 20
RESULTS = Path(__file__).parents[2] / "docs/results"
SMALL = D_CLEAN.replace(systems={"train": 2, "test": 1}, rollouts=1, steps=6, systems_per_chunk=1, frames=8)


def report(path: Path, seed: int) -> None:
    table = Table("Numbers", ["arm", "error"], [["a", f"0.{seed}"]] * 300)
    write_page(Page("A report", f"Of {seed}.", [table], [], [], "sprii", {"seed": str(seed)}), path)


def files_of(path: Path) -> dict[str, Any]:
    """Each file of a report is replaced by itself; results are read as readers read them."""
    return {"results": read_json(path / "results.json"), "page": (path / "report.html").read_text()}


def index(path: Path, seed: int) -> None:
    kept = ("dclean-quick", "poke-refinement-states")[seed]
    write_json(path / "one/results.json", read_json(RESULTS / kept / "results.json"))
    scoreboard(path)


def row_of(path: Path) -> object:
    """A cell's row; its arrays are another file, which a reader opens later."""
    return read_cell(path)[0]


BY_FILE = [
    Kept("report", report, files_of),
    Kept("scoreboard", index, lambda path: {"index": (path / "index.html").read_text()}),
]
BY_FOLDER = [
    *(replace(kept, read=row_of) if kept.name == "cell" else kept for kept in RUNS),
    *(kept for kept in STORES if kept.name in ("table of episodes", "overcooked partners")),
    Kept("bank", lambda path, seed: build(SMALL.replace(seed=seed), path, overwrite=True) and None,
         lambda path: contents(Bank.open(path))),
]  # fmt: skip
NEVER_OVER = [kept for kept in STORES if not kept.over]
"""Banks that no writer replaces: whoever wants another there moves it in, or removes the old one first."""


def exchanged(whole: Path, path: Path) -> None:
    replace_folder(Path(shutil.copytree(whole, path.with_name("next"))), path)


def removed(whole: Path, path: Path) -> None:
    time.sleep(0.01)  # else it is hardly ever there
    shutil.rmtree(path)
    os.replace(shutil.copytree(whole, path.with_name("next")), path)


def unchecked(path: Path) -> dict[str, Any]:
    """All that a bank tells and holds; no checksum is looked at, which would tell a mixture."""
    bank: Any = open_store(path)
    return contents(bank) | {"fingerprint": bank.fingerprint}


def _write(write: Callable[[Path, int], Any], path: Path, until: Any, written: Any) -> None:
    while not until.is_set():
        written.value += 1
        write(path, written.value % 2)


def during_overwrite(kept: Kept, root: Path, read: Callable[[Path], None]) -> int:
    """How often the path was replaced while this process read it, over `SECONDS` and `LEAST` times."""
    kept.write(root / NAME, 0)
    context = multiprocessing.get_context("fork")
    until, written = context.Event(), context.Value("i", 0)
    writer = context.Process(target=_write, args=(kept.write, root / NAME, until, written))
    writer.start()
    try:
        end = time.monotonic() + SECONDS
        while writer.is_alive() and (time.monotonic() < end or written.value < LEAST):
            read(root / NAME)
    finally:
        until.set()
        writer.join()
    assert writer.exitcode == 0
    return written.value


def whole(kept: Kept, root: Path, part: Callable[[Any], Any] = lambda found: found) -> dict[str, int]:
    for seed in (0, 1):
        kept.write(root / f"whole-{seed}" / NAME, seed)
    found = {told(part(kept.read(root / f"whole-{seed}" / NAME))): seed for seed in (0, 1)}
    assert len(found) == 2
    return found


@pytest.mark.parametrize("kept", BY_FILE, ids=str)
def test_a_file_of_a_report_is_the_old_or_the_new(kept: Kept, tmp_path: Path) -> None:
    for seed in (0, 1):
        kept.write(tmp_path / "whole" / NAME, seed)
    names = kept.read(tmp_path / "whole" / NAME).keys()
    legal: dict[str, dict[str, int]] = {name: {} for name in names}
    for seed in (0, 1):
        kept.write(tmp_path / "whole" / NAME, seed)
        for name, content in kept.read(tmp_path / "whole" / NAME).items():
            legal[name][told(content)] = seed
    counts: Counter[str] = Counter()

    def read(path: Path) -> None:
        for name, content in kept.read(path).items():
            found = legal[name].get(told(content))
            assert found is not None, f"{kept}: {name} is neither the old nor the new"
            counts["old" if found == 0 else "new"] += 1

    written = during_overwrite(kept, tmp_path, read)
    print(f"\n{kept}: {written} replaced, {dict(counts)}")
    assert all(len(each) == 2 for each in legal.values())
    assert min(counts["old"], counts["new"]) > 0


@pytest.mark.parametrize("how", [exchanged, removed], ids=lambda how: how.__name__)
@pytest.mark.parametrize("kept", NEVER_OVER, ids=str)
def test_a_reader_of_a_bank_that_is_moved_in(kept: Kept, how: Callable[[Path, Path], None], tmp_path: Path) -> None:
    for seed in (0, 1):
        kept.write(tmp_path / f"made-{seed}" / NAME, seed)

    def write(path: Path, seed: int) -> None:
        if path.exists():
            how(tmp_path / f"made-{seed}" / NAME, path)
        else:
            shutil.copytree(tmp_path / f"made-{seed}" / NAME, path)

    read_during_overwrite(Kept(f"{kept}, {how.__name__}", write, unchecked), tmp_path)


@pytest.mark.parametrize("kept", BY_FOLDER, ids=str)
def test_a_reader_gets_the_old_the_new_or_a_clear_error(kept: Kept, tmp_path: Path) -> None:
    read_during_overwrite(kept, tmp_path)


def read_during_overwrite(kept: Kept, tmp_path: Path) -> None:
    legal, counts = whole(kept, tmp_path), Counter()

    def read(path: Path) -> None:
        try:
            found = told(kept.read(path))
        except ValueError as error:
            said = str(error)
            clear = NAME in said and "\n" not in said
            counts["refused" if clear else said] += 1
        else:
            assert found in legal, f"{kept}: neither the old nor the new"
            counts["old" if legal[found] == 0 else "new"] += 1

    written = during_overwrite(kept, tmp_path, read)
    print(f"\n{kept}: {written} replaced, {dict(counts)}")
    assert counts.keys() <= {"old", "new", "refused"}, counts
    assert min(counts["old"], counts["new"]) > 0
