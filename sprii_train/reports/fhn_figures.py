"""Figures of fields of FitzHugh–Nagumo: errors by histories, and u beside its predictions."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray

COLOURS = ("#4c72b0", "#2a8c55", "#c44e52")


def history_curves(
    histories: Sequence[int], errors: Mapping[str, Mapping[str, NDArray[np.floating]]], splits: Mapping[str, str]
) -> Figure:
    """Errors by history count, a panel a split (`fig:visual-fhn-history`).

    Args:
        errors: recipe → split → (sources, histories).
        splits: split → title.
    """
    figure = Figure(figsize=(10, 3.4), layout="constrained")
    for axis, (split, title) in zip(figure.subplots(1, len(splits)), splits.items(), strict=True):
        for i, (name, own) in enumerate(errors.items()):
            found = own[split]
            spread = found.std(axis=0, ddof=1) if len(found) > 1 else np.zeros(len(histories))
            at = np.arange(len(histories)) + 0.06 * (i - 0.5 * (len(errors) - 1))  # whiskers beside each other
            axis.errorbar(
                at, found.mean(axis=0), yerr=spread, fmt="o-", capsize=3, markersize=4, color=COLOURS[i % 3], label=name
            )
        axis.set_title(title, fontsize=10)
        axis.set_xticks(np.arange(len(histories)), [str(k) for k in histories])
        axis.set_xlabel("histories K")
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("relative L2 error, H50")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), frameon=False, fontsize=9, loc="outside right center")
    return figure


def fields_figure(fields: Mapping[str, NDArray[np.floating]], splits: Mapping[str, str]) -> Figure:
    """A row a split: the start, the truth, and prediction and error with a matched and a wrong history.

    Args:
        fields: split → (4, side, side): start, truth, matched, wrong.
        splits: split → title.
    """
    figure = Figure(figsize=(11, 2.0 * len(splits)), layout="constrained")
    titles = ("start", "truth", "own history", "error", "another system's", "error")
    axes = figure.subplots(len(splits), len(titles), squeeze=False)
    whole = max(float(np.abs(each).max()) for each in fields.values())
    lost = max(float(np.abs(each[2:] - each[1]).max()) for each in fields.values()) or 1.0
    value = ScalarMappable(Normalize(-whole, whole), "RdBu_r")
    error = ScalarMappable(Normalize(-lost, lost), "PuOr")
    for row, (split, title) in zip(axes, splits.items(), strict=True):
        start, truth, matched, wrong = fields[split]
        panels = (start, truth, matched, matched - truth, wrong, wrong - truth)
        for i, (axis, panel) in enumerate(zip(row, panels, strict=True)):
            colours = error if i in (3, 5) else value
            axis.imshow(panel, cmap=colours.cmap, norm=colours.norm)
            axis.set_xticks([])
            axis.set_yticks([])
        row[0].set_ylabel(title, fontsize=9)
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_title(title, fontsize=9)
    figure.colorbar(value, ax=axes, shrink=0.8, pad=0.01, label="u")
    figure.colorbar(error, ax=axes, shrink=0.8, pad=0.01, label="error of u")
    return figure
