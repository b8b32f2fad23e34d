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
