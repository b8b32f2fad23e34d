"""Pairs per second of the relation samplers, beside a plain dict of lists in the same run.

    python benchmarks/relations.py [--episodes 1000000] [--seconds 0.5]

The comparison draws what most training loops draw: a random episode, then another of its system from a dict
of lists. Read the ratios; absolute rates move with the machine and its load.
"""

import argparse
import random
import time
from collections import defaultdict
from collections.abc import Callable
from statistics import median

import numpy as np

from sprii_envs.relations import (
    SAME_ROLLOUT,
    SAME_SYSTEM,
    Derangement,
    EpisodeTable,
    PairSampler,
    Relation,
    Uniform,
    WindowSampler,
)

SIZES = (96, 1024, 8192)


def bank(episodes: int, rollouts: int = 4) -> EpisodeTable:
    """Systems of four rollouts with ten levels of mass and drag and 28 of stiffness."""
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
        }
    )


def dict_of_lists(table: EpisodeTable) -> Callable[[int, int], tuple[list[int], list[int]]]:
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


def seconds_per_call(call: Callable[[int], object], budget: float) -> float:
    """Median time of a call over the budget, after one warm-up."""
    call(0)
    times, step, end = [], 1, time.perf_counter() + budget
    while time.perf_counter() < end or len(times) < 3:
        start = time.perf_counter()
        call(step)
        times.append(time.perf_counter() - start)
        step += 1
    return median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--episodes", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=0.3, help="time for each cell of the table")
    arguments = parser.parse_args()
    table = bank(arguments.episodes)

    start = time.perf_counter()
    plain = dict_of_lists(table)
    build = time.perf_counter() - start
    base = {n: seconds_per_call(lambda step, n=n: plain(step, n), arguments.seconds) for n in SIZES}
    print(f"{len(table):,} episodes; per batch: time, million pairs/s, ratio to the dict of lists\n")
    print(f"{'':<34}{'build':>8}" + "".join(f"{f'n = {n:,}':>26}" for n in SIZES))
    row("dict of lists, Python", build, base, base)

    g1 = Relation(("mass",), ("drag", "stiffness"), name="G1")
    cases = [
        (SAME_SYSTEM, Uniform(), {}),
        (SAME_SYSTEM, Uniform(), {"distinct": "system"}),
        (SAME_SYSTEM, Derangement(), {"distinct": "system"}),
        (SAME_ROLLOUT, Uniform(), {"distinct": "system"}),
        (Relation(("mass",), ("drag",)), Uniform(), {}),
        (Relation(("mass",), ("drag",)), Uniform(), {"law": "pair"}),
        (g1, Uniform(), {"distinct": "system"}),
    ]
    for relation, kernel, options in cases:
        start = time.perf_counter()
        sampler = PairSampler(table, relation, kernel, **options)
        build = time.perf_counter() - start
        times = {n: seconds_per_call(lambda step, n=n, s=sampler: s.batch(step, n), arguments.seconds) for n in SIZES}
        extra = " ".join(str(value) for value in options.values())
        deranged = " deranged" if isinstance(kernel, Derangement) else ""
        label = f"{relation}{deranged}{f' ({extra})' if extra else ''}"
        row(label, build, times, base)

    windows = WindowSampler(table)
    pairs = {n: PairSampler(table, SAME_SYSTEM).batch(0, n) for n in SIZES}
    times = {n: seconds_per_call(lambda step, n=n: windows.batch(step, pairs[n]), arguments.seconds) for n in SIZES}
    row("windows of given pairs", None, times, base)


def row(label: str, build: float | None, times: dict[int, float], base: dict[int, float]) -> None:
    cells = "".join(f"{f'{1e6 * t:,.0f} µs {n / t / 1e6:6.2f} M ×{base[n] / t:5.1f}':>26}" for n, t in times.items())
    print(f"{label:<34}{'' if build is None else f'{build:.2f} s':>8}{cells}")


if __name__ == "__main__":
    main()
