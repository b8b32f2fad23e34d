"""Pairs per second of the relation samplers, beside what training loops use instead, in the same run.

    python benchmarks/relations.py [--episodes 1000000] [--rounds 5]

Beside ours: a plain-Python dict of lists (a random episode, then another of its system), and MPerClassSampler of
pytorch-metric-learning where that is installed (two episodes each of n systems). Rows take turns; a time is the best
round's median. Read the ratios: absolute rates move with the machine and its load.
"""

import argparse
import importlib
import random
import time
import tracemalloc
from collections import defaultdict
from collections.abc import Callable
from statistics import median

import numpy as np

from sprii_envs.arguments import option
from sprii_envs.relations import (
    SAME_ROLLOUT,
    SAME_SYSTEM,
    Derangement,
    EpisodeTable,
    PairSampler,
    Relation,
    Weighted,
    WindowSampler,
    knn_graph,
    random_history,
)

SIZES = (96, 1024, 8192)
G1 = Relation(("mass",), ("drag", "stiffness"), name="G1")
OTHER_DRAG = Relation(("mass",), ("drag",))
Draw = Callable[[int, int], object]  # of step and n


def bank(episodes: int, rollouts: int = 4) -> EpisodeTable:
    """Systems of four rollouts with ten levels of mass and drag and 28 of stiffness, and a weight an episode."""
    systems = -(-episodes // rollouts)
    rng = np.random.default_rng(0)
    levels = {name: rng.integers(0, n, systems) for name, n in (("mass", 10), ("drag", 10), ("stiffness", 28))}
    return EpisodeTable(
        {
            "episode": np.arange(systems * rollouts),
            "system": np.repeat(np.arange(systems), rollouts),
            "rollout": np.tile(np.arange(rollouts), systems),
            "length": np.full(systems * rollouts, 64),
            **{name: np.repeat(level, rollouts) for name, level in levels.items()},
            "weight": rng.random(systems * rollouts),
        }
    )


def dict_of_lists(table: EpisodeTable) -> Draw:
    """The plain-Python same-system sampler."""
    groups: dict[int, list[int]] = defaultdict(list)
    system = table["system"].tolist()
    for row, name in enumerate(system):
        groups[name].append(row)
    rows = len(system)

    def batch(step: int, n: int) -> tuple[list[int], list[int]]:
        rng = random.Random(step)
        recipient, donor = [], []
        for _ in range(n):
            b = rng.randrange(rows)
            a = b
            while a == b:
                a = rng.choice(groups[system[b]])
            recipient.append(b)
            donor.append(a)
        return recipient, donor

    return batch


def m_per_class(table: EpisodeTable) -> Draw:
    """pytorch-metric-learning's: n classes, two of each. ImportError where it is not installed."""
    sampler = importlib.import_module("pytorch_metric_learning.samplers").MPerClassSampler(table["system"], m=2)

    def batch(step: int, n: int) -> list[int]:
        sampler.batch_size = sampler.list_size = 2 * n  # as its constructor sets them: one batch an iteration
        return list(sampler)

    return batch


def ours(*arguments: object, **options: object) -> Callable[[EpisodeTable], Draw]:
    return lambda table: PairSampler(table, *arguments, **options).batch  # type: ignore[arg-type]


def windows(table: EpisodeTable) -> Draw:
    sampler = WindowSampler(table)
    pairs = {n: PairSampler(table, SAME_SYSTEM).batch(0, n) for n in SIZES}
    return lambda step, n: sampler.batch(step, pairs[n])


ROWS: dict[str, Callable[[EpisodeTable], Draw]] = {
    "dict of lists, Python": dict_of_lists,
    "MPerClassSampler": m_per_class,
    "same system": ours(SAME_SYSTEM),
    "same system, distinct": ours(SAME_SYSTEM, distinct="system"),
    "same system, deranged, distinct": ours(SAME_SYSTEM, Derangement(), distinct="system"),
    "same rollout, distinct": ours(SAME_ROLLOUT, distinct="system"),
    "same mass, other drag": ours(OTHER_DRAG),
    "same mass, other drag (pair)": ours(OTHER_DRAG, law="pair"),
    "same mass, other drag (balanced)": ours(OTHER_DRAG, law="balanced"),
    "same mass, other drag, weighted": ours(OTHER_DRAG, Weighted("weight")),
    "G1, two differ": ours(G1),
    "G1, two differ, distinct": ours(G1, distinct="system"),
    "random graph of 3, distinct": lambda table: ours(SAME_SYSTEM, random_history(len(table)), distinct="system")(
        table
    ),
    "windows of given pairs": windows,
}


def seconds_per_call(draw: Draw, n: int, budget: float) -> float:
    """Median time of a batch over the budget, at least three, after one warm-up."""
    draw(0, n)
    times, step, end = [], 1, time.perf_counter() + budget
    while time.perf_counter() < end or len(times) < 3:
        start = time.perf_counter()
        draw(step, n)
        times.append(time.perf_counter() - start)
        step += 1
    return median(times)


def best(draws: dict[str, Draw], sizes: tuple[int, ...], rounds: int) -> dict[tuple[str, int], float]:
    """The best round of every row and batch size; rows take turns."""
    found: dict[tuple[str, int], float] = {}
    for _ in range(rounds):
        for label, draw in draws.items():
            for n in sizes:
                found[label, n] = min(found.get((label, n), np.inf), seconds_per_call(draw, n, 0.05))
    return found


def bytes_kept(make: Callable[[EpisodeTable], Draw], table: EpisodeTable) -> float:
    """Memory that a sampler keeps, per episode; the table itself is not counted."""
    tracemalloc.start()
    kept = make(table)
    kept(0, 96)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size / len(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--episodes", type=option(most=10**8), default=1_000_000)
    parser.add_argument("--rounds", type=option(), default=5)
    arguments = parser.parse_args()
    table = bank(arguments.episodes)
    sizes = tuple(n for n in SIZES if 4 * n <= len(table))  # recipients of distinct systems

    draws, build = {}, {}
    for label, make in ROWS.items():
        times = []
        try:
            for _ in range(3):
                start = time.perf_counter()
                draws[label] = make(table)
                times.append(time.perf_counter() - start)
            build[label] = min(times)
        except ImportError as error:
            print(f"{label}: left out ({error})")
    found = best(draws, sizes, arguments.rounds)
    print(f"\n{len(table):,} episodes; a batch of n pairs: time, million pairs/s, ratio to the dict of lists\n")
    print(f"{'':<34}{'build':>8}{'kept':>8}" + "".join(f"{f'n = {n:,}':>30}" for n in sizes))
    for label in draws:
        cells = []
        for n in sizes:
            t = found[label, n]
            ratio = found["dict of lists, Python", n] / t
            cells.append(f"{f'{1e6 * t:,.0f} µs {n / t / 1e6:7.4g} M ×{ratio:7.3g}':>30}")
        print(f"{label:<34}{build[label]:>6.2f} s{bytes_kept(ROWS[label], table):>6.0f} B" + "".join(cells))

    print("\nµs for a batch of 96, by number of episodes\n")
    scales = [10**e for e in range(3, 7) if 10**e <= arguments.episodes]
    print(f"{'':<34}" + "".join(f"{scale:>12,}" for scale in scales))
    chosen = [label for label in draws if label not in ("MPerClassSampler", "windows of given pairs")]
    by_scale = {scale: best({label: ROWS[label](bank(scale)) for label in chosen}, (96,), 3) for scale in scales}
    for label in chosen:
        print(f"{label:<34}" + "".join(f"{1e6 * by_scale[scale][label, 96]:>12,.0f}" for scale in scales))

    codes = np.random.default_rng(0).normal(size=(8000, 64)).astype(np.float32)
    graphs = []
    for _ in range(3):
        start = time.perf_counter()
        knn_graph(codes)
        graphs.append(time.perf_counter() - start)
    print(f"\nknn_graph of 8,000 codes of 64 dimensions: {min(graphs):.2f} s")


if __name__ == "__main__":
    main()
