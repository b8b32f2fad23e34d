"""Overcooked: a partner persists in a kitchen; an action learner reads histories with it (`app:overcooked-profile`).

Whatever needs the extra `overcooked` is imported where it is used.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from sprii_envs.arguments import check, number
from sprii_envs.banks import Store
from sprii_train.fit import ENGINE, TrainConfig
from sprii_train.learners.ad import SUPPORT, ADConfig
from sprii_train.recipes import Recipe
from sprii_train.settings.base import SMOKE_NOTE, Budget, Setting, Trials, listed, with_context


@dataclass(frozen=True)
class Histories:
    """Histories of egos that learn with partners, made in a folder of banks and found there.

    Attributes:
        sizes: fields of `HistoryProtocol`.
        kitchen: fields of `Game`; none are those of a roster's folder, or the defaults.
        partners: folder of a roster; none are the shipped ones.
    """

    sizes: Mapping[str, int] = field(default_factory=dict)
    kitchen: Mapping[str, Any] = field(default_factory=dict)
    partners: str = ""

    @property
    def protocol(self) -> Any:
        """The protocol of the bank."""
        from sprii_envs.overcooked.bank import HistoryProtocol
        from sprii_envs.overcooked.game import Game
        from sprii_envs.overcooked.partners.roster import game_of

        own = bool(self.partners) and not self.kitchen
        return HistoryProtocol(game=game_of(self.partners) if own else Game(**self.kitchen), **self.sizes)

    @property
    def roster(self) -> Any:
        """The partners.

        Raises:
            ValueError: for too few of them to exchange their histories.
        """
        from sprii_envs.overcooked.partners.roster import load_roster, shipped

        found = load_roster(self.partners) if self.partners else shipped()
        for group in ("familiar", "held_out"):
            if (count := len(found.group(group))) < 2:
                raise ValueError(
                    f"{self.partners or 'roster'}: the number of {group.replace('_', '-')} partners is {count}; legal: "
                    "at least 2"
                )
        return found

    def __call__(self, folder: Path) -> Store:
        from sprii_envs.overcooked.bank import identity
        from sprii_train.overcooked.learning import build_histories, made_with

        protocol, roster = self.protocol, self.roster
        place = folder / f"overcooked-{identity(protocol, roster, made_with(protocol))[:12]}"
        return build_histories(protocol, roster, place, progress=_progress)


def _progress(done: int, of: int) -> None:
    print(f"histories: {done} of {of} groups", flush=True)


@dataclass(frozen=True)
class PartnerSetting(Setting):
    """Histories with partners, of which windows are whole episodes.

    Attributes:
        kitchen: see `Histories`; budgets say the sizes.
        partners: folder of a roster; none are the shipped ones. The store's fingerprint knows them.
        share: of each run's histories that are trained on, the first of them, so that shares are nested.
    """

    kitchen: Mapping[str, Any] = field(default_factory=dict)
    partners: str = field(default="", repr=False)
    share: float = 1.0

    __hash__ = Setting.__hash__

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        super().__post_init__()
        check(self, number, "share", above=0, most=1)

    def histories(self, budget: Budget | None = None) -> Histories:
        """Those of a budget, in this kitchen with these partners."""
        made = self.store if budget is None or budget.store is None else budget.store
        assert isinstance(made, Histories)
        return replace(made, kitchen=self.kitchen, partners=self.partners)

    @property
    def roster(self) -> Any:
        """Its partners."""
        return self.histories().roster

    def open_store(self, root: Path, budget: Budget | None = None) -> Store:
        """The bank of histories under `root/banks`, learnt if it is not there, its checksums verified."""
        return self.histories(budget)(root / "banks")

    def data(self, store: Store, config: Any, recipe: Recipe, *, pairs: int, seed: int) -> Callable[[int], Any]:
        """Training batches of a recipe."""
        from sprii_envs.overcooked.bank import HistoryBank
        from sprii_train.overcooked.windows import PairedPlay

        assert isinstance(store, HistoryBank)
        table = store.split("train")
        _, first, run = np.unique(table["run"], return_index=True, return_inverse=True)
        kept = max(1, round(self.share * store.protocol.histories))
        table = table.select(np.arange(len(table)) - first[run] < kept)  # rows of a run stand together
        relation, kernel = recipe.pairing(table)
        return PairedPlay(store, relation=relation, kernel=kernel, pairs=pairs, seed=seed, table=table)

    def learner_config(self, config: Any, recipe: Recipe) -> Any:
        """A learner's config of the kitchen's inputs and steps; ValueError for an arm of a context."""
        game = self.histories().protocol.game
        return replace(
            with_context(config, recipe, len(self.properties)), inputs=int(np.prod(game.shape)), steps=game.max_steps
        )

    def code(self) -> tuple[Any, ...]:
        """Functions and classes that a source's weights depend on, besides its learner and recipe."""
        from sprii_train.overcooked.windows import PairedPlay

        own = type(self)
        return (*ENGINE, PairedPlay, own.data, own.learner_config, own.train)

    def check(self, store: Store, config: Any, *, cases: bool = False) -> None:
        """ValueError for a learner that cannot be told the kitchen's sizes."""
        for name in ("inputs", "steps"):
            if not hasattr(config, name):
                raise ValueError(f"{type(config).__name__} has no field {name!r}, which the kitchen decides")

    def facts(self, budget: Budget) -> dict[str, str]:
        """What a report says of a budget, of its histories and of the kitchen."""
        from sprii_train.overcooked.ippo import RETURNS

        protocol, train, trials = self.histories(budget).protocol, budget.train, budget.trials
        acted = "" if trials is None else f"; {trials.episodes} episodes × {trials.repeats} with each partner"
        return super().facts(budget) | {
            "Budget": f"{train.steps:,} updates of {2 * train.pairs} windows; seeds of sources: "
            f"{', '.join(map(str, budget.sources))}{acted}; {budget.note}",
            "Partners": self.partners or "the shipped ones",
            "Histories": listed(protocol, but=("game",)) + f"; {self.share:.0%} of each run's are trained on",
            "Kitchen": listed(protocol.game),
            "Returns in learning": RETURNS,
        }


OVERCOOKED_BUDGETS = {
    "smoke": Budget(
        ADConfig(width=16, layers=1, heads=2),
        TrainConfig(steps=2, pairs=2, warmup=1, log_every=1),
        (4200,),
        1,
        None,
        SMOKE_NOTE,
        judged=False,
        step_seconds=0.1,
        store=Histories({"runs": 2, "histories": 2, "episodes": 8, "kitchens": 4, "iterations": 8}),
        trials=Trials(6, seconds=40.0),
    ),
    "quick": Budget(
        ADConfig(width=32, layers=1, heads=2),
        TrainConfig(
            steps=600,
            pairs=32,
            warmup=50,
            weight_decay=0.01,
            log_every=25,
            checkpoint_every=100,
            precision="fp32",
            learning_rate=1e-3,
        ),
        (4200, 4201, 4202),
        1,
        None,
        "600 of 20,000 updates of 64 of 1,024 windows, at a rate of 1e-3, of a smaller network; own partners",
        step_seconds=0.13,
        trials=Trials(20, 4, seconds=30.0),
    ),
    "paper": Budget(
        ADConfig(width=256, layers=4, dropout=0.1),
        TrainConfig(steps=20_000, pairs=512, warmup=1000, weight_decay=0.0, microbatch=2),
        (4200, 4201, 4202),
        1,
        None,
        "the published sizes, with the partners shipped here in place of the paper's twenty",
        step_seconds=80.0,
        store=Histories({"runs": 8, "validation": 2, "histories": 16, "episodes": 146, "iterations": 146}),
        trials=Trials(20, seconds=250.0),
    ),
}

OVERCOOKED = PartnerSetting(
    "overcooked",
    Histories(),
    properties=(),
    history=SUPPORT,
    anchors=(),
    budgets=OVERCOOKED_BUDGETS,
)

OVERCOOKED_HALF = replace(OVERCOOKED, name="overcooked-half", share=0.5)
OVERCOOKED_QUARTER = replace(OVERCOOKED, name="overcooked-quarter", share=0.25)
"""The same bank, of whose training histories a half and a quarter are read (`tab:v3-overcooked`)."""
