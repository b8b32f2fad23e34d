"""What a target would cost: measured seconds of an update and of readers, scaled by this machine's rate of products."""

import time
from functools import cache

import torch

from sprii_train.experiments.presets import BUDGETS, budget
from sprii_train.experiments.sources import ReaderBudget
from sprii_train.experiments.targets import Group, Target
from sprii_train.experiments.worlds import WORLDS

REFERENCE_RATE = 95e9
"""FLOP/s of the product below, one thread, on the machine of the seconds below."""

STEP_SECONDS = {
    ("d-clean", "smoke"): 0.02,
    ("d-clean", "quick"): 0.05,
    ("d-clean", "paper"): 0.27,
    ("poke", "smoke"): 0.02,
    ("poke", "quick"): 0.095,
    ("poke", "states"): 0.04,
    ("poke", "paper"): 4.4,
    ("spring", "smoke"): 0.03,
    ("spring", "quick"): 0.19,
    ("spring", "paper"): 75.0,
}
"""Seconds of an update, one thread, nothing else running (`python benchmarks/training.py`)."""

READER_SECONDS = 0.006  # of an update of a reader or a route
MEASURE_SECONDS = {"direction": 40.0, "atlas": 20.0, "evidence": 30.0, "cost": 0.0, "gradients": 0.0}
OTHERS = 60.0  # of every other measure, encoding and probes, without the fits below
READER_FITS = {
    "landscape": 1,
    "response": 1,
    "prefix": 3 * 5 * 1.5,
    "value": 4,
    "sealed": 1,
    "bottleneck": 4 * 3,
    "poke-value": 4,
    "targeted": 2,
}
"""Arms of the common reader; an update of the bottleneck's six horizons takes three times as long, one of a
recurrent reader half as long again."""
ROUTE_FITS = {"value": 4, "routes": 18, "object-routes": 3, "realization": 5}  # in units of `route_updates`


def estimate(target: Target, preset: str) -> float | None:
    """Seconds on this machine, one worker, with no source trained yet; None where a world lacks the preset."""
    if any(preset not in BUDGETS[group.world] for group in target.groups):
        return None
    total = 0.0
    for group in target.groups:
        world = "poke" if group.world.startswith("poke") else group.world
        spent, measures = budget(WORLDS[group.world], preset), ()
        sources = len(spent.sources)
        if isinstance(group, Group):
            sources, measures = sources * len(group.arms(preset)), group.measures
        elif not group.trains:
            continue
        total += sources * spent.train.steps * STEP_SECONDS[world, preset]
        readers = ReaderBudget()
        updates = readers.updates if spent.reader_steps is None else spent.reader_steps
        route_updates = readers.route_updates if spent.route_steps is None else spent.route_steps
        for measure in measures:
            fits = READER_FITS.get(measure, 0) * updates + ROUTE_FITS.get(measure, 0) * route_updates
            count = 1 if measure in ("landscape", "response") else spent.readers
            share = 0.2 if preset == "smoke" else 1.0
            total += sources * (share * MEASURE_SECONDS.get(measure, OTHERS) + count * fits * READER_SECONDS)
    return total * REFERENCE_RATE / product_rate()


def span(seconds: float | None) -> str:
    """`< 1 min`, `25 min`, `7 h`, `12 days`; `–` for none."""
    if seconds is None:
        return "–"
    if seconds < 60:
        return "< 1 min"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 2 * 86400 else f"{seconds / 86400:.0f} days"


@cache
def product_rate(size: int = 1024, repeats: int = 5) -> float:
    """Best measured FLOP/s of one float32 matrix product, one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        a, b = torch.randn(size, size), torch.randn(size, size)
        best = float("inf")
        for _ in range(repeats):
            start = time.perf_counter()
            torch.mm(a, b)
            best = min(best, time.perf_counter() - start)
    finally:
        torch.set_num_threads(threads)
    return 2.0 * size**3 / best
