"""Refinement and Proposition 3 against plain differences, optimisers that know nothing of eigenvalues, and samplers."""

import numpy as np
import pytest
from scipy.optimize import minimize
from theory_bank import Z, draw, make_bank

from sprii_envs.relations import EpisodeTable, PairSampler, Relation
from sprii_train.analysis.theory import (
    covariances,
    crossing,
    disagreement,
    expected_disagreement,
    fit_reference,
    refinement,
    select,
    selection_matrix,
    selection_objective,
)

BANK = make_bank()
CODES = BANK.histories @ BANK.encoder.T
MASS, DRAG, STIFFNESS = (BANK.table[name] for name in ("mass", "drag", "stiffness"))
LADDER = (MASS, np.stack([MASS, DRAG], 1), BANK.table["system"])


@pytest.mark.parametrize(("coarse", "fine"), [(0, 1), (1, 2), (0, 2)])
def test_refinement_moves_covariance_from_within_to_between(coarse, fine):
    g1, g2 = covariances(CODES, LADDER[coarse]), covariances(CODES, LADDER[fine])
    gain = refinement(CODES, LADDER[coarse], LADDER[fine])
    assert np.allclose(gain, g2.between - g1.between)
    assert np.allclose(gain, g1.within - g2.within)
    assert np.linalg.eigvalsh(gain).min() > -1e-12


def test_refinement_by_a_loop_over_coarse_groups():
    slow = np.zeros((3, 3))
    for mass in np.unique(MASS):
        of_mass = mass == MASS
        means = np.stack([CODES[of_mass & (drag == DRAG)].mean(0) for drag in np.unique(DRAG)])
        slow += of_mass.mean() * np.cov(means.T, ddof=0)
    assert np.allclose(refinement(CODES, LADDER[0], LADDER[1]), slow)
    assert np.allclose(refinement(CODES, MASS, MASS), 0.0)


def test_a_grouping_that_does_not_refine_is_refused():
    with pytest.raises(ValueError, match="6 fine groups lie in more than one"):
        refinement(CODES, MASS, DRAG)
    with pytest.raises(ValueError, match="1 fine groups lie"):
        refinement([[1.0], [2.0], [3.0]], ["a", "b", "b"], ["x", "x", "y"])


# Proposition 3


def problem(seed: int, p: int = 5, q: int = 4, n: int = 400):
    """A reference and its rows: white histories, other histories they are paired with, centred targets."""
    rng = np.random.default_rng(seed)
    raw = rng.standard_normal((n, p)) @ rng.standard_normal((p, p))
    targets = raw @ rng.standard_normal((p, q)) + rng.standard_normal((n, q))
    reference = fit_reference(raw, targets)
    white = (raw - reference.mean) @ reference.whitener
    other = white * rng.uniform(-1, 1, p) + 0.5 * rng.standard_normal((n, p)) + 0.2  # the means differ too
    return reference, white, other, targets - targets.mean(0)


def from_rows(w, beta, white, other, targets):
    """min_C mean‖Y − CWH‖² + β mean‖W(H^A − H^B)‖², the decoder by least squares."""
    codes = white @ w.T
    residual = targets - codes @ np.linalg.lstsq(codes, targets, rcond=None)[0]
    return (residual**2).sum(1).mean() + beta * (((white - other) @ w.T) ** 2).sum(1).mean()


@pytest.mark.parametrize(("d", "beta"), [(1, 0.7), (2, 0.0), (2, 1.5), (4, 0.7)])
def test_an_optimiser_on_the_stiefel_manifold_ends_in_the_selected_subspace(d, beta):
    reference, *data = problem(seed=d)
    gap = disagreement(data[0], data[1])
    best = select(reference.k, gap, d=d, beta=beta)
    value = selection_objective(best.encoder, reference.k, gap, reference.target_variance, beta)
    assert value == pytest.approx(reference.target_variance - best.reward)
    assert value == pytest.approx(from_rows(best.encoder, beta, *data))

    def encoder(flat):
        return np.linalg.qr(flat.reshape(5, d))[0].T

    rng = np.random.default_rng(0)
    runs = [minimize(lambda x: from_rows(encoder(x), beta, *data), rng.standard_normal(5 * d)) for _ in range(4)]
    found = min(runs, key=lambda run: run.fun)
    assert found.fun == pytest.approx(value, abs=1e-6)
    assert best.unique
    w = encoder(found.x)
    assert np.allclose(w.T @ w, best.encoder.T @ best.encoder, atol=1e-3)


def test_the_decoder_is_the_least_squares_one():
    reference, white, other, targets = problem(seed=7)
    best = select(reference.k, disagreement(white, other), d=2)
    slow = np.linalg.lstsq(white @ best.encoder.T, targets, rcond=None)[0].T
    assert np.allclose(best.decoder, slow)


def test_one_direction_by_brute_force():
    reference, white, other, _ = problem(seed=9, p=3)
    gap = disagreement(white, other)
    polar, around = np.meshgrid(np.linspace(0, np.pi, 181), np.linspace(0, np.pi, 181))
    grid = np.stack([np.sin(polar) * np.cos(around), np.sin(polar) * np.sin(around), np.cos(polar)], -1).reshape(-1, 3)
    scores = np.einsum("ni,ij,nj->n", grid, selection_matrix(reference.k, gap, 0.8), grid)
    best = select(reference.k, gap, d=1, beta=0.8)
    assert best.reward - 0.01 < scores.max() <= best.reward + 1e-12
    assert abs(grid[scores.argmax()] @ best.encoder[0]) > np.cos(np.deg2rad(1.0))


def test_a_tie_is_reported_and_the_reward_is_not_affected():
    tied = select(np.diag([2.0, 2.0, 1.0]), np.zeros((3, 3)), d=1)
    assert not tied.unique
    assert tied.reward == pytest.approx(4.0)
    pair = select(np.diag([2.0, 2.0, 1.0]), np.zeros((3, 3)), d=2)
    assert pair.unique
    assert pair.gap == pytest.approx(3.0)
    assert not select(np.diag([2.0, 1.0, 1.0]), np.zeros((3, 3)), d=2).unique


def test_the_crossing_of_the_paper():
    first, second = crossing(("mass",)), crossing(("mass", "drag"))
    assert list(first.penalised.values()) == [3.0, 2.0, 0.0]
    assert list(second.penalised.values()) == [3.0, 4.0, 0.0]
    assert (first.selected, second.selected) == ("mass", "drag")
    assert np.allclose(first.selection.encoder, [[1, 0, 0]])
    assert np.allclose(second.selection.encoder, [[0, 1, 0]])
    assert crossing(("mass",), beta=0.4).selected == "drag"  # 4 − 0.8 still beats 3: the relation weighs too little


def nested_bank(seed: int, masses: int = 300, drags: int = 8, stiffnesses: int = 4) -> tuple[EpisodeTable, np.ndarray]:
    """Independent standard factors, nested, so that another drag of a mass is a fresh draw: the example's law."""
    rng = np.random.default_rng(seed)
    rows = np.arange(masses * drags * stiffnesses)  # every stiffness occurs once
    drag, mass = rows // stiffnesses, rows // (drags * stiffnesses)
    values = [rng.standard_normal(i[-1] + 1)[i] for i in (mass, drag, rows)]
    columns = {"episode": rows, "system": rows, "rollout": 0 * rows, "length": 0 * rows + 64}
    return EpisodeTable({**columns, "mass": mass, "drag": drag, "stiffness": rows}), np.stack(values, 1)


@pytest.mark.parametrize(
    ("relation", "selected"),
    [
        (Relation(shared=("mass",), differ=("drag", "stiffness")), "mass"),
        (Relation(shared=("mass", "drag"), differ=("stiffness",)), "drag"),
    ],
    ids=["G1", "G2"],
)
def test_the_crossing_under_the_real_samplers(relation, selected):
    expected = crossing(relation.shared)
    found, rewards = [], []
    for seed in range(12):
        table, histories = nested_bank(seed)
        targets = histories @ np.diag(np.sqrt([3.0, 4.0, 2.0]))
        reference = fit_reference(histories, targets)
        white = (histories - reference.mean) @ reference.whitener
        donor, recipient = (rows.ravel() for rows in draw(PairSampler(table, relation, seed=seed), 20, 500))
        gap = disagreement(histories[donor], histories[recipient])
        found.append(np.diag(gap))
        on_white = disagreement(white[donor], white[recipient])
        best = select(reference.k, on_white, d=1)
        rewards.append(best.reward)
        assert ("mass", "drag", "stiffness")[np.abs(best.encoder[0]).argmax()] == selected
    found = np.stack(found)
    wanted = np.diag(np.diag([3.0, 4.0, 2.0]) - np.diag(list(expected.penalised.values())))
    assert (np.abs(found.mean(0) - wanted) <= Z * found.std(0, ddof=1) / np.sqrt(len(found))).all()
    assert np.mean(rewards) == pytest.approx(expected.selection.reward, rel=0.05)


def test_forced_mismatch_selects_by_its_own_coefficient():
    """On the factorial bank D_G is exact: n/(n − 1) more for levels that are forced apart."""
    sampler = PairSampler(BANK.table, Relation(shared=("mass",), differ=("drag", "stiffness")))
    gap = expected_disagreement(sampler, BANK.factors)
    levels = BANK.factors.var(0)
    assert np.allclose(np.diag(gap), [0, 2 * 6 / 5 * levels[1], 2 * 4 / 3 * levels[2]])
    assert gap[1, 2] == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: select(np.eye(3), np.eye(3), d=3), "d must be at least 1 and below the 3"),
        (lambda: select(np.eye(3), np.eye(2), d=1), "disagreement must be"),
        (lambda: select(np.eye(3), np.eye(3), d=1, beta=-1.0), "beta is"),
        (lambda: selection_objective(2 * np.eye(3)[:1], np.eye(3), np.eye(3), 1.0), "orthonormal"),
        (lambda: fit_reference(np.ones((5, 2)), np.ones(5)), "full rank"),
        (lambda: crossing(("colour",)), "must name factors"),
        (lambda: crossing((), scores={"a": 1.0, "b": 1.0}), "tie"),
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
