"""Paths through folders that are not there: what a command writes it finds again, and makes no other folder."""

import dataclasses
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from test_hostile_commands import LINES, TINY

import sprii_train.experiments.reproduce as reproducing
from sprii_envs import banks
from sprii_envs.banks import open_store
from sprii_train import cli
from sprii_train.cli import main
from sprii_train.reports.page import Page

ROOT = Path(__file__).parents[2]


def hints_of(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, vars(sys.modules[kind.__module__]))


def leaves(kind: type) -> Iterator[type]:
    """The commands under one."""
    parts = get_args(hints_of(kind).get("command"))
    for part in parts:
        yield from leaves(part)
    if not parts:
        yield kind


def paths_of(kind: type) -> list[str]:
    hints = hints_of(kind)
    return [f.name for f in dataclasses.fields(kind) if Path in (hints[f.name], *get_args(hints[f.name]))]


def sprii(monkeypatch: pytest.MonkeyPatch, *words: object) -> None:
    monkeypatch.setattr(sys, "argv", ["sprii", *map(str, words)])
    main()


def test_the_hostile_lines_have_every_command():
    several = (cli.BankCommand, cli.RelationsCommand, cli.PendulumCommand, cli.OvercookedCommand)
    alone = (cli.Quickstart, cli.Reproduce, cli.Scoreboard, cli.Report, cli.Benchmark, cli.Doctor)
    assert {leaf for kind in (*several, *alone) for leaf in leaves(kind)} == {line.kind for line in LINES}


@pytest.mark.parametrize("line", [line for line in LINES if paths_of(line.kind)], ids=str)
def test_every_path_of_every_command_has_no_detour(line, monkeypatch):
    if line.words[0] == "overcooked":
        pytest.importorskip("jaxmarl")
    ran: list[Any] = []
    monkeypatch.setattr(line.kind, "run", lambda command: ran.append(command))
    for name in paths_of(line.kind):
        sprii(monkeypatch, *line.argv({name: ("absent/../there",)}))
        assert getattr(ran[-1], name) == Path("there")


def test_what_is_written_through_an_absent_folder_is_found_again(monkeypatch, tmp_path, capsys):
    for package in ("pyarrow", "av"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(banks.PROTOCOLS, "tiny", TINY)
    shutil.copytree(ROOT / "docs/results/dclean-quick", "reports/dclean-quick")

    def there(name: str) -> str:
        return f"absent/../{name}"

    def bank(*words: object) -> None:
        sprii(monkeypatch, "bank", *words)

    for _ in range(2):  # the second time all is there
        bank("build", "tiny", there("built"), "--workers", 1)
    bank("verify", there("built"))
    bank("export", "lerobot", there("built"), there("data"))
    for _ in range(2):
        bank("import", "lerobot", there("data"), there("back"))
    bank("info", there("back"))
    sprii(monkeypatch, "relations", "audit", there("built"), "--relation", "same-system", "--json", there("audit.json"))
    sprii(monkeypatch, "report", there("reports"))
    sprii(monkeypatch, "scoreboard", there("reports"), "--out", there("page.html"))
    assert "absent" not in capsys.readouterr().out
    assert sorted(os.listdir()) == ["audit.json", "back", "built", "data", "page.html", "reports"]
    assert open_store("back").table["system"].tolist() == open_store("built").table["system"].tolist()


def test_reproduce_and_quickstart_lie_where_the_path_leads(monkeypatch, tmp_path):
    plans = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(reproducing, "reproduce", lambda plan, command, **_: plans.append((plan, command)) or Page(
        "T", "", [], [], [], command, {}
    ))  # fmt: skip
    for words in (("reproduce", "tab:dclean-full"), ("quickstart",)):
        sprii(monkeypatch, *words, "--preset", "smoke", "--out", "absent/../runs")
        plan, command = plans[-1]
        assert plan.root == Path("runs")
        assert command.endswith("--out runs")
