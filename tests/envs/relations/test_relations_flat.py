"""Tables of rings: an independent simulation says what lies where."""

import numpy as np
import pytest

from sprii_envs.relations import SAME_SYSTEM, FlatPairs, NoLegalDonorError, PairSampler, StaleError, WindowSampler
from sprii_envs.relations.flat import episode_runs


class Ring:
    """Remembers of every entry which step of which episode it holds."""

    def __init__(self, capacity: int, seed: int = 0) -> None:
        self.capacity, self.writes, self.rng = capacity, 0, np.random.default_rng(seed)
        self.episode, self.t = np.full(capacity, -1), np.full(capacity, -1)
        self.number = 0

    def write(self, length: int) -> None:
        for t in range(length):
            at = self.writes % self.capacity
            self.episode[at], self.t[at] = self.number, t
            self.writes += 1
        self.number += 1

    def table(self, **more):
        held = min(self.writes, self.capacity)
        return episode_runs(self.episode[:held], self.episode[:held] % 3, head=self.writes, **more)


@pytest.mark.parametrize("lengths", [[30] * 7, [30, 40], [7] * 50, [100, 100], [150], [33, 67, 100, 1], [99, 1, 60]])
def test_an_index_over_a_ring_filled_past_its_end(lengths):
    ring = Ring(100)
    for length in lengths:
        ring.write(length)
        runs = ring.table()
        table, first = runs
        held = min(ring.writes, 100)
        for episode, begin, size in zip(table["episode"], first, table["length"], strict=True):
            run = slice(begin, begin + size)
            assert (ring.episode[run] == episode).all()
            assert (np.diff(ring.t[run]) == 1).all()
        assert set(table["episode"]) == set(ring.episode[:held])
        lost = held - table["length"].sum()
        assert runs.cut == (lost > 0)
        wrapped = ring.episode[0] == ring.episode[held - 1] and ring.t[0] == ring.t[held - 1] + 1
        assert runs.cut == wrapped
        assert (np.diff(table["episode"]) > 0).all()  # the oldest first
    assert runs.dropped == 0


def test_short_rests_are_dropped_and_counted():
    ring = Ring(100)
    for _ in range(5):
        ring.write(30)  # the rest of episode 1, 2, 3 across the end and 4
    runs = ring.table(shortest=20)
    assert (runs.table["episode"].tolist(), runs.first.tolist()) == ([2, 3, 4], [60, 0, 20])
    assert runs.table["length"].tolist() == [30, 20, 30]
    assert (runs.cut, runs.dropped) == (1, 1)
    assert (ring.table(shortest=25).cut, ring.table(shortest=25).dropped) == (0, 2)
    assert ring.table().table["rollout"].tolist() == [0, 0, 0, 1]
    with pytest.raises(NoLegalDonorError, match="31 steps or more"):
        ring.table(shortest=31)
    with pytest.raises(ValueError, match=r"follow one another; of a ring that was filled past its end, say with head="):
        episode_runs(ring.episode, ring.episode % 3)
    with pytest.raises(ValueError, match=r"head is 0\.5; legal: an integer"):
        episode_runs(ring.episode, ring.episode, head=0.5)  # type: ignore[arg-type]


def test_an_index_over_mutable_storage_without_a_version():
    ring = Ring(100)
    for _ in range(4):
        ring.write(30)
    table, first = ring.table(shortest=8)
    pairs = PairSampler(table, SAME_SYSTEM, on_missing="drop")
    flat = FlatPairs(pairs, WindowSampler(table, history=8, horizon=0), first, version=lambda: ring.writes)
    entries, _ = flat.batch(0, 64)
    assert (ring.episode[entries] == ring.episode[entries][..., :1]).all()
    described = {entry for f, n in zip(first, table["length"], strict=True) for entry in range(f, f + n)}
    assert set(np.flatnonzero(flat.described())) == described
    ring.write(1)
    with pytest.raises(StaleError, match=r"written to since the table .* make a new table"):
        flat.batch(1, 64)
