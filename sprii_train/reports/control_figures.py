"""Figures of control: return by group, and by iteration of training."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray


def returns_figure(
    groups: Sequence[str], arms: Sequence[tuple[str, str, Sequence[Sequence[float]], Sequence[float] | None]]
) -> Figure:
    """Mean return of every arm in every group, seeds as dots, the paper's as diamonds.

    Args:
        arms: label, colour, returns (seeds, groups), and the paper's, if it has any.
    """
    figure = Figure(figsize=(12.5, 4.6), layout="constrained")
    axis = figure.subplots()
    width, told = 0.8 / len(arms), True
    for i, (label, colour, returns, paper) in enumerate(arms):
        for x, values in enumerate(zip(*returns, strict=True)):
            at = x + (i - (len(arms) - 1) / 2) * width
            axis.bar(at, np.mean(values), 0.9 * width, color=colour, label=label if x == 0 else None)
            axis.plot([at] * len(values), values, ".", color="white", markeredgecolor="black", markersize=6)
            if paper is not None:
                first = "the paper's" if x == 0 and told else None
                told = False
                axis.plot(at, paper[x], "D", color="gold", markeredgecolor="black", markersize=5, label=first)
    axis.set_xticks(range(len(groups)), groups)
    axis.set_ylabel("return of 200 steps")
    axis.axhline(0.0, color="black", linewidth=0.8)
    axis.grid(axis="y", alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(ncols=len(arms) + 1, frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, 1.1))
    return figure


def curves_figure(runs: Sequence[tuple[str, str, Sequence[Mapping[str, Any]]]]) -> Figure:
    """Collected return and eligible systems of every run: label, colour and rows of its iterations."""
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    labelled: list[str] = []
    for label, colour, iterations in runs:
        shown, steps = None if label in labelled else label, range(1, len(iterations) + 1)
        labelled += [label] if shown else []
        width = max(1.0, 6.0 - 2.5 * labelled.index(label))  # runs that coincide show beneath each other
        for axis, name in ((left, "collected_return"), (right, "eligible_systems")):
            axis.plot(
                steps, [i[name] for i in iterations], "o-",
                color=colour, markersize=width + 2, linewidth=width, label=shown,
            )  # fmt: skip
    left.set_ylabel("mean return of collected episodes")
    right.set_ylabel("systems with two or more episodes")
    left.legend(frameon=False, fontsize=9)
    for axis in (left, right):
        axis.set_xlabel("iteration")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    right.yaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


class Course(NamedTuple):
    """An episode under one way of knowing its context.

    Attributes:
        label: of the column.
        angle, torque: (T + 1,) in rad and (T,) in shares of the greatest.
        inferred, truth: (T, F) and (F,), what is planned with, as people read it.
    """

    label: str
    angle: NDArray[np.float64]
    torque: NDArray[np.float64]
    inferred: NDArray[np.float64]
    truth: NDArray[np.float64]


def courses_figure(courses: Sequence[Course], names: Sequence[str], dt: float = 0.05) -> Figure:
    """A column a course: angle from upright, torque, and each number of the context with the truth dashed."""
    count = 2 + len(names)
    figure = Figure(figsize=(3.1 * len(courses), 1.7 * count), layout="constrained")
    axes = figure.subplots(count, len(courses), sharex=True, sharey="row", squeeze=False)
    for column, course in zip(axes.T, courses, strict=True):
        time = dt * np.arange(len(course.torque))
        angle = (course.angle[:-1] + np.pi) % (2 * np.pi) - np.pi
        angle[1:][np.abs(np.diff(angle)) > np.pi] = np.nan  # hanging, ±π: no line across
        column[0].plot(time, angle, color="#4c72b0")
        column[1].step(time, course.torque, color="#c44e52", linewidth=0.8)
        for axis, values, truth in zip(column[2:], course.inferred.T, course.truth, strict=True):
            axis.plot(time, values, color="#2a8c55")
            axis.axhline(truth, color="black", linestyle="--", linewidth=0.8)
        column[0].set_title(course.label, fontsize=9)
        column[-1].set_xlabel("time (s)")
        for axis in column:
            axis.grid(alpha=0.3)
            axis.spines[["top", "right"]].set_visible(False)
    for axis, name in zip(axes[:, 0], ("angle from\nupright (rad)", "torque (share)", *names), strict=True):
        axis.set_ylabel(name)
    return figure
