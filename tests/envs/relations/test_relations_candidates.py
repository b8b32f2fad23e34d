"""Frozen candidate lists and the paper's donor bank. χ² tests use fixed seeds and pass when p > 1e-3."""

import numpy as np
import pytest
from relation_tables import factorial, legal, poke, systems
from scipy import stats

from sprii_envs.relations import (
    SAME_ROLLOUT,
    SAME_SYSTEM,
    Candidates,
    EpisodeTable,
    NoLegalDonorError,
    PairSampler,
    Relation,
    donor_bank,
    load_candidates,
    named_relation,
    save_candidates,
)

OTHER = Relation(differ=("system",))
SYSTEMS, LISTS, BOUNDS = [3, 1, 2, 0], [0, 1, 2, 0, 3], [0, 3, 5, 5, 5]  # 3: 0 1 2; 1: 0 3; 2 and 0: none


@pytest.fixture(scope="module")
def bank() -> EpisodeTable:
    return poke("train", "validation")


@pytest.fixture(scope="module")
def lists(bank) -> dict[str, Candidates]:
    return donor_bank(bank, seed=3)


# The kernel


def test_a_donor_is_a_uniform_candidate_then_a_uniform_episode():
    # Cells of at least 1,000: one off by 25 % is found with power > 0.99.
    table = systems([1, 2, 3, 4])
    sampler = PairSampler(table, OTHER, Candidates(SYSTEMS, LISTS, BOUNDS), seed=1, on_missing="drop")
    recipient, donor, correct = sampler.batch(0, 60_000)
    law = np.zeros((10, 10))
    system = table["system"]
    for name, given in ((3, [0, 1, 2]), (1, [0, 3])):
        for other in given:
            law[np.ix_(system == name, system == other)] = 1 / len(given) / (system == other).sum()
    count = np.zeros((10, 10), int)
    np.add.at(count, (recipient, donor), 1)
    assert not count[law == 0].any()
    expected = (law / 6)[law > 0]
    assert stats.chisquare(count[law > 0], expected * count.sum() / expected.sum()).pvalue > 1e-3
    assert correct.all()
    marginal = sampler.recipients.marginal(10)
    np.testing.assert_allclose(sampler.bound.donor_marginal(marginal), marginal @ law)
    np.testing.assert_array_equal(sampler.bound.legal, (law > 0).sum(1))
    audit = sampler.audit(1000)
    assert (audit.coverage, audit.selected_systems, audit.supported_histories) == (0.6, (2, 3), (5, 6))


def test_draws_never_leave_the_lists(bank, lists):
    for split in ("train", "validation"):
        table = bank.select(split)
        for name, given in lists.items():
            recipient, donor, _ = PairSampler(table, named_relation(name, table), given).batch(1, 20_000)
            allowed = {
                s: set(given.candidates[given.indptr[i] : given.indptr[i + 1]]) for i, s in enumerate(given.systems)
            }
            pairs = zip(table["system"][recipient], table["system"][donor], strict=True)
            assert all(b in allowed[a] for a, b in pairs)
            assert (table["split"][recipient] == table["split"][donor]).all()


def test_lists_do_not_depend_on_order_or_form():
    table = factorial(1, 2, 3, 2)
    square = Candidates([0, 1, 2], [[3, 4], [4, 5], [5, 3]])
    ragged = Candidates([2, 0, 1], [5, 3, 3, 4, 4, 5], [0, 2, 4, 6])
    assert square == ragged
    assert hash(square) == hash(ragged)
    assert square != Candidates([0, 1, 2], [[4, 3], [4, 5], [5, 3]])  # order decides which number draws which
    kernels = (square, Candidates([0, 1, 2], [[4, 3], [4, 5], [5, 3]]), Candidates([0, 1], [[3, 4], [4, 5]]))
    assert len({PairSampler(table, OTHER, k, on_missing="drop").fingerprint() for k in kernels}) == 3
    assert "3 systems, 2 each" in repr(square)
    assert "4 systems, 0–3 each" in repr(Candidates(SYSTEMS, LISTS, BOUNDS))
    with pytest.raises(ValueError, match="read-only"):
        square.candidates[0] = 1


def test_string_systems():
    names = np.array(["a", "bb", "c"])
    table = systems([2, 2, 2])
    table = EpisodeTable({name: table[name] for name in table.columns} | {"system": names[table["system"]]})
    sampler = PairSampler(table, OTHER, Candidates(["c", "a"], [["a"], ["bb"]]), on_missing="drop")
    recipient, donor, _ = sampler.batch(0, 200)
    pairs = set(zip(table["system"][recipient].tolist(), table["system"][donor].tolist(), strict=True))
    assert pairs == {("c", "a"), ("a", "bb")}
    with pytest.raises(ValueError, match="lists name systems as int64, the table's column 'system' is <U2"):
        PairSampler(table, OTHER, Candidates([0], [[1]]))


def test_batches_are_pure_resume_and_do_not_depend_on_row_order(bank, lists):
    table = bank.select("validation")
    for name, given in lists.items():
        relation = named_relation(name, table)
        one, two = (PairSampler(table, relation, given, seed, distinct="system") for seed in (1, 2))
        drawn = [one.sample(48) for _ in range(4)]
        two.load_state_dict(one.state_dict())
        for a, b in zip([*drawn, one.sample(48)], [*(two.batch(s, 48) for s in range(4)), two.sample(48)], strict=True):
            assert all((x == y).all() for x, y in zip(a, b, strict=True))
        shuffled = table.select(np.random.default_rng(0).permutation(len(table)))
        other = PairSampler(shuffled, relation, given, 1, distinct="system").batch(2, 48)
        assert (shuffled["episode"][other.donor] == table["episode"][drawn[2].donor]).all()


def test_recipients_are_those_of_the_other_kernels(bank, lists):
    table = bank.select("train")
    relation = named_relation("G1", table)
    arms = [PairSampler(table, relation, k, 5, distinct="system") for k in (None, lists["G1"])]
    arms.append(PairSampler(table, named_relation("G2", table), lists["G2"], 5, distinct="system"))
    assert all((arm.batch(2, 48).recipient == arms[0].batch(2, 48).recipient).all() for arm in arms)


def test_files(tmp_path, lists):
    path = tmp_path / "donors.npz"
    save_candidates(path, lists)
    assert load_candidates(path) == lists
    assert list(load_candidates(path)) == ["G1", "G2"]
    named = {"by name": Candidates(["x", "y"], [["y"], ["x"]])}
    save_candidates(path, named)
    assert load_candidates(path) == named
    assert [p.name for p in tmp_path.iterdir()] == ["donors.npz"]
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(ValueError, match=r"donors\.npz is not a candidate file or is damaged"):
        load_candidates(path)
    systems([2, 2]).save(path)
    with pytest.raises(ValueError, match=r"donors\.npz is not a candidate file"):
        load_candidates(path)
    np.savez(path, format=np.int64(9), names=np.array(["G1"]))
    with pytest.raises(ValueError, match="has candidate-file format 9; this version reads 1"):
        load_candidates(path)
    np.savez(path, format=np.int64(1), names=np.array(["G1"]))
    with pytest.raises(ValueError, match="it lacks 'G1/systems'"):
        load_candidates(path)
    parts = {"systems": np.arange(2), "candidates": np.array([1.0, 0.0]), "indptr": np.arange(3)}
    np.savez(path, format=np.int64(1), names=np.array(["G1"]), **{f"G1/{name}": part for name, part in parts.items()})
    with pytest.raises(ValueError, match=r"donors\.npz is not a candidate file .* integers or strings, got float64"):
        load_candidates(path)
    with pytest.raises(ValueError, match="names without '/', got a/b"):
        save_candidates(path, {"a/b": named["by name"]})


# The paper's lists


@pytest.mark.parametrize(
    ("split", "relation", "eligible"),
    [
        ("train", "G1", (173, 174)),
        ("train", "G2", (19, 19)),
        ("validation", "G1", (35, 36)),
        ("validation", "G2", (3, 3)),
    ],
)
def test_the_donor_pool_table_of_the_paper(bank, lists, split, relation, eligible):
    table = bank.select(split)
    audit = PairSampler(table, named_relation(relation, table), lists[relation], distinct="system").audit(1000)
    assert audit.eligible_systems == eligible  # `tab:donor-pool-audit`
    assert audit.selected_systems == (3, 3)
    assert audit.rollouts_per_system == (4, 4)
    assert audit.supported_histories == (12, 12)
    assert audit.coverage == 1.0
    printed = {line.split("  ")[0]: line.split("  ")[-1].strip() for line in str(audit).splitlines()}
    assert printed["eligible systems"] == "–".join(map(str, sorted(set(eligible))))
    assert (printed["selected systems"], printed["rollouts per system"], printed["supported histories"]) == (
        "3",
        "4",
        "12",
    )


def test_the_lists_follow_the_rule(bank, lists):
    names, first = np.unique(bank["system"], return_index=True)
    mass, drag, stiffness = (bank[f"{name}_level"][first] for name in ("mass", "drag", "stiffness"))
    split = bank["split"][first]
    for name, given in lists.items():
        np.testing.assert_array_equal(given.systems, names)
        donor = given.candidates.reshape(-1, 3)
        assert (mass[donor] == mass[:, None]).all()
        assert (stiffness[donor] != stiffness[:, None]).all()
        assert (split[donor] == split[:, None]).all()
        offset = (drag[donor] - drag[:, None]) % 10
        assert (offset == ([1, 3, 7] if name == "G1" else 0)).all()
    validation = lists["G2"].candidates.reshape(-1, 3)[split == "validation"]
    block = mass * 10 + drag
    for i, donors in zip(np.flatnonzero(split == "validation"), validation, strict=True):
        others = np.flatnonzero((block == block[i]) & (split == "validation"))
        assert set(donors) == set(others) - {i}  # all there are


def test_each_eligible_system_is_chosen_alike(bank):
    # G2, training: which of the 19 others, by position among them; 2,000 lists of three. 19 cells of 316 a seed.
    table = bank.select("train")
    chosen = donor_bank(table, seed=8)["G2"].candidates.reshape(-1, 3)
    mine = np.arange(2000)[:, None]
    position = chosen % 20 - (chosen % 20 > mine % 20)  # systems of a block follow each other
    assert (chosen // 20 == mine // 20).all()
    # Three without replacement: less variable than independent draws, so χ² shrinks by 16/18.
    assert stats.chisquare(np.bincount(position.ravel(), minlength=19)).pvalue > 1e-3


def test_lists_are_a_function_of_the_seed_and_of_the_split(bank, lists):
    assert donor_bank(bank, seed=3) == lists
    assert donor_bank(bank, seed=4) != lists
    shuffled = bank.select(np.random.default_rng(0).permutation(len(bank)))
    assert donor_bank(shuffled, seed=3) == lists
    alone = donor_bank(bank.select("validation"), seed=3)["G1"]
    whole = lists["G1"]
    at = np.searchsorted(whole.systems, alone.systems)
    np.testing.assert_array_equal(whole.candidates.reshape(-1, 3)[at], alone.candidates.reshape(-1, 3))


def test_small_blocks_give_what_they_have():
    table = factorial(2, 8, 2, 2)
    given = donor_bank(table)
    assert set(np.diff(given["G2"].indptr)) == {1}  # one other stiffness
    assert set(np.diff(given["G1"].indptr)) == {3}
    assert donor_bank(factorial(2, 8, 1, 2))["G2"].candidates.size == 0
    with pytest.raises(NoLegalDonorError, match="32 of 32 recipients have no legal donor"):
        PairSampler(factorial(2, 8, 1, 2), OTHER, donor_bank(factorial(2, 8, 1, 2))["G2"])


# Bad input

SHARED = Relation(("mass",), ("drag",), name="G")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Candidates([0, 0], [[1], [2]]), "systems must be distinct ids"),
        (lambda: Candidates([0, 1], [[1], [2], [0]]), r"candidates must be \(2, k\), one row a system, got \(3, 1\)"),
        (lambda: Candidates([0, 1], [1, 2], [0, 2]), "indptr must be 3 integers that rise from 0 to 2"),
        (lambda: Candidates([0, 1], [1, 2], [0, 3, 2]), "indptr must be 3 integers"),
        (lambda: Candidates([0, 1], [[1, 1], [0, 2]]), "a candidate is listed twice for the systems 0"),
        (lambda: Candidates([0.5], [[1]]), "systems must be system ids, integers or strings, got float64"),
        (lambda: Candidates([0], [["a"]]), "systems are int64 and candidates <U1"),
        (
            lambda: PairSampler(factorial(), OTHER, Candidates([0, 1], [[1], [99]])),
            "1 candidate systems are not in the table: 99; were the lists made from another split",
        ),
        (
            lambda: PairSampler(factorial(), OTHER, Candidates([0, 1], [[1], [1]])),
            r"1 of 2 candidates are not legal .*: system 1 is the recipient's own system, as a candidate of system 1",
        ),
        (
            lambda: PairSampler(factorial(), SHARED, Candidates([0, 1], [[3], [9]])),
            "1 of 2 candidates are not legal under the relation 'G': system 9 differs in 'mass'",
        ),
        (
            lambda: PairSampler(factorial(), SHARED, Candidates([0, 1], [[3], [2]])),
            "1 of 2 candidates are not legal under the relation 'G': system 2 has the same 'drag'",
        ),
        (lambda: PairSampler(factorial(), SAME_SYSTEM, Candidates([0], [[1]])), "system 1 differs in 'system'"),
        (lambda: PairSampler(factorial(), SAME_ROLLOUT, Candidates([0], [[1]])), "'same rollout' none is legal"),
        (
            lambda: PairSampler(factorial(), Relation((), ("rollout",)), Candidates([0], [[1]])),
            "reads 'rollout', which varies within a system",
        ),
        (lambda: PairSampler(factorial(), OTHER, Candidates([], [], [0])), "54 of 54 recipients have no legal donor"),
        (lambda: donor_bank(systems([2, 2])), "neither 'mass_level' nor 'mass'"),
        (lambda: donor_bank(factorial(2, 7, 2, 2)), r"offsets 1, 3, 7 must be distinct .* the 7 levels of drag"),
        (lambda: donor_bank(factorial(2, 4, 2, 2)), r"offsets 1, 3, 7 must be distinct .* the 4 levels of drag"),
        (
            lambda: donor_bank(systems([2, 2], mass=[1, 2, 1, 1], drag=[1, 1, 2, 2], stiffness=[1] * 4)),
            "systems of one mass each, but 'mass' varies within a system",
        ),
        (
            lambda: donor_bank(systems([2, 2], split=["a", "b", "a", "b"])),
            "some systems have episodes in several splits; pass one split",
        ),
    ],
)
def test_bad_lists(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_every_draw_is_legal_by_enumeration():
    table = factorial(2, 8, 3, 2)
    for name, given in donor_bank(table).items():
        relation = named_relation(name, table)
        recipient, donor, _ = PairSampler(table, relation, given).batch(0, 5000)
        assert legal(table, relation)[recipient, donor].all()
