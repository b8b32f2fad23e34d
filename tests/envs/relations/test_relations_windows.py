import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from relation_tables import factorial, systems
from scipy import stats

from sprii_envs.relations import SAME_ROLLOUT, SAME_SYSTEM, EpisodeTable, PairSampler, WindowSampler
from sprii_envs.relations.sampler import PairBatch

HALF: Any = 24.5
ANY_NAME: Any = "SAME_ROLLOUT"


def test_pairs_of_another_table_are_refused():
    even = systems([2] * 6)
    table = EpisodeTable({name: even[name] for name in even.columns} | {"length": np.repeat([80, 50], 6)})
    half = table.select(np.arange(6, 12))
    pairs = PairSampler(half, SAME_SYSTEM).batch(0, 12)
    for other in (table, table.select(np.arange(6)), half.select(np.arange(6)[::-1])):
        with pytest.raises(ValueError, match=f"rows of another table than the windows' of {len(other)} episodes"):
            WindowSampler(other).batch(0, pairs)
    again = EpisodeTable({name: half[name] for name in half.columns})  # the same episodes, another object
    w = WindowSampler(again).batch(0, pickle.loads(pickle.dumps(pairs)))
    assert (w.recipient_start <= 10).all()
    assert (w.recipient_start == WindowSampler(half["length"]).batch(0, pairs).recipient_start).all()
    relabelled = EpisodeTable({name: half[name] for name in half.columns} | {"system": half["system"] + 1})
    for sampler in (WindowSampler(relabelled), WindowSampler(relabelled, 8)):
        with pytest.raises(ValueError, match=r"rows of another store's table: its episode \d+ has system"):
            sampler.batch(0, pairs)
        with pytest.raises(ValueError, match="another store's table"):
            sampler.starts(pairs.donor)
    recipient, donor, correct = pairs  # by hand, the rows are taken at their word
    WindowSampler(table).batch(0, PairBatch(half.rows[recipient], half.rows[donor], correct))


def self_pairs(rows):
    rows = np.asarray(rows)
    return PairBatch(rows, rows, np.ones(len(rows), bool))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(0, 40), min_size=2, max_size=12),
    st.integers(1, 12),
    st.integers(0, 8),
    st.integers(0, 99),
)
def test_windows_are_legal(extra, history, horizon, step):
    lengths = np.array(extra) + 2 * history + horizon
    sampler = WindowSampler(lengths, history, horizon)
    rng = np.random.default_rng(step)
    rows = rng.integers(0, len(lengths), 100)
    other = (rows + rng.integers(1, len(lengths), 100)) % len(lengths)
    pairs = PairBatch(rows, other, np.ones(100, bool))
    w = sampler.batch(step, pairs)
    for row, start in ((w.recipient, w.recipient_start), (w.donor, w.donor_start)):
        assert (start >= 0).all()
        assert (start + history - 1 + horizon <= lengths[row] - 1).all()
    w = sampler.batch(step, self_pairs(rows), SAME_ROLLOUT)
    assert (w.donor_start >= 0).all()
    assert (w.donor_start + history <= w.recipient_start).all()
    assert (w.recipient_start + history - 1 + horizon <= lengths[w.recipient] - 1).all()


def test_starts_are_uniform_and_sides_independent():
    # 25 × 25 cells of 160: χ² at α = 1e-3, fixed seed.
    sampler = WindowSampler(np.array([64, 64]), 24, 16, seed=1)
    rows = np.zeros(100_000, np.int64)
    w = sampler.batch(0, PairBatch(rows, rows + 1, rows == 0))
    counts = np.zeros((25, 25), int)
    np.add.at(counts, (w.recipient_start, w.donor_start), 1)
    assert stats.chisquare(counts.ravel()).pvalue > 1e-3


@pytest.mark.parametrize("length", [40, 41, 47])
def test_same_rollout_is_uniform_over_ordered_non_overlapping_pairs(length):
    # History 16, horizon 8: m = length − 40 gives (m+1)(m+2)/2 combinations; 1,000 a cell.
    combos = [(d, r) for r in range(length - 23) for d in range(r - 15)]
    slack = length - 40
    assert len(combos) == (slack + 1) * (slack + 2) // 2
    w = WindowSampler([length], 16, 8).batch(4, self_pairs(np.zeros(1000 * len(combos), int)), SAME_ROLLOUT)
    drawn, counts = np.unique(np.stack([w.donor_start, w.recipient_start], 1), axis=0, return_counts=True)
    assert sorted(map(tuple, drawn.tolist())) == sorted(combos)
    if len(combos) > 1:
        assert stats.chisquare(counts).pvalue > 1e-3


def test_64_observations_leave_one_same_rollout_pair():
    w = WindowSampler([64, 64]).batch(0, self_pairs([0, 1, 0]), SAME_ROLLOUT)
    assert w.donor_start.tolist() == [0, 0, 0]
    assert w.recipient_start.tolist() == [24, 24, 24]


@pytest.mark.parametrize("relation", [SAME_ROLLOUT, SAME_SYSTEM])
def test_windows_apart_are_uniform_over_ordered_pairs_under_every_relation(relation):
    # History 24, horizon 16, 64 observations, 12 apart: the donor's anchor lies 12 or more before the recipient's.
    combos = [(d, r) for r in range(25) for d in range(25) if d + 12 <= r]
    rows = np.zeros(300 * len(combos), np.int64)
    own = relation is SAME_ROLLOUT
    pairs = PairBatch(rows, rows if own else rows + 1, rows == 0)
    w = WindowSampler([64, 64], apart=12).batch(4, pairs, relation)
    drawn, counts = np.unique(np.stack([w.donor_start, w.recipient_start], 1), axis=0, return_counts=True)
    assert sorted(map(tuple, drawn.tolist())) == sorted(combos)
    assert stats.chisquare(counts).pvalue > 1e-3
    assert w.recipient_start.min() + 23 == 35  # the earliest last observation


def test_windows_apart_fit_the_shorter_episode_of_a_pair():
    sampler = WindowSampler([64, 53], 24, 16, apart=12)
    rows = np.zeros(500, np.int64)
    for pairs in (PairBatch(rows, rows + 1, rows == 0), PairBatch(rows + 1, rows, rows == 0)):
        w = sampler.batch(1, pairs)
        assert (w.donor_start + 12 <= w.recipient_start).all()
        assert w.recipient_start.max() == 13


def test_long_episodes_decode_exactly():
    from sprii_envs.relations.windows import _ordered_pairs

    b = np.array([0, 1, 2, 10**5, 10**7, 47 * 10**6])
    for first in (b * (b + 1) // 2, b * (b + 1) // 2 + b):  # the first and the last pair with that b
        low, high = _ordered_pairs(first)
        np.testing.assert_array_equal(high, b)
        assert ((low >= 0) & (low <= high)).all()


def test_windows_are_pure_and_apart_from_the_pairs():
    table = factorial()
    pairs = PairSampler(table, SAME_SYSTEM, seed=3).batch(5, 50)
    one, two = WindowSampler(table, seed=3), WindowSampler(table["length"], seed=3)
    a = one.batch(5, pairs)
    two.batch(4, pairs)
    assert all((x == y).all() for x, y in zip(a, two.batch(5, pairs), strict=True))
    assert (a.recipient == pairs.recipient).all()
    assert (a.donor == pairs.donor).all()
    assert not (one.batch(6, pairs).recipient_start == a.recipient_start).all()
    assert not (WindowSampler(table, seed=4).batch(5, pairs).recipient_start == a.recipient_start).all()


def test_evaluation_starts_depend_on_seed_and_episode_alone():
    table = systems([500], length=140)
    sampler = WindowSampler(table)
    everything = sampler.starts(np.arange(500))
    assert (sampler.starts(np.array([7, 3])) == everything[[7, 3]]).all()
    moved = table.select(np.arange(499, -1, -1))
    assert (WindowSampler(moved).starts(np.arange(500)) == everything[::-1]).all()
    assert (sampler.starts(np.arange(500), seed=1) != everything).mean() > 0.9
    assert everything.min() >= 0
    assert everything.max() <= 100
    # 5,000 starts over 101 cells of about 50: consecutive ids and seeds are uniform and uncorrelated.
    many = np.stack([sampler.starts(np.arange(500), seed=s) for s in range(10)])
    assert stats.chisquare(np.bincount(many.ravel(), minlength=101)).pvalue > 1e-3
    assert abs(np.corrcoef(many[:, 1:].ravel(), many[:, :-1].ravel())[0, 1]) < 0.06
    assert abs(np.corrcoef(many[1:].ravel(), many[:-1].ravel())[0, 1]) < 0.06


def test_grid_spans_the_legal_starts():
    sampler = WindowSampler([64, 40], 24, 16)
    assert sampler.grid([0, 1], 3).tolist() == [[0, 12, 24], [0, 0, 0]]
    assert sampler.grid([0]).tolist() == [[12]]
    assert sampler.last_start([0, 1]).tolist() == [24, 0]


def test_a_forgotten_same_rollout_relation_is_refused():
    table = systems([2, 2, 2, 2], length=64)
    pairs = PairSampler(table, SAME_ROLLOUT, distinct="system").batch(0, 4)
    with pytest.raises(ValueError, match="pass relation=SAME_ROLLOUT"):
        WindowSampler(table).batch(0, pairs)
    w = WindowSampler(table).batch(0, pairs, relation=SAME_ROLLOUT)
    assert (w.donor_start + 24 <= w.recipient_start).all()


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: WindowSampler([64, 39, 12], 24, 16),
            ValueError,
            r"history 24 \+ horizon 16 needs episodes of at least 40 .* 2 of 3 .* episode 1 has 39",
        ),
        (
            lambda: WindowSampler([64, 63]).batch(0, self_pairs([0]), SAME_ROLLOUT),
            ValueError,
            r"two histories of 24 \+ horizon 16 \(relation 'same rollout'\) needs .* 64 .* episode 1 has 63",
        ),
        (
            lambda: WindowSampler([64, 64]).batch(0, PairBatch(*np.array([[0], [1], [1]])), SAME_ROLLOUT),
            ValueError,
            "pairs an episode with itself",
        ),
        (
            lambda: WindowSampler([64, 64]).batch(0, self_pairs([1, 0])),
            ValueError,
            r"2 of 2 pairs are of one episode \(row 1\).*'same system' never draws: pass relation=SAME_ROLLOUT",
        ),
        (
            lambda: WindowSampler([64]).batch(0, self_pairs([0]), ANY_NAME),
            TypeError,
            "relation must be SAME_SYSTEM, SAME_ROLLOUT or a Relation.*got 'SAME_ROLLOUT'",
        ),
        (
            lambda: WindowSampler([64, 51], apart=12).batch(0, PairBatch(*np.array([[0], [1], [1]]))),
            ValueError,
            r"a history of 24, 12 apart \+ horizon 16 \(relation 'same system'\) needs .* 52 .* episode 1 has 51",
        ),
        (lambda: WindowSampler([64], apart=0), ValueError, "apart is 0; legal: an integer >= 1"),
        (lambda: WindowSampler([64], 0), ValueError, "history is 0; legal: an integer >= 1"),
        (lambda: WindowSampler([64], 24, -1), ValueError, "horizon is -1; legal: an integer >= 0"),
        (lambda: WindowSampler([64], HALF), ValueError, r"history is 24\.5; legal: an integer"),
        (lambda: WindowSampler([64.0]), ValueError, "lengths must be 1-D integers"),
        (lambda: WindowSampler([]), ValueError, "lengths must be 1-D integers"),
        (lambda: WindowSampler([64]).starts([1]), ValueError, r"rows must lie in \[0, 1\), got 1..1"),
        (lambda: WindowSampler([64]).starts([-1]), ValueError, "rows must lie in"),
        (lambda: WindowSampler([64]).grid([0.5]), ValueError, "rows must be 1-D integers"),
    ],
)
def test_bad_windows(make, error, message):
    with pytest.raises(error, match=message):
        make()
