"""Probes against scikit-learn by hand, closed forms and planted codes of known answer."""

import warnings

import numpy as np
import pytest
from numpy.typing import NDArray
from planted_codes import HELD_OUT, TRAIN, directions, planted
from sklearn.linear_model import Ridge
from sklearn.metrics import mean_squared_error, r2_score

from sprii_train.analysis.formation import (
    FIXED_PENALTY,
    RIDGE_PENALTIES,
    Factor,
    Scored,
    fit_mlp,
    fit_ridge,
    probe_factors,
    ratio_score,
    score,
    system_centroids,
    with_codes,
)
from sprii_train.analysis.populations import Confirmation, PopulationError, Sample, Training

Array = NDArray[np.float64]
A, B = Factor("a"), Factor("b")


def both(noise: tuple[float, float, float], *, systems: int = 60, rollouts: int = 6, **given: int):
    """Training and held-out codes that carry a in one of five directions."""
    content = directions(1, 5)
    return tuple(
        planted(p, content, systems=systems, rollouts=rollouts, noise=noise, **given) for p in (TRAIN, HELD_OUT)
    )


def ridge_r2(train: Sample[Training], held_out: Sample) -> float:
    return score(fit_ridge(train, A), held_out).r2


# Ridge


def by_hand(train: Sample, held_out: Sample) -> float:
    """Grouped folds as GroupKFold documents them, one loop a penalty."""
    ids, inverse, counts = np.unique(train.systems, return_inverse=True, return_counts=True)
    folds, load, fold_of = min(5, len(ids)), np.zeros(5), np.zeros(len(ids), int)
    for group in np.argsort(counts)[::-1]:  # the largest group first, to the lightest fold
        fold_of[group] = int(np.argmin(load[:folds]))
        load[fold_of[group]] += counts[group]
    fold, codes, target = fold_of[inverse], train.codes, train.factors["a"]

    def r2(fit_on: Array, y: Array, at: Array, truth: Array, penalty: float) -> float:
        mean, sd = fit_on.mean(0), fit_on.std(0)
        model = Ridge(penalty).fit((fit_on - mean) / sd, y)
        residual = truth - model.predict((at - mean) / sd)
        return 1.0 - float((residual**2).sum() / ((truth - truth.mean()) ** 2).sum())

    scores = []
    for penalty in RIDGE_PENALTIES:
        parts = [
            r2(codes[fold != k], target[fold != k], codes[fold == k], target[fold == k], penalty) for k in range(folds)
        ]
        scores.append(np.mean(parts))
    best = RIDGE_PENALTIES[int(np.argmax(scores))]
    return r2(codes, target, held_out.codes, held_out.factors["a"], best)


@pytest.mark.parametrize("noise", [0.1, 1.0, 4.0])
def test_ridge_equals_the_procedure_by_hand(noise: float):
    train, held_out = both((0.0, noise, 0.0), systems=13)
    assert ridge_r2(train, held_out) == pytest.approx(by_hand(train, held_out), abs=1e-9)


@pytest.mark.parametrize("noise", [0.0, 0.5, 1.0])
def test_ridge_of_planted_codes(noise: float):
    """The best linear reader of factor + noise explains 1/(1 + noise²); 400 systems."""
    expected = 1.0 / (1.0 + noise**2)
    got = ridge_r2(*both((0.0, noise, 0.0), systems=400))
    assert got == pytest.approx(expected, abs=1e-6 if noise == 0 else 0.05)


def test_one_function_reads_windows_and_centroids():
    """1/(1 + s² + r² + w²) of a window, 1/(1 + s² + r²/R + w²/(R·W)) of a centroid; SD over 600 systems 0.02."""
    train, held_out = both((0.3, 0.8, 1.0), systems=600, rollouts=4, windows=2)
    assert ridge_r2(train, held_out) == pytest.approx(1 / (1 + 0.09 + 0.64 + 1.0), abs=0.06)
    centroid = ridge_r2(system_centroids(train), system_centroids(held_out))
    assert centroid == pytest.approx(1 / (1 + 0.09 + 0.16 + 0.125), abs=0.06)


def test_ridge_of_codes_without_information():
    train, held_out = (planted(p, np.zeros((1, 5)), systems=200, rollouts=6) for p in (TRAIN, HELD_OUT))
    assert ridge_r2(train, held_out) == pytest.approx(0.0, abs=0.03)


def test_predictions_do_not_depend_on_the_other_rows():
    train, held_out = both((0.0, 0.7, 0.0), systems=20)
    probe = fit_ridge(train, A)
    np.testing.assert_allclose(probe.predict(held_out.codes[:3]), score(probe, held_out).prediction[:3], rtol=1e-12)


def test_ridge_ignores_the_scale_of_a_feature():
    train, held_out = both((0.0, 0.7, 0.0), systems=20)
    scale, shift = np.array([1e-3, 1.0, 50.0, 7.0, 1e3]), np.arange(5.0)
    moved = ridge_r2(*(with_codes(sample, sample.codes * scale + shift) for sample in (train, held_out)))
    assert moved == pytest.approx(ridge_r2(train, held_out), abs=1e-8)


def test_a_fixed_penalty_is_not_searched():
    train, held_out = both((0.0, 1.0, 0.0), systems=10)
    mean, sd = train.codes.mean(0), train.codes.std(0)
    model = Ridge(1.0).fit((train.codes - mean) / sd, train.factors["a"])
    got = fit_ridge(train, A, penalties=FIXED_PENALTY).predict(held_out.codes)
    np.testing.assert_allclose(got, model.predict((held_out.codes - mean) / sd), rtol=1e-10)


def test_a_system_is_never_split_between_folds():
    """60 codes that name their systems and nothing else: folds that split systems would take the least penalty."""
    rng = np.random.default_rng(0)
    name = rng.standard_normal((30, 60))
    systems = np.repeat(np.arange(30), 4)
    train = Sample(TRAIN, name[systems], systems, {"a": rng.standard_normal(30)[systems]})
    probe = fit_ridge(train, A)
    assert probe.model["model"].alpha == max(RIDGE_PENALTIES)


def test_transient_targets_of_windows():
    """A velocity differs in every window of a rollout; it is read like any other column."""
    rng = np.random.default_rng(1)
    samples = [
        Sample(p, rng.standard_normal((200, 3)), np.repeat(np.arange(20), 10), {}, np.repeat(np.arange(40), 5))
        for p in (TRAIN, HELD_OUT)
    ]
    train, held_out = (
        Sample(s.population, s.codes, s.systems, {"vx": s.codes @ np.array([1.0, -2.0, 0.5])}, s.rollouts)
        for s in samples
    )
    assert score(fit_ridge(train, Factor("vx")), held_out).r2 == pytest.approx(1.0, abs=1e-4)


# Weights


def ragged(sample: Sample, copies: Array) -> Sample:
    """Each row as often as it is copied."""
    rows = np.repeat(np.arange(len(sample)), copies)
    return Sample(sample.population, sample.codes[rows], sample.systems[rows], {"a": sample.factors["a"][rows]})


@pytest.mark.parametrize("kind", ["ridge", "mlp"])
def test_systems_weigh_the_same_in_the_fit(kind: str):
    """Copies of a system's one row change nothing; a penalty is relative to the number of rows."""
    train, held_out = both((0.0, 0.5, 0.0), systems=40, rollouts=1)
    copies = np.where(np.arange(40) % 4, 1, 5)
    many = ragged(train, copies)

    def predicted(sample: Sample[Training], penalty: float) -> Array:
        if kind == "ridge":
            return fit_ridge(sample, A, penalties=(penalty,)).predict(held_out.codes)
        return fit_mlp(sample, A, seed=0, penalties=(penalty,), hidden=(3,), iterations=500).predict(held_out.codes)

    one = predicted(train, 40.0)
    tolerance = 1e-8 if kind == "ridge" else 1e-3  # L-BFGS stops near its optimum
    assert np.abs(predicted(many, 40.0 * len(many) / 40) - one).max() < tolerance
    unequal = Sample(TRAIN, many.codes, np.arange(len(many)), many.factors)
    assert np.abs(predicted(unequal, 40.0 * len(many) / 40) - one).max() > 3 * tolerance


def test_systems_weigh_the_same_in_the_score():
    train, held_out = both((0.0, 0.8, 0.0), systems=30, rollouts=1)
    copies = np.where(np.arange(30) % 3, 1, 7)
    probe = fit_ridge(train, A)
    assert score(probe, ragged(held_out, copies)).r2 == pytest.approx(score(probe, held_out).r2, abs=1e-12)
    other = score(probe, held_out)
    rows = np.repeat(np.arange(30), copies)
    assert abs(r2_score(other.truth[rows], other.prediction[rows]) - other.r2) > 1e-3


def test_squared_errors_are_a_row_each():
    train, held_out = both((0.0, 0.8, 0.0), systems=20)
    got = score(fit_ridge(train, A), held_out)
    assert got.squared_errors.shape == (120,)
    assert got.squared_errors.mean() == pytest.approx(mean_squared_error(held_out.factors["a"], got.prediction))
    assert got.r2 == pytest.approx(r2_score(held_out.factors["a"], got.prediction), abs=1e-12)
    assert got.systems is held_out.systems


def test_targets_are_read_in_their_coordinate():
    train, held_out = both((0.0, 0.1, 0.0), systems=50)
    positive = [
        Sample(s.population, s.codes, s.systems, {"mass": np.exp(s.factors["a"])}, s.rollouts)
        for s in (train, held_out)
    ]
    got = score(fit_ridge(positive[0], Factor("mass", log=True)), positive[1])
    np.testing.assert_allclose(got.truth, held_out.factors["a"], atol=1e-12)
    assert got.r2 == pytest.approx(ridge_r2(train, held_out), abs=1e-9)
    assert score(fit_ridge(positive[0], Factor("mass")), positive[1]).r2 < got.r2 - 0.1


# MLP


def curved(population: Training, seed: int) -> Sample:
    """a is the square of a code, which no line through the codes reads."""
    rng = np.random.default_rng(seed)
    codes = rng.standard_normal((500, 3))
    return Sample(population, codes, np.arange(500), {"a": codes[:, 0] ** 2})


def test_mlp_reads_what_ridge_cannot():
    train, held_out = curved(TRAIN, 0), curved(TRAIN, 1)
    assert abs(ridge_r2(train, held_out)) < 0.05
    assert score(fit_mlp(train, A, seed=0), held_out).r2 > 0.95


@pytest.mark.parametrize("noise", [0.5, 1.0])
def test_mlp_of_planted_codes(noise: float):
    """No reader of jointly normal codes beats the linear 1/(1 + noise²)."""
    train, held_out = both((noise, 0.0, 0.0), systems=500, rollouts=1)
    assert score(fit_mlp(train, A, seed=0), held_out).r2 == pytest.approx(1.0 / (1.0 + noise**2), abs=0.08)


def test_mlp_of_codes_without_information():
    train, held_out = (planted(p, np.zeros((1, 20)), systems=200, rollouts=1) for p in (TRAIN, HELD_OUT))
    assert -0.2 < score(fit_mlp(train, A, seed=0), held_out).r2 < 0.05


def test_mlp_is_a_function_of_its_seed_alone():
    train, held_out = both((0.0, 0.5, 0.0), systems=20)
    state = np.random.get_state()[1].copy()  # noqa: NPY002 (that it is left alone)
    first, again, other = (fit_mlp(train, A, seed=s, penalties=(1.0,)).predict(held_out.codes) for s in (0, 0, 1))
    assert (first == again).all()
    assert (first != other).any()
    assert (np.random.get_state()[1] == state).all()  # noqa: NPY002


def test_mlp_stops_without_a_warning():
    train, _ = both((0.0, 0.5, 0.0), systems=20)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit_mlp(train, A, seed=0, iterations=2)
        fit_mlp(train, A, seed=0, iterations=2, penalties=(1.0,))


# Ratios, and all factors at once


def scored(prediction: list[float], truth: list[float], systems: list[int]) -> Scored:
    return Scored(float("nan"), np.array(prediction), np.array(truth), np.array(systems))


def test_ratio_of_fitted_coordinates():
    got = ratio_score(
        scored([3.0, 1.0, 2.0], [3.0, 1.5, 1.0], [0, 1, 2]), scored([1.0, 1.0, 0.0], [1.0, 0.5, 0.0], [0, 1, 2])
    )
    np.testing.assert_allclose(got.prediction, [2.0, 0.0, 2.0])
    np.testing.assert_allclose(got.truth, [2.0, 1.0, 1.0])
    np.testing.assert_allclose(got.squared_errors, [0.0, 1.0, 1.0])
    assert got.r2 == pytest.approx(1.0 - 2.0 / (2.0 / 3.0))


def test_ratio_needs_the_same_rows():
    with pytest.raises(ValueError, match="same rows"):
        ratio_score(scored([1.0, 2.0], [1.0, 2.0], [0, 1]), scored([1.0, 2.0], [1.0, 2.0], [1, 0]))


def springs(sample: Sample) -> Sample:
    return Sample(
        sample.population,
        sample.codes,
        sample.systems,
        {"mass": np.exp(sample.factors["a"]), "stiffness": np.exp(2.0 * sample.factors["b"])},
    )


def test_all_factors_and_a_ratio():
    """log k/m = 2b − a of codes with (a, b) + noise σ in two dimensions: error (1 + 4)·σ²/(1 + σ²) of variance 5."""
    train, held_out = (
        springs(planted(p, np.eye(2), systems=600, rollouts=1, noise=(0.5, 0.0, 0.0))) for p in (TRAIN, HELD_OUT)
    )
    log_mass, log_stiffness = Factor("mass", log=True), Factor("stiffness", log=True)
    ratio = Factor("stiffness", log=True, over="mass")
    scores = probe_factors(train, held_out, (log_mass, log_stiffness, ratio), seed=0, kinds=("ridge",))
    assert set(scores) == {("ridge", name) for name in ("mass", "stiffness", "stiffness_over_mass")}
    assert all(s.r2 == pytest.approx(1.0 / 1.25, abs=0.05) for s in scores.values())
    both_kinds = probe_factors(train, held_out, (log_mass,), seed=0, kinds=("ridge", "mlp"))
    assert list(both_kinds) == [("ridge", "mass"), ("mlp", "mass")]
    np.testing.assert_allclose(both_kinds["ridge", "mass"].prediction, scores["ridge", "mass"].prediction)


@pytest.mark.parametrize("listed", [(Factor("mass", log=True),), (Factor("mass", log=True), Factor("stiffness"))])
def test_a_ratio_needs_its_logarithms(listed: tuple[Factor, ...]):
    train = springs(planted(TRAIN, np.eye(2), systems=5))
    ratio = Factor("stiffness", log=True, over="mass")
    with pytest.raises(ValueError, match=r"log stiffness/mass is read through .* log stiffness and log mass among"):
        probe_factors(train, train, (*listed, ratio), seed=0)


# What is refused


def test_nothing_is_fitted_on_systems_to_be_measured():
    for population in (HELD_OUT, Confirmation("confirmation")):
        sample = planted(population, directions(1, 5), systems=5)
        for fit in (
            lambda s: fit_ridge(s, A),
            lambda s: fit_mlp(s, A, seed=0),
            lambda s: probe_factors(s, s, (A,), seed=0),
        ):
            with pytest.raises(PopulationError, match="may be fitted on training systems only"):
                fit(sample)


def test_a_constant_target_and_a_single_system():
    train = planted(TRAIN, directions(1, 5), systems=5)
    constant = Sample(TRAIN, train.codes, train.systems, {"a": np.ones(20)})
    with pytest.raises(ValueError, match="a ridge probe has nothing to fit: its target is the same in all 20"):
        fit_ridge(constant, A)
    single = Sample(TRAIN, train.codes, np.zeros(20), {"a": np.arange(20.0)})
    with pytest.raises(ValueError, match="an MLP probe is cross-validated over training systems and needs 2 or more"):
        fit_mlp(single, A, seed=0)


@pytest.mark.filterwarnings("error")
def test_statistics_of_a_constant_fold():
    """A fold of one value has no R² and is not scored; if no fold has two, there are fewer, or a named error."""
    rng = np.random.default_rng(3)
    value = np.array([0.0, 0.0, 0.0, 1.0, 1.0, 1.0])  # of six systems, one row each
    train = Sample(TRAIN, value[:, None] + 0.1 * rng.standard_normal((6, 1)), np.arange(6), {"a": value})
    # Five folds of one or two equal values would leave the first penalty, whatever it is.
    assert fit_ridge(train, A, penalties=(1e4, *RIDGE_PENALTIES)).model["model"].alpha <= 1.0
    two = Sample(TRAIN, rng.standard_normal((8, 2)), np.arange(8) // 4, {"a": np.arange(8.0) // 4})
    with pytest.raises(ValueError, match="cannot be cross-validated over 2 training systems: its target is the same"):
        fit_ridge(two, A)


@pytest.mark.filterwarnings("error")
def test_statistics_of_a_constant_score():
    train, held_out = (planted(p, directions(1, 5), systems=12) for p in (TRAIN, HELD_OUT))
    same = Sample(HELD_OUT, held_out.codes, held_out.systems, {"a": np.full(len(held_out), 0.1)})
    with pytest.raises(ValueError, match=r"R² of a is undefined: it is 0\.1 in all"):
        score(fit_ridge(train, A), same)


def test_unknown_names():
    train = planted(TRAIN, directions(1, 5), systems=5)
    with pytest.raises(ValueError, match="no factor 'b'; factors: a"):
        fit_ridge(train, B)
    with pytest.raises(ValueError, match="unknown kind of probe 'lasso'; legal: ridge, mlp"):
        probe_factors(train, train, (A,), seed=0, kinds=("lasso",))  # type: ignore[arg-type]
