"""Pairs of episodes: Π_G(A, B) = P(B)·Q_G(A | B) (`eq:pairing-kernel`), a pure function of (seed, step)."""

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from sprii_envs.arguments import WORD, choice, integer
from sprii_envs.relations.audit import Audit, audit
from sprii_envs.relations.balance import balance
from sprii_envs.relations.index import build_index
from sprii_envs.relations.kernels import Kernel, Uniform
from sprii_envs.relations.recipients import Law, Recipients, distinct, weighted
from sprii_envs.relations.relation import NoLegalDonorError, Relation, check_relation
from sprii_envs.relations.rows import rows_of
from sprii_envs.relations.streams import PAIRS, stream
from sprii_envs.relations.table import EpisodeTable, Rows, few


class PairBatch(NamedTuple):
    """Row numbers of the sampler's table, which they know (`TableRows`): stores read the episodes that they stand for,
    `recipient.episodes` are their ids, and `WindowSampler` refuses those of another table."""

    recipient: Rows  # (n,) int64
    donor: Rows  # (n,) int64
    correct: NDArray[np.bool_]  # (n,) whether the pair satisfies the relation

    @property
    def table(self) -> str | None:
        """The `rows_fingerprint` of their table; None for a batch made by hand."""
        known = getattr(self.recipient, "table", None)
        return None if known is None else known.rows_fingerprint()


class PairSampler:
    """Draws (recipient, donor) pairs of a table under a relation, a kernel and a pair law.

    Args:
        table: of one split (a table with several is refused: `table.select("train")`)
        relation: which donors are legal
        kernel: which legal donor is drawn
        seed: in [0, 2^64)
        law: `"recipient"`: recipients uniform, donors uniform among a recipient's legal ones; donors in small
            excluded blocks are then drawn more often. `"pair"`: recipients weigh as many as their legal donors; with
            Uniform() that is uniform over legal pairs, and donor and recipient marginals are equal. `"balanced"`:
            recipients and donors both uniform, by donors in unequal proportion; a ValueError names the group and the
            block that are in the way where that is impossible. The three agree when all recipients have equally many
            legal donors in blocks of equal size. `audit()` reports the marginals.
        distinct: a column (the paper's batch: `"system"`): the n recipients come from n different groups,
            uniformly chosen, and uniformly within each. Not with `law="pair"`, which weighs recipients itself.
        on_missing: `"error"` raises NoLegalDonorError if a recipient has no legal donor, `"drop"` leaves it out.

    The recipients of a step depend on (seed, step, n), on `law` and `distinct`, and on which rows have a
    legal donor, but not on the kernel. Arms with equal seeds and equally eligible rows see the same
    recipients: SAME_SYSTEM, its Derangement control and, where every system has two episodes, SAME_ROLLOUT.
    """

    def __init__(
        self,
        table: EpisodeTable,
        relation: Relation,
        kernel: Kernel | None = None,
        seed: int = 0,
        law: Law = "recipient",
        distinct: str | None = None,
        on_missing: Literal["error", "drop"] = "error",
    ) -> None:
        if not isinstance(table, EpisodeTable):
            raise TypeError(f"table must be an EpisodeTable, got {type(table).__name__}")
        check_relation(relation)
        if kernel is not None and (isinstance(kernel, type) or not hasattr(kernel, "bind")):
            raise TypeError(f"kernel must be Uniform(), Derangement(by=...) or another Kernel object, got {kernel!r}")
        self.table, self.relation = table, relation
        self.kernel: Kernel = Uniform() if kernel is None else kernel
        self.seed, self.step = integer("seed", seed, most=WORD), 0
        self.law: Law = law
        self.distinct = None if distinct is None else str(distinct)
        choice("law", law, legal=get_args(Law))
        if law == "balanced" and not isinstance(self.kernel, Uniform):
            raise ValueError(f"law='balanced' decides itself which donor is drawn: it takes Uniform(), not {kernel!r}")
        choice("on_missing", on_missing, legal=("error", "drop"))
        if distinct is not None and law == "pair":
            raise ValueError(
                "law='pair' weighs recipients by their legal donors, distinct takes one a group: choose one"
            )
        if "split" in table and table.codes("split")[1] > 1:
            splits = np.unique(table["split"])
            raise ValueError(f"the table mixes the splits {few(splits)}; pass one: table.select({str(splits[0])!r})")
        index = build_index(table, relation)
        if law == "balanced":
            index = balance(table, relation, index)
        self.bound = self.kernel.bind(table, relation, index)
        pairs = f"the relation '{relation}'" + ("" if isinstance(self.kernel, Uniform) else f" with {kernel!r}")
        self.recipients = _recipients(table, pairs, self.bound.legal, law, distinct, on_missing)
        self._fingerprint: str | None = None

    def batch(self, step: int, n: int) -> PairBatch:
        """The n pairs of a step: a pure function of (seed, step, n). A rank takes its slice of one batch."""
        n = integer("n", n, least=1, most=2**40)
        rng = stream(self.seed, integer("step", step, most=WORD), PAIRS)
        recipient = self.recipients.draw(rng, n)
        donor, correct = self.bound.draw(rng, step, recipient)
        return PairBatch(rows_of(recipient, self.table), rows_of(donor, self.table), correct)

    def sample(self, n: int) -> PairBatch:
        """`batch(self.step, n)`, then one step on."""
        batch = self.batch(self.step, n)
        self.step += 1
        return batch

    def fingerprint(self) -> str:
        """SHA-256 (hex) of what fixes the law: the columns used, relation, kernel, law, distinct."""
        if self._fingerprint is None:
            parts = (
                self.table.fingerprint(self._used()),
                self.relation.shared,
                self.relation.differ,
                self.relation.same_episode,
                self.kernel,
                self.law,
                self.distinct,
            )
            self._fingerprint = hashlib.sha256(repr(parts).encode()).hexdigest()
        return self._fingerprint

    def _used(self) -> list[str]:
        return [*self.relation.columns, *self.kernel.columns, *([self.distinct] if self.distinct else [])]

    def _parts(self) -> dict[str, Any]:
        """What fixes the law, in words: a saved state says by this what differs."""
        return {
            "episodes": len(self.table),
            "relation": str(dataclasses.replace(self.relation, name=None)),
            "kernel": repr(self.kernel),
            "law": self.law,
            "distinct": self.distinct,
        }

    def state_dict(self) -> dict[str, Any]:
        """Seed, step and fingerprint: enough to draw what the uninterrupted run would have drawn.

        `parts` says in words what the fingerprint is of; it is for messages only.
        """
        return {"seed": self.seed, "step": self.step, "fingerprint": self.fingerprint(), "parts": self._parts()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue at a saved seed and step; ValueError for another table, relation, kernel or law."""
        if not isinstance(state, Mapping):
            raise ValueError(f"the sampler state must be what state_dict() gave, got {state!r}")
        missing = [key for key in ("seed", "step", "fingerprint") if key not in state]
        if missing:
            raise ValueError(f"the sampler state lacks {few(missing)}; it has {few(state)}")
        if state["fingerprint"] != self.fingerprint():
            raise ValueError(f"this state belongs to another sampler: {self._differences(state.get('parts'))}")
        self.seed, self.step = integer("seed", state["seed"], most=WORD), integer("step", state["step"], most=WORD)

    def _differences(self, saved: Any) -> str:
        here = self._parts()
        if not isinstance(saved, dict):
            return f"its episode table, relation, kernel, law or distinct differs from {here}"
        found = [
            f"{name} {saved.get(name)!r}, here {value!r}" for name, value in here.items() if saved.get(name) != value
        ]
        # The columns read differ with the relation; only with all else equal is it their contents.
        return (
            "; ".join(found)
            or f"other labels in the columns it reads ({', '.join(dict.fromkeys(['episode', *self._used()]))})"
        )

    def audit(self, draws: int = 200_000) -> Audit:
        """What this sampler can draw and what it does draw; see `Audit` for which figures are exact."""
        return audit(self, draws)


def _recipients(table: EpisodeTable, pairs: str, legal: Rows, law: Law, by: str | None, on_missing: str) -> Recipients:
    without = np.flatnonzero(legal == 0)
    if len(without) and (on_missing == "error" or len(without) == len(table)):
        remedy = "" if len(without) == len(table) else "; on_missing='drop' leaves them out"
        raise NoLegalDonorError(
            f"under {pairs} {len(without)} of {len(table)} recipients have no legal donor: "
            f"episodes {few(np.sort(table['episode'][without]))}{remedy}"
        )
    if by is None:
        return weighted(table, legal, law)
    recipients = distinct(table, legal, by)
    count = recipients.span[:, 1]
    if law == "balanced" and count.min() < count.max():
        raise ValueError(
            f"law='balanced' draws recipients evenly, distinct={by!r} one a group, but the groups have "
            f"{count.min()} to {count.max()} recipients: leave distinct out"
        )
    return recipients
