"""Rows, intervals and contrasts against scipy's; files."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sprii_envs.files import FileError
from sprii_train.evaluation import Evaluation, GroupEpisodes, Published, RandomAgent, evaluate_agent
from sprii_train.evaluation.result import wilson

ENV_ID = "sprii/Pendulum-v0"


def made(returns, success=None, *, each=1, starts="s", agent="a", **changes) -> Evaluation:
    n = len(returns)
    own = GroupEpisodes(
        ids=np.repeat([f"system-{i}" for i in range(n // each)], each),
        values=np.repeat(np.arange(n // each, dtype=float)[:, None], each, axis=0),
        each=each,
        starts=starts,
        returns=np.array(returns, float),
        lengths=np.full(n, 7),
        success=None if success is None else np.array(success, bool),
    )
    kept = {"agent": agent, "env_id": "e", "constants": {}, "steps": 7, "seed": 0, "told": False, "properties": ("m",)}
    return Evaluation(**(kept | {"groups": {"g": own}} | changes))


def test_intervals_are_students_over_systems():
    returns = np.random.default_rng(0).normal(size=12)
    (row,) = made(returns).by_group()
    expected = stats.ttest_1samp(returns, 0.0).confidence_interval(0.95)
    assert row["return"] == pytest.approx(returns.mean())
    assert (row["return_low"], row["return_high"]) == pytest.approx((expected.low, expected.high))
    (clustered,) = made(returns, each=3, level=0.8).by_group()
    expected = stats.ttest_1samp(returns.reshape(4, 3).mean(1), 0.0).confidence_interval(0.8)
    assert clustered["systems"] == 4
    assert (clustered["return_low"], clustered["return_high"]) == pytest.approx((expected.low, expected.high))


def test_rows_of_systems_are_over_their_own_episodes():
    returns = np.random.default_rng(1).normal(size=12)
    for i, row in enumerate(made(returns, np.arange(12) % 2 == 0, each=4).by_system()):
        own = returns[4 * i : 4 * i + 4]
        expected = stats.ttest_1samp(own, 0.0).confidence_interval(0.95)
        assert row["system"] == f"system-{i}"
        assert row["values"] == {"m": float(i)}
        assert (row["return_low"], row["return_high"]) == pytest.approx((expected.low, expected.high))
        assert row["success"] == 0.5


@given(st.integers(1, 60), st.floats(0, 1), st.sampled_from([0.8, 0.95, 0.99]))
@settings(max_examples=60, deadline=None)
def test_wilsons_interval(n, share, level):
    k = round(share * n)
    expected = stats.binomtest(k, n).proportion_ci(level, method="wilson")
    assert wilson(k / n, n, level) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_contrasts_are_paired():
    rng = np.random.default_rng(2)
    hard = rng.normal(scale=100.0, size=20)  # what the two share
    one, two = made(hard + 3.0 + rng.normal(size=20), agent="one"), made(hard + rng.normal(size=20), agent="two")
    (row,) = one.contrast(two)
    expected = stats.ttest_rel(one.groups["g"].returns, two.groups["g"].returns).confidence_interval(0.95)
    assert (row["return_low"], row["return_high"]) == pytest.approx((expected.low, expected.high))
    assert row["verdict"] == "higher"
    assert two.contrast(one)[0]["verdict"] == "lower"
    assert row["success"] is None
    noise = made(hard + rng.normal(size=20))
    assert noise.contrast(two)[0]["verdict"] == "not resolved"
    assert made([1.0]).contrast(made([0.0]))[0]["verdict"] == "not resolved"  # one system: no interval


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (made([0.0, 1.0], agent="b", starts="t"), "b met other systems or starts in g than a; legal: the same seed"),
        (made([0.0, 1.0], agent="b", env_id="f"), "b was evaluated with env_id 'f'; legal: 'e', as a"),
        (made([0.0, 1.0], agent="b", groups={}), "b was evaluated in ; legal: g, as a"),
        (Published({}), r"other is Published\(.*; legal: Evaluation"),
    ],
)
def test_contrasts_of_other_episodes_are_refused(other, message):
    with pytest.raises(ValueError, match=message):
        made([0.0, 1.0]).contrast(other)


def test_files_hold_everything_but_courses(tmp_path):
    paper = Published({"ID": {"return": -3.0, "sd": 1.0}}, "from a paper")
    found = evaluate_agent(
        RandomAgent(), ENV_ID, groups=["ID", "OOD_c0"], episodes=4, systems=2, record=True,
        references={"random": RandomAgent(seed=1), "paper": paper},
    )  # fmt: skip
    path = tmp_path / "found.json"
    found.to_json(path)
    again = Evaluation.from_json(path)
    assert again.rows() == found.rows() == json.loads(path.read_text())["rows"]
    assert again.references["paper"] == paper
    assert again.contrast(found.references["random"]) == found.contrast(found.references["random"])  # type: ignore[arg-type]
    for name in ("agent", "env_id", "constants", "steps", "seed", "told", "properties", "level"):
        assert getattr(again, name) == getattr(found, name)
    assert again.groups["ID"].states is None
    again.to_json(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "has schema 'sprii evaluation', version 2; legal: 'sprii evaluation', 1"),
        ({"schema": "other"}, "has schema 'other'"),
        ({"groups": {"ID": {}}}, "is damaged: KeyError"),
        ({"level": 3}, "is damaged: ValueError: level is 3"),
        ({"properties": ["mass"]}, "is damaged"),
    ],
)
def test_files_of_something_else_are_refused(change, message, tmp_path):
    path = tmp_path / "found.json"
    evaluate_agent(RandomAgent(), ENV_ID, groups=["ID"], episodes=2).to_json(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(FileError, match=message):
        Evaluation.from_json(path)


def test_the_table_has_references_beside(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    paper = Published({"ID": {"return": -3.0, "sd": 1.5, "success": 0.5}}, "from a paper")
    found = evaluate_agent(RandomAgent(), ENV_ID, groups=["ID", "OOD_c0"], name="mine", references={"paper": paper})
    found.show(by_system=True)
    printed = capsys.readouterr().out
    row = found.by_group()[0]
    assert f"{row['return']:.1f}" in printed
    assert f"[{row['return_low']:.1f}, {row['return_high']:.1f}]" in printed
    assert printed.count("mine") == 2
    assert printed.count("SD 1.5") == 1
    assert "50.0 %" in printed
    assert "from a paper" in printed
    assert "told" not in printed
    assert sum(f"{each['return']:.1f}" in printed for each in found.by_system()) == len(found.by_system())
