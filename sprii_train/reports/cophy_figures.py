"""Figures of CoPhy: gains by learner and scene, memory and its use, errors in pairs, trajectories, KL over training."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator
from numpy.typing import NDArray

from sprii_envs.cophy.objects import PALETTE

COLOURS = {"Native": "#7f7f7f", "Structure": "#4c72b0", "SPRII": "#2a8c55", "Random": "#c44e52"}
STYLES = ("-", "--", ":")
Array = NDArray[np.floating]


def colour(label: str) -> str:
    """Of an arm, by the end of its label."""
    return next((c for name, c in COLOURS.items() if label.endswith(name)), "#8172b3")


def breadth(reductions: Mapping[str, Array], learners: Sequence[str], scenes: Sequence[str]) -> Figure:
    """Heat maps of percent reductions, a panel a control (`fig:v3-cophy-breadth`).

    Args:
        reductions: control → (learners, scenes), NaN where an arm was not trained.
    """
    figure = Figure(figsize=(3.6 * len(reductions) + 1, 0.7 * len(learners) + 1.4), layout="constrained")
    axes = figure.subplots(1, len(reductions), squeeze=False)[0]
    every = np.concatenate([np.ravel(each) for each in reductions.values()])
    whole = max(1.0, float(np.nanmax(np.abs(every)))) if np.isfinite(every).any() else 1.0
    shown = None
    for axis, (control, found) in zip(axes, reductions.items(), strict=True):
        shown = axis.imshow(found, cmap="RdYlGn", vmin=-whole, vmax=whole, aspect="auto")
        axis.set_title(f"against {control}", fontsize=10)
        axis.set_xticks(range(len(scenes)), scenes, fontsize=9)
        axis.set_yticks(range(len(learners)), learners if axis is axes[0] else [""] * len(learners), fontsize=9)
        for (i, j), value in np.ndenumerate(found):
            text = "–" if np.isnan(value) else f"{value:+.1f}"
            axis.text(j, i, text, ha="center", va="center", fontsize=9)
    if shown is not None:
        figure.colorbar(shown, ax=axes, label="% lower error")
    return figure


def memory_bars(read: Mapping[str, Array], rise: Mapping[str, Array], factors: Sequence[str]) -> Figure:
    """R² of probes of memory, and rises of error with one factor wrong, by recipe (`fig:v3-balls`).

    Args:
        read, rise: recipe → (sources, factors).
    """
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    panels = ((read, "R² of probes of the reader's memory"), (rise, "one factor wrong − matched, m²"))
    for axis, (found, title) in zip(figure.subplots(1, 2), panels, strict=True):
        width = 0.8 / len(found)
        for i, (label, values) in enumerate(found.items()):
            at = np.arange(len(factors)) + width * (i - 0.5 * (len(found) - 1))
            axis.bar(at, values.mean(axis=0), 0.9 * width, color=colour(label), label=label)
            for source in values:
                axis.plot(at, source, "o", color="black", markersize=3, markerfacecolor="white")
        axis.axhline(0.0, color="black", linewidth=0.8)
        axis.set_title(title, fontsize=10)
        axis.set_xticks(range(len(factors)), factors)
        axis.spines[["top", "right"]].set_visible(False)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), frameon=False, fontsize=8, loc="outside right center")
    return figure


def episode_pairs(errors: Mapping[str, Array], own: str) -> Figure:
    """Distributions of errors, and every control against one arm, in pairs (`fig:visual-collision-pairs`).

    Args:
        errors: arm → (N,), all above 0.
        own: the arm on the vertical axis.
    """
    controls = [label for label in errors if label != own]
    figure = Figure(figsize=(3.1 * (1 + len(controls)), 3.2), layout="constrained")
    first, *others = figure.subplots(1, 1 + len(controls), squeeze=False)[0]
    least = min(float(values.min()) for values in errors.values())
    low, high = max(least, 1e-9), max(float(values.max()) for values in errors.values())
    for label, values in errors.items():
        first.plot(np.sort(values), np.linspace(0, 1, len(values)), color=colour(label), label=label)
    first.set_xscale("log")
    _marked(first.xaxis, low, high)
    first.set_xlabel("error, m²")
    first.set_ylabel("share of recipients")
    first.legend(frameon=False, fontsize=8)
    for axis, label in zip(others, controls, strict=True):
        axis.plot(errors[label], errors[own], ".", markersize=2, alpha=0.5, color=colour(label), rasterized=True)
        axis.plot([low, high], [low, high], color="black", linewidth=0.8)
        axis.set_xscale("log")
        axis.set_yscale("log")
        _marked(axis.xaxis, low, high)
        _marked(axis.yaxis, low, high)
        axis.set_xlabel(f"{label}, m²")
        share = float((errors[own] < errors[label]).mean())
        axis.set_title(f"{own} lower in {share:.0%}", fontsize=10)
    others[0].set_ylabel(f"{own}, m²")
    return figure


def _marked(axis: Axis, low: float, high: float) -> None:
    """Plain numbers at 1, 2 and 5 of a logarithmic axis, at powers of ten where these would be many."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 100 * low else (1.0,)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_locator(NullLocator())


def trajectories(
    shown: Mapping[str, Mapping[str, NDArray[Any]]], *, axes: tuple[int, int], colours: Sequence[str]
) -> Figure:
    """One query, an arm a panel: true paths, and what is predicted with matched and with wrong histories.

    Args:
        shown: arm → `first` (3, O, 3) and `true` (L, O, 3), the true given frames and the rest; `matched` and `wrong`
            (L, O, D), `seen` and `slot` (O,).
        axes: coordinates drawn.
        colours: by slot.
    """
    columns = min(4, len(shown))
    rows = -(-len(shown) // columns)
    figure = Figure(figsize=(3.2 * columns, 3.3 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for panel in panels.flat[len(shown) :]:
        panel.set_visible(False)
    for panel, (label, found) in zip(panels.flat, shown.items(), strict=False):
        drawn = [axis for axis in axes if axis < found["matched"].shape[-1]]
        a, b = drawn if len(drawn) == 2 else (0, 1)
        for o in np.flatnonzero(found["seen"]):
            tint = np.array(PALETTE[colours[int(found["slot"][o])]]) / 255
            panel.plot(found["true"][:, o, a], found["true"][:, o, b], "-", color=tint, linewidth=1.5)
            for name, marker in (("matched", "o"), ("wrong", "x")):
                path = found[name][:, o]
                panel.plot(path[:, a], path[:, b], marker, color=tint, markersize=3, alpha=0.7)
            panel.plot(found["first"][:, o, a], found["first"][:, o, b], "ks", markersize=4, zorder=3)
        panel.set_title(label, fontsize=10)
        panel.set_aspect("equal")
        panel.set_xlabel("xyz"[a] + ", m")
        panel.set_ylabel("xyz"[b] + ", m")
        panel.locator_params(axis="x", nbins=4)
        panel.label_outer()
    return figure


def rssm_course(courses: Mapping[str, Sequence[Mapping[str, float]]]) -> Figure:
    """KL over training, and the share of it that free nats hold.

    Args:
        courses: arm → logged rows with `step`, `kl` and perhaps `free_nats`, that share. What labels begin with, up to
            a comma, tells lines of one colour apart.
    """
    figure = Figure(figsize=(11, 3.2), layout="constrained")
    styles = dict(zip(dict.fromkeys(label.split(",")[0] for label in courses), STYLES, strict=False))
    left, right = figure.subplots(1, 2)
    for label, rows in courses.items():
        steps = [row["step"] for row in rows]
        for axis, name in ((left, "kl"), (right, "free_nats")):
            if name in rows[0]:
                axis.plot(
                    steps,
                    [row[name] for row in rows],
                    styles.get(label.split(",")[0], "-"),
                    color=colour(label),
                    label=label,
                )
    left.axhline(1.0, color="black", linewidth=0.8)
    left.set_ylabel("KL, nats; black: free nats")
    right.set_ylabel("share below the free nats")
    for axis in (left, right):
        axis.set_xlabel("update")
        axis.spines[["top", "right"]].set_visible(False)
    figure.legend(*left.get_legend_handles_labels(), frameon=False, fontsize=8, loc="outside right center")
    return figure
