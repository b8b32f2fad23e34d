"""A frozen stem as a cell: trained, its embeddings kept, and what they tell of the state; arms of its source follow."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sprii_envs.banks import open_store
from sprii_train.experiments.cells import Cell
from sprii_train.experiments.groups import Group, Scope
from sprii_train.experiments.measures.sight import sight_of
from sprii_train.identity import cell_code
from sprii_train.records import Report
from sprii_train.settings.frozen import FrozenSetting

ARM = "stem"
"""Of the rows of these cells."""


@dataclass(frozen=True)
class StemCell:
    """The stem of one source.

    Attributes:
        setting: of that source.
        learner: a config on embeddings.
        bank, fingerprint: folder and identity of the store.
    """

    setting: FrozenSetting
    learner: Any
    bank: str
    fingerprint: str

    @property
    def seed(self) -> int:
        """The source's seed."""
        assert self.setting.stem is not None
        return self.setting.stem.train.seed

    @property
    def title(self) -> str:
        """Setting and seed."""
        return f"{self.setting.name}-{ARM}-seed{self.seed}"

    @property
    def steps(self) -> int:
        """Updates of the stem."""
        assert self.setting.stem is not None
        return self.setting.stem.train.steps

    @property
    def result(self) -> str:
        """The file of the row."""
        return "sight.json"

    def identity(self) -> dict[str, Any]:
        """Everything that the embeddings depend on."""
        assert self.setting.stem is not None
        setting = [self.setting.name, self.setting.components, self.setting.anchors]
        return {
            "setting": repr(setting), "stem": self.setting.stem.law(), "seen": repr(self.setting.stem.seen),
            "bank": self.fingerprint, "code": cell_code(*self.setting.code()),
        }  # fmt: skip

    def measurement(self) -> dict[str, Any]:
        """The code of the probes."""
        return {"code": cell_code(sight_of)}

    def run(self, folder: Path, report: Report) -> dict[str, Any]:
        """`{"sight": …}` beside what names a row."""
        store = open_store(self.bank)
        self.setting.embeddings(store, report)
        reader = self.setting.reader(store, self.learner)
        found = sight_of(self.setting, store, lambda episodes, times: reader.presents(episodes, times).double().numpy())
        row = {"world": self.setting.name, "arm": ARM, "label": "Frozen stem", "seed": self.seed}
        return row | {"train_seconds": self.setting.stem_seconds(store), "sight": found}


@dataclass(frozen=True)
class FrozenGroup(Group):
    """Arms on frozen stems.

    Attributes:
        once: arms that are of the first source alone.
    """

    once: tuple[str, ...] = ()

    def cells(self, scope: Scope) -> list[Cell]:
        """The stems first, so that workers train them at once and none waits for another's."""
        stems: list[Cell] = []
        for seed in scope.budget.sources:
            setting = scope.setting.of_source(scope.budget, seed)
            assert isinstance(setting, FrozenSetting)
            stems.append(StemCell(setting, scope.budget.learner, scope.store.name, scope.store.fingerprint))
        first = scope.budget.sources[0]
        arms: list[Any] = super().cells(scope)
        return [*stems, *(cell for cell in arms if cell.train.seed == first or cell.recipe.name not in self.once)]
