"""What planning with one source's dynamics reaches in every group of systems to push, its contexts told or inferred."""

from collections.abc import Iterator
from typing import Any

import torch

from sprii_train.control import push as world
from sprii_train.control.context_fit import ContextFit, calibrated
from sprii_train.control.controllers import Config
from sprii_train.control.push_agents import learned, told
from sprii_train.experiments.measures.acting import Courses, acted
from sprii_train.experiments.sources import Source
from sprii_train.learners.histories import window_history
from sprii_train.settings.push import PlannedTrials

HISTORIES = 1_000
"""Of training episodes, which say how contexts are distributed and how well they predict."""


def push(source: Source) -> dict[str, Any]:
    """Rows by `ROW|PLANNER`, see `pushed`; kept beside the model: the course of each group's first episode.

    A source of a supervised context is told the truth (`told`); of another, its encoder infers the context (`encoder`),
    and prediction error fits it from there (`fit`).
    """
    trials = source.cell.trials
    assert isinstance(trials, PlannedTrials)
    acts, courses = {}, {}
    for name, controller in trials.planners:
        for row, agent in _agents(source, controller):
            key = f"{row}|{name}"
            acts[key], course = pushed(agent, source.seed, trials.episodes)
            courses |= {f"{key}|{each}": states for each, states in course.items()}
    source.keep(courses)
    return {"acts": acts}


def pushed(agent: Any, seed: int, episodes: int) -> tuple[dict[str, Any], Courses]:
    """Every group's episodes, see `acting.acted`."""
    return acted(
        agent, world.ENV_ID, groups=world.GROUPS, seed=seed, episodes=episodes, success=world.success,
        env_kwargs={"obs_type": "state", **world.CONSTANTS},
    )  # fmt: skip


def fit_of(source: Source) -> ContextFit:
    """The fit of a source's contexts: calibrated on histories of training episodes, none of whose systems is known."""
    setting, learner = source.setting, source.learner
    table = setting.episodes(source.store, "train")
    rng = torch.Generator().manual_seed(source.seed)
    chosen = torch.randperm(len(table), generator=rng)[:HISTORIES].numpy()
    windows = source.reader.histories(table["episode"][chosen], 0 * chosen)
    history = window_history(windows.observations, windows.actions, learner.history)
    return ContextFit(calibrated(learner, history), transitions=learner.history)


def _agents(source: Source, controller: Config) -> Iterator[tuple[str, Any]]:
    seed, learner = source.seed, source.learner
    if learner.config.context == "supervised":
        yield "told", told(learner, controller, seed=seed)
        return
    yield "encoder", learned(learner, controller, seed=seed)
    yield "fit", learned(learner, controller, seed=seed, fit=fit_of(source))
