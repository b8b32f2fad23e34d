"""Figures of grasps: sensors over time by configuration, and which property codes tell."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray

SATURATED = 97.0
"""Percentile of absolute changes at which the colours end."""
COLOURS = ("#2a8c55", "#4c72b0", "#7f7f7f")


def sensor_changes(changes: NDArray[np.floating], shapes: Sequence[str], levels: Sequence[str]) -> Figure:
    """A row a shape, a column a level of hardness, taxels over time (`fig:v3-baxter`).

    Args:
        changes: since the first sample, (shapes, levels, T, taxels).
    """
    figure = Figure(figsize=(3.1 * len(levels) + 0.8, 2.1 * len(shapes) + 0.4), layout="constrained")
    axes = figure.subplots(len(shapes), len(levels), squeeze=False, sharex=True, sharey=True)
    limit = float(np.percentile(np.abs(changes), SATURATED)) or 1.0
    colours = ScalarMappable(Normalize(-limit, limit), "RdBu_r")
    for row, own in zip(axes, changes, strict=True):
        for axis, taxels in zip(row, own, strict=True):
            axis.imshow(taxels.T, cmap=colours.cmap, norm=colours.norm, aspect="auto", interpolation="nearest")
    for axis, level in zip(axes[0], levels, strict=True):
        axis.set_title(level, fontsize=10)
    for axis, shape in zip(axes[:, 0], shapes, strict=True):
        axis.set_ylabel(f"{shape}\ntaxel", fontsize=9)
    for axis in axes[-1]:
        axis.set_xlabel("sample", fontsize=9)
    figure.colorbar(colours, ax=axes, label="change since the first sample", extend="both")
    return figure


def selectivity(scores: Mapping[str, Sequence[tuple[str, NDArray[np.floating]]]], chances: Sequence[float]) -> Figure:
    """A panel a property, a bar a condition, mean ± SD over sources (`fig:baxter-selectivity`).

    Args:
        scores: what is read → (condition, numbers of its sources).
        chances: of each panel, a dashed line.
    """
    figure = Figure(figsize=(4.0 * len(scores), 3.6), layout="constrained")
    for axis, (title, bars), chance in zip(
        figure.subplots(1, len(scores), squeeze=False)[0], scores.items(), chances, strict=True
    ):
        for i, (_, found) in enumerate(bars):
            spread = found.std(ddof=1) if len(found) > 1 else 0.0
            axis.bar(i, found.mean(), yerr=spread, capsize=3, color=COLOURS[min(i, len(COLOURS) - 1)], width=0.7)
            axis.scatter(np.full(len(found), i), found, s=9, color="black", zorder=3)
        axis.axhline(chance, color="black", linestyle="--", linewidth=1)
        axis.set_xticks(range(len(bars)), [name.replace(": ", "\n") for name, _ in bars], fontsize=8)
        axis.set_ylim(0.0, 1.05)
        axis.set_title(title, fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
    return figure
