"""What a sampler can draw and what it does draw: the columns of `tab:donor-pool-audit` and
`tab:structured-mismatch-diagnostics`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sprii_envs.arguments import integer
from sprii_envs.relations.index import build_index, fold
from sprii_envs.relations.kernels.base import BoundKernel, Counts, Kernel, ListedKernel, Support
from sprii_envs.relations.recipients import Distinct, Law, Recipients
from sprii_envs.relations.relation import Relation
from sprii_envs.relations.streams import AUDIT, stream
from sprii_envs.relations.table import EpisodeTable, Rows, factorize

Range = tuple[int, int]

# Recipients whose donors are listed one by one where the number of their systems has no closed count.
_LISTED = 256
# Pairs per audit batch, and batches at most: a batch from distinct groups is no larger than their number.
_BATCH, _BATCHES = 4096, 2048
# A donor probability below this share of an even one is rounding.
_NEVER = 1e-9


class PairLaw(Protocol):
    """What a `PairSampler` draws from, at any step."""

    table: EpisodeTable
    relation: Relation
    kernel: Kernel
    bound: BoundKernel
    recipients: Recipients
    law: Law
    distinct: str | None
    seed: int


@dataclass(frozen=True)
class Audit:
    """A report on one `PairSampler`. Ranges are (min, max) over recipients with a legal donor.

    Everything is exact, except the match rates and the share of correct pairs, which come from `draws` seeded
    pairs (of a Graph they are exact too), and what `sampled` names: systems per recipient, when one system has
    several labels in a `differ` column, come from 256 seeded recipients.
    """

    relation: str
    kernel: str
    law: str
    distinct: str | None
    episodes: int
    recipients: int  # episodes with a legal donor
    coverage: float  # their share
    eligible_systems: Range  # systems that satisfy the relation
    eligible_histories: Range  # episodes that satisfy it
    selected_systems: Range  # systems that the kernel can draw from
    rollouts_per_system: Range  # episodes of a system that take part
    supported_histories: Range  # episodes that it can draw
    match_rates: dict[str, float]  # share of pairs with equal label, by column
    correct_rate: float  # share of pairs that satisfy the relation
    recipient_entropy: float  # entropy of the recipient marginal / log(recipients); 1 is even
    donor_entropy: float  # of the donor marginal / log(possible donors)
    recipient_weight: tuple[float, float]  # an episode's probability as recipient × recipients; 1 is even
    donor_weight: tuple[float, float]
    marginal_gap: float  # total variation between the recipient and the donor marginal
    draws: int  # 0: all pairs were weighed by their probability
    sampled: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dictionary."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    def __str__(self) -> str:
        rows = [
            ("relation", self.relation),
            ("kernel", self.kernel),
            ("pair law", self.law + (f", distinct {self.distinct}" if self.distinct else "")),
            ("episodes", f"{self.episodes:,}"),
            ("coverage", f"{100 * self.coverage:.2f} % ({self.recipients:,} recipients)"),
            ("eligible systems", _range(self.eligible_systems)),
            ("eligible histories", _range(self.eligible_histories)),
            ("selected systems", _range(self.selected_systems)),
            ("rollouts per system", _range(self.rollouts_per_system)),
            ("supported histories", _range(self.supported_histories)),
            ("correct pairs *", f"{100 * self.correct_rate:.2f} %"),
            *((f"match {name} *", f"{100 * rate:.2f} %") for name, rate in self.match_rates.items()),
            ("recipient entropy / log N", f"{self.recipient_entropy:.4f}"),
            ("donor entropy / log N", f"{self.donor_entropy:.4f}"),
            ("recipient weight", _range(self.recipient_weight)),
            ("donor weight", _range(self.donor_weight)),
            ("donor–recipient gap", f"{self.marginal_gap:.4f}"),
        ]
        width = max(len(name) for name, _ in rows)
        notes = [f"* from {self.draws:,} seeded pairs; the rest is exact" if self.draws else "* over all pairs: exact"]
        if self.sampled:
            notes = [f"{notes[0]}, except {' and '.join(self.sampled)}: from {_LISTED} recipients"]
        return "\n".join([f"{name:<{width}}  {value}" for name, value in rows] + notes)


def audit(sampler: PairLaw, draws: int) -> Audit:
    """The report of a sampler; its own step and stream are untouched."""
    draws = integer("draws", draws, least=1)
    table, bound = sampler.table, sampler.bound
    rows = np.flatnonzero(bound.legal)
    recipient = sampler.recipients.marginal(len(table))
    donor = bound.donor_marginal(recipient)
    # Rows that take no part are no donors either, whatever relation describes the support.
    used = np.flatnonzero((bound.legal > 0) | (donor * len(table) > _NEVER))
    eligible, eligible_histories, eligible_exact = _count(table, used, sampler.relation, rows, sampler.seed)
    selected, supported, selected_exact = _count(table, used, bound.support, rows, sampler.seed)
    listed = bound.pairs(recipient) if isinstance(bound, ListedKernel) else None
    first, second, correct = _draw(sampler, draws) if listed is None else listed[:3]
    weight = None if listed is None else listed.probability
    labels = [name for name in table.columns if name not in ("episode", "rollout", "length", "split", "ending")]
    return Audit(
        relation=str(sampler.relation),
        kernel=repr(sampler.kernel),
        law=sampler.law,
        distinct=sampler.distinct,
        episodes=len(table),
        recipients=len(rows),
        coverage=len(rows) / len(table),
        eligible_systems=_extent(eligible),
        eligible_histories=_extent(eligible_histories),
        selected_systems=_extent(selected),
        rollouts_per_system=_extent(np.unique(table["system"][used], return_counts=True)[1]),
        supported_histories=_extent(supported),
        match_rates={name: _share(table[name][first] == table[name][second], weight) for name in labels},
        correct_rate=_share(correct, weight),
        recipient_entropy=_entropy(recipient, len(rows)),
        donor_entropy=_entropy(donor, len(used)),
        recipient_weight=_weights(recipient[rows]),
        donor_weight=_weights(donor[used]),
        marginal_gap=float(np.abs(recipient - donor).sum() / 2),
        draws=len(first) if listed is None else 0,
        sampled=("eligible systems",) * (not eligible_exact) + ("selected systems",) * (not selected_exact),
    )


def _count(table: EpisodeTable, used: Rows, support: Support, rows: Rows, seed: int) -> tuple[Rows, Rows, bool]:
    """Systems (n,) and episodes (n,) among `used` that the recipients `rows` can draw; the systems of some where
    not exact."""
    if isinstance(support, Counts):
        return support.systems[rows], support.histories[rows], True
    if isinstance(support, Relation):
        part = table if len(used) == len(table) else table.select(used)
        at = np.searchsorted(used, rows)
        systems, exact = systems_per_recipient(part, support, seed, at)
        return systems, build_index(part, support).legal[at], exact
    parts = [_count(table, used, part, rows, seed) for part in support]
    exact = all(known for *_, known in parts)
    some = slice(None) if exact else _listed(len(rows), seed)
    systems = sum(counts[some] if known else counts for counts, _, known in parts)
    return np.asarray(systems), np.asarray(sum(histories for _, histories, _ in parts)), exact


def systems_per_recipient(
    table: EpisodeTable, relation: Relation, seed: int = 0, rows: Rows | None = None
) -> tuple[Rows, bool]:
    """Number of distinct systems among the legal donors of each of `rows` (all by default), and whether it is
    a closed count.

    ((n,) int64, True), or ((256,) int64, False) for seeded recipients when a system has several labels in one
    of several `differ` columns.
    """
    rows = np.arange(len(table)) if rows is None else rows
    if relation.same_episode:
        return np.ones(len(rows), np.int64), True
    outer, _ = fold(table, relation.shared)
    system, systems = table.codes("system")
    member, _ = factorize(outer * systems + system)  # one code for each system present in a group
    _, first = np.unique(member, return_index=True)
    index = build_index(table, relation)
    if len(relation.differ) <= 1:
        block = index.span[:, 0] + index.span[:, 2]
        # A system drops out of a recipient's donors only if all its episodes in the group are in the block.
        present = np.bincount(outer[first])[outer]
        touched, touch_first = np.unique(member * len(table) + block, return_index=True)
        blocks_of_member = np.bincount(touched // len(table))
        alone = touch_first[blocks_of_member[touched // len(table)] == 1]
        return (present - np.bincount(block[alone], minlength=len(table))[block])[rows], True
    _, cells = fold(table, (*relation.shared, "system", *relation.differ))
    if cells == len(first):
        return build_index(table.select(first), relation).legal[member[rows]], True
    some = rows[_listed(len(rows), seed)]
    return np.array([len(np.unique(system[index.donors(int(row))])) for row in some]), False


def _listed(count: int, seed: int) -> Rows:
    """Which of `count` recipients have their donors listed."""
    return stream(seed, 0, AUDIT).choice(count, min(_LISTED, count), replace=False)


def _draw(sampler: PairLaw, draws: int) -> tuple[Rows, Rows, NDArray[np.bool_]]:
    recipients = sampler.recipients
    size = min(_BATCH, draws, recipients.groups if isinstance(recipients, Distinct) else _BATCH)
    batches = []
    for step in range(1, 1 + min(_BATCHES, -(-draws // size))):
        rng = stream(sampler.seed, step, AUDIT)
        recipient = recipients.draw(rng, size)
        batches.append((recipient, *sampler.bound.draw(rng, step, recipient)))
    recipient, donor, correct = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    return recipient, donor, correct


def _share(true: NDArray[np.bool_], weight: NDArray[np.float64] | None) -> float:
    return float(true.mean() if weight is None else true @ weight)


def _entropy(probability: NDArray[np.float64], count: int) -> float:
    positive = probability[probability > 0]
    return float(-(positive * np.log(positive)).sum() / np.log(count)) if count > 1 else 1.0


def _weights(probability: NDArray[np.float64]) -> tuple[float, float]:
    scaled = probability * len(probability)
    return float(scaled.min()), float(scaled.max())


def _extent(counts: Rows) -> Range:
    return int(counts.min()), int(counts.max())


def _range(extent: tuple[float, float]) -> str:
    low, high = (f"{value:,}" if isinstance(value, int) else f"{value:.3f}" for value in extent)
    return low if low == high else f"{low}–{high}"
