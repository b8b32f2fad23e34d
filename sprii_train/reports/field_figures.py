"""Figures of fields over space and time: truth, predictions and their errors."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

FIELD, ERROR = "RdBu_r", "PuOr_r"


def field_panels(truth: NDArray, predicted: Mapping[str, Mapping[str, NDArray]]) -> Figure:
    """One row a model: truth, then the prediction with each donor and its error; fields share a scale, errors another.

    Args:
        truth: (T, X), of times t from 0 to T.
        predicted: label of a model → label of a donor → (T, X).
    """
    donors = list(next(iter(predicted.values())))
    columns = 1 + 2 * len(donors)
    figure = Figure(figsize=(2.3 * columns + 1.2, 2.3 * len(predicted) + 0.5), layout="constrained")
    axes = figure.subplots(len(predicted), columns, squeeze=False, sharex=True, sharey=True)
    level = float(np.abs(truth).max())
    worst = max(float(np.abs(field - truth).max()) for own in predicted.values() for field in own.values())
    images = {}
    for number, (row, (model, own)) in enumerate(zip(axes, predicted.items(), strict=True)):
        shown = [("truth", truth, FIELD, level)]
        for donor in donors:
            shown += [(donor, own[donor], FIELD, level), (f"{donor}: error", own[donor] - truth, ERROR, worst)]
        for axis, (title, field, colours, limit) in zip(row, shown, strict=True):
            images[colours] = axis.imshow(
                field.T, aspect="auto", origin="lower", extent=(0, 1, -1, 1), cmap=colours, vmin=-limit, vmax=limit
            )
            if number == 0:
                axis.set_title(title, fontsize=10)
            if number == len(axes) - 1:
                axis.set_xlabel("t / T")
        row[0].set_ylabel(f"{model}\nx")
    figure.colorbar(images[FIELD], ax=axes, label="u", shrink=0.8, pad=0.01)
    figure.colorbar(images[ERROR], ax=axes, label="error", shrink=0.8, pad=0.01)
    return figure
