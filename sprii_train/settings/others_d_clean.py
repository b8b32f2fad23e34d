"""Learners of D-Clean besides the setting's own, see `recipes.STATE_RECIPES`."""

from sprii_train.fit import TrainConfig
from sprii_train.learners.cadm import CaDMConfig
from sprii_train.learners.dali import DALIConfig
from sprii_train.learners.fcrl import FCRLConfig
from sprii_train.learners.nod_states import NODStatesConfig
from sprii_train.schedules import Stairs, adam
from sprii_train.settings.base import Other

CADM = CaDMConfig(observation_dim=4, action_dim=2, history=23, scaled_history=True)
ENDPOINTS = (0.125, 0.25, 0.5)
_SHORT = {"pairs": 24, "checkpoint_every": 30, "log_every": 10}


def _cosine(rate: float, steps: int, **given: int) -> TrainConfig:
    """Adam with a cosine to zero: AdamW without decay."""
    return TrainConfig(
        steps=steps, learning_rate=rate, weight_decay=0.0, warmup=0, precision="fp32", **given  # pyright: ignore[reportArgumentType]
    )  # fmt: skip


def _stairs(steps: int, **given: int) -> Stairs:
    """The published stairs, of 20,000 updates, in so many."""
    return Stairs(steps=steps, every=max(1, steps // 40), precision="fp32", **given)  # pyright: ignore[reportArgumentType]


OTHERS = {
    "smoke": {
        "cadm": Other(CADM, adam(1e-3, 60, **_SHORT), 0.01),
        "dali": Other(DALIConfig(width=32), adam(1e-3, 64, endpoints=ENDPOINTS, **_SHORT), 0.003),
        "fcrl": Other(FCRLConfig(), _cosine(3e-4, 60, **_SHORT), 0.002),
        "nod-states": Other(NODStatesConfig(), _stairs(60, **_SHORT), 0.004),
    },
    "quick": {
        "cadm": Other(CADM, adam(3.3e-4, 6_000), 0.026),
        "dali": Other(DALIConfig(width=64), adam(3e-4, 16_000, clip=1_000.0, endpoints=ENDPOINTS), 0.012),
        "fcrl": Other(FCRLConfig(), _cosine(3e-3, 20_000), 0.007),
        "nod-states": Other(NODStatesConfig(), _stairs(20_000), 0.008),
    },
    "paper": {
        "cadm": Other(CADM, adam(1e-3, 20_000), 0.026),
        "dali": Other(DALIConfig(), adam(1e-4, 160_000, clip=1_000.0, endpoints=ENDPOINTS), 0.08),
        "fcrl": Other(FCRLConfig(), _cosine(3e-4, 20_000), 0.007),
        "nod-states": Other(NODStatesConfig(), _stairs(20_000), 0.008),
    },
}
