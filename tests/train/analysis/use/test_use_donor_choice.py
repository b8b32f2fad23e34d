"""Chosen donors against the table, row by row."""

import numpy as np
import pytest

from sprii_envs.banks import Bank
from sprii_envs.relations import SAME_SYSTEM, EpisodeTable
from sprii_train.analysis.use.donor_choice import WRONG_SYSTEM, Choice, choices, choose, one_factor_wrong, paired

FACTORS = ("mass", "drag", "stiffness")


@pytest.fixture(scope="module")
def table(spring: Bank) -> EpisodeTable:
    return spring.split("train")


def test_every_donor_is_what_it_is_called(table: EpisodeTable):
    found = choices(table, FACTORS, seed=3)
    assert list(found) == ["matched", "wrong", "wrong mass", "wrong drag", "wrong stiffness"]
    for name, choice in found.items():
        r, d = choice.recipient, choice.donor
        assert len(choice.without) == 0
        assert r.tolist() == list(range(len(table)))
        assert (table["episode"][r] != table["episode"][d]).all()
        same = table["system"][r] == table["system"][d]
        assert same.all() if name == "matched" else not same.any()
        differ = np.stack([table[factor][r] != table[factor][d] for factor in FACTORS], axis=1)
        if name.startswith("wrong "):
            assert (differ.sum(1) == 1).all()
            assert differ[:, FACTORS.index(name.removeprefix("wrong "))].all()


def test_recipients_without_a_legal_donor_are_reported(poke: Bank):
    """An incomplete factorial: who has a donor, row by row."""
    table = poke.split("train")
    values = np.stack([table[factor] for factor in FACTORS], axis=1)
    some = False
    for factor in FACTORS:
        choice = choose(table, one_factor_wrong(factor, FACTORS), seed=0)
        column = FACTORS.index(factor)
        others = np.delete(values, column, axis=1)
        legal = np.array(
            [
                ((others == o).all(1) & (values[:, column] != v[column])).any()
                for o, v in zip(others, values, strict=True)
            ]
        )
        assert choice.recipient.tolist() == np.flatnonzero(legal).tolist()
        assert choice.without.tolist() == np.flatnonzero(~legal).tolist()
        some |= bool(len(choice.without))
    assert some


def test_continuous_systems_have_no_one_factor_donor(spring: Bank):
    table = spring.split("validation")
    found = choices(table, FACTORS, seed=0)
    assert len(found["matched"].recipient) == len(found["wrong"].recipient) == len(table)
    for factor in FACTORS:
        assert len(found[f"wrong {factor}"].recipient) == 0
        assert len(found[f"wrong {factor}"].without) == len(table)


def test_donors_of_another_kind(table: EpisodeTable):
    """Forced histories for cold queries."""
    cold = np.flatnonzero(table["kind"] == "cold")
    for name, choice in choices(table, FACTORS, cold, seed=0, apart=("kind",)).items():
        assert choice.recipient.tolist() == cold.tolist()
        assert (table["kind"][choice.donor] == "forced").all()
        same = table["system"][choice.recipient] == table["system"][choice.donor]
        assert same.all() if name == "matched" else not same.any()


def test_a_fixed_map_for_each_seed(table: EpisodeTable):
    a, b, c = (choose(table, WRONG_SYSTEM, seed=seed) for seed in (5, 5, 6))
    np.random.seed(0)  # noqa: NPY002  (the global generator must not matter)
    assert (a.donor == b.donor).all()
    assert (a.donor != c.donor).any()
    # Uniform over the other 26 systems.
    drawn = np.concatenate([choose(table, WRONG_SYSTEM, [0], seed=seed).donor for seed in range(2600)])
    counts = np.bincount(table["system"][drawn], minlength=27)
    assert counts[table["system"][0]] == 0
    assert np.abs(np.delete(counts, table["system"][0]) - 100).max() < 50  # five standard errors


def test_paired_recipients():
    table = EpisodeTable(
        {
            "episode": np.arange(6),
            "system": [0, 0, 1, 2, 2, 3],
            "rollout": [0, 1, 0, 0, 1, 0],
            "length": np.full(6, 9),
            "mass": [1.0, 1.0, 2.0, 1.0, 1.0, 3.0],
            "drag": [5.0, 5.0, 5.0, 6.0, 6.0, 7.0],
        }
    )
    matched = choose(table, SAME_SYSTEM, seed=0)
    wrong = choose(table, one_factor_wrong("mass", ("mass", "drag")), seed=0)
    assert matched.recipient.tolist() == [0, 1, 3, 4]
    assert matched.without.tolist() == [2, 5]
    assert wrong.recipient.tolist() == [0, 1, 2]
    assert wrong.donor[:2].tolist() == [2, 2]
    none = np.empty(0, np.int64)
    a = Choice(np.array([4, 1, 3]), np.array([40, 10, 30]), none)
    b = Choice(np.array([2, 3, 4, 5]), np.array([21, 31, 41, 51]), none)
    recipient, first, second = paired(a, b)
    assert recipient.tolist() == [3, 4]
    assert first.tolist() == [30, 40]
    assert second.tolist() == [31, 41]


def test_refuses_unclear_recipients(spring: Bank, table: EpisodeTable):
    with pytest.raises(ValueError, match="own split"):
        choose(spring.table, SAME_SYSTEM, seed=0)
    with pytest.raises(ValueError, match="distinct rows"):
        choose(table, SAME_SYSTEM, [1, 1], seed=0)
    with pytest.raises(ValueError, match=r"rows \(r,\) in \[0, 162\)"):
        choose(table, SAME_SYSTEM, [162], seed=0)
    with pytest.raises(ValueError, match="none of the factors"):
        one_factor_wrong("length", FACTORS)
