"""Windows against a naive reader, and who is paired with whom, recovered from the numbers in the batch."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from tiny import HISTORY, HORIZONS, naive_windows

from sprii_envs.banks import Bank, BankError
from sprii_train.data import PairedWindows, WindowReader
from sprii_train.protocol import Windows
from sprii_train.recipes import RECIPES

LAST = 20 - HISTORY - HORIZONS[-1]


def assert_equal(a: Windows, b: Windows) -> None:
    for name in Windows._fields:
        x, y = getattr(a, name), getattr(b, name)
        assert (x is None) == (y is None), name
        if x is not None:
            assert x.dtype == y.dtype == torch.float32
            assert torch.equal(x, y), name


def origin(bank: Bank, windows: Windows) -> tuple[np.ndarray, np.ndarray]:
    """Episode and start of each window, found by looking for its first and last observation in the bank."""
    states = np.asarray(bank["states"], dtype=np.float32)
    episodes, starts = [], []
    for observations in windows.observations.numpy():
        hits = np.argwhere((states == observations[0]).all(-1))
        assert len(hits) == 1
        episode, start = hits[0]
        assert (states[episode, start + HISTORY - 1] == observations[-1]).all()
        episodes.append(episode)
        starts.append(start)
    return np.array(episodes), np.array(starts)


def test_reader_equals_the_naive_one(bank: Bank):
    rng = np.random.default_rng(0)
    episodes, starts = rng.integers(0, 88, 30), rng.integers(0, LAST + 1, 30)
    reader = WindowReader(bank, HISTORY, HORIZONS, properties=("drag",))
    assert_equal(reader.read(episodes, starts), naive_windows(bank, episodes, starts))
    without = WindowReader(bank, HISTORY, HORIZONS).read(episodes, starts)
    assert_equal(without, naive_windows(bank, episodes, starts)._replace(labels=None))
    with pytest.raises(BankError):
        reader.read(np.array([0]), np.array([LAST + 1]))


def test_labels_are_standardised_by_training_systems_only(bank: Bank):
    reader = WindowReader(bank, HISTORY, HORIZONS, properties=("drag",))
    train = reader.read(np.arange(48), np.zeros(48, np.int64)).labels
    assert train is not None
    assert train.shape == (48, 1)
    assert float(train.double().mean()) == pytest.approx(0.0, abs=1e-6)
    assert float(train.double().std(correction=0)) == pytest.approx(1.0, abs=1e-6)
    rest = reader.read(np.arange(48, 88), np.zeros(40, np.int64)).labels
    assert rest is not None
    assert abs(float(rest.mean())) > 1e-3
    drag = bank.table["drag"]
    slope = np.polyfit(drag, np.concatenate([train, rest])[:, 0], 1)
    np.testing.assert_allclose(slope, [1 / drag[:48].std(), -drag[:48].mean() / drag[:48].std()], rtol=1e-4)


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("split", ["train", "test"])
def test_pairs_obey_the_relation(bank: Bank, name: str, split: str):
    recipe, pairs = RECIPES[name], 6
    data = PairedWindows(
        WindowReader(bank, HISTORY, HORIZONS),
        split,
        relation=recipe.relation,
        kernel=recipe.kernel,
        pairs=pairs,
        seed=2,
    )
    legal = np.flatnonzero(bank.table["split"] == split)
    seen = set()
    for step in range(12):
        windows = data(step)
        episodes, starts = origin(bank, windows)
        assert_equal(windows, naive_windows(bank, episodes, starts)._replace(labels=None))
        assert np.isin(episodes, legal).all()
        assert ((starts >= 0) & (starts <= LAST)).all()
        donor, recipient = episodes[:pairs], episodes[pairs:]
        assert len(set(recipient // 4)) == pairs  # distinct systems
        if name == "same-rollout":
            assert (donor == recipient).all()
            assert (starts[:pairs] + HISTORY <= starts[pairs:]).all()
        elif name == "align-random":
            assert (donor // 4 != recipient // 4).all()
            assert sorted(donor // 4) == sorted(recipient // 4)
        else:
            assert (donor // 4 == recipient // 4).all()
            assert (donor != recipient).all()
        seen |= set(zip(recipient.tolist(), starts[pairs:].tolist(), strict=True))
    assert len(seen) > 45  # of 72 draws


def test_batches_are_a_pure_function_of_seed_and_step(bank: Bank):
    reader = WindowReader(bank, HISTORY, HORIZONS, properties=("drag",))
    one, two = PairedWindows(reader, pairs=6, seed=1), PairedWindows(reader, pairs=6, seed=1)
    forward = [one(step) for step in range(5)]
    torch.manual_seed(99)
    for step in (4, 0, 3, 3, 1, 2):
        assert_equal(two(step), forward[step])
    for a, b in pairwise(forward):
        assert not torch.equal(a.observations, b.observations)
    assert not torch.equal(PairedWindows(reader, pairs=6, seed=2)(0).observations, forward[0].observations)


def test_arms_see_the_same_recipients(bank: Bank):
    """Random exchanges donors between the pairs of a batch and leaves the recipients alone."""
    reader = WindowReader(bank, HISTORY, HORIZONS)
    arms = [RECIPES[name] for name in ("align", "align-random")]
    for step in range(4):
        batches = [PairedWindows(reader, relation=a.relation, kernel=a.kernel, pairs=6, seed=3)(step) for a in arms]
        (related, _), (random, _) = (origin(bank, b) for b in batches)
        assert (related[6:] == random[6:]).all()
        assert sorted(related[:6]) == sorted(random[:6])
        assert torch.equal(batches[0].observations[6:], batches[1].observations[6:])
