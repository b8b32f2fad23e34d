"""Reports as people open them: nothing is loaded, all is linked, headed and named, and can be read in the dark."""

import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from matplotlib.figure import Figure

import sprii_train.reports
from sprii_train.reports.claims import Verdict
from sprii_train.reports.page import Page, Picture, Table, headed, paper_table_of, write_page

RESULTS = Path(__file__).parents[3] / "docs" / "results"
KEPT = [*sorted(RESULTS.rglob("report*.html")), RESULTS / "index.html"]
STYLE = (Path(sprii_train.reports.__file__).parent / "style.css").read_text(encoding="utf-8")
VOID = {"meta", "img", "br"}


class Read(HTMLParser):
    """Elements in their order: name, attributes, open parents, text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str], tuple[str, ...]]] = []
        self.texts: dict[int, str] = {}
        self._open: list[tuple[str, int]] = []
        self.feed(html)
        self.close()
        assert not self._open, self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {k: v or "" for k, v in attrs}, tuple(name for name, _ in self._open)))
        if tag not in VOID:
            self._open.append((tag, len(self.elements) - 1))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        for _, at in self._open:
            self.texts[at] = self.texts.get(at, "") + data

    def all(self, tag: str) -> list[tuple[int, dict[str, str]]]:
        return [(at, attrs) for at, (name, attrs, _) in enumerate(self.elements) if name == tag]


def check(html: str, folder: Path) -> Read:
    """Ids, links, captions, scopes, texts of pictures, and nothing that is loaded."""
    read = Read(html)
    ids = [attrs["id"] for _, attrs, _ in read.elements if "id" in attrs]
    assert len(set(ids)) == len(ids)
    for tag, attrs, _ in read.elements:
        assert tag not in ("script", "link", "iframe", "object", "embed", "base"), tag
        assert not any(name.startswith("on") for name in attrs)
        assert attrs.get("src", "data:image/png;base64,").startswith("data:image/png;base64,")
        assert attrs.get("aria-labelledby", ids[0]) in ids
        if href := attrs.get("href"):
            assert href.removeprefix("#") in ids if href.startswith("#") else (folder / href).is_file(), href
    (style,) = (read.texts[at] for at, _ in read.all("style"))
    assert "url(" not in style
    assert "@import" not in style
    (nav,) = (at for at, _ in read.all("nav"))
    linked = [attrs["href"] for at, attrs in read.all("a") if "nav" in read.elements[at][2]]
    assert nav
    assert len(linked) == len(set(linked)) >= 2
    for at, _ in read.all("table"):
        assert read.elements[at + 1][0] == "caption"
        assert read.texts[at + 1].strip()
        assert "div" in read.elements[at][2]  # its box scrolls
    for at, attrs in read.all("th"):
        assert attrs.get("scope") == ("col" if "thead" in read.elements[at][2] else "row")
    assert all(attrs["alt"].strip() for _, attrs in read.all("img"))
    levels = [int(tag[1]) for tag, _, _ in read.elements if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))
    return read


@pytest.mark.parametrize("path", KEPT, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_kept_pages_stand_alone_and_explain_themselves(path: Path):
    read = check(path.read_text(encoding="utf-8"), path.parent)
    explained = [at for at, _ in read.all("section")]
    assert len(explained) == sum("section" in read.elements[at][2] for at, _ in read.all("table"))
    for at in explained:
        inside = [tag for tag, _, _ in read.elements[at : at + 400]]
        assert inside.index("dd") < inside.index("table")  # meanings stand above the table
    assert any("evidence" in text or "A statement is a number" in text for text in read.texts.values())


def page(**changes) -> Page:
    figure = Figure(figsize=(9, 3))
    figure.subplots().plot([0, 1], [1, 0])
    table = Table(
        "Errors", ["Arm", "MSE ↓", "h16"], [["Align", "1", "2"], ["untrained", "2", "3"]], "A note.", frozenset({1})
    )
    told = {
        "title": "T", "lead": "L.", "tables": [table], "verdicts": [Verdict("It rises", "held", "1 [0, 2]")],
        "pictures": [Picture("curve", "A curve", "It falls.", figure)], "command": "sprii", "facts": {"Versions": "1"},
    }  # fmt: skip
    return Page(**told | changes)


def test_a_new_page_has_all_of_it(tmp_path: Path):
    write_page(page(), tmp_path)
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    read = check(html, tmp_path)
    terms = {read.texts[at]: read.texts[at + 1] for at, _ in read.all("dt")}
    assert terms["Align"].startswith("Prediction and Align")
    assert terms["untrained"].startswith("The same network with its first weights")
    assert terms["MSE"] == "Mean squared error: lower is better."
    assert {"held", "did not hold", "not resolved", "not tested", "without information", "h16", "↓"} <= set(terms)
    targets = [attrs["href"] for at, attrs in read.all("a") if "nav" in read.elements[at][2]]
    assert targets == ["#reading", "#table-1", "#verdicts", "#figure-1", "#made"]
    ((_, picture),) = read.all("img")
    assert picture["alt"] == "A curve. It falls."
    assert html.count("base64,") == 1  # at full size it is the same image
    assert 'href="#figure-1-full"' in html


def test_a_page_without_tables_figures_and_verdicts_is_whole(tmp_path: Path):
    write_page(page(tables=[], verdicts=[], pictures=[], facts={}), tmp_path)
    read = check((tmp_path / "report.html").read_text(encoding="utf-8"), tmp_path)
    assert not read.all("section")
    assert not read.all("img")


def test_headings_of_two_lines_become_one():
    two = headed(
        paper_table_of("P", [["", "Validation", "Test"], ["α", "Ratio", "Drag", "Ratio", "Drag"], ["0", *"1234"]])
    )
    assert two.columns == ["α", "Ratio, Validation", "Drag, Validation", "Ratio, Test", "Drag, Test"]
    assert (two.rows, two.paper) == ([["0", "1", "2", "3", "4"]], frozenset({0}))
    named = headed(paper_table_of("P", [["A. Errors"], ["Source", "Primary"], ["Native", "1"]]))
    assert (named.title, named.columns, named.rows) == ("P: A. Errors", ["Source", "Primary"], [["Native", "1"]])
    plain = paper_table_of("P", [["", "Native", "Align"], ["Mean", "1", "2"], ["SD", "0", "1"]])
    assert headed(plain) is plain
    ours = Table("T", ["", "Validation", ""], [["α", "Ratio", "Drag"], ["0", "1", "2"]])
    assert headed(ours) is ours


def luminance(colour: str) -> float:
    """WCAG's relative luminance."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def test_texts_can_be_read_in_light_and_dark():
    """WCAG AA: a contrast of 4.5 on the page and on boxes."""
    light, dark = (
        dict(re.findall(r"--(\w+): (#\w{6})", block)) for block in re.findall(r":root \{(.*?)\}", STYLE, re.S)
    )
    assert set(light) == set(dark)
    assert "prefers-color-scheme: dark" in STYLE
    for colours in (light, dark):
        for ground in ("page", "box"):
            for name in set(colours) - {"page", "box", "line", "shade"}:
                a, b = sorted((luminance(colours[name]), luminance(colours[ground])))
                assert (b + 0.05) / (a + 0.05) >= 4.5, (name, ground, colours[name])
    assert luminance(light["page"]) > 0.9
    assert luminance(dark["page"]) < 0.05
