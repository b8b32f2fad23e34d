"""Burgers' equation: viscosity persists, an operator predicts one case's field with another's (`app:external-nod`)."""

import hashlib
import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sprii_envs.arguments import check, integer, integers
from sprii_envs.banks import Store
from sprii_envs.fields.bank import BurgersProtocol
from sprii_envs.files import lock, read_json, write_json
from sprii_envs.relations import SAME_SYSTEM, Uniform
from sprii_train import distributed
from sprii_train.checkpoints import CheckpointError
from sprii_train.fields.selection import Development
from sprii_train.fields.windows import COLUMN, PairedFields, frames_of
from sprii_train.fit import ENGINE, TrainConfig, fit, resolve_precision, what_matters
from sprii_train.identity import code_of
from sprii_train.learners import learner_of
from sprii_train.learners.nod import NODConfig
from sprii_train.protocol import Objective
from sprii_train.recipes import Continued, Recipe
from sprii_train.records import Report, later, training_seconds
from sprii_train.settings.base import SMOKE_NOTE, Budget, Setting, listed
from sprii_train.settings.solved import Solved

STAGES = "stages.json"
SPLITS = ("train", "validation", "id_test", "viscous_ood", "inviscid_ood")


@dataclass(frozen=True)
class FieldTraining(TrainConfig):
    """A search at a constant rate, whose best checkpoint may be continued; the defaults are the paper's.

    Attributes:
        steps: of the search.
        epoch: updates of an epoch; the development loss is taken after each.
        continued: epochs of the continuation of each source, by its place in `seeds`; other seeds have the middle one.
        seeds: sources that `continued` is of.
        last: epochs at the end of a continuation that are trained at half the rate.
    """

    steps: int = 9_000
    pairs: int = 4
    learning_rate: float = 1e-4
    weight_decay: float = 1e-4
    warmup: int = 0
    precision: str = "fp32"
    checkpoint_every: int = 90
    log_every: int = 45
    epoch: int = 45
    continued: tuple[int, ...] = (25, 113, 127)
    seeds: tuple[int, ...] = (1234, 5678, 9012)
    last: int = 25

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        super().__post_init__()
        check(self, integer, "epoch", "last", least=1)
        check(self, integers, "continued", "seeds", some=True)
        if len(self.continued) != len(self.seeds):
            raise ValueError(f"FieldTraining.continued is {self.continued}; legal: one number for each of {self.seeds}")

    @property
    def search(self) -> TrainConfig:
        """The first stage."""
        given: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(TrainConfig)}
        given["rates"] = ((0, self.learning_rate),)
        return TrainConfig(**given)

    @property
    def continuation(self) -> TrainConfig:
        """The second."""
        epochs = dict(zip(self.seeds, self.continued, strict=True))
        count = epochs.get(self.seed, sorted(self.continued)[len(self.continued) // 2])
        halved = max(0, count - self.last) * self.epoch
        rates = ((halved, self.learning_rate / 2),)
        return replace(
            self.search, steps=count * self.epoch, rates=(((0, self.learning_rate), *rates) if halved else rates)
        )  # fmt: skip


@dataclass(frozen=True)
class FieldSetting(Setting):
    """Trajectories of fields, each conditioned by another case of its system; its sources are trained in two stages."""

    __hash__ = Setting.__hash__

    def data(self, store: Store, config: Any, recipe: Recipe, *, pairs: int, seed: int) -> Callable[[int], Any]:
        """Training batches of a recipe."""
        table = store.split("train")
        relation, kernel = recipe.pairing(table)
        return PairedFields(store, table, relation=relation, kernel=kernel, pairs=pairs, seed=seed)

    def train(
        self,
        store: Store,
        recipe: Recipe,
        config: Any,
        train: FieldTraining,
        folder: Path,
        *,
        identity: dict[str, Any],
        progress: Report,
    ) -> nn.Module:
        """The checkpoint of the search that had the lowest development loss; continued by prediction alone if it is so.

        Arms that differ in the continuation alone share the search, in a folder beside theirs. The continuation begins
        with moments of its own and sees the batches of `SAME_SYSTEM` from the first on, whatever the recipe.
        """
        search, seed = train.search, train.seed
        data = self.data(store, config, recipe, pairs=search.pairs, seed=seed)
        torch.manual_seed(seed)
        learner = learner_of(config)[1](config)
        shared = folder.parent / self._search(data, config, recipe, search)
        best = Development(store, store.split("validation"), shared / "best.safetensors", train.epoch)
        with ExitStack() as stack:  # another worker may be training an arm of the same search
            distributed.first(lambda: stack.enter_context(lock(shared / ".lock", error=CheckpointError)))
            fit(learner, data, recipe.objective, search, shared, progress=progress, diagnostics=[best])
            found = best.best()
        if found is None:
            raise ValueError(f"the search takes {search.steps} steps; legal: an epoch at least, {train.epoch}")
        loss, step, weights = found
        learner = learner_of(config)[1](config)  # whose attributes do not tell whether the search was resumed
        learner.load_state_dict(weights)
        stages = {
            "search": shared.name,
            "development": loss,
            "step": step,
            "seconds": training_seconds(shared, search.steps),
        }
        if isinstance(recipe, Continued):
            after = train.continuation
            plain: Any = PairedFields(
                store, store.split("train"), relation=SAME_SYSTEM, kernel=Uniform(), pairs=after.pairs, seed=seed
            )  # fmt: skip
            fit(learner, plain, Objective(), after, folder / "continued", progress=later(progress, search.steps))
            stages["seconds"] += training_seconds(folder / "continued", after.steps)
            stages["continued"] = after.steps
        distributed.first(lambda: write_json(folder / STAGES, stages))
        return learner.eval()

    def _search(self, data: Any, config: Any, recipe: Recipe, search: TrainConfig) -> str:
        told = [data.identity(), repr(config), repr(recipe.objective), what_matters(search)]
        told += [code_of(*ENGINE, type(data), learner_of(config)[1], Development)]
        digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:10]
        return f"{self.name}-search-seed{search.seed}-{digest}"

    def stages(self, folder: Path) -> dict[str, Any]:
        """What `train` says of its stages: the step and development loss of the checkpoint, and seconds."""
        return read_json(folder / STAGES, CheckpointError, f"remove the folder {folder}")

    def seconds(self, folder: Path, train: FieldTraining) -> float:
        """Of search and continuation; arms that share a search count it each."""
        return round(self.stages(folder)["seconds"], 1)

    def updates(self, recipe: Recipe, train: FieldTraining) -> int:
        """Of search and continuation; arms that share a search count it each."""
        return train.search.steps + (train.continuation.steps if isinstance(recipe, Continued) else 0)

    def code(self) -> tuple[Any, ...]:
        """Functions and classes that a source's weights depend on, besides its learner and recipe."""
        own = type(self)
        return (*ENGINE, PairedFields, Development, own.data, own.learner_config, own.train)

    def check(self, store: Store, config: Any, *, cases: bool = False) -> None:
        """ValueError for splits that are not there, and for a learner of trajectories of another size."""
        if missing := [name for name in SPLITS if name not in store.splits]:
            raise ValueError(f"{store.name} has no split {missing[0]!r}, which the setting {self.name!r} evaluates")
        first = store.table["episode"][:1]
        shape = (frames_of(store.table), *store.windows(COLUMN, first, [0], 1).shape[2:])
        if (made := (config.frames, config.points)) != shape:
            raise ValueError(f"{type(config).__name__} is of trajectories {made}; legal: {shape}, as in {store.name}")

    def facts(self, budget: Budget) -> dict[str, str]:
        """What a report says of a budget."""
        train, seeds = budget.train, ", ".join(map(str, budget.sources))
        after = [replace(train, seed=seed).continuation.steps for seed in budget.sources]
        made = self.store if budget.store is None else budget.store
        assert isinstance(made, Solved)
        return {
            "Budget": f"search of {train.steps:,} updates of {2 * train.pairs} trajectories, continuation of "
            f"{', '.join(f'{n:,}' for n in after)}; seeds of sources: {seeds}; {budget.note}",
            "Learner": listed(budget.learner),
            "Training": f"{listed(train, but=('seed', 'seeds', 'warmup', 'rates'))} ({resolve_precision(train)})",
            "Fields": listed(made.protocol),
        }


QUICK = BurgersProtocol(cells=400, points=101, frames=51)
SMOKE = BurgersProtocol(
    cells=64, points=17, frames=9, train=4, validation=2, id_test=2, viscous_ood=5, inviscid_ood=5, duration=1.0
)

BURGERS_BUDGETS = {
    "smoke": Budget(
        NODConfig(
            points=17, frames=9, widths=(4, 4, 4, 4, 4), head=8, branch=16, trunk=16, rank=8, queries=64
        ),
        FieldTraining(
            steps=20, learning_rate=1e-3, epoch=10, checkpoint_every=10, log_every=5, continued=(1,), seeds=(1234,),
            last=1,
        ),
        (1234,), 1, 20, SMOKE_NOTE, judged=False, step_seconds=0.01, store=Solved(SMOKE),
    ),
    "quick": Budget(
        NODConfig(
            points=101, frames=51, widths=(6, 12, 24, 48, 48), head=64, branch=128, trunk=96, rank=48, queries=1024
        ),
        FieldTraining(
            steps=1_125, learning_rate=1e-3, epoch=45, checkpoint_every=225, continued=(10,),
            seeds=(1234,), last=3,
        ),
        (1234, 5678, 9012), 1, None,
        "a network of 168 thousand parameters in place of ten million on 101 points and 51 frames, 25 epochs of 200 at "
        "ten times the rate, and 10 in every continuation", step_seconds=0.03, store=Solved(QUICK),
    ),
    "paper": Budget(
        NODConfig(), FieldTraining(), (1234, 5678, 9012), 1, None,
        "the published sizes and budgets on fields that are ours; a batch has 4 pairs of conditions, where the paper "
        "aligns each of 8 with a third case", step_seconds=11.0,
    ),
}  # fmt: skip

BURGERS = FieldSetting(
    "burgers",
    Solved(BurgersProtocol()),
    properties=("viscosity",),
    history=101,
    anchors=(100,),
    budgets=BURGERS_BUDGETS,
    observation=COLUMN,
    action=None,
    arms=("nod", "nod-sprii", "nod-random"),
)
