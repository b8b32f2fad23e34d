"""Draws of supports: legal by their own labels, uniform, nested, and the same whatever arm asks."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from tiny_scenes import objects_of

from sprii_train.cophy.supports import FACTORS, Objects, Supports, distinct


def seen_of(o: Objects, e: int, i: int) -> tuple:
    """What a relation may see of an object, and what it may not."""
    return (str(o.split[e]), int(o.slot[e, i]), int(o.kind[e, i]), *o.gravity[e]), tuple(o.physics[e, i])


scenes = st.builds(
    objects_of,
    st.fixed_dictionaries({"train": st.integers(1, 40), "validation": st.integers(1, 25)}),
    objects=st.integers(1, 3), slots=st.just(3), kinds=st.integers(1, 2), levels=st.integers(1, 3),
    absent=st.booleans(), gravities=st.integers(1, 2), seed=st.integers(0, 9),
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(scenes, st.integers(1, 5), st.integers(0, 3), st.integers(0, 3))
def test_draws_are_legal_and_complete(o: Objects, count: int, seed: int, epoch: int):
    supports, (e, n) = Supports(o), o.seen.shape
    labels = {(a, i): seen_of(o, a, i) for a in range(e) for i in range(n) if o.seen[a, i]}
    draws = {"matched": supports.matched(count, seed=seed, epoch=epoch)} | {
        factor: supports.wrong(count, seed=seed, epoch=epoch, factor=factor) for factor in (None, *FACTORS)
    }
    sizes = Counter(labels.values())
    for name, ids in draws.items():
        assert ids.shape == (e, n, count)
        for a in range(e):
            for i in range(n):
                chosen = ids[a, i]
                if (a, i) not in labels:
                    assert (chosen == -1).all()
                    continue
                group, physics = labels[a, i]

                def differs(other: tuple, physics: tuple = physics, name: str | None = name) -> bool:
                    unlike = [x != y for x, y in zip(other, physics, strict=True)]
                    return any(unlike) if name is None else unlike == [factor == name for factor in FACTORS]

                if name == "matched":
                    legal = sizes[group, physics] - 1 >= count
                else:
                    legal = any(g == group and differs(p) and size >= count for (g, p), size in sizes.items())
                assert (chosen >= 0).all() == legal
                assert legal or (chosen == -1).all()
                if not legal:
                    continue
                donors = [labels[divmod(int(k), n)] for k in chosen]
                episodes = [int(k) // n for k in chosen]
                assert len(set(episodes)) == count
                assert a not in episodes
                assert {g for g, _ in donors} == {group}
                assert len({p for _, p in donors}) == 1
                other = donors[0][1]
                assert other == physics if name == "matched" else differs(other)


def test_a_larger_draw_begins_with_a_smaller_one_and_epochs_and_seeds_differ():
    supports = Supports(objects_of({"train": 300}, slots=2, levels=2))
    three, eight = (supports.matched(count, seed=4, epoch=2) for count in (3, 8))
    both = (eight >= 0).all(-1)
    assert both.mean() > 0.9
    assert np.array_equal(eight[both][:, :3], three[both])
    assert np.array_equal(three, supports.matched(3, seed=4, epoch=2))
    for other in (supports.matched(3, seed=5, epoch=2), supports.matched(3, seed=4, epoch=3)):
        assert (other != three).mean() > 0.5


def test_distinct_numbers_are_uniform_over_ordered_choices():
    drawn = distinct(np.random.default_rng(0).random((3, 24_000)), np.full(24_000, 4))
    counts = Counter(map(tuple, drawn.T.tolist()))
    assert counts.keys() == set(itertools.permutations(range(4), 3))
    assert chisquare(list(counts.values())).pvalue > 0.01
    assert np.array_equal(np.sort(distinct(np.full((3, 1), 0.999), np.array([3])), axis=0), [[0], [1], [2]])


def test_supports_of_an_object_are_uniform_over_its_class():
    o = objects_of({"train": 6}, objects=1, slots=1, levels=1)
    supports = Supports(o)
    chosen = np.stack([supports.matched(2, seed=0, epoch=epoch)[:, 0] for epoch in range(1_500)])
    for episode in range(6):
        counts = np.bincount(chosen[:, episode].ravel(), minlength=6)
        assert counts[episode] == 0
        assert chisquare(np.delete(counts, episode)).pvalue > 1e-3


def test_eligible_episodes_have_supports_for_all_of_their_objects():
    o = objects_of({"train": 60, "validation": 8}, absent=True)
    supports = Supports(o)
    ids = supports.matched(3, seed=0)
    eligible = supports.eligible(ids)
    by_hand = [all((ids[e, i] >= 0).all() for i in range(2) if o.seen[e, i]) for e in range(68)]
    assert eligible.tolist() == by_hand
    assert 0 < eligible.sum() < 68
    assert np.array_equal(supports.eligible(supports.matched(3, seed=9, epoch=7)), eligible)  # no matter of luck
    assert np.array_equal(supports.rows("train"), np.flatnonzero(eligible & (o.split == "train")))
    with pytest.raises(ValueError, match="no episode of the split 'validation' has 9 supports for each"):
        supports.rows("validation", 9)


def test_an_object_that_leaves_before_the_query_tells_of_others_and_needs_no_supports():
    o = objects_of({"train": 60}, slots=2, levels=2)
    asked = o.seen.copy()
    asked[::2, 1] = False
    whole, some = Supports(o), Supports(o._replace(asked=asked))
    assert np.array_equal(whole.matched(3, seed=0), some.matched(3, seed=0))
    ids = whole.matched(6, seed=0)
    eligible = (whole.eligible(ids), some.eligible(ids))
    assert np.array_equal(eligible[1][::2], (ids[::2, 0] >= 0).all(-1))
    assert np.array_equal(eligible[1][1::2], eligible[0][1::2])
    assert eligible[1].sum() > eligible[0].sum()


def test_what_cannot_be():
    o = objects_of({"train": 4})
    slot = o.slot.copy()
    slot[1] = 2
    with pytest.raises(ValueError, match=r"episode 1 has the slots \[2, 2\]; legal: distinct ones"):
        Supports(o._replace(slot=slot))
    with pytest.raises(ValueError, match=r"physics has shape \(4, 2, 2\); legal: \(4, 2, 3\)"):
        Supports(o._replace(physics=o.physics[..., :2]))
    with pytest.raises(ValueError, match="factor is 'colour'; legal: mass, friction, restitution"):
        Supports(o).wrong(1, seed=0, factor="colour")
