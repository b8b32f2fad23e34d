"""What docs/robots.md says is learned of manipulation: its block runs, its arms and numbers are those of the code."""

import re
from pathlib import Path

import pytest

from sprii_train.experiments.targets import target
from sprii_train.experiments.targets.rh20t import RH20T_TARGETS
from sprii_train.recipes import SCENE_RECIPES
from sprii_train.settings import RH20T

PAGE = (Path(__file__).parents[3] / "docs" / "robots.md").read_text(encoding="utf-8")
PART = PAGE[PAGE.index("\n### What is learned\n") : PAGE.index("\n## Baxter")]


def test_the_block_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```python\n(.*?)```", PART, re.DOTALL)
    names: dict = {}
    exec(compile(block, "robots.md", "exec"), names)
    (told,) = re.findall(r"print\(.*#  ?(.*)", block)
    assert capsys.readouterr().out.strip() == told
    assert names["parts"]["align"] > 0.0


def test_labels_and_arms_are_those_of_the_code():
    commands = re.findall(r"^sprii reproduce (\S+)", PART, re.MULTILINE)
    assert commands == [one.label for one in RH20T_TARGETS]
    others = re.search(r"Other labels: (.*?)\.\n", PART, re.DOTALL)
    assert others
    assert all(target(alias) in RH20T_TARGETS for alias in re.findall(r"`(\S+)`", others[1]))
    rows = re.search(r"\| arm `rh20t-…` .*?\n\n", PART, re.DOTALL)
    assert rows
    named = [arm for line in rows[0].strip().splitlines()[2:] for arm in re.findall(r"`([\w-]+)`", line.split("|")[1])]
    assert [f"rh20t-{arm}" for arm in named] == list(SCENE_RECIPES)


def test_the_presets_are_those_of_the_code():
    rows = {line.split("|")[1].strip(): [c.strip() for c in line.split("|")[2:5]] for line in PART.splitlines()
            if line.count("|") == 5}  # fmt: skip
    for i, preset in enumerate(("smoke", "quick", "paper")):
        budget = RH20T.budget(preset)
        made = RH20T.store if budget.store is None else budget.store
        protocol = made.protocol  # pyright: ignore[reportFunctionMemberAccess]
        assert rows["tasks × scenes of the stand-in"][i] == f"{protocol.tasks} × {protocol.each}"
        assert rows["pictures"][i] == f"{protocol.size}²" == f"{budget.learner.image}²"
        assert rows["width, layers"][i] == f"{budget.learner.width}, {budget.learner.layers}"
        assert rows["updates"][i] == f"{budget.train.steps:,}"
        assert rows["sources"][i] == str(len(budget.sources))
