"""SpringWorld: two balls on a spring, of unknown mass, drag and stiffness (`app:spring-profile`)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sprii_envs.banks import SPRING as SPRING_PROTOCOL
from sprii_envs.banks import SPRING_SEALED, Store
from sprii_train.analysis.formation import SPRING_FACTORS
from sprii_train.analysis.value import FitConfig, ReaderConfig
from sprii_train.cases.queries import QueryCases
from sprii_train.data import PairedWindows
from sprii_train.fit import TrainConfig
from sprii_train.learners.jepa import JEPAConfig
from sprii_train.recipes import Recipe
from sprii_train.settings.base import SMOKE_NOTE, SMOKE_ROUTES, SMOKE_TRAIN, Budget, Built, Setting
from sprii_train.settings.others import latent_losses, tds_of_frames, with_others
from sprii_train.settings.poke import NARROW, POKE, TINY
from sprii_train.sweeps import SweptWindows, sweeps

SPRING_BUDGETS = {
    "smoke": Budget(
        replace(TINY, history=96), SMOKE_TRAIN, (0,), 1, 20, SMOKE_NOTE, judged=False, route_steps=SMOKE_ROUTES,
        step_seconds=0.03,
    ),
    "quick": Budget(
        replace(NARROW, history=96),
        TrainConfig(steps=1_500, pairs=24, learning_rate=1e-3, warmup=100, checkpoint_every=250),
        (0,),
        2,
        3_000,
        "32 × 32 frames, a stem of 8 × 8 patches with 64 channels, width 64 × 2 layers, no dropout, 128 slices, 24 "
        "pairs, a rate of 1e-3 and 1,500 of the paper's 10,000 steps",
        step_seconds=0.19,
    ),
    "paper": Budget(
        JEPAConfig(image=128, history=96, norm="snapshot"),
        TrainConfig(steps=10_000),
        (0, 1, 2),
        3,
        None,
        "the paper's budget",
        step_seconds=75.0,
    ),
}  # fmt: skip

SPRING_CASES = QueryCases(
    anchors={"cold": 1, "moving": 95},
    horizons=(1, 2, 4, 8, 16),
    groups=("continuous", "combination"),
    floors=(1e-5,) * 4 + (1e-4,) * 4,  # m and m/s
)
"""With the bank's 6 cold and 3 moving episodes of a held-out system, q ∈ {0, 1} and 5 horizons, 90 cases of the full
mixture. The panels' 100 systems are 64 continuous ones and 36 unseen combinations."""

SPRING_READOUT = ReaderConfig(
    query=128, project=True, horizon=16,
    fit=FitConfig(learning_rate=3e-4, weight_decay=0.05, schedule="cosine", warmup=500),
)  # fmt: skip
"""[embedding of the present 128, slot 64, actions 32, mask 16, horizon 16] = 256 → 256 → 256 → 8; the slot is a linear
map of the code, or of the factors."""


class SpringSetting(Setting):
    """The setting whose pairs come in sweeps, where the recipe's pairing has them."""

    def data(self, store: Store, config: Any, recipe: Recipe, *, pairs: int, seed: int) -> Callable[[int], Any]:
        """`SweptWindows` of the forced episodes of training systems; other pairings are drawn as in any setting."""
        table = self.episodes(store, "train")
        relation, kernel = recipe.pairing(table)
        law = SweptWindows if sweeps(relation, kernel) else PairedWindows
        reader = self.reader(store, config)
        return law(reader, table, relation=relation, kernel=kernel, pairs=pairs, seed=seed)

    def code(self) -> tuple[Any, ...]:
        """With the schedule."""
        return (*super().code(), SweptWindows, sweeps)


SPRING = SpringSetting(
    "spring",
    Built(SPRING_PROTOCOL),
    properties=POKE.properties,
    history=96,
    anchors=(95,),
    budgets=with_others(SPRING_BUDGETS, tds_of_frames, latent_losses),
    factors=SPRING_FACTORS,
    kind="forced",
    still=True,
    sealed=Built(SPRING_SEALED),
    cases=SPRING_CASES,
    readout=SPRING_READOUT,
    unsealed=True,
)
