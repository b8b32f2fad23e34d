"""Draws of the pendulum's groups, by name."""

from collections.abc import Sequence

import numpy as np

from sprii_envs.arguments import flag, instance, integer
from sprii_envs.envs.pendulum import GROUPS
from sprii_envs.properties import unknown_name
from sprii_train.control.pendulum import WORLD
from sprii_train.evaluation import draws
from sprii_train.evaluation.draws import ASSAY, COLLECTION, EVALUATION, Drawn

__all__ = ["ASSAY", "COLLECTION", "EVALUATION", "Drawn", "draw"]


def draw(group: str, episodes: int, key: Sequence[int], *, cloned: bool = False) -> Drawn:
    """Independent systems of a group and independent starts, see `evaluation.draws.draw`.

    Args:
        group: a name of `sprii_envs.envs.pendulum.GROUPS`.
        key: non-negative integers; equal keys give equal draws.
        cloned: all episodes are of one system and begin in one state, as in the published code, which copies its
            environments with their random states.

    Raises:
        ValueError: for an unknown group, another number of episodes or another key.
    """
    episodes, cloned = integer("episodes", episodes, least=1), flag("cloned", cloned)
    if instance("group", group, of=str) not in GROUPS:
        raise unknown_name("group of systems", group, GROUPS)
    drawn = draws.draw(WORLD, GROUPS[group], episodes, key)
    return drawn.take(np.zeros(episodes, np.intp)) if cloned else drawn
