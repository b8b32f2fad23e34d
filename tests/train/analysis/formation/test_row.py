"""A source's row against its parts by hand, and closed forms of planted codes."""

import numpy as np
import pytest
from planted_codes import HELD_OUT, TRAIN, directions, planted

from sprii_train.analysis.formation import (
    Factor,
    fit_ridge,
    formation_row,
    measure_formation,
    partial_distance_correlation,
    partial_spearman,
    score,
    standardise,
)
from sprii_train.analysis.populations import Confirmation, PopulationError, Sample

A, B = Factor("a"), Factor("b")


def both(systems: int = 30, *, windows: int = 2, noise: tuple[float, float, float] = (0.2, 0.6, 0.6)):
    content = np.array([[1.0], [0.5]]) * directions(2, 4)
    return tuple(
        planted(p, content, systems=systems, rollouts=3, windows=windows, noise=noise) for p in (TRAIN, HELD_OUT)
    )


def test_the_row_by_hand():
    """Windows → rollout means → standardised by the training systems' → centroids."""
    train, held_out = both()
    row = formation_row(train, held_out, (A, B), seed=0, probes=("ridge",), levels=("centroid", "window"))
    train_rollouts = train.codes.reshape(30, 3, 2, 4).mean(2)
    mean, sd = train_rollouts.mean((0, 1)), train_rollouts.std((0, 1))
    rollouts = (held_out.codes.reshape(30, 3, 2, 4).mean(2) - mean) / sd
    within = np.mean([((r[i] - r[j]) ** 2).sum() for r in rollouts for i in range(3) for j in range(i)])
    centroids = rollouts.mean(1)
    pairs = [(i, j) for i in range(30) for j in range(i)]
    between = np.mean([((centroids[i] - centroids[j]) ** 2).sum() for i, j in pairs])
    assert row["within"] == pytest.approx(within)
    assert row["between"] == pytest.approx(between)
    assert row["ratio"] == pytest.approx(between / within)
    a, b = (held_out.factors[name][::6] for name in "ab")
    code = np.array([np.linalg.norm(centroids[i] - centroids[j]) for i, j in pairs])
    da, db = (np.array([abs(f[i] - f[j]) for i, j in pairs]) for f in (a, b))
    assert row["rho_a"] == pytest.approx(partial_spearman(code, da, [db]), abs=1e-9)
    assert row["rho_b"] == pytest.approx(partial_spearman(code, db, [da]), abs=1e-9)
    of_centroids = Sample(HELD_OUT, centroids, np.arange(30), {"a": a, "b": b})
    assert row["pdcor_a"] == pytest.approx(partial_distance_correlation(of_centroids, (A, B))["a"])
    window = score(fit_ridge(train, B), held_out).r2
    assert row["window_ridge_b"] == pytest.approx(window, abs=1e-8)  # a probe scales its codes itself
    fitted = Sample(TRAIN, train_rollouts.mean(1), np.arange(30), {"a": train.factors["a"][::6]})
    read = Sample(HELD_OUT, rollouts.mean(1) * sd + mean, np.arange(30), {"a": a})
    assert row["centroid_ridge_a"] == pytest.approx(score(fit_ridge(fitted, A), read).r2, abs=1e-8)
    assert set(row) == {
        "within", "between", "ratio", "rho_a", "rho_b", "pdcor_a", "pdcor_b",
        "centroid_ridge_a", "centroid_ridge_b", "window_ridge_a", "window_ridge_b",
    }  # fmt: skip


def test_the_row_of_planted_codes():
    """Four dimensions in all: ratio and R² follow from the noise of a system (s), rollout (r) and window (w)."""
    train, held_out = both(800, noise=(0.3, 0.6, 0.4))
    row = formation_row(train, held_out, (A, B), seed=0, probes=("ridge",), levels=("centroid", "rollout", "window"))
    s, r, w = 0.09, 0.36, 0.16
    rollout, centroid = s + r + w / 2, s + r / 3 + w / 6
    for level, noise in (("window", s + r + w), ("rollout", rollout), ("centroid", centroid)):
        assert row[f"{level}_ridge_a"] == pytest.approx(1.0 / (1.0 + noise), abs=0.06)
        assert row[f"{level}_ridge_b"] == pytest.approx(0.25 / (0.25 + noise), abs=0.08)
    total = np.diag(directions(2, 4).T @ np.diag([1.0, 0.25]) @ directions(2, 4))  # of the content, by dimension
    within = 2.0 * ((r + w / 2) / (total + rollout)).sum()
    between = 2.0 * ((total + centroid) / (total + rollout)).sum()
    assert row["within"] == pytest.approx(within, rel=0.06)
    assert row["between"] == pytest.approx(between, rel=0.08)
    assert row["rho_a"] > row["rho_b"] > 0.1


def test_the_row_of_codes_without_information():
    train, held_out = (planted(p, np.zeros((2, 8)), systems=200, rollouts=4) for p in (TRAIN, HELD_OUT))
    row = formation_row(train, held_out, (A, B), seed=0, probes=("ridge",))
    assert row["ratio"] == pytest.approx(0.25, abs=0.03)
    assert all(abs(row[name]) < 0.06 for name in ("rho_a", "rho_b"))  # over four SD at 200 systems
    assert all(-0.1 < row[f"centroid_ridge_{name}"] < 0.05 for name in "ab")


def test_estimates_stay_with_their_systems():
    train, held_out = both(20)
    formation = measure_formation(train, held_out, (A,), seed=3, levels=("centroid",))
    ridge, mlp = formation.scores["centroid", "ridge", "a"], formation.scores["centroid", "mlp", "a"]
    assert ridge.systems.tolist() == mlp.systems.tolist() == list(range(20))
    assert (ridge.squared_errors != mlp.squared_errors).all()
    assert formation.row()["centroid_mlp_a"] == mlp.r2
    assert formation_row(train, held_out, (A,), seed=3) == formation.row()


def test_geometry_alone():
    train, held_out = both()
    assert set(formation_row(train, held_out, (A, B), seed=0, probes=())) == {
        "within", "between", "ratio", "rho_a", "rho_b", "pdcor_a", "pdcor_b",
    }  # fmt: skip


def test_a_dead_dimension_changes_nothing():
    """A float32 rounding error must count neither as distance nor as a feature."""
    train, held_out = both()
    noise = np.random.default_rng(0)
    with_dead = [
        Sample(
            s.population, np.c_[s.codes, 0.7 + 1e-8 * noise.standard_normal(len(s))], s.systems, s.factors, s.rollouts
        )
        for s in (train, held_out)
    ]
    alive = formation_row(train, held_out, (A, B), seed=0, probes=("ridge",))
    got = formation_row(with_dead[0], with_dead[1], (A, B), seed=0, probes=("ridge",))
    assert got == pytest.approx(alive, abs=1e-9)
    assert not standardise(with_dead[0].codes)[0][:, 4].any()


def test_refused():
    train, held_out = both()
    with pytest.raises(PopulationError, match="standardisation may be fitted on training systems only"):
        formation_row(held_out, held_out, (A, B), seed=0, probes=())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unknown level 'episode'; legal: centroid, rollout, window"):
        formation_row(train, held_out, (A, B), seed=0, levels=("episode",))  # type: ignore[arg-type]
    confirmation = Sample(
        Confirmation("confirmation"), held_out.codes, held_out.systems, held_out.factors, held_out.rollouts
    )
    assert formation_row(train, confirmation, (A, B), seed=0, probes=()) == formation_row(
        train, held_out, (A, B), seed=0, probes=()
    )
