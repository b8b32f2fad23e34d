"""docs/robots.md: the block of RH20T runs and prints what it says; its table of columns is that of the banks."""

import re
from pathlib import Path

from sprii_envs.robots.arms import PROTOCOLS
from sprii_envs.robots.scenes import Layout

PAGE = (Path(__file__).parents[3] / "docs" / "robots.md").read_text(encoding="utf-8")
RH20T = PAGE[PAGE.index("\n## RH20T\n") :]


def test_the_block_of_rh20t_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (block,) = [each for each in re.findall(r"```python\n(.*?)```", RH20T, re.DOTALL) if "robots.arms" in each]
    exec(compile(block, "robots.md", "exec"), {})
    (told,) = re.findall(r"print\(.*#  ?(.*)", block)
    assert capsys.readouterr().out.strip() == told


def test_the_table_has_the_columns_of_the_banks():
    told = dict(re.findall(r"^\| `(\w+)` \| \((.*?)\)[, ]", RH20T, re.MULTILINE))
    streams = Layout(joints=True).streams
    assert {name: tuple(map(int, shape.split(", "))) for name, shape in told.items()} == {
        name: spec.shape for name, spec in streams.items()
    }


def test_the_stand_in_is_as_large_as_told():
    assert f"{PROTOCOLS['rh20t'].bytes / 1e9:.2f} GB" in RH20T
