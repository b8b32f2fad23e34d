"""What a setting is: everything that is so of one kind of experience, whatever is learned of it (`app:data-splits`)."""

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from sprii_envs.arguments import check, flag, instance, integer, integers, number
from sprii_envs.banks import Bank, BankProtocol, Store, StoreError, build, open_store
from sprii_envs.properties import unknown_name
from sprii_envs.relations import EpisodeTable
from sprii_train.analysis.formation import Factor
from sprii_train.analysis.gradients import GradientDiagnostic
from sprii_train.analysis.value import ReaderConfig, RouteConfig
from sprii_train.control.controllers import Config
from sprii_train.data import PairedWindows, WindowReader
from sprii_train.fit import ENGINE, TrainConfig, fit, resolve_precision, what_matters
from sprii_train.identity import digest
from sprii_train.learners import learner_of
from sprii_train.protocol import MissingOperation, check_learner, check_objective
from sprii_train.recipes import LINKED, RECIPES, Compared, Endpoint, Recipe, Spaced
from sprii_train.records import Report, training_seconds

PRESET_NAMES = ("smoke", "quick", "states", "paper")

MEASURED_SEED = 20_260_903
"""Of the training systems that measurements are standardised by and fitted on, as in the paper's atlas."""


SHORT = 50
"""Observations of the gradients in a run too short to have as many at one every 100 updates."""


@dataclass(frozen=True)
class Trials:
    """Episodes that an evaluation acts in.

    Attributes:
        episodes, repeats: of each group or partner.
        controllers: that a model is evaluated with, on the same episodes, one of each kind; statements are judged under
            the first. Of learners that do not plan, none.
        seconds: of one evaluation, one thread, on the machine of `costs.REFERENCE_RATE`.
    """

    episodes: int
    repeats: int = 1
    seconds: float = 0.0
    controllers: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        check(self, integer, "episodes", "repeats", least=1)
        check(self, number, "seconds", least=0)
        check(self, instance, "controllers", of=tuple)
        if len({type(each) for each in self.controllers}) < len(self.controllers):
            raise ValueError(f"Trials.controllers is {self.controllers!r}; legal: one of each kind")

    @property
    def stem(self) -> str:
        """Of the files of their results."""
        planned = f"-{digest(repr(self.controllers))[:8]}" if self.controllers else ""
        return f"{self.episodes}x{self.repeats}{planned}"


@dataclass(frozen=True)
class PlannedTrials(Trials):
    """Episodes under several planners, which have names and may be of one kind.

    Attributes:
        planners: name → controller, in the order of the tables.
        histories: of training, which a fit's Gaussian and errors are of.
    """

    planners: tuple[tuple[str, Config], ...] = ()
    histories: int = 2_000


def training(name: str, value: Any) -> Any:
    """A budget's `train`: what every loop asks for; ValueError otherwise."""
    if lacking := [each for each in ("steps", "seed", "device") if not hasattr(value, each)]:
        raise ValueError(f"{name} is {value!r}, which has no {lacking[0]}; legal: a TrainConfig")
    return value


@dataclass(frozen=True)
class Other:
    """A learner beside a budget's own, and what it may cost; see `recipes.Compared`.

    Attributes:
        learner, train, step_seconds: as of a `Budget`.
    """

    learner: Any
    train: Any
    step_seconds: float | None = None

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        check(self, training, "train")
        check(self, number, "step_seconds", least=0, optional=True)


@dataclass(frozen=True)
class Budget:
    """What a source of one setting may cost.

    Attributes:
        learner: a config of any registered learner.
        train: a `TrainConfig`, or what a setting with a loop of its own takes: a dataclass with steps, seed and device.
        sources: seeds.
        readers: seeds of the readers fitted on each source.
        reader_steps: their updates; None are the paper's.
        note: how this differs from the paper.
        judged: whether its numbers are a test of the paper's statements.
        route_steps: of residual routes and their bases; None are the paper's.
        step_seconds: of an update, one thread, on the machine of `costs.REFERENCE_RATE`; None is not measured.
        store: in place of the setting's, where a budget has other experience.
        trials: of learners that act.
        others: name → another learner that recipes may ask for, with updates of its own.
        shared_seconds: of what a seed's sources share and train first, likewise.
    """

    learner: Any
    train: Any
    sources: tuple[int, ...]
    readers: int
    reader_steps: int | None
    note: str
    judged: bool = True
    route_steps: int | None = None
    step_seconds: float | None = None
    store: Callable[[Path], Store] | None = None
    trials: Trials | None = None
    others: Mapping[str, Other] = field(default_factory=dict)
    shared_seconds: float = 0.0

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        check(self, number, "shared_seconds", least=0)
        check(self, instance, "trials", of=Trials, optional=True)
        check(self, training, "train")
        check(self, integers, "sources", some=True)
        check(self, integer, "readers", least=1)
        check(self, integer, "reader_steps", "route_steps", least=1, optional=True)
        check(self, flag, "judged")
        check(self, number, "step_seconds", least=0, optional=True)

    def of(self, recipe: Recipe) -> "Budget":
        """The budget of a recipe's sources: this one, or with the other learner that the recipe asks for.

        Raises:
            ValueError: for a learner that the budget does not have, or an endpoint that its training does not keep.
        """
        if not isinstance(recipe, Compared):
            return self
        if recipe.learner not in self.others:
            legal = ", ".join(self.others) or "none, since its `others` are empty"
            raise ValueError(
                f"the arm {recipe.name!r} asks for the learner {recipe.learner!r}, which the budget's others lack; "
                f"legal: {legal}"
            )
        other = self.others[recipe.learner]
        train = other.train
        if isinstance(recipe, Endpoint):
            if recipe.share not in train.endpoints:
                raise ValueError(f"the arm {recipe.name!r} has the share {recipe.share}; legal: {train.endpoints}")
            train = replace(train, steps=train.after(recipe.share), endpoints=())
        return replace(self, learner=other.learner, train=train, step_seconds=other.step_seconds)

    def trained(self, **changed: Any) -> "Budget":
        """With fields of `train` changed, its own and of all others."""
        others = {name: replace(other, train=replace(other.train, **changed)) for name, other in self.others.items()}
        return replace(self, train=replace(self.train, **changed), others=others)


@dataclass(frozen=True)
class Setting:
    """One kind of experience: where its episodes lie, what persists in them, how histories are read, what it may cost.

    Attributes:
        name: key on the command line.
        store: the folder of banks → the store, which is made where it is not there.
        properties: persistent properties, columns of the store's table.
        history: observations of a history.
        anchors: last observations of the histories that a measurement averages in an episode.
        budgets: preset → budget.
        factors: what probes read of the properties; by default each as it is.
        observation, action: columns, see `WindowReader`.
        kind: kind of episode that histories come from; None takes all.
        still: see `WindowReader`.
        sealed: of a second store, of the systems kept for a last evaluation.
        cases: a source → the `SourceCases` that task readers are fitted on, such as `QueryCases`; None are the presents
            and windows of `window_cases`.
        readout, routes: of the fresh readers and residual routes, whose updates a budget may set.
        case_horizons, case_count: of those, steps ahead and cases a system.
        donor_factors: what probes read of the codes of cases' donors; by default `factors`.
        components: name → coordinates of the state, equally many, that errors are told of.
        pushed: coordinates of the state, of what is pushed.
        evidence: (states, actions, groups, world) → features of numerical histories, such as `poke_evidence`.
        unsealed: whether reports measure sealed splits too, as the paper's do. Nothing is ever fitted there.
        claims: of the report `setting:NAME`, see `reports.claims.Claim`.
        arms: of that report, where its own loop takes other recipes than most.
    """

    name: str
    store: Callable[[Path], Store]
    properties: tuple[str, ...]
    history: int
    anchors: tuple[int, ...]
    budgets: Mapping[str, Budget] = field(default_factory=dict, repr=False)
    factors: tuple[Factor, ...] = ()
    observation: str | tuple[str, ...] = "states"
    action: str | None = "actions"
    kind: str | None = None
    still: bool = False
    sealed: Callable[[Path], Store] | None = None
    cases: Callable[[Any], Any] | None = None
    readout: ReaderConfig = field(default_factory=ReaderConfig)
    routes: RouteConfig = field(default_factory=RouteConfig)
    case_horizons: tuple[int, ...] = (1, 4, 16)
    case_count: int = 16
    donor_factors: tuple[Factor, ...] = ()
    components: Mapping[str, slice] = field(default_factory=dict)
    pushed: slice | None = None
    evidence: Callable[..., NDArray[np.float64]] | None = None
    unsealed: bool = False
    claims: tuple[Any, ...] = field(default=(), repr=False)
    arms: tuple[str, ...] = field(default=(), repr=False)

    tried: ClassVar[int] = 2
    """Pairs of the batch that `check_learner` tries."""

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        check(self, instance, "name", of=str)
        if isinstance(self.properties, str):  # its letters would be properties
            raise ValueError(
                f"Setting.properties is {self.properties!r}; legal: a tuple of columns, such as ({self.properties!r},)"
            )
        check(self, integer, "history", least=1)
        check(self, integers, "anchors", some=bool(self.properties))  # a measurement averages over one at least
        if not self.factors:
            object.__setattr__(self, "factors", tuple(Factor(name) for name in self.properties))
        if not self.donor_factors:
            object.__setattr__(self, "donor_factors", self.factors)

    def __hash__(self) -> int:
        """Of the name; budgets and protocols hold mappings."""
        return hash(self.name)

    def open_store(self, root: Path, budget: Budget | None = None) -> Store:
        """The store under `root/banks`, of a budget with its own, made if it is not there, its checksums verified.

        Raises:
            ValueError: for a store that workers could not open by its name.
        """
        made = self.store if budget is None or budget.store is None else budget.store
        store = made(root / "banks")
        if not isinstance(store, Store):
            raise ValueError(f"the store function of the setting {self.name!r} returned {store!r}; legal: a Store")
        store.verify(checksums=True)
        try:
            again = open_store(store.name).fingerprint == store.fingerprint
        except StoreError as error:
            raise ValueError(
                f"the setting {self.name!r} has the store {store.name!r}, which no worker can open: {error}; legal: "
                "the store of a folder, such as a Recording or MinariWindows.save makes"
            ) from error
        if not again:
            raise ValueError(f"the setting {self.name!r} has a store that is not the one in its folder {store.name!r}")
        return store

    def open_sealed(self, folder: Path) -> Bank:
        """The sealed bank in the folder of the main one, made if it is not there, its checksums verified.

        Raises:
            ValueError: for a setting that has none.
        """
        if self.sealed is None:
            raise ValueError(f"the setting {self.name!r} has no sealed bank")
        bank = self.sealed(folder)
        bank.verify(checksums=True)
        assert isinstance(bank, Bank)
        return bank

    def budget(self, preset: str) -> Budget:
        """The budget of a preset.

        Raises:
            ValueError: for an unknown preset, or one that the setting does not have.
        """
        if preset not in PRESET_NAMES and preset not in self.budgets:
            raise unknown_name("preset", preset, PRESET_NAMES)
        if preset not in self.budgets:
            legal = ", ".join(self.budgets) or "none"
            raise ValueError(f"the setting {self.name!r} has no preset {preset!r}; legal: {legal}")
        return self.budgets[preset]

    def of_source(self, budget: Budget, seed: int) -> "Setting":
        """The setting of a seed's sources: this one, unless they share something that a seed trains, such as a stem."""
        return self

    def episodes(self, store: Store, split: str, *, systems: int | None = None, unseal: bool = False) -> EpisodeTable:
        """Episodes of a split that histories come from; of all systems, or of a fixed random choice of them.

        Raises:
            ValueError: for a split that the store does not have, a sealed one, or `systems` below 1.
        """
        table = store.split(split, unseal=unseal)
        if self.kind is not None:
            table = table.select(table["kind"] == self.kind)
        if systems is not None:
            systems = integer("systems", systems, least=1)
            ids = np.random.default_rng(MEASURED_SEED).permutation(np.unique(table["system"]))
            table = table.select(np.isin(table["system"], ids[:systems]))
        return table

    def reader(self, store: Store, config: Any) -> WindowReader:
        """The reader of a learner's observations: frames of its `image` size, at its `horizons`."""
        if not hasattr(config, "horizons"):
            raise ValueError(
                f"{type(config).__name__} has no field 'horizons', the steps ahead that its learner predicts"
            )
        supervised = getattr(config, "context", None) == "supervised"
        labels = self.properties if supervised else getattr(config, "labels", ())
        return WindowReader(
            store, self.history, config.horizons, labels, getattr(config, "image", 0),
            observation=self.observation, action=self.action, still=self.still,
        )  # fmt: skip

    def data(self, store: Store, config: Any, recipe: Recipe, *, pairs: int, seed: int) -> Callable[[int], Any]:
        """Training batches of a recipe."""
        table = self.episodes(store, "train")
        relation, kernel = recipe.pairing(table)
        return PairedWindows(
            self.reader(store, config), table, relation=relation, kernel=kernel, pairs=pairs, seed=seed,
            apart=recipe.apart if isinstance(recipe, Spaced) else None,
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
        """The learner of a config, trained under a recipe; where Align and Cross meet, their gradients are kept.

        Args:
            config: of the learner, with the recipe's context.
            train: of a budget.
            folder: of checkpoints and records, see `fit`.
            identity: kept with the run.
        """
        data = self.data(store, config, recipe, pairs=train.pairs, seed=train.seed)
        torch.manual_seed(train.seed)
        learner = self.fresh(store, config)
        often = GradientDiagnostic(every=min(100, max(1, train.steps // SHORT)))
        compared = isinstance(getattr(learner, often.encoder, None), nn.Module)
        joint = compared and recipe.objective.lambda_p and recipe.objective.lambda_x
        fit(
            learner, data, recipe.objective, train, folder, identity=identity, progress=progress,
            diagnostics=[often] if joint else [],
        )  # fmt: skip
        return learner

    def fresh(self, store: Store, config: Any) -> nn.Module:
        """A learner with first weights, told how windows of training systems are distributed if it asks.

        It asks by an operation `fit_statistics(windows)`, which gets a window of each half of a pair of every system.
        """
        learner = learner_of(config)[1](config)
        if callable(fit_statistics := getattr(learner, "fit_statistics", None)):
            systems = len(np.unique(self.episodes(store, "train")["system"]))
            fit_statistics(self.data(store, config, RECIPES["structure"], pairs=systems, seed=MEASURED_SEED)(0))
        return learner

    def seconds(self, folder: Path, train: Any) -> float:
        """Seconds that the finished source in a folder has trained."""
        return training_seconds(folder, train.steps)

    def updates(self, recipe: Recipe, train: Any) -> int:
        """Updates that the weights of a recipe's source come from, in all stages; progress counts them."""
        return train.steps

    def check_learner(self, store: Store, recipe: Recipe, config: Any) -> None:
        """Try a learner's operations on a few windows of a recipe, before anything is trained; nothing is left behind.

        Raises:
            ValueError: naming the operation that it lacks, or what one returned, see `protocol.check_learner`.
        """
        if recipe.kernel == LINKED:  # whose donors a source defines that is trained first
            recipe = replace(recipe, kernel="uniform")
        config = self.learner_config(config, recipe)
        with torch.random.fork_rng(devices=[]):
            learner = self.fresh(store, config)
            windows = self.data(store, config, recipe, pairs=self.tried, seed=0)(0)
            try:
                check_objective(learner, recipe.objective)
                check_learner(cast(Any, learner), windows)
            except MissingOperation as error:
                raise ValueError(f"the setting {self.name!r}: {error}") from error
            except Exception as error:
                last = traceback.extract_tb(error.__traceback__)[-1]
                error.add_note(f"tried on the arm {recipe.name!r}, raised in {last.filename}, line {last.lineno}")
                raise

    def law(self, train: Any) -> dict[str, Any]:
        """What the weights depend on of a budget's `train`."""
        return what_matters(train)

    def code(self) -> tuple[Any, ...]:
        """Functions and classes that a source's weights depend on, besides its learner and recipe."""
        own = type(self)
        return (
            *ENGINE, PairedWindows, WindowReader,
            own.data, own.reader, own.episodes, own.learner_config, own.fresh, own.train,
        )  # fmt: skip

    def facts(self, budget: Budget) -> dict[str, str]:
        """What a report says of a budget: `Budget`, `Learner` and `Training`."""
        train, seeds = budget.train, ", ".join(map(str, budget.sources))
        return {
            "Budget": f"{train.steps:,} steps of {train.pairs} pairs; seeds of sources: {seeds}; readers of each: "
            f"{budget.readers}; {budget.note}",
            "Learner": listed(budget.learner),
            "Training": f"{listed(train, but=('seed',))} ({resolve_precision(train)})",
        }

    def check(self, store: Store, config: Any, *, cases: bool = False) -> None:
        """What can be said of a learner's windows before anything is trained, and of the `cases` of task readers.

        Raises:
            ValueError: naming a column or property that the store lacks, or an anchor or cases without room in its
                episodes.
        """
        self.reader(store, config)
        for name in self.properties:
            column = store.table[name]
            if column.dtype.kind not in "biuf" or not np.isfinite(column).all():
                wrong = column if column.dtype.kind not in "biuf" else column[~np.isfinite(column)]
                raise ValueError(
                    f"the setting {self.name!r} has the property {name!r}, which is {wrong[0].item()!r} in an episode "
                    f"of {store.name}; legal: columns of finite numbers"
                )
        shortest = min(int(self.episodes(store, split, unseal=True)["length"].min()) for split in store.splits)
        if self.history > shortest:
            raise ValueError(
                f"the setting {self.name!r} has a history of {self.history}; legal: at most {shortest}, the "
                f"observations of the shortest episode of {store.name}"
            )
        for anchor in self.anchors:
            if not self.history - 1 <= anchor < shortest:
                raise ValueError(
                    f"the setting {self.name!r} has the anchor {anchor}; legal: {self.history - 1} to {shortest - 1}, "
                    f"where a history of {self.history} ends and the shortest episode of {store.name} does"
                )
        if cases and self.cases is None:
            self.check_windows(store, config, self.case_count, self.case_horizons)

    def check_windows(
        self, store: Store, config: Any, count: int, horizons: Sequence[int], who: str | None = None
    ) -> None:
        """ValueError if so many cases of a system, so far ahead, cannot be windows of its episodes.

        Args:
            who: draws them; by default the setting.
        """
        who = who or f"the setting {self.name!r}"
        for split in ("train", "validation"):
            table = self.episodes(store, split)
            counts = np.unique(table["system"], return_counts=True)[1]
            if (counts != counts[0]).any() or count % counts[0]:
                raise ValueError(
                    f"{who} has case_count {count}; legal: a multiple of the episodes of a system, as many for all; "
                    f"those of {split} have {counts.min()} to {counts.max()}"
                )
            length, each, ahead = int(table["length"].min()), count // int(counts[0]), horizons[-1]
            if length - self.history - ahead + 1 < each or length < self.history + config.horizons[-1]:
                raise ValueError(
                    f"{who} has case_count {count} and case_horizons {tuple(horizons)}; an episode of {split} has "
                    f"{length} observations, no room for {each} histories of {self.history} with {ahead} steps after "
                    f"them, or for a donor's with {config.horizons[-1]}"
                )

    def learner_config(self, config: Any, recipe: Recipe) -> Any:
        """A learner's config with the context that a recipe asks for; ValueError if the learner does not have it."""
        return with_context(config, recipe, len(self.properties))

    def starts(self, anchor: int) -> int:
        """Where the history begins that ends at an anchor."""
        return anchor - self.history + 1


def with_context(config: Any, recipe: Recipe, labels: int) -> Any:
    """A learner's config with the context that a recipe asks for.

    Args:
        labels: numbers that a supervised context is told.

    Raises:
        ValueError: for a context that the learner does not have.
    """
    if not isinstance(getattr(config, "context", None), str):  # CaDM's is the size of its own
        if recipe.context != "split":
            raise ValueError(
                f"the arm {recipe.name!r} is of the context {recipe.context!r}, but {type(config).__name__} has no "
                "field 'context'; legal: arms of the split context"
            )
        return config
    if recipe.context == "supervised" and not hasattr(config, "label_dim"):
        raise ValueError(
            f"the arm {recipe.name!r} is of the context 'supervised', but {type(config).__name__} has no field "
            "'label_dim'; legal: arms of the split or monolithic context"
        )
    return replace(config, context=recipe.context, **({"label_dim": labels} if recipe.context == "supervised" else {}))


def listed(config: Any, *, but: tuple[str, ...] = ()) -> str:
    """`width 64, layers 2` of a dataclass."""
    return ", ".join(f"{name} {value}" for name, value in asdict(config).items() if name not in but)


@dataclass(frozen=True)
class Built:
    """The store of a protocol: a simulated bank, built into a folder of banks and found there."""

    protocol: BankProtocol

    def __call__(self, folder: Path) -> Bank:
        size = "-".join(str(n) for n in self.protocol.counts.values())
        rollouts = self.protocol.rollouts if isinstance(self.protocol.rollouts, int) else "kinds"
        version = f"-v{self.protocol.version}" if self.protocol.version > 1 else ""
        return build(self.protocol, folder / f"{self.protocol.name}{version}-{size}-r{rollouts}", wait=True)


SMOKE_TRAIN = TrainConfig(steps=20, pairs=12, warmup=5, checkpoint_every=10, log_every=5)
SMOKE_NOTE = "a check that everything runs; its numbers mean nothing"
SMOKE_ROUTES = 50
