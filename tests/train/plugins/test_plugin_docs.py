"""The blocks of docs/plugins.md run, and give the shapes that they say."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "plugins.md"


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("torchrl")
    pytest.importorskip("stable_baselines3")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 5
    told: dict = {}
    for block in blocks[:2]:
        exec(block, told)
    assert told["batch"]["donor"]["states"].shape == (48, 40, 4)
    assert told["batch"]["recipient"]["actions"].shape == (48, 39, 2)
    assert told["saved"]["step"] == 10
    assert told["recipient"].shape == told["donor"].shape == (16, 8)
    assert told["as_pairs"](told["buffer"].sample())["donor", "observation"].shape == (16, 8, 3)
    for block in blocks[2:]:
        exec(block, told)
    recipient = told["recipient"]
    assert recipient.observations.shape == (16, 9, 3)
    assert recipient.actions.shape == (16, 8, 1)
    assert recipient.rewards.shape == (16, 8)
    assert recipient.system.shape == (16,)
    assert told["seen"].shape == (64, 8)
    assert len(set(info["system_id"] for info in told["infos"])) == 64
    assert [info["persistent"].shape for info in told["infos"]] == [(3,)] * 64
    assert told["ppo"].num_timesteps == 2048
    assert told["indices"].shape == (2, 48, 8)
    assert told["correct"].all()
