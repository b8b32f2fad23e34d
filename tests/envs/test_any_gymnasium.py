"""The page and the example of any Gymnasium environment run, and give what they say."""

import re
import runpy
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("stable_baselines3")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "any_gymnasium.md").read_text("utf-8"), re.DOTALL)
    assert len(blocks) == 8
    told: dict = {}
    exec(blocks[0], told)
    first, again, chosen = (told[name] for name in ("info", "again", "chosen"))
    assert first["system_id"] == again["system_id"] != chosen["system_id"]
    assert chosen["persistent"].tolist() == [0.5, 0.1]
    pytest.importorskip("imageio")  # which Gymnasium's robots import
    exec(blocks[1], told)
    told["scaled"].reset(options={"system": {"mass": 2.0}})
    assert told["robot"].unwrapped.model.body_mass[1] == 2 * told["mass"]
    exec(blocks[2], told)
    assert told["without_effect"](told["trap"]) == ("masscart",)
    assert told["without_effect"](told["make"]()) == ()
    exec(blocks[3], told)
    assert told["one_of_two"].system.id == "long"
    assert {float(told["levels"].reset()[1]["persistent"][0]) for _ in range(30)} == {0.3, 0.5, 0.7}
    assert told["pinned"].reset()[1]["persistent"].tolist() == [0.8]
    exec(blocks[4], told)
    assert told["recipients"].shape == told["donors"].shape == (64, 8, 4)
    systems = told["table"]["system"]
    assert (systems[told["pairs"].donor] == systems[told["pairs"].recipient]).all()
    assert len(set(told["store"].table["system"])) == 40
    exec(blocks[5], told)
    assert told["infos"]["rollout"].tolist() == [0] * 8
    exec(blocks[6], told)
    assert [told[name].observation_space.shape for name in ("shown", "hidden", "partly")] == [(6,), (4,), (5,)]
    exec(blocks[7], told)
    others = told["others"]
    assert others.observations.shape == (3, 5, 4)
    assert len(np.unique(others.observations[:, -1], axis=0)) == 3
    assert others.lengths.tolist() == [4] * 3


def test_the_example_tells_systems_apart(capsys: pytest.CaptureFixture[str]):
    path = ROOT / "examples" / "any_gymnasium.py"
    assert len(path.read_text("utf-8").splitlines()) < 60
    runpy.run_path(str(path), run_name="__main__")
    printed = capsys.readouterr().out
    assert "change nothing: none" in printed
    right, wrong = (float(number) for number in re.findall(r"off by (\d\.\d+) m", printed))
    assert right < 0.05 < 0.15 < wrong


def test_the_blocks_of_the_repeat_section_run():
    page = (ROOT / "docs" / "wrappers.md").read_text("utf-8").split("## `RepeatSystem`")[1]
    told: dict = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(block, told)
    assert [told["ids"].count(id) for id in told["ids"]] == [4] * 8
    assert told["infos"]["rollout"].tolist() == [1] * 8  # 250 steps, of episodes of 200
