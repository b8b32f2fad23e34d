"""Queries of SpringWorld: which they are, whose donors they get, what they show and what is to be predicted."""

from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from test_encoding import code_alone
from tiny_worlds import IMAGE

from sprii_envs.banks import PROTOCOLS, SPRING, Bank, build
from sprii_train.analysis.populations import Development, Training
from sprii_train.analysis.value import other_system_rows
from sprii_train.cases.base import SourceCases
from sprii_train.cases.queries import donors_of
from sprii_train.cli.bank import Info
from sprii_train.experiments.sources import Source
from sprii_train.settings import SPRING as SETTING
from sprii_train.settings.spring import SPRING_CASES

KINDS = {"cold": 6, "moving": 3}
NOW = {"cold": 1, "moving": 95}


@pytest.fixture(scope="module")
def cases(spring_source: Source) -> SourceCases:
    return SPRING_CASES(spring_source)


def queries(bank: Bank, split: str):
    table = bank.split(split)
    return table.select(np.isin(table["kind"], list(KINDS)))


def test_the_full_mixture_and_the_cold_panel(cases: SourceCases, spring_bank: Bank):
    """9 queries × 2 numbers of transitions × 5 horizons a held-out system; of 178 systems 16,020 cases."""
    development = cases.development
    assert development.horizons == cases.train.horizons == (1, 2, 4, 8, 16)
    assert isinstance(development.population, Development)
    assert isinstance(cases.train.population, Training)
    assert SPRING_CASES.anchors == NOW
    systems, counts = np.unique(development.systems, return_counts=True)
    assert (len(systems), set(counts)) == (10, {18})
    for kind, count in KINDS.items():
        of_kind = development.of_kind(kind)
        assert (np.unique(of_kind.systems, return_counts=True)[1] == 2 * count).all()
        assert SPRING.rollouts["validation"][kind] == count  # type: ignore[index]
    assert len(cases.train) == 2 * 16 * (3 + 1)
    cold = development.take(cases.panels["cold"])
    assert len(cold) == 5 * 6
    assert set(cold.strata) == {"continuous", "combination"}  # type: ignore[arg-type]
    assert set(cold.kinds) == {"cold"}  # type: ignore[arg-type]
    for kind, count in KINDS.items():  # of q = 0 alone
        assert (cases.panels[f"{kind}_kind"].sum(), cases.panels[f"{kind}_kind"][90:].any()) == (10 * count, False)
    assert 9 * 2 * 5 * SPRING.counts["validation"] == 16_020
    assert 6 * (64 + 36) == 600
    table = queries(spring_bank, "validation")
    assert (development.strata == np.tile(table["group"], 2)).all()
    for name in ("mass", "drag", "stiffness"):
        assert (development.factors[name] == np.tile(table[name], 2)).all()


@pytest.mark.parametrize("split", ["train", "development"])
def test_systems_kinds_episodes_and_transitions_weigh_the_same(cases: SourceCases, split: str):
    """A uniform draw of a system, a kind, an episode and q, written out."""
    of = getattr(cases, split)
    shares = of.weights / of.weights.sum()
    systems = np.unique(of.systems)
    for system in systems:
        for kind in KINDS:
            rows = (of.systems == system) & (of.kinds == kind)
            np.testing.assert_allclose(shares[rows], 1 / (len(systems) * 2 * rows.sum()))
    first = np.arange(len(of)) < len(of) // 2
    assert shares[first].sum() == pytest.approx(0.5)


def test_targets_are_increments_in_units_of_the_training_sd_of_each_horizon(cases: SourceCases, spring_bank: Bank):
    def increments(split: str) -> np.ndarray:
        found, states = [], spring_bank["states"].astype(np.float64)
        for episode, kind in zip(*(queries(spring_bank, split)[c] for c in ("episode", "kind")), strict=True):
            found.append([states[episode, NOW[kind] + h] - states[episode, NOW[kind]] for h in (1, 2, 4, 8, 16)])
        return np.array(found)

    train, held_out = increments("train"), increments("validation")
    mean, sd = train.mean(0), train.std(0)
    assert (sd > [1e-5] * 4 + [1e-4] * 4).all()  # no floor is reached where anything moves
    for of, wanted in ((cases.train, train), (cases.development, held_out)):
        np.testing.assert_allclose(of.targets, np.tile((wanted - mean) / sd, (2, 1, 1)), rtol=1e-9, atol=1e-9)


def test_actions_follow_the_anchor(cases: SourceCases, spring_bank: Bank):
    table = queries(spring_bank, "validation")
    for row in (0, 5, 60, 89):
        now = NOW[table["kind"][row]]
        wanted = spring_bank["actions"][table["episode"][row], now : now + 16]
        assert (cases.development.actions[[row, row + 90]] == wanted).all()
    cold = cases.development.of_kind("cold").actions
    assert np.unique(cold[..., 0]).tolist() == [0.0, 0.25, 0.5]  # along the world's x for all sixteen steps
    assert not cold[..., 1].any()
    np.testing.assert_allclose(np.linalg.norm(cases.development.of_kind("moving").actions, axis=-1), 0.5, rtol=1e-6)


def test_a_query_shows_one_frame_or_two(cases: SourceCases, spring_source: Source, spring_bank: Bank):
    """q = 0: the embedding of the anchor's frame after itself; q = 1: of that frame after the one before it."""
    learner, table = spring_source.learner, queries(spring_bank, "validation")
    states = spring_bank["states"].astype(np.float64)

    def embedded(before: np.ndarray, frame: np.ndarray) -> np.ndarray:
        twice = torch.from_numpy(np.stack([before, frame]))[None]
        with torch.no_grad():
            return learner.embed(twice, twice.new_empty(1, 0, 2, IMAGE, IMAGE))[0, 0].double().numpy()

    for row in (0, 7, 60, 89):
        episode, now = table["episode"][row], NOW[table["kind"][row]]
        before, frame = spring_bank.world.draw(states[episode, [now - 1, now]], IMAGE)
        np.testing.assert_allclose(cases.development.query[row], embedded(frame, frame), atol=1e-5)
        np.testing.assert_allclose(cases.development.query[row + 90], embedded(before, frame), atol=1e-5)
        np.testing.assert_allclose(
            SPRING_CASES.features(learner, frame[None])[0], cases.development.query[row], atol=1e-5
        )
    cold, shows = table["kind"] == "cold", cases.development.query[:90] != cases.development.query[90:]
    assert not shows[cold].any()  # a cold recipient is at rest
    assert shows[~cold].any()


def test_contexts_are_first_windows_of_forced_episodes_of_the_system(
    cases: SourceCases, spring_source: Source, spring_bank: Bank
):
    table = queries(spring_bank, "validation")
    forced = spring_bank.split("validation").select(spring_bank.split("validation")["kind"] == "forced")
    codes = np.stack([code_alone(spring_source.learner, spring_bank, e, 0) for e in forced["episode"]])
    distance = np.abs(cases.development.context[:, None] - codes).max(-1)  # type: ignore[index]
    donor = distance.argmin(1)
    assert distance.min(1).max() < 1e-5
    assert np.median(np.sort(distance, axis=1)[:, 1]) > 1e-4  # codes tell episodes apart
    assert (forced["system"][donor] == np.tile(table["system"], 2)).all()
    assert (donor[:90] == donor[90:]).all()  # whatever shows of the recipient
    assert (forced["episode"][donor] == np.tile(cases.drawn["validation"].donors[:90], 2)).all()


def test_the_pool_holds_every_donor_of_a_system_in_order(cases: SourceCases, spring_source: Source, spring_bank: Bank):
    pool, forced = cases.train.pool, SETTING.episodes(spring_bank, "train")
    assert pool is not None
    assert pool.codes.shape[:2] == (16, 4)
    table = queries(spring_bank, "train")
    assert (np.unique(forced["system"])[pool.of] == np.tile(table["system"], 2)).all()
    for system in (0, 9):
        episodes = np.sort(forced["episode"][forced["system"] == np.unique(forced["system"])[system]])
        alone = np.stack([code_alone(spring_source.learner, spring_bank, e, 0) for e in episodes])
        np.testing.assert_allclose(pool.codes[system], alone, atol=1e-5)


def test_wrong_donors_are_those_of_another_system_of_the_stratum_with_the_same_rank(
    cases: SourceCases, spring_bank: Bank
):
    rows = other_system_rows(cases.development.systems, 3, cases.development.strata)
    drawn, forced = cases.drawn["validation"], SETTING.episodes(spring_bank, "validation")
    ranks = {e: r for s in np.unique(forced["system"]) for r, e in enumerate(forced["episode"][forced["system"] == s])}
    rank = np.array([ranks[e] for e in drawn.donors])
    assert (rank[rows] == rank).all()
    assert (cases.development.strata[rows] == cases.development.strata).all()  # type: ignore[index]
    assert (cases.development.kinds[rows] == cases.development.kinds).all()  # type: ignore[index]
    assert (cases.development.systems[rows] != cases.development.systems).all()


def test_ranks_are_uniform_and_shared_by_the_systems_of_a_group(spring_bank: Bank):
    table, forced = queries(spring_bank, "validation"), SETTING.episodes(spring_bank, "validation")
    first, found = forced["rollout"].min(), []
    for seed in range(60):
        rows = donors_of(table, forced, seed)
        assert (forced["system"][rows] == table["system"]).all()
        rank = forced["rollout"][rows] - first
        alike = {}
        for key in zip(table["group"], table["kind"], table["rollout"], rank, strict=True):
            assert alike.setdefault(key[:3], key[3]) == key[3]
        found += alike.values()
    assert chisquare(np.bincount(found, minlength=4)).pvalue > 1e-3
    assert (donors_of(table, forced, 3) == donors_of(table, forced, 3)).all()
    assert (donors_of(table, forced, 3) != donors_of(table, forced, 4)).any()


def test_queries_without_donors_are_refused(spring_bank: Bank):
    table, forced = queries(spring_bank, "validation"), SETTING.episodes(spring_bank, "validation")
    with pytest.raises(ValueError, match="needs a donor of its system"):
        donors_of(table, forced.select(forced["system"] != forced["system"].max()), 0)
    with pytest.raises(ValueError, match="all systems equally many"):
        donors_of(table, forced.select(np.arange(len(forced)) > 0), 0)
    with pytest.raises(ValueError, match="a query is a donor itself"):
        donors_of(forced, forced, 0)
    with pytest.raises(ValueError, match=r"transitions are \(0, 2\); legal: 0, 1 or both"):
        replace(SPRING_CASES, transitions=(0, 2))


def test_prefixes_end_at_the_present_and_show_one_frame_after_another(spring_source: Source, spring_bank: Bank):
    train, moving = SPRING_CASES.prefixes(spring_source, 8)
    table = queries(spring_bank, "validation")
    rows = np.flatnonzero((table["kind"] == "moving") & np.isin(table["group"], ["continuous", "combination"]))
    assert moving.systems.tolist() == table["system"][rows].tolist()
    assert moving.query.shape[:2] == (len(rows), 9) == (5 * 3, 9)
    assert set(moving.kinds.tolist()) == set(train.kinds.tolist()) == {"moving"}  # type: ignore[union-attr]
    states = spring_bank["states"].astype(np.float64)
    for i, row in enumerate(rows[:2]):
        episode = table["episode"][row]
        frames = spring_bank.world.draw(states[episode, 87:96], IMAGE)
        np.testing.assert_allclose(moving.query[i], SPRING_CASES.features(spring_source.learner, frames), atol=1e-5)
    whole = SPRING_CASES(spring_source).development
    usual = whole.take((whole.kinds == "moving") & np.isin(whole.systems, moving.systems) & (np.arange(180) < 90))
    np.testing.assert_allclose(moving.query[:, -1], usual.query, atol=1e-5)  # r = 0 is the usual query
    np.testing.assert_allclose(train.targets.mean(0), 0.0, atol=1e-9)
    np.testing.assert_allclose(train.targets.std(0), 1.0, rtol=1e-9)


def test_what_unknown_physics_leaves_by_one_simulation_at_a_time(spring_bank: Bank):
    """The mean over training systems of an environment's own course, for every cold query of the panel."""
    found = SPRING_CASES.unexplained(spring_bank)
    table, train = queries(spring_bank, "validation"), queries(spring_bank, "train")
    states = spring_bank["states"].astype(np.float64)
    sd = np.array([[states[e, NOW[k] + h] - states[e, NOW[k]] for h in (1, 2, 4, 8, 16)]
                   for e, k in zip(train["episode"], train["kind"], strict=True)]).std(0)  # fmt: skip
    names = ("mass", "drag", "stiffness")
    systems = np.unique(np.stack([train[name] for name in names], axis=1), axis=0)
    env, errors = gym.make("sprii/SpringWorld-v0", obs_type="state"), []
    panel = (table["kind"] == "cold") & np.isin(table["group"], ["continuous", "combination"])
    for episode in table["episode"][panel]:
        courses = []
        for system in systems:
            start = states[episode, 1]
            env.reset(options={"system": dict(zip(names, system.tolist(), strict=True)), "state": start})
            course = []
            for t in range(1, 17):
                env.step(spring_bank["actions"][episode, t])
                course.append(env.unwrapped.state - start)  # type: ignore[attr-defined]
            courses.append([course[h - 1] for h in (1, 2, 4, 8, 16)])
        truth = np.array([states[episode, 1 + h] - states[episode, 1] for h in (1, 2, 4, 8, 16)])
        errors.append((((np.mean(courses, axis=0) - truth) / sd) ** 2).mean(1))
    np.testing.assert_allclose(found, np.mean(errors, axis=0), rtol=1e-3)


def test_bank_info_says_what_unknown_physics_leaves(
    spring_bank: Bank, poke_bank: Bank, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    Info(spring_bank.path).run()
    last = capsys.readouterr().out.splitlines()[-1]
    assert "unknown physics leaves of 30 cold queries of 5 systems, in training variances: h1 " in last
    assert last.endswith(f"h16 {SPRING_CASES.unexplained(spring_bank)[-1]:.3f}")
    counted = PROTOCOLS["spring"].replace(rollouts=1, systems={"train": 2, "validation": 1})  # systems without groups
    for bank in (poke_bank, build(counted, tmp_path / "bank")):
        Info(bank.path).run()
        assert "unknown physics" not in capsys.readouterr().out
