"""Probes: what can be read from frozen codes (`app:reader-interfaces`), fitted and selected on training systems only.

One function serves centroids, rollout means, single windows and hand-made features: they are different `Sample`s. Every
system counts the same however many rows it has, in the fit, in the choice of a penalty and in the score.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score
from sklearn.neural_network import MLPRegressor

from sprii_envs.arguments import integer, integers
from sprii_envs.standardiser import constant
from sprii_train.analysis.formation.arrangement import system_weights
from sprii_train.analysis.formation.factors import Factor, by_name
from sprii_train.analysis.formation.search import grouped_fit, scaled
from sprii_train.analysis.populations import Population, Sample, Training

Array = NDArray[np.float64]
Kind = Literal["ridge", "mlp"]

RIDGE_PENALTIES = tuple(10.0 ** np.arange(-6, 3))
FIXED_PENALTY = (1.0,)
"""Of the actual-donor probes (`app:poke-targeted-utility`): a single penalty is not searched."""

MLP_PENALTIES = (1.0, 10.0, 100.0)


@dataclass(frozen=True)
class Probe:
    """A fitted reader of one factor: offset + scale · model's prediction."""

    factor: Factor
    model: Any
    offset: float = 0.0
    scale: float = 1.0

    def predict(self, codes: Array) -> Array:
        """Codes (m, d) → estimates (m,) in the factor's coordinate."""
        return self.offset + self.scale * np.asarray(self.model.predict(codes), dtype=np.float64)


class Scored(NamedTuple):
    """A probe's estimates on a sample.

    Attributes:
        r2: 1 − squared error over variance, systems weighted equally.
        prediction, truth: (m,) in the factor's coordinate.
        systems: (m,) ids, to pair and resample squared errors by system.
    """

    r2: float
    prediction: Array
    truth: Array
    systems: NDArray

    @property
    def squared_errors(self) -> Array:
        """(m,) in squared units of the factor's coordinate."""
        return (self.prediction - self.truth) ** 2


def fit_ridge(train: Sample[Training], factor: Factor, *, penalties: Sequence[float] = RIDGE_PENALTIES) -> Probe:
    """Ridge regression of a factor on standardised codes; also for transient targets (position, velocity).

    The penalty has the best mean R² in 5-fold cross-validation in which a system is never split; `FIXED_PENALTY` gives
    1 without a search.

    Raises:
        PopulationError: for anything but training systems.
        ValueError: for a target that is the same in all rows, or fewer than two systems.
    """
    grid = {"model__alpha": penalties}
    return Probe(factor, grouped_fit(lambda: scaled(Ridge()), grid, train, factor.of(train.factors), "a ridge probe"))


def fit_mlp(
    train: Sample[Training],
    factor: Factor,
    *,
    seed: int,
    hidden: Sequence[int] = (64,),
    penalties: Sequence[float] = MLP_PENALTIES,
    iterations: int = 100,
) -> Probe:
    """A tanh network on standardised codes, by L-BFGS on squared error + penalty·‖W‖².

    The penalty is selected as for ridge, in 3 folds: a network takes a hundred times as long.

    Args:
        seed: of the initial weights.
        hidden: widths of the hidden layers.
        penalties: on the scale of the standardised target's summed squared error, as for ridge.
        iterations: of L-BFGS at most; stopping there is part of the recipe.

    Raises:
        PopulationError, ValueError: as `fit_ridge`.
    """

    hidden, iterations = integers("hidden", list(hidden), least=1), integer("iterations", iterations, least=1)
    seed = integer("seed", seed)
    target, weights = factor.of(train.factors), system_weights(train.systems)
    offset = np.average(target, weights=weights)
    scale = np.sqrt(np.average((target - offset) ** 2, weights=weights)) or 1.0
    network = MLPRegressor(
        hidden_layer_sizes=hidden,
        activation="tanh",
        solver="lbfgs",
        max_iter=iterations,
        max_fun=10 * iterations,
        random_state=seed,
    )
    model = grouped_fit(
        lambda: scaled(network), {"model__alpha": penalties}, train, (target - offset) / scale, "an MLP probe", folds=3
    )
    return Probe(factor, model, float(offset), float(scale))


def score(probe: Probe, sample: Sample[Population]) -> Scored:
    """R² and estimates of a fitted probe on a sample of the same codes.

    Raises:
        ValueError: for a factor that is the same in all rows, which has no R².
    """
    return _scored(probe.factor.name, probe.predict(sample.codes), probe.factor.of(sample.factors), sample.systems)


def ratio_score(numerator: Scored, denominator: Scored) -> Scored:
    """A log ratio from two fitted coordinates: log k/m as fitted log k − fitted log m (`tab:spring-frozen-probes`).

    Raises:
        ValueError: if the two were not scored on the same rows, or for a ratio that is the same in all of them.
    """
    if not np.array_equal(numerator.systems, denominator.systems):
        raise ValueError("ratio_score needs two scores of the same rows, in the same order")
    prediction, truth = (getattr(numerator, name) - getattr(denominator, name) for name in ("prediction", "truth"))
    return _scored("a log ratio", prediction, truth, numerator.systems)


def probe_factors(
    train: Sample[Training],
    held_out: Sample[Population],
    factors: Sequence[Factor],
    *,
    seed: int,
    kinds: Sequence[Kind] = ("ridge", "mlp"),
) -> dict[tuple[str, str], Scored]:
    """A probe of each kind for each factor, fitted on training and scored on held-out systems.

    The codes may be centroids, windows, features of an encoder trained on what a learner sees, or of numerical
    histories (`tab:v3-poke-input-diversity`). A log ratio is read through the fitted logarithms of its two properties.

    Returns:
        (kind, factor) → estimates.

    Raises:
        PopulationError: if `train` is not training systems.
        ValueError: for an unknown kind, a ratio whose two logarithms are not among the factors, or a factor that is
            the same in all training or all held-out rows.
    """
    if unknown := set(kinds) - {"ridge", "mlp"}:
        raise ValueError(f"unknown kind of probe {min(unknown)!r}; legal: ridge, mlp")
    parts = {name: _parts(factor, factors) for name, factor in by_name(factors).items() if factor.over is not None}
    scores: dict[tuple[str, str], Scored] = {}
    for kind in kinds:
        for factor in factors:
            if factor.name not in parts:
                probe = fit_ridge(train, factor) if kind == "ridge" else fit_mlp(train, factor, seed=seed)
                scores[kind, factor.name] = score(probe, held_out)
        for name, (numerator, denominator) in parts.items():
            scores[kind, name] = ratio_score(scores[kind, numerator], scores[kind, denominator])
    return scores


def _parts(ratio: Factor, factors: Sequence[Factor]) -> tuple[str, str]:
    logs = {f.column for f in factors if f.log and f.over is None}
    if not ratio.log or not set(ratio.columns) <= logs:
        raise ValueError(
            f"{ratio.label} is read through fitted logarithms; it must be a log ratio with "
            f"{' and '.join(f'log {c}' for c in ratio.columns)} among the factors"
        )
    numerator, denominator = ratio.columns
    return numerator, denominator


def _scored(what: str, prediction: Array, truth: Array, systems: NDArray) -> Scored:
    if constant(truth[:, None]).all():
        raise ValueError(f"R² of {what} is undefined: it is {truth[0]:g} in all {len(truth)} rows scored")
    r2 = r2_score(truth, prediction, sample_weight=system_weights(systems))
    return Scored(float(r2), prediction, truth, systems)
