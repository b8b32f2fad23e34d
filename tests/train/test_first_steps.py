"""docs/first_steps.md: each block runs alone, and its contexts tell the rate of machines that were never trained on."""

import re
from pathlib import Path

import numpy as np
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "first_steps.md"


def test_each_block_runs_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    alone: list[dict] = [{} for _ in blocks]
    for block, names in zip(blocks, alone, strict=True):
        exec(compile(block, str(PAGE), "exec"), names)
    made, drawn, trained, played = alone
    assert made["envs"].unwrapped.num_envs == 64
    pairs, train = drawn["pairs"], drawn["train"]
    assert (train["system"][pairs.recipient] == train["system"][pairs.donor]).all()
    assert (train["episode"][pairs.recipient] != train["episode"][pairs.donor]).all()
    assert drawn["recipients"].shape == drawn["donors"].shape == (16, 16, 1)
    assert np.array_equal(trained["readings"], drawn["readings"])
    assert trained["store"].fingerprint == drawn["store"].fingerprint
    assert trained["r2"] > 0.5
    assert {row["group"] for row in played["found"].by_group()} == {"ID", "OOD_c3"}


@pytest.mark.parametrize("page", ["index.md", "concepts.md"])
def test_pages_name_what_is_there(page):
    text = (PAGE.parent / page).read_text(encoding="utf-8")
    extras = (PAGE.parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    for name in re.findall(r"^Extras add .*?:(.*?)\.$", text, re.DOTALL | re.MULTILINE):
        for extra in re.findall(r"`(\w+)`", name):
            assert re.search(rf"^{extra} = \[", extras, re.MULTILINE), extra
