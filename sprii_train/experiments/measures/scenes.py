"""What another history does to a predictor of forces and of the tool's motion (`app:rh20t`)."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sprii_envs.banks.store import origin_of
from sprii_train.experiments.sources import Source
from sprii_train.robots.scene_donors import NONE, queries
from sprii_train.robots.scene_errors import Bench, Told
from sprii_train.robots.scenes import SceneReader

Array = NDArray[np.float64]

POPULATIONS = ("test", "validation")
WINDOWS = 4
"""Queries of a scene."""
COUNTS = (1, 2, 4)
"""Of donors whose codes are averaged."""
HARD = ("commanded", "calibrated")
"""Donors of another task that are hard to tell: by their commands, and by their calibration."""


def scenes(source: Source) -> dict[str, Any]:
    """Errors by population, condition and endpoint, each the mean of tasks; errors by task are kept.

    `self`, `matched` (another scene of the task) and `shuffled` (of the task that a derangement gives). `still`:
    matched, with all commands zeroed. `correct_k4`, `random_k4`: the mean of four codes. On queries that have every
    kind of donor, `bank:matched`, `bank:commanded`, `bank:calibrated`, `bank:random` and `bank:hard`, the mean of the
    middle two. A monolithic context has no donors, and a joint one no context of its own and one donor.
    """
    setting: Any = source.setting
    reader = source.reader
    assert isinstance(reader, SceneReader)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(source.seed)
        blank = setting.fresh(source.store, source.learner.config).eval()
    row: dict[str, Any] = {
        "data": str(origin_of(source.store).get("kind", "recorded")),
        "errors": {},
        "baseline": {},
        "tasks": {},
        "queries": {},
    }
    kept: dict[str, Array] = {}
    for population in POPULATIONS:
        table = setting.episodes(source.store, population)
        bench = Bench(reader, table, queries(table, reader.history, reader.horizons[-1], WINDOWS))
        found, eligible = conditions(source.learner, bench)
        beside = {"last": bench.last, "mean": bench.mean}
        if source.learner.config.context != "joint":
            beside["untrained"] = bench.predicted(blank, None)
        for name, of in (("errors", found), ("baseline", _tasks(bench, beside))):
            row[name][population] = {
                condition: {endpoint: float(np.nanmean(values)) for endpoint, values in own.items()}
                for condition, own in of.items()
            }
            kept |= {f"{population}|{c}|{e}": values for c, own in of.items() for e, values in own.items()}
        row["tasks"][population] = len(bench.donors.tasks)
        row["queries"][population] = {"all": len(eligible), "bank": int(eligible.sum())}
    source.keep(kept)
    return row


def conditions(learner: Any, bench: Bench) -> tuple[dict[str, dict[str, Array]], NDArray[np.bool_]]:
    """Condition → endpoint → errors by task, and which queries have all kinds of donors."""
    donors, context = bench.donors, learner.config.context
    matched, random = donors.matched(max(COUNTS)), donors.random(max(COUNTS))
    others = {"commanded": donors.commanded(matched[:, 0]), "calibrated": donors.calibrated(), "random": random[:, 0]}
    eligible = np.all([matched[:, 0] != NONE, *(rows != NONE for rows in others.values())], axis=0)
    if context == "monolithic":
        return _tasks(bench, {"self": bench.predicted(learner, None)}), eligible
    told: dict[str, Told] = {} if context == "joint" else {"self": bench.predicted(learner, None)}

    def under(given: NDArray[np.int64], **options: Any) -> Told:
        return bench.averaged(learner, given.reshape(len(given), -1), **options)

    told |= {"matched": under(matched[:, 0]), "shuffled": under(donors.shuffled())}
    told["still"] = under(matched[:, 0], still=True)
    for count in COUNTS[:1] if context == "joint" else COUNTS:
        told |= {f"correct_k{count}": under(matched[:, :count]), f"random_k{count}": under(random[:, :count])}
    found = _tasks(bench, told)
    if eligible.any():
        of = {name: bench.errors(under(rows)) for name, rows in others.items()}
        of["matched"] = bench.errors(told["matched"])
        of["hard"] = {e: np.mean([of[name][e] for name in HARD], axis=0) for e in of["matched"]}
        found |= {
            f"bank:{name}": {e: bench.by_task(values, eligible) for e, values in own.items()}
            for name, own in of.items()
        }
    return found, eligible


def _tasks(bench: Bench, told: dict[str, Told]) -> dict[str, dict[str, Array]]:
    return {
        name: {endpoint: bench.by_task(values) for endpoint, values in bench.errors(each).items()}
        for name, each in told.items()
    }
