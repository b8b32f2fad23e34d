"""docs/stores.md: its blocks run, and its tables name what is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "stores.md").read_text(encoding="utf-8")


def test_the_blocks_run(tmp_path, monkeypatch):
    for package in ("av", "datasets", "lance"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(block, "stores.md", "exec"), names)
    assert names["names"] == {
        "states": "observation.state",
        "actions": "action",
        "rewards": "observation.rewards",
        "frames": "observation.images.frames",
    }
    assert names["store"].sealed_splits == ("final",)
    assert names["table"].table["system"].tolist() == ["left", "right"] * 3
    for name in names["names"].values():
        assert name.replace("frames", "NAME").replace("rewards", "NAME") in PAGE


def test_the_extras_are_those_of_the_package():
    told = set(re.findall(r'pip install "sprii\[(\w+)\]"', PAGE))
    extras = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert told == {"lerobot", "lance", "minari", "ray"}
    for name in told:
        assert re.search(rf"^{name} = \[", extras, re.MULTILINE)
