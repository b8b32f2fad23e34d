"""Queries of SpringWorld: which they are, whose donors they get, what they show and what is to be predicted."""

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from test_encoding import code_alone
from tiny_worlds import IMAGE

from sprii_envs.banks import SPRING, Bank
from sprii_train.analysis.populations import Development, Training
from sprii_train.cases.base import SourceCases
from sprii_train.cases.queries import donors_of
from sprii_train.experiments.sources import Source
from sprii_train.settings.spring import SPRING_CASES

KINDS = {"cold": 6, "moving": 3, "forced": 4, "mass": 2, "free": 2, "glide": 1}


@pytest.fixture(scope="module")
def cases(spring_source: Source) -> SourceCases:
    return SPRING_CASES(spring_source)


def queries(bank: Bank, split: str):
    table = bank.split(split)
    return table.select(table["kind"] != "static")


def test_the_full_mixture_and_the_cold_panel(cases: SourceCases, spring_bank: Bank):
    """18 queries × 5 horizons a held-out system; with the paper's 178 systems these are its 16,020 and 600 cases."""
    development = cases.development
    assert development.horizons == cases.train.horizons == (1, 2, 4, 8, 16)
    assert isinstance(development.population, Development)
    assert isinstance(cases.train.population, Training)
    assert set(KINDS) == set(SPRING_CASES.anchors)
    systems, counts = np.unique(development.systems, return_counts=True)
    assert (len(systems), set(counts)) == (10, {18})
    for kind, count in KINDS.items():
        of_kind = development.of_kind(kind)
        assert (np.unique(of_kind.systems, return_counts=True)[1] == count).all()
        assert SPRING.rollouts["validation"][kind] == count  # type: ignore[index]
    assert len(cases.train) == 16 * (4 + 1 + 1 + 1 + 3 + 1)
    cold = development.take(cases.panels["cold"])
    assert len(cold) == 5 * 6
    assert set(cold.strata) == {"continuous", "combination"}  # type: ignore[arg-type]
    assert set(cold.kinds) == {"cold"}  # type: ignore[arg-type]
    assert 18 * 5 * SPRING.counts["validation"] == 16_020
    assert 6 * (64 + 36) == 600
    table = queries(spring_bank, "validation")
    assert (development.strata == table["group"]).all()
    for name in ("mass", "drag", "stiffness"):
        assert (development.factors[name] == table[name]).all()


def test_targets_are_increments_in_units_of_the_training_sd(cases: SourceCases, spring_bank: Bank):
    def increments(split: str) -> np.ndarray:
        found, states = [], spring_bank["states"].astype(np.float64)
        for episode, kind in zip(*(queries(spring_bank, split)[c] for c in ("episode", "kind")), strict=True):
            now = {"cold": 1, "moving": 95}.get(kind, 79)
            found.append([states[episode, now + h] - states[episode, now] for h in (1, 2, 4, 8, 16)])
        return np.array(found)

    train = increments("train")
    mean, sd = train.reshape(-1, 8).mean(0), train.reshape(-1, 8).std(0)
    np.testing.assert_allclose(cases.train.targets, (train - mean) / sd, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(cases.development.targets, (increments("validation") - mean) / sd, rtol=1e-9, atol=1e-9)


def test_actions_follow_the_anchor(cases: SourceCases, spring_bank: Bank):
    table = queries(spring_bank, "validation")
    for row in (0, 5, 100, 179):
        now = SPRING_CASES.anchors[table["kind"][row]]
        wanted = spring_bank["actions"][table["episode"][row], now : now + 16]
        assert (cases.development.actions[row] == wanted).all()
    pulses = np.linalg.norm(cases.development.of_kind("cold").actions[:, 0], axis=-1)
    assert np.unique(pulses.round(5)).tolist() == [0.0, 0.25, 0.5]


def test_a_query_shows_one_frame_and_no_motion(cases: SourceCases, spring_source: Source, spring_bank: Bank):
    """Its feature is that of the anchor's frame after itself; what came before does not matter."""
    learner, table = spring_source.learner, queries(spring_bank, "validation")
    states = spring_bank["states"].astype(np.float64)
    for row in (0, 7, 90, 179):
        episode, now = table["episode"][row], SPRING_CASES.anchors[table["kind"][row]]
        frame = spring_bank.world.draw(states[episode, now][None], IMAGE)[0]
        twice = torch.from_numpy(np.stack([frame, frame]))[None]
        with torch.no_grad():
            embedded = learner.embed(twice, twice.new_empty(1, 0, 2, IMAGE, IMAGE))[:, 0]
            wanted = learner.encode_current(embedded)[0].double().numpy()
        np.testing.assert_allclose(cases.development.query[row], wanted, atol=1e-5)
        np.testing.assert_allclose(SPRING_CASES.features(learner, frame[None])[0], wanted, atol=1e-5)
    moving = spring_bank.frames(table["episode"], [SPRING_CASES.anchors[k] - 1 for k in table["kind"]], 2, IMAGE)
    assert (moving[:, 0] != moving[:, 1]).any()  # the frames before the anchors do differ


def test_contexts_are_of_another_whole_forced_episode_of_the_system(
    cases: SourceCases, spring_source: Source, spring_bank: Bank
):
    table = queries(spring_bank, "validation")
    forced = table.select(table["kind"] == "forced")
    codes = np.stack([code_alone(spring_source.learner, spring_bank, e, 0) for e in forced["episode"]])
    distance = np.abs(cases.development.context[:, None] - codes).max(-1)  # type: ignore[index]
    donor = distance.argmin(1)
    assert distance.min(1).max() < 1e-5
    assert np.median(np.sort(distance, axis=1)[:, 1]) > 1e-4  # codes tell episodes apart
    assert (forced["system"][donor] == table["system"]).all()
    assert (forced["episode"][donor] != table["episode"]).all()


def test_donors_are_uniform_and_never_the_query_itself(spring_bank: Bank):
    table = queries(spring_bank, "validation")
    forced = table.select(table["kind"] == "forced")
    among, others = np.zeros((4, 4), int), np.zeros((6, 4), int)
    for seed in range(60):
        chosen = forced["rollout"][donors_of(table, forced, seed)]
        rows = donors_of(table, forced, seed)
        assert (forced["system"][rows] == table["system"]).all()
        assert (forced["episode"][rows] != table["episode"]).all()
        first = chosen.min()
        itself = table["kind"] == "forced"
        np.add.at(among, (table["rollout"][itself] - first, chosen[itself] - first), 1)
        cold = table["kind"] == "cold"
        np.add.at(others, (table["rollout"][cold] - table["rollout"][cold].min(), chosen[cold] - first), 1)
    assert (np.diag(among) == 0).all()
    assert chisquare(among[~np.eye(4, dtype=bool)]).pvalue > 1e-3  # 50 each of 12
    assert chisquare(others.ravel()).pvalue > 1e-3  # 25 × 6 each of 24
    assert (donors_of(table, forced, 3) == donors_of(table, forced, 3)).all()
    assert (donors_of(table, forced, 3) != donors_of(table, forced, 4)).any()


def test_a_query_without_another_episode_has_no_donor(spring_bank: Bank):
    table = queries(spring_bank, "validation")
    forced = table.select(table["kind"] == "forced")
    one_each = forced.select(forced["rollout"] == forced["rollout"].min())
    donors_of(table.select(table["kind"] == "cold"), one_each, 0)
    with pytest.raises(ValueError, match="needs a donor of its system in another episode"):
        donors_of(forced, one_each, 0)
    with pytest.raises(ValueError, match="needs a donor of its system"):
        donors_of(table, forced.select(forced["system"] != forced["system"].max()), 0)


def test_prefixes_end_at_the_present_and_show_one_frame_after_another(spring_source: Source, spring_bank: Bank):
    train, moving = SPRING_CASES.prefixes(spring_source, 8)
    table = queries(spring_bank, "validation")
    rows = np.flatnonzero((table["kind"] == "moving") & np.isin(table["group"], ["continuous", "combination"]))
    assert moving.systems.tolist() == table["system"][rows].tolist()
    assert moving.query.shape[:2] == (len(rows), 9) == (5 * 3, 9)
    assert set(moving.kinds.tolist()) == {"moving"}  # type: ignore[union-attr]
    assert set(train.kinds.tolist()) == set(KINDS) - {"cold"}  # type: ignore[union-attr]
    states = spring_bank["states"].astype(np.float64)
    for i, row in enumerate(rows[:2]):
        episode = table["episode"][row]
        frames = spring_bank.world.draw(states[episode, 87:96], IMAGE)
        np.testing.assert_allclose(moving.query[i], SPRING_CASES.features(spring_source.learner, frames), atol=1e-5)
    whole = SPRING_CASES(spring_source).development.of_kind("moving")
    shared = np.isin(whole.systems, moving.systems)
    np.testing.assert_allclose(moving.query[:, -1], whole.query[shared], atol=1e-5)  # r = 0 is the usual query
    flat = train.targets.reshape(-1, 8)
    np.testing.assert_allclose(flat.mean(0), 0.0, atol=1e-9)
    np.testing.assert_allclose(flat.std(0), 1.0, rtol=1e-9)
