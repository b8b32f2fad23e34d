"""Offline experience of the pendulum, for models that do not collect their own: no planner and no equations acts.

And what a saved model's fit at test time is calibrated by.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sprii_envs.arguments import integer
from sprii_envs.envs.pendulum import GROUPS
from sprii_envs.slots import Source
from sprii_envs.world import Array, rollout
from sprii_train.control.context_fit import ContextFit, calibrated
from sprii_train.control.experience import Experience
from sprii_train.control.pendulum import WORLD
from sprii_train.control.recurrent import RecurrentModel
from sprii_train.evaluation.draws import COLLECTION, draw
from sprii_train.learners.histories import window_history

HELD = 10
"""Steps that a torque is held."""


OFFLINE = 2**31
"""Last in the key of systems: NumPy takes a key that ends in 0 for the shorter one, which the starts are drawn by."""


def excited(source: Source, episodes: int, each: int, *, seed: int = 0, steps: int = 200) -> Experience:
    """Episodes that begin in any state, under torques held for 10 steps: half of them constant, half along the swing.

    Args:
        source, episodes, each: systems, see `evaluation.draws.draw`; `episodes` is that of all.
        seed: of systems, starts and torques.
        steps: of an episode.
    """
    seed, steps = integer("seed", seed), integer("steps", steps, least=1)
    rng = np.random.default_rng(seed)
    drawn = draw(WORLD, source, episodes, (COLLECTION, seed, OFFLINE), each=each)
    n, limit = len(drawn.values), WORLD.speed_limit
    starts = np.stack([rng.uniform(-math.pi, math.pi, n), rng.uniform(-limit, limit, n)], axis=1)
    level, along = np.zeros(n), np.zeros(n, np.bool_)

    def torque(t: int, states: Array) -> NDArray[np.float32]:
        nonlocal level, along
        if t % HELD == 0:
            level, along = rng.uniform(-1.0, 1.0, n), rng.random(n) < 0.5
        return np.where(along, level * np.sign(states[:, 1]), level)[:, None].astype(np.float32)

    found = rollout(WORLD, drawn.values, starts, torque, steps=steps)
    observations = WORLD.observe(found.states.reshape(-1, 2)).reshape(n, steps + 1, -1)
    experience = Experience(observations.shape[-1], WORLD.action_size, tuple(WORLD.properties.names))
    experience.add(observations, found.actions, drawn.ids, drawn.values)
    return experience


def log_of(model: Path) -> Experience:
    """What the run of a saved model collected, RUN/experience-N beside RUN/model, or two episodes of each ID system.

    Raises:
        CheckpointError: for experience that is damaged.
    """
    numbers = [path.name.partition("-")[2] for path in model.resolve().parent.glob("experience-*")]
    if finished := [int(number) for number in numbers if number.isdigit()]:
        return Experience.load(model.resolve().parent / f"experience-{max(finished)}")
    systems = GROUPS["ID"].combinations()
    return excited(systems, 2 * len(systems), 2)


def fit_by(model: Any, log: Experience, *, histories: int = 3_000, seed: int = 0, **changes: Any) -> ContextFit:
    """A fit at test time, calibrated on histories of logged episodes, of whose systems nothing is read.

    Args:
        model: a `control.agent.DynamicsModel` whose context is held over a plan.
        log: of the observations and actions that the model reads.
        histories: drawn from the log, and `seed` of the draws.
        changes: of the fields of `ContextFit`.

    Raises:
        ValueError: for a recurrent model, whose context moves with every step; a log without a whole history, or of
            other observations or actions; a model whose contexts are all one.
    """
    if isinstance(model, RecurrentModel):
        raise ValueError(
            "RecurrentModel steps its context; legal with a fit at test time: a model whose context is held over a plan"
        )
    config = getattr(model, "config", None)
    for name, width in (("observation_dim", log.observations.shape[1]), ("action_dim", log.actions.shape[1])):
        if (own := getattr(config, name, width)) != width:
            raise ValueError(f"the log's {name} is {width}; legal: {own}, as that of the {type(model).__name__}")
    k, rng = model.history, np.random.default_rng(seed)
    long = np.flatnonzero(log.lengths >= k)
    if not len(long):
        raise ValueError(f"the log has no episode of {k} transitions, a whole history of {type(model).__name__}")
    episodes = rng.choice(long, integer("histories", histories, least=2))
    starts = rng.integers(log.lengths[episodes] - k + 1)
    device = next((each.device for each in model.parameters()), None)
    seen, done = (torch.from_numpy(each).to(device) for each in log.windows(episodes, starts, k + 1))
    return ContextFit(calibrated(model, window_history(seen, done, k)), seed=seed, **changes)
