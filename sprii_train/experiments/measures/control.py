"""What planning with one source's model reaches in every group of pendulums, and what its contexts hold and do."""

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sprii_train.control.assay import context_probes, donor_errors
from sprii_train.control.assay_bank import experience
from sprii_train.control.loop import iterations_of
from sprii_train.control.pendulum_agents import ENV_ID, learned
from sprii_train.evaluation import Evaluation, evaluate_agent
from sprii_train.experiments.sources import Source

Courses = dict[str, NDArray[np.float64]]


def control(source: Source) -> dict[str, Any]:
    """Rows by group, of the iterations, and of the assay of the store's logged episodes.

    Kept beside the model: the course of each group's first episode, see `acted`.
    """
    run, trials, learner = source.cell.train, source.cell.trials, source.learner
    assert trials is not None
    row, courses = acted(learned(learner, run.controller, seed=run.seed), run.seed, trials.episodes)
    source.keep(courses)
    train, held_out = (experience(source.store, split) for split in ("train", "validation"))
    probes, donors = context_probes(learner, train, held_out), donor_errors(learner, held_out)
    assay = {f"r2_{name}": float(scored.r2) for name, scored in probes.items()}
    assay |= {"own_donor_h10": donors.matched_last, "wrong_minus_matched": donors.wrong_minus_matched}
    return row | {"iterations": iterations_of(source.folder), "assay": assay}


def acted(agent: Any, seed: int, episodes: int) -> tuple[dict[str, Any], Courses]:
    """Rows of every group and the seconds that took; `GROUP|states` and `GROUP|values` of each first episode."""
    began = time.perf_counter()
    found = evaluate_agent(agent, ENV_ID, seed=seed, episodes=episodes, record=True, progress=False)
    row = {"evaluation_seconds": time.perf_counter() - began, "groups": groups_of(found)}
    return row, {f"{g}|{name}": getattr(e, name)[0] for g, e in found.groups.items() for name in ("states", "values")}


def groups_of(found: Evaluation) -> dict[str, dict[str, Any]]:
    """Numbers by group, for JSON."""
    rows = {}
    for name, own in found.groups.items():
        assert own.success is not None
        rows[name] = {
            "return": float(own.returns.mean()),
            "success": float(own.success.mean()),
            "returns": own.returns.tolist(),
            "successes": own.success.tolist(),
            "mass": own.values[:, 0].tolist(),
            "length": own.values[:, 1].tolist(),
            "starts": own.starts,
        }
    return rows
