"""The first block of docs/control.md runs, and its controller brings the points to rest at the origin."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "control.md"


def test_the_example_plans():
    block = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]
    told: dict = {}
    exec(block, told)
    assert told["action"].shape == (3, 1)
    assert told["observation"].abs().max() < 0.1


def test_the_example_of_pushing_pairs_the_truth_with_nominal_equations():
    block = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]
    told: dict = {}
    exec(block, told)
    own, beside = told["told"].groups["OOD_light"], told["told"].references["nominal"].groups["OOD_light"]
    assert own.starts == beside.starts
    assert own.values.tolist() == beside.values.tolist()
    assert own.returns.mean() > beside.returns.mean()
