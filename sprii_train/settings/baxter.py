"""Grasps of Baxter's gripper: hardness and shape persist, six configurations cross them (`app:baxter-profile`)."""

from collections.abc import Callable
from typing import Any, ClassVar

from sprii_envs.banks import Store
from sprii_envs.robots.baxter import CONFIGURATIONS, SAMPLES, SPLITS, TACTILE, TAXELS
from sprii_envs.robots.tactile import TactileProtocol
from sprii_train.fit import ENGINE, TrainConfig
from sprii_train.learners.tactile import TactileConfig
from sprii_train.recipes import Recipe
from sprii_train.robots.grasps import Configurations, GraspPairs, GraspReader
from sprii_train.settings.base import SMOKE_NOTE, Budget, Setting
from sprii_train.settings.recorded import Recorded


class GraspSetting(Setting):
    """Grasps of crossed configurations; a batch has as many queries of each."""

    tried: ClassVar[int] = 12

    def reader(self, store: Store, config: Any) -> GraspReader:
        """The reader of standardised samples at a learner's horizons."""
        return GraspReader(store, self.history, config.horizons, observation=str(self.observation))

    def data(self, store: Store, config: Any, recipe: Recipe, *, pairs: int, seed: int) -> Callable[[int], Any]:
        """Training batches of a recipe."""
        table = self.episodes(store, "train")
        relation, kernel = recipe.pairing(table)
        reader = self.reader(store, config)
        return GraspPairs(reader, table, relation=relation, kernel=kernel, pairs=pairs, seed=seed)

    def code(self) -> tuple[Any, ...]:
        """Functions and classes that a source's weights depend on, besides its learner and recipe."""
        own = type(self)
        parts = (GraspPairs, Configurations, GraspReader, own.data, own.reader, own.episodes, own.learner_config)
        return (*ENGINE, *parts, own.train)

    def check(self, store: Store, config: Any, *, cases: bool = False) -> None:
        """What can be said of a learner's batches and of the measures before anything is trained.

        Raises:
            ValueError: for a store without whole grasps of six crossed configurations in every split, or a learner of
                other samples.
        """
        if TACTILE not in store.columns:
            raise ValueError(f"{store.name} has no column {TACTILE!r}; columns: {', '.join(store.columns)}")
        if missing := [split for split in SPLITS if split not in store.splits]:
            raise ValueError(f"{store.name} has no split {missing[0]!r}, which the setting {self.name!r} reads")
        for split in SPLITS:
            table = self.episodes(store, split)
            found = set(zip(table["shape"].tolist(), table["level"].tolist(), strict=True))
            if lacking := [each for each in CONFIGURATIONS if each not in found]:
                shape, level = lacking[0]
                raise ValueError(f"{store.name} has no grasp of {shape}-{level} in {split!r}")
            if (short := int(table["length"].min())) < SAMPLES:
                raise ValueError(f"{store.name} has grasps of {short} samples; legal: at least {SAMPLES}")
        name = type(config).__name__
        if config.history != self.history or config.horizons[-1] > SAMPLES - self.history:
            raise ValueError(
                f"{name} has a history of {config.history} and predicts {config.horizons}; legal: {self.history}, and "
                f"at most {SAMPLES - self.history} ahead"
            )
        if config.taxels != TAXELS:
            raise ValueError(f"{name}.taxels is {config.taxels}; legal: {TAXELS}")


HISTORY = 40
STAND_IN = "grasps are of a simulated stand-in unless recordings were imported, see docs/robots.md"

BAXTER_BUDGETS = {
    "smoke": Budget(
        TactileConfig(
            embedding=32, persistent=16, current=16, horizon_feature=8, observation_width=32, width=32, layers=1,
            heads=4, head_width=32, predictor_width=32, sigreg_slices=64,
        ),
        TrainConfig(steps=20, pairs=12, warmup=5, checkpoint_every=10, log_every=5),
        (0,), 1, 20, SMOKE_NOTE, judged=False, step_seconds=0.01, store=Recorded(TactileProtocol(counts=(12, 4, 4))),
    ),
    "quick": Budget(
        TactileConfig(
            embedding=64, observation_width=64, width=64, layers=2, heads=4, head_width=64, predictor_width=128,
            sigreg_slices=128, dropout=0.0,
        ),
        TrainConfig(steps=1_000, learning_rate=1e-3, warmup=100, checkpoint_every=250),
        (0, 1, 2), 1, None, f"1,000 of 10,000 updates of a narrower network; {STAND_IN}", step_seconds=0.04,
    ),
    "paper": Budget(
        TactileConfig(), TrainConfig(steps=10_000), (0, 1, 2), 1, None,
        f"the paper's sizes and updates; {STAND_IN}", step_seconds=0.25,
    ),
}  # fmt: skip

BAXTER = GraspSetting(
    "baxter",
    Recorded(TactileProtocol()),
    properties=("hardness",),
    history=HISTORY,
    anchors=(HISTORY - 1,),
    budgets=BAXTER_BUDGETS,
    observation=TACTILE,
    action=None,
    arms=("baxter-hardness", "baxter-shape", "baxter-random"),
)
