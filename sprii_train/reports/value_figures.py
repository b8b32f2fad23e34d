"""Figures of Value: readers by horizon, and paired contrasts with their intervals."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sprii_train.analysis.statistics import Interval

READER_COLOURS = ("#7f7f7f", "#2a8c55", "#4c72b0", "#dd8452", "#c44e52")


def reader_horizons(
    horizons: Sequence[int], errors: Mapping[str, NDArray[np.floating]], gaps: Sequence[Interval], label: str
) -> Figure:
    """Errors by horizon on logarithmic scales, and one contrast by horizon (`fig:v3-dclean-readers`).

    Args:
        horizons: K steps.
        errors: reader → (K,) mean errors, at most five readers.
        gaps: K intervals.
        label: of the contrast.
    """
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for (name, curve), colour in zip(errors.items(), READER_COLOURS, strict=False):
        left.plot(horizons, curve, "o-", label=name, color=colour, markersize=4)
    left.set_yscale("log")
    left.set_ylabel("MSE")
    left.legend(frameon=False, fontsize=9)
    centres = [gap.estimate for gap in gaps]
    right.errorbar(horizons, centres, yerr=_spans(gaps), fmt="o-", color=READER_COLOURS[1], capsize=3, markersize=4)
    right.axhline(0.0, color="black", linewidth=0.8)
    right.set_ylabel(label)
    for axis in (left, right):
        axis.set_xscale("log", base=2)
        axis.set_xticks(horizons, [str(h) for h in horizons])
        axis.set_xlabel("horizon")
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    return figure


def source_horizons(
    horizons: Sequence[int], curves: Mapping[str, Sequence[Interval]], known: Mapping[str, Sequence[float]]
) -> Figure:
    """Errors by horizon with their intervals on logarithmic scales, a line a learner (`tab:dclean-all-budgets`).

    Args:
        horizons: K steps.
        curves: learner → K intervals, at most ten.
        known: readers that no learner has a part in → K errors, dashed.
    """
    figure = Figure(figsize=(7.4, 4.4), layout="constrained")
    axis = figure.subplots()
    for i, (name, found) in enumerate(curves.items()):
        at = np.asarray(horizons) * 1.025 ** (i - (len(curves) - 1) / 2)  # side by side
        axis.errorbar(
            at, [f.estimate for f in found], yerr=_spans(found), fmt="o-", label=name, color=f"C{i}", capsize=2,
            markersize=4, linewidth=1.4,
        )  # fmt: skip
    for (name, errors), colour in zip(known.items(), ("black", "#7f7f7f"), strict=False):
        axis.plot(horizons, errors, "--", label=name, color=colour, linewidth=1.0)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xticks(horizons, [str(h) for h in horizons])
    axis.set_xlabel("horizon")
    axis.set_ylabel("raw-state MSE")
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right upper", frameon=False, fontsize=9)
    return figure


def contrast_intervals(contrasts: Mapping[str, Interval], label: str) -> Figure:
    """A row an interval, with a line at 0 (`fig:v3-poke-components`).

    Args:
        contrasts: name → interval, from top to bottom.
        label: of the horizontal axis.
    """
    figure = Figure(figsize=(7.5, 0.5 * len(contrasts) + 1.2), layout="constrained")
    axis = figure.subplots()
    for y, found in enumerate(contrasts.values()):
        axis.plot([found.low, found.high], [y, y], color=READER_COLOURS[1], linewidth=2)
        axis.plot(found.estimate, y, "o", color=READER_COLOURS[1])
    axis.axvline(0.0, color="black", linewidth=0.8)
    axis.set_yticks(range(len(contrasts)), list(contrasts))
    axis.invert_yaxis()
    axis.set_xlabel(label)
    axis.grid(axis="x", alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    return figure


def prefix_curves(prefixes: Sequence[int], curves: Mapping[str, Sequence[Interval]]) -> Figure:
    """Errors by the recipient's observed transitions, with their intervals (`app:spring-recipient-evidence`).

    Args:
        prefixes: P numbers of transitions.
        curves: reader → P intervals, at most five readers.
    """
    figure = Figure(figsize=(6.2, 3.9), layout="constrained")
    axis = figure.subplots()
    for (name, found), colour in zip(curves.items(), READER_COLOURS, strict=False):
        axis.errorbar(
            prefixes, [f.estimate for f in found], yerr=_spans(found), fmt="o-", label=name, color=colour, capsize=3,
            markersize=4,
        )  # fmt: skip
    axis.set_xticks(prefixes)
    axis.set_ylim(bottom=0.0)
    axis.set_xlabel("observed transitions r of the recipient")
    axis.set_ylabel("error at h16")
    axis.legend(frameon=False, fontsize=9)
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    return figure


def paired_contrasts(
    panels: Mapping[str, Mapping[str, Mapping[str, Interval]]], kinds: Sequence[str], unit: float = 1e-3
) -> Figure:
    """Differences of error, a panel a population, with one interval a kind (`fig:reader-capacity-contrasts`).

    Args:
        panels: population → contrast → kind → interval, contrasts from top to bottom.
        kinds: in the order of their colours, at most four; a contrast may lack some.
        unit: of the horizontal axis, a power of ten.
    """
    rows = len(next(iter(panels.values())))
    figure = Figure(figsize=(5.4 * len(panels), 0.9 * rows + 1.7), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    colours, marks = dict(zip(kinds, READER_COLOURS[1:], strict=False)), {}
    for axis, (population, contrasts) in zip(axes, panels.items(), strict=True):
        for y, found in enumerate(contrasts.values()):
            for i, (kind, one) in enumerate(found.items()):
                at, colour = y + 0.2 * (i - (len(found) - 1) / 2), colours[kind]
                (marks[kind],) = axis.plot([one.low / unit, one.high / unit], [at, at], color=colour, linewidth=2)
                axis.plot(one.estimate / unit, at, "o", color=colour, markersize=5)
        axis.axvline(0.0, color="black", linewidth=0.8)
        axis.set_yticks(range(rows), list(contrasts))
        axis.set_title(population, fontsize=10)
        axis.set_xlabel(f"difference of MSE (× {unit:g})")
        axis.grid(axis="x", alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylim(rows - 0.5, -0.5)
    figure.legend(
        list(marks.values()), [f"over {kind}" for kind in marks], loc="outside lower center", ncols=len(marks),
        frameon=False, fontsize=9,
    )  # fmt: skip
    return figure


def reductions(families: Mapping[str, Sequence[float]]) -> Figure:
    """Bars of the mean over sources, a dot a source (`fig:v3-m1m2` a).

    Args:
        families: name → percent of each source.
    """
    figure = Figure(figsize=(1.5 * len(families) + 1.8, 3.7), layout="constrained")
    axis = figure.subplots()
    for x, shares in enumerate(families.values()):
        axis.bar(x, float(np.mean(shares)), 0.65, color=READER_COLOURS[1], alpha=0.9)
        at = x + 0.12 * (np.arange(len(shares)) - (len(shares) - 1) / 2)
        axis.plot(at, shares, "o", ms=4, mfc="white", mec="black", zorder=3)
    axis.axhline(0.0, color="black", linewidth=0.8)
    axis.set_xticks(range(len(families)), [name.replace(", ", "\n") for name in families], fontsize=9)
    axis.set_ylabel("100 · (M1 − M2) / M1")
    axis.grid(axis="y", alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    return figure


def _spans(found: Sequence[Interval]) -> NDArray[np.floating]:
    """Distances (2, n) of the ends from the estimates."""
    return np.abs([[f.estimate - f.low, f.high - f.estimate] for f in found]).T
