"""Errors of an operator, case by case and as released; probes of codes that hold a property, or nothing of it."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sprii_envs.banks import Store
from sprii_train.fields import errors, probes
from sprii_train.fields.windows import FieldWindows, following
from sprii_train.protocol import Batch


class Decay(nn.Module):
    """û(t) = u(0)·(1 − z·t), z the largest value of the condition's last frame."""

    def __init__(self) -> None:
        super().__init__()
        self.rate = nn.Parameter(torch.ones(1))

    def prepare(self, windows: FieldWindows) -> Batch:
        return Batch(windows.conditions, windows.fields[:, 0], None, windows.fields.flatten(1))

    def encode_history(self, history: Tensor) -> Tensor:
        return history[:, -1].amax(1, keepdim=True) * self.rate

    def encode_current(self, current: Tensor) -> Tensor:
        return current

    def predict(self, z_s: Tensor, z_p: Tensor, u: None) -> Tensor:
        t = torch.linspace(0, 1, 9)
        return (z_s[:, None] * (1 - z_p[..., None] * t[:, None])).flatten(1)


def by_hand(bank: Store, table, row: int, code: float) -> tuple[np.ndarray, np.ndarray]:
    truth = bank.windows("field", table["episode"][[row]], [0], 9)[0].astype(np.float64)
    return np.stack([truth[0] * (1 - code * k / 8) for k in range(9)]), truth


def test_errors_by_case_are_those_of_one_case_at_a_time(field_bank: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(errors, "CHUNK", 5)
    table, learner = field_bank.split("id_test"), Decay()
    codes = errors.codes_of(learner, field_bank, table)
    whole = errors.case_errors(learner, field_bank, table, codes)
    middle = errors.case_errors(learner, field_bank, table, codes, frame=4)
    relative = errors.case_errors(learner, field_bank, table, codes, frame=4, relative=True)
    for row in range(len(table)):
        last = field_bank.windows("field", table["episode"][[row]], [8], 1)[0, 0]
        assert codes[row, 0] == pytest.approx(last.max())
        predicted, truth = by_hand(field_bank, table, row, codes[row, 0])
        assert whole[row] == pytest.approx(np.mean((predicted - truth) ** 2), rel=1e-4)
        assert middle[row] == pytest.approx(np.mean((predicted[4] - truth[4]) ** 2), rel=1e-4)
        norm = np.linalg.norm(predicted[4] - truth[4]) / np.linalg.norm(truth[4])
        assert relative[row] == pytest.approx(norm, rel=1e-4)
    still = errors.case_errors(learner, field_bank, table, np.zeros_like(codes))
    np.testing.assert_allclose(errors.still_errors(field_bank, table), still, rtol=1e-5)
    released = np.mean([part.mean() for part in np.split(_conditioned(learner, field_bank, table), [8, 16])])
    assert errors.conditioned_error(learner, field_bank, table) == pytest.approx(released)


def _conditioned(learner: Decay, bank: Store, table) -> np.ndarray:
    codes = errors.codes_of(learner, bank, table)
    return errors.case_errors(learner, bank, table, codes[following(table)])


def test_the_mean_of_batches_weighs_a_smaller_last_one_as_much():
    values = np.arange(10.0)
    assert errors.batch_mean(values) == (np.mean(values[:8]) + np.mean(values[8:])) / 2
    assert errors.batch_mean(values[:8]) == values[:8].mean()


def test_a_code_that_is_the_viscosity_is_read_perfectly_and_shuffled_labels_not_at_all(field_bank: Store):
    train, test = field_bank.split("train"), field_bank.split("id_test")
    nu, unseen = train["viscosity"], test["viscosity"]
    oracle = probes.fit_probe(nu[:, None], nu, train["case"])
    assert probes.probe_score(oracle, unseen[:, None], unseen) == pytest.approx(1.0, abs=1e-6)
    blind = probes.fit_probe(nu[:, None], probes.shuffled(nu), train["case"])
    assert probes.probe_score(blind, unseen[:, None], unseen) < 0.3  # of 36 rows a shuffle may keep a little
    noise = np.random.default_rng(1).normal(size=(len(nu), 1))
    nothing = probes.fit_probe(noise, nu, train["case"])
    assert probes.probe_score(nothing, noise[: len(unseen)], unseen) < 0.1
    assert np.isnan(probes.probe_score(oracle, np.zeros((3, 1)), np.zeros(3)))


def test_the_penalty_is_chosen_over_whole_cases():
    """Codes that tell cases apart and nothing else: folds that split cases would find them worth fitting."""
    rng = np.random.default_rng(0)
    cases = np.repeat(np.arange(20), 5)
    identity = rng.normal(size=(20, 15))[cases]
    values = rng.normal(size=20)[cases]
    assert probes.fit_probe(identity, values, cases).best_params_["ridge__alpha"] > 100.0
    assert probes.fit_probe(identity, values, rng.permutation(cases)).best_params_["ridge__alpha"] < 10.0


def test_between_within_of_codes_by_hand():
    fitted = np.array([[0.0], [2.0], [4.0], [6.0]])
    codes, systems = np.array([[1.0], [3.0], [7.0], [9.0]]), np.array(["a", "a", "b", "b"])
    # One SD of the training codes is √5, in which both mean squared distances are told; it cancels.
    assert probes.separation(fitted, codes, systems) == pytest.approx((8.0 - 2.0) ** 2 / (3.0 - 1.0) ** 2)
    assert probes.separation(fitted, np.ones((4, 1)), systems) == 0.0
