"""The block of docs/coda.md runs, and its asserts hold."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "coda.md"


def test_the_example_adapts_and_forecasts():
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    told: dict = {}
    exec(block, told)
    assert told["codes"].abs().max() <= 0.06  # fifty steps of Adam at 1e-3
