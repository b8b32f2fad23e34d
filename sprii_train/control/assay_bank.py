"""Logged episodes of ID systems, common to all checkpoints that are probed (`app:pendulum-control`)."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np

from sprii_envs import files
from sprii_envs.banks import RecordedBank, Recording, Store, StoreError, StreamSpec
from sprii_envs.envs.pendulum import GROUPS
from sprii_envs.properties import content_ids
from sprii_envs.world import rollout
from sprii_train.control import pendulum
from sprii_train.control.agent import on_states
from sprii_train.control.controllers import ICEM
from sprii_train.control.draws import ASSAY
from sprii_train.control.experience import Experience
from sprii_train.control.pendulum_agents import known
from sprii_train.evaluation import RandomAgent
from sprii_train.identity import code_of, digest

HELD_OUT = 40  # of ID's 121 systems
EACH = 2  # episodes of a system under each of the two behaviours
PROPERTIES = {"mass": "mass", "length": "property_length"}  # a table's `length` is an episode's
STREAMS = {"observations": StreamSpec((3,)), "actions": StreamSpec((1,), per="transition")}


def assay_bank(folder: Path) -> Store:
    """The episodes of `simulated` in a folder that runs share, under a name by the code that makes them.

    Raises:
        StoreError: for a bank that is damaged.
    """
    path = folder / f"pendulum-assay-{_code()}"
    folder.mkdir(parents=True, exist_ok=True)
    with files.lock(path.with_suffix(".building"), error=StoreError):
        if not path.exists():
            record(path, simulated())
    return RecordedBank(path)


def record(path: Path, splits: Iterator[tuple[str, Experience]]) -> None:
    """Write the episodes of each split as a recorded bank."""
    with Recording(path, STREAMS, origin={"source": "pendulum assay"}) as recording:
        episodes = ((split, store, e) for split, store in splits for e in range(len(store)))
        for split, store, e in list(episodes)[recording.done :]:
            seen, done = store.windows(np.array([e]), np.array([0]), store.lengths[e] + 1)
            properties = zip(PROPERTIES.values(), store.properties[e], strict=True)
            recording.append(
                {"observations": seen[0], "actions": done[0]}, system=store.systems[e], split=split, **dict(properties)
            )


def experience(bank: Store, split: str) -> Experience:
    """The episodes of a split, as the assay reads them."""
    table, found = bank.split(split), Experience(3, pendulum.WORLD.action_size, tuple(PROPERTIES))
    starts, length = np.zeros(len(table), np.int64), int(table["length"][0])  # all are as long
    seen = bank.windows("observations", table["episode"], starts, length)
    done = bank.windows("actions", table["episode"], starts, length - 1)
    found.add(seen, done, table["system"], np.stack([table[name] for name in PROPERTIES.values()], axis=1))
    return found


@cache
def _code() -> str:
    return digest(repr(code_of(simulated)))[:10]


def simulated(each: int = EACH) -> Iterator[tuple[str, Experience]]:
    """81 training systems and the 40 other ones of ID, for validation, 2·`each` episodes of each system.

    Half are under random actions and half under a planner that knows the true equations, so that the log has both
    swinging and standing. No checkpoint has a part in it.
    """
    rng, world = np.random.default_rng((ASSAY,)), pendulum.WORLD
    every = rng.permutation(GROUPS["ID"].combinations().values)
    for split, values in (("train", every[HELD_OUT:]), ("validation", every[:HELD_OUT])):
        store = Experience(3, world.action_size, tuple(PROPERTIES))
        own = np.repeat(values, each, axis=0)
        ids = content_ids(world.properties.names, own)
        oracle = known(ICEM(horizon=20), seed=ASSAY)
        oracle.tell(own)
        for agent in (RandomAgent(seed=ASSAY, bounds=pendulum.bounds()), oracle):
            agent.reset(len(own))
            starts = np.ascontiguousarray(world.initial(rng.random((len(own), world.start_draws)), own, None))
            found = rollout(world, own, starts, on_states(agent.act, world), steps=world.max_episode_steps)
            shape = found.states.shape
            seen = world.observe(found.states.reshape(-1, shape[-1])).reshape(*shape[:2], -1)
            store.add(seen, found.actions, ids, own)
        yield split, store
