"""Logged episodes of ID systems, common to all checkpoints that are probed (`app:pendulum-control`)."""

from functools import cache
from pathlib import Path

import numpy as np

from sprii_envs.envs.pendulum import GROUPS
from sprii_envs.properties import content_ids
from sprii_envs.world import rollout
from sprii_train.checkpoints import CheckpointError
from sprii_train.control import pendulum
from sprii_train.control.controllers import ICEM
from sprii_train.control.draws import ASSAY, Drawn
from sprii_train.control.evaluation import known, random
from sprii_train.control.experience import Experience
from sprii_train.experiments.cells import locked
from sprii_train.identity import code_of, digest

HELD_OUT = 40  # of ID's 121 systems
EACH = 2  # episodes of a system under each of the two behaviours


def assay_banks(folder: Path) -> tuple[Experience, Experience]:
    """The banks of `simulated_banks`, kept in a folder that runs share, under a name by the code that makes them.

    Raises:
        CheckpointError: for a bank that is damaged.
    """
    paths = folder / f"assay-train-{_code()}", folder / f"assay-held-out-{_code()}"
    with locked(folder / ".lock"):
        if not all(path.exists() for path in paths):
            for path, bank in zip(paths, simulated_banks(), strict=True):
                bank.save(path)
        try:
            return Experience.load(paths[0]), Experience.load(paths[1])
        except CheckpointError as error:
            raise CheckpointError(f"{error}; remove {folder}, which is then built again") from None


@cache
def _code() -> str:
    return digest(repr(code_of(simulated_banks)))[:10]


def simulated_banks(each: int = EACH) -> tuple[Experience, Experience]:
    """81 training systems and the 40 other ones of ID, 2·`each` episodes of each system.

    Half are under random actions and half under a planner that knows the true equations, so that the log has both
    swinging and standing. No checkpoint has a part in it.
    """
    rng, world = np.random.default_rng((ASSAY,)), pendulum.WORLD
    every = rng.permutation(GROUPS["ID"].combinations().values)
    stores = []
    for values in (every[HELD_OUT:], every[:HELD_OUT]):
        store = Experience(3, world.action_size, tuple(world.properties.names))
        own = np.repeat(values, each, axis=0)
        ids = content_ids(world.properties.names, own)
        for behaviour in (random(seed=ASSAY), known(ICEM(horizon=20), seed=ASSAY)):
            starts = world.initial(rng.random((len(own), world.start_draws)), own, None)
            drawn = Drawn(own, ids, np.ascontiguousarray(starts))
            found = rollout(world, own, drawn.states, behaviour(drawn), steps=world.max_episode_steps)
            shape = found.states.shape
            seen = world.observe(found.states.reshape(-1, shape[-1])).reshape(*shape[:2], -1)
            store.add(seen, found.actions, ids, own)
        stores.append(store)
    return stores[0], stores[1]
