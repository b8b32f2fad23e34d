"""The block of docs/cophy.md runs, and its table of presets is that of the code."""

import re
from pathlib import Path

from sprii_train.settings.cophy import COPHY
from sprii_train.settings.perceived import Perceived

PAGE = (Path(__file__).parents[3] / "docs" / "cophy.md").read_text(encoding="utf-8")


def test_the_page_runs():
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    told: dict = {}
    exec(block, told)
    assert told["same"][0] == 1.0
    assert 0.2 < told["same"][1] < 0.8


def test_the_presets_are_those_of_the_page():
    rows = {line.split("|")[1].strip(): [c.strip() for c in line.split("|")[2:5]] for line in PAGE.splitlines()
            if line.count("|") == 5}  # fmt: skip
    for i, preset in enumerate(("smoke", "quick", "paper")):
        for setting, scene in zip(COPHY, ("Balls", "Collision", "Blocktower"), strict=True):
            budget = setting.budget(preset)
            made = setting.store if budget.store is None else budget.store
            assert isinstance(made, Perceived)
            p, front, learner = made.protocol, made.frontend, budget.learner
            assert rows[f"pairs, {scene}"][i] == f"{p.train:,} / {p.validation:,} / {p.test:,}"
            assert rows["pictures, trunk"][i].lower().replace("-", "") == f"{front.size}², {front.trunk}"
            assert rows["width, P, T"][i] == f"{learner.width}, {learner.persistent}, {learner.current}"
            assert rows["sources"][i] == str(len(budget.sources))
        assert rows["updates of a reader: Balls, Collision, Blocktower"][i] == ", ".join(
            f"{setting.budget(preset).reader_steps:,}" for setting in COPHY
        )
        assert rows["updates: Balls, Collision, Blocktower"][i] == ", ".join(
            f"{setting.budget(preset).train.steps:,}" for setting in COPHY
        )
