"""What planning with one source's model reaches in every group of pendulums, and what its contexts hold and do."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sprii_envs.envs.pendulum import GROUPS
from sprii_envs.files import read_json, write_json
from sprii_train.checkpoints import CheckpointError
from sprii_train.control.assay import context_probes, donor_errors
from sprii_train.control.assay_bank import experience
from sprii_train.control.loop import iterations_of
from sprii_train.control.pendulum_agents import ENV_ID, learned, planner_name
from sprii_train.evaluation import evaluate_agent
from sprii_train.experiments.measures.acting import Courses, rows
from sprii_train.experiments.sources import Source
from sprii_train.identity import digest


def control(source: Source) -> dict[str, Any]:
    """Rows by group under every planner, of the iterations, and of the assay of the store's logged episodes.

    Kept beside the model: the course of each group's first episode, see `acted`.
    """
    cell, learner = source.cell, source.learner
    run, trials = cell.train, cell.trials
    assert trials is not None
    agents = {planner_name(each): learned(learner, each, seed=run.seed) for each in trials.controllers}
    played = Played(source.folder / "acted", digest(repr((cell.measurement(), trials.stem)))[:16])
    row, courses = acted(agents, run.seed, trials.episodes, played)
    source.keep(courses)
    train, held_out = (experience(source.store, split) for split in ("train", "validation"))
    probes, donors = context_probes(learner, train, held_out), donor_errors(learner, held_out)
    assay = {f"r2_{name}": float(scored.r2) for name, scored in probes.items()}
    assay |= {"own_donor_h10": donors.matched_last, "wrong_minus_matched": donors.wrong_minus_matched}
    return row | {"iterations": iterations_of(source.folder), "pairs": run.training.systems, "assay": assay}


class Played(NamedTuple):
    """Where episodes are kept that have been played, so that a stopped evaluation loses a group and planner at most.

    Attributes:
        folder: of a file each.
        claim: what they depend on; those of another are played again.
    """

    folder: Path
    claim: str


def acted(
    agents: Mapping[str, Any], seed: int, episodes: int, played: Played | None = None
) -> tuple[dict[str, Any], Courses]:
    """Rows of every group and the seconds they took; `GROUP|states` and `GROUP|values` of each first episode.

    Args:
        agents: planner → agent, which all meet the same episodes. The first one's rows are `groups` and its courses
            are given; those of the others are in `others`.

    Raises:
        CheckpointError: naming a file of episodes played before that is damaged.
    """
    found = {
        planner: {group: _group(agent, planner, group, seed, episodes, played) for group in GROUPS}
        for planner, agent in agents.items()
    }
    first, *others = found
    told = {planner: {group: each["row"] for group, each in own.items()} for planner, own in found.items()}
    row = {
        "evaluation_seconds": sum(each["seconds"] for own in found.values() for each in own.values()),
        "planner": first,
        "groups": told[first],
        "others": {planner: told[planner] for planner in others},
    }
    return row, {f"{g}|{name}": np.asarray(each[name]) for g, each in found[first].items() for name in _COURSE}


_COURSE = ("states", "values")


def _group(agent: Any, planner: str, group: str, seed: int, episodes: int, played: Played | None) -> dict[str, Any]:
    """Numbers of a group's episodes, for JSON, seconds and the first episode's course; from its file if it is there."""
    path = None if played is None else played.folder / f"{planner}-{group}.json"
    if played is not None and path is not None and path.exists():
        there = read_json(path, CheckpointError, "remove it and repeat the command")
        if there.pop("claim", None) == played.claim:
            if there.keys() != {"row", "seconds", *_COURSE}:
                raise CheckpointError(f"{path} is damaged: it holds {', '.join(there)}; remove it")
            return there
    began = time.perf_counter()
    told = evaluate_agent(agent, ENV_ID, groups=[group], seed=seed, episodes=episodes, record=True, progress=False)
    found: dict[str, Any] = {"row": rows(told)[group], "seconds": time.perf_counter() - began}
    found |= {name: getattr(told.groups[group], name)[0].tolist() for name in _COURSE}
    if played is not None and path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, found | {"claim": played.claim})
    return found
