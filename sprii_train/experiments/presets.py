"""Budgets of every world's sources: smoke, quick and the paper's."""

from dataclasses import dataclass, replace

from sprii_envs.fields import check, flag, instance, integer, integers
from sprii_train.experiments import dclean
from sprii_train.experiments.worlds import D_CLEAN_WORLD, POKE_WORLD, SPRING_WORLD, WORLDS, World
from sprii_train.fit import TrainConfig
from sprii_train.learners.jepa import JEPAConfig

PRESET_NAMES = ("smoke", "quick", "states", "paper")


@dataclass(frozen=True)
class Budget:
    """What a source of one world may cost.

    Attributes:
        learner, train: sizes and updates.
        sources: seeds.
        readers: seeds of the readers fitted on each source.
        reader_steps: their updates; None are the paper's.
        route_steps: of residual routes and their bases; None are the paper's.
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
    route_steps: int | None = None

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        check(self, instance, "learner", of=JEPAConfig)
        check(self, instance, "train", of=TrainConfig)
        check(self, integers, "sources", some=True)
        check(self, integer, "readers", least=1)
        check(self, integer, "reader_steps", "route_steps", least=1, optional=True)
        check(self, flag, "judged")


_TINY = JEPAConfig(
    image=32, stem=(16,), patch=8, width=32, layers=1, heads=4, dropout=0.0, sigreg_slices=32
)  # fmt: skip
_SMOKE = TrainConfig(steps=20, pairs=12, warmup=5, checkpoint_every=10, log_every=5)
_NARROW = JEPAConfig(image=32, stem=(64,), patch=8, width=64, layers=2, heads=4, dropout=0.0, sigreg_slices=128)
_RUN_NOTE = "a check that everything runs; its numbers mean nothing"
_RUN_ROUTES = 50

_D_CLEAN_READERS: dict[str, tuple[int, int | None]] = {"smoke": (1, 20), "quick": (2, 3_000), "paper": (3, None)}
D_CLEAN_BUDGETS = {
    name: Budget(p.learner, p.train, p.seeds, readers, updates, p.note, p.judged)
    for name, p in dclean.PRESETS.items()
    for readers, updates in [_D_CLEAN_READERS[name]]
}

POKE_BUDGETS = {
    "smoke": Budget(_TINY, _SMOKE, (0,), 1, 20, _RUN_NOTE, judged=False, route_steps=_RUN_ROUTES),
    "quick": Budget(
        _NARROW,
        TrainConfig(steps=3_000, learning_rate=1e-3, warmup=100, checkpoint_every=500),
        (0,),
        1,
        2_000,
        "32 × 32 frames, a stem of 8 × 8 patches with 64 channels, width 64 × 2 layers, no dropout, 128 slices, a rate "
        "of 1e-3 and 3,000 of the paper's 20,000 steps: too few, see the results",
    ),
    "states": Budget(
        JEPAConfig(observation_dim=8, width=64, layers=2, heads=4, dropout=0.0, sigreg_slices=128),
        TrainConfig(steps=4_000, learning_rate=1e-3, warmup=100, checkpoint_every=500),
        (0,),
        1,
        2_000,
        "numerical states in place of frames, width 64 × 2 layers, no dropout, 128 slices, a rate of 1e-3 and 4,000 of "
        "the paper's 20,000 steps: what relations do where positions and velocities need not be learned from pixels",
    ),
    "paper": Budget(JEPAConfig(image=64), TrainConfig(), (0, 1, 2), 3, None, "the paper's model and budget"),
}

SPRING_BUDGETS = {
    "smoke": Budget(replace(_TINY, history=96), _SMOKE, (0,), 1, 20, _RUN_NOTE, judged=False, route_steps=_RUN_ROUTES),
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


BUDGETS = {name: POKE_BUDGETS for name in WORLDS if name.startswith(POKE_WORLD.name)}
BUDGETS |= {SPRING_WORLD.name: SPRING_BUDGETS, D_CLEAN_WORLD.name: D_CLEAN_BUDGETS}
"""World → preset → budget."""


def budget(world: World, preset: str) -> Budget:
    """The budget of a world under a preset.

    Raises:
        ValueError: for an unknown preset, one that the world does not have, or a world without budgets here.
    """
    if preset not in PRESET_NAMES:
        raise ValueError(f"unknown preset {preset!r}; legal: {', '.join(PRESET_NAMES)}")
    found = BUDGETS.get(world.name)
    if found is None:
        raise ValueError(f"the world {world.name!r} has no budgets here; legal: {', '.join(BUDGETS)}")
    if preset not in found:
        raise ValueError(f"the world {world.name!r} has no preset {preset!r}; legal: {', '.join(found)}")
    return found[preset]
