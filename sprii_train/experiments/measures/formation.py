"""Formation of one source on every held-out population of its world (`app:measurements`)."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sprii_envs.banks import Store
from sprii_train.analysis.donors import donor_errors, encode_split
from sprii_train.analysis.formation import group_means, measure_formation, sample_of
from sprii_train.analysis.populations import Population, Sample, Training, population_of
from sprii_train.cases.encoding import encode_histories
from sprii_train.experiments.sources import Source
from sprii_train.settings.base import Setting

SYSTEMS = 400  # training systems that codes are standardised by and probes fitted on, as in the paper's atlas
FEW = 200  # training and validation systems of the mismatched and the inferred relations
SEED = 20_261  # of evaluation windows, donors and MLP probes; shared by all sources
DRAWS = 10_000  # of the held-out systems, for intervals of the geometry


def formation(source: Source) -> dict[str, Any]:
    """`{split: measures}` of every held-out split of the store; of sealed ones where the setting says so.

    Measures are those of `formation.formation_row` (ridge and MLP probes of centroids, ridge probes of single
    histories), with the errors of `prediction` where all episodes serve as histories. Where cases have a panel of some
    groups of systems, `panel_window_…` are the probes' R² there. `intervals` are [low, high] of the geometry
    by a bootstrap of the systems, conditional on the source. The probes' squared errors by system are kept beside the
    model.
    """
    setting, store = source.setting, source.store
    splits = [s for s in store.splits if s != "train" and (s not in store.sealed_splits or setting.unsealed)]
    return _measured(source, splits, SYSTEMS)


def validation(source: Source) -> dict[str, Any]:
    """The same of validation systems alone."""
    return _measured(source, ["validation"], SYSTEMS)


def development(source: Source) -> dict[str, Any]:
    """The same of 200 validation systems by probes of 200 training systems (`app:structured-mismatch`)."""
    return _measured(source, ["validation"], FEW, FEW)


def _measured(source: Source, splits: Sequence[str], fitted: int, systems: int | None = None) -> dict[str, Any]:
    setting, store, learner, factors = source.setting, source.store, source.learner, source.setting.factors
    train = training_windows(setting, learner, store, fitted)
    row: dict[str, Any] = {}
    kept: dict[str, NDArray[np.float64]] = {}
    for split in splits:
        held_out = measured_windows(setting, learner, store, split, systems=systems, unseal=True)
        found = measure_formation(train, held_out, factors, seed=SEED, draws=DRAWS)
        single = measure_formation(train, held_out, factors, seed=SEED, probes=("ridge",), levels=("window",))
        row[split] = single.row() | found.row()
        row[split]["intervals"] = {name: [each.low, each.high] for name, each in found.intervals.items()}
        for key, scored in (single.scores | found.scores).items():
            kept[f"{split}|{'_'.join(key)}"] = group_means(scored.squared_errors[:, None], scored.systems)[0][:, 0]
        if groups := getattr(setting.cases, "groups", ()):
            few = _of_groups(held_out, store, split, groups)
            found = measure_formation(train, few, factors, seed=SEED, probes=("ridge",), levels=("window",))
            row[split] |= {f"panel_{name}": value for name, value in found.row().items() if name.startswith("window")}
        if setting.kind is None:
            row[split] |= prediction(source, split, systems)
    source.keep(kept)
    return row


def prediction(source: Source, split: str, systems: int | None = None) -> dict[str, float]:
    """Task losses at every horizon, or over all, by the source of the context, and the variance of the targets.

    Nothing of a learner whose loss is of a batch (`without_errors`).
    """
    learner, reader = source.learner, source.reader
    if getattr(learner, "without_errors", ""):
        return {}
    table = split if systems is None else source.setting.episodes(source.store, split, systems=systems)
    encoded = encode_split(learner, reader, table, seed=SEED, unseal=True)
    errors = donor_errors(learner, encoded, seed=SEED)
    by_horizon = callable(getattr(learner, "horizon_losses", None))
    names = [f"_h{h}" for h in reader.horizons] if by_horizon else [""]
    row = {}
    for i, name in enumerate(names):
        if by_horizon and isinstance(encoded.y, Tensor | tuple):
            row[f"variance{name}"] = float(encoded.targets[:, i].double().var(0).mean())
        row[f"self{name}"] = float(errors.own[i])
        if source.separate:
            row |= {f"correct{name}": float(errors.correct[i]), f"shuffled{name}": float(errors.shuffled[i])}
    return row


def _of_groups(sample: Sample[Population], store: Store, split: str, groups: tuple[str, ...]) -> Sample[Population]:
    """The rows of systems of these groups."""
    table = store.split(split, unseal=True)
    rows = np.isin(sample.systems, table["system"][np.isin(table["group"], groups)])
    factors = {name: column[rows] for name, column in sample.factors.items()}
    rollouts = None if sample.rollouts is None else sample.rollouts[rows]
    return Sample(sample.population, sample.codes[rows], sample.systems[rows], factors, rollouts)


def measured_windows(
    setting: Setting, learner: Any, store: Store, split: str, *, systems: int | None = None, unseal: bool = False
) -> Sample[Population]:
    """Codes of a split, one row for every anchor of every episode: `formation.rollout_means` averages the anchors."""
    reader = setting.reader(store, learner.config)
    table = setting.episodes(store, split, systems=systems, unseal=unseal)
    codes = np.stack([encode_histories(learner, reader, table, setting.starts(a)) for a in setting.anchors], axis=1)
    rows = np.repeat(np.arange(len(table)), len(setting.anchors))
    return sample_of(population_of(store, split), codes.reshape(len(rows), -1), table, setting.properties, rows)


def training_windows(setting: Setting, learner: Any, store: Store, systems: int) -> Sample[Training]:
    """The same of a fixed random choice of training systems."""
    windows = measured_windows(setting, learner, store, "train", systems=systems)
    assert isinstance(windows.population, Training)
    return cast(Sample[Training], windows)
