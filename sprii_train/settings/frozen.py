"""Settings whose learners read a frozen stem: trained once a source, by no relation, and shared by all of its arms.

    stem        one a source, of a pretext task on training episodes (`learners.pretext`)
    embeddings  of every frame of the training and validation episodes, once, in half precision
    arms        the controlled JEPA's encoders and predictor on these, at the cost of numerical states

The paper trains its stems end to end, each arm its own. An arm whose learner has an `image` is trained so here: it
begins with the source's stem and moves it.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from sprii_envs.arguments import check, instance
from sprii_envs.banks import Bank, Store
from sprii_envs.files import lock
from sprii_train.checkpoints import CheckpointError, load, save
from sprii_train.data import WindowReader
from sprii_train.embeddings import EmbeddingReader, Embeddings
from sprii_train.fit import TrainConfig, fit, resolve_precision, what_matters
from sprii_train.identity import cell_code, digest
from sprii_train.learners.pretext import Pretext, PretextConfig
from sprii_train.protocol import Objective, Windows
from sprii_train.records import Report, training_seconds
from sprii_train.settings.base import Budget, Setting, listed

KIND = {"pretext": (Pretext, PretextConfig)}
EMBEDDED = ("train", "validation")
"""Splits whose embeddings are kept; those of others are made as they are read."""


@dataclass(frozen=True)
class Stem:
    """One source's stem.

    Attributes:
        config, train: its sizes and training, of the source's seed.
        seen: the folder of banks → the bank whose training episodes it is trained on; None is a setting's own.
    """

    config: PretextConfig
    train: TrainConfig
    seen: Callable[[Path], Store] | None = None

    def law(self) -> dict[str, Any]:
        """What its weights depend on, but the bank's contents."""
        return {"pretext": asdict(self.config), "train": what_matters(self.train), "code": cell_code(Pretext, trained)}


@dataclass(frozen=True)
class FrozenBudget(Budget):
    """A budget with that of the stem.

    Attributes:
        pretext, pretext_train, seen: of each source, see `Stem`.
    """

    pretext: PretextConfig = field(default_factory=PretextConfig)
    pretext_train: TrainConfig = field(default_factory=TrainConfig)
    seen: Callable[[Path], Store] | None = None

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        super().__post_init__()
        check(self, instance, "pretext", of=PretextConfig)
        check(self, instance, "pretext_train", of=TrainConfig)

    def trained(self, **changed: Any) -> "FrozenBudget":
        """See `Budget`; the stem is of the same device, whatever else is changed."""
        found = super().trained(**changed)
        assert isinstance(found, FrozenBudget)
        device = {name: value for name, value in changed.items() if name == "device"}
        return replace(found, pretext_train=replace(found.pretext_train, **device))


@dataclass(frozen=True)
class FrozenSetting(Setting):
    """A setting of frames that are seen through a frozen stem.

    Attributes:
        stem: of one source; without it, for what is checked beforehand, a stem that is not trained.
    """

    stem: Stem | None = None

    __hash__ = Setting.__hash__

    def of_source(self, budget: Budget, seed: int) -> "FrozenSetting":
        """See `Setting`."""
        if not isinstance(budget, FrozenBudget):
            raise ValueError(f"the setting {self.name!r} has the budget {budget!r}; legal: a FrozenBudget")
        return replace(self, stem=Stem(budget.pretext, replace(budget.pretext_train, seed=seed), budget.seen))

    def reader(self, store: Store, config: Any) -> WindowReader:
        """Of embeddings, or of frames for a learner that has a stem of its own."""
        if getattr(config, "image", 0):
            return super().reader(store, config)
        labels = self.properties if config.context == "supervised" else ()
        if self.stem is None:
            fresh = Pretext(PretextConfig(embedding=config.observation_dim, history=self.history))
            return EmbeddingReader(_bank(store), self.history, config.horizons, labels, stem=lambda: fresh)
        found = self.embeddings(store)
        return EmbeddingReader(
            _bank(store), self.history, config.horizons, labels,
            stem=lambda: _loaded(self.stem_folder(store)), embeddings=_opened(found),
            precision=resolve_precision(self._stem.train),
        )  # fmt: skip

    def fresh(self, store: Store, config: Any) -> nn.Module:
        """A learner with first weights; one of frames has those of the source's stem."""
        learner = super().fresh(store, config)
        if self.stem is not None and getattr(config, "image", 0):
            begin(learner, self.stem_of(store))
        return learner

    @property
    def _stem(self) -> Stem:
        if self.stem is None:
            raise ValueError(f"the setting {self.name!r} has no source yet, whose stem is asked for")
        return self.stem

    def stem_folder(self, store: Store) -> Path:
        """Where the stem is, beside the banks."""
        stem, root = self._stem, Path(store.name).parent
        seen = store.fingerprint if stem.seen is None else repr(stem.seen)
        told = repr([stem.law(), seen])
        return root / "stems" / f"seed{stem.train.seed}-{stem.config.image}px-{digest(told)[:10]}"

    def stem_of(self, store: Store, report: Report = lambda step, values: None) -> Pretext:
        """The source's stem, trained if it is not: of whichever process comes first, the others wait."""
        folder, stem = self.stem_folder(store), self._stem
        with lock(folder.with_name(f"{folder.name}.lock"), error=CheckpointError):
            if not (folder / "model").exists():
                seen = store if stem.seen is None else stem.seen(Path(store.name).parent)
                save(trained(stem, _bank(seen), folder, report), folder / "model", also=KIND)
        return _loaded(folder)

    def embeddings(self, store: Store, report: Report = lambda step, values: None) -> Path:
        """The folder of the embeddings of a store's episodes by the source's stem, made if it is not there."""
        bank, precision = _bank(store), resolve_precision(self._stem.train)
        told = [bank.fingerprint, self._stem.config.image, precision, EMBEDDED, cell_code(Embeddings)]
        folder = self.stem_folder(store) / f"embeddings-{digest(repr(told))[:10]}"
        if not folder.exists():
            stem = self.stem_of(store, report)
            with lock(folder.with_name(f"{folder.name}.lock"), error=CheckpointError):
                if not folder.exists():
                    identity = {"bank": bank.fingerprint, "image": stem.config.image, "precision": precision}
                    splits = [split for split in EMBEDDED if split in bank.splits]
                    Embeddings.write(folder, stem, bank, splits, precision, identity)
        return folder

    def stem_seconds(self, store: Store) -> float:
        """Seconds that the source's stem, which is there, has trained."""
        return training_seconds(self.stem_folder(store), self._stem.train.steps)

    def law(self, train: Any) -> dict[str, Any]:
        """The stem's too, with the bank that it has seen where that is another."""
        found = super().law(train)
        return found if self.stem is None else found | {"stem": self.stem.law(), "seen": repr(self.stem.seen)}

    def code(self) -> tuple[Any, ...]:
        """The stem's too."""
        own = type(self)
        return (*super().code(), EmbeddingReader, Embeddings, Pretext, trained, begin, own.embeddings, own.stem_of)

    def facts(self, budget: Budget) -> dict[str, str]:
        """What is frozen besides."""
        assert isinstance(budget, FrozenBudget)
        train = budget.pretext_train
        told = f"{listed(budget.pretext)}; {listed(train, but=('seed', 'device'))} ({resolve_precision(train)})"
        frozen = f"the stem, trained once a source without any relation and shared by its arms: {told}"
        return super().facts(budget) | {"Frozen": frozen}


class SingleWindows:
    """Windows of single training episodes, drawn alike: nothing says which of them share a system.

    Args:
        reader: of frames.
        pairs: half of the windows in a batch.
    """

    def __init__(self, reader: WindowReader, pairs: int, seed: int) -> None:
        self.reader, self.count, self.seed = reader, 2 * pairs, seed
        self.table = reader.bank.split("train")
        self.starts = int(self.table["length"].min()) - reader.history + 1
        if self.starts < 1:
            raise ValueError(f"the pretext's history is {reader.history}; legal: at most an episode's length")

    def identity(self) -> dict[str, Any]:
        """What the windows depend on."""
        return {"bank": self.reader.bank.fingerprint, "windows": self.count, "seed": self.seed,
                "history": self.reader.history, "image": self.reader.image}  # fmt: skip

    def __call__(self, step: int) -> Windows:
        """The windows of a step, a pure function of it."""
        rng = np.random.default_rng((self.seed, step))
        episodes = rng.choice(self.table["episode"], self.count)
        return self.reader.histories(episodes, rng.integers(0, self.starts, self.count))


def trained(stem: Stem, bank: Bank, folder: Path, report: Report) -> Pretext:
    """The stem, trained on a bank's training episodes; resumes in its folder."""
    config, train = stem.config, stem.train
    reader = WindowReader(bank, config.history, (1,), image=config.image)
    torch.manual_seed(train.seed)
    learner = Pretext(config)
    fit(learner, SingleWindows(reader, train.pairs, train.seed), Objective(), train, folder, progress=report)
    return learner.cpu().eval()


def begin(learner: Any, stem: Pretext) -> None:
    """Give a JEPA of frames the weights and statistics of a stem.

    Raises:
        ValueError: for a JEPA whose stem is of other sizes.
    """
    try:
        for name in ("observed", "encoder", "encoder_norm"):
            getattr(learner, name).load_state_dict(getattr(stem, name).state_dict())
    except (AttributeError, RuntimeError) as error:
        raise ValueError(f"{type(learner).__name__} cannot begin with the stem {stem.config}: {error}") from error


@cache
def _loaded(folder: Path) -> Pretext:
    found = load(folder / "model", also=KIND)
    assert isinstance(found, Pretext)
    return found


@cache
def _opened(folder: Path) -> Embeddings:
    return Embeddings(folder)


def _bank(store: Store) -> Bank:
    if not isinstance(store, Bank):
        raise ValueError(f"{store.name} draws no frames, of which embeddings are")
    return store
