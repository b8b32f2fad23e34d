"""Substitutions through planted readers with known errors, and through a JEPA by a loop."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tiny import JEPA_CONFIG

from sprii_envs.banks import Bank
from sprii_train.analysis.populations import Development
from sprii_train.analysis.theory import specificity
from sprii_train.analysis.use.donor_choice import Choice, choices
from sprii_train.analysis.use.interventions import (
    AMPLITUDES,
    amplitude_sweep,
    case_reader,
    effect,
    intervene,
    learner_reader,
    predict_under,
)
from sprii_train.analysis.use.landscape import grid_errors, valley
from sprii_train.analysis.value.cases import Cases
from sprii_train.learners import JEPA
from sprii_train.protocol import Windows, encode

FACTORS = ("mass", "drag", "stiffness")
NUMBERS = st.floats(-1e2, 1e2, allow_subnormal=False)


def adder(query: torch.Tensor, context: torch.Tensor, actions: Any) -> torch.Tensor:
    """Predicts query + context: with the factors as context and as target beyond the query, the truth."""
    return query + context


@given(arrays(float, (3, 7, 4), elements=NUMBERS), arrays(np.int64, 7, elements=st.integers(0, 2)))
@settings(max_examples=100, deadline=None)
def test_the_decomposition_is_exact(three: np.ndarray, systems: np.ndarray):
    """And of the mean over systems, whatever their numbers of rows."""
    y, m, s = three
    found = effect(y, m, s, systems)
    parts = found.specificity
    size = max(1.0, found.matched.mean() + found.substituted.mean())
    assert abs(parts.sensitivity + parts.cross - found.difference.mean()) <= 1e-10 * size
    rows = [((y - s) ** 2).mean(1) - ((y - m) ** 2).mean(1), ((s - m) ** 2).mean(1)]
    for value, per_row in zip((parts.total, parts.sensitivity), rows, strict=True):
        expected = np.mean([per_row[systems == system].mean() for system in np.unique(systems)])
        assert abs(value - expected) <= 1e-10 * size


def test_the_decomposition_is_the_theorys_where_systems_have_equal_rows():
    y, m, s = np.random.default_rng(0).normal(size=(3, 12, 4))
    found = effect(y, m, s, np.repeat(np.arange(4), 3)).specificity
    for mine, theirs in zip(found, specificity(y, m, s), strict=True):
        assert mine == pytest.approx(theirs / 4)  # a mean over numbers instead of their sum


def test_reliance_that_does_not_pay():
    """A substitute as far from the target as the matched prediction, on the other side."""
    y = np.zeros((4, 2))
    found = effect(y, y + 1.0, y - 1.0, np.arange(4))
    assert found.specificity.total == pytest.approx(0.0)
    assert found.specificity.sensitivity == pytest.approx(4.0)
    assert (found.difference == 0).all()


def test_every_substitution_of_a_reader_that_knows_the_physics(spring: Bank):
    table = spring.split("train")
    contexts = np.stack([table[factor] for factor in FACTORS], axis=1)
    query = np.random.default_rng(0).normal(size=contexts.shape)
    found = choices(table, FACTORS, seed=1)
    effects = intervene(
        adder, torch.tensor(query), torch.tensor(contexts), None, query + contexts, table["system"], found
    )
    assert list(effects) == ["wrong", "wrong mass", "wrong drag", "wrong stiffness", "zero"]
    for name, got in effects.items():
        assert got.systems.tolist() == list(range(27))
        np.testing.assert_allclose(got.matched, 0, atol=1e-12)
        squared = contexts**2 if name == "zero" else (contexts - contexts[found[name].donor]) ** 2
        expected = [squared[table["system"] == system].mean() for system in range(27)]
        np.testing.assert_allclose(got.substituted, expected, rtol=1e-10)
        assert got.specificity.total == pytest.approx(np.mean(expected))
        # A perfect matched prediction leaves no residual: all of the change is sensitivity.
        assert got.specificity.cross == pytest.approx(0.0, abs=1e-9)


def test_a_reader_blind_to_its_context(spring: Bank):
    table = spring.split("train")
    query = torch.randn(len(table), 3)
    effects = intervene(
        lambda q, p, u: q, query, torch.randn(len(table), 2), None, torch.randn(len(table), 3), table["system"],
        choices(table, FACTORS, seed=0),
    )  # fmt: skip
    for got in effects.values():
        assert (got.difference == 0).all()
        assert tuple(got.specificity) == (0.0, 0.0, 0.0)


def test_compares_recipients_that_have_both_donors():
    found = {
        "matched": Choice(np.array([0, 1, 2]), np.array([1, 0, 3]), np.array([3])),
        "some": Choice(np.array([2, 3]), np.array([0, 0]), np.array([0, 1])),
        "none": Choice(np.empty(0, np.int64), np.empty(0, np.int64), np.arange(4)),
    }
    context = torch.tensor([[1.0], [2.0], [3.0], [4.0]])
    effects = intervene(adder, torch.zeros(4, 1), context, None, np.zeros((4, 1)), np.arange(4), found)
    assert list(effects) == ["some", "zero"]
    assert effects["some"].systems.tolist() == [2]
    assert effects["some"].matched.tolist() == [16.0]
    assert effects["some"].substituted.tolist() == [1.0]
    assert effects["zero"].systems.tolist() == [0, 1, 2]
    assert effects["zero"].matched.tolist() == [4.0, 1.0, 16.0]
    with pytest.raises(ValueError, match="compared with 'matched' donors; given were some"):
        intervene(adder, torch.zeros(4, 1), context, None, np.zeros((4, 1)), np.arange(4), {"some": found["some"]})


def test_amplitudes_in_closed_form():
    """Own context p = y: (1 − s)²y². Another's p = −y: (1 + s)²y²."""
    y = np.random.default_rng(0).normal(size=(6, 3))
    systems = np.array([0, 0, 1, 1, 1, 2])
    zero = torch.zeros(6, 3, dtype=torch.float64)
    mean = np.array([(y[systems == s] ** 2).mean() for s in range(3)])
    own = amplitude_sweep(adder, zero, torch.tensor(y), None, y, systems)
    cross = amplitude_sweep(adder, zero, -torch.tensor(y), None, y, systems)
    s = np.array(AMPLITUDES)[:, None]
    np.testing.assert_allclose(own, (1 - s) ** 2 * mean, atol=1e-12)
    np.testing.assert_allclose(cross, (1 + s) ** 2 * mean)
    assert (own[0] == cross[0]).all()


def test_several_contexts_a_recipient():
    """Structures of tensors are repeated with their recipient, in chunks of any size."""
    query = {"a": torch.arange(3.0)[:, None], "b": (torch.arange(3.0),)}
    contexts, actions = torch.randn(3, 4, 1), torch.arange(3.0)[:, None] * 100

    def read(q: Any, p: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        return (q["a"] + 10 * q["b"][0][:, None] + p + u)[:, :, None]

    found = predict_under(read, query, contexts, actions)
    assert found.shape == (3, 4, 1, 1)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found[..., 0, 0], 111 * np.arange(3.0)[:, None] + contexts[..., 0].numpy(), rtol=1e-6)
    assert (predict_under(read, query, contexts, actions, chunk=5) == found).all()


def test_a_landscape_of_a_planted_reader():
    """Donor codes are the levels; the reader multiplies them by 2: depth 4·5 in place of the truth's 5."""
    levels = torch.arange(5.0, dtype=torch.float64).expand(7, 5)[..., None]
    predicted = predict_under(lambda q, p, u: q + 2 * p, torch.zeros(7, 1, dtype=torch.float64), levels, None)
    truth = 2 * levels.numpy()
    assert valley(grid_errors(predicted, truth)).depth == pytest.approx(20.0)


def test_any_learner(windows: Windows):
    learner = JEPA(JEPA_CONFIG)
    batch = learner.prepare(windows)
    learner.eval()
    with torch.no_grad():
        batch = learner.prepare(windows)
        codes = encode(learner, batch)
    learner.train()
    contexts = torch.stack([codes.z_p, codes.z_p.roll(1, 0)], dim=1)
    found = predict_under(learner_reader(learner), codes.z_s, contexts, batch.u)
    assert not learner.training
    assert found.shape == (16, 2, 2, 8)
    with torch.no_grad():
        for i in range(16):
            for j, donor in enumerate((i, i - 1)):
                one = learner.predict(codes.z_s[[i]], codes.z_p[[donor]], batch.u[[i]])[0]
                np.testing.assert_allclose(found[i, j], one.numpy(), atol=1e-5)
    last = predict_under(learner_reader(learner, horizon=-1), codes.z_s, contexts, batch.u)
    np.testing.assert_allclose(last, found[:, :, -1], atol=1e-6)
    # The errors are the learner's own.
    losses = learner.horizon_losses(torch.tensor(found[:, 0]), batch.y).numpy()
    got = effect(batch.y[:, -1], last[:, 0], last[:, 1], np.arange(16))
    np.testing.assert_allclose(got.matched, losses[:, -1], rtol=1e-4)


def test_a_fitted_task_reader():
    """A predictor of cases: increments that are the sum of its query's and its context's entries."""

    class Sums:
        def predict(self, cases: Cases[Any]) -> np.ndarray:
            assert cases.context is not None
            total = (cases.query.sum(1) + cases.context.sum(1))[:, None, None]
            return np.broadcast_to(total, (len(cases), 2, 3)) * np.array([1.0, 10.0])[:, None]

    rng = np.random.default_rng(0)
    query, context = rng.normal(size=(2, 4, 5))
    cases = Cases(
        Development("validation"), np.arange(4), query, context, {}, np.zeros((4, 8, 2)), np.zeros((4, 2, 3)), (1, 8)
    )
    donors = torch.tensor(rng.normal(size=(4, 3, 5)))
    found = predict_under(case_reader(Sums(), cases), torch.arange(4), donors, None)
    assert found.shape == (4, 3, 2, 3)
    np.testing.assert_allclose(found[:, :, 0, 0], query.sum(1)[:, None] + donors.sum(2).numpy())
    last = predict_under(case_reader(Sums(), cases, horizon=-1), torch.arange(4), donors, None)
    np.testing.assert_allclose(last, found[:, :, 1])


def test_refuses_other_shapes():
    y = np.zeros((4, 2))
    with pytest.raises(ValueError, match="must have one shape"):
        effect(y, y, y[:, :1], np.arange(4))
    with pytest.raises(ValueError, match=r"systems must be ids \(4,\)"):
        effect(y, y, y, np.arange(3))
    with pytest.raises(ValueError, match="finite"):
        effect(y, y, y * np.nan, np.arange(4))
