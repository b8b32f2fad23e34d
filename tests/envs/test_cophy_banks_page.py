"""docs/envs/cophy.md from "Banks" on: its blocks run, and its table has the published counts."""

import re
from pathlib import Path

import pytest

from sprii_envs.cophy.protocols import PROTOCOLS

PAGE = (Path(__file__).parents[2] / "docs" / "envs" / "cophy.md").read_text(encoding="utf-8")
BANKS = PAGE[PAGE.index("\n## Banks\n") :]


def test_the_blocks_run(tmp_path, monkeypatch):
    pytest.importorskip("mujoco")
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for block in re.findall(r"```python\n(.*?)```", BANKS, re.DOTALL):
        exec(compile(block, "cophy.md", "exec"), names)
    assert names["query"].shape == (4, 3, 4, 13)
    assert names["seen"].shape == (2, 3, 112, 112, 3)
    assert names["seen"].std() > 0


def test_the_table_has_the_published_counts():
    for name, protocol in PROTOCOLS.items():
        told = "`cophy-balls2` … `cophy-balls6`" if "balls" in name else f"`{name}`"
        counts = f"{protocol.train:,} | {protocol.validation:,} | {protocol.test:,} | {protocol.bytes / 1e9:.2f} GB"
        assert f"| {told} | {counts} |" in BANKS
