"""docs/robots.md: the block of grasps runs, and the numbers told of them are those of the code."""

import re
from pathlib import Path

import pytest

from sprii_envs.robots.baxter import COUNTS, HARDNESS, SPLIT_SEED
from sprii_envs.robots.tactile import TactileProtocol
from sprii_train.settings import BAXTER

PAGE = (Path(__file__).parents[3] / "docs" / "robots.md").read_text(encoding="utf-8").split("\n## Baxter", 1)[1]


def test_the_block_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict = {}
    exec(compile(block, "robots.md", "exec"), names)
    assert capsys.readouterr().out.startswith("stand-in ")
    assert names["loss"].item() > names["parts"]["align"].item() > 0.0


def test_the_numbers_are_those_of_the_code():
    cube, cylinder = (", ".join(map(str, levels)) for levels in HARDNESS.values())
    assert f"measured hardness {cube} of cubes; {cylinder} of cylinders" in PAGE
    assert f"(seed {SPLIT_SEED}), the same in all six: {COUNTS[0]} train, {COUNTS[1]} validation" in PAGE
    told = TactileProtocol()
    assert f"speed, of {told.speed:g} mm a sample | {told.speed_spread:.0%}".replace("%", " %") in PAGE
    gains = f"gain of all taxels, of each | {told.gain_spread:.0%}, {told.taxel_spread:.0%}".replace("%", " %")
    assert gains in PAGE
    assert f"| hold | {told.hold[0]} to {told.hold[1]} samples |" in PAGE
    assert f"| noise of a reading | {told.noise:g} N |" in PAGE
    rows = {line.split("|")[1].strip(): [c.strip() for c in line.split("|")[2:5]] for line in PAGE.splitlines()
            if line.count("|") == 5}  # fmt: skip
    for i, preset in enumerate(("smoke", "quick", "paper")):
        budget = BAXTER.budget(preset)
        made = BAXTER.store if budget.store is None else budget.store
        counts = made.protocol.counts  # pyright: ignore[reportFunctionMemberAccess]
        assert rows["grasps of a configuration, of the stand-in"][i] == " + ".join(map(str, counts))
        assert rows["width, layers"][i] == f"{budget.learner.width}, {budget.learner.layers}"
        assert rows["updates"][i] == f"{budget.train.steps:,}"
