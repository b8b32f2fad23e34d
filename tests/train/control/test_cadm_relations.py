"""Related anchors: legal by enumeration, equal histories under both recipes, streams of their own, Align's gradient."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from linear_world import CONFIG, collect

from sprii_train.control.anchors import Anchors, anchors, split
from sprii_train.control.experience import Experience
from sprii_train.control.relations import RelatedAnchors, RelationPairs, align_members
from sprii_train.control.training import ControlTraining
from sprii_train.learners import CaDM
from sprii_train.objectives import align
from sprii_train.protocol import Objective
from sprii_train.recipes import CONTROL_RECIPES, SHIFTED

R7, RANDOM, CADM = (CONTROL_RECIPES[name] for name in ("r7", "random", "cadm"))
HISTORY = 4


def pairs_of(
    store: Experience, *, shifted: bool = False, systems: int = 32, seed: int = 0, share: float = 0.3
) -> tuple[RelationPairs, Anchors, np.ndarray]:
    at = anchors(store.lengths, window=3)
    trained, _ = split(len(at.time), share=share, seed=seed, iteration=0)
    return RelationPairs(store, at, trained, history=HISTORY, shifted=shifted, systems=systems, seed=seed), at, trained


def eligible_by_hand(store: Experience, at: Anchors, trained: np.ndarray) -> set[str]:
    full = {at.episode[i] for i in trained if at.time[i] >= HISTORY}
    systems = [str(store.systems[e]) for e in full]
    return {s for s in systems if systems.count(s) > 1}


@settings(max_examples=40, deadline=None)
@given(
    systems=st.lists(st.integers(0, 8), min_size=1, max_size=20),
    short=st.lists(st.integers(0, 8), max_size=4),
    seed=st.integers(0, 99),
    most=st.integers(2, 5),
    draws=st.tuples(st.integers(0, 30), st.integers(0, 4), st.integers(0, 2000)),
)
def test_pairs_are_legal(systems: list[int], short: list[int], seed: int, most: int, draws: tuple[int, int, int]):
    store = collect(systems, 9, seed)
    if short:
        collect(short, 5, seed, into=store)  # too short for a full history that is trained on
    same, at, trained = pairs_of(store, systems=most, seed=seed)
    wrong, _, _ = pairs_of(store, shifted=True, systems=most, seed=seed)
    eligible = eligible_by_hand(store, at, trained)
    assert same.eligible == wrong.eligible == len(eligible)
    right, deranged = same.draw(*draws), wrong.draw(*draws)
    if len(eligible) < 2:
        assert right is None
        assert deranged is None
        return
    assert right is not None
    assert deranged is not None
    n = min(most, len(eligible))
    for found, related in ((right, True), (deranged, False)):
        assert found.recipient.shape == found.donor.shape == (n,)
        for side in found:
            assert set(side) <= set(trained)
            assert (at.time[side] >= HISTORY).all()
        ids = [store.systems[at.episode[side]] for side in found]
        assert set(ids[0]) <= eligible
        assert len(set(ids[0])) == n  # a pair for each system
        assert ((ids[0] == ids[1]) == related).all()
        assert (at.episode[found.recipient] != at.episode[found.donor]).all()
    # The same histories on both sides: only who meets whom differs.
    assert (right.recipient == deranged.recipient).all()
    assert (np.sort(right.donor) == np.sort(deranged.donor)).all()
    assert (np.roll(right.donor, 1) == deranged.donor).all()


def test_draws_are_functions_of_the_update():
    store = collect([0, 1, 2, 3, 4] * 3, 20)
    first = pairs_of(store)[0].draw(1, 2, 3)
    again, _, _ = pairs_of(store)
    for other in ((0, 0, 0), (1, 2, 4), (1, 3, 3), (2, 2, 3)):
        assert not _equal(again.draw(*other), first)
    assert _equal(again.draw(1, 2, 3), first)
    assert not _equal(pairs_of(store, seed=1, share=0.0)[0].draw(1, 2, 3), pairs_of(store, share=0.0)[0].draw(1, 2, 3))


def test_every_history_can_be_drawn():
    """Recipients and donors are uniform over episodes of a system and over their trained full anchors."""
    store = collect([0, 1, 0, 1, 0], 12)
    pairs, at, trained = pairs_of(store)
    drawn = [pairs.draw(0, 0, step) for step in range(1500)]
    full = trained[at.time[trained] >= HISTORY]
    for side in (0, 1):
        numbers = np.concatenate([pair[side] for pair in drawn if pair is not None])
        assert set(numbers) == set(full)
        for i in full:
            episodes = (store.systems == store.systems[at.episode[i]]).sum()
            share = 0.5 / episodes / (at.episode[full] == at.episode[i]).sum()
            assert (numbers == i).mean() == pytest.approx(share, rel=0.35)


def test_the_control_keeps_variance_and_covariance():
    """Random exchanges donors only, so of Align's terms the invariance alone can differ."""
    store = collect(list(range(6)) * 2, 20)
    codes = torch.randn(200 * 6, 3, generator=torch.Generator().manual_seed(0))
    found = []
    for shifted in (False, True):
        pairs = pairs_of(store, shifted=shifted)[0].draw(0, 0, 0)
        assert pairs is not None
        sides = torch.cat([codes[torch.from_numpy(side)] for side in (pairs.donor, pairs.recipient)])
        found.append(align_members(sides[None], R7.objective))
    right, wrong = found
    torch.testing.assert_close(right.variance, wrong.variance)
    torch.testing.assert_close(right.covariance, wrong.covariance)
    assert abs(right.invariance - wrong.invariance) > 1e-3


@pytest.mark.parametrize("members", [1, 3])
def test_align_of_members_is_a_sum(members: int):
    contexts = 0.1 * torch.randn(members, 10, 4, generator=torch.Generator().manual_seed(1))
    found = align_members(contexts, R7.objective)
    expected = [align(c[:5].double(), c[5:].double(), target_std=0.1) for c in contexts]
    for name in found._fields:
        total = sum(getattr(terms, name).item() for terms in expected)
        assert getattr(found, name).item() == pytest.approx(total, rel=1e-5)
    assert found.variance > 0


def test_align_reaches_only_the_encoder():
    learner = CaDM(CONFIG, seed=0)
    contexts = learner.encode(torch.randn(8, 12, generator=torch.Generator().manual_seed(0)))
    align_members(contexts, R7.objective).total.backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in learner.encoder.parameters())
    assert all(p.grad is None for p in learner.dynamics.parameters())


def test_recipes():
    assert list(CONTROL_RECIPES) == ["cadm", "random", "r7"]
    assert CADM.objective.lambda_p == 0.0
    for recipe in (R7, RANDOM):
        assert recipe.objective == Objective(lambda_p=0.003, target_std=0.1)
    assert [recipe.kernel == SHIFTED for recipe in (CADM, RANDOM, R7)] == [False, True, False]
    assert ControlTraining().systems == 32


def _equal(a: RelatedAnchors | None, b: RelatedAnchors | None) -> bool:
    assert a is not None
    assert b is not None
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
