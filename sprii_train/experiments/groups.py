"""What a target needs computed: groups of arms of one setting, as the cells that they are run as."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from sprii_envs.banks import Store
from sprii_train.experiments.cells import Cell
from sprii_train.experiments.measures import MEASURES
from sprii_train.experiments.pairings import PairingCell
from sprii_train.experiments.sources import ReaderBudget, SourceCell
from sprii_train.learners import learner_of
from sprii_train.recipes import EVERY_RECIPE, Endpoint
from sprii_train.settings import Budget, Setting

INFERRED = "inferred"
"""The recipe whose donors a teacher's codes define."""
TEACHER = "structure"  # of history-inferred relations


@dataclass(frozen=True)
class Scope:
    """A group's setting at a budget.

    Attributes:
        arms: names of the recipes that are run.
        store: opened, and found whole.
        population: of measures of one held-out split.
    """

    setting: Setting
    budget: Budget
    arms: Sequence[str]
    store: Store
    population: str = "test"

    def source(self, seed: int, arm: str = TEACHER) -> SourceCell:
        """The source of an arm and a seed, without a measure; by default the teacher."""
        spent = self.budget.of(EVERY_RECIPE[arm])
        given = {"updates": spent.reader_steps, "route_updates": spent.route_steps}
        return SourceCell(
            self.setting.of_source(self.budget, seed),
            EVERY_RECIPE[arm],
            spent.learner,
            replace(spent.train, seed=seed),
            self.store.name,
            self.store.fingerprint,
            readers=ReaderBudget(count=spent.readers, **{name: n for name, n in given.items() if n is not None}),
            trials=spent.trials,
            population=self.population,
        )

    def teacher(self, arm: str, seed: int) -> SourceCell | None:
        """The source that an arm needs first, see `SourceCell`; None for most arms."""
        if isinstance(recipe := EVERY_RECIPE[arm], Endpoint):
            return self.source(seed, recipe.of)
        return self.source(seed) if arm == INFERRED else None


class Unit(Protocol):
    """Cells of one setting.

    Attributes:
        world: name in `settings.SETTINGS`.
        recipes: arms, in the order of the table.
        measures: names in `measures.MEASURES` that its sources are measured by.
        acting: evaluations of each seed that are of no source, as a share of one that is.
    """

    @property
    def acting(self) -> float: ...
    @property
    def world(self) -> str: ...
    @property
    def recipes(self) -> tuple[str, ...]: ...
    @property
    def measures(self) -> tuple[str, ...]: ...
    def arms(self, preset: str) -> tuple[str, ...]:
        """The arms of a preset."""
        ...

    def sources(self, arms: Sequence[str]) -> tuple[str, ...]:
        """Recipes of the sources that are trained of each seed."""
        ...

    def cells(self, scope: Scope) -> list[Cell]:
        """Cells, seeds outermost, so that a stopped run has whole sources."""
        ...


@dataclass(frozen=True)
class Group:
    """Sources of one setting; attributes as of a `Unit`.

    Attributes:
        core: the arms that a smoke or quick run trains; empty for all.
    """

    world: str
    recipes: tuple[str, ...]
    measures: tuple[str, ...] = ("formation",)
    core: tuple[str, ...] = ()
    acting: float = 0.0

    def arms(self, preset: str) -> tuple[str, ...]:
        """The arms of a preset."""
        return self.recipes if preset == "paper" or not self.core else self.core

    def sources(self, arms: Sequence[str]) -> tuple[str, ...]:
        """One an arm, but that endpoints are of another arm's."""
        found = ((arm, EVERY_RECIPE[arm]) for arm in arms)
        return tuple(dict.fromkeys(own.of if isinstance(own, Endpoint) else arm for arm, own in found))

    def cells(self, scope: Scope) -> list[Cell]:
        """Every measure of every source."""
        cells: list[Cell] = []
        for seed in scope.budget.sources:
            # A source is trained for its first measure; by the time of the second no two workers want the same one.
            for measure in (*self.measures, SIGHT):
                for arm in scope.arms:
                    source = scope.source(seed, arm)
                    if measure != SIGHT or sees(source):
                        cells.append(replace(source, measure=MEASURES[measure], teacher=scope.teacher(arm, seed)))
        return cells


SIGHT = "sight"
"""The measure of every source of pixels whose setting names the components of its states."""


def sees(cell: SourceCell) -> bool:
    """Whether a source's learner embeds frames, and there are components for these to tell of."""
    embeds = hasattr(learner_of(cell.learner)[1], "target")
    return bool(embeds and getattr(cell.learner, "image", 0) and cell.setting.components)


@dataclass(frozen=True)
class Pairings:
    """Pairing laws of one setting, audited; nothing is trained but the teacher of an inferred relation.

    Attributes:
        world, recipes, acting: as of a unit.
        splits: audited, each by itself.
    """

    world: str
    recipes: tuple[str, ...]
    splits: tuple[str, ...] = ("train",)
    acting: float = 0.0

    @property
    def measures(self) -> tuple[str, ...]:
        """None is taken."""
        return ()

    def arms(self, preset: str) -> tuple[str, ...]:
        """All of them, whatever the preset."""
        return self.recipes

    def sources(self, arms: Sequence[str]) -> tuple[str, ...]:
        """The teacher."""
        return (TEACHER,) if INFERRED in arms else ()

    def cells(self, scope: Scope) -> list[Cell]:
        """One a recipe."""
        return [
            PairingCell(
                scope.setting, EVERY_RECIPE[arm], self.splits, seed, scope.store.name, scope.store.fingerprint,
                scope.teacher(arm, seed),
            )
            for seed in scope.budget.sources
            for arm in scope.arms
        ]  # fmt: skip
