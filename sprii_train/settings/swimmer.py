"""Segments of Swimmer, whose masses and dampings persist; two predictors of them (`app:swimmer-profile`)."""

import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sprii_envs.banks import Store
from sprii_envs.files import read_json, write_json
from sprii_envs.mujoco.swimmer import Swimmer
from sprii_envs.swimmer import OBSERVED, SPLITS, SegmentProtocol, build_segments
from sprii_train import distributed
from sprii_train.checkpoints import CheckpointError
from sprii_train.fit import ENGINE, TrainConfig, what_matters
from sprii_train.identity import digest
from sprii_train.learners import LEARNERS, learner_of
from sprii_train.learners.segments import MaskedGRUConfig, PersistentJEPAConfig, SegmentConfig
from sprii_train.recipes import Recipe, SegmentRecipe
from sprii_train.records import Report
from sprii_train.selection import Selection, fit_selected, mean_loss
from sprii_train.settings.base import SMOKE_NOTE, Budget, Setting, listed, with_context
from sprii_train.swimmer.rows import SegmentBatches, Shuffled, every_row, read_rows, selecting, tables

SELECTED = "selected.json"
EPOCHS, LEAST, PATIENCE = 12, 6, 3
"""Of a base, at most and at least; and after the best one."""
APART = 100_000
"""Between the seeds of the bases of one arm."""


@dataclass(frozen=True)
class Segments:
    """The store of a protocol, simulated into a folder of banks and found there."""

    protocol: SegmentProtocol

    def __call__(self, folder: Path) -> Store:
        place = folder / f"{self.protocol.name}-{digest(repr(self.protocol))[:12]}"
        return build_segments(self.protocol, place, progress=_told(self.protocol.length))


def _told(segments: int) -> Callable[[int, int], None]:
    begun, first = time.perf_counter(), -1

    def tell(done: int, of: int) -> None:
        nonlocal first
        first = done if first < 0 else first
        if (done % 1000 == 0 or done == of) and done > first:
            rate = (done - first) * segments / (time.perf_counter() - begun)
            print(f"segments: {done * segments:,} of {of * segments:,}, {rate:,.0f} a second", flush=True)

    return tell


@dataclass(frozen=True)
class SegmentTraining(TrainConfig):
    """Of a base at a constant rate, in at most 12 epochs; the defaults are the paper's.

    Attributes:
        steps: updates of 12 epochs: 2,048 systems × 648 rows in batches of 1,024.
        pairs: half the rows of a batch.
    """

    steps: int = EPOCHS * 1296
    pairs: int = 512
    weight_decay: float = 1e-4
    warmup: int = 0
    clip: float = 1e9
    precision: str = "fp32"
    checkpoint_every: int = 1296
    log_every: int = 1296

    @property
    def epoch(self) -> int:
        """Updates of an epoch."""
        return max(1, self.steps // EPOCHS)

    def spent(self, seed: int) -> TrainConfig:
        """Whole epochs under a seed."""
        given: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(TrainConfig)}
        given |= {"steps": EPOCHS * self.epoch, "seed": seed, "rates": ((0, self.learning_rate),)}
        return TrainConfig(**given)


@dataclass(frozen=True)
class SegmentSetting(Setting):
    """A recipe says which base, a budget how large the store and the bases are."""

    __hash__ = Setting.__hash__

    def learner_config(self, config: Any, recipe: Recipe) -> Any:
        """The config of the base of a recipe."""
        kind = LEARNERS[recipe.learner][1] if isinstance(recipe, SegmentRecipe) else PersistentJEPAConfig
        shared = {field.name: getattr(config, field.name) for field in fields(kind) if hasattr(config, field.name)}
        return with_context(kind(**shared), recipe, len(self.properties))

    def seed_of(self, recipe: Recipe, source: int) -> int:
        """Seed of a base: the paper's, for source 0."""
        return getattr(recipe, "first", 0) + APART * source

    def first(self, recipe: Recipe, config: Any, source: int) -> Any:
        """A base with its first weights."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed_of(recipe, source))
            return learner_of(config)[1](config).eval()

    def data(self, store: Store, config: Any, recipe: Recipe, *, pairs: int, seed: int, epoch: int = 1296) -> Any:
        """Training batches, the same for every recipe."""
        return SegmentBatches(store, pairs=pairs, epoch=epoch, seed=seed)

    def train(
        self,
        store: Store,
        recipe: Recipe,
        config: Any,
        train: SegmentTraining,
        folder: Path,
        *,
        identity: dict[str, Any],
        progress: Report,
    ) -> nn.Module:
        """A base with the weights of the epoch that had the lowest error on rows of the selection systems."""
        spent = train.spent(self.seed_of(recipe, train.seed))
        data = self.data(store, config, recipe, pairs=spent.pairs, seed=spent.seed, epoch=train.epoch)
        learner = self.first(recipe, config, train.seed)
        table = tables(store)[0]["selection"]
        rows, _ = selecting(len(table.systems), halved=getattr(recipe, "halved", False))
        held = read_rows(table, every_row(rows, table.draws, (0, 1, 2)))
        best = Selection(
            lambda each: mean_loss(each, held), folder / "best.safetensors", train.epoch, LEAST, PATIENCE
        )  # fmt: skip
        chosen = fit_selected(learner, data, spent, folder, best, identity=identity, progress=progress)
        distributed.first(lambda: write_json(folder / SELECTED, chosen._asdict()))
        return learner

    def stages(self, folder: Path) -> dict[str, Any]:
        """What `train` says of itself: the epoch that was kept, the errors of all, seconds."""
        return read_json(folder / SELECTED, CheckpointError, f"remove the folder {folder}")

    def seconds(self, folder: Path, train: Any) -> float:
        """Seconds that the finished source in a folder has trained, however many epochs it took."""
        return self.stages(folder)["seconds"]

    def law(self, train: SegmentTraining) -> dict[str, Any]:
        """What the weights depend on of a budget's `train`."""
        return what_matters(train)

    def code(self) -> tuple[Any, ...]:
        """Functions and classes that a source's weights depend on, besides its learner and recipe."""
        own = type(self)
        return (
            *ENGINE, SegmentBatches, Shuffled, SegmentTraining, Selection, fit_selected, mean_loss, read_rows,
            every_row, tables, selecting, own.seed_of, own.first, own.data, own.learner_config, own.train,
        )  # fmt: skip

    def check(self, store: Store, config: Any, *, cases: bool = False) -> None:
        """What can be said of a store and of sizes before anything is trained.

        Raises:
            ValueError: for a store without segments or without a split, or a learner of other windows.
        """
        if OBSERVED not in store.columns:
            raise ValueError(f"{store.name} has no column {OBSERVED!r}; columns: {', '.join(store.columns)}")
        if missing := [split for split in SPLITS if split not in store.splits]:
            raise ValueError(f"{store.name} has no split {missing[0]!r}; legal: {', '.join(SPLITS)}")
        if not isinstance(config, SegmentConfig):
            raise ValueError(f"the learner of {self.name!r} is a {type(config).__name__}; legal: a SegmentConfig")

    def facts(self, budget: Budget) -> dict[str, str]:
        """What a report says of a budget, its segments and its training."""
        train = budget.train
        made = self.store if budget.store is None else budget.store
        assert isinstance(made, Segments)
        return super().facts(budget) | {
            "Budget": f"at most {EPOCHS} epochs of {train.epoch:,} updates of {2 * train.pairs} rows; adapters: "
            f"{budget.readers}; {budget.note}",
            "Segments": listed(made.protocol),
        }


OURS = "choices that the paper leaves open are ours, see docs/swimmer_updates.md"

SWIMMER_BUDGETS = {
    "smoke": Budget(
        MaskedGRUConfig(width=16, embedding=16, latent=8, state=16),
        SegmentTraining(steps=24, pairs=16, checkpoint_every=2, log_every=2),
        (0,), 3, 40, SMOKE_NOTE, judged=False, step_seconds=0.003,
        store=Segments(SegmentProtocol(train=16, selection=8, prospective=64, draws=1)),
    ),
    "quick": Budget(
        MaskedGRUConfig(width=128, embedding=64, latent=64, state=80),
        SegmentTraining(steps=EPOCHS * 648, checkpoint_every=648, log_every=648),
        (0,), 3, 20 * 216,
        "1,024 of 2,048 training and 128 of 256 selection systems, two of four draws, networks of half the width; the "
        f"assay has the paper's 512 systems; {OURS}", step_seconds=0.025,
        store=Segments(SegmentProtocol(train=1024, selection=128, draws=2)),
    ),
    "paper": Budget(
        MaskedGRUConfig(), SegmentTraining(), (0,), 3, 20 * 432, f"the published sizes and budgets; {OURS}",
        step_seconds=0.065,
    ),
}  # fmt: skip

SWIMMER = SegmentSetting(
    "swimmer",
    Segments(SegmentProtocol()),
    properties=Swimmer.properties.names,
    history=2,
    anchors=(1,),
    budgets=SWIMMER_BUDGETS,
    observation=OBSERVED,
    action=None,
)
