"""The crossing of Proposition 3, in closed form and under the real samplers: a broader relation selects drag.

    python examples/spectral_selection.py --out spectral-selection.png

Three factors, mass, drag and stiffness, are the history, and predict the target with scores 3, 4 and 2. Pairs that
share the mass (G1) penalise drag and stiffness; pairs that share mass and drag (G2) penalise stiffness only. One
dimension of code then keeps the mass under G1 and the drag under G2, though the mass is shared in both. The points come
from 20 banks of 12,800 systems: K is a regression on the bank, D_G the disagreement of pairs that `PairSampler` draws.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sprii_envs.relations import EpisodeTable, PairSampler, Relation
from sprii_train.analysis.theory import crossing, disagreement, fit_reference, select, selection_matrix
from sprii_train.analysis.theory.crossing import SCORES
from sprii_train.reports.figures import png

G1 = Relation(shared=("mass",), differ=("drag", "stiffness"), name="G1")
G2 = Relation(shared=("mass", "drag"), differ=("stiffness",), name="G2")
BANKS, PAIRS = 20, 50_000
FACTORS = tuple(SCORES)
COLOURS = {"mass": "#4c72b0", "drag": "#dd8452", "stiffness": "#2a8c55"}


class Measured(NamedTuple):
    predictive: NDArray[np.float64]  # (banks, 3) diagonal of KᵀK
    penalised: NDArray[np.float64]  # (banks, 3) diagonal of KᵀK − D_G
    encoder: NDArray[np.float64]  # (banks, 3) the selected direction


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("spectral-selection.png"), help="PNG to write")
    out = parser.parse_args().out
    figure = Figure(figsize=(9.6, 3.9), layout="constrained")
    for axis, relation in zip(figure.subplots(1, 2, sharey=True), (G1, G2), strict=True):
        measured = measure(relation)
        panel(axis, relation, measured)
        report(relation, measured)
    handles, names = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=4, frameon=False)
    figure.axes[0].set_ylabel("score of the factor")
    out.write_bytes(png(figure, dpi=150))
    print(f"wrote {out}")


def bank(seed: int) -> tuple[EpisodeTable, NDArray[np.float64]]:
    """A table of 400 × 8 × 4 systems and their factors (n, 3), standard normal, all drags and stiffnesses different.

    Another drag of a mass is then an independent draw, which is the law of the closed form.
    """
    rows = np.arange(400 * 8 * 4)
    labels = {"mass": rows // 32, "drag": rows // 4, "stiffness": rows}
    rng = np.random.default_rng(seed)
    factors = np.stack([rng.standard_normal(label[-1] + 1)[label] for label in labels.values()], 1)
    episodes = {"episode": rows, "system": rows, "rollout": np.zeros_like(rows), "length": np.full_like(rows, 64)}
    return EpisodeTable({**episodes, **labels}), factors


def measure(relation: Relation) -> Measured:
    """Scores and selection on sampled banks, from histories, targets and drawn pairs alone."""
    found = []
    for seed in range(BANKS):
        table, histories = bank(seed)
        targets = histories * np.sqrt(list(SCORES.values()))
        reference = fit_reference(histories, targets)
        white = (histories - reference.mean) @ reference.whitener
        pairs = PairSampler(table, relation, seed=seed).batch(0, PAIRS)
        gap = disagreement(white[pairs.donor], white[pairs.recipient])
        scores = (np.diag(selection_matrix(reference.k, gap, beta)) for beta in (0.0, 1.0))
        found.append((*scores, select(reference.k, gap, d=1).encoder[0]))
    return Measured(*(np.stack(part) for part in zip(*found, strict=True)))


def panel(axis: Axes, relation: Relation, measured: Measured) -> None:
    """Bars: gray KᵀK, coloured M_G; black points: mean ± SD over banks; diamond: the selected direction."""
    exact = crossing(relation.shared)
    for x, name in enumerate(FACTORS):
        axis.bar(x - 0.2, exact.predictive[name], 0.38, color="#bdbdbd", label="predictive, KᵀK" if x == 0 else None)
        label = "coloured: less disagreement, KᵀK − D" if x == 0 else None
        axis.bar(x + 0.2, exact.penalised[name], 0.38, color=COLOURS[name], label=label)
    for shift, values in ((-0.2, measured.predictive), (0.2, measured.penalised)):
        label = f"sampled, mean ± SD of {BANKS} banks" if shift < 0 else None
        where = np.arange(len(FACTORS)) + shift
        style = {"fmt": "o", "color": "black", "markersize": 3.5, "capsize": 3, "linewidth": 1}
        axis.errorbar(where, values.mean(0), values.std(0, ddof=1), label=label, **style)
    top = FACTORS.index(exact.selected)
    axis.plot(top + 0.2, exact.penalised[exact.selected] + 0.75, "D", color="black", markersize=8, label="selected")
    shared = " and ".join(relation.shared)
    axis.set_title(f"{relation.name}: pairs share {shared}")
    axis.set_xticks(range(len(FACTORS)), FACTORS)
    axis.set_ylim(-0.4, 5.4)
    axis.axhline(0, color="black", linewidth=0.8)
    axis.grid(axis="y", alpha=0.3)
    axis.set_axisbelow(True)


def report(relation: Relation, measured: Measured) -> None:
    """Print closed form and measurement."""
    exact = crossing(relation.shared)
    chosen = [FACTORS[i] for i in np.abs(measured.encoder).argmax(1)]
    for i, name in enumerate(FACTORS):
        mean, sd = measured.penalised[:, i].mean(), measured.penalised[:, i].std(ddof=1)
        print(f"{relation.name}  {name:<9}  closed form {exact.penalised[name]:4.1f}   sampled {mean:6.3f} ± {sd:.3f}")
    print(f"{relation.name}  selected   {exact.selected}; in {chosen.count(exact.selected)} of {BANKS} sampled banks")


if __name__ == "__main__":
    main()
