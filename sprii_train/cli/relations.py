"""`sprii relations`: relations between episodes, and donor kernels."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import FlagCreatePairsOff, Positional, subcommand

from sprii_train.cli.options import check_file


@dataclass
class AuditRelation:
    """Say what a relation allows on a bank, and what a donor kernel draws."""

    bank: Positional[Path]
    """Folder of the bank."""
    relation: str
    """A name of `sprii relations list`: G1, G2, G3, same-system, same-rollout or label:COLUMN."""
    split: str = "train"
    """The episodes that pairs come from."""
    kernel: str | None = None
    """uniform (by default), candidates, derangement, derangement:COLUMN or mismatch:FACTOR."""
    alpha: float | None = None
    """Share of correct pairs; the others are drawn by the kernel, derangement (by default) or mismatch:FACTOR."""
    law: Literal["recipient", "pair", "balanced"] = "recipient"
    """Pair law; the batches of recipient come from distinct systems."""
    seed: int = 0
    """Seed of the candidate lists and of the pairs drawn."""
    other_system: Annotated[bool, FlagCreatePairsOff] = False
    """With label:COLUMN: donors of other systems only."""
    unseal: Annotated[bool, FlagCreatePairsOff] = False
    """Open a sealed split."""
    json: Path | None = None
    """Also write the numbers to this file."""

    def run(self) -> None:
        """Print the audit; recipients without a legal donor lower the coverage."""
        from sprii_envs.banks import Bank
        from sprii_envs.files import write_json
        from sprii_envs.relations import PairSampler, named_kernel, named_relation

        check_file("--json", self.json)
        bank = Bank.open(self.bank)
        if self.split in bank.protocol.sealed_splits and not self.unseal:
            raise ValueError(f"{self.bank}: the split {self.split!r} is sealed; --unseal opens it")
        table = bank.split(self.split, unseal=self.unseal)
        relation = named_relation(self.relation, table, other_system=self.other_system)
        name = self.kernel or ("uniform" if self.alpha is None else "derangement")
        kernel = named_kernel(name, table, relation, alpha=self.alpha, seed=self.seed)
        distinct = "system" if self.law == "recipient" else None
        sampler = PairSampler(table, relation, kernel, self.seed, self.law, distinct, "drop")
        audit = sampler.audit()
        print(audit)
        if self.json is not None:
            write_json(self.json, audit.to_dict())


@dataclass
class ListRelations:
    """Say which relations and donor kernels have a name."""

    def run(self) -> None:
        """Print both."""
        from sprii_envs.relations import NAMED_KERNELS, NAMED_RELATIONS

        relations = {"relation": "what a donor is", **NAMED_RELATIONS}
        for name, says in {**relations, "kernel": "which donor is drawn", **NAMED_KERNELS}.items():
            print(f"{name:<20}{says}")


@dataclass
class RelationsCommand:
    """List relations, or audit one on a bank."""

    command: Annotated[AuditRelation, subcommand("audit")] | Annotated[ListRelations, subcommand("list")]

    def run(self) -> None:
        """Run the chosen one."""
        self.command.run()
