"""Budgets of SpringWorld's and PokeWorld's sources: smoke, quick and the paper's."""

from dataclasses import dataclass, replace

from sprii_train.experiments.worlds import POKE_WORLD, SPRING_WORLD, WORLDS, World
from sprii_train.fit import TrainConfig
from sprii_train.learners.jepa import JEPAConfig

PRESET_NAMES = ("smoke", "quick", "paper")


@dataclass(frozen=True)
class Budget:
    """What a source of one world may cost.

    Attributes:
        learner, train: sizes and updates.
        sources: seeds.
        readers: seeds of the readers fitted on each source.
        reader_steps: their updates; None are the paper's.
        note: how this differs from the paper.
        judged: whether its numbers are a test of the paper's statements.
    """

    learner: JEPAConfig
    train: TrainConfig
    sources: tuple[int, ...]
    readers: int
    reader_steps: int | None
    note: str
    judged: bool = True


_TINY = JEPAConfig(
    image=32, stem=(16,), patch=8, width=32, layers=1, heads=4, dropout=0.0, sigreg_slices=32
)  # fmt: skip
_SMOKE = TrainConfig(steps=20, pairs=12, warmup=5, checkpoint_every=10, log_every=5)
_NARROW = JEPAConfig(image=32, stem=(64,), patch=8, width=64, layers=2, heads=4, dropout=0.0, sigreg_slices=128)
_RUN_NOTE = "a check that everything runs; its numbers mean nothing"

POKE_BUDGETS = {
    "smoke": Budget(_TINY, _SMOKE, (0,), 1, 20, _RUN_NOTE, judged=False),
    "quick": Budget(
        _NARROW,
        TrainConfig(steps=4_000, learning_rate=1e-3, warmup=100, checkpoint_every=500),
        (0,),
        1,
        2_000,
        "32 × 32 frames, a stem of 8 × 8 patches with 64 channels, width 64 × 2 layers, no dropout, 128 slices, a rate "
        "of 1e-3 and 4,000 of the paper's 20,000 steps",
    ),
    "paper": Budget(JEPAConfig(image=64), TrainConfig(), (0, 1, 2), 3, None, "the paper's model and budget"),
}

SPRING_BUDGETS = {
    "smoke": Budget(replace(_TINY, history=96), _SMOKE, (0,), 1, 20, _RUN_NOTE, judged=False),
    "quick": Budget(
        replace(_NARROW, history=96),
        TrainConfig(steps=1_500, pairs=24, learning_rate=1e-3, warmup=100, checkpoint_every=250),
        (0,),
        2,
        3_000,
        "32 × 32 frames, a stem of 8 × 8 patches with 64 channels, width 64 × 2 layers, no dropout, 128 slices, 24 "
        "pairs, a rate of 1e-3 and 1,500 of the paper's 10,000 steps",
    ),
    "paper": Budget(
        JEPAConfig(image=128, stem=(32, 64, 128, 256, 512), history=96),
        TrainConfig(steps=10_000),
        (0, 1, 2),
        3,
        None,
        "the paper's budget; its stem is not printed, and this one is the convolutions of PokeWorld and one more",
    ),
}


def budget(world: World, preset: str) -> Budget:
    """The budget of a world under a preset.

    Raises:
        ValueError: for an unknown preset, or a world without budgets here.
    """
    if preset not in PRESET_NAMES:
        raise ValueError(f"unknown preset {preset!r}; legal: {', '.join(PRESET_NAMES)}")
    if world.name == SPRING_WORLD.name:
        return SPRING_BUDGETS[preset]
    if world.name.startswith(POKE_WORLD.name):
        return POKE_BUDGETS[preset]
    legal = [name for name in WORLDS if name != "d-clean"]
    raise ValueError(f"the world {world.name!r} has no budgets here; legal: {', '.join(legal)}")
