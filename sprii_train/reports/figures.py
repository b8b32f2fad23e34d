"""PNG bytes of any figure, without a display; the figures of D-Clean's report, atlases and courses of training."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.text import Text
from matplotlib.ticker import FixedFormatter, FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from sprii_train.analysis.statistics import Spread

COLOURS = {
    "native": "#7f7f7f",
    "structure": "#4c72b0",
    "same-rollout": "#dd8452",
    "align": "#8172b3",
    "cross": "#64b5cd",
    "align-cross": "#2a8c55",
    "align-random": "#c44e52",
    "supervised": "#937860",
}


_NOTE = "note"


def png(figure: Figure, dpi: int = 120) -> bytes:
    """Render to PNG bytes. Names are drawn as they are: a `$` in one starts no formula, and TeX is never called."""
    FigureCanvasAgg(figure)
    axes = [axis for each in figure.axes for axis in (each.xaxis, each.yaxis)]
    computed = [axis for axis in axes if not isinstance(axis.get_major_formatter(), FixedFormatter | FuncFormatter)]
    powers = {text for axis in computed for text in axis.get_ticklabels(which="both")}  # matplotlib's own, as 10⁻²
    for text in figure.findobj(Text):
        text.set_usetex(False)  # type: ignore[attr-defined]
        text.set_parse_math(text in powers)  # type: ignore[attr-defined]
    buffer = io.BytesIO()
    with rc_context({"text.usetex": False}):
        figure.savefig(buffer, format="png", dpi=dpi)
    return buffer.getvalue()


def noted(figure: Figure, note: str) -> Figure:
    """The figure with a line of small text below, in room of its own; as it is if it has one already."""
    if any(text.get_gid() == _NOTE for text in figure.texts):
        return figure
    width, height = figure.get_size_inches()
    room = 0.25 / (height + 0.25)
    figure.set_size_inches(width, height + 0.25)
    engine = figure.get_layout_engine()
    if isinstance(engine, ConstrainedLayoutEngine):
        engine.set(rect=(0.0, room, 1.0, 1.0 - room))
    else:
        figure.subplots_adjust(bottom=room + figure.subplotpars.bottom * (1.0 - room))
    figure.text(0.01, 0.3 * room, note, fontsize=7, color="#555555", gid=_NOTE)
    return figure


def summary(
    labels: Mapping[str, str],
    measured: Mapping[str, Mapping[str, Spread]],
    paper: Mapping[str, Mapping[str, Spread]],
    budget: str,
    rollouts: int,
) -> Figure:
    """Four panels: drag R², between/within, errors by donor, gap. Diamonds are the paper's, bars are ours.

    Args:
        labels: arm → name.
        measured, paper: arm → column → mean ± SD.
        budget: what the bars were trained with.
        rollouts: episodes a system; 1/rollouts is the between/within of codes without information.
    """
    arms = list(measured)
    figure = Figure(figsize=(13, 8.2), layout="constrained")
    axes = figure.subplots(2, 2)
    where = [float(i) for i in range(len(arms))]
    names = [labels[a].replace(" alignment", "\nalignment").replace(" + ", " +\n") for a in arms]
    panels = (
        (axes[0, 0], "drag_r2", "Drag R² of single windows (↑)", "linear"),
        (
            axes[0, 1],
            "between_within",
            f"Between / within distance of contexts (↑); dashed: no information, 1/{rollouts}",
            "log",
        ),
        (axes[1, 1], "gap", "Gap at h16: shuffled − correct-donor error (↑)", "linear"),
    )
    for axis, column, title, scale in panels:
        for x, arm in zip(where, arms, strict=True):
            _bar(axis, x, 0.7, measured[arm].get(column), COLOURS[arm])
            _diamond(axis, x, paper.get(arm, {}).get(column))
        axis.set_title(title)
        axis.set_yscale(scale)
    axes[0, 1].set_ylim(0.08, 2.0 * axes[0, 1].get_ylim()[1])
    axes[0, 1].axhline(1 / rollouts, color="black", linewidth=0.8, linestyle="--")
    axis = axes[1, 0]
    for offset, column, hatch in ((-0.2, "self_h16", ""), (0.2, "correct_h16", "///")):
        for x, arm in zip(where, arms, strict=True):
            _bar(axis, x + offset, 0.36, measured[arm].get(column), COLOURS[arm], hatch)
            _diamond(axis, x + offset, paper.get(arm, {}).get(column))
    axis.set_title("Error at h16 (↓): own context · same-system donor's (hatched)")
    axis.set_yscale("log")
    for axis in axes.flat:
        axis.set_xticks(where, names, fontsize=9)
        axis.grid(axis="y", alpha=0.3)
        axis.margins(y=0.12)
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"D-Clean: {budget}\nbars: measured, mean ± SD over sources · diamonds: the paper at 20,000 steps")
    return figure


def atlas(panels: Sequence[tuple[str, NDArray, NDArray, NDArray]]) -> Figure:
    """One scatter an arm: the first two principal components of held-out contexts, coloured by drag.

    Args:
        panels: (label, coordinates (n, 2), drag (n,), share of variance (2,)).
    """
    columns = min(4, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(3.4 * columns + 1.2, 3.5 * rows + 0.6), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    points = None
    for axis, (label, xy, drag, share) in zip(axes.flat, panels, strict=False):
        points = axis.scatter(xy[:, 0], xy[:, 1], c=drag, s=5, cmap="viridis", linewidths=0, rasterized=True)
        axis.set_title(label)
        axis.set_xlabel(f"PC 1 ({share[0]:.0%})")
        axis.set_ylabel(f"PC 2 ({share[1]:.0%})" if len(share) > 1 else "")
        axis.set_xticks([])
        axis.set_yticks([])
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    if points is not None:
        figure.colorbar(points, ax=axes, label="drag γ (1/s)", shrink=0.8)
    figure.suptitle("Persistent contexts of held-out systems: every dot is one episode")
    return figure


def atlas_grid(
    columns: Sequence[tuple[str, NDArray, NDArray]],
    rows: Sequence[tuple[str, Sequence[NDArray]]],
    title: str = "",
) -> Figure:
    """Principal components of several sources, recoloured by each factor (Figure `fig:poke-persistent-atlas`).

    A row colours all columns over one range, so colours compare along it; axes and orientations do not.

    Args:
        columns: (label, coordinates (n, 2), shares of variance (2,)) of every source or arm.
        rows: (factor, its values (n,) in every column).
        title: above the figure.

    Raises:
        ValueError: for a row without one array of values for each column.
    """
    figure = Figure(figsize=(2.3 * len(columns) + 1.1, 2.4 * len(rows) + 0.8), layout="constrained")
    axes = figure.subplots(len(rows), len(columns), squeeze=False)
    for row, (factor, values) in zip(axes, rows, strict=True):
        if [len(v) for v in values] != [len(xy) for _, xy, _ in columns]:
            raise ValueError(f"atlas_grid needs the values of {factor!r} for every point of {len(columns)} columns")
        colours = ScalarMappable(Normalize(min(v.min() for v in values), max(v.max() for v in values)), "viridis")
        for axis, (_, xy, _), value in zip(row, columns, values, strict=True):
            axis.scatter(xy[:, 0], xy[:, 1], c=colours.to_rgba(value), s=6, linewidths=0, rasterized=True)
            axis.set_aspect("equal", "datalim")
            axis.set_xticks([])
            axis.set_yticks([])
        figure.colorbar(colours, ax=list(row), label=factor, fraction=0.12 / len(columns), pad=0.01)
    for axis, (label, _, _) in zip(axes[0], columns, strict=True):
        axis.set_title(label, fontsize=10)
    for axis, (_, _, share) in zip(axes[-1], columns, strict=True):
        axis.set_xlabel(f"PC 1 ({share[0]:.0%}), PC 2 ({share[1]:.0%})", fontsize=8)
    if title:
        figure.suptitle(title)
    return figure


def curves(runs: Sequence[tuple[str, str, Sequence[Mapping[str, Any]]]]) -> Figure:
    """Training curves: self error, Align and gradient norm against steps.

    Args:
        runs: (arm, label, logged metrics).
    """
    figure = Figure(figsize=(13, 3.8), layout="constrained")
    axes = figure.subplots(1, 3)
    quantities = (
        ("self", "self loss (all horizons)", "log"),
        ("align", "Align", "linear"),
        ("gradient_norm", "gradient norm before clipping", "log"),
    )
    for axis, (key, title, scale) in zip(axes, quantities, strict=True):
        labelled = set()
        for arm, label, metrics in runs:
            points = [(m["step"], m[key]) for m in metrics if key in m]
            if points:
                axis.plot(
                    *zip(*points, strict=True),
                    color=COLOURS[arm],
                    alpha=0.8,
                    linewidth=1,
                    label=None if label in labelled else label,
                )
                labelled.add(label)
        axis.set_title(title)
        axis.set_yscale(scale)
        axis.set_xlabel("step")
        axis.xaxis.set_major_locator(MaxNLocator(5))
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
        if labelled:
            axis.legend(fontsize=8, frameon=False)
    return figure


def _bar(axis: Any, x: float, width: float, spread: Spread | None, colour: str, hatch: str = "") -> None:
    if spread is not None:
        error = spread.sd if spread.sd == spread.sd else None
        axis.bar(
            x,
            spread.mean,
            width,
            yerr=error,
            capsize=3,
            color=colour,
            hatch=hatch,
            edgecolor="white",
            alpha=0.9,
        )


def _diamond(axis: Any, x: float, spread: Spread | None) -> None:
    if spread is not None:
        axis.errorbar(
            x,
            spread.mean,
            yerr=spread.sd,
            fmt="D",
            ms=5,
            mfc="white",
            mec="black",
            ecolor="black",
            capsize=2,
            zorder=3,
        )
