"""CoPhy's scenes, in which every object's mass, friction and restitution persist; JEPA, CPC, RSSM and CoPhyNet.

The published profile is `app:cophy-profile`.
"""

import hashlib
import json
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from sprii_envs.arguments import check, instance, number
from sprii_envs.banks import Store
from sprii_envs.cophy.objects import FRAMES, PROPERTIES, QUERY
from sprii_envs.cophy.protocols import SPLITS, CoPhyProtocol
from sprii_envs.files import lock
from sprii_train import distributed
from sprii_train.checkpoints import CheckpointError
from sprii_train.cophy.episodes import features_in, rows_of, training, truth
from sprii_train.cophy.frontend import FrontEndConfig
from sprii_train.cophy.pairs import ObjectEpisodes, PairedObjects, relation_units
from sprii_train.extension import Extension
from sprii_train.fit import ENGINE, TrainConfig, fit, resolve_precision
from sprii_train.identity import cell_code
from sprii_train.learners import LEARNERS, learner_of
from sprii_train.learners.cophynet import CoPhyNetConfig
from sprii_train.learners.object_jepa import ObjectJEPAConfig
from sprii_train.protocol import check_learner
from sprii_train.recipes import COPHY_RECIPES, ObjectRecipe, Recipe
from sprii_train.records import Report, read_rows, training_seconds
from sprii_train.selection import Selection
from sprii_train.settings.base import SMOKE_NOTE, Budget, Setting, listed, with_context
from sprii_train.settings.perceived import Perceived

BEST = "best.safetensors"
"""The file of weights and validation errors, see `Selection`."""
STATISTICS = 256
"""Training pairs that features are standardised by, where a learner does it."""


@dataclass(frozen=True)
class ObjectTraining(TrainConfig):
    """Of learners of objects at a constant rate; the defaults are the paper's.

    Attributes:
        steps: updates; a recipe may have a share of them.
        pairs: recipients of a batch, with donors or without.
        net_rate: of CoPhyNet, which is trained by Adam without clipping.
        extension: of recipes with judges, whose share it replaces; None keeps the share.
    """

    pairs: int = 32
    weight_decay: float = 1e-4
    warmup: int = 0
    net_rate: float = 1e-3
    extension: Extension | None = None

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        super().__post_init__()
        check(self, number, "net_rate", above=0)
        check(self, instance, "extension", of=Extension, optional=True)

    def spent(self, recipe: Recipe) -> TrainConfig:
        """Of one arm: as many recipients in a batch whether or not there are donors."""
        given: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(TrainConfig)}
        given["steps"] = max(1, round(self.steps * getattr(recipe, "share", 1.0)))
        given["pairs"] = self.pairs if getattr(recipe, "donors", "none") != "none" else self.pairs // 2
        if (groups := getattr(recipe, "groups", None)) is not None:
            given["pairs"] = groups.batch * groups.recipients
        if getattr(recipe, "learner", "jepa") == "cophynet":
            given |= {"learning_rate": self.net_rate, "weight_decay": 0.0, "clip": 1e9, "precision": "fp32"}
        given["rates"] = ((0, given["learning_rate"]),)
        return TrainConfig(**given)


@dataclass(frozen=True)
class ObjectSetting(Setting):
    """One scene; a recipe says which learner, a budget how large the store and the learners are.

    A budget's learner is the object JEPA's config, whose sizes the others share; CoPhyNet has its own.
    """

    __hash__ = Setting.__hash__

    tried: ClassVar[int] = 4

    def learner_config(self, config: Any, recipe: Recipe) -> Any:
        """The config of the learner of a recipe."""
        kind = recipe.learner if isinstance(recipe, ObjectRecipe) else "jepa"
        if kind == "cophynet":
            return with_context(CoPhyNetConfig(), recipe, len(self.properties))
        cls = LEARNERS[f"object-{kind}"][1]
        shared = {field.name: getattr(config, field.name) for field in fields(cls) if hasattr(config, field.name)}
        if kind == "rssm":  # sizes that the JEPA lacks, in the paper's proportions
            shared |= {"latent": max(1, config.persistent // 2), "decoder": config.projection}
        return with_context(cls(**shared), recipe, len(self.properties))

    def data(self, store: Store, config: Any, recipe: Recipe, *, pairs: int, seed: int) -> PairedObjects:
        """Training batches of a recipe: the same recipients, in the same order, in all of them."""
        episodes = training(features_in(store), self.episodes(store, "train"))
        return PairedObjects(
            episodes, donors=getattr(recipe, "donors", "none"), pairs=pairs, seed=seed,
            groups=getattr(recipe, "groups", None),
        )  # fmt: skip

    def fresh(self, store: Store, config: Any) -> nn.Module:
        """A learner with first weights, told how features are distributed if it asks."""
        learner = learner_of(config)[1](config)
        if callable(fit_statistics := getattr(learner, "fit_statistics", None)):
            found = features_in(store)
            rows = rows_of(found, self.episodes(store, "train"))[:STATISTICS]
            seen = torch.from_numpy(truth(found, rows).seen)
            features = torch.from_numpy(found.features[rows].astype(np.float32)).permute(0, 3, 1, 2, 4)
            fit_statistics(features[seen])
        return learner

    def train(
        self,
        store: Store,
        recipe: Recipe,
        config: Any,
        train: ObjectTraining,
        folder: Path,
        *,
        identity: dict[str, Any],
        progress: Report,
    ) -> nn.Module:
        """The learner of a config after the updates of its recipe.

        With judges and a budget's `Extension` these are decided on validation errors of the judges, which are trained
        for the first epochs in folders beside this one that all arms share.
        """
        spent, data = self._batches(store, config, recipe, train)
        epoch, rule, best = epoch_of(data), train.extension, None
        if isinstance(recipe, ObjectRecipe) and recipe.judges and rule is not None:
            curves = [self._judged(store, COPHY_RECIPES[judge], train, rule, folder.parent) for judge in recipe.judges]
            spent = replace(spent, steps=epoch * rule.epochs(curves))
            identity = identity | {"judges": curves}
        if isinstance(recipe, ObjectRecipe) and recipe.selected:
            best = self._validated(store, folder, min(epoch, spent.steps))
        learner = self._fitted(store, recipe, config, spent, data, folder, best, identity=identity, progress=progress)
        if best is not None:
            learner.load_state_dict(best.kept()[1])
        return learner

    def _judged(self, store: Store, judge: Recipe, train: ObjectTraining, rule: Extension, root: Path) -> list[float]:
        """Validation errors of a judge in the first epochs of a rule, from its folder if it is there."""
        config = self.learner_config(None, judge)
        spent, data = self._batches(store, config, judge, train)
        epoch = epoch_of(data)
        known = [store.fingerprint, repr(judge), self.law(train), cell_code(*self.code())]
        name = hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:10]
        folder = root / f"{self.name}-{judge.name}-judge-seed{train.seed}-{name}"
        watched = self._validated(store, folder, epoch * rule.every)
        with ExitStack() as stack:  # another worker may be training it for another arm
            distributed.first(lambda: stack.enter_context(lock(folder / ".lock", error=CheckpointError)))
            if not watched.path.exists() or len(watched.kept()[0]) < rule.first // rule.every:
                spent = replace(spent, steps=epoch * rule.first)
                self._fitted(store, judge, config, spent, data, folder, watched, identity={"judge": known})
            return watched.kept()[0]

    def _batches(
        self, store: Store, config: Any, recipe: Recipe, train: ObjectTraining
    ) -> tuple[TrainConfig, PairedObjects]:
        spent = train.spent(recipe)
        return spent, self.data(store, config, recipe, pairs=spent.pairs, seed=spent.seed)

    def _validated(self, store: Store, folder: Path, every: int) -> Selection:
        """Validation errors of a learner in training, and its weights at the least of them."""
        held = training(features_in(store), self.episodes(store, "validation"))
        return Selection(lambda learner: position_error(learner, held), folder / BEST, every, 1, 1)

    def _fitted(
        self,
        store: Store,
        recipe: Recipe,
        config: Any,
        spent: TrainConfig,
        data: Any,
        folder: Path,
        watched: Selection | None,
        *,
        identity: dict[str, Any],
        progress: Report | None = None,
    ) -> nn.Module:
        torch.manual_seed(spent.seed)
        learner = self.fresh(store, config)
        return fit(
            learner, data, recipe.objective, spent, folder, identity=identity, progress=progress, tensorboard=False,
            diagnostics=() if watched is None else (watched,),
        )  # fmt: skip

    def check_learner(self, store: Store, recipe: Recipe, config: Any) -> None:
        """Try a learner's operations on a few pairs of a recipe, before anything is trained; see `Setting`."""
        config = self.learner_config(config, recipe)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            learner: Any = self.fresh(store, config)
            windows: Any = self.data(store, config, recipe, pairs=self.tried, seed=0)(0)
            check_learner(learner, windows)

    def seconds(self, folder: Path, train: Any) -> float:
        """Seconds that the finished source in a folder has trained, of whichever share of the updates."""
        return training_seconds(folder, read_rows(folder / "metrics.jsonl")[-1]["step"])

    def code(self) -> tuple[Any, ...]:
        """Functions and classes that a source's weights depend on, besides its learner and recipe."""
        own = type(self)
        learners = [cls for name, (cls, _) in LEARNERS.items() if name.startswith("object-") or name == "cophynet"]
        return (
            *ENGINE, PairedObjects, ObjectEpisodes, relation_units, training, truth, ObjectTraining, *learners,
            own.data, own.episodes, own.learner_config, own.fresh, own.train,
        )  # fmt: skip

    def check(self, store: Store, config: Any, *, cases: bool = False) -> None:
        """What can be said of a store and of sizes before anything is trained.

        Raises:
            ValueError: for a store without features or without a split, or a learner of other features.
        """
        found = features_in(store)
        if (size := found.features.shape[-1]) != getattr(config, "features", size):
            raise ValueError(
                f"{type(config).__name__}.features is {config.features}; legal: {size}, as in {store.name}"
            )
        for split in SPLITS:
            if split not in store.splits:
                raise ValueError(f"{store.name} has no split {split!r}; legal: {', '.join(SPLITS)}")

    def facts(self, budget: Budget) -> dict[str, str]:
        """What a report says of a budget, its pairs and its front end."""
        train, seeds = budget.train, ", ".join(map(str, budget.sources))
        half = "half as many of j2 and net50"
        if (rule := train.extension) is not None:
            half = (
                f"half as many of j2; {rule.first} epochs of net50, {rule.most} if the validation error of its Native "
                f"or SPRII falls by {rule.gain:.0%} or more from epoch {rule.first - rule.every} to {rule.first}"
            )
        made = self.store if budget.store is None else budget.store
        assert isinstance(made, Perceived)
        protocol = made.protocol
        return {
            "Budget": f"{train.steps:,} updates of {train.pairs} recipients, {half}; seeds of sources and "
            f"readers: {seeds}; {budget.note}",
            "Learner": listed(budget.learner, but=("context",)),
            "Training": f"AdamW, rate {train.learning_rate:g}, decay {train.weight_decay:g}, clip {train.clip:g}; "
            f"CoPhyNet: Adam, rate {train.net_rate:g}, no clip ({resolve_precision(train)})",
            "Pairs": f"{protocol.train:,} / {protocol.validation:,} / {protocol.test:,} of training, validation and "
            f"test; {protocol.objects} objects",
            "Front end": listed(made.frontend, but=("checkpoint_every", "log_every", "seed", "device")),
        }


@torch.no_grad()
def position_error(learner: Any, episodes: ObjectEpisodes, chunk: int = 256) -> float:
    """Mean squared error in m² of CoPhyNet's predictions with each episode's own code, mean over all episodes.

    Args:
        episodes: of a split; those without an object in both videos are left out.
    """
    data = PairedObjects(replace(episodes, features=episodes.features[..., :0]))  # it reads positions alone
    rows, total = np.flatnonzero(episodes.active.any(1)), 0.0
    device = next(learner.parameters()).device
    for first in range(0, len(rows), chunk):
        batch = learner.prepare(data.windows(rows[first : first + chunk]).to(device))
        codes = learner.encode_current(batch.current), learner.encode_history(batch.history)
        found = learner.predict(*codes, batch.u)[..., :3]
        squared = (found - batch.y.positions).square().mean((1, 3)).double()
        total += float(((squared * batch.y.active).sum(1) / batch.y.active.sum(1)).sum())
    return total / len(rows)


def epoch_of(data: PairedObjects) -> int:
    """Updates of an epoch."""
    return -(-len(data.eligible) // data.recipients)


OBJECTS = {"balls": 4, "collision": 2, "blocktower": 3}
"""Scene → objects of the paper's profile."""
QUICK_PAIRS = {"balls": (700, 600, 600), "collision": (2_000, 1_600, 1_600), "blocktower": (700, 600, 600)}
SMOKE_PAIRS = {"balls": (240, 200, 200), "collision": (330, 300, 300), "blocktower": (150, 120, 120)}
BATCH, EPOCHS, READER_BATCH = 32, 100, 128
QUICK_EPOCHS = {"balls": 24, "collision": 20, "blocktower": 24}
QUICK_READER_UPDATES = 1_320
PAPER_SECONDS = {"balls": 1.0, "collision": 0.2, "blocktower": 0.75}  # Balls measured, the others by their frames
QUICK_SECONDS = {"balls": 0.4, "collision": 0.09, "blocktower": 0.3}


def _updates(pairs: int, epochs: int, batch: int) -> int:
    return epochs * -(-pairs // batch)


def _perceived(scene: str, pairs: tuple[int, int, int], frontend: FrontEndConfig) -> Perceived:
    train, validation, test = pairs
    return Perceived(CoPhyProtocol(scene, OBJECTS[scene], train=train, validation=validation, test=test), frontend)


def _budgets(scene: str) -> dict[str, Budget]:
    """Of one scene."""
    whole = CoPhyProtocol(scene, OBJECTS[scene])
    quick, smoke = QUICK_PAIRS[scene], SMOKE_PAIRS[scene]
    return {
        "smoke": Budget(
            ObjectJEPAConfig(projection=8, width=8, persistent=6, current=6, layers=1, sigreg_slices=16),
            ObjectTraining(steps=6, pairs=8, checkpoint_every=3, log_every=2, precision="fp32"),
            (0,), 1, 4, SMOKE_NOTE, judged=False, step_seconds=0.05,
            store=_perceived(scene, smoke, FrontEndConfig("narrow", size=56, width=8, hidden=16, steps=20, judged=40)),
        ),
        "quick": Budget(
            ObjectJEPAConfig(projection=64, width=48, persistent=32, current=32, sigreg_slices=256),
            ObjectTraining(
                steps=_updates(quick[0], QUICK_EPOCHS[scene], BATCH),
                log_every=20,
                checkpoint_every=200,
                precision="fp32",  # at these widths casts cost more than they save
            ),
            (0,), 1, QUICK_READER_UPDATES,
            f"{quick[0]:,} / {quick[1]:,} / {quick[2]:,} pairs in place of {whole.train:,} / {whole.validation:,} / "
            f"{whole.test:,}; pictures of 112² and a narrow front end; learners a third as wide; "
            f"{QUICK_EPOCHS[scene]} epochs in place of 100, readers {QUICK_READER_UPDATES:,} "
            "updates of 32; one source",
            step_seconds=QUICK_SECONDS[scene],
            store=_perceived(scene, quick, FrontEndConfig("narrow", size=112, steps=1_500, batch=32, decay=True)),
        ),
        "paper": Budget(
            ObjectJEPAConfig(),
            ObjectTraining(
                steps=_updates(whole.train, EPOCHS, BATCH), log_every=100, checkpoint_every=1_000, precision="bf16",
                extension=Extension(),
            ),
            (0, 1, 2), 1, _updates(whole.train, EPOCHS, READER_BATCH),
            "the published sizes and budgets; scenes, pictures and front end are ours",
            step_seconds=PAPER_SECONDS[scene],
        ),
    }  # fmt: skip


def _setting(scene: str) -> ObjectSetting:
    whole = CoPhyProtocol(scene, OBJECTS[scene])
    published = 10 if scene == "blocktower" else 20  # epochs of the front end, on a frame of every video
    return ObjectSetting(
        f"cophy-{scene}",
        Perceived(whole, FrontEndConfig(steps=2 * published * whole.train // 16)),
        properties=tuple(f"{name}_0" for name in PROPERTIES),
        history=FRAMES[scene],
        anchors=(QUERY - 1,),
        budgets=_budgets(scene),
        observation="features",
        action=None,
    )


COPHY = tuple(_setting(scene) for scene in OBJECTS)
