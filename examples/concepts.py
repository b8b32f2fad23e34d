"""The picture of the concepts, assets/concepts.svg: python examples/concepts.py

Two episodes of one system, what Align and Cross do with their contexts, and what Formation, Use and Value ask. The two
curves are real: D-Clean's puck under one drag, pushed in two ways.
"""

from pathlib import Path

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

import sprii_envs  # noqa: F401  (registers the environments)

ASSETS = Path(__file__).parents[1] / "assets"
DONOR, RECIPIENT, INK, FAINT = "#b3541e", "#2f5d8a", "#222222", "#777777"
HISTORY = 16
"""Steps of a history; what comes after is the future."""


def positions(seed: int, steps: int = 26) -> np.ndarray:
    """Places (steps + 1, 2) of the puck in one episode of the system with drag 0.5."""
    env = gym.make("sprii/D-Clean-v0", obs_type="state")
    observation, _ = env.reset(seed=seed, options={"system": {"drag": 0.5}})
    forces = np.random.default_rng(seed).uniform(-1, 1, (-(-steps // 6), 2)).astype(np.float32)
    found = [observation[:2], *(env.step(force)[0][:2] for force in np.repeat(forces, 6, axis=0)[:steps])]
    return np.array(found)


def box(ax: Axes, x: float, y: float, wide: float, high: float, text: str, colour: str, fill: str = "white") -> None:
    """A box around (x, y) with a text in it."""
    ax.add_patch(
        FancyBboxPatch(
            (x - wide / 2, y - high / 2),
            wide,
            high,
            boxstyle="round,pad=0,rounding_size=1.2",
            ec=colour,
            fc=fill,
            lw=1.6,
        )
    )
    ax.text(
        x, y, text, ha="center", va="center", color=colour if fill == "white" else INK, fontsize=12.5, linespacing=1.25
    )


def arrow(
    ax: Axes, start: tuple[float, float], end: tuple[float, float], colour: str, style: str = "-|>", **more
) -> None:
    ax.add_patch(FancyArrowPatch(start, end, arrowstyle=style, mutation_scale=15, color=colour, lw=1.8, **more))


def episode(ax: Axes, x: float, y: float, path: np.ndarray, colour: str) -> None:
    """A path in a frame: its history drawn through, its future dotted."""
    box(ax, x, y, 40, 17, "", colour)
    scaled = (path - path.mean(0)) / np.ptp(path, axis=0) * [30, 11.5]
    scaled += [x, y] - (scaled.max(0) + scaled.min(0)) / 2
    ax.plot(*scaled[: HISTORY + 1].T, color=colour, lw=2.2)
    ax.plot(*scaled[HISTORY:].T, color=colour, lw=2.0, ls=(0, (1, 1.3)))
    ax.plot(*scaled[HISTORY], "o", color=colour, ms=7)
    ax.plot(*scaled[0], "|", color=colour, ms=9, mew=2)


def draw() -> None:
    """Write the picture."""
    plt.rcParams.update({"svg.hashsalt": "sprii", "font.family": "DejaVu Sans"})
    figure = plt.figure(figsize=(6.4, 8.4), facecolor="white")
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, 100), ylim=(-3, 128))
    ax.axis("off")

    box(ax, 50, 121, 62, 10, "one system: drag 0.5 in every episode\npersistent, and in no observation", INK, "#f2efe6")
    arrow(ax, (40, 116), (26, 110), FAINT)
    arrow(ax, (60, 116), (74, 110), FAINT)

    episode(ax, 25, 96, positions(3), DONOR)
    episode(ax, 75, 96, positions(8), RECIPIENT)
    ax.text(25, 106.5, "donor's episode", ha="center", color=DONOR, fontsize=13, weight="bold")
    ax.text(75, 106.5, "recipient's episode", ha="center", color=RECIPIENT, fontsize=13, weight="bold")
    arrow(ax, (45.2, 96), (54.8, 96), INK, "<|-|>")
    ax.text(50, 82.9, "relation:\nsame system", ha="center", va="center", fontsize=12, color=INK)
    for x in (10, 90):
        ax.text(x, 84.2, "history —\nfuture ····", ha="center", va="center", fontsize=11.5, color=FAINT)

    for x, colour in ((25, DONOR), (75, RECIPIENT)):
        arrow(ax, (x, 87), (x, 78), colour)
        box(ax, x, 74.5, 26, 7, "encoder", colour)
        arrow(ax, (x, 71), (x, 64.5), colour)
    ax.text(50, 74.5, "same weights", ha="center", va="center", fontsize=11.5, color=FAINT)
    box(ax, 25, 60, 30, 9, "context $z_p$\nof the donor", DONOR)
    box(ax, 75, 60, 30, 9, "context $z_p$\nof the recipient", RECIPIENT)
    arrow(ax, (40.5, 60), (59.5, 60), INK, "<|-|>")
    ax.text(50, 64.6, "Align", ha="center", fontsize=14, weight="bold")
    ax.text(50, 54.5, "agree,\nand vary", ha="center", va="center", fontsize=11.5, color=FAINT)

    box(ax, 60, 36, 44, 9.5, "predictor\npresent $z_s$, actions, context", INK, "#e8edf3")
    arrow(ax, (25, 55.3), (44, 41.2), DONOR)
    arrow(ax, (80, 55.3), (75, 41.2), RECIPIENT)
    ax.text(22.5, 43.5, "Cross", ha="center", fontsize=14, weight="bold", color=INK)
    ax.text(
        18.5,
        37.8,
        "the donor's context\nin the recipient's place",
        ha="center",
        va="center",
        fontsize=11.5,
        color=FAINT,
    )
    arrow(ax, (60, 31), (60, 26.6), INK)
    box(ax, 60, 22.5, 44, 7.5, "recipient's future, its error", RECIPIENT)

    ax.plot([2, 98], [14.5, 14.5], color="#cccccc", lw=1)
    for x, name, asks in (
        (17, "Formation", "is the property\nin the context?"),
        (50, "Use", "does another context\nmove the prediction?"),
        (83, "Value", "is the error\nlower for it?"),
    ):
        ax.text(x, 8.6, name, ha="center", fontsize=14, weight="bold")
        ax.text(x, 2.3, asks, ha="center", va="center", fontsize=11.5, color=INK)
    figure.savefig(ASSETS / "concepts.svg", metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    draw()
