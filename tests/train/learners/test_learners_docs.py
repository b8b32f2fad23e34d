"""The blocks of docs/learners.md run and print which terms each learner has, and what their comments say."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "learners.md"


def test_the_blocks_run(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(first, str(PAGE), "exec"), {})
    assert capsys.readouterr().out.splitlines() == ["CaDM ['l2', 'self']", "FCRL ['self']"]
    exec(compile(second, str(PAGE), "exec"), {})
    assert capsys.readouterr().out.strip() == second.rsplit("# ", 1)[1].strip()
