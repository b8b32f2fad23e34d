"""Figures of control: return by group, and by iteration of training."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator


def returns_figure(
    groups: Sequence[str], arms: Sequence[tuple[str, str, Sequence[Sequence[float]], Sequence[float] | None]]
) -> Figure:
    """Mean return of every arm in every group, seeds as dots, the paper's as diamonds.

    Args:
        arms: label, colour, returns (seeds, groups), and the paper's, if it has any.
    """
    figure = Figure(figsize=(12.5, 4.6), layout="constrained")
    axis = figure.subplots()
    width = 0.8 / len(arms)
    for i, (label, colour, returns, paper) in enumerate(arms):
        for x, values in enumerate(zip(*returns, strict=True)):
            at = x + (i - (len(arms) - 1) / 2) * width
            axis.bar(at, np.mean(values), 0.9 * width, color=colour, label=label if x == 0 else None)
            axis.plot([at] * len(values), values, ".", color="white", markeredgecolor="black", markersize=6)
            if paper is not None:
                axis.plot(at, paper[x], "D", color="gold", markeredgecolor="black", markersize=5)
    axis.set_xticks(range(len(groups)), groups)
    axis.set_ylabel("return of 200 steps")
    axis.axhline(0.0, color="black", linewidth=0.8)
    axis.grid(axis="y", alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(ncols=len(arms), frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, 1.1))
    return figure


def curves_figure(runs: Sequence[tuple[str, str, Sequence[Mapping[str, Any]]]]) -> Figure:
    """Collected return and eligible systems of every run: label, colour and rows of its iterations."""
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    labelled: set[str] = set()
    for label, colour, iterations in runs:
        shown, steps = None if label in labelled else label, range(1, len(iterations) + 1)
        labelled.add(label)
        for axis, name in ((left, "collected_return"), (right, "eligible_systems")):
            axis.plot(steps, [i[name] for i in iterations], "o-", color=colour, markersize=3, label=shown)
    left.set_ylabel("mean return of collected episodes")
    right.set_ylabel("systems with two or more episodes")
    left.legend(frameon=False, fontsize=9)
    for axis in (left, right):
        axis.set_xlabel("iteration")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    return figure
