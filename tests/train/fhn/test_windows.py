"""Chains, symmetries of the equations, and batches against trajectories read one index at a time."""

from typing import Any

import numpy as np
import pytest
import torch
from field_banks import SMALL, store_of

from sprii_envs.fields import fhn
from sprii_envs.fields.bank import FIELD
from sprii_envs.relations import Derangement
from sprii_train.fhn.windows import SYMMETRIES, PairedChains, by_system, chains, transformed

HEADS = np.array([1, 3, 9, 27])


def test_the_chains_are_26():
    found = chains()
    assert found.shape == (26, 4)
    assert len(np.unique(found, axis=0)) == 26
    assert (np.diff(found, axis=1) >= 0).all()  # small steps first
    spans = HEADS[found].sum(1)
    every = np.array([c for c in np.ndindex(4, 4, 4, 4) if list(c) == sorted(c)])
    others = [c for c in every.tolist() if c not in found.tolist()]
    fits = [c for c in others if HEADS[c].sum() <= 100]
    assert (len(every), len(fits)) == (35, 8)
    assert spans.max() < min(HEADS[c].sum() for c in fits)  # the 26 shortest
    assert set(found.ravel()) == {0, 1, 2, 3}


@pytest.mark.parametrize("symmetry", range(SYMMETRIES))
def test_a_symmetry_of_a_start_is_one_of_its_trajectory(symmetry: int):
    """The equations do not know which way the square is turned, nor where it begins."""
    start = fhn.initial(0, [1], side=8)
    options = {"frames": 3, "duration": 0.5, "step": 0.05}
    solved = fhn.solve(start, (0.03, 0.2), **options)
    turned = fhn.solve(np.ascontiguousarray(transformed(start, symmetry)), (0.03, 0.2), **options)
    np.testing.assert_allclose(turned, transformed(solved, symmetry), atol=1e-10)


def test_the_symmetries_are_the_papers():
    field = np.random.default_rng(0).normal(size=(2, 8, 8))
    found = [transformed(field, i) for i in range(SYMMETRIES)]
    for i, expected in enumerate(
        [field, field.transpose(0, 2, 1), *(np.stack([np.rot90(f, k) for f in field]) for k in (1, 2, 3, 4)),
         *(np.roll(field, far, axis=axis) for far in (2, 6) for axis in (1, 2))]
    ):  # fmt: skip
        np.testing.assert_array_equal(found[i], expected)
    np.testing.assert_array_equal(found[0], found[5])  # the fourth quarter turn
    with pytest.raises(ValueError, match="symmetry is 10"):
        transformed(field, 10)


def test_a_batch_is_read_off_the_trajectories():
    """Every row is found again: one system, one symmetry, the case after the conditioning one, and one start."""
    store = store_of()
    table, fields = store.split("train"), store.stream(FIELD).values.reshape(-1, SMALL.frames, 2, 8, 8)
    data = PairedChains(store, table, pairs=12, seed=3)
    windows, n = data(5), 12
    rows = {(s, c): fields[e] for s, c, e in zip(table["system"], table["case"], table["episode"], strict=True)}
    cases, spoken = sorted(set(table["case"].tolist())), set()
    assert torch.equal(windows.start[:n], windows.start[n:])
    for i in range(n):
        steps = HEADS[windows.actions[i].numpy()]
        assert steps.tolist() in HEADS[chains()].tolist()
        found = [
            (s, c, g)
            for (s, c), field in rows.items()
            for g in range(SYMMETRIES)
            if np.array_equal(transformed(field[[0, 25, 50, 75, 100]], g), windows.context[n + i])
        ]
        (system, case, symmetry) = found[0]
        assert {s for s, _, _ in found} == {system}
        donor = rows[system, cases[(cases.index(case) + 1) % len(cases)]]
        assert any(np.array_equal(transformed(donor[[0, 25, 50, 75, 100]], g), windows.context[i]) for _, _, g in found)
        times = np.concatenate([[0], np.cumsum(steps)])
        wanted = torch.cat([windows.start[i][None], windows.targets[i]]).numpy()
        matches = [
            (c, t)
            for (s, c), field in rows.items()
            for t in range(SMALL.frames - times[-1])
            for _, _, g in found
            if s == system and np.array_equal(transformed(field[t + times], g), wanted)
        ]
        assert matches
        spoken.add((symmetry, matches[0]))
    assert len(spoken) > 6


def test_batches_are_functions_of_seed_and_step_and_stages_begin_again():
    store = store_of()
    table = store.split("train")

    def batch(step: int, **changes):
        return PairedChains(store, table, pairs=3, **changes)(step)

    def same(a, b) -> bool:
        return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))

    data = PairedChains(store, table, pairs=3)
    data(1)
    assert same(data(7), batch(7))
    assert not same(batch(7), batch(8))
    assert not same(batch(7), batch(7, seed=1))
    assert same(batch(7, stages=(5,)), batch(2))
    assert same(batch(5, stages=(5, 9)), batch(0))
    assert same(batch(4, stages=(5,)), batch(4))
    shares = [PairedChains(store, table, pairs=4)] * 1
    parts = [shares[0].shard(rank, 2)(3) for rank in range(2)]
    whole = shares[0](3)
    for column, own in enumerate(whole):
        halves = [part[column].view(2, 2, *part[column].shape[1:]) for part in parts]
        assert torch.equal(torch.cat(halves, dim=1).flatten(0, 1), own)


def test_donors_of_other_systems_change_the_donor_alone():
    store = store_of()
    table = store.split("train")
    options: list[dict[str, Any]] = [{}, {"kernel": Derangement()}]
    own, other = (PairedChains(store, table, pairs=16, **given)(2) for given in options)
    assert torch.equal(own.context[16:], other.context[16:])
    assert torch.equal(own.targets, other.targets)
    # Starts are the same in all systems, and the last frames are not: no donor is of the recipient's system.
    assert not any(torch.equal(a, b) for a, b in zip(own.context[:16, -1], other.context[:16, -1], strict=True))


def test_what_is_refused():
    store = store_of()
    with pytest.raises(ValueError, match=r"donors of fields are drawn by .*; legal: Uniform\(\), Derangement\(\)"):
        PairedChains(store, store.split("train"), kernel="linked")
    table = store.table.select(store.table["split"] != "x")
    uneven = table.select((table["case"] != 50) | (table["k"] != 0.01))
    with pytest.raises(ValueError, match=r"the system 'k=.*' has the cases \[.*\], others \["):
        by_system(uneven)
    one = table.select(table["system"] == "k=0.01 beta=0.20")
    with pytest.raises(ValueError, match="donors of another system need at least 2 systems, got 1"):
        PairedChains(store, one, kernel=Derangement())
