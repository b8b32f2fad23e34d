"""Donor graphs: nearest neighbours and RandomHistory against brute force, draws against enumeration.

χ² at fixed seeds, p > 1e-3: with 1,000 expected a cell, a cell that is off by 20 % is found with power above 0.99.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from relation_tables import factorial, legal, systems
from scipy import stats
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

from sprii_envs.relations import (
    SAME_SYSTEM,
    EpisodeTable,
    Graph,
    NoLegalDonorError,
    PairSampler,
    Relation,
    knn_graph,
    random_history,
)


def dense(graph: Graph) -> np.ndarray:
    """(n, n) weights of the edges, nodes by episode id."""
    matrix = np.zeros((len(graph.episodes),) * 2)
    matrix[graph.sources, graph.indices] = 1.0 if graph.weights is None else graph.weights
    return matrix


def from_dense(matrix, episodes=None, weighted=True) -> Graph:
    source, target = np.nonzero(matrix)
    indptr = np.searchsorted(source, np.arange(len(matrix) + 1))
    return Graph(indptr, target, matrix[source, target] if weighted else None, episodes)


def sample_matrix(rng, n, density=0.4) -> np.ndarray:
    matrix = rng.choice([0.5, 1.0, 2.0], (n, n)) * (rng.random((n, n)) < density)
    np.fill_diagonal(matrix, 0)
    return matrix


# Nearest neighbours


def brute_force(codes, k) -> list[list[int]]:
    spread = codes.std(0)
    z = (codes - codes.mean(0))[:, spread > 0] / spread[spread > 0]
    squared = ((z[:, None] - z[None]) ** 2).sum(2)
    np.fill_diagonal(squared, np.inf)
    return [sorted(np.lexsort((np.arange(len(z)), row))[:k].tolist()) for row in squared]


@pytest.mark.parametrize("k", [1, 3, 7])
def test_neighbours_are_those_of_a_tree_on_standardised_codes(k):
    rng = np.random.default_rng(0)
    codes = rng.normal(size=(700, 12)) * np.geomspace(1e-3, 1e3, 12) + 50
    graph = knn_graph(codes.astype(np.float32), k)
    z = codes.astype(np.float32).astype(float)
    _, near = cKDTree((z - z.mean(0)) / z.std(0)).query((z - z.mean(0)) / z.std(0), k + 1)
    np.testing.assert_array_equal(np.sort(near[:, 1:], axis=1), graph.indices.reshape(-1, k))
    # Unstandardised, the last coordinate alone would decide.
    _, plain = cKDTree(z).query(z, k + 1)
    assert (np.sort(plain[:, 1:], axis=1) != graph.indices.reshape(-1, k)).mean() > 0.5


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 40), st.integers(1, 4), st.integers(0, 2**32))
def test_ties_go_to_the_smaller_episode_id(n, d, seed):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 3, (n, d)).astype(float)  # many equal codes and distances, constant coordinates
    k = int(rng.integers(1, n))
    graph = knn_graph(codes, k)
    assert graph.indices.reshape(n, k).tolist() == brute_force(codes, k)
    # Other node ids and another order of the rows: the same episodes.
    ids = np.sort(rng.choice(1000, n, replace=False)) - 500
    rows = rng.permutation(n)
    moved = knn_graph(codes[rows], k, ids[rows])
    np.testing.assert_array_equal(moved.episodes, ids)
    np.testing.assert_array_equal(moved.indices, graph.indices)


def test_an_outlier_and_a_large_offset_lose_no_digits():
    rng = np.random.default_rng(1)
    codes = rng.normal(size=(400, 3)) + 1e6
    codes[0] += 1e7
    z = (codes - codes.mean(0)) / codes.std(0)
    squared = cdist(z, z)
    np.fill_diagonal(squared, np.inf)
    expected = np.sort(np.argsort(squared, axis=1)[:, :3], axis=1)
    np.testing.assert_array_equal(knn_graph(codes).indices.reshape(-1, 3), expected)


def test_blocks_of_rows_do_not_show():
    codes = np.random.default_rng(2).normal(size=(90, 5))
    assert knn_graph(codes, block=90 * 7) == knn_graph(codes)


# RandomHistory


def test_random_history_is_uniform_over_sets_of_other_episodes():
    # Node 2 of 5 with k = 2: six sets, 1,000 expected each.
    seen = {}
    for seed in range(6000):
        donors = tuple(random_history(5, 2, seed).indices.reshape(5, 2)[2].tolist())
        seen[donors] = seen.get(donors, 0) + 1
    assert set(seen) == {(0, 1), (0, 3), (0, 4), (1, 3), (1, 4), (3, 4)}
    assert stats.chisquare(list(seen.values())).pvalue > 1e-3


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 30), st.integers(0, 2**64 - 1))
def test_random_history_never_takes_an_episode_twice_or_itself(n, seed):
    k = seed % (n - 1) + 1
    ids = np.random.default_rng(seed % 2**32).choice(10**6, n, replace=False)
    graph = random_history(ids, k, seed)  # Graph refuses both
    assert (np.diff(graph.indptr) == k).all()
    assert graph == random_history(ids[::-1], k, seed)
    assert n < 8 or k == n - 1 or graph != random_history(ids, k, (seed + 1) % 2**64)


def test_donor_usage_of_random_history_is_the_paper_s():
    # In-degrees d are binomial; the entropy is log E − (1/E)·Σ d·log d for E = 24,000 edges.
    n, k = 8000, 3
    degree = np.arange(1, 60)
    expected = n * (stats.binom.pmf(degree, n - 1, k / (n - 1)) * degree * np.log(degree)).sum() / (n * k)
    usage = (np.log(n * k) - expected) / np.log(n)
    table = systems([4] * 2000)
    report = PairSampler(table, SAME_SYSTEM, random_history(n)).audit()
    assert report.donor_entropy == pytest.approx(usage, abs=5e-4)
    assert report.donor_entropy == pytest.approx(0.980, abs=1e-3)
    assert report.coverage == 1.0
    assert report.correct_rate == pytest.approx(3 / 7999, abs=4 * np.sqrt(3 / 7999 / 24_000))


# The kernel


def test_the_audit_has_the_columns_of_the_paper_s_table():
    table = factorial(4, 3, 3, 2)
    rng = np.random.default_rng(5)
    order = np.argsort(table["episode"])
    matrix = sample_matrix(rng, len(table), 0.08)
    matrix[[3, 9]] = 0  # two recipients without a donor
    sampler = PairSampler(table, SAME_SYSTEM, from_dense(matrix, table["episode"][order]), on_missing="drop")
    report = sampler.audit(10)
    by_row = np.zeros_like(matrix)
    by_row[np.ix_(order, order)] = matrix
    takes_part = by_row.any(1)
    joint = np.divide(by_row, by_row.sum(1, keepdims=True), where=takes_part[:, None], out=np.zeros_like(by_row))
    joint /= takes_part.sum()
    assert report.coverage == takes_part.mean()
    assert report.correct_rate == pytest.approx(joint[legal(table, SAME_SYSTEM)].sum())
    for name in ("mass", "drag", "stiffness", "system"):
        equal = table[name][:, None] == table[name][None]
        assert report.match_rates[name] == pytest.approx(joint[equal].sum())
    usage = joint.sum(0)
    possible = (usage > 0) | takes_part
    assert report.donor_entropy == pytest.approx(stats.entropy(usage) / np.log(possible.sum()))
    np.testing.assert_allclose(sampler.bound.donor_marginal(sampler.recipients.marginal(len(table))), usage, rtol=1e-9)
    degree = (by_row > 0).sum(1)[takes_part]
    reached = [len(np.unique(table["system"][row > 0])) for row in by_row[takes_part]]
    assert report.supported_histories == (degree.min(), degree.max())
    assert report.selected_systems == (min(reached), max(reached))
    assert report.draws == 0
    assert "over all pairs: exact" in str(report)


@pytest.mark.parametrize("weighted", [False, True])
def test_draws_follow_the_graph_and_say_what_is_correct(weighted):
    table = systems([3, 4, 2], drag=[0, 1, 1, 0, 0, 1, 1, 0, 1])
    matrix = sample_matrix(np.random.default_rng(6), 9, 0.5)
    relation = Relation(("system",), ("drag",))
    sampler = PairSampler(table, relation, from_dense(matrix, weighted=weighted), seed=2)
    recipient, donor, correct = sampler.batch(0, 60_000)
    law = matrix if weighted else matrix > 0
    joint = law / law.sum(1, keepdims=True) / 9
    counts = np.zeros((9, 9))
    np.add.at(counts, (recipient, donor), 1)
    assert not counts[joint == 0].any()
    assert stats.chisquare(counts[joint > 0], joint[joint > 0] * 60_000).pvalue > 1e-3
    np.testing.assert_array_equal(correct, legal(table, relation)[recipient, donor])
    assert 0 < correct.mean() < 1


@settings(max_examples=40, deadline=None)
@given(st.integers(3, 15), st.integers(0, 2**32), st.booleans())
def test_neither_the_order_of_rows_nor_of_nodes_changes_a_draw(n, seed, weighted):
    rng = np.random.default_rng(seed)
    ids = rng.choice(10**6, n, replace=False)
    matrix = sample_matrix(rng, n)
    if not matrix.any():
        return
    table = systems([1] * n)
    table = EpisodeTable({name: table[name] for name in table.columns} | {"episode": ids})
    rows, nodes = rng.permutation(n), rng.permutation(n)
    shuffled = EpisodeTable({name: table[name][rows] for name in table.columns})
    one = from_dense(matrix, ids, weighted)
    two = from_dense(matrix[np.ix_(nodes, nodes)], ids[nodes], weighted)
    assert (one == two, repr(one)) == (True, repr(two))
    relation = Relation(differ=("system",))
    a = PairSampler(table, relation, one, on_missing="drop")
    b = PairSampler(shuffled, relation, two, on_missing="drop")
    assert a.fingerprint() == b.fingerprint()
    for x, y in zip(a.batch(seed, 50)[:2], b.batch(seed, 50)[:2], strict=True):
        assert table["episode"][x].tolist() == shuffled["episode"][y].tolist()


def test_an_edge_of_weight_zero_is_no_donor():
    graph = Graph([0, 2, 3, 4], [1, 2, 0, 0], [0.0, 1.0, 2.0, 0.0])
    with pytest.raises(NoLegalDonorError, match=r"with Graph\(3 nodes, 4 edges, .* 1 of 3 recipients .*: episodes 2"):
        PairSampler(systems([3]), SAME_SYSTEM, graph)
    sampler = PairSampler(systems([3]), SAME_SYSTEM, graph, on_missing="drop")
    recipient, donor, _ = sampler.batch(0, 500)
    assert set(zip(recipient.tolist(), donor.tolist(), strict=True)) == {(0, 2), (1, 0)}


def test_mutual_and_symmetrised_are_those_of_the_matrix():
    matrix = sample_matrix(np.random.default_rng(7), 12)
    both = (matrix > 0) & (matrix.T > 0)
    graph = from_dense(matrix, np.arange(12) * 3)
    np.testing.assert_array_equal(dense(graph.mutual()), matrix * both)
    np.testing.assert_array_equal(dense(graph.symmetrised()), matrix + matrix.T)
    plain = from_dense(matrix, weighted=False)
    np.testing.assert_array_equal(dense(plain.mutual()), both)
    np.testing.assert_array_equal(dense(plain.symmetrised()), (matrix > 0) | (matrix.T > 0))
    assert plain.symmetrised().mutual() == plain.symmetrised()
    np.testing.assert_array_equal(graph.mutual().episodes, graph.episodes)


def test_save_and_load(tmp_path):
    for weighted in (False, True):
        graph = from_dense(sample_matrix(np.random.default_rng(8), 9), np.arange(9) - 4, weighted)
        graph.save(tmp_path / "graph.npz")
        assert Graph.load(tmp_path / "graph.npz") == graph
    assert from_dense(dense(graph), np.arange(9)) != graph
    np.savez(tmp_path / "other.npz", a=np.arange(3))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "graph.npz").read_bytes()[:100])
    np.save(tmp_path / "y.npy", np.arange(3))
    for name in ("other.npz", "cut.npz", "y.npy"):
        with pytest.raises(ValueError, match=f"{name} is not a donor graph or is damaged"):
            Graph.load(tmp_path / name)


def test_a_state_of_another_graph_is_refused():
    table = systems([20])
    state = PairSampler(table, SAME_SYSTEM, random_history(20, seed=1)).state_dict()
    PairSampler(table, SAME_SYSTEM, random_history(20, seed=1)).load_state_dict(state)
    with pytest.raises(ValueError, match=r"kernel 'Graph\(20 nodes, 60 edges"):
        PairSampler(table, SAME_SYSTEM, random_history(20, seed=2)).load_state_dict(state)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Graph([0, 1], [0]), "own donor; so listed are 0"),
        (lambda: Graph([0, 2, 2], [1, 1]), "listed twice, the first for episode 0"),
        (lambda: Graph([0, 1, 3], [1, 0]), "indptr must rise from 0 to the number of indices, 2"),
        (lambda: Graph([0, 1, 1], [2]), r"indices must lie in \[0, 2\), got 2..2"),
        (lambda: Graph([0, 1, 1], [1], [1.0, 2.0]), r"weights must be \(1,\)"),
        (lambda: Graph([0, 1, 1], [1], [-1.0]), "weights must be finite and at least 0, got -1.0"),
        (lambda: Graph([0, 1, 1], [1], [np.inf]), "weights must be finite and at least 0, got inf"),
        (lambda: Graph([0, 1, 1], [1], episodes=[3, 3]), "episodes must be distinct ids"),
        (lambda: Graph([0, 1, 1], [1], episodes=[3]), "episodes must name 2 nodes"),
        (lambda: Graph([0, 1, 1], [0.5]), "indices must be 1-D integers"),
        (lambda: knn_graph(np.zeros((4, 2)), 4), "k is 4; legal: an integer >= 1, at most 3"),
        (lambda: knn_graph(np.zeros(4)), "codes must be numbers of shape"),
        (lambda: knn_graph([[0.0], [np.nan], [1.0]], 1, [7, 5, 6]), "codes must be finite; not so for episodes 5"),
        (lambda: knn_graph(np.zeros((4, 2)), 1, [1, 2, 3]), "episodes must name 4 nodes"),
        (lambda: random_history(3, 3), "k is 3; legal: an integer >= 1, at most 2"),
        (lambda: random_history([1, 1, 2], 1), "episodes must be distinct ids"),
    ],
)
def test_bad_graphs_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_episodes_that_table_and_graph_do_not_share():
    graph = Graph([0, 1, 2, 3], [1, 0, 0], episodes=[0, 1, 9])  # 9 is not in the table, but nobody's donor
    table = systems([3])
    with pytest.raises(NoLegalDonorError, match="episodes 2"):
        PairSampler(table, SAME_SYSTEM, graph)
    assert PairSampler(table, SAME_SYSTEM, graph, on_missing="drop").audit(5).coverage == pytest.approx(2 / 3)
    graph = Graph([0, 1, 2], [1, 0], episodes=[0, 9])
    with pytest.raises(ValueError, match="1 donors of this graph are not in the table: episodes 9"):
        PairSampler(table, SAME_SYSTEM, graph)
