"""Small banks of fields shared by the tests."""

import numpy as np

from sprii_envs.banks import ArrayStore
from sprii_envs.fields.bank import FIELD, FHNProtocol
from sprii_envs.relations import EpisodeTable
from sprii_train.learners.nod_hier import NODHierConfig

SMALL = FHNProtocol(
    side=8, step=0.1, train_cases=tuple(range(50, 54)), systems=((0.01, 0.2), (0.03, 0.1), (0.05, 0.3)),
    inside=((0.02, 0.15), (0.04, 0.25)), outside=((0.01, 0.3), (0.05, 0.1)),
)  # fmt: skip
LEARNER = NODHierConfig(width=6, layers=2, modes=3, condition_width=5)


def store_of(protocol: FHNProtocol = SMALL, *, far: int = 0) -> ArrayStore:
    """A protocol's trajectories in memory, rolled by `far` points along both axes."""
    plan = protocol.plan()
    fields = np.roll(protocol.fields(plan), (far, far), axis=(-2, -1))
    table = {name: [row[name] for row in plan] for name in ("system", "case", "split", "k", "beta")}
    table |= {"episode": list(range(len(plan))), "length": [protocol.frames] * len(plan)}
    return ArrayStore(EpisodeTable(table), {FIELD: fields})
