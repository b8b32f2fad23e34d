"""SpringWorld's schedule of pairs, against what the sweeps are by their definition."""

from collections import Counter

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from sprii_envs.banks import Bank
from sprii_envs.relations import SAME_ROLLOUT, SAME_SYSTEM, Derangement, Relation, Uniform
from sprii_train.data import PairedWindows, WindowReader
from sprii_train.recipes import EVERY_RECIPE
from sprii_train.settings import SPRING
from sprii_train.sweeps import SweptWindows, sweeps

PAIRS, LAST = 5, 193 - 96 - 16


def windows_of(bank: Bank, kernel=None, seed: int = 0, pairs: int = PAIRS, law=SweptWindows):
    table = bank.split("train").select(bank.split("train")["kind"] == "forced")
    return law(WindowReader(bank, 96, (1, 4, 16)), table, kernel=kernel or Uniform(), pairs=pairs, seed=seed)


def drawn(data, step: int) -> dict[str, np.ndarray]:
    w, table = data.draw(step), data.table
    first = {s: np.sort(table["episode"][table["system"] == s]) for s in np.unique(table["system"])}
    found = {"recipient_start": w.recipient_start, "donor_start": w.donor_start}
    for name, rows in (("recipient", w.recipient), ("donor", w.donor)):
        found[name] = table["system"][rows]
        episodes = table["episode"][rows]
        found[f"{name}_replicate"] = np.array(
            [np.searchsorted(first[s], e) for s, e in zip(found[name], episodes, strict=True)]
        )
    return found


def test_a_sweep_sees_every_system_once_with_one_pair_of_starts_and_of_replicates(spring_bank: Bank):
    """16 systems in 3 batches of 5; the one over is another in every sweep."""
    data, left = windows_of(spring_bank), []
    for sweep in range(40):
        batches = [drawn(data, 3 * sweep + part) for part in range(3)]
        whole = {name: np.concatenate([b[name] for b in batches]) for name in batches[0]}
        assert len(set(whole["recipient"])) == 15
        assert (whole["donor"] == whole["recipient"]).all()
        for name in ("recipient_start", "donor_start", "recipient_replicate", "donor_replicate"):
            assert len(set(whole[name])) == 1, name
        assert whole["donor_replicate"][0] != whole["recipient_replicate"][0]
        left.append((set(data.table["system"]) - set(whole["recipient"])).pop())
    assert len(set(left)) > 8


def test_starts_and_replicates_are_uniform_over_sweeps(spring_bank: Bank):
    data = windows_of(spring_bank)
    found = [drawn(data, 3 * sweep) for sweep in range(600)]
    for name in ("recipient_start", "donor_start"):
        starts = np.array([f[name][0] for f in found])
        assert (starts.min(), starts.max()) == (0, LAST)
        assert chisquare(np.bincount(starts * 8 // (LAST + 1), minlength=8)[:8]).pvalue > 1e-4
    replicates = Counter((int(f["recipient_replicate"][0]), int(f["donor_replicate"][0])) for f in found)
    assert set(replicates) == {(a, b) for a in range(4) for b in range(4) if a != b}
    assert chisquare(list(replicates.values())).pvalue > 1e-4
    assert (np.diff([f["recipient"].tolist() for f in found], axis=0) != 0).any(1).all()  # another order each time


def test_of_the_random_control_all_systems_are_shifted_alike(spring_bank: Bank):
    data = windows_of(spring_bank, Derangement())
    ids = np.unique(data.table["system"])
    shifts = []
    for step in range(60):
        found = drawn(data, step)
        shift = (np.searchsorted(ids, found["donor"]) - np.searchsorted(ids, found["recipient"])) % len(ids)
        assert len(set(shift)) == 1
        shifts.append(int(shift[0]))
        same = drawn(windows_of(spring_bank), step)
        for name in ("recipient", "recipient_start", "recipient_replicate", "donor_start"):
            assert (found[name] == same[name]).all()  # the control differs in donors alone
    assert 0 not in shifts
    assert len(set(shifts)) > 8


def test_batches_are_what_the_reader_reads_there_and_functions_of_seed_and_step(spring_bank: Bank):
    data = windows_of(spring_bank, seed=3)
    w, windows = data.draw(4), data(4)
    episodes = data.table["episode"][np.concatenate([w.donor, w.recipient])]
    starts = np.concatenate([w.donor_start, w.recipient_start])
    states = spring_bank["states"]
    for row, (episode, start) in enumerate(zip(episodes, starts, strict=True)):
        assert (windows.observations[row].numpy() == states[episode, start : start + 96]).all()
    assert torch.equal(windows.observations, windows_of(spring_bank, seed=3)(4).observations)
    assert not torch.equal(windows.observations, windows_of(spring_bank, seed=4)(4).observations)
    assert data.identity()["sweeps"]
    assert "sweeps" not in windows_of(spring_bank, law=PairedWindows).identity()
    halves = [windows_of(spring_bank, pairs=4).shard(rank, 2)(1).observations for rank in (0, 1)]
    whole = windows_of(spring_bank, pairs=4)(1).observations
    assert torch.equal(torch.cat([halves[0][:2], halves[1][:2], halves[0][2:], halves[1][2:]]), whole)


def test_which_pairings_have_sweeps(spring_bank: Bank):
    assert sweeps(SAME_SYSTEM, Uniform())
    assert sweeps(SAME_SYSTEM, Derangement())
    assert not sweeps(SAME_SYSTEM, Derangement(by="mass"))
    assert not sweeps(SAME_ROLLOUT, Uniform())
    assert not sweeps(Relation(("mass",), ("system",)), Uniform())
    config = SPRING.budget("smoke").learner
    for recipe, law in (("align-cross", SweptWindows), ("align-random", SweptWindows), ("alpha-0.5", PairedWindows)):
        data = SPRING.data(spring_bank, config, EVERY_RECIPE[recipe], pairs=4, seed=0)
        assert type(data) is law
        assert data.reader.still


def test_what_has_no_sweep_is_refused(spring_bank: Bank):
    reader = WindowReader(spring_bank, 96, (1, 4, 16))
    table = spring_bank.split("train")
    with pytest.raises(ValueError, match="sweeps pair episodes of one system"):
        SweptWindows(reader, table.select(table["kind"] == "forced"), relation=Relation(("mass",), ("system",)))
    with pytest.raises(ValueError, match="equally many episodes of one length in every system, got 5 to 5 of 128 to"):
        SweptWindows(reader, table.select(np.isin(table["kind"], ["forced", "moving"])), pairs=4)
    with pytest.raises(ValueError, match="17"):
        windows_of(spring_bank, pairs=17)
