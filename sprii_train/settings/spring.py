"""SpringWorld: two balls on a spring, of unknown mass, drag and stiffness (`app:spring-profile`)."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from sprii_envs.banks import SPRING as SPRING_PROTOCOL
from sprii_envs.banks import SPRING_SEALED, Bank, Store
from sprii_envs.relations import EpisodeTable
from sprii_train.analysis.formation import SPRING_FACTORS
from sprii_train.analysis.value import FitConfig, ReaderConfig
from sprii_train.cases.contexts import QueriedContexts
from sprii_train.cases.queries import QueryCases
from sprii_train.data import PairedWindows, WindowReader
from sprii_train.fit import TrainConfig
from sprii_train.increments import IncrementReader
from sprii_train.learners import RegressionConfig, learner_of
from sprii_train.learners.jepa import JEPAConfig
from sprii_train.recipes import Recipe, Reference
from sprii_train.records import Report
from sprii_train.selection import Selection, fit_selected
from sprii_train.settings.base import SMOKE_NOTE, SMOKE_ROUTES, SMOKE_TRAIN, Budget, Built, Setting
from sprii_train.settings.others import latent_losses, tds_of_frames, temporal_fcrl, told_increments, with_others
from sprii_train.settings.poke import NARROW, POKE, TINY
from sprii_train.settings.references import references
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
        "32 × 32 frames, a stem of 8 × 8 patches with 64 channels, width 64 × 2 layers, no dropout, 128 "
        "slices, 9 knots, 24 pairs, batch norm of the update, a rate of 1e-3 and 1,500 of the paper's 10,000 steps",
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


SELECTION_SEED = 20_269
"""Of the queries that references are selected by."""


class SpringSetting(Setting):
    """The setting whose pairs come in sweeps, where the recipe's pairing has them."""

    def reader(self, store: Store, config: Any) -> WindowReader:
        """As in any setting; with true increments for the supervised split."""
        if not isinstance(config, RegressionConfig):
            return super().reader(store, config)
        return IncrementReader(store, self.history, config.horizons, image=config.image, still=self.still)

    def data(self, store: Store, config: Any, recipe: Recipe, *, pairs: int, seed: int) -> Callable[[int], Any]:
        """`SweptWindows` of the forced episodes of training systems; other pairings are drawn as in any setting, and
        queries with their contexts for a reference."""
        if isinstance(recipe, Reference):
            return self._queried(store, store.split("train"), config, pairs=pairs, seed=seed)
        table = self.episodes(store, "train")
        relation, kernel = recipe.pairing(table)
        law = SweptWindows if sweeps(relation, kernel) else PairedWindows
        reader = self.reader(store, config)
        return law(reader, table, relation=relation, kernel=kernel, pairs=pairs, seed=seed)

    def train(
        self,
        store: Store,
        recipe: Recipe,
        config: Any,
        train: Any,
        folder: Path,
        *,
        identity: dict[str, Any],
        progress: Report,
    ) -> nn.Module:
        """As in any setting; a reference has the weights of the least loss on validation systems outside the
        cold-start panel, which are 78 of the query mixture's 178."""
        if not isinstance(recipe, Reference):
            return super().train(store, recipe, config, train, folder, identity=identity, progress=progress)
        table = store.split("validation")
        table = table.select(~np.isin(table["group"], SPRING_CASES.groups))
        held = self._queried(store, table, config, pairs=train.pairs, seed=SELECTION_SEED)
        best = Selection(
            lambda learner: queried_loss(learner, held, train.select_batches),
            folder / "best.safetensors", train.select_every, train.steps // train.select_every, train.steps,
        )  # fmt: skip
        data = self.data(store, config, recipe, pairs=train.pairs, seed=train.seed)
        torch.manual_seed(train.seed)
        learner = learner_of(config)[1](config)
        fit_selected(learner, data, train, folder, best, identity=identity, progress=progress)
        return learner

    def code(self) -> tuple[Any, ...]:
        """With the schedule, and the references' queries and selection."""
        own = (QueriedContexts, Selection, fit_selected, queried_loss, IncrementReader)
        return (*super().code(), SweptWindows, sweeps, *own)

    @staticmethod
    def _queried(store: Store, table: EpisodeTable, config: Any, *, pairs: int, seed: int) -> QueriedContexts:
        assert isinstance(store, Bank)  # of no setting but that of a bank
        return QueriedContexts(store, table, SPRING_CASES, config, pairs=pairs, seed=seed)


def queried_loss(learner: Any, data: Callable[[int], Any], batches: int) -> float:
    """Mean task loss of a learner with all histories, over the first batches."""
    device, losses = next(learner.parameters()).device, []
    for batch in (learner.prepare(data(step).to(device)) for step in range(batches)):
        z_s, z_p = learner.encode_current(batch.current), learner.encode_history(batch.history)
        losses.append(learner.task_loss(learner.predict(z_s, z_p, batch.u), batch.y).mean())
    return float(torch.stack(losses).mean())


SPRING = SpringSetting(
    "spring",
    Built(SPRING_PROTOCOL),
    properties=POKE.properties,
    history=96,
    anchors=(95,),
    budgets=with_others(SPRING_BUDGETS, tds_of_frames, temporal_fcrl, latent_losses, told_increments, references),
    factors=SPRING_FACTORS,
    kind="forced",
    still=True,
    sealed=Built(SPRING_SEALED),
    cases=SPRING_CASES,
    readout=SPRING_READOUT,
    unsealed=True,
)
