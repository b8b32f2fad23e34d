"""A pairing law, audited: what donors a recipe's relation and kernel give, whatever was trained on it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sprii_envs.banks import Bank
from sprii_envs.relations import PairSampler
from sprii_train.experiments.grid import Report
from sprii_train.experiments.sources import SourceCell, linked, source_code
from sprii_train.experiments.worlds import WORLDS
from sprii_train.recipes import EVERY_RECIPE, LINKED, recipe


@dataclass(frozen=True)
class PairingCell:
    """The audit of one recipe's pairs on some splits of one world.

    Attributes:
        world, recipe: names in `worlds.WORLDS` and `recipes.EVERY_RECIPE`.
        splits: audited, each by itself; a graph is of training episodes.
        seed: of the sampler, as of a source.
        bank, fingerprint: folder and identity of the bank.
        teacher: the source whose codes define the donors of a history-inferred relation; trained first if it is not.
    """

    world: str
    recipe: str
    splits: tuple[str, ...]
    seed: int
    bank: str
    fingerprint: str
    teacher: SourceCell | None = None

    @property
    def title(self) -> str:
        """World, recipe and seed."""
        return f"{self.world}-{self.recipe}-pairs{self.seed}"

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
            "pairs": repr(recipe(self.recipe, EVERY_RECIPE)),
            "world": self.world,
            "splits": self.splits,
            "seed": self.seed,
            "bank": self.fingerprint,
            "teacher": None if self.teacher is None else self.teacher.identity(),
            "code": source_code(recipe(self.recipe, EVERY_RECIPE)),
        }

    def run(self, folder: Path, report: Report) -> dict[str, Any]:
        """`{"pairs": {split: Audit.to_dict()}}`, beside what names a source's row."""
        world, arm, bank = WORLDS[self.world], recipe(self.recipe, EVERY_RECIPE), Bank.open(self.bank)
        if arm.kernel == LINKED:
            arm = linked(arm, world, bank, self.seed, self.teacher, folder.parent, report)
        found = {}
        for split in self.splits:
            table = world.episodes(bank, split)
            sampler = PairSampler(table, *arm.pairing(table), seed=self.seed, distinct="system")
            found[split] = sampler.audit().to_dict()
        return {"world": self.world, "arm": self.recipe, "label": arm.label, "seed": self.seed, "pairs": found}
