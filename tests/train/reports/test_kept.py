"""Reports drawn again from their folders: the same page, whatever of it is kept where."""

import json
import shutil
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from sprii_train.cli.reproduce import Report
from sprii_train.reports.claims import Verdict
from sprii_train.reports.kept import KeptReportError, redraw
from sprii_train.reports.page import Page, Picture, Table, write_page

RESULTS = Path(__file__).parents[3] / "docs" / "results"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pictures = []
    for name in ("first", "second"):
        figure = Figure(figsize=(2, 1))
        figure.subplots().set_title(name)
        pictures.append(Picture(name, f"The {name} <figure>", f"Caption & {name}.", figure))
    page = Page(
        title="A < B",
        lead="tab:x. A check & more.",
        tables=[Table("Ours", ["Arm", "Ratio"], [["Align", "1.0 [0, 2]"], ["paper's", "2"]], "N & M.", frozenset({1}))],
        verdicts=[Verdict("It rises", "held", "1 [0, 2]")],
        pictures=pictures,
        command="sprii reproduce tab:x",
        facts={"Data": "a stand-in", "Versions": "none"},
        data={"table": "tab:x", "rows": [{"arm": "align"}]},
    )
    for suffix in ("", "-validation"):
        write_page(page, tmp_path / "deep" / "tab-x", suffix)
    return tmp_path / "deep" / "tab-x"


def without_words(path: Path) -> None:
    """As results were before they kept the lead and the words of figures."""
    told = json.loads(path.read_text(encoding="utf-8"))
    del told["lead"], told["pictures"]
    path.write_text(json.dumps(told), encoding="utf-8")


@pytest.mark.parametrize("older", [False, True])
def test_a_page_follows_from_its_folder(folder: Path, older: bool):
    before = {name: (folder / name).read_bytes() for name in ("report.html", "report-validation.html")}
    others = {file.name: file.read_bytes() for file in folder.iterdir() if file.suffix in (".png", ".csv")}
    if older:
        for name in ("results.json", "results-validation.json"):
            without_words(folder / name)
    written, left = redraw(folder.parent)
    assert (sorted(path.name for path in written), left) == (["report-validation.html", "report.html"], [])
    assert {name: (folder / name).read_bytes() for name in before} == before
    assert {name: (folder / name).read_bytes() for name in others} == others
    if not older:  # the words are not read off the page
        (folder / "report.html").unlink()
        redraw(folder)
        assert (folder / "report.html").read_bytes() == before["report.html"]


def test_a_figure_that_is_only_in_the_page_stays_in_it(folder: Path):
    before = (folder / "report.html").read_bytes()
    (folder / "second.png").unlink()
    redraw(folder)
    assert (folder / "report.html").read_bytes() == before
    (folder / "report.html").unlink()
    _, (left,) = redraw(folder)
    assert "its figure second.png is missing" in left


@pytest.mark.parametrize("end", [0, 500])
def test_a_figure_that_is_no_png_is_named_and_the_page_keeps_its_own(folder: Path, end: int):
    """A page drawn with it would have lost the picture for good."""
    before, second = (folder / "report.html").read_bytes(), folder / "second.png"
    second.write_bytes(second.read_bytes()[:end])
    _, (left,) = redraw(folder)
    assert "second.png is no whole PNG; delete it: report.html has a copy" in left
    assert (folder / "report.html").read_bytes() == before
    second.unlink()  # as it is told
    redraw(folder)
    assert (folder / "report.html").read_bytes() == before
    (folder / "report.html").unlink()
    second.write_bytes(b"")
    _, (left,) = redraw(folder)
    assert "second.png is no whole PNG; run its command again" in left


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "run its command again"),
        ("[]", "run its command again"),
        ('{"table": "tab:x", "rows": []}', "keeps no tables"),
        ('{"tables": [], "verdicts": []}', "not as reports are written"),
        ('{"tables": 3, "title": "T"}', "not as reports are written"),
    ],
)
def test_results_that_cannot_be_drawn_are_named_and_left(folder: Path, text: str, why: str):
    (folder / "results.json").write_text(text, encoding="utf-8")
    before = (folder / "report.html").read_bytes()
    (written,), (left,) = redraw(folder)
    assert written.name == "report-validation.html"
    assert str(folder / "results.json") in left
    assert why in left
    assert (folder / "report.html").read_bytes() == before
    (folder / "results-validation.json").unlink()
    with pytest.raises(KeptReportError, match=why):
        redraw(folder)


def test_a_folder_without_reports_is_refused(tmp_path: Path):
    (tmp_path / "cells").mkdir()
    (tmp_path / "cells" / "results.json").write_text('{"tables": []}')
    with pytest.raises(KeptReportError, match=r"holds no report: no results\.json"):
        redraw(tmp_path)


def test_the_kept_reports_are_those_of_the_code(tmp_path: Path):
    """`sprii report docs/results` writes them anew."""
    names = ("burgers-native-quick", "dclean-quick", "overcooked-quick", "spring-landscape-quick")
    for name in names:
        shutil.copytree(RESULTS / name, tmp_path / name)
    written, left = redraw(tmp_path)
    assert (len(written), left) == (len(names), [])
    for page in written:
        assert page.read_bytes() == (RESULTS / page.relative_to(tmp_path)).read_bytes(), page


def test_the_command_names_what_it_wrote_and_what_it_left(folder: Path, capsys: pytest.CaptureFixture[str]):
    (folder / "results.json").write_text("{", encoding="utf-8")
    Report(folder).run()
    told = capsys.readouterr().out.splitlines()
    assert told[0] == f"report: {folder / 'report-validation.html'}"
    assert told[1].startswith(f"left as it is: {folder / 'results.json'} is damaged")
    with pytest.raises(ValueError, match="legal: a folder of reports"):
        Report(folder / "report.html").run()


@pytest.fixture
def tree(folder: Path, tmp_path: Path) -> Path:
    """A report in a folder with two others in it, one of them deep, and results of a cell."""
    for place in ("quick", "quick/tab-x", "quick/tab-y/old", "quick/cells"):
        shutil.copytree(folder, tmp_path / "runs" / place)
    return tmp_path / "runs"


def drawn(root: Path, folder: Path, capsys: pytest.CaptureFixture[str], *, deep: bool = False) -> set[str]:
    """Folders of pages that the command wrote, by what it says and by what the files tell."""
    pages = [*root.rglob("report.html"), *root.rglob("report-validation.html")]
    for page in pages:
        page.write_text("stale", encoding="utf-8")
    Report(folder, deep=deep).run()
    fresh = {page for page in pages if page.read_text(encoding="utf-8") != "stale"}
    assert {f"report: {page}" for page in fresh} == set(capsys.readouterr().out.splitlines())
    return {str(page.parent.relative_to(root)) for page in fresh}


def test_a_report_is_drawn_and_not_those_beneath_it(tree: Path, capsys: pytest.CaptureFixture[str]):
    assert drawn(tree, tree / "quick", capsys) == {"quick"}
    assert drawn(tree, tree, capsys) == {"quick"}  # the folder's own folders
    for file in [*(tree / "quick").glob("results*"), *(tree / "quick").glob("report*")]:
        file.unlink()
    assert drawn(tree, tree / "quick", capsys) == {"quick/tab-x"}


def test_deeper_reports_are_drawn_where_that_is_asked_for(tree: Path, capsys: pytest.CaptureFixture[str]):
    assert drawn(tree, tree, capsys, deep=True) == {"quick", "quick/tab-x", "quick/tab-y/old"}
    (tree / "none" / "deep").mkdir(parents=True)
    for deep, where in ((False, "it or in a folder of it; --deep looks further down"), (True, "it, or beneath it")):
        with pytest.raises(KeptReportError, match=f"none holds no report: no results.json lies in {where}"):
            redraw(tree / "none", deep=deep)
