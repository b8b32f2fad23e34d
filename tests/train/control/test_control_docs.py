"""The blocks of docs/control.md run; the first one's controller brings the points to rest at the origin."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "control.md"


def test_the_example_plans():
    points, pendulums = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    told: dict = {}
    exec(points, told)
    assert told["action"].shape == (3, 1)
    assert told["observation"].abs().max() < 0.1
    exec(pendulums, told)
    assert [row["episodes"] for row in told["found"].by_group()] == [2]
