"""Window cases: where recipients and donors lie, and what a case holds, one at a time."""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from tiny_worlds import D_CLEAN_SMALL

from sprii_envs.banks import Bank, build
from sprii_envs.relations import EpisodeTable
from sprii_train.cases.base import Drawn
from sprii_train.cases.windows import SEED, draw_windows, window_cases
from sprii_train.experiments.sources import Source
from sprii_train.settings import POKE

HORIZONS = (1, 4, 16)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> EpisodeTable:
    return build(D_CLEAN_SMALL, tmp_path_factory.mktemp("windows") / "bank").split("train")


def test_recipients_are_distinct_and_spread_evenly_over_the_episodes(table: EpisodeTable):
    """64 observations, histories of 24 and 32 steps after them leave 9 presents: 23 … 31."""
    drawn = draw_windows(table, 24, 32, 16, 32, seed=0)
    assert {len(field) for field in drawn} == {16 * 32}
    assert np.unique(drawn.episodes, return_counts=True)[1].tolist() == [8] * len(table)
    assert len(set(zip(drawn.episodes.tolist(), drawn.anchors.tolist(), strict=True))) == len(drawn.anchors)
    assert set(drawn.anchors.tolist()) == set(range(23, 32))
    counts = np.bincount(drawn.anchors)[23:]
    assert chisquare(counts).pvalue > 1e-3


def test_donors_are_uniform_windows_of_another_episode_of_the_system(table: EpisodeTable):
    drawn = draw_windows(table, 24, 32, 16, 32, seed=1)
    system = dict(zip(table["episode"].tolist(), table["system"].tolist(), strict=True))
    assert (drawn.donors != drawn.episodes).all()
    assert [system[e] for e in drawn.donors.tolist()] == [system[e] for e in drawn.episodes.tolist()]
    assert set(drawn.starts.tolist()) == set(range(25))  # 64 − 24 − 16 + 1
    assert chisquare(np.bincount(drawn.starts)).pvalue > 1e-3
    rollout = dict(zip(table["episode"].tolist(), table["rollout"].tolist(), strict=True))
    step = np.array([(rollout[d] - rollout[e]) % 4 for e, d in zip(drawn.episodes, drawn.donors, strict=True)])
    assert chisquare(np.bincount(step)[1:]).pvalue > 1e-3


def test_windows_are_a_function_of_the_seed(table: EpisodeTable):
    first, again, other = (draw_windows(table, 24, 16, 16, 16, seed=s) for s in (5, 5, 6))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(np.array_equal(a, b) for a, b in zip(first[1:], other[1:], strict=True))


def test_short_episodes_keep_to_their_own_room(table: EpisodeTable):
    length = np.where(table["rollout"] == 0, 42, 64)
    columns = {name: table[name] for name in ("episode", "system", "rollout")} | {"length": length}
    drawn = draw_windows(EpisodeTable(columns), 24, 16, 16, 8, seed=0)
    room = dict(zip(table["episode"].tolist(), length.tolist(), strict=True))
    assert all(anchor + 16 < room[e] for e, anchor in zip(drawn.episodes.tolist(), drawn.anchors.tolist(), strict=True))
    assert all(start + 40 <= room[e] for e, start in zip(drawn.donors.tolist(), drawn.starts.tolist(), strict=True))


def test_cases_that_do_not_fit_are_refused(table: EpisodeTable):
    with pytest.raises(ValueError, match="30 cases a system must be spread evenly over its episodes"):
        draw_windows(table, 24, 16, 16, 30, seed=0)
    with pytest.raises(ValueError, match="64 observations has no room for 10 histories of 24 with 32 steps"):
        draw_windows(table, 24, 32, 16, 40, seed=0)
    uneven = table.select(np.arange(1, len(table)))
    with pytest.raises(ValueError, match="3 to 4"):
        draw_windows(uneven, 24, 16, 16, 12, seed=0)


def test_each_donor_window_once():
    drawn = Drawn(np.zeros(4, np.int64), np.arange(4), np.array([3, 2, 3, 3]), np.array([7, 7, 7, 8]))
    rows = drawn.distinct_donors()
    assert sorted((int(drawn.donors[i]), int(drawn.starts[i])) for i in rows) == [(2, 7), (3, 7), (3, 8)]


def test_a_case_by_hand(poke_source: Source, poke_bank: Bank):
    cases, learner = window_cases(poke_source, HORIZONS, 8), poke_source.learner
    reader = POKE.reader(poke_bank, learner.config)
    assert len(cases.train) == 32 * 8
    assert len(cases.development) == 12 * 8
    train, drawn = draw_windows(poke_bank.split("train"), 24, 16, 16, 8, seed=SEED), cases.drawn["validation"]
    assert np.array_equal(train.anchors, cases.drawn["train"].anchors)
    state = poke_bank["states"]
    increments = np.array(
        [[state[e, a + h] - state[e, a] for h in HORIZONS] for e, a in zip(train.episodes, train.anchors, strict=True)]
    )
    scale = increments.astype(np.float64).reshape(-1, 8).std(0)
    np.testing.assert_allclose(cases.standardiser.scale, scale, rtol=1e-4)
    case = cases.development
    for i in (0, 41, 95):
        episode, anchor = int(drawn.episodes[i]), int(drawn.anchors[i])
        assert case.systems[i] == poke_bank.table["system"][episode]
        assert case.factors["stiffness"][i] == poke_bank.table["stiffness"][episode]
        np.testing.assert_array_equal(case.actions[i], poke_bank["actions"][episode, anchor : anchor + 16])
        raw = state[episode, anchor + np.array(HORIZONS)].astype(np.float64) - state[episode, anchor]
        np.testing.assert_allclose(
            case.targets[i], (raw - cases.standardiser.mean) / cases.standardiser.scale, rtol=1e-6, atol=1e-9
        )
        with torch.no_grad():
            donor = learner.prepare(reader.histories(drawn.donors[i : i + 1], drawn.starts[i : i + 1]))
            # The present of a history that ends at the anchor is what the recipient shows.
            own = learner.prepare(reader.histories(np.array([episode]), np.array([anchor - 23])))
            context, query = learner.encode_history(donor.history)[0], learner.encode_current(own.current)[0]
        np.testing.assert_allclose(case.context[i], context, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(case.query[i], query, rtol=1e-4, atol=1e-5)
        assert np.abs(case.context[i] - case.context[(i + 30) % 96]).max() > 1e-3


def test_cases_are_common_to_sources_and_recipes(poke_source: Source, tmp_path: Path):
    first = window_cases(poke_source, HORIZONS, 8)
    other = window_cases(poke_source, HORIZONS, 8)
    for split in ("train", "validation"):
        assert all(np.array_equal(a, b) for a, b in zip(first.drawn[split], other.drawn[split], strict=True))
    assert [len(cases) for cases, _ in first.populations] == [32 * 8, 12 * 8]
