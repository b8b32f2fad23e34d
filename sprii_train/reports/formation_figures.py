"""Figures of Formation: measures along a design variable, and changes from a reference arm."""

from collections.abc import Container, Mapping, Sequence
from itertools import product

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from sprii_train.analysis.formation import Curve

OURS = ("#2a8c55", "#4c72b0", "#dd8452", "#8172b3")
PAPER = ("#7f7f7f", "#b0b0b0")


def design_curves(
    ours: Mapping[str, Mapping[str, Curve]],
    paper: Mapping[str, Mapping[str, Curve]],
    label: str,
    logarithmic: Container[str] = (),
) -> Figure:
    """A panel a measure: mean ± SD over sources along a design variable (`fig:relation-mechanism` a).

    Args:
        ours: measure → name → curve, at most four names.
        paper: the same of the paper, dashed, at most two names.
        label: of the design variable.
        logarithmic: measures, all above 0, whose axis is.
    """
    figure = Figure(figsize=(4.6 * len(ours) + 0.4, 4.2), layout="constrained")
    axes = figure.subplots(1, len(ours), squeeze=False)[0]
    for axis, (measure, curves) in zip(axes, ours.items(), strict=True):
        for name, colour in zip(paper.get(measure, {}), PAPER, strict=False):
            _line(axis, paper[measure][name], name, colour, "D--")
        for name, colour in zip(curves, OURS, strict=False):
            _line(axis, curves[name], name, colour, "o-")
        if measure in logarithmic:
            axis.set_yscale("log")
        else:
            axis.axhline(0.0, color="black", linewidth=0.8)
        axis.set_title(measure)
        axis.set_xlabel(label)
        axis.set_xticks(sorted({x for found in curves.values() for x in found.x}))
        axis.margins(x=0.1)
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False, fontsize=9)
    return figure


def changes(
    panels: Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]], paper: Mapping[str, Mapping[str, Mapping]]
) -> Figure:
    """Bars of the mean paired-source change from a reference (`fig:structured-mismatch-differences`).

    Args:
        panels: measure → arm → group of bars → the change in every source, drawn as dots.
        paper: measure → arm → group → the paper's mean change, a diamond where there is one.
    """
    figure = Figure(figsize=(5.6 * len(panels) + 0.4, 4.2), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, (measure, arms) in zip(axes, panels.items(), strict=True):
        groups, width = list(next(iter(arms.values()))), 0.8 / len(arms)
        for i, ((arm, found), colour) in enumerate(zip(arms.items(), OURS, strict=False)):
            centres = np.arange(len(groups)) + (i - (len(arms) - 1) / 2) * width
            axis.bar(centres, [np.mean(found[g]) for g in groups], 0.92 * width, color=colour, alpha=0.9, label=arm)
            for x, group in zip(centres, groups, strict=True):
                spread = np.arange(len(found[group])) - (len(found[group]) - 1) / 2
                axis.plot(
                    x + 0.15 * width * spread, found[group], "o", ms=3, mfc="white", mec="black", mew=0.7, zorder=3
                )
                if (value := paper.get(measure, {}).get(arm, {}).get(group)) is not None:
                    axis.plot(x, value, "D", ms=6, mfc="none", mec="black", zorder=4)
        axis.axhline(0.0, color="black", linewidth=0.8)
        axis.set_xticks(range(len(groups)), groups)
        axis.set_title(measure)
        axis.grid(axis="y", alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("change")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    return figure


def heat_maps(
    blocks: Mapping[str, Mapping[str, Mapping[str, float]]], paper: Mapping[str, Mapping[str, Mapping[str, float]]]
) -> Figure:
    """A map a block, in one colour scale that begins at 0 (`fig:v3-poke-formation-use`).

    Args:
        blocks: title → row → column → value, the same columns in every row of a block.
        paper: the same of the paper, printed in brackets where there is one.
    """
    figure = Figure(figsize=(4.4 * len(blocks) + 1.0, 3.6), layout="constrained")
    axes = figure.subplots(1, len(blocks), squeeze=False)[0]
    most = max(0.1, *(v for rows in blocks.values() for cells in rows.values() for v in cells.values() if v == v))
    shades = ScalarMappable(Normalize(0.0, most), "Blues")
    for axis, (title, rows) in zip(axes, blocks.items(), strict=True):
        columns = list(next(iter(rows.values())))
        values = np.array([[cells[column] for column in columns] for cells in rows.values()])
        axis.imshow(values, cmap="Blues", norm=shades.norm, aspect="auto")
        for (i, row), (j, column) in product(enumerate(rows), enumerate(columns)):
            told = f"{values[i, j]:.3f}".replace("-", "−")
            if (other := paper.get(title, {}).get(row, {}).get(column)) is not None:
                told += f"\n({other:.3f})".replace("-", "−")
            dark = values[i, j] > 0.55 * most
            axis.text(j, i, told, ha="center", va="center", fontsize=9, color="white" if dark else "black")
        axis.set_xticks(range(len(columns)), columns)
        axis.set_yticks(range(len(rows)), list(rows))
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)
        axis.set_title(title)
    figure.colorbar(shades, ax=list(axes), label="partial geometry ρ", shrink=0.9)
    return figure


def _line(axis, found: Curve, name: str, colour: str, style: str) -> None:
    sds = [spread.sd if spread.sd == spread.sd else 0.0 for spread in found.spreads]
    means = [spread.mean for spread in found.spreads]
    axis.errorbar(found.x, means, yerr=sds, fmt=style, color=colour, mfc="white" if "--" in style else colour, ms=5,
                  capsize=3, linewidth=1.6, label=name)  # fmt: skip
