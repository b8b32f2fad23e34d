"""Row numbers know their table: what a row means is never guessed."""

import copy
import pickle

import numpy as np
import pytest
from relation_tables import factorial, systems

from sprii_envs.relations import SAME_ROLLOUT, SAME_SYSTEM, EpisodeTable, PairSampler, TableRows, WindowSampler
from sprii_envs.relations.sampler import PairBatch


def drawn(table: EpisodeTable, n: int = 12):
    pairs = PairSampler(table, SAME_SYSTEM, seed=2).batch(0, n)
    return pairs, WindowSampler(table).batch(0, pairs)


def test_a_bare_integer_whose_table_is_not_known():
    table = factorial()
    part = table.select(np.arange(25, -1, -1))
    pairs, w = drawn(part)
    for rows in (pairs.donor, w.donor, w.recipient[3:], pickle.loads(pickle.dumps(w)).donor, copy.deepcopy(w.donor)):
        assert isinstance(rows, TableRows)
        assert np.array_equal(rows.episodes, part["episode"][np.asarray(rows)])
        there = table.locate(rows)
        assert np.array_equal(table["episode"][there], rows.episodes)
        assert np.array_equal(part["mass"][rows], table["mass"][there])  # an index as any other integers
    one = [int(row.episodes) for row in w.donor]
    assert one == w.donor.episodes.tolist() == [int(table["episode"][table.locate(row)]) for row in w.donor]
    assert np.array_equal(table.locate(list(w.donor)), table.locate(w.donor))
    assert len({*w.donor, *w.donor}) == len(set(w.donor.tolist()))
    plain = np.arange(3)
    assert table.locate(plain) is plain


def test_what_becomes_of_them():
    table = systems([3] * 4)
    pairs, w = drawn(table)
    both = np.concatenate([w.donor, w.recipient])
    assert np.array_equal(np.stack([w.donor, w.recipient]).episodes.ravel(), both.episodes)
    for plain in (w.donor + 1, w.donor == w.recipient, np.asarray(w.donor), table["length"][w.donor], w.donor.max()):
        assert not isinstance(plain, TableRows)
    for mixed in (np.stack(w, axis=1), np.concatenate([w.donor, np.arange(3)])):
        with pytest.raises(ValueError, match="joined with other integers"):
            table.locate(mixed)
    sliced = PairBatch(*(part[:5] for part in pairs))
    assert sliced.table == pairs.table == table.rows_fingerprint()
    assert PairBatch(np.arange(3), np.arange(3), np.ones(3, bool)).table is None
    own = PairSampler(table, SAME_ROLLOUT).batch(0, 4)
    assert np.array_equal(WindowSampler(table).batch(0, own, SAME_ROLLOUT).donor.episodes, own.donor.episodes)
    unknown = WindowSampler(table["length"]).batch(0, pairs)
    assert np.array_equal(unknown.donor.episodes, pairs.donor.episodes)


def test_rows_of_another_table_are_refused():
    table = systems([2] * 6)
    half = table.select(np.arange(6, 12))
    pairs, w = drawn(half)
    windows = WindowSampler(table)
    for use in (windows.starts, windows.grid, windows.last_start, lambda rows: table.select(rows[:1])):
        for rows in (pairs.donor, w.recipient):
            with pytest.raises(ValueError, match="rows of another table"):
                use(rows)
        use(table.locate(pairs.donor))  # the same episodes, as rows of this table
    with pytest.raises(ValueError, match=r"no episode .* in this table, but in the one that these rows are of"):
        table.select(np.arange(6)).locate(w.donor)
    other = EpisodeTable({name: table[name] for name in table.columns} | {"mass": np.arange(12.0)})
    taken = EpisodeTable({name: table[name] for name in table.columns} | {"mass": np.arange(12.0) + 1})
    with pytest.raises(
        ValueError, match=r"rows of another store's table: its episode 0 has mass 0\.0, the one here 1\.0"
    ):
        taken.locate(other.every())
    cut = EpisodeTable({name: table[name] for name in table.columns} | {"length": table["length"] - 1})
    assert np.array_equal(table.locate(cut.every()), np.arange(12))
