"""Relations inferred from learned histories: a frozen donor graph, and its random control
(`app:inferred-relations`)."""

import hashlib
import os
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sprii_envs.arguments import WORD, integer
from sprii_envs.relations.arrays import naming, read_npz, write_npz
from sprii_envs.relations.coercion import integer_array, plain_array
from sprii_envs.relations.index import PairIndex
from sprii_envs.relations.kernels.base import BoundKernel, Counts, Listed
from sprii_envs.relations.relation import Relation
from sprii_envs.relations.streams import GRAPH, below, stream
from sprii_envs.relations.table import EpisodeTable, Rows, factorize, few
from sprii_envs.standardiser import Standardiser, constant

_FORMAT = 1
_BLOCK = 1 << 22  # distances held at a time
_UNITS = 2.0**32  # the weights of one episode in integer units: a draw needs only its own to fit 53 bits


class Graph:
    """A kernel that draws donors from the out-neighbours of the recipient's episode, whatever the relation says.

    The relation only judges: `correct` in a batch says whether a pair satisfies it, so under `SAME_SYSTEM` the
    audit's share of correct pairs is the tuple precision of `tab:inferred-relation-quality`, and the donor
    entropy its donor usage.

    Args:
        indptr: (n + 1,), of CSR: the donors of node i are indices[indptr[i]:indptr[i+1]]
        indices: (m,) nodes
        weights: (m,) finite, ≥ 0; a donor is drawn in proportion, by default uniformly
        episodes: (n,) distinct episode ids of the nodes, by default 0…n−1

    Nodes are known by episode id and kept in that order, as are the donors of each, so neither the order of the
    nodes given nor that of a table's rows changes a draw. An episode of the table without an edge has no legal
    donor (`on_missing`); nodes that the table lacks are not used, but a donor that it lacks is a ValueError.
    ValueError also for ragged or unordered arrays, a node that is its own donor and a donor listed twice.
    """

    columns = ()

    episodes: Rows
    indptr: Rows
    indices: Rows
    weights: NDArray[np.float64] | None

    def __init__(
        self,
        indptr: ArrayLike,
        indices: ArrayLike,
        weights: ArrayLike | None = None,
        episodes: ArrayLike | None = None,
    ) -> None:
        indptr, indices = integer_array("indptr", indptr, 1), integer_array("indices", indices, 1)
        n = len(indptr) - 1
        if n < 1 or indptr[0] != 0 or indptr[-1] != len(indices) or (np.diff(indptr) < 0).any():
            raise ValueError(f"indptr must rise from 0 to the number of indices, {len(indices)}; got {few(indptr)}")
        if len(indices) and not (indices.min() >= 0 and indices.max() < n):
            raise ValueError(f"indices must lie in [0, {n}), got {indices.min()}..{indices.max()}")
        ids = _node_ids(n if episodes is None else episodes)
        if len(ids) != n:
            raise ValueError(f"episodes must name {n} nodes, one for each row of indptr; got {len(ids)}")
        order = np.argsort(ids)
        rank = np.empty(n, np.int64)
        rank[order] = np.arange(n)
        source, target = rank[np.arange(n).repeat(np.diff(indptr))], rank[indices]
        if (source == target).any():
            own = ids[order][source[source == target]]
            raise ValueError(f"no episode can be its own donor; so listed are {few(own)}")
        by_edge = np.lexsort((target, source))
        source, target = source[by_edge], target[by_edge]
        twice = (source[1:] == source[:-1]) & (target[1:] == target[:-1])
        if twice.any():
            raise ValueError(
                f"{int(twice.sum())} donors are listed twice, the first for episode {ids[order][source[1:][twice][0]]}"
            )
        self.episodes, self.indices = ids[order], target
        self.indptr = np.concatenate([[0], np.bincount(source, minlength=n).cumsum()])
        self.weights = None if weights is None else _weights(weights, len(indices))[by_edge]
        for array in (self.episodes, self.indptr, self.indices, self.weights):
            if array is not None:
                array.setflags(write=False)
        digest = hashlib.sha256()
        for array in (self.episodes, self.indptr, self.indices, self.weights):
            digest.update(b"none" if array is None else array.astype(array.dtype.newbyteorder("<")).tobytes())
        self._digest = digest.hexdigest()

    @property
    def sources(self) -> Rows:
        """The node (m,) that each edge leaves; `indices` are the donors."""
        return np.arange(len(self.episodes)).repeat(np.diff(self.indptr))

    def mutual(self) -> "Graph":
        """The edges whose reverse is an edge too; weights stay."""
        n = len(self.episodes)
        both = np.isin(self.sources * n + self.indices, self.indices * n + self.sources)
        weights = None if self.weights is None else self.weights[both]
        return _from_edges(self.sources[both], self.indices[both], weights, self.episodes)

    def symmetrised(self) -> "Graph":
        """All edges and their reverses; the weights of the two directions add up."""
        n = len(self.episodes)
        key = np.concatenate([self.sources * n + self.indices, self.indices * n + self.sources])
        edges, inverse = np.unique(key, return_inverse=True)
        weights = None if self.weights is None else np.bincount(inverse, np.tile(self.weights, 2)).astype(np.float64)
        return _from_edges(edges // n, edges % n, weights, self.episodes)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one npz, atomically, without pickle."""
        arrays = {"episodes": self.episodes, "indptr": self.indptr, "indices": self.indices}
        write_npz(path, _FORMAT, arrays if self.weights is None else arrays | {"weights": self.weights})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote; ValueError naming the file if it is damaged or something else."""
        arrays = read_npz(path, _FORMAT, "a donor graph", ("episodes", "indptr", "indices"))
        with naming(path, "a donor graph"):
            return cls(arrays["indptr"], arrays["indices"], arrays.get("weights"), arrays["episodes"])

    def bind(self, table: EpisodeTable, relation: Relation, index: PairIndex) -> BoundKernel:
        by_episode = table.by_episode()
        ids = table["episode"][by_episode]
        at = np.searchsorted(ids, self.episodes).clip(max=len(ids) - 1)
        row = np.where(ids[at] == self.episodes, by_episode[at], -1)  # of each node; −1: not in the table
        source, donor = row[self.sources], row[self.indices]
        used = source >= 0
        lost = used & (donor < 0)
        if lost.any():
            missing = np.unique(self.episodes[self.indices[lost]])
            raise ValueError(
                f"{len(missing)} donors of this graph are not in the table: episodes {few(missing)}; build the graph "
                "on the episodes of the table, or select those of the graph"
            )
        if self.weights is not None:
            used &= self.weights > 0
        edges = np.flatnonzero(used)
        start, count = np.zeros(len(table), np.int64), np.bincount(source[edges], minlength=len(table))
        present = np.flatnonzero(row >= 0)
        start[row[present]] = np.searchsorted(edges, self.indptr[:-1][present])
        source, donor = source[edges], donor[edges]
        correct = _satisfied(table, relation, source, donor)
        mass = None
        if self.weights is not None:
            mass = np.concatenate([[0], _units(self.weights[edges], source, len(table)).cumsum()])
        system, systems = table.codes("system")
        reached = np.unique(source * systems + system[donor]) // systems
        counts = Counts(np.bincount(reached, minlength=len(table)), count)
        return _BoundGraph(np.stack([start, count], 1), source, donor, correct, mass, counts)

    def __repr__(self) -> str:
        return f"Graph({len(self.episodes)} nodes, {len(self.indices)} edges, sha256={self._digest[:16]})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Graph) and self._digest == other._digest

    def __hash__(self) -> int:
        return hash(self._digest)


@dataclass(frozen=True)
class _BoundGraph:
    span: Rows  # (N, 2) by row: first edge, number of edges
    source: Rows  # (m,) row that an edge leaves
    donor: Rows  # (m,) row that it reaches
    correct: NDArray[np.bool_]  # (m,) whether this pair satisfies the relation
    mass: Rows | None  # (m + 1,) cumulative weight in integer units
    support: Counts

    @property
    def legal(self) -> Rows:
        return self.span[:, 1]

    def donor_marginal(self, recipient: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.bincount(self.donor, self.pairs(recipient).probability, len(recipient)).astype(np.float64)

    def pairs(self, recipient: NDArray[np.float64]) -> Listed:
        weight = np.ones(len(self.donor)) if self.mass is None else np.diff(self.mass)
        total = np.bincount(self.source, weight, len(recipient))
        return Listed(self.source, self.donor, self.correct, recipient[self.source] * weight / total[self.source])

    def draw(self, rng: np.random.Generator, step: int, recipient: Rows) -> tuple[Rows, NDArray[np.bool_]]:
        start, count = self.span.take(recipient, axis=0).T
        if self.mass is None:
            edge = start + below(rng, count)
        else:
            low = self.mass[start]
            edge = self.mass.searchsorted(low + below(rng, self.mass[start + count] - low), "right") - 1
        return self.donor.take(edge), self.correct.take(edge)


def knn_graph(codes: ArrayLike, k: int = 3, episodes: ArrayLike | None = None, *, block: int = _BLOCK) -> Graph:
    """Every episode's `k` Euclidean nearest neighbours, itself left out, after standardising each coordinate.

    Means and standard deviations are those of `codes` (n, d), one frozen code an episode: give the training
    codes only. A constant coordinate counts nothing. Equal distances are broken by episode id. Exact, with at most
    `block` distances, or one episode's, held at a time. ValueError for codes that are not a finite matrix of
    numbers, or k outside [1, n − 1].
    """
    array = plain_array("codes", codes)
    if array.ndim != 2 or array.dtype.kind not in "iuf" or not array.size:
        raise ValueError(f"codes must be numbers of shape (episodes, dimensions), got {array.dtype} of {array.shape}")
    n, d = array.shape
    ids = _node_ids(n if episodes is None else episodes)
    if len(ids) != n:
        raise ValueError(f"episodes must name {n} nodes, one for each row of codes; got {len(ids)}")
    k = integer("k", k, least=1, most=n - 1)
    array = array[np.argsort(ids)].astype(np.float64)
    if not np.isfinite(array).all():
        raise ValueError(f"codes must be finite; not so for episodes {few(np.sort(ids)[~np.isfinite(array).all(1)])}")
    z = Standardiser.fit(array)(array)[:, ~constant(array)]
    # A product of float32 matrices is fast but rounded, and differently so elsewhere: it only nominates.
    # `share` of both squared norms bounds its error.
    short, norm = z.astype(np.float32), (z * z).sum(1).astype(np.float32)
    share = np.float32(2 * (d + 8) * np.finfo(np.float32).eps)
    block = integer("block", block, least=1)
    rows = max(1, block // n)
    nearest = np.empty((n, k), np.int64)
    for i in range(0, n, rows):
        some, own = z[i : i + rows], norm[i : i + rows, None]
        upper = short[i : i + rows] @ short.T
        upper *= -2
        upper += norm * (1 + share)  # squared distances at most, but for the block's own norm, which ranks nothing
        upper[np.arange(len(some)), np.arange(i, i + len(some))] = np.inf
        limit = np.partition(upper, k - 1, axis=1)[:, k - 1 : k] + 2 * share * own
        upper -= 2 * share * norm  # at least
        a, b = (upper <= limit).nonzero()
        order = np.lexsort((b, _distances(some, z, a, b, block), a))
        first = np.searchsorted(a, np.arange(len(some)))
        nearest[i : i + rows] = b[order][first[:, None] + np.arange(k)]
    return Graph(np.arange(n + 1) * k, nearest.ravel(), None, np.sort(ids))


def random_history(episodes: int | ArrayLike, k: int = 3, seed: int = 0) -> Graph:
    """RandomHistory, the control of `knn_graph`: `k` distinct other episodes for each, uniformly drawn once.

    `episodes` is their number or their ids; the graph depends on (ids, k, seed), not on their order.
    """
    ids = np.sort(_node_ids(episodes))
    n = len(ids)
    k = integer("k", k, least=1, most=n - 1)
    rng = stream(integer("seed", seed, most=WORD), 0, GRAPH)
    # Floyd's sampling of k among n − 1, one column at a time: exactly uniform, no redraw.
    chosen = np.empty((n, k), np.int64)
    for i, last in enumerate(range(n - 1 - k, n - 1)):
        pick = rng.integers(0, last + 1, n)
        taken = (chosen[:, :i] == pick[:, None]).any(1)
        chosen[:, i] = np.where(taken, last, pick)
    chosen += chosen >= np.arange(n)[:, None]  # past itself
    return Graph(np.arange(n + 1) * k, chosen.ravel(), None, ids)


def _from_edges(source: Rows, target: Rows, weights: NDArray[np.float64] | None, episodes: Rows) -> Graph:
    """Of edges sorted by source."""
    return Graph(np.searchsorted(source, np.arange(len(episodes) + 1)), target, weights, episodes)


def _distances(some: NDArray[np.float64], z: NDArray[np.float64], a: Rows, b: Rows, held: int) -> NDArray[np.float64]:
    """Squared distances of some[a] and z[b], in pieces of `held` numbers."""
    piece = max(1, held // max(1, z.shape[1]))
    parts = [((some[a[i : i + piece]] - z[b[i : i + piece]]) ** 2).sum(1) for i in range(0, len(a), piece)]
    return np.concatenate(parts)


def _satisfied(table: EpisodeTable, relation: Relation, recipient: Rows, donor: Rows) -> NDArray[np.bool_]:
    """Which pairs of different episodes satisfy the relation."""
    legal = np.full(len(recipient), not relation.same_episode)
    for names, equal in ((relation.shared, True), (relation.differ, False)):
        for name in names:
            codes, _ = table.codes(name)
            legal &= (codes[recipient] == codes[donor]) == equal
    return legal


def _units(weights: NDArray[np.float64], source: Rows, rows: int) -> Rows:
    """Positive weights in integers, each recipient's adding up to about 2^32."""
    most = np.zeros(rows)
    np.maximum.at(most, source, weights)
    relative = weights / most[source]
    total = np.bincount(source, relative, rows)
    return np.maximum(np.rint(relative / total[source] * _UNITS).astype(np.int64), 1)


def _node_ids(episodes: int | ArrayLike) -> Rows:
    if plain_array("episodes", episodes).ndim == 0:
        return np.arange(integer("episodes", episodes, least=1))  # type: ignore[arg-type]
    ids = integer_array("episodes", episodes, 1)
    _, places = factorize(ids)
    if not len(ids) or places != len(ids):
        raise ValueError(f"episodes must be distinct ids, at least one; got {few(ids)}")
    return ids


def _weights(values: ArrayLike, count: int) -> NDArray[np.float64]:
    given = plain_array("weights", values)
    if given.shape != (count,):
        raise ValueError(f"weights must be ({count},), one for each of the indices; got shape {given.shape}")
    if given.size and given.dtype.kind not in "biuf":
        raise ValueError(f"weights must be numbers, got {given.dtype}")
    weights = given.astype(np.float64)
    wrong = ~(np.isfinite(weights) & (weights >= 0))
    if wrong.any():
        raise ValueError(f"weights must be finite and at least 0, got {few(weights[wrong])}")
    return weights
