"""docs/first_steps.md: its blocks run, and its contexts tell the rate of machines that were never trained on."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "first_steps.md"


def test_the_blocks_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), names)
    assert names["envs"].unwrapped.num_envs == 64
    pairs, train = names["pairs"], names["train"]
    assert (train["system"][pairs.recipient] == train["system"][pairs.donor]).all()
    assert (train["episode"][pairs.recipient] != train["episode"][pairs.donor]).all()
    assert names["recipients"].shape == names["donors"].shape == (16, 16, 1)
    assert names["r2"] > 0.5
    assert {row["group"] for row in names["found"].by_group()} == {"ID", "OOD_c3"}


@pytest.mark.parametrize("page", ["index.md", "concepts.md"])
def test_pages_name_what_is_there(page):
    text = (PAGE.parent / page).read_text(encoding="utf-8")
    extras = (PAGE.parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    for name in re.findall(r"^Extras add .*?:(.*?)\.$", text, re.DOTALL | re.MULTILINE):
        for extra in re.findall(r"`(\w+)`", name):
            assert re.search(rf"^{extra} = \[", extras, re.MULTILINE), extra
