"""Probes and donors of planted models: known errors, and which history each prediction was given."""

import numpy as np
import pytest
import torch
from linear_world import collect, rollout
from torch import Tensor

from sprii_train.analysis.populations import Development
from sprii_train.control.assay import context_probes, context_sample, donor_errors
from sprii_train.control.experience import Experience
from sprii_train.learners.histories import History

K = 4


class Knowing:
    """Reads gain and drift off a history, and predicts the linear world with a share of what the drift tells."""

    def __init__(self, use: float = 1.0) -> None:
        self.history, self.use = K, use

    def context(self, history: History) -> Tensor:
        gain = (history.differences[:, :, 0] * history.actions[:, :, 0]).mean(1)
        return torch.stack([gain, history.differences[:, :, 1].mean(1)], 1)

    def step(self, observation: Tensor, action: Tensor, context: Tensor) -> Tensor:
        return observation + torch.stack([context[:, 0] * action[:, 0], self.use * context[:, 1]], 1)


class Watching(Knowing):
    """Its context is the history itself; it remembers what it was asked to predict from."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[Tensor, Tensor]] = []

    def context(self, history: History) -> Tensor:
        assert (history.filled == K).all()
        return torch.cat([history.differences.flatten(1), history.actions.flatten(1)], 1)

    def step(self, observation: Tensor, action: Tensor, context: Tensor) -> Tensor:
        self.asked.append((observation, context))
        return observation


def two_systems(drifts: tuple[float, float], episodes: int = 3, steps: int = 20) -> Experience:
    """Episodes of two systems of one gain."""
    rng, store = np.random.default_rng(0), Experience(2, 1, ("gain", "length"))
    length = np.repeat(drifts, episodes)
    gain = np.full_like(length, 0.7)
    actions = rng.choice([-1.0, 1.0], (2 * episodes, steps, 1))
    states = rollout(rng.normal(size=(2 * episodes, 2)), actions, gain, length)
    store.add(states, actions, np.repeat(["a", "b"], episodes), np.stack([gain, length], 1))
    return store


@pytest.mark.parametrize("use", [1.0, 0.25, 0.0])
def test_planted_donor_errors(use: float):
    """After h steps the right context is off by (1 − use)·h·drift, the wrong one by h·(drift − use·other drift)."""
    found = donor_errors(Knowing(use), two_systems((0.2, 0.5)), horizon=6, rounds=5)
    h = np.arange(1, 7)
    right = np.mean([(h * (1 - use) * d) ** 2 for d in (0.2, 0.5)], 0) / 2  # the other of two coordinates has no error
    wrong = np.mean([(h * (d - use * e)) ** 2 for d, e in ((0.2, 0.5), (0.5, 0.2))], 0) / 2
    np.testing.assert_allclose(found.own, right, rtol=1e-4, atol=1e-9)
    np.testing.assert_allclose(found.matched, right, rtol=1e-4, atol=1e-9)
    np.testing.assert_allclose(found.wrong, wrong, rtol=1e-4, atol=1e-9)
    assert found.pairs == 10
    assert found.matched_last == found.matched[-1]
    assert found.wrong_minus_matched == pytest.approx(wrong[-1] - right[-1], rel=1e-4, abs=1e-9)
    assert found.own.dtype == np.float64


def test_which_history_is_given():
    """Looked up in the log: own ends where prediction begins, matched is another episode's, wrong another system's."""
    rng, bank, model = np.random.default_rng(0), Experience(2, 1, ("gain",)), Watching()
    systems = np.arange(12) % 4  # nothing recurs, so that a history says where it is from
    bank.add(rng.normal(size=(12, 17, 2)), rng.normal(size=(12, 16, 1)), [f"s{i}" for i in systems], systems[:, None])
    donor_errors(model, bank, horizon=3, rounds=4)
    states, histories = {}, {}
    for e in range(len(bank)):
        observations, actions = (x[0] for x in bank.windows(np.array([e]), np.array([0]), 17))
        for t in range(17):
            states[observations[t].tobytes()] = (e, t)
            if t >= K:
                key = np.concatenate([np.diff(observations[t - K : t + 1], axis=0).ravel(), actions[t - K : t].ravel()])
                histories[key.tobytes()] = (e, t)
    own, matched, wrong = (model.asked[i] for i in (0, 3, 6))
    assert len(model.asked) == 9
    assert torch.equal(own[0], matched[0])
    assert torch.equal(own[0], wrong[0])
    begins = [states[x.tobytes()] for x in own[0].numpy()]
    given = [[histories[x.tobytes()] for x in context.numpy()] for _, context in (own, matched, wrong)]
    assert given[0] == begins
    assert all(K <= t <= 16 - 3 for _, t in begins)
    for (e, _), (d, _), (w, _) in zip(begins, given[1], given[2], strict=True):
        assert bank.systems[d] == bank.systems[e]
        assert d != e
        assert bank.systems[w] != bank.systems[e]
    assert sorted(given[1]) == sorted(given[2])
    assert len(set(begins)) > 8
    for i in range(4):  # every round has a recipient of each system
        assert len({bank.systems[e] for e, _ in begins[4 * i : 4 * i + 4]}) == 4


def test_donor_errors_are_a_function_of_the_seed():
    bank = collect([0, 1, 2, 3] * 3, 16)
    a, b, c = (donor_errors(Knowing(0.5), bank, rounds=3, seed=s) for s in (0, 0, 1))
    assert all(np.array_equal(x, y) for x, y in zip(a[:3], b[:3], strict=True))
    assert not np.array_equal(a.wrong, c.wrong)


def test_donor_errors_refuse_small_banks():
    with pytest.raises(ValueError, match="needs 2 systems of 2 or more episodes; the bank has 1 of 2"):
        donor_errors(Knowing(), collect([0, 0, 1], 16))
    with pytest.raises(ValueError, match=r"history 5 \+ horizon 10 needs episodes of at least 15 observations"):
        donor_errors(Knowing(), collect([0, 0, 1, 1], 13))


def test_planted_probes():
    """A context that is the properties is read to the last digits; one that lacks a property does not tell it."""
    train, held_out = collect(list(range(40)) * 2, 10), collect(list(range(50, 70)), 10)
    found = context_probes(Knowing(), train, held_out, windows=3)
    assert list(found) == ["gain", "length"]
    for name, column in (("gain", 0), ("length", 1)):
        assert found[name].r2 > 0.9999
        assert (found[name].truth == np.repeat(held_out.properties[:, column], 3)).all()
    drift_only = Knowing()
    drift_only.context = lambda history: Knowing().context(history)[:, 1:]  # type: ignore[method-assign]
    half = context_probes(drift_only, train, held_out)
    assert half["length"].r2 > 0.9999
    assert half["gain"].r2 < 0.3


def test_sample_spans_the_episode():
    bank, model = collect([0, 1], 10), Watching()
    sample = context_sample(model, bank, Development("d"), windows=4)
    for i, (e, start) in enumerate((e, s) for e in (0, 1) for s in (0, 2, 4, 6)):
        observations, actions = bank.windows(np.array([e]), np.array([start]), K + 1)
        expected = np.concatenate([np.diff(observations[0], axis=0).ravel(), actions.ravel()])
        np.testing.assert_allclose(sample.codes[i], expected)
        assert sample.systems[i] == bank.systems[e]
        assert sample.factors["length"][i] == bank.properties[e, 1]
    assert sample.rollouts is not None
    assert sample.rollouts.tolist() == [0] * 4 + [1] * 4


def test_probes_want_other_systems():
    with pytest.raises(
        ValueError, match="1 systems are in both banks, such as 'system-3'; legal: held-out systems only"
    ):
        context_probes(Knowing(), collect([0, 1, 3], 10), collect([3, 4], 10))
