"""The valves as a setting: `sprii reproduce setting:valves --plugin own_setting.setting`."""

from pathlib import Path

from own_setting.lstm import LSTMConfig, LSTMPredictor
from own_setting.valves import record
from sprii_envs.banks import RecordedBank
from sprii_train.fit import TrainConfig
from sprii_train.learners import register_learner
from sprii_train.settings import Budget, Setting, register_setting


def bank(folder: Path) -> RecordedBank:
    """The bank in a folder of banks."""
    return record(folder / "valves")


def budget(steps: int, note: str, *, judged: bool = True) -> Budget:
    """So many updates of 24 pairs, and two readers a source."""
    train = TrainConfig(steps=steps, pairs=24, learning_rate=3e-3, warmup=10, precision="fp32")
    return Budget(LSTMConfig(), train, (0,), 2, steps, note, judged, route_steps=max(20, steps // 4))


register_learner("valve-lstm", LSTMPredictor, LSTMConfig)
VALVES = register_setting(
    Setting(
        "valves",
        bank,
        properties=("flow", "leak"),
        history=24,
        anchors=(24, 28, 31),
        budgets={
            "smoke": budget(20, "a check that everything runs", judged=False),
            "quick": budget(800, "800 updates of a small LSTM"),
        },
        observation="signals",
        action="opening",
        case_count=12,
    )
)
