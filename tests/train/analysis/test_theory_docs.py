"""The blocks of docs/theory.md run, and their asserts hold."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "theory.md"


def test_the_page_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 5
    namespace: dict = {}
    for block in blocks:
        exec(block, namespace)
    printed = capsys.readouterr().out.splitlines()
    assert printed[1] == "mass drag"
    assert [f"{float(line):.3f}" for line in printed[-3:]] == ["0.587", "0.014", "0.799"]
