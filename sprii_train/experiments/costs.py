"""What a target would cost: measured seconds of an update and of readers, scaled by this machine's rate of products."""

import time
from functools import cache

import torch

from sprii_train.experiments.presets import budget
from sprii_train.experiments.targets import Target
from sprii_train.experiments.worlds import WORLDS

REFERENCE_RATE = 95e9
"""FLOP/s of the product below, one thread, on the machine of the seconds below."""

STEP_SECONDS = {
    ("poke", "smoke"): 0.02,
    ("poke", "quick"): 0.095,
    ("poke", "states"): 0.04,
    ("poke", "paper"): 4.4,
    ("spring", "smoke"): 0.03,
    ("spring", "quick"): 0.19,
    ("spring", "paper"): 75.0,
}
"""Seconds of an update, one thread, nothing else running (`python benchmarks/training.py`)."""

READER_SECONDS = 0.006  # of a reader's update
MEASURE_SECONDS = {"formation": 60.0, "direction": 20.0, "landscape": 60.0, "value": 60.0}
READER_FITS = {"landscape": 1, "value": 4}  # arms of the common reader; "landscape" fits one reader


def estimate(target: Target, preset: str) -> float:
    """Seconds on this machine, one worker, with no source trained yet."""
    total = 0.0
    for group in target.groups:
        world = group.world.split("-")[0]
        spent = budget(WORLDS[group.world], preset)
        sources = len(spent.sources) * len(group.arms(preset))
        total += sources * spent.train.steps * STEP_SECONDS[world, preset]
        updates = 10_000 if spent.reader_steps is None else spent.reader_steps
        for measure in group.measures:
            readers = READER_FITS.get(measure, 0) * (spent.readers if measure == "value" else 1)
            share = 0.2 if preset == "smoke" else 1.0
            total += sources * (share * MEASURE_SECONDS[measure] + readers * updates * READER_SECONDS)
    return total * REFERENCE_RATE / product_rate()


def span(seconds: float) -> str:
    """`< 1 min`, `25 min`, `7 h`, `12 days`."""
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
