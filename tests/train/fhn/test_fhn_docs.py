"""The block of docs/fhn.md runs, and its tables of presets and schedule are those of the code."""

import re
from pathlib import Path

import pytest

from sprii_train.fhn.schedule import ALIGNED, DECAY, ENDS, EVERY, RESET, RESET_RATE, WARMUP
from sprii_train.learners import NODHier
from sprii_train.settings import FHN

PAGE = (Path(__file__).parents[3] / "docs" / "fhn.md").read_text(encoding="utf-8")


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    told: dict = {}
    exec(block, told)
    assert told["loss"].item() > told["parts"]["self"].item() > 0.0


def test_the_presets_are_those_of_the_page():
    rows = {line.split("|")[1].strip(): [c.strip() for c in line.split("|")[2:5]] for line in PAGE.splitlines()
            if line.count("|") == 5}  # fmt: skip
    for i, preset in enumerate(("smoke", "quick", "paper")):
        budget = FHN.budget(preset)
        made = FHN.store if budget.store is None else budget.store
        protocol, config = made.protocol, budget.learner  # pyright: ignore[reportFunctionMemberAccess]
        assert rows["side, solver step"][i] == f"{protocol.side}, {protocol.step or 0.02:g}"
        assert rows["training cases a system"][i] == str(len(protocol.train_cases))
        sizes = (config.width, config.layers, config.modes, config.condition_width)
        assert rows["width, layers, waves, conditioning"][i] == ", ".join(map(str, sizes))
        size = sum(p.numel() for p in NODHier(config).parameters())
        told, unit = rows["parameters"][i].split()
        assert float(told) == pytest.approx(size / {"thousand": 1e3, "million": 1e6}[unit], rel=0.05)
        assert rows["updates with Align"][i] == f"{budget.train.steps:,}"
        assert float(rows["seconds an update, one thread"][i]) == budget.step_seconds


def test_the_schedule_is_that_of_the_page():
    assert f"× {DECAY} every {EVERY} updates, 1e-5 from {RESET:,} on" in PAGE
    assert RESET_RATE == 1e-5
    assert f"rises to 0.01 over {WARMUP:,}, stays until {ALIGNED:,}, then 0" in PAGE
    for ends in ENDS.values():
        assert ", ".join(f"{end:,}" for end in ends) in PAGE
