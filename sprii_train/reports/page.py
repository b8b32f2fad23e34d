"""One report: tables beside the paper's, verdicts, figures and facts, as HTML, JSON, CSV and PNG files."""

import base64
import csv
import io
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure
from rich.console import Console
from rich.text import Text

from sprii_envs.files import write_json, write_whole
from sprii_train.analysis.statistics import Interval, Spread
from sprii_train.reports.claims import FAILED, GIVEN_ONE, HELD, OPEN, UNTESTED, Verdict
from sprii_train.reports.figures import noted, png
from sprii_train.reports.glossary import PRIMER, VERDICTS, arms_in, label_of, meanings_of, references_in
from sprii_train.terminal import console


@dataclass(frozen=True)
class Table:
    """Rows of texts under columns.

    Attributes:
        paper: rows shown in grey: the paper's, or what stands beside ours; all of them in a table of the paper.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    paper: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Picture:
    """A figure and what people should know to read it."""

    name: str
    title: str
    caption: str
    figure: Figure


@dataclass(frozen=True)
class Drawn:
    """A figure as it lies in the folder of a report, and what people should know to read it."""

    name: str
    title: str
    caption: str
    image: bytes

    @property
    def data(self) -> str:
        """The PNG for a data URL."""
        return base64.b64encode(self.image).decode()


@dataclass(frozen=True)
class Shown:
    """A table, and what its columns mean: (words, meaning) pairs; whether a table above has not told all of them."""

    table: Table
    meanings: Sequence[tuple[str, str]]
    new: bool


@dataclass(frozen=True)
class Page:
    """Everything a report says.

    Attributes:
        command: repeats the run.
        facts: name → text: machine, budget, versions; `Data` is whose data it is of, and stands by all that is written.
        data: what `results.json` holds beside tables, verdicts and facts.
        files: whatever else is written beside the report, films say, by name.
    """

    title: str
    lead: str
    tables: Sequence[Table]
    verdicts: Sequence[Verdict]
    pictures: Sequence[Picture]
    command: str
    facts: Mapping[str, str]
    data: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)


RULE = (
    "A statement is a number between bounds. It held where estimate and 95 % interval lie between them, in every "
    "source that has an interval of its own; it did not hold where all of it lies beyond a bound; it is not resolved "
    "where the interval spans a bound, where sources disagree, or where there is no interval. Intervals over systems "
    "or episodes are conditional on the trained sources."
)
ONE_SOURCE = (
    "“Given one source” means that an interval is over the systems or episodes on which the one trained source was "
    "measured, and conditional on that source. Another training may come out otherwise; nothing here says how far, "
    "and more seeds would."
)
DATA = "Data"
"""The fact that says whose data a report is of: recordings, or a simulated stand-in."""
METHOD = "The same command repeats this run: finished cells are kept, a stopped cell resumes."
GREY = "The paper's numbers, for comparison; nothing here was measured by this run."
PARTLY = "Grey lines are no result of this run's arms: the paper's numbers, or what stands beside them for comparison."


def write_page(page: Page, root: Path, suffix: str = "") -> None:
    """Write `report.html`, `results.json`, a CSV a table and a PNG a picture under `root`, each whole."""
    root.mkdir(parents=True, exist_ok=True)
    of = page.facts.get(DATA, "")
    images = {p.name: png(noted(p.figure, f"{DATA}: {of}") if of else p.figure) for p in page.pictures}
    html = html_of(page, [Drawn(p.name, p.title, p.caption, images[p.name]) for p in page.pictures])
    for name, content in page.files.items():
        write_whole(root / name, content)
    for name, image in images.items():
        write_whole(root / f"{name}{suffix}.png", image)
    for number, table in enumerate(page.tables, 1):
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(_with_data(table, of))
        write_whole(root / f"table-{number}{suffix}.csv", text.getvalue().encode())
    write_whole(root / f"report{suffix}.html", html)
    for old in root.glob(f"table-*{suffix}.csv"):  # of a run with more tables, which the data below would not tell of
        number = old.name.removeprefix("table-").removesuffix(f"{suffix}.csv")
        if number.isdigit() and int(number) > len(page.tables):
            old.unlink()
    told = {
        "title": page.title,
        "lead": page.lead,
        "command": page.command,
        "tables": [asdict(table) | {"paper": sorted(table.paper)} for table in page.tables],
        "verdicts": [verdict.as_dict() for verdict in page.verdicts],
        "pictures": [{"name": p.name, "title": p.title, "caption": p.caption} for p in page.pictures],
        "facts": dict(page.facts),
    }
    write_json(root / f"results{suffix}.json", told | dict(page.data))


def html_of(page: Page, figures: Sequence[Drawn]) -> bytes:
    """The report as one HTML file that loads nothing; `page.pictures` are not drawn, `figures` are shown."""
    tables = [headed(table) for table in page.tables]
    found = Counter(verdict.status for verdict in page.verdicts)
    return rendered(
        "report.html",
        page=page,
        tables=_shown(tables, str(page.data.get("table", ""))),
        figures=figures,
        method=METHOD,
        rule=RULE,
        grey=GREY,
        partly=PARTLY,
        primer=PRIMER,
        verdicts=VERDICTS,
        condition=condition_of(page.verdicts),
        arms=arms_in(tables),
        references=references_in(tables),
        counts=[(status, found[status]) for status in (HELD, FAILED, OPEN, UNTESTED) if found[status]],
        data=told_of(page.facts.get(DATA, "")),
    )


def _shown(tables: Sequence[Table], label: str) -> list[Shown]:
    shown, told = [], set()
    for table in tables:
        meanings = meanings_of(table.columns, label_of(table.title, label))
        shown.append(Shown(table, meanings, not {meaning for _, meaning in meanings} <= told))
        told |= {meaning for _, meaning in meanings}
    return shown


def headed(table: Table) -> Table:
    """A table of the paper whose heading has two lines, with one: `Ratio ↑, Validation`."""
    over = list(table.columns)
    while over and not over[-1]:
        over.pop()
    if len(table.paper) < len(table.rows) or len(table.rows) < 2:
        return table
    below = table.rows[0]
    if len(over) == 1 and len(table.columns) > 1:  # a title of the panel
        columns, title = list(below), f"{table.title}: {over[0]}"
    elif not over[0] and len(over) < len(below) and (len(below) - 1) % (len(over) - 1) == 0:
        width = (len(below) - 1) // (len(over) - 1)
        columns = [below[0], *(f"{name}, {over[1 + i // width]}" for i, name in enumerate(below[1:]))]
        title = table.title
    else:
        return table
    return replace(
        table, title=title, columns=columns, rows=table.rows[1:], paper=frozenset(range(len(table.rows) - 1))
    )


def told_of(data: str) -> str:
    """Whose data a page is of, in a sentence; "" where nothing is told."""
    return f"{DATA} of all but the paper's tables: {data}." if data else ""


def condition_of(verdicts: Sequence[Verdict]) -> str:
    """What verdicts are conditional on where they are of one source; "" where none is."""
    return ONE_SOURCE if any(GIVEN_ONE in verdict.evidence for verdict in verdicts) else ""


def _with_data(table: Table, data: str) -> list[Sequence[str]]:
    """Header and rows, with a last column of whose data they are where that is told."""
    if not data:
        return [table.columns, *table.rows]
    whose = "the paper's" if len(table.paper) == len(table.rows) else data
    return [[*table.columns, DATA], *([*row, whose] for row in table.rows)]


def rendered(template: str, **values: Any) -> bytes:
    """A template of this folder with its style, filled in; text from files and users is escaped."""
    text = files("sprii_train.reports").joinpath(template).read_text(encoding="utf-8")
    style = Markup(files("sprii_train.reports").joinpath("style.css").read_text(encoding="utf-8"))
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.from_string(text).render(style=style, **values).encode()


def print_page(page: Page) -> None:
    """Tables and verdicts on the terminal."""
    from rich import box
    from rich.table import Table as Shown

    screen = console()
    for table in page.tables:
        shown = Shown(title=table.title, title_justify="left", box=box.SIMPLE_HEAD)
        names = [word for row in table.rows for word in row[0].split()]
        for i, column in enumerate(table.columns):
            least = None if i else max(map(len, names), default=None)  # words of names stay whole
            shown.add_column(column, justify="right" if i else "left", overflow="fold", min_width=least)
        for number, row in enumerate(table.rows):
            shown.add_row(*row, style="dim" if number in table.paper else None)
        screen.print(shown)
    if told := told_of(page.facts.get(DATA, "")):
        screen.print(Text(f"{told}\n", "yellow"))
    print_verdicts(page.verdicts, screen)
    if lacking := page.facts.get("Not measured"):
        screen.print(f"not measured: {lacking}")


def print_verdicts(verdicts: Sequence[Verdict], screen: Console) -> None:
    """What held, in colour."""
    for verdict in verdicts:
        colour = {HELD: "green", FAILED: "red"}.get(verdict.status, "yellow")
        screen.print(Text.assemble((verdict.status, colour), ": ", verdict.text))
        screen.print(Text(f"  {verdict.evidence}", "dim"))
    if condition := condition_of(verdicts):
        screen.print(Text(f"\n{condition}", "yellow"))


def paper_table_of(title: str, panel: Sequence[Sequence[str]], note: str = "") -> Table:
    """A panel of the paper as a table, all of it grey."""
    width = max(len(row) for row in panel)
    rows = [[*row, *[""] * (width - len(row))] for row in panel]
    return Table(title, rows[0], rows[1:], note, frozenset(range(len(rows) - 1)))


def versions() -> str:
    """The packages that numbers may depend on."""
    names = ("sprii", "torch", "numpy", "scipy", "gymnasium", "scikit-learn")
    return ", ".join(f"{name} {version(name)}" for name in names) + f", Python {platform.python_version()}"


def number(value: float | None) -> str:
    """Four significant decimals: `0.9935`, `104.30`; `n.a.` for none."""
    if value is None or value != value:
        return "n.a."
    size = abs(value)
    digits = 2 if size >= 10 else 4 if size >= 0.01 or size == 0 else 6
    return f"{value:.{digits}f}"


def spread(value: Spread | None) -> str:
    """`0.9935 ± 0.0007`, without SD for one source, `n.a.` for none."""
    if value is None:
        return "n.a."
    digits = 2 if abs(value.mean) >= 10 else 4 if abs(value.mean) >= 0.01 else 5
    return f"{value.mean:.{digits}f}" + (f" ± {value.sd:.{digits}f}" if value.sd == value.sd else "")


def interval(value: Interval | None) -> str:
    """`0.1820 [0.1320, 0.2343]`."""
    return "n.a." if value is None else f"{number(value.estimate)} [{number(value.low)}, {number(value.high)}]"
