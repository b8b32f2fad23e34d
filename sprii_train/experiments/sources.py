"""A source: one learner of one setting, trained under one recipe and seed; cells train it once and measure it often."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from sprii_envs.arguments import check, integer
from sprii_envs.banks import Bank, Store, open_store
from sprii_envs.files import write_whole
from sprii_train.checkpoints import load, save, write_tensors
from sprii_train.data import WindowReader
from sprii_train.distributed import first
from sprii_train.experiments.cells import folder_of, locked
from sprii_train.experiments.graphs import inferred_graph, random_graph
from sprii_train.fit import TrainConfig, endpoint_folder
from sprii_train.identity import cell_code, code_of
from sprii_train.learners import LEARNERS, learner_of
from sprii_train.recipes import LINKED, Compared, Endpoint, Recipe
from sprii_train.records import Report, read_rows
from sprii_train.settings.base import Setting, Trials


@dataclass(frozen=True)
class Source:
    """A trained learner with what it was trained on; read-only, in evaluation mode."""

    cell: "SourceCell"
    setting: Setting
    store: Store
    learner: Any
    folder: Path

    @property
    def bank(self) -> Bank:
        """The store, where it is a bank of a simulator.

        Raises:
            ValueError: where it is not.
        """
        if not isinstance(self.store, Bank):
            raise ValueError(f"{self.store.name} has no simulator")
        return self.store

    @property
    def reader(self) -> WindowReader:
        """The reader of the learner's observations."""
        return self.setting.reader(self.store, self.learner.config)

    @property
    def separate(self) -> bool:
        """Whether the learner keeps a persistent context apart from current features."""
        return getattr(self.learner.config, "context", "split") != "monolithic"

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


@dataclass(frozen=True)
class Measure:
    """What is measured of a trained source.

    Attributes:
        name: key of its results.
        run: a source → a JSON row; arrays by system are kept in `source.folder / source.cell.arrays`.
        needs: optional operations of a learner that it reads.
        asks: fields of a setting, and operations of its `cases`, that it reads.
        properties: that it compares.
        simulated: whether it asks the bank's simulator.
        readers: whether it fits any, at the cell's budget.
        trials: whether it acts, in as many episodes as the cell says.
        population: whether it is of the one held-out split that the cell names.
        windows: count, of a system, and horizons of cases that it draws besides the setting's own.
        seconds: of the measure without fits, one thread, on the machine of `costs.REFERENCE_RATE`.
        reader_fits, route_fits: fits of a reader's budget, and of a route's; `once`: whatever the number of readers.
    """

    name: str
    run: Callable[[Source], dict[str, Any]]
    needs: tuple[str, ...] = ()
    asks: tuple[str, ...] = ()
    properties: tuple[str, ...] = ()
    simulated: bool = False
    readers: bool = True
    trials: bool = False
    population: bool = False
    windows: tuple[int, tuple[int, ...]] | None = None
    seconds: float = 60.0
    reader_fits: float = 0.0
    route_fits: float = 0.0
    once: bool = False

    def __call__(self, source: Source) -> dict[str, Any]:
        """Take it."""
        return self.run(source)

    def lacking(self, source: Source) -> str | None:
        """Why it cannot be taken of a source; None if it can."""
        if self.simulated and not isinstance(source.store, Bank):
            return f"{self.name} needs a simulator, which {source.store.name} has not"
        if self.trials and source.cell.trials is None:
            return f"{self.name} acts, but the budget of {source.setting.name} has no trials"
        for name in self.needs:
            if not callable(getattr(source.learner, name, None)):
                return f"{self.name} needs the operation {name!r}, which {type(source.learner).__name__} lacks"
        setting = source.setting
        for asked in self.asks:
            if not reduce(lambda found, name: getattr(found, name, None), asked.split("."), setting):
                return f"{self.name} needs {asked!r} of the setting, which {setting.name} has not"
        for name in self.properties:
            if name not in setting.properties:
                return f"{self.name} compares {name!r}, which is no property of {setting.name}"
        return None


@dataclass(frozen=True)
class SourceCell:
    """One source and one measure of it.

    Attributes:
        setting, recipe: what is learned from, and how.
        learner, train: sizes and budget; the recipe decides the learner's context.
        bank, fingerprint: folder and identity of the store.
        measure: its row is the cell's result; None trains only.
        readers, trials, population: of measures that fit, act, or are of one split.
        teacher: the source that this one needs, trained first if it is not: whose codes define the donors of a
            history-inferred relation, or whose training an `Endpoint` is of.
    """

    setting: Setting
    recipe: Recipe
    learner: Any
    train: Any
    bank: str
    fingerprint: str
    measure: Measure | None = None
    readers: ReaderBudget = ReaderBudget()
    trials: Trials | None = None
    population: str = "test"
    teacher: "SourceCell | None" = None

    @property
    def title(self) -> str:
        """Setting, recipe and seed."""
        return f"{self.setting.name}-{self.recipe.name}-seed{self.train.seed}"

    @property
    def steps(self) -> int:
        """Updates of the source, in all its stages."""
        return self.setting.updates(self.recipe, self.train)

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
        if (measure := self.measure) is None:
            return "trained"
        parts, readers, trials = [measure.name], self.readers, self.trials
        if measure.readers:
            parts.append(f"{readers.count}x{readers.updates}-{readers.route_updates}")
        if measure.trials and trials is not None:
            parts.append(trials.stem)
        return "-".join([*parts, self.population] if measure.population else parts)

    def identity(self) -> dict[str, Any]:
        """Everything that the weights depend on."""
        setting, usual = self.setting, {field.name for field in fields(Setting)}
        own = {f.name: _described(getattr(setting, f.name)) for f in fields(setting) if f.repr and f.name not in usual}
        linked = {"anchors": setting.anchors} if self.recipe.kernel == LINKED else {}  # where its donors are inferred
        return (
            ({"own": own} if own else {})
            | linked
            | {
                "setting": [setting.name, setting.properties, setting.history, setting.kind, setting.still],
                "columns": [setting.observation, setting.action],
                "recipe": repr(self.recipe),
                "learner": [learner_of(self.learner)[0], asdict(self.learner)],
                "train": setting.law(self.train),
                "bank": self.fingerprint,
                "teacher": None if self.teacher is None else self.teacher.identity(),
                "code": source_code(setting, self.recipe, type(self.learner), type(self.train)),
            }
        )

    def measurement(self) -> dict[str, Any]:
        """What the row depends on besides the weights."""
        if self.measure is None:
            return {}
        readers = asdict(self.readers) if self.measure.readers else None
        code = cell_code(self.measure.run, Setting.episodes, Setting.reader, Setting.starts)
        setting = {f.name: _described(getattr(self.setting, f.name)) for f in fields(self.setting) if f.repr}
        told = {"code": code, "setting": setting, "readers": readers}
        # Plain trials are in the row's name.
        planned = self.measure.trials and type(self.trials) not in (Trials, type(None))
        return told | ({"trials": repr(self.trials)} if planned else {})

    def run(self, folder: Path, report: Report) -> dict[str, Any]:
        """Train unless that is done, then measure; a measure that cannot be taken leaves the reason in `unmeasured`."""
        source = train_source(self, folder, report)
        row = {
            "world": self.setting.name,
            "arm": self.recipe.name,
            "label": self.recipe.label,
            "seed": self.train.seed,
            "steps": self.train.steps,
            "train_seconds": self.setting.seconds(folder, self.train),
            "parameters": sum(p.numel() for p in source.learner.parameters()),
        }
        measure = self.measure
        if measure is None:
            return row
        if (reason := measure.lacking(source)) is not None:
            return row | {"unmeasured": {measure.name: reason}}
        return row | first(lambda: measure.run(source))


def source_code(setting: Setting, arm: Recipe, config: type[Any], train: type[Any] = TrainConfig) -> dict[str, str]:
    """Digests of the code that the weights of a recipe's sources depend on."""
    schedule = (train,) if isinstance(arm, Compared) and train is not TrainConfig else ()
    cls = next(cls for cls, own in LEARNERS.values() if own is config)
    graphs = (inferred_graph, random_graph) if arm.kernel == LINKED else ()
    return cell_code(cls, *setting.code(), type(arm), type(arm.relation), type(arm.kernel), *graphs, *schedule)


def _described(value: Any) -> Any:
    """Text; of a function, whose text is another in every process, the code, and of what is called both."""
    if not callable(value):
        return repr(value)
    return [repr(value), cell_code(type(value))] if is_dataclass(value) else code_of(value)


def train_source(cell: SourceCell, folder: Path, report: Report) -> Source:
    """The trained source of a cell, from its folder if it is there."""
    setting, arm, store = cell.setting, cell.recipe, open_store(cell.bank)
    if not (folder / "model").exists():
        if isinstance(arm, Endpoint):
            learner = endpoint(cell, folder, report)
        else:
            config = setting.learner_config(cell.learner, arm)
            if arm.kernel == LINKED:
                arm = linked(arm, setting, store, cell.train.seed, cell.teacher, folder.parent, report)
            learner = setting.train(
                store, arm, config, cell.train, folder, identity={"source": cell.identity()}, progress=report
            )
        learner.cpu()  # windows are read, and codes measured, on the CPU
        first(lambda: save(learner, folder / "model"))
    return Source(cell, setting, store, load(folder / "model"), folder)


def linked(
    arm: Recipe, setting: Setting, store: Store, seed: int, teacher: SourceCell | None, root: Path, report: Report
) -> Recipe:
    """A recipe of donors linked by a graph, with its graph in place: of the teacher's codes, or random.

    Args:
        seed: of the random graph.
        teacher: trained first if it is not.
        root: the folder of all cells.

    Raises:
        ValueError: for a recipe of inferred donors without a teacher.
    """
    if arm.name == "random-history":
        return replace(arm, kernel=random_graph(setting.episodes(store, "train"), seed=seed))
    if teacher is None:
        raise ValueError(f"the recipe {arm.name!r} needs a teacher, a trained source whose codes are compared")
    source = _trained_first(teacher, root, report)
    return replace(arm, kernel=inferred_graph(source.setting, source.store, source.learner))


def endpoint(cell: SourceCell, folder: Path, report: Report) -> nn.Module:
    """The learner that the training of a cell's teacher has kept at the cell's steps; its metrics until then are kept.

    Raises:
        ValueError: for a cell without a teacher.
    """
    if cell.teacher is None:
        raise ValueError(f"the recipe {cell.recipe.name!r} needs a teacher, the source whose endpoint it is")
    whole, steps = _trained_first(cell.teacher, folder.parent, report).folder, cell.train.steps
    rows = [json.dumps(row) + "\n" for row in read_rows(whole / "metrics.jsonl") if row["step"] <= steps]
    first(lambda: write_whole(folder / "metrics.jsonl", "".join(rows).encode()))
    return load(endpoint_folder(whole, steps))


def _trained_first(teacher: SourceCell, root: Path, report: Report) -> Source:
    shared = folder_of(teacher, root)
    shared.mkdir(parents=True, exist_ok=True)
    with locked(shared / ".lock"):  # it may be an arm of its own, which another worker is training
        return train_source(teacher, shared, report)
