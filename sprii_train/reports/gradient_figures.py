"""Figures of the gradients of Align and Cross."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from sprii_train.analysis.gradients import GradientObservations

WINDOW = 10  # parts of the training that a running mean is of


def cosine_courses(courses: Mapping[str, GradientObservations]) -> Figure:
    """Cosines by step, a panel a recipe: dots of one colour are one source, the line is the running mean of all.

    Args:
        courses: recipe → observations of its sources.
    """
    figure = Figure(figsize=(3.1 * len(courses) + 0.6, 3.2), layout="constrained")
    axes = figure.subplots(1, len(courses), sharey=True, squeeze=False)[0]
    for axis, (label, seen) in zip(axes, courses.items(), strict=True):
        axis.axhline(0.0, color="black", linewidth=0.8)
        for i, source in enumerate(np.unique(seen.source)):
            own = seen.select(seen.source == source)
            axis.plot(own.step, own.cosine, ".", color=f"C{i}", markersize=4, alpha=0.6)
        span = seen.step.max() / WINDOW
        steps = np.unique(seen.step)
        near = np.abs(seen.step[None] - steps[:, None]) <= span / 2
        valid = near & ~np.isnan(seen.cosine)
        means = np.where(valid, seen.cosine, 0.0).sum(1) / np.maximum(valid.sum(1), 1)
        axis.plot(steps, np.where(valid.any(1), means, np.nan), color="black", linewidth=1.6)
        axis.set_title(label, fontsize=10)
        axis.set_xlabel("update")
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("cosine of ∇Align and ∇Cross")
    return figure
