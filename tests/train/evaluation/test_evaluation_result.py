"""Rows, intervals and contrasts against scipy's; files."""

import dataclasses
import hashlib
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
@settings(max_examples=30, deadline=None)
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
        ({"version": 1}, "has schema 'sprii evaluation', version 1; legal: 'sprii evaluation', 2"),
        ({"agent": "other"}, "is damaged: its checksum is another; evaluate anew"),
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


def spoil(*where):
    *path, last, value = where

    def edit(kept):
        for name in path:
            kept = kept[name]
        kept[last] = value

    return edit


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (spoil("rows", 0, "return", 0.0), "its rows are not those of its episodes"),
        (spoil("groups", "ID", "returns", 0, 0.0), "its rows are not those of its episodes"),
        (spoil("groups", "ID", "returns", 0, float("nan")), "not finite|not JSON"),
        (spoil("groups", "ID", "lengths", 0, 300), r"lengths\[0\] of ID is 300; legal: an integer >= 1, at most 200"),
        (spoil("groups", "ID", "success", 1, 2), r"success\[1\] of ID is 2; legal: True, False"),
        (spoil("groups", "ID", "each", 1), "its rows are not those"),
        (spoil("groups", "ID", "each", 4), "systems of ID do not have 4 episodes in a row each"),
        (spoil("groups", "ID", "starts", "x"), "starts of ID is 'x'; legal: SHA-256"),
        (spoil("references", "other", "groups", "ID", "starts", "0" * 64), "other met other systems or starts in ID"),
        (spoil("references", "other", "constants", "gravity", 1.0), "the constants gravity=1.0; legal: gravity=10.0"),
        (spoil("references", "paper", "rows", "ID", "success", 97), r"rows\['ID'\]\['success'\] is 97"),
    ],
)
def test_edited_files_are_refused_even_with_a_new_checksum(edit, message, tmp_path):
    path = tmp_path / "found.json"
    evaluate_agent(
        RandomAgent(), ENV_ID, groups=["ID"], episodes=4, systems=2,
        references={"other": RandomAgent(seed=1), "paper": Published({"ID": {"return": 0.0, "success": 0.5}})},
    ).to_json(path)  # fmt: skip
    kept = json.loads(path.read_text())
    del kept["schema"], kept["version"], kept["sha256"]
    edit(kept)
    digest = hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps({"schema": "sprii evaluation", "version": 2, "sha256": digest} | kept))
    with pytest.raises(FileError, match=message):
        Evaluation.from_json(path)


def test_success_by_other_criteria_is_not_compared(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "200")

    def up(states):
        return states[:, -1, 1] > 0

    def down(states):
        return states[:, -1, 1] <= 0

    world, one, same, other = (
        evaluate_agent(RandomAgent(), ENV_ID, groups=["ID"], success=rule, name=name)
        for rule, name in ((None, "w"), (up, "a"), (up, "b"), (down, "c"))
    )
    assert world.criterion == "world"
    assert one.criterion is not None
    assert "<locals>.up " in one.criterion
    assert one.contrast(same)[0]["success"] == 0.0
    assert one.contrast(other)[0]["success"] is one.contrast(world)[0]["success"] is None
    assert one.criterion.split()[-1] != other.criterion.split()[-1]  # type: ignore[union-attr]
    beside = dataclasses.replace(one, references={"w": world, "b": same})
    beside.show()
    printed = capsys.readouterr().out
    assert f"success of w is by world, of a by {one.criterion}: not comparable" in printed
    assert "success of b" not in printed
    beside.to_json(tmp_path / "kept.json")
    assert Evaluation.from_json(tmp_path / "kept.json").criterion == one.criterion


def test_contrasts_name_the_constants_that_differ_and_leave_observations_to_the_agents():
    one = made([0.0, 1.0], constants={"gravity": 9.0, "dt": 1.0, "obs_type": "state"})
    assert one.contrast(dataclasses.replace(one, constants=one.constants | {"obs_type": "pixels"}))
    with pytest.raises(ValueError, match=r"b was evaluated with the constants gravity=1.0; legal: gravity=9.0, as a"):
        one.contrast(dataclasses.replace(one, agent="b", constants=one.constants | {"gravity": 1.0}))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"ID": {"retrun": 0.0}}, "unknown number of rows.* 'retrun'; did you mean 'return'"),
        ({"ID": {"success": 0.5}}, 'legal: with "return"'),
        ({"ID": {"return": 0.0, "success": 97}}, "'success'.* is 97; legal: a number"),
        ({"ID": {"return": float("nan")}}, "'return'.* is nan"),
        ({"ID": {"return": 0.0, "sd": -1.0}}, "'sd'.* is -1.0"),
        ({"ID": 3.0}, "is 3.0; legal: Mapping"),
    ],
)
def test_published_numbers_are_checked(rows, message):
    with pytest.raises(ValueError, match=message):
        Published(rows)


def test_the_table_says_where_systems_were_drawn_again(capsys):
    found = evaluate_agent(RandomAgent(), ENV_ID, groups=["OOD_c3"], name="mine [x]")
    found.show()
    printed = capsys.readouterr().out
    different = len({tuple(row) for row in found.groups["OOD_c3"].values.tolist()})
    assert different <= 4
    assert f"OOD_c3: {different} different systems in 10 draws" in printed
    assert "mine [x]" in printed


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
