"""Windows → rollout means → system centroids: codes arranged for a measure."""

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from sprii_envs.relations import EpisodeTable
from sprii_train.analysis.populations import Population, Sample

P = TypeVar("P", bound=Population)
Array = NDArray[np.float64]


def sample_of(
    population: P,
    codes: torch.Tensor | NDArray,
    table: EpisodeTable,
    columns: Sequence[str],
    rows: NDArray[np.int64] | None = None,
) -> Sample[P]:
    """The `Sample` of codes (n, d), or of any trained encoder's features, of episodes of a table.

    Args:
        population: see `populations.population_of`.
        codes: converted to float64.
        table: the episodes of that population.
        columns: factors to keep.
        rows: (n,) the table's row of each code; None if there is one code for each row, in order.
    """
    if isinstance(codes, torch.Tensor):
        codes = codes.detach().cpu().double().numpy()
    rows = np.arange(len(table)) if rows is None else rows
    return Sample(
        population,
        np.asarray(codes, dtype=np.float64),
        table["system"][rows],
        {name: table[name][rows] for name in columns},
        table["episode"][rows],
    )


def group_means(values: NDArray, groups: NDArray) -> tuple[Array, NDArray[np.int64]]:
    """Mean of the rows (n, d) of each group, (g, d), and the row of its first member, (g,), in the order of the ids."""
    sums, first, counts = group_sums(values, groups)
    return sums / counts[:, None], first


def group_sums(values: NDArray, groups: NDArray) -> tuple[Array, NDArray[np.int64], NDArray[np.int64]]:
    """Sum of the rows (n, d) of each group, (g, d), the row of its first member and its size, (g,)."""
    _, first, inverse, counts = np.unique(groups, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(inverse, kind="stable")
    sums = np.add.reduceat(values[order], np.r_[0, np.cumsum(counts)[:-1]], axis=0)
    return sums, first, counts


def rollout_means(sample: Sample[P]) -> Sample[P]:
    """One row a rollout: the mean code of its windows. A sample without rollouts has one row a rollout already.

    Rows are ordered by system, then rollout.

    Raises:
        ValueError: for a factor that varies within a rollout: means are for persistent properties.
    """
    if sample.rollouts is None:
        return sample
    system, rollout = (np.unique(ids, return_inverse=True)[1] for ids in (sample.systems, sample.rollouts))
    return _grouped(sample, system * (int(rollout.max(initial=0)) + 1) + rollout, "rollout")


def system_centroids(sample: Sample[P]) -> Sample[P]:
    """One row a system: the mean of its rollout means, however many windows each has; ordered by system.

    Raises:
        ValueError: for a factor that varies within a system.
    """
    rollouts = rollout_means(sample)
    return _grouped(rollouts, rollouts.systems, "system", keep_rollouts=False)


def with_codes(sample: Sample[P], codes: Array) -> Sample[P]:
    """The same rows with other codes, standardised ones for instance."""
    return Sample(sample.population, codes, sample.systems, sample.factors, sample.rollouts)


def system_weights(systems: NDArray) -> Array:
    """Weights (n,) of mean 1 under which every system counts the same, whatever its number of rows."""
    _, inverse, counts = np.unique(systems, return_inverse=True, return_counts=True)
    return len(systems) / (len(counts) * counts[inverse])


def _grouped(sample: Sample[P], groups: NDArray, what: str, keep_rollouts: bool = True) -> Sample[P]:
    means, first = group_means(sample.codes, groups)
    inverse = np.unique(groups, return_inverse=True)[1]
    factors: dict[str, Any] = {}
    for name, column in sample.factors.items():
        factors[name] = column[first]
        if (factors[name][inverse] != column).any():
            raise ValueError(f"factor {name!r} varies within a {what}; only persistent properties can be averaged")
    rollouts = sample.rollouts[first] if keep_rollouts and sample.rollouts is not None else None
    return Sample(sample.population, means, sample.systems[first], factors, rollouts)
