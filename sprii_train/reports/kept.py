"""A report written again from what lies in its folder: `results.json` and the figures, no number changed."""

import base64
import io
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from PIL import Image

from sprii_envs.files import read_json, write_whole
from sprii_train.reports.claims import Verdict
from sprii_train.reports.page import Drawn, Page, Table, html_of

RESULTS = "results*.json"
"""What `write_page` names its results: with an ending for those of another population."""

OLDER = "an older report, of which results.json keeps no tables: run its command again"


class KeptReportError(ValueError):
    """A kept report that cannot be drawn again."""


def redraw(folder: Path, *, deep: bool = False) -> tuple[list[Path], list[str]]:
    """Write each `report*.html` of a folder again, from the `results*.json` and the figures beside it.

    Of a folder that holds results, its own; of one that holds none, those of the folders in it.

    Args:
        deep: all beneath the folder too, but for cells and banks.

    Returns:
        The pages, and what was left as it is, each with the reason.

    Raises:
        KeptReportError: for a folder without results of reports, or of which none can be drawn.
    """
    written, left = [], []
    for path in _results(folder, deep):
        try:
            html = redrawn(path)
        except KeptReportError as error:
            left.append(f"{error}" if str(path) in f"{error}" else f"{path}: {error}")
            continue
        page = page_beside(path)
        write_whole(page, html)
        written.append(page)
    if not written:
        where = "it, or beneath it" if deep else "it or in a folder of it; --deep looks further down"
        raise KeptReportError("; ".join(left) or f"{folder} holds no report: no results.json lies in {where}")
    return written, left


def _results(folder: Path, deep: bool) -> list[Path]:
    """The results files that `redraw` is of."""
    own = [] if deep else sorted(folder.glob(RESULTS))
    beneath = folder.rglob(RESULTS) if deep else folder.glob(f"*/{RESULTS}")
    return own or sorted(p for p in beneath if not {"cells", "banks"} & set(p.relative_to(folder).parts))


def redrawn(path: Path) -> bytes:
    """The page of one `results.json`.

    Raises:
        KeptReportError: for results that are damaged, or that keep no tables.
    """
    told = read_json(path, KeptReportError, "run its command again")
    if "tables" not in told:
        raise KeptReportError(OLDER)
    try:
        lead, figures = _told(told, path)
        page = Page(
            title=told["title"],
            lead=lead,
            tables=[
                Table(t["title"], t["columns"], t["rows"], t["note"], frozenset(t["paper"])) for t in told["tables"]
            ],
            verdicts=[Verdict(v["claim"], v["verdict"], v["evidence"]) for v in told["verdicts"]],
            pictures=(),
            command=told["command"],
            facts=told["facts"],
            data={"table": told.get("table", "")},
        )
    except (KeyError, TypeError) as error:
        raise KeptReportError(f"not as reports are written: {error!r}") from error
    return html_of(page, figures)


def page_beside(path: Path) -> Path:
    """`report-validation.html` of `results-validation.json`."""
    return path.with_name(f"report{path.stem.removeprefix('results')}.html")


def _told(told: Mapping[str, Any], path: Path) -> tuple[str, list[Drawn]]:
    """The lead and the figures. Of a PNG that is gone, the page has a copy; older results have no words but there."""
    page, words = page_beside(path), _Words()
    if page.exists():
        words.feed(page.read_text(encoding="utf-8"))
    if "pictures" not in told:
        return words.lead, [Drawn("", *figure) for figure in words.figures]
    suffix, seen = path.stem.removeprefix("results"), {title: image for title, _, image in words.figures}
    figures = []
    for one in told["pictures"]:
        file = path.with_name(f"{one['name']}{suffix}.png")
        if not file.exists() and one["title"] not in seen:
            raise KeptReportError(f"its figure {file.name} is missing")
        copy = seen.get(one["title"], b"")
        image = file.read_bytes() if file.exists() else copy
        if not _whole(image):
            where = file.name if file.exists() else f"{page.name}'s copy of {file.name}"
            remedy = f"delete it: {page.name} has a copy" if file.exists() and _whole(copy) else "run its command again"
            raise KeptReportError(f"{where} is no whole PNG; {remedy}")
        figures.append(Drawn(one["name"], one["title"], one["caption"], image))
    return told["lead"], figures


def _whole(image: bytes) -> bool:
    """Whether these are a PNG, whose checksums agree."""
    try:
        Image.open(io.BytesIO(image), formats=["PNG"]).verify()
    except (OSError, SyntaxError, ValueError):
        return False
    return True


class _Words(HTMLParser):
    """The lead of a page, and (title, caption, PNG) of each figure: a heading, a paragraph, an image."""

    def __init__(self) -> None:
        super().__init__()
        self.lead = ""
        self.figures: list[tuple[str, str, bytes]] = []
        self._into = ""
        self._texts: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a text, or end a figure."""
        values = dict(attrs)
        if tag == "p":
            self._into = "lead" if values.get("class") == "lead" else "p"
        elif tag == "h2":
            self._into = tag
        elif tag == "img":
            data = (values.get("src") or "").partition("base64,")[2]
            self.figures.append((self._texts.get("h2", ""), self._texts.get("p", ""), base64.b64decode(data)))
        if self._into and tag in ("p", "h2"):
            self._texts[self._into] = ""

    def handle_endtag(self, tag: str) -> None:
        """End a text."""
        if tag in ("p", "h2"):
            self.lead = self._texts.get("lead", "")
            self._into = ""

    def handle_data(self, data: str) -> None:
        """Text of the element that is open."""
        if self._into:
            self._texts[self._into] += data
