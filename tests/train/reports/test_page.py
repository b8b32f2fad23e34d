"""Reports as files: what is in the page, the tables and the pictures, and how numbers are written."""

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib import rcParams
from matplotlib.figure import Figure
from matplotlib.image import imread

from sprii_train.analysis.statistics import Interval, Spread
from sprii_train.reports.claims import Claim, Verdict, judge
from sprii_train.reports.page import (
    METHOD,
    ONE_SOURCE,
    Page,
    Picture,
    Table,
    interval,
    number,
    paper_table_of,
    print_page,
    spread,
    versions,
    write_page,
)
from sprii_train.reports.paper import paper_panels


def page() -> Page:
    figure = Figure(figsize=(1, 1))
    figure.subplots().plot([0, 1], [1, 0])
    return Page(
        title="Structure < Align & more",
        lead="A check.",
        tables=[
            Table("Ours", ["Arm", "ρ, 95 %"], [["α = 1", "0.1 [0.0, 0.2]"], ["a, \"b\"", "n.a."]], "A note."),
            Table("The paper's", ["Arm", "ρ"], [["x", "1"]], paper=frozenset({0})),
        ],
        verdicts=[
            Verdict("It rises", "held", "difference: 1, 2, 3"),
            Verdict("It falls", "did not hold", "difference: 1, 2, 3"),
            Verdict("It stays", "not resolved", "difference: 1"),
            Verdict("It is tested", "not tested", "needs the arms b"),
        ],
        pictures=[Picture("curve", "A curve", "It falls.", figure)],
        command="sprii reproduce tab:x --seeds 3",
        facts={"Budget": "3 steps", "Versions": "none"},
        data={"table": "tab:x", "rows": [{"arm": "a", "ratio": 0.25}]},
    )  # fmt: skip


def test_files_of_a_report(tmp_path: Path):
    root = tmp_path / "deep" / "tab-x"
    write_page(page(), root)
    assert {file.name for file in root.iterdir()} == {
        "report.html", "results.json", "table-1.csv", "table-2.csv", "curve.png",
    }  # fmt: skip
    assert (root / "curve.png").read_bytes().startswith(b"\x89PNG")
    with open(root / "table-1.csv", encoding="utf-8", newline="") as file:
        assert list(csv.reader(file)) == [["Arm", "ρ, 95 %"], ["α = 1", "0.1 [0.0, 0.2]"], ['a, "b"', "n.a."]]
    told = json.loads((root / "results.json").read_text(encoding="utf-8"))
    assert told["rows"] == [{"arm": "a", "ratio": 0.25}]
    assert (told["table"], told["title"]) == ("tab:x", "Structure < Align & more")
    assert told["verdicts"][1] == {"claim": "It falls", "verdict": "did not hold", "evidence": "difference: 1, 2, 3"}
    assert told["tables"][1] == {
        "title": "The paper's", "columns": ["Arm", "ρ"], "rows": [["x", "1"]], "note": "", "paper": [0],
    }  # fmt: skip
    assert told["lead"] == "A check."
    assert told["pictures"] == [{"name": "curve", "title": "A curve", "caption": "It falls."}]
    assert told["facts"] == {"Budget": "3 steps", "Versions": "none"}
    write_page(page(), root, "-validation")
    assert (root / "report-validation.html").read_bytes() == (root / "report.html").read_bytes()
    assert (root / "results-validation.json").exists()
    assert (root / "table-2-validation.csv").exists()
    assert (root / "curve-validation.png").exists()


def test_whose_data_a_report_is_of_stands_by_everything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch
):
    """Without the fact nothing is added; with it, readers of CSV files find a column more and the same numbers."""
    monkeypatch.setenv("COLUMNS", "200")
    whose, mixed = "simulated stand-in, not the published recordings", page().tables[0]
    mixed = replace(mixed, rows=[*mixed.rows, ["y", "2"]], paper=frozenset({2}))
    figure = Figure(figsize=(3, 2), layout="constrained")
    figure.subplots().set_xlabel("step")
    plain = replace(page(), tables=[mixed, page().tables[1]], pictures=[replace(page().pictures[0], figure=figure)])
    write_page(plain, tmp_path / "plain")
    told = replace(plain, facts={**plain.facts, "Data": whose})
    write_page(told, tmp_path / "told")
    write_page(told, tmp_path / "again")
    for place in (1, 2):
        before, after = (csv_rows(tmp_path / name / f"table-{place}.csv") for name in ("plain", "told"))
        assert [row[:-1] for row in after] == before
        assert after[0][-1] == "Data"
        expected = whose if place == 1 else "the paper's"  # a grey row beside ours is ours
        assert {row[-1] for row in after[1:]} == {expected}
    sentence = f"Data of all but the paper&#39;s tables: {whose}."
    assert sentence in (tmp_path / "told/report.html").read_text(encoding="utf-8")
    assert "<strong>" not in (tmp_path / "plain/report.html").read_text(encoding="utf-8")
    assert [text.get_text() for text in figure.texts] == [f"Data: {whose}"]
    heights = [imread(tmp_path / name / "curve.png").shape[0] for name in ("plain", "told", "again")]
    assert heights == [240, 270, 270]  # two inches, and a quarter for the note
    box = figure.axes[0].get_tightbbox()  # in pixels, labels included
    assert box is not None
    assert box.y0 >= figure.texts[0].get_window_extent().y1
    print_page(told)
    assert f"Data of all but the paper's tables: {whose}." in capsys.readouterr().out
    print_page(plain)
    assert "Data of" not in capsys.readouterr().out


def csv_rows(file: Path) -> list[list[str]]:
    with open(file, encoding="utf-8", newline="") as opened:
        return list(csv.reader(opened))


def test_the_html_page_stands_alone_and_escapes(tmp_path: Path):
    write_page(page(), tmp_path)
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<h1>Structure &lt; Align &amp; more</h1>" in html
    text = re.sub(r"base64,[A-Za-z0-9+/=]+", "", html)
    assert "http" not in text
    assert html.count("data:image/png;base64,") == 1
    for words in ("A note.", "It falls.", METHOD, "sprii reproduce tab:x --seeds 3", "3 steps"):
        assert words in text
    assert re.findall(r'<tr( class="paper")?><th scope="row">([^<]*)<', text) == [
        ("", "α = 1"), ("", "a, &#34;b&#34;"), (' class="paper"', "x"),
    ]  # fmt: skip
    assert re.findall(r'<td class="verdict" role="cell"><span class="(\w+)">([^<]*)<', text) == [
        ("held", "held"), ("not", "did not hold"), ("some", "not resolved"), ("none", "not tested"),
    ]  # fmt: skip


def test_a_page_without_pictures_and_verdicts(tmp_path: Path):
    write_page(replace(page(), pictures=[], verdicts=[], tables=[]), tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {"report.html", "results.json"}


def test_not_a_number_is_refused_and_leaves_the_old_results(tmp_path: Path):
    write_page(page(), tmp_path)
    before = (tmp_path / "results.json").read_bytes()
    with pytest.raises(ValueError, match="JSON"):
        write_page(replace(page(), data={"rows": [float("nan")]}), tmp_path)
    assert (tmp_path / "results.json").read_bytes() == before


def test_a_page_on_the_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "100")
    print_page(page())
    out = capsys.readouterr().out
    for words in (
        "Ours",
        "α = 1",
        "0.1 [0.0, 0.2]",
        "The paper's",
        "not resolved: It stays",
        "needs the arms b",
    ):
        assert words in out


def test_one_source_is_said_to_be_one(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch):
    """On the page and the terminal, where an interval is within the only source, and nowhere else."""
    monkeypatch.setenv("COLUMNS", "400")
    rows = [{"arm": "a", "seed": seed, "x": 1.0} for seed in (0, 1)]
    within = Interval(1.0, 0.9, 1.1, 0.95, 10, "system")
    claim = Claim("It is high", ("a",), lambda a: a["a"]["x"], "x", above=0.5, null=0.0, interval=lambda a: within)
    for sources, expected in ((1, True), (2, False)):
        verdicts = judge([claim], rows[:sources])
        assert [verdict.status for verdict in verdicts] == ["held"]
        told = replace(page(), verdicts=verdicts)
        write_page(told, tmp_path)
        print_page(told)
        html = (tmp_path / "report.html").read_text(encoding="utf-8")
        assert (ONE_SOURCE in html) == (ONE_SOURCE in capsys.readouterr().out) == expected


NAME = "[/b] <b> [link=http://x.org]$a$ $\\frac{$ :cat: {{ 1 + 1 }}"


def test_names_are_no_markup_anywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch):
    """On the terminal, in HTML and in figures, also where the user's matplotlib would call TeX."""
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setitem(rcParams, "text.usetex", True)
    figure = Figure(figsize=(4, 3))
    left, right = figure.subplots(1, 2)
    left.bar([0, 1], [1, 2], label=NAME)
    left.set_xticks([0, 1], [NAME, NAME])
    left.legend(title=NAME)
    right.set_yscale("log")
    right.set_title(NAME)
    named = replace(
        page(),
        title=NAME,
        tables=[Table(NAME, [NAME, "b"], [[NAME, NAME], ["", NAME]], NAME, frozenset({1}))],
        verdicts=[Verdict(NAME, NAME, NAME)],
        pictures=[Picture("curve", NAME, NAME, figure)],
        facts={NAME: NAME},
        command=NAME,
    )
    write_page(named, tmp_path)
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert text.count(NAME.replace("<", "&lt;").replace(">", "&gt;")) == 21
    assert "<b>" not in text
    print_page(named)
    assert capsys.readouterr().out.count(NAME) == 8
    powers = [label.get_parse_math() for label in right.get_yticklabels()]
    assert powers
    assert all(powers)
    assert not left.get_xticklabels()[0].get_parse_math()


@pytest.mark.parametrize("columns", ["abc", "0", "²", "-1"])
def test_a_report_is_printed_whatever_the_width_is_said_to_be(columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    print_page(page())
    assert "0.1 [0.0, 0.2]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "n.a."), (float("nan"), "n.a."), (0.0, "0.0000"), (0.99349, "0.9935"), (-0.5, "-0.5000"),
     (104.296, "104.30"), (9.99999, "10.0000"), (10.0, "10.00"), (0.0099, "0.009900"), (0.0000123, "0.000012"),
     (-20.126, "-20.13")],
)  # fmt: skip
def test_numbers(value: float | None, text: str):
    assert number(value) == text


def test_spreads_and_intervals():
    assert spread(None) == interval(None) == "n.a."
    assert spread(Spread(0.99352, 0.00071, 3)) == "0.9935 ± 0.0007"
    assert spread(Spread(28.094, 1.931, 3)) == "28.09 ± 1.93"
    assert spread(Spread(0.00634, 0.00104, 3)) == "0.00634 ± 0.00104"
    assert spread(Spread(0.5, float("nan"), 1)) == "0.5000"
    assert interval(Interval(0.182, 0.132, 0.2343, 0.95, 64, "system")) == "0.1820 [0.1320, 0.2343]"
    assert interval(Interval(-6.3, -11.0, 0.004, 0.95, 64, "system")) == "-6.3000 [-11.00, 0.004000]"


def test_the_papers_tables_are_grey_and_rectangular():
    table = paper_table_of("The paper's", [["Arm", "a", "b"], ["x", "1"], ["y", "2", "3"]], "From the appendix.")
    assert table == Table(
        "The paper's", ["Arm", "a", "b"], [["x", "1", ""], ["y", "2", "3"]], "From the appendix.", frozenset({0, 1})
    )
    wide = paper_table_of("", [["", "Validation"], ["α", "Ratio", "Drag"]])
    assert wide.columns == ["", "Validation", ""]


def test_two_labels_of_one_table():
    assert paper_panels("tab:fidelity-full") is not None
    assert paper_panels("tab:fidelity-full") == paper_panels("tab:pokeworld-geometry")
    with pytest.raises(ValueError, match=r"numbers of 'tab:nothing' are not kept; kept: .*tab:refinement-full"):
        paper_panels("tab:nothing")


def test_versions_name_what_numbers_depend_on():
    assert re.fullmatch(r"sprii \S+, torch \S+, numpy \S+, .*scikit-learn \S+, Python 3\.\S+", versions())
    assert f"numpy {np.__version__}" in versions()
