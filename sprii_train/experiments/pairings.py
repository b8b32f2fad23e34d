"""A pairing law, audited: what donors a recipe's relation and kernel give, whatever was trained on it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sprii_envs.banks import open_store
from sprii_envs.relations import PairSampler
from sprii_train.experiments.sources import SourceCell, linked
from sprii_train.identity import code_of
from sprii_train.recipes import LINKED, Recipe
from sprii_train.records import Report
from sprii_train.settings.base import Setting


@dataclass(frozen=True)
class PairingCell:
    """The audit of one recipe's pairs on some splits of one setting.

    Attributes:
        setting, recipe: whose episodes are paired, and how.
        splits: audited, each by itself; a graph is of training episodes.
        seed: of the sampler, as of a source.
        bank, fingerprint: folder and identity of the store.
        teacher: the source whose codes define the donors of a history-inferred relation; trained first if it is not.
    """

    setting: Setting
    recipe: Recipe
    splits: tuple[str, ...]
    seed: int
    bank: str
    fingerprint: str
    teacher: SourceCell | None = None

    @property
    def title(self) -> str:
        """Setting, recipe and seed."""
        return f"{self.setting.name}-{self.recipe.name}-pairs{self.seed}"

    @property
    def steps(self) -> int:
        """Updates, of the teacher where there is one."""
        return self.teacher.steps if self.teacher else 0

    @property
    def result(self) -> str:
        """The file of the audits."""
        return "pairs.json"

    def identity(self) -> dict[str, Any]:
        """Everything that the pairs depend on."""
        return {
            "pairs": repr(self.recipe),
            "setting": [self.setting.name, self.setting.kind],
            "splits": self.splits,
            "seed": self.seed,
            "bank": self.fingerprint,
            "teacher": None if self.teacher is None else self.teacher.identity(),
            "code": code_of(PairSampler, type(self.recipe), Setting.episodes),
        }

    def run(self, folder: Path, report: Report) -> dict[str, Any]:
        """`{"pairs": {split: Audit.to_dict()}}`, beside what names a source's row."""
        setting, arm, store = self.setting, self.recipe, open_store(self.bank)
        if arm.kernel == LINKED:
            arm = linked(arm, setting, store, self.seed, self.teacher, folder.parent, report)
        found = {}
        for split in self.splits:
            table = setting.episodes(store, split)
            sampler = PairSampler(table, *arm.pairing(table), seed=self.seed, distinct="system")
            found[split] = sampler.audit().to_dict()
        return {"world": setting.name, "arm": arm.name, "label": arm.label, "seed": self.seed, "pairs": found}
