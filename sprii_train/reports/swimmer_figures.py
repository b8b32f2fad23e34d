"""Figures of what persistent updates of Swimmer's frozen predictors are worth."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sprii_envs.swimmer import CANDIDATES, QUERIES

Array = NDArray[np.float64]


def gain_histograms(gains: Mapping[str, Array]) -> Figure:
    """Gains by system (S,), in 1e-5, of each base; the axis holds 98 % of all, the rest is in the outer bins."""
    figure = Figure(figsize=(3.4 * len(gains), 3.0), layout="constrained")
    low, high = np.quantile(np.concatenate(list(gains.values())), [0.01, 0.99])
    edge = max(abs(low), abs(high), 1e-9)
    bins = np.linspace(-edge, edge, 41)
    for axis, (name, values) in zip(figure.subplots(1, len(gains), squeeze=False)[0], gains.items(), strict=True):
        axis.hist(np.clip(values, -edge, edge), bins, color="#4c72b0")
        axis.axvline(0.0, color="black", linewidth=0.8)
        axis.axvline(float(values.mean()), color="#c44e52", linewidth=1.5)
        axis.set_title(f"{name}: {100 * (values > 0).mean():.1f} % above 0", fontsize=9)
        axis.set_xlabel("gain, 1e-5")
        axis.set_ylabel("systems")
        axis.spines[["top", "right"]].set_visible(False)
    return figure


def gain_maps(gains: Mapping[str, Array]) -> Figure:
    """Gains by query and candidate (Q, C), in 1e-5, of each base; one scale of colours for all."""
    figure = Figure(figsize=(3.6 * len(gains) + 1.2, 3.8), layout="constrained")
    limit = max(float(np.abs(values).max()) for values in gains.values()) or 1.0
    axes = figure.subplots(1, len(gains), squeeze=False)[0]
    for axis, (name, values) in zip(axes, gains.items(), strict=True):
        shown = axis.imshow(values, cmap="RdBu", vmin=-limit, vmax=limit)
        for q, c in np.ndindex(values.shape):
            dark = abs(values[q, c]) > 0.6 * limit
            text = f"{values[q, c]:.1f}"
            axis.text(c, q, text, ha="center", va="center", fontsize=6, color="white" if dark else "black")
        axis.set_xticks(range(len(CANDIDATES)), _spaced(CANDIDATES), rotation=60, ha="right", fontsize=7)
        first = axis is axes[0]
        axis.set_yticks(range(len(QUERIES)), _spaced(QUERIES) if first else [""] * len(QUERIES), fontsize=7)
        axis.set_xlabel("candidate")
        axis.set_title(name, fontsize=9)
        if first:
            axis.set_ylabel("query")
        if axis is axes[-1]:
            figure.colorbar(shown, ax=axis, label="gain, 1e-5")
    return figure


def _spaced(names: tuple[str, ...]) -> list[str]:
    return [name.replace("_", " ") for name in names]
