"""Donor errors of toy learners whose error is known in closed form, and of a JEPA by a brute-force loop."""

import math

import numpy as np
import pytest
import torch
from tiny import HISTORY, HORIZONS, JEPA_CONFIG, Plain, naive_windows

from sprii_envs.banks import ArrayStore, Bank
from sprii_envs.relations import EpisodeTable, WindowSampler
from sprii_train.analysis.donors import donor_errors, donor_pairs, encode_split
from sprii_train.data import WindowReader
from sprii_train.learners import JEPA
from sprii_train.learners.fcrl import FCRL, FCRLConfig
from sprii_train.protocol import Batch, Codes, MissingOperation, Windows


class Oracle:
    """z_p is the standardised label, plus a multiple of the window's first coordinate; it predicts z_p.

    The target is the label. Horizon k reports (k + 1)·(z_p − y)²: zero for the system's own label,
    (g_i − g_j)² for another's.
    """

    def __init__(self, offset: float = 0.0) -> None:
        self.offset = offset

    def prepare(self, windows: Windows) -> Batch:
        assert windows.labels is not None
        own = windows.labels + self.offset * windows.observations[:, 0, :1]
        return Batch(own, windows.observations[:, -1], windows.future_actions, windows.labels)

    def encode_history(self, history):
        return history

    def encode_current(self, current):
        return current

    def predict(self, z_s, z_p, u):
        return z_p

    def horizon_losses(self, prediction, y):
        return (prediction - y).square() * torch.tensor([1.0, 2.0])


@pytest.fixture(scope="module")
def reader(bank: Bank) -> WindowReader:
    return WindowReader(bank, HISTORY, HORIZONS, properties=("drag",))


def test_encode_split_is_one_window_an_episode(bank: Bank, reader: WindowReader):
    learner = JEPA(JEPA_CONFIG).eval()
    encoded = encode_split(learner, reader, "test", seed=4)
    episodes = np.flatnonzero(bank.table["split"] == "test")
    assert (encoded.table["episode"] == episodes).all()
    starts = WindowSampler(encoded.table, HISTORY, HORIZONS[-1]).starts(np.arange(24), seed=4)
    assert len(set(starts.tolist())) > 3
    with torch.no_grad():
        batch = learner.prepare(naive_windows(bank, episodes, starts))
        torch.testing.assert_close(encoded.codes.z_p, learner.encode_history(batch.history))
        torch.testing.assert_close(encoded.codes.z_s, learner.encode_current(batch.current))
    torch.testing.assert_close(encoded.y, batch.y)
    assert torch.equal(encoded.u, batch.u)
    for a, b in zip(encode_split(learner, reader, "test", seed=4, chunk=7).codes, encoded.codes, strict=True):
        torch.testing.assert_close(a, b)
    assert not torch.equal(encode_split(learner, reader, "test", seed=5).codes.z_p, encoded.codes.z_p)


def test_oracle(bank: Bank, reader: WindowReader):
    """Own and correct: 0. Shuffled: the mean of (g_i − g_j)² over i ≠ j, within five standard errors."""
    encoded = encode_split(Oracle(), reader, "test", seed=0)
    every = [donor_errors(Oracle(), encoded, seed=seed) for seed in range(500)]
    got = every[0]
    assert got.own.tolist() == [0.0, 0.0]
    assert got.correct.tolist() == [0.0, 0.0]
    drag = bank.table["drag"]
    g = ((drag - drag[:48].mean()) / drag[:48].std())[64::4]  # one row of each test system
    assert len(g) == 6
    squared = [(a - b) ** 2 for i, a in enumerate(g) for j, b in enumerate(g) if i != j]
    shuffled = np.array([each.shuffled[0] for each in every])
    error = 5 * float(np.std(shuffled)) / math.sqrt(len(every))
    assert shuffled.mean() == pytest.approx(np.mean(squared), abs=error)
    assert got.shuffled[1] == pytest.approx(2 * got.shuffled[0])
    assert shuffled.mean() > 5 * error


def test_errors_of_a_window_dependent_code(reader: WindowReader):
    """Own and correct: the mean offset² of all 24 windows, for each is a correct donor three times."""
    learner = Oracle(offset=0.5)
    encoded = encode_split(learner, reader, "test", seed=0)
    got = donor_errors(learner, encoded, seed=1)
    offsets = (encoded.codes.z_p - encoded.y).double().square()
    assert got.own[0] == pytest.approx(float(offsets.mean()), rel=1e-6)
    assert got.correct[0] == pytest.approx(float(offsets.mean()), rel=1e-6)


def test_equals_a_loop_over_pairs(reader: WindowReader):
    learner = JEPA(JEPA_CONFIG).eval()
    encoded = encode_split(learner, reader, "test", seed=0)
    got = donor_errors(learner, encoded, seed=3)
    assert got.own.dtype == np.float64

    def error(recipient: int, donor: int) -> np.ndarray:
        with torch.no_grad():
            prediction = learner.predict(
                encoded.codes.z_s[[recipient]], encoded.codes.z_p[[donor]], encoded.u[[recipient]]
            )
        return ((prediction - encoded.y[[recipient]]) ** 2).mean(-1)[0].numpy()

    systems = encoded.table["system"]
    same = [(i, j) for i in range(24) for j in range(24) if systems[i] == systems[j] and i != j]
    np.testing.assert_allclose(got.own, np.mean([error(i, i) for i in range(24)], axis=0), rtol=1e-5)
    np.testing.assert_allclose(got.correct, np.mean([error(*pair) for pair in same], axis=0), rtol=1e-5)
    recipient, _, shuffled = donor_pairs(systems, 3)
    other = [error(*pair) for pair in zip(recipient, shuffled, strict=True)]
    np.testing.assert_allclose(got.shuffled, np.mean(other, axis=0), rtol=1e-5)


def test_every_pair_of_a_system_is_met_once_and_marginals_agree():
    """Of 5 systems with 4 episodes in any order: all 60 ordered pairs, and shuffled donors as often as correct ones."""
    systems = np.random.default_rng(0).permutation(np.repeat([3, 7, 8, 20, 41], 4))
    recipient, correct, shuffled = donor_pairs(systems, 6)
    pairs = {(int(r), int(d)) for r, d in zip(recipient, correct, strict=True)}
    assert pairs == {(i, j) for i in range(20) for j in range(20) if systems[i] == systems[j] and i != j}
    assert len(recipient) == 60
    assert (systems[recipient] != systems[shuffled]).all()
    for rows in (recipient, correct, shuffled):
        assert (np.bincount(rows) == 3).all()
    assert not np.array_equal(shuffled, donor_pairs(systems, 7)[2])


def test_systems_weigh_equally_whatever_their_episodes(reader: WindowReader):
    learner = Oracle(offset=0.5)
    encoded = encode_split(learner, reader, "test", seed=0)
    kept = np.flatnonzero(np.arange(24) % 4 < np.where(encoded.table["system"] % 2, 2, 4))
    table, codes = encoded.table.select(kept), Codes(*(code[kept] for code in encoded.codes[:2]))
    fewer = encoded._replace(table=table, codes=codes, u=encoded.u[kept], y=encoded.y[kept])
    offsets = (codes.z_p - fewer.y).double().square().numpy()[:, 0]
    by_system = [offsets[table["system"] == system].mean() for system in np.unique(table["system"])]
    got = donor_errors(learner, fewer, seed=0)
    assert got.own[0] == pytest.approx(np.mean(by_system), rel=1e-6)
    assert got.correct[0] == pytest.approx(np.mean(by_system), rel=1e-6)


@pytest.mark.parametrize("systems", [[1, 1, 1], [1, 1, 2]])
def test_too_few_episodes_are_refused(systems: list[int]):
    with pytest.raises(ValueError, match="donors need >= 2 systems of >= 2 episodes each, got"):
        donor_pairs(np.array(systems), 0)


def test_pure_function_of_the_seed(reader: WindowReader):
    learner = JEPA(JEPA_CONFIG).eval()
    encoded = encode_split(learner, reader, "test", seed=0)
    first = donor_errors(learner, encoded, seed=3)
    torch.manual_seed(5)
    for a, b in zip(first, donor_errors(learner, encoded, seed=3), strict=True):
        assert (a == b).all()
    other = donor_errors(learner, encoded, seed=4)
    assert (other.own == first.own).all()
    assert (other.shuffled != first.shuffled).all()


def test_a_learner_without_losses_by_horizon_has_its_task_loss(reader: WindowReader):
    """One number in place of one a horizon, by hand over all windows and pairs."""
    learner = Plain()
    encoded = encode_split(learner, reader, "test", seed=0)
    got = donor_errors(learner, encoded, seed=3)
    assert [len(errors) for errors in got] == [1, 1, 1]

    def error(recipient: int, donor: int) -> float:
        z_s, z_p, u = encoded.codes.z_s[[recipient]], encoded.codes.z_p[[donor]], encoded.u[[recipient]]
        with torch.no_grad():
            return float(learner.task_loss(learner.predict(z_s, z_p, u), encoded.y[[recipient]]))

    assert got.own[0] == pytest.approx(np.mean([error(i, i) for i in range(24)]), rel=1e-5)
    recipient, _, shuffled = donor_pairs(encoded.table["system"], 3)
    pairs = zip(recipient, shuffled, strict=True)
    assert got.shuffled[0] == pytest.approx(np.mean([error(int(r), int(d)) for r, d in pairs]), rel=1e-5)


class OfStreams:
    """Reads mappings of streams, and keeps mappings in its batches; z_p is the first touch, z_s the last joint."""

    def prepare(self, windows: Windows) -> Batch:
        seen, future = windows.observations, windows.future_observations
        current = {name: stream[:, -1] for name, stream in seen.items()}
        return Batch(seen, current, {"actions": windows.future_actions}, future)

    def encode_history(self, history):
        return history["touch"][:, 0]

    def encode_current(self, current):
        return current["joints"]

    def predict(self, z_s, z_p, u):
        return {"touch": z_p, "joints": z_s + u["actions"].sum((1, 2))[:, None]}

    def task_loss(self, prediction, y):
        touch = (prediction["touch"][:, None] - y["touch"]).square().mean((1, 2))
        return touch + (prediction["joints"][:, None] - y["joints"]).square().mean((1, 2))


def test_observations_and_batches_that_are_mappings():
    """Chunks are joined key by key, and rows taken of every one."""
    rng, episodes, length = np.random.default_rng(0), 12, 20
    table = EpisodeTable(
        {"episode": np.arange(episodes), "system": np.arange(episodes) // 3, "rollout": np.arange(episodes) % 3,
         "length": np.full(episodes, length)}
    )  # fmt: skip
    arrays = {
        "touch": rng.standard_normal((episodes, length, 4)),
        "joints": rng.standard_normal((episodes, length, 2)),
        "actions": rng.standard_normal((episodes, length - 1, 1)),
    }
    reader = WindowReader(ArrayStore(table, arrays), HISTORY, HORIZONS, observation=("touch", "joints"))
    learner = OfStreams()
    encoded = encode_split(learner, reader, "train", seed=4, chunk=5)
    starts = WindowSampler(table, HISTORY, HORIZONS[-1]).starts(np.arange(episodes), seed=4)
    rows, now = np.arange(episodes), starts + HISTORY - 1
    np.testing.assert_allclose(encoded.codes.z_p, arrays["touch"][rows, starts], rtol=1e-6)
    np.testing.assert_allclose(encoded.codes.z_s, arrays["joints"][rows, now], rtol=1e-6)
    assert encoded.y.keys() == {"touch", "joints"}
    for name, stream in encoded.y.items():
        np.testing.assert_allclose(stream, arrays[name][rows[:, None], now[:, None] + HORIZONS], rtol=1e-6)
    got = donor_errors(learner, encoded, seed=1)

    def error(recipient: int, donor: int) -> float:
        ahead = now[recipient] + np.array(HORIZONS)
        moved = arrays["actions"][recipient, now[recipient] : now[recipient] + HORIZONS[-1]].sum()
        touch = arrays["touch"][donor, starts[donor]] - arrays["touch"][recipient, ahead]
        joints = arrays["joints"][recipient, now[recipient]] + moved - arrays["joints"][recipient, ahead]
        return float((touch**2).mean() + (joints**2).mean())

    assert got.own[0] == pytest.approx(np.mean([error(i, i) for i in range(episodes)]), rel=1e-5)
    pairs = [(i, j) for i in rows for j in rows if i // 3 == j // 3 and i != j]
    assert got.correct[0] == pytest.approx(np.mean([error(int(r), int(d)) for r, d in pairs]), rel=1e-5)


def test_a_loss_of_a_batch_is_no_error_of_a_window(bank):
    """FCRL's would be of whichever episodes are encoded at once."""
    learner = FCRL(FCRLConfig(history=6))
    encoded = encode_split(learner, WindowReader(bank, 6, (1, 3)), "test", seed=0)
    with pytest.raises(MissingOperation, match="FCRL contrasts the histories of a batch"):
        donor_errors(learner, encoded, seed=0)
