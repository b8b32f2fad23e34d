"""What a target would cost: measured seconds of an update and of readers, scaled by this machine's rate of products."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache

import torch

from sprii_train.experiments.groups import Unit
from sprii_train.experiments.measures import MEASURES
from sprii_train.experiments.sources import ReaderBudget
from sprii_train.experiments.targets import Target
from sprii_train.recipes import EVERY_RECIPE
from sprii_train.settings import Budget, Setting, named_setting

REFERENCE_RATE = 95e9
"""FLOP/s of the product below, one thread, on the machine that the seconds of budgets and measures were taken on, by
`python benchmarks/training.py`."""

READER_SECONDS = 0.006  # of an update of a reader or a route


def estimate(target: Target, preset: str, rate: float | None = None) -> float | None:
    """Seconds, one worker, with no source trained yet; None where a setting lacks the preset.

    `rate` is the machine's FLOP/s, by default `product_rate()` of this one.
    """
    if any(preset not in named_setting(group.world).budgets for group in target.groups):
        return None
    settings = [(group, named_setting(group.world)) for group in target.groups]
    parts = [(group, own, own.budget(preset), group.arms(preset)) for group, own in settings]
    return seconds(parts, share=0.2 if preset == "smoke" else 1.0, rate=rate)


def seconds(
    parts: Iterable[tuple[Unit, Setting, Budget, Sequence[str]]], *, share: float = 1.0, rate: float | None = None
) -> float | None:
    """Seconds, one worker, of groups with their settings, budgets and arms; None where an update was never timed.

    Args:
        share: of the seconds of measures that a smaller store takes.
        rate: see `estimate`.
    """
    total, readers = 0.0, ReaderBudget()
    for group, setting, spent, arms in parts:
        acting = 0.0 if spent.trials is None else spent.trials.seconds
        for recipe in (EVERY_RECIPE[arm] for arm in group.sources(arms)):
            own = spent.of(recipe)
            if own.step_seconds is None:
                return None
            updates = sum(setting.updates(recipe, replace(own.train, seed=seed)) for seed in spent.sources)
            total += updates * own.step_seconds
        total += len(spent.sources) * (group.acting * acting + spent.shared_seconds)
        updates = readers.updates if spent.reader_steps is None else spent.reader_steps
        route_updates = readers.route_updates if spent.route_steps is None else spent.route_steps
        for measure in (MEASURES[name] for name in group.measures):
            fits = measure.reader_fits * updates + measure.route_fits * route_updates
            count = 1 if measure.once else spent.readers
            each = share * measure.seconds + count * fits * READER_SECONDS + measure.trials * acting
            total += len(spent.sources) * len(arms) * each
    return total * REFERENCE_RATE / (product_rate() if rate is None else rate)


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
    """Best measured FLOP/s of one float32 matrix product, one thread, by CPU time: other work does not count."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        a, b = torch.randn(size, size), torch.randn(size, size)
        best = float("inf")
        for _ in range(repeats):
            start = time.process_time()
            torch.mm(a, b)
            best = min(best, time.process_time() - start)
    finally:
        torch.set_num_threads(threads)
    return 2.0 * size**3 / best
