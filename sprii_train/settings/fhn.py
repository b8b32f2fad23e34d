"""Fields of FitzHugh–Nagumo, in which (k, β) persist; NOD-Hier reads one trajectory and predicts another.

The published profile is `app:nod-fhn-profile`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sprii_envs.banks import Store
from sprii_envs.fields.bank import FIELD, FHNProtocol
from sprii_train.fhn.evaluation import DONORS, FACTORS, GREEDY, SPLITS, held
from sprii_train.fhn.schedule import Stages
from sprii_train.fhn.windows import PairedChains, by_system
from sprii_train.fit import ENGINE, fit
from sprii_train.learners import learner_of
from sprii_train.learners.nod_hier import CONTEXT, NODHierConfig
from sprii_train.recipes import Recipe
from sprii_train.records import Report, read_rows, training_seconds
from sprii_train.settings.base import SMOKE_NOTE, Budget, Setting, listed
from sprii_train.settings.solved import Solved


class FHNSetting(Setting):
    """Trajectories of fields, whole ones as histories; a budget says how fine they are."""

    def data(
        self,
        store: Store,
        config: Any,
        recipe: Recipe,
        *,
        pairs: int,
        seed: int,
        stages: tuple[int, ...] = (),
    ) -> Callable[[int], Any]:
        """Training batches of a recipe, whose stages begin the stream of samples again."""
        return PairedChains(
            store, self.episodes(store, "train"), kernel=recipe.kernel, heads=config.heads, pairs=pairs, seed=seed,
            stages=stages,
        )  # fmt: skip

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
        """The learner of a config after all stages of the recipe's schedule, with Align or without."""
        aligned = recipe.objective.lambda_p > 0
        data = self.data(store, config, recipe, pairs=train.pairs, seed=train.seed, stages=train.ends(aligned))
        torch.manual_seed(train.seed)
        learner = learner_of(config)[1](config)
        return fit(
            learner, data, recipe.objective, train.run(aligned), folder, identity=identity, progress=progress,
            tensorboard=False,
        )  # fmt: skip

    def seconds(self, folder: Path, train: Any) -> float:
        """Seconds that the finished source in a folder has trained, of whichever schedule it is."""
        return training_seconds(folder, read_rows(folder / "metrics.jsonl")[-1]["step"])

    def updates(self, recipe: Recipe, train: Stages) -> int:
        """Of the recipe's schedule."""
        return train.ends(recipe.objective.lambda_p > 0)[-1]

    def code(self) -> tuple[Any, ...]:
        """Functions and classes that a source's weights depend on, besides its learner and recipe."""
        own = type(self)
        return (*ENGINE, PairedChains, Stages, own.data, own.episodes, own.learner_config, own.train)

    def check(self, store: Store, config: Any, *, cases: bool = False) -> None:
        """What can be said of a learner's batches and of the measures before anything is trained.

        Raises:
            ValueError: for a store without fields, cases or long trajectories, or a learner that cannot read them.
        """
        if FIELD not in store.columns:
            raise ValueError(f"{store.name} has no column {FIELD!r}; columns: {', '.join(store.columns)}")
        if (short := int(store.table["length"].min())) <= CONTEXT[-1]:
            raise ValueError(f"{store.name} has trajectories of {short} frames; legal: at least {CONTEXT[-1] + 1}")
        if lacking := sorted(set(GREEDY) - set(getattr(config, "heads", ()))):
            raise ValueError(f"{type(config).__name__} has no head of {lacking[0]} frames, which evaluation takes")
        if config.frames != len(CONTEXT):
            raise ValueError(f"{type(config).__name__}.frames is {config.frames}; legal: {len(CONTEXT)}, of a context")
        by_system(store.split("train"))
        for split in SPLITS:
            if missing := sorted(set(DONORS) - set(held(store, split).episodes)):
                raise ValueError(f"{store.name} lacks the case {missing[0]} of a system of {split!r}")

    def facts(self, budget: Budget) -> dict[str, str]:
        """What a report says of a budget, its fields and its schedule."""
        train, seeds = budget.train, ", ".join(map(str, budget.sources))
        made = self.store if budget.store is None else budget.store
        protocol = made.protocol if isinstance(made, Solved) else made
        rates = (
            f"initial rate {train.share:g}/√P, × 0.95 every {train.at(500):,} updates, 1e-5 after {train.at(40_000):,}"
        )
        return {
            "Budget": f"stages of {_listed(train.ends(True))} updates with Align and {_listed(train.ends(False))} "
            f"without, {train.pairs} trajectories each; seeds of sources: {seeds}; {budget.note}",
            "Learner": listed(budget.learner),
            "Training": f"RMSprop, {rates}; weight of Align to {train.at(10_000):,}, its rise over {train.at(2_000):,}",
            "Fields": repr(protocol),
        }


def _listed(ends: tuple[int, ...]) -> str:
    return "/".join(f"{end:,}" for end in ends)


LAYERS_NOTE = "the released network's layers are not at hand: ours, see the learner; so are the 26 chains of heads"

FHN_BUDGETS = {
    "smoke": Budget(
        NODHierConfig(width=8, layers=2, modes=4, condition_width=8),
        Stages(steps=30, pairs=4, log_every=5, checkpoint_every=15),
        (42,), 1, 20, SMOKE_NOTE, judged=False, step_seconds=0.03,
        store=Solved(FHNProtocol(side=16, step=0.05, train_cases=tuple(range(50, 54)))),
    ),
    "quick": Budget(
        NODHierConfig(width=16, layers=3, modes=8, condition_width=32),
        Stages(steps=2_000, log_every=50, checkpoint_every=250),
        (42, 43, 44), 1, None,
        "2,000 of 50,000 updates of a narrower network on fields of 32 × 32, where the fronts of u, two points wide at "
        f"128, are not resolved; {LAYERS_NOTE}", step_seconds=0.065,
        store=Solved(FHNProtocol(side=32)),
    ),
    "paper": Budget(
        NODHierConfig(), Stages(log_every=100, checkpoint_every=100), (42, 43, 44), 3, None,
        f"the published sizes and schedule; fields by splitting, 1e-4 from the published solver's; {LAYERS_NOTE}",
        step_seconds=12.0,
    ),
}  # fmt: skip

FHN = FHNSetting(
    "fhn",
    Solved(FHNProtocol()),
    properties=FACTORS,
    history=CONTEXT[-1] + 1,
    anchors=(CONTEXT[-1],),
    budgets=FHN_BUDGETS,
    observation=FIELD,
    action=None,
)
