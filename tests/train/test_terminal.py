"""Text on the terminal: its width whatever the environment says, and names as they are."""

import sys

import pytest
from rich.progress import Progress
from rich.table import Table

from sprii_train.experiments.progress import display
from sprii_train.terminal import console, size

NAMES = ("[/b]", "[link=http://x.org]y[/link]", "[bold]a", ":cat:", "[", "\\[a]", "$x$ $\\frac{$", "{loss}", "%s")


@pytest.mark.parametrize(
    ("given", "columns"),
    [
        (None, 120),
        ("", 120),
        ("abc", 120),
        ("0", 120),
        ("-3", 120),
        ("²", 120),
        ("1", 20),
        ("90", 90),
        ("9" * 12, 1000),
    ],
)
def test_any_environment_has_a_usable_width(given, columns, monkeypatch):
    with monkeypatch.context() as patch:  # undone before pytest, which reads the same variables, reports
        patch.delenv("COLUMNS", raising=False)
        for name in ("COLUMNS", "LINES") if given is not None else ():
            patch.setenv(name, given)
        patch.setattr(sys, "__stdout__", None)  # no terminal to ask
        found = console().width, size("LINES", None)
    assert found[0] == columns
    assert found[1] > 0


def test_names_are_printed_as_they_are(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    table = Table(*NAMES, title=" ".join(NAMES))
    table.add_row(*NAMES)
    console().print(table, *NAMES)
    out = capsys.readouterr().out
    assert all(out.count(name) >= 4 for name in NAMES)


def test_the_bars_of_cells_print_names_as_they_are(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    columns = []
    monkeypatch.setattr("rich.progress.Progress.start", lambda self: columns.extend(self.columns))
    progress: list[Progress] = []
    add = Progress.add_task
    monkeypatch.setattr(Progress, "add_task", lambda self, *a, **k: progress.append(self) or add(self, *a, **k))
    cells = [type("Cell", (), {"title": name, "steps": 3})() for name in NAMES]
    with display(cells) as shown:
        shown.told("[/b]", 1, 0.5)
        console().print(progress[0])
    out = capsys.readouterr().out
    assert "[/b]" in out
    assert "self 0.5000" in out
