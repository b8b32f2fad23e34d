"""The episode table of any Minari dataset, from its episode metadata alone."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sprii_envs.banks.minari.package import opened, reading
from sprii_envs.relations import EpisodeTable
from sprii_envs.relations.labels import count_rollouts, system_label
from sprii_envs.relations.table import few

_OURS = ("id", "total_steps", "episode", "length", "system", "rollout", "split")


def from_minari(
    dataset: Any,
    system: str | Sequence[str] = "system",
    *,
    rollout: str | None = None,
    split: str | None = None,
) -> EpisodeTable:
    """One row per episode of a MinariDataset (or the local dataset of that id), filtered ones included.

    The metadata are read in one pass and no observation is decoded. Nested keys are joined: `options` of a reset are
    `options/mass`.

    Args:
        system: metadata key that tells which system an episode is of, or several that do so together
        rollout: key of the index among the episodes of a system; by default "rollout" if the episodes have it as
            integers, else they are counted
        split: key of the split; by default "split" if any episode has it: then all must, since a sampler over a table
            without splits would mix them

    Columns: `episode`, the dataset's own index; `system`, integers or strings (floats, booleans and several keys as
    strings "mass=1.0, drag=0.5"); `rollout`; `length` in observations; `split`; and every other number, boolean or
    string that all episodes have under its own key (not one named like a column above). ValueError naming the
    key and episodes where a chosen one is missing, NaN or not a label, and the dataset where its file is damaged.
    """
    dataset = opened(dataset)
    indices = np.asarray(dataset.episode_indices, np.int64)
    if not len(indices):
        raise ValueError(f"the Minari dataset {dataset.id!r} has no episodes")
    with reading(dataset):
        rows = [_flat(metadata) for metadata in dataset.storage.get_episode_metadata(indices)]
    keys = [system] if isinstance(system, str) else list(system)
    if not keys:
        raise ValueError("system must name at least one metadata key")
    labels = {key: _labels(dataset, rows, indices, key) for key in keys}
    columns: dict[str, Any] = {"episode": indices, "system": _systems(labels)}
    columns["length"] = [int(row["total_steps"]) + 1 for row in rows]
    if rollout is None and not _all(rows, "rollout", int):
        columns["rollout"] = count_rollouts(columns["system"])
    else:
        columns["rollout"] = _labels(dataset, rows, indices, rollout or "rollout")
    if split is not None or any("split" in row for row in rows):
        columns["split"] = _labels(dataset, rows, indices, split or "split")
    for key in rows[0]:
        if key not in _OURS and _is_column(rows, key):
            columns[key] = [row[key] for row in rows]
    return EpisodeTable(columns)


def _flat(metadata: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested keys joined by '/', scalars of NumPy as Python ones."""
    flat: dict[str, Any] = {}
    for key, value in metadata.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}/")
        elif isinstance(value, bytes):
            flat[prefix + key] = value.decode()
        else:
            flat[prefix + key] = value.item() if isinstance(value, np.generic) else value
    return flat


def _all(rows: Sequence[Mapping[str, Any]], key: str, kind: type) -> bool:
    return all(type(row.get(key)) is kind for row in rows)


def _is_column(rows: Sequence[Mapping[str, Any]], key: str) -> bool:
    """Whether all episodes have a label of one type that fits a column (Minari's 64-bit seeds may not)."""
    if any(key not in row for row in rows):
        return False
    kinds = {type(row[key]) for row in rows}
    if not (kinds in ({bool}, {str}) or kinds <= {int, float}):
        return False
    return not any(isinstance(row[key], int) and not -(2**63) <= row[key] < 2**63 for row in rows)


def _labels(dataset: Any, rows: Sequence[Mapping[str, Any]], indices: np.ndarray, key: str) -> list[Any]:
    """The values of a key that every episode must have; ValueError for the first that cannot be a label."""
    where = f"the Minari dataset {dataset.id!r}"
    missing = [i for i, row in enumerate(rows) if key not in row]
    if missing:
        known = ", ".join(sorted(set().union(*rows)))
        raise ValueError(
            f"{where} has no metadata {key!r} for {len(missing)} of {len(rows)} episodes: {few(indices[missing])}; "
            f"its episodes have: {known}"
        )
    values = [row[key] for row in rows]
    for i, value in enumerate(values):
        if not isinstance(value, bool | int | float | str):
            what = f"an array of shape {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
            raise ValueError(
                f"{where}: metadata {key!r} of episode {indices[i]} is {what}, not a label: a label is a number, a "
                "boolean or a string"
            )
    nan = [i for i, value in enumerate(values) if isinstance(value, float) and math.isnan(value)]
    if nan:
        raise ValueError(f"{where}: metadata {key!r} is used as a label but is NaN for episodes {few(indices[nan])}")
    return values


def _systems(labels: Mapping[str, Sequence[Any]]) -> list[Any]:
    """One label per episode: a single integer or string key as it is, anything else spelt out."""
    if len(labels) == 1:
        values = list(next(iter(labels.values())))
        kinds = set(map(type, values))
        if kinds in ({int}, {str}):
            return values
    return [system_label(dict(zip(labels, row, strict=True))) for row in zip(*labels.values(), strict=True)]
