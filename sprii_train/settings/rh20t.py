"""Recorded manipulation, in which the task persists over scenes (`app:rh-profile`)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sprii_envs.banks import Store
from sprii_envs.robots.arms import ArmsProtocol
from sprii_envs.robots.splits import SPLITS
from sprii_train.fit import ENGINE, TrainConfig, fit
from sprii_train.learners.multimodal import MultimodalConfig, MultimodalPredictor
from sprii_train.protocol import check_learner
from sprii_train.recipes import Recipe, SceneRecipe
from sprii_train.records import Report
from sprii_train.robots.scene_pairs import ScenePairs, random_groups
from sprii_train.robots.scenes import FORCE, POSITION, SceneReader
from sprii_train.settings.base import SMOKE_NOTE, Budget, Setting, with_context
from sprii_train.settings.recorded import Recorded


@dataclass(frozen=True)
class SceneSetting(Setting):
    """Scenes of tasks; a recipe says whether pictures are read, and whose history is whose donor."""

    __hash__ = Setting.__hash__

    def reader(self, store: Store, config: Any) -> SceneReader:
        """The reader of a learner's sensors, and of its pictures."""
        return SceneReader(store, self.history, config.horizons, image=config.image)

    def learner_config(self, config: Any, recipe: Recipe) -> Any:
        """A learner's config with the context of a recipe, and without pictures where it asks for none."""
        found = with_context(config, recipe, len(self.properties))
        if not isinstance(recipe, SceneRecipe):
            return found
        changed: dict[str, Any] = {} if recipe.pictures else {"image": 0}
        return replace(found, **changed | ({"context": "joint"} if recipe.joint else {}))

    def data(self, store: Store, config: Any, recipe: Recipe, *, pairs: int, seed: int) -> Callable[[int], Any]:
        """Training batches of a recipe: the same queries in all of them."""
        donors = getattr(recipe, "donors", "matched")
        table, joint = self.episodes(store, "train"), config.context == "joint"
        return ScenePairs(self.reader(store, config), table, donors=donors, pairs=pairs, seed=seed, joint=joint)

    def fresh(self, store: Store, config: Any) -> MultimodalPredictor:
        """A learner with first weights, told how pictures are distributed."""
        learner = MultimodalPredictor(config)
        if config.image:
            learner.standardise(*self.reader(store, config).picture_statistics())
        return learner

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
        """The learner of a config, trained under a recipe."""
        data = self.data(store, config, recipe, pairs=train.pairs, seed=train.seed)
        torch.manual_seed(train.seed)
        learner = self.fresh(store, config)
        torch.manual_seed(train.seed)
        if config.context == "joint":  # as many queries: their donors are no windows of the batch
            train = replace(train, pairs=train.pairs // 2)
        return fit(learner, data, recipe.objective, train, folder, identity=identity, progress=progress)

    def check_learner(self, store: Store, recipe: Recipe, config: Any) -> None:
        """Try a learner's operations on a few pairs of a recipe, before anything is trained; see `Setting`."""
        config = self.learner_config(config, recipe)
        with torch.random.fork_rng(devices=[]):
            learner = self.fresh(store, config)
        check_learner(learner, self.data(store, config, recipe, pairs=4, seed=0)(0))

    def code(self) -> tuple[Any, ...]:
        """Functions and classes that a source's weights depend on, besides its learner and recipe."""
        own = type(self)
        parts = (ScenePairs, random_groups, SceneReader, MultimodalPredictor)
        return (*ENGINE, *parts, own.data, own.reader, own.episodes, own.learner_config, own.fresh, own.train)

    def check(self, store: Store, config: Any, *, cases: bool = False) -> None:
        """What can be said of a learner's windows and of the measure before anything is trained.

        Raises:
            ValueError: for a store without the columns or splits, tasks of one scene, or scenes too short; or for a
                learner of other numbers or another history.
        """
        if not isinstance(config, MultimodalConfig):
            raise ValueError(f"the setting {self.name!r} has learners of MultimodalConfig, got {type(config).__name__}")
        if config.history != self.history:
            raise ValueError(f"MultimodalConfig.history is {config.history}; legal: {self.history}")
        reader = self.reader(store, config)
        legal = {
            "sensors": len(reader.sensors.mean),
            "force": FORCE.stop - FORCE.start,
            "position": POSITION.stop - POSITION.start,
            "action_dim": len(reader.commands.mean),
        }
        for name, value in legal.items():
            if getattr(config, name) != value:
                raise ValueError(f"MultimodalConfig.{name} is {getattr(config, name)}; legal: {value}, as recorded")
        for split in SPLITS:
            if split not in store.splits:
                raise ValueError(f"{store.name} has no split {split!r}, which the setting {self.name!r} reads")
            ScenePairs(reader, self.episodes(store, split))


HISTORY = 24
STAND_IN = "scenes are of a simulated stand-in unless recordings were imported, see docs/robots.md"
SMALL, QUICK = ArmsProtocol(tasks=15, each=4, frames=64, size=16), ArmsProtocol(each=6, size=48)

RH20T_BUDGETS = {
    "smoke": Budget(
        MultimodalConfig(
            image=16, stem=(4, 8), patch=4, embedding=16, persistent=8, current=8, action_feature=4, horizon_feature=4,
            sensor_width=16, fusion_width=16, width=16, layers=1, heads=2, trunk_width=16, sigreg_slices=32,
        ),
        TrainConfig(steps=6, pairs=8, warmup=2, checkpoint_every=3, log_every=2),
        (0,), 1, 20, SMOKE_NOTE, judged=False, step_seconds=0.03, store=Recorded(SMALL),
    ),
    "quick": Budget(
        MultimodalConfig(
            image=48, stem=(16, 32, 64), patch=4, embedding=64, sensor_width=96, fusion_width=96, width=64, layers=2,
            heads=4, trunk_width=128, sigreg_slices=128, dropout=0.0,
        ),
        TrainConfig(steps=1_500, learning_rate=1e-3, warmup=100, checkpoint_every=250),
        (0,), 1, None,
        f"1,500 of 20,000 updates of a narrower network on 124 tasks × 6 scenes with pictures of 48²; one source; "
        f"{STAND_IN}",
        step_seconds=0.13, store=Recorded(QUICK),
    ),
    "paper": Budget(
        MultimodalConfig(), TrainConfig(steps=20_000), (0, 1, 2), 1, None,
        f"the paper's sizes and updates; {STAND_IN}", step_seconds=5.0,
    ),
}  # fmt: skip

RH20T = SceneSetting(
    "rh20t",
    Recorded(ArmsProtocol()),
    properties=(),
    history=HISTORY,
    anchors=(),
    budgets=RH20T_BUDGETS,
    observation=("frames", "force", "tcp", "gripper"),
    action="action",
)
