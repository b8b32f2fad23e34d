"""The contact probe against the closed form of two normal classes, and scikit-learn."""

import math

import numpy as np
import pytest
from planted_codes import HELD_OUT, TRAIN
from scipy.stats import mannwhitneyu, norm
from sklearn.metrics import roc_auc_score

from sprii_train.analysis.formation import detect, fit_logistic
from sprii_train.analysis.populations import Population, PopulationError, Sample


def touches(population: Population, distance: float, *, n: int = 4000, share: float = 0.3, seed: int = 0) -> Sample:
    """Codes N(0, 1) in four dimensions, moved by `distance` in one direction where there is contact; 10 a system."""
    rng = np.random.default_rng((seed, population.may_fit))
    contact = rng.random(n) < share
    direction = np.array([0.6, 0.0, -0.8, 0.0])
    codes = rng.standard_normal((n, 4)) + distance * contact[:, None] * direction
    return Sample(population, codes, np.repeat(np.arange(n // 10), 10), {"contact": contact})


@pytest.mark.parametrize("distance", [0.0, 0.5, 1.5, 3.0])
def test_auroc_of_two_normal_classes(distance: float):
    """Φ(d/√2); its standard error is below 0.5/√(4000·0.3·0.7) = 0.017 and shrinks with d."""
    got = detect(fit_logistic(touches(TRAIN, distance)), touches(HELD_OUT, distance))
    assert got.auroc == pytest.approx(norm.cdf(distance / math.sqrt(2)), abs=0.04)


def test_auroc_is_the_mann_whitney_statistic():
    held_out = touches(HELD_OUT, 1.0, n=300)
    got = detect(fit_logistic(touches(TRAIN, 1.0, n=300)), held_out)
    u = mannwhitneyu(got.score[got.truth], got.score[~got.truth]).statistic
    assert got.auroc == pytest.approx(u / (got.truth.sum() * (~got.truth).sum()), abs=1e-12)
    assert (got.truth == held_out.factors["contact"]).all()


def test_systems_weigh_the_same():
    detector = fit_logistic(touches(TRAIN, 1.0, n=300))
    plain = touches(HELD_OUT, 1.0, n=100)
    one = Sample(HELD_OUT, plain.codes, np.arange(100), plain.factors)
    rows = np.repeat(np.arange(100), np.where(np.arange(100) % 3, 1, 6))
    many = Sample(HELD_OUT, one.codes[rows], one.systems[rows], {"contact": one.factors["contact"][rows]})
    assert detect(detector, many).auroc == pytest.approx(detect(detector, one).auroc, abs=1e-12)
    raw = roc_auc_score(many.factors["contact"], detect(detector, many).score)
    assert abs(raw - detect(detector, one).auroc) > 1e-3


def test_another_column_of_zeros_and_ones():
    train, held_out = (
        Sample(s.population, s.codes, s.systems, {"wall": s.factors["contact"].astype(float)})
        for s in (touches(TRAIN, 3.0, n=300), touches(HELD_OUT, 3.0, n=300))
    )
    assert detect(fit_logistic(train, "wall", penalties=(1.0,)), held_out).auroc > 0.9


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_one_class_is_refused(share: float):
    one = touches(TRAIN, 1.0, n=100, share=share)
    with pytest.raises(ValueError, match=f"AUROC of 'contact' needs both classes, but all 100 rows .* are {share:g}"):
        fit_logistic(one)
    detector = fit_logistic(touches(TRAIN, 1.0, n=100))
    with pytest.raises(ValueError, match="all 100 rows of 'validation'"):
        detect(detector, touches(HELD_OUT, 1.0, n=100, share=share))


def test_other_targets_are_refused():
    sample = touches(TRAIN, 1.0, n=100)
    forces = Sample(TRAIN, sample.codes, sample.systems, {"contact": np.linspace(0, 2, 100)})
    with pytest.raises(ValueError, match="'contact' must be 0 or 1 to be detected, got"):
        fit_logistic(forces)
    with pytest.raises(PopulationError, match="a contact probe may be fitted on training systems only"):
        fit_logistic(touches(HELD_OUT, 1.0, n=100))
