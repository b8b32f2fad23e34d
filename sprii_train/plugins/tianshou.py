"""Relation pairs in Tianshou: index arrays for its replay buffers, `buffer[indices]`."""

from collections.abc import Callable
from typing import Any

import numpy as np

from sprii_envs.arguments import integer
from sprii_envs.relations import (
    SAME_SYSTEM,
    FlatPairs,
    NoLegalDonorError,
    PairSampler,
    Relation,
    StaleError,
    WindowSampler,
    episode_runs,
)
from sprii_envs.relations.flat import Entries
from sprii_envs.relations.relation import check_relation


def tianshou_indices(
    buffer: Any, steps: int = 1, relation: Relation = SAME_SYSTEM, columns: tuple[str, ...] = (), **law: Any
) -> Callable[[int, int], Entries]:
    """A function of (step, n) that gives indices (2, n, steps) of a buffer: row 0 recipients, row 1 donors.

    `buffer` is a `ReplayBuffer` or `VectorReplayBuffer` whose `info` has `system_id` and the `columns`, as
    `sprii_envs.wrappers.RepeatSystem` puts it there. Windows of `steps` transitions never cross the end of an episode
    or the write head. `law` are `PairSampler`'s arguments kernel, law, distinct, seed; recipients without a legal donor
    are left out. It describes the buffer as it is: once a drawn transition has been overwritten the function raises
    StaleError; call this again then. ValueError for a label that is missing, NoLegalDonorError where there is no pair.
    """
    check_relation(relation)
    least = integer("steps", steps, least=1) * (2 if relation.same_episode else 1)
    order = np.asarray(buffer.sample_indices(0))  # every transition, oldest first, one sub-buffer after the other
    if not len(order):
        raise NoLegalDonorError("the buffer is empty")
    ends = np.asarray(buffer.done)[order] | np.isin(order, buffer.unfinished_index())
    labels = {}
    for name in ("system_id", *columns):
        if name not in buffer.info.get_keys():
            raise ValueError(
                f"the buffer's info has no {name!r}: sprii_envs.wrappers.RepeatSystem puts the system there, a wrapper "
                "of yours any other label"
            )
        labels[name] = np.array(np.asarray(buffer.info[name])[order].tolist())
    episode = np.cumsum(ends) - ends
    table, first = episode_runs(episode, labels.pop("system_id"), labels, shortest=least)
    pairs = PairSampler(table, relation, on_missing="drop", **law)
    flat = FlatPairs(pairs, WindowSampler(table, steps, 0, pairs.seed), first)

    def held(indices: Any) -> list[Any]:
        arrays = [*(buffer.info[name] for name in ("system_id", *columns)), buffer.act, buffer.rew, buffer.done]
        return [array[indices] for array in arrays if isinstance(array, np.ndarray)]

    before = [array.copy() for array in held(slice(None))]  # the buffer does not count how often an entry was written

    def draw(step: int, n: int) -> Entries:
        indices = order[flat.batch(step, n)[0]]
        if not all(np.array_equal(now, then[indices]) for now, then in zip(held(indices), before, strict=True)):
            raise StaleError
        return indices

    return draw
