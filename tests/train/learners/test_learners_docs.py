"""The block of docs/learners.md runs and prints which terms each learner has."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "learners.md"


def test_the_block_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(block, str(PAGE), "exec"), {})
    assert capsys.readouterr().out.splitlines() == ["CaDM ['l2', 'self']", "FCRL ['self']"]
