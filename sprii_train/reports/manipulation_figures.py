"""Figures of recorded manipulation."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sprii_train.analysis.statistics import Interval


def task_differences(found: Mapping[str, tuple[NDArray[np.floating], Interval | None]]) -> Figure:
    """A panel an endpoint, a dot a task, and the mean with its interval (`fig:v3-rh20t`, b).

    Args:
        found: endpoint → differences (tasks,) and the interval of their mean.
    """
    figure = Figure(figsize=(1.9 * len(found), 3.0), layout="constrained")
    for axis, (title, (differences, mean)) in zip(
        figure.subplots(1, len(found), squeeze=False)[0], found.items(), strict=True
    ):
        spread = np.linspace(-0.15, 0.15, len(differences))
        axis.scatter(spread, differences, s=9, color="#4c72b0", alpha=0.6)
        if mean is not None:
            ends = [[mean.estimate - mean.low], [mean.high - mean.estimate]]
            axis.errorbar([0.35], [mean.estimate], yerr=ends, fmt="o", color="black", capsize=3)
        axis.axhline(0.0, color="black", linestyle="--", linewidth=1)
        axis.set_xticks([])
        axis.set_xlim(-0.4, 0.6)
        axis.set_title(title, fontsize=10)
        axis.spines[["top", "right", "bottom"]].set_visible(False)
    return figure
