"""PokeWorld from pixels in minutes: a stem of 64 × 64 frames, frozen, and the arms on its embeddings."""

from collections.abc import Mapping
from dataclasses import replace

from sprii_envs.banks import POKE_FACTORIAL, POKE_ORIGINAL, BankProtocol
from sprii_envs.banks.populations import Combinations
from sprii_train.fit import TrainConfig
from sprii_train.learners.jepa import JEPAConfig
from sprii_train.learners.pretext import PretextConfig
from sprii_train.settings.base import SMOKE_NOTE, SMOKE_TRAIN, Budget, Built, Other
from sprii_train.settings.frozen import FrozenBudget, FrozenSetting
from sprii_train.settings.poke import POKE, TINY

R8 = POKE_ORIGINAL.replace(rollouts=8, frames=None)
FACTORIAL = POKE_FACTORIAL.replace(frames=None)
SMALL = R8.replace(systems={"train": 30, "validation": 10, "test": 10})
SMALL_FACTORIAL = FACTORIAL.replace(
    systems={
        "train": Combinations({"mass": 2, "drag": 8, "stiffness": 2}),
        "validation": Combinations({"mass": (0.7, 1.1, 1.6), "drag": (0.5, 1.3), "stiffness": (200.0, 2000.0)}),
        "confirmation": Combinations({"mass": (0.8, 1.4), "drag": (0.7, 1.1), "stiffness": (100.0, 1000.0)}),
    }
)

TINY_STEM = PretextConfig(image=32, stem=(8,), patch=8, embedding=32, hidden=16)
STEM = PretextConfig()


def on_embeddings(learner: JEPAConfig, stem: PretextConfig) -> JEPAConfig:
    """A JEPA that has a stem's embeddings for its observations."""
    return replace(learner, image=0, observation_dim=stem.embedding)


def end_to_end(learner: JEPAConfig, stem: PretextConfig) -> JEPAConfig:
    """A JEPA with the stem itself for its encoder."""
    return replace(
        learner, image=stem.image, stem=stem.stem, patch=stem.patch, frames="scaled", embedding=stem.embedding
    )


def twins(
    learner: JEPAConfig, stem: PretextConfig, train: TrainConfig, moved: float = 0.5, frozen: float = 0.05
) -> Mapping[str, Other]:
    """Two learners of one short budget: one begins with the stem and moves it, one leaves it frozen.

    Args:
        moved, frozen: seconds of an update of each.
    """
    return {
        "end-to-end": Other(end_to_end(learner, stem), train, moved),
        "frozen": Other(on_embeddings(learner, stem), train, frozen),
    }


NARROW = JEPAConfig(
    width=64, layers=2, heads=4, dropout=0.0, sigreg_slices=128, sigreg_knots=9, sigreg_samples="pooled"
)
TRAIN = TrainConfig(steps=4_000, learning_rate=1e-3, warmup=100, checkpoint_every=500)
SHORT = TrainConfig(steps=400, learning_rate=1e-3, warmup=50, checkpoint_every=100)


def _smoke(own: BankProtocol) -> FrozenBudget:
    return FrozenBudget(
        on_embeddings(TINY, TINY_STEM), SMOKE_TRAIN, (0,), 1, 20, SMOKE_NOTE, judged=False, step_seconds=0.02,
        store=Built(own), others=twins(TINY, TINY_STEM, SMOKE_TRAIN), shared_seconds=5.0,
        pretext=TINY_STEM, pretext_train=SMOKE_TRAIN, seen=Built(SMALL),
    )  # fmt: skip


def _quick(shared_seconds: float) -> FrozenBudget:
    return FrozenBudget(
        on_embeddings(NARROW, STEM), TRAIN, (0, 1), 1, 2_000,
        "the stem is frozen, where the paper trains end to end: it is trained once a source, by no relation, for "
        "2,000 updates of 48 windows on 64 × 64 frames; on its embeddings width 64 × 2 layers, no dropout, 128 slices, "
        "9 knots, a rate of 1e-3 and 4,000 of the paper's 20,000 steps; the end-to-end arm and its twin 400",
        step_seconds=0.05, others=twins(NARROW, STEM, SHORT), shared_seconds=shared_seconds,
        pretext=STEM, pretext_train=TrainConfig(steps=2_000, pairs=24, learning_rate=1e-3, warmup=100), seen=Built(R8),
    )  # fmt: skip


def _paper(shared_seconds: float) -> FrozenBudget:
    stem = PretextConfig(stem=JEPAConfig().stem, patch=0)
    return FrozenBudget(
        on_embeddings(JEPAConfig(), stem), TrainConfig(), (0, 1, 2), 3, None,
        "the paper's model, convolutions and updates, but on a stem that is frozen, where the paper trains end to end",
        step_seconds=0.3, others=twins(JEPAConfig(), stem, TrainConfig(steps=2_000), 4.4, 0.3),
        shared_seconds=shared_seconds, pretext=stem, pretext_train=TrainConfig(pairs=24), seen=Built(R8),
    )  # fmt: skip


def _frozen(name: str, own: BankProtocol, budgets: Mapping[str, Budget]) -> FrozenSetting:
    return FrozenSetting(
        name, Built(own), POKE.properties, POKE.history, POKE.anchors, budgets, POKE.factors,
        donor_factors=POKE.donor_factors, components=POKE.components, unsealed=False,
    )  # fmt: skip


POKE_FROZEN = _frozen("poke-frozen", R8, {"smoke": _smoke(SMALL), "quick": _quick(450.0), "paper": _paper(35_000.0)})
"""The original bank, eight episodes a system, through a frozen stem."""
POKE_FROZEN_FACTORIAL = _frozen(
    "poke-frozen-factorial",
    FACTORIAL,
    {"smoke": _smoke(SMALL_FACTORIAL), "quick": _quick(70.0), "paper": _paper(600.0)},
)
"""The factorial bank, through the same stem: that of the original bank's training episodes."""
