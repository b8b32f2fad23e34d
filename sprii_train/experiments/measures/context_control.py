"""What a source's model reaches with each way of knowing its context, under each planner (`ext:pendulum-context`)."""

import time
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sprii_envs.standardiser import Standardiser
from sprii_train.control.agent import PlanningAgent
from sprii_train.control.assay_bank import experience
from sprii_train.control.context_fit import ContextFit, calibrated
from sprii_train.control.pendulum_agents import ENV_ID, learned
from sprii_train.evaluation import evaluate_agent
from sprii_train.experiments.measures.acting import rows
from sprii_train.experiments.sources import Source
from sprii_train.learners.histories import History, window_history
from sprii_train.settings.base import PlannedTrials

SHOWN = "OOD_c3"
"""The group whose first episode is kept whole."""

_LEAST = 0.05  # kg and m, below which no fit goes
_SEED = 20_261_101

Courses = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Given:
    """A model whose contexts are told, (E, d), or (1, d) for all episodes."""

    inner: Any
    believed: Tensor
    history: int = 1

    def context(self, history: History) -> Tensor:
        """What is believed, whatever has been seen."""
        return self.believed.expand(len(history.filled), -1)

    def step(self, observation: Tensor, action: Tensor, context: Tensor) -> Tensor:
        """The model's."""
        return self.inner.step(observation, action, context)


@dataclass
class Told(PlanningAgent):
    """Planning with a learned model and the true properties of each episode, standardised as in training."""

    standardise: Any = None

    def tell(self, values: Any) -> None:
        """Mass and length, (E, 2)."""
        inner = self.model.inner if isinstance(self.model, Given) else self.model
        self.model = Given(inner, torch.from_numpy(self.standardise(np.asarray(values))).float())


def played(agent: PlanningAgent, seed: int, episodes: int) -> tuple[dict[str, Any], Courses]:
    """Rows by group, and the whole first episode of one: states, actions, properties, contexts where there are any."""
    contexts: list[Tensor] = []
    agent.watch = contexts.append
    began = time.perf_counter()
    found = evaluate_agent(agent, ENV_ID, seed=seed, episodes=episodes, record=True, progress=False)
    own, at = found.groups[SHOWN], list(found.groups).index(SHOWN) * episodes
    assert own.states is not None
    assert own.actions is not None
    course = {"states": own.states[0], "actions": own.actions[0], "values": own.values[0]}
    course["contexts"] = torch.stack([each[at] for each in contexts]).numpy()
    return {"seconds": time.perf_counter() - began, "groups": rows(found)}, course


def physical(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """What a torque does, 1/(m·l²), and what gravity does, 1/l, of masses and lengths (…, 2)."""
    mass, length = values[..., 0], values[..., 1]
    return np.stack([1.0 / (mass * length**2), 1.0 / length], axis=-1)


def context_control(source: Source) -> dict[str, Any]:
    """`acted.PLANNER.CONTEXT`: seconds and groups; `probe`: R² of linear probes of training contexts.

    Contexts are `true` of a model that is told them, `encoder` of one that encodes histories, and `fit`, fitted by
    prediction error to the last K transitions, which a model that is trained through a fit does by itself. Beside the
    model lie courses of one episode, see `played`, and the probes' weights, by which a picture reads contexts.
    """
    model, trials = source.learner, cast(PlannedTrials, source.cell.trials)
    seed, kind = source.seed, getattr(model.config, "contexts", "encoded")
    labelled = kind == "labelled"
    train = experience(source.store, "train")
    standardise = Standardiser.fit(train.properties)
    rng, k = np.random.default_rng((_SEED, seed)), model.config.history
    episodes = rng.integers(len(train), size=trials.histories)
    seen, done = train.windows(episodes, rng.integers(train.lengths[episodes] - k + 1), k + 1)
    history = window_history(torch.from_numpy(seen), torch.from_numpy(done), k)
    values = train.properties[episodes]
    told, ends = None, {}
    if labelled:
        told = torch.from_numpy(standardise(values)).float()
        ends["low"] = torch.from_numpy(standardise(np.full(values.shape[1], _LEAST))).float()
    fit = ContextFit(calibrated(model, history, told, **ends), transitions=k)
    with torch.inference_mode():
        contexts = (model.context(history) if told is None else told).double().numpy()
    weights, r2 = _probe(contexts, physical(values))
    acted: dict[str, dict[str, Any]] = {}
    courses: Courses = {"probe": weights}
    for planner, controller in trials.planners:
        plain = learned(model, controller, seed=seed)
        agents = {"fit": plain if kind == "fitted" else learned(model, controller, seed=seed, fit=fit)}
        if labelled:
            agents["true"] = Told(
                model, controller, plain.reward, seed=seed, reads_next=False, bounds=plain.bounds,
                standardise=standardise,
            )  # fmt: skip
        elif kind == "encoded":
            agents["encoder"] = plain
        acted[planner] = {}
        for name, agent in agents.items():
            acted[planner][name], course = played(agent, seed, trials.episodes)
            courses |= {f"{planner}|{name}|{key}": values for key, values in course.items()}
    source.keep(courses)
    return {"acted": acted, "probe": {"torque": r2[0], "gravity": r2[1]}}


def _probe(contexts: NDArray[np.float64], targets: NDArray[np.float64]) -> tuple[NDArray[np.float64], list[float]]:
    """Least squares of targets on contexts and 1: weights (d + 1, F), and R²."""
    x = np.concatenate([contexts, np.ones((len(contexts), 1))], axis=1)
    weights = np.linalg.lstsq(x, targets, rcond=None)[0]
    r2: list[float] = (1.0 - ((x @ weights - targets) ** 2).mean(0) / targets.var(0)).tolist()
    return weights.astype(np.float64), r2
