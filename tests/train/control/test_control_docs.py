"""The blocks of docs/control.md run; the first one's controller brings the points to rest at the origin."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "control.md"


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_the_example_plans():
    points, pendulums, _ = blocks()
    told: dict = {}
    exec(points, told)
    assert told["action"].shape == (3, 1)
    assert told["observation"].abs().max() < 0.1
    exec(pendulums, told)
    assert [row["episodes"] for row in told["found"].by_group()] == [2]


def test_the_example_of_pushing_pairs_the_truth_with_nominal_equations():
    block = blocks()[2]
    told: dict = {}
    exec(block, told)
    own, beside = told["told"].groups["OOD_light"], told["told"].references["nominal"].groups["OOD_light"]
    assert own.starts == beside.starts
    assert own.values.tolist() == beside.values.tolist()
    assert own.returns.mean() > beside.returns.mean()
