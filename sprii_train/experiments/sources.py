"""A source: one learner of one world, trained under one recipe and seed; cells train it once and measure it often."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sprii_envs.banks import Bank
from sprii_envs.fields import check, integer
from sprii_train.analysis.gradients import GradientDiagnostic
from sprii_train.checkpoints import load, save, write_tensors
from sprii_train.data import PairedWindows, WindowReader
from sprii_train.distributed import first
from sprii_train.experiments.grid import Report, folder_of, locked
from sprii_train.experiments.worlds import WORLDS, World
from sprii_train.fit import ENGINE, TrainConfig, fit, what_matters
from sprii_train.identity import cell_code
from sprii_train.learners.jepa import JEPA, JEPAConfig
from sprii_train.recipes import EVERY_RECIPE, LINKED, Recipe, recipe
from sprii_train.records import training_seconds


@dataclass(frozen=True)
class Source:
    """A trained learner with what it was trained on; read-only, in evaluation mode."""

    cell: "SourceCell"
    world: World
    bank: Bank
    learner: JEPA
    folder: Path

    @property
    def seed(self) -> int:
        """The source's seed."""
        return self.cell.train.seed

    def keep(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write a measure's numbers by system beside its row."""
        contiguous = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
        write_tensors(self.folder / self.cell.arrays, contiguous)


@dataclass(frozen=True)
class ReaderBudget:
    """What may be spent on the task readers of a source; the defaults are the paper's.

    Attributes:
        count: readers of each arm.
        updates, route_updates: of the common reader, and of residual routes and their bases.
    """

    count: int = 3
    updates: int = 10_000
    route_updates: int = 1_000

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        check(self, integer, "count", "updates", "route_updates", least=1)


SHORT = 50
"""Observations of the gradients in a run too short to have as many at one every 100 updates."""

READERLESS = ("atlas", "cost", "direction", "evidence", "formation", "gradients", "windows")


@dataclass(frozen=True)
class SourceCell:
    """One source and one measure of it.

    Attributes:
        world, recipe: names in `worlds.WORLDS` and `recipes.EVERY_RECIPE`.
        learner, train: sizes and budget; the recipe decides the learner's context.
        bank, fingerprint: folder and identity of the bank.
        measure: name in `measures.MEASURES`; its row is the cell's result.
        readers: of measures that fit any.
        teacher: the source whose codes define the donors of a history-inferred relation; trained first if it is not.
    """

    world: str
    recipe: str
    learner: JEPAConfig
    train: TrainConfig
    bank: str
    fingerprint: str
    measure: str = "formation"
    readers: ReaderBudget = ReaderBudget()
    teacher: "SourceCell | None" = None

    @property
    def title(self) -> str:
        """World, recipe and seed."""
        return f"{self.world}-{self.recipe}-seed{self.train.seed}"

    @property
    def steps(self) -> int:
        """Updates of the source."""
        return self.train.steps

    @property
    def result(self) -> str:
        """The file of the measure's row."""
        return f"{self._stem}.json"

    @property
    def arrays(self) -> str:
        """The file of the measure's numbers by system."""
        return f"{self._stem}.safetensors"

    @property
    def _stem(self) -> str:
        if self.measure in READERLESS:
            return self.measure
        readers = self.readers
        return f"{self.measure}-{readers.count}x{readers.updates}-{readers.route_updates}"

    def identity(self) -> dict[str, Any]:
        """Everything that the weights depend on."""
        arm, world = recipe(self.recipe, EVERY_RECIPE), WORLDS[self.world]
        return {
            "world": [world.name, world.factors, world.history, world.kind, world.shortest],
            "recipe": repr(arm),
            "learner": asdict(self.learner),
            "train": what_matters(self.train),
            "bank": self.fingerprint,
            "teacher": None if self.teacher is None else self.teacher.identity(),
            "code": source_code(arm),
        }

    def measurement(self) -> dict[str, Any]:
        """What the row depends on besides the weights."""
        from sprii_train.experiments.measures import MEASURES  # measures are written over sources

        readers = None if self.measure in READERLESS else asdict(self.readers)
        code = cell_code(MEASURES[self.measure], World.episodes, World.reader, World.starts)
        return {"code": code, "world": repr(WORLDS[self.world]), "readers": readers}

    def run(self, folder: Path, report: Report) -> dict[str, Any]:
        """Train unless that is done, then measure."""
        from sprii_train.experiments.measures import MEASURES  # measures are written over sources

        source = train_source(self, folder, report)
        row = {
            "world": self.world,
            "arm": self.recipe,
            "label": recipe(self.recipe, EVERY_RECIPE).label,
            "seed": self.train.seed,
            "steps": self.train.steps,
            "train_seconds": training_seconds(folder, self.train.steps),
            "parameters": sum(p.numel() for p in source.learner.parameters()),
        }
        return row | first(lambda: MEASURES[self.measure](source))


def source_code(arm: Recipe) -> dict[str, str]:
    """Digests of the code that the weights of a recipe's sources depend on."""
    from sprii_train.experiments.graphs import inferred_graph, random_graph

    graphs = (inferred_graph, random_graph) if arm.kernel == LINKED else ()
    law = (World.data, World.reader, World.episodes, type(arm), type(arm.relation), type(arm.kernel))
    return cell_code(*ENGINE, JEPA, PairedWindows, WindowReader, *law, *graphs)


def train_source(cell: SourceCell, folder: Path, report: Report) -> Source:
    """The trained source of a cell, from its folder if it is there."""
    world, arm = WORLDS[cell.world], recipe(cell.recipe, EVERY_RECIPE)
    bank = Bank.open(cell.bank)
    if not (folder / "model").exists():
        config = replace(cell.learner, context=arm.context)
        if arm.context == "supervised":
            config = replace(config, label_dim=len(world.factors))
        if arm.kernel == LINKED:
            arm = linked(arm, world, bank, cell.train.seed, cell.teacher, folder.parent, report)
        data = world.data(bank, config, arm, pairs=cell.train.pairs, seed=cell.train.seed)
        torch.manual_seed(cell.train.seed)
        learner = JEPA(config)
        joint = arm.objective.lambda_p and arm.objective.lambda_x
        often = GradientDiagnostic(every=min(100, max(1, cell.train.steps // SHORT)))
        fit(
            learner, data, arm.objective, cell.train, folder, identity={"source": cell.identity()}, progress=report,
            diagnostics=[often] if joint else [],
        )  # fmt: skip
        learner.cpu()  # windows are read, and codes measured, on the CPU
        first(lambda: save(learner, folder / "model"))
    learner = load(folder / "model")
    assert isinstance(learner, JEPA)
    return Source(cell, world, bank, learner, folder)


def linked(
    arm: Recipe, world: World, bank: Bank, seed: int, teacher: SourceCell | None, root: Path, report: Report
) -> Recipe:
    """A recipe of donors linked by a graph, with its graph in place: of the teacher's codes, or random.

    Args:
        seed: of the random graph.
        teacher: trained first if it is not.
        root: the folder of all cells.

    Raises:
        ValueError: for a recipe of inferred donors without a teacher.
    """
    from sprii_train.experiments.graphs import inferred_graph, random_graph

    if arm.name == "random-history":
        return replace(arm, kernel=random_graph(world.episodes(bank, "train"), seed=seed))
    if teacher is None:
        raise ValueError(f"the recipe {arm.name!r} needs a teacher, a trained source whose codes are compared")
    shared = folder_of(teacher, root)
    shared.mkdir(parents=True, exist_ok=True)
    with locked(shared / ".lock"):  # it may be an arm of its own, which another worker is training
        source = train_source(teacher, shared, report)
    return replace(arm, kernel=inferred_graph(source))


Measure = Callable[[Source], dict[str, Any]]
