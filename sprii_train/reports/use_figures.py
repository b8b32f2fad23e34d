"""Figures of Use: donor–target landscapes, valley depths, trajectories under donors, amplitude curves."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from sprii_train.analysis.statistics import Interval
from sprii_train.analysis.use.landscape import Valley
from sprii_train.reports.figures import COLOURS

Array = NDArray[np.floating]


class Panel(NamedTuple):
    """One landscape with the interval of its valley depth."""

    valley: Valley
    depth: Interval


class Case(NamedTuple):
    """One recipient's coordinate under L donor levels: the simulator's course and the reader's predictions."""

    levels: Array  # (L,)
    steps: Array  # (T,) at which the truth is given
    truth: Array  # (L, T)
    horizons: Array  # (K,)
    predicted: Array  # (L, K)
    label: str  # of the vertical axis


class Amplitudes(NamedTuple):
    """Errors (A,) of one source as its own and another system's context are scaled."""

    amplitudes: Array
    own: Array
    cross: Array


def landscapes(
    panels: Mapping[str, Mapping[str, Panel]], levels: Mapping[str, Array], labels: Mapping[str, str]
) -> Figure:
    """Heatmaps of `fig:functional-landscape`: a row a recipe, a column a factor, one colour scale a factor.

    Args:
        panels: recipe → factor → landscape.
        levels: factor → (L,) values.
        labels: recipe or factor → name.
    """
    factors = list(next(iter(panels.values())))
    figure = Figure(figsize=(4.1 * len(factors) + 0.4, 3.8 * len(panels) + 0.5), layout="constrained")
    axes = figure.subplots(len(panels), len(factors), squeeze=False)
    for column, factor in enumerate(factors):
        grids = [by_factor[factor].valley.grid for by_factor in panels.values()]
        low, high = min(g.min() for g in grids), max(g.max() for g in grids)
        image, ticks = None, range(len(levels[factor]))
        values = [f"{value:.4g}" for value in levels[factor]]
        for axis, (recipe, by_factor) in zip(axes[:, column], panels.items(), strict=True):
            valley, depth = by_factor[factor]
            image = axis.imshow(valley.grid, origin="lower", cmap="viridis", vmin=low, vmax=high)
            _cells(axis, valley.grid, low, high)
            axis.set_xticks(ticks, values, fontsize=8)
            axis.set_yticks(ticks, values, fontsize=8)
            axis.set_xlabel(f"target's {labels.get(factor, factor)}")
            axis.set_ylabel(f"donor's {labels.get(factor, factor)}")
            head = f"{labels.get(recipe, recipe)} · " if len(panels) > 1 else ""
            told = f"depth {depth.estimate:.2g} [{depth.low:.2g}, {depth.high:.2g}]\nρ = {valley.rho:.2f}"
            axis.set_title(f"{head}{labels.get(factor, factor)}\n{told}", fontsize=9)
        figure.colorbar(image, ax=axes[:, column].tolist(), label="error", shrink=0.85, aspect=15 * len(panels))  # pyright: ignore[reportArgumentType]
    figure.suptitle("Error of fixed weights by the donor's and the target's level; squares mark matching levels")
    return figure


def valley_depths(
    depths: Mapping[str, Mapping[str, Interval]],
    labels: Mapping[str, str],
    sources: Mapping[str, Mapping[str, Sequence[float]]] | None = None,
) -> Figure:
    """Bars of the valley depth of every recipe, a panel a factor (`fig:v3-spring-use` b).

    Args:
        depths: recipe → factor → pooled depth with its interval.
        labels: recipe or factor → name.
        sources: recipe → factor → the depths of single sources, drawn as dots.
    """
    factors = list(next(iter(depths.values())))
    figure = Figure(figsize=(3.6 * len(factors) + 0.4, 3.6), layout="constrained")
    axes = figure.subplots(1, len(factors), squeeze=False)[0]
    names = [labels.get(recipe, recipe).replace(" + ", " +\n") for recipe in depths]
    for axis, factor in zip(axes, factors, strict=True):
        for x, (recipe, by_factor) in enumerate(depths.items()):
            found = by_factor[factor]
            axis.bar(x, found.estimate, 0.7, color=COLOURS.get(recipe, "#7f7f7f"), alpha=0.9)
            axis.vlines(x, found.low, found.high, color="black", linewidth=1.4, zorder=3)
            dots = (sources or {}).get(recipe, {}).get(factor, ())
            at = x + 0.12 * (np.arange(len(dots)) - (len(dots) - 1) / 2)
            axis.plot(at, dots, "o", ms=4, mfc="white", mec="black", zorder=4)
        axis.axhline(0.0, color="black", linewidth=0.8)
        axis.set_xticks(range(len(names)), names, fontsize=8)
        axis.set_title(labels.get(factor, factor))
        _plain(axis)
    axes[0].set_ylabel("valley depth")
    level = next(iter(depths[next(iter(depths))].values())).level
    dots = "; dots: sources" if sources else ""
    figure.suptitle(f"Off-diagonal minus diagonal error, with {level:.0%} intervals over systems{dots}")
    return figure


def trajectories(cases: Mapping[str, Case], labels: Mapping[str, str]) -> Figure:
    """Lines of the simulator and markers of the fixed reader under each donor level (`fig:v3-spring-use` a).

    Args:
        cases: factor → one preselected recipient.
        labels: factor → name.
    """
    figure = Figure(figsize=(4.3 * len(cases) + 0.4, 3.7), layout="constrained")
    axes = figure.subplots(1, len(cases), squeeze=False)[0]
    for axis, (factor, case) in zip(axes, cases.items(), strict=True):
        colours = mpl.colormaps["viridis"](np.linspace(0.05, 0.9, len(case.levels)))
        for level, truth, predicted, colour in zip(case.levels, case.truth, case.predicted, colours, strict=True):
            axis.plot(case.steps, truth, color=colour, linewidth=1.6, label=f"{level:.4g}")
            axis.plot(case.horizons, predicted, "o", color=colour, ms=5.5, mec="black", mew=0.6)
        axis.set_title(labels.get(factor, factor))
        axis.set_xlabel("steps after the query")
        axis.set_ylabel(case.label)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.legend(title="level", fontsize=7, title_fontsize=8, frameon=False)
        _plain(axis)
    figure.suptitle("One query under other physics: lines the simulator, markers the fixed reader with that donor")
    return figure


def amplitude_curves(sources: Mapping[str, Amplitudes], labels: Mapping[str, str]) -> Figure:
    """Error against the scale of the context, own and cross-system (`tab:realization-replacements`).

    Args:
        sources: recipe → errors.
        labels: recipe → name.
    """
    figure = Figure(figsize=(6.2, 3.9), layout="constrained")
    axis = figure.subplots()
    for recipe, found in sources.items():
        colour, name = COLOURS.get(recipe, "#7f7f7f"), labels.get(recipe, recipe)
        axis.plot(found.amplitudes, found.own, "o-", color=colour, label=f"{name}: own system")
        axis.plot(found.amplitudes, found.cross, "s--", color=colour, mfc="white", label=f"{name}: another system")
    axis.set_xlabel("scale s of the context")
    axis.set_ylabel("error")
    axis.set_title("A fixed reader as its context is scaled, by the system it comes from", fontsize=10)
    axis.legend(fontsize=8, frameon=False)
    _plain(axis)
    return figure


def _cells(axis: Any, grid: Array, low: float, high: float) -> None:
    """The value of each cell, and a frame around the diagonal ones."""
    for donor, row in enumerate(grid):
        for target, value in enumerate(row):
            dark = value < low + 0.6 * (high - low)
            axis.text(
                target, donor, f"{value:.2g}", ha="center", va="center", fontsize=7, color="white" if dark else "black"
            )
        axis.add_patch(Rectangle((donor - 0.47, donor - 0.47), 0.94, 0.94, fill=False, edgecolor="red", linewidth=1.8))


def _plain(axis: Any) -> None:
    axis.grid(axis="y", alpha=0.3)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
