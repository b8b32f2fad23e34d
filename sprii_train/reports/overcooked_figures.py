"""Figures of Overcooked: returns with partners, by episode and by pair."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

COLOURS = {"h": "#7f7f7f", "h-vc": "#4c72b0", "h-sprii": "#2a8c55", "h-sprii-runs": "#8172b3", "h-random": "#c44e52"}


def return_curves(arms: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
    """Mean return with familiar partners by episode, of the rows of each arm."""
    figure = Figure(figsize=(7, 3.8), layout="constrained")
    axis = figure.subplots()
    for name, own in arms.items():
        mean = np.mean([row["curve"] for row in own], axis=0)
        axis.plot(range(1, len(mean) + 1), mean, "o-", color=COLOURS[name], markersize=3, label=own[0]["label"])
    axis.axvspan(0.5, 5.5, color="black", alpha=0.05, linewidth=0)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_xlabel("episode with the partner (the shaded ones are not in the return)")
    axis.set_ylabel("return of 100 steps")
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False)
    return figure


def crossplay_figure(matrix: np.ndarray, egos: Sequence[str], partners: Sequence[str]) -> Figure:
    """Mean returns of egos (rows) with partners (columns)."""
    figure = Figure(figsize=(2.6 + 0.62 * len(partners), 2.2 + 0.42 * len(egos)), layout="constrained")
    axis = figure.subplots()
    limit = float(np.abs(matrix).max()) or 1.0
    shown = axis.imshow(matrix, cmap="RdBu", vmin=-limit, vmax=limit, aspect="auto")
    for y, x in np.ndindex(matrix.shape):
        dark = abs(matrix[y, x]) > 0.6 * limit
        axis.text(x, y, f"{matrix[y, x]:.1f}", ha="center", va="center", fontsize=8, color="white" if dark else "black")
    axis.set_xticks(range(len(partners)), _plain(partners), rotation=45, ha="right", fontsize=8)
    axis.set_yticks(range(len(egos)), _plain(egos), fontsize=8)
    axis.set_xlabel("partner")
    axis.set_ylabel("ego")
    figure.colorbar(shown, ax=axis, label="mean return of 100 steps")
    return figure


def _plain(names: Sequence[str]) -> list[str]:
    """Names of partners come from files: matplotlib would set what is between dollars as mathematics."""
    return [name.replace("$", r"\$") for name in names]
