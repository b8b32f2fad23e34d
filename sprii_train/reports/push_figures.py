"""Figures of pushing: return by group, and the paths of one episode under several agents."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from numpy.typing import NDArray

from sprii_train.analysis.statistics import Interval
from sprii_train.control.push import WITHIN, WORLD


def pushed_figure(groups: Sequence[str], lines: Sequence[tuple[str, str, Sequence[Interval]]]) -> Figure:
    """Mean return with its interval by group: label, colour and an interval a group of every line."""
    figure = Figure(figsize=(12.5, 4.6), layout="constrained")
    axis = figure.subplots()
    width = 0.8 / len(lines)
    for i, (label, colour, found) in enumerate(lines):
        at = np.arange(len(groups)) + (i - (len(lines) - 1) / 2) * width
        low, middle, high = np.array([(each.low, each.estimate, each.high) for each in found]).T
        axis.bar(at, middle, 0.9 * width, yerr=(middle - low, high - middle), color=colour, label=label)
    axis.set_xticks(range(len(groups)), groups)
    axis.set_ylabel(f"return of {WORLD.max_episode_steps} steps")
    axis.grid(axis="y", alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(ncols=4, frameon=False, fontsize=9, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return figure


def paths_figure(courses: Mapping[str, NDArray[np.float64]]) -> Figure:
    """Where finger and object went, a panel an agent: label → states (T + 1, 8)."""
    figure = Figure(figsize=(3.4 * len(courses), 3.8), layout="constrained")
    panels = np.atleast_1d(figure.subplots(1, len(courses), sharex=True, sharey=True))
    for axis, (label, states) in zip(panels, courses.items(), strict=True):
        axis.add_patch(Circle((WORLD.goal_x, WORLD.goal_y), WITHIN, color="#2a8c55", alpha=0.25))
        axis.plot(states[:, 0], states[:, 1], "-", color="#8a8a8a", linewidth=1, label="finger")
        axis.scatter(states[:, 4], states[:, 5], c=np.arange(len(states)), cmap="viridis", s=9, label="object")
        axis.add_patch(Circle((states[-1, 4], states[-1, 5]), WORLD.object_radius, fill=False, color="#4c72b0"))
        axis.set(title=label, xlim=(-WORLD.arena, WORLD.arena), ylim=(-WORLD.arena, WORLD.arena), aspect="equal")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=8, ncols=2, loc="outside lower center")
    return figure
