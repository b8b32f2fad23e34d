"""Pairs of objects: whose donors are legal, what Random keeps, and that batches are functions of (seed, step)."""

from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sprii_train.cophy.pairs import Groups, ObjectEpisodes, PairedObjects, permuted, relation_units, resting
from sprii_train.cophy.windows import check_windows

FRAMES, FEATURES = 5, 2


def episodes(seed: int, count: int = 40, objects: int = 2, slots: int = 3, levels: int = 2) -> ObjectEpisodes:
    """Episodes whose features say which episode, video, frame and object they are of."""
    rng = np.random.default_rng(seed)
    slot = np.sort(np.stack([rng.permutation(slots)[:objects] for _ in range(count)]), axis=1)
    kind = rng.integers(0, 2, (count, objects))
    gravity, physics = rng.integers(0, 2, (count, 1)), rng.integers(0, levels, (count, objects, 1)).astype(float)
    unit, stratum = relation_units(slot, kind, gravity, physics)
    told = np.arange(count * 2 * FRAMES * objects, dtype=np.float32).reshape(count, 2, FRAMES, objects)
    poses = np.repeat(told[..., None], 3, axis=-1)
    return ObjectEpisodes(
        np.repeat(told[..., None], FEATURES, axis=-1), poses, np.arange(count), poses[:, 1], slot, kind, kind >= 0,
        unit, stratum,
        "made by hand",
    )  # fmt: skip


def test_units_are_equal_where_all_of_slot_type_gravity_and_physics_are():
    slot, kind = np.array([[0, 1], [0, 1], [0, 1], [0, 1]]), np.array([[0, 0], [0, 0], [0, 1], [0, 0]])
    gravity, physics = (
        np.array([[0.5], [0.5], [0.5], [-0.5]]),
        np.array([[[1.0], [2]], [[1], [1]], [[1], [2]], [[1], [2]]]),
    )
    unit, stratum = relation_units(slot, kind, gravity, physics)
    assert (unit[0] == unit).tolist() == [[True, True], [True, False], [True, False], [False, False]]
    assert (stratum[0] == stratum).tolist() == [[True, True], [True, True], [True, False], [False, False]]


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 3))
def test_every_object_has_a_donor_of_its_unit_in_another_episode(data: int, seed: int, epoch: int):
    made = episodes(data)
    for donors in ("related", "random"):
        drawn = PairedObjects(made, donors=donors, pairs=4, seed=seed).epoch(epoch)
        assert (drawn.donor != drawn.recipient[:, None]).all()
        law = made.unit if donors == "related" else made.stratum
        assert (law[drawn.donor, drawn.place] == law[drawn.recipient]).all()
        assert (made.slot[drawn.donor, drawn.place] == made.slot[drawn.recipient]).all()


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_random_deals_out_the_correct_donors(data: int, seed: int):
    made = episodes(data)
    related, random = (PairedObjects(made, donors=d, pairs=4, seed=seed).epoch(1) for d in ("related", "random"))
    assert (related.recipient == random.recipient).all()
    assert (related.focal == random.focal).all()

    def counted(drawn: Any) -> list[list[int]]:
        rows = np.stack([made.stratum[drawn.recipient], drawn.donor, drawn.place], axis=-1).reshape(-1, 3)
        return rows[np.lexsort(rows.T)].tolist()

    assert counted(related) == counted(random)


def test_random_donors_are_of_the_same_physics_no_more_often_than_chance():
    made = episodes(3, 4_000)
    drawn = PairedObjects(made, donors="random", pairs=4).epoch(0)
    same = made.unit[drawn.donor, drawn.place] == made.unit[drawn.recipient]
    assert same.mean() == pytest.approx(0.5, abs=0.02)  # two levels: kept by accident, and half of them


@given(st.lists(st.integers(0, 3), min_size=2, max_size=30), st.integers(0, 10**6))
def test_a_deal_keeps_strata_and_gives_none_to_itself(strata: list[int], seed: int):
    stratum, n = np.array(strata), len(strata)
    recipient = np.arange(n)
    alone = np.bincount(stratum)[stratum] == 1
    source = np.where(alone, n, 0)  # a legal first deal: the next of the stratum
    for s in np.unique(stratum[~alone]):
        own = np.flatnonzero(stratum == s)
        source[own] = np.roll(own, -1)
    dealt = permuted(source, source, recipient, stratum, np.random.default_rng(seed))
    assert (dealt != recipient).all()
    assert all(sorted(dealt[stratum == s]) == sorted(source[stratum == s]) for s in np.unique(stratum))


def test_every_recipient_is_in_an_epoch_once_and_batches_run_over_its_end():
    made = episodes(0, 37)
    data = PairedObjects(made, donors="related", pairs=8, seed=5)
    total = len(data.eligible)
    assert total % 8
    taken = np.concatenate([data.batch(step).recipient for step in range(total)])  # 8 epochs
    assert all(sorted(epoch) == data.eligible.tolist() for epoch in taken.reshape(8, total))
    assert not np.array_equal(taken[:total], taken[total : 2 * total])


def test_only_recipients_whose_every_object_has_a_donor_are_taken():
    made = episodes(1, 20, levels=6)
    counts = np.array([[(made.unit == unit).sum() for unit in row] for row in made.unit])
    expected = np.flatnonzero((counts > 1).all(axis=1))
    assert 0 < len(expected) < 20
    assert PairedObjects(made, pairs=2).eligible.tolist() == expected.tolist()
    with pytest.raises(ValueError, match="none of 1 episodes has a donor"):
        PairedObjects(episodes(0, 1))


def test_batches_are_functions_of_seed_and_step_and_say_whose_video_each_object_is_of():
    made = episodes(2)
    data = PairedObjects(made, donors="related", pairs=6, seed=9)
    windows, again = data(7), PairedObjects(made, donors="related", pairs=6, seed=9)(7)
    assert all(torch.equal(a, b) for a, b in zip(windows, again, strict=True))
    assert not torch.equal(windows.features, data(8).features)
    assert not torch.equal(windows.features, PairedObjects(made, donors="related", pairs=6, seed=10)(7).features)
    check_windows(windows, features=FEATURES)
    drawn, rows = data.batch(7), torch.arange(12)[:, None]
    read = windows.features[rows, windows.video, :, windows.place].numpy()  # (12, O, T, F)
    for i in range(6):
        for o in range(2):
            donor = made.features[drawn.donor[i, o], 0, :, drawn.place[i, o]]
            np.testing.assert_array_equal(read[i, o], donor)
            np.testing.assert_array_equal(read[6 + i, o], made.features[drawn.recipient[i], 0, :, o])
    assert torch.equal(windows.query_features[:6], windows.query_features[6:])
    assert not windows.seen[6:, 1:].any()
    assert windows.seen[:6].all()


def test_without_donors_a_batch_is_of_twice_as_many_recipients():
    made = episodes(2)
    data, paired = PairedObjects(made, pairs=3), PairedObjects(made, donors="related", pairs=6)
    windows = data(0)
    assert windows.features.shape == (6, 1, FRAMES, 2, FEATURES)
    assert len(windows.actions) == 6
    assert torch.equal(windows.query_features, paired(0).query_features[6:])  # as many, and the same, in both arms


def test_shares_of_ranks_are_the_batch():
    data = PairedObjects(episodes(2), donors="related", pairs=4)
    whole, parts = data(3), [data.shard(rank, 2)(3) for rank in range(2)]
    joined = [torch.cat([p[:2] for p in f] + [p[2:] for p in f]) for f in zip(*parts, strict=True)]
    assert all(torch.equal(a, b) for a, b in zip(whole, joined, strict=True))
    with pytest.raises(ValueError, match="4 pairs cannot be shared by 3 ranks"):
        data.shard(0, 3)


def test_what_rests_moved_less_than_a_centimetre():
    positions = np.zeros((4, 2, 3))
    positions[2:, 1, 0] = 0.5
    assert resting(positions).tolist() == [[True, True], [True, True], [True, False], [True, True]]


def test_arrays_of_ones_own_that_do_not_fit_are_refused():
    made = episodes(2)
    for field, change, said in (
        ("slot", lambda a: a[:-1], r"slot has shape \(39, 2\); legal: \(40, 2\)"),
        ("positions", lambda a: a[:, :-1], r"positions has shape \(40, 4, 2, 3\); legal: \(40, 5, 2, 3\)"),
        ("rows", lambda a: a + 1, "rows are 1 to 40; legal: 0 to 39"),
        ("features", lambda a: np.where(a == 7, np.nan, a), "features hold NaN or infinity"),
        ("poses", lambda a: np.where(a == 7, np.inf, a), "poses hold NaN or infinity"),
    ):
        with pytest.raises(ValueError, match=said):
            replace(made, **{field: change(getattr(made, field))})
    for step in (-1, 0.5, True):
        with pytest.raises(ValueError, match=f"step is {step}; legal: an integer >= 0"):
            PairedObjects(made, pairs=3)(step)  # pyright: ignore[reportArgumentType]


def test_units_of_what_is_no_physics_are_refused():
    slot = kind = np.zeros((4, 2), np.int64)
    gravity, physics = np.zeros((4, 1)), np.ones((4, 2, 3))
    for own, said in (
        ({"slot": slot + 0.5}, "slot is .*; legal: integers"),
        ({"kind": kind[:, :1]}, r"kind has shape \(4, 1\); legal: \(4, 2\)"),
        ({"gravity": gravity[:1]}, r"gravity has shape \(1, 1\); legal: \(4, g\)"),
        ({"physics": physics[:, 0]}, r"physics has shape \(4, 3\); legal: \(4, 2, k\)"),
        ({"physics": np.where(np.arange(3) == 1, np.nan, physics)}, "physics hold NaN or infinity"),
    ):
        with pytest.raises(ValueError, match=said):
            relation_units(**{"slot": slot, "kind": kind, "gravity": gravity, "physics": physics} | own)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 3))
def test_groups_share_supports_of_their_unit_that_none_of_them_is(data: int, seed: int, supports: int, most: int):
    made = episodes(data, 120)
    groups = Groups(supports=supports, recipients=most, batch=2)
    paired = PairedObjects(made, donors="related", pairs=2 * most, seed=seed, groups=groups)
    drawn = paired.epoch(1)
    assert sorted(drawn.recipient) == paired.eligible.tolist()
    assert drawn.donor.shape == (len(paired.eligible), 2, supports)
    assert (made.unit[drawn.donor, drawn.place] == made.unit[drawn.recipient][..., None]).all()
    for i, (recipient, focal) in enumerate(zip(drawn.recipient, drawn.focal, strict=True)):
        for o in range(2):
            assert recipient not in drawn.donor[i, o]
            assert len(set(drawn.donor[i, o])) == supports
        same = (drawn.donor[:, focal] == drawn.donor[i, focal]).all(1) & (drawn.focal == focal)
        assert not set(drawn.recipient[same]) & set(drawn.donor[i, focal])


def test_groups_are_as_full_as_units_allow_and_stay_together():
    made, groups = episodes(5, 150, levels=4), Groups(supports=4, recipients=3, batch=2)
    drawn = PairedObjects(made, donors="related", pairs=6, groups=groups).epoch(0)
    unit = made.unit[drawn.recipient, drawn.focal]
    told = [(int(u), *map(int, d[f])) for u, d, f in zip(unit, drawn.donor, drawn.focal, strict=True)]
    sizes = [len(list(members)) for _, members in groupby(told)]
    expected = []
    for each, count in zip(*np.unique(unit, return_counts=True), strict=True):
        most = min(3, int((made.unit == each).sum()) - 4)
        expected += [most] * (count // most) + [count % most] * bool(count % most)
    assert sorted(sizes) == sorted(expected)
    assert {1, 2, 3} == set(sizes)


def test_groups_need_as_many_others_as_supports_and_related_donors():
    made = episodes(1, 40)
    counts = np.array([[(made.unit == unit).sum() for unit in row] for row in made.unit])
    groups = Groups(supports=3, recipients=2, batch=2)
    paired = PairedObjects(made, donors="related", pairs=4, groups=groups)
    assert paired.eligible.tolist() == np.flatnonzero((counts > 3).all(axis=1)).tolist()
    windows = paired(0)
    check_windows(windows, features=FEATURES, means=True)
    with pytest.raises(ValueError, match="video has shape"):
        check_windows(windows, features=FEATURES)  # which other learners do
    with pytest.raises(ValueError, match="donors are 'random' with groups; legal: related"):
        PairedObjects(made, donors="random", groups=groups)
    with pytest.raises(ValueError, match="none of 40 episodes has 60 donors"):
        PairedObjects(made, donors="related", groups=Groups(supports=60))
    assert paired.identity() != PairedObjects(made, donors="related", pairs=4).identity()
