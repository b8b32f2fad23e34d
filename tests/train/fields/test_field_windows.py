"""Windows of a condition and a trajectory: which cases meet, uniformly, and what is read."""

import numpy as np
import pytest
import torch

from sprii_envs.banks import ArrayStore, Store
from sprii_envs.relations import Derangement, EpisodeTable, Kernel, Uniform
from sprii_train.fields.errors import wrong_donors
from sprii_train.fields.windows import PairedFields, following, frames_of, read_fields


def paired(store: Store, **options) -> PairedFields:
    return PairedFields(store, store.split("train"), seed=3, **options)


@pytest.mark.parametrize("kernel", [Uniform(), Derangement()])
def test_a_window_predicts_a_third_case_of_its_conditions_system(field_bank: Store, kernel: Kernel):
    data, table = paired(field_bank, kernel=kernel), field_bank.split("train")
    systems = table["system"]
    matched = isinstance(kernel, Uniform)
    for step in range(300):
        conditions, predicted = data.rows(step)
        donors, recipients = conditions[:4], conditions[4:]
        assert ((systems[donors] == systems[recipients]) == matched).all()
        assert len(set(systems[recipients])) == 4
        assert (systems[predicted] == systems[conditions]).all()
        assert (predicted != conditions).all()
        assert (predicted != np.roll(conditions, 4)).all()  # nor its partner's history: Cross would copy it


def test_every_legal_case_is_predicted_as_often(field_bank: Store):
    data, table = paired(field_bank), field_bank.split("train")
    counts = np.zeros((4, 4, 4))
    for step in range(1_500):
        conditions, predicted = data.rows(step)
        own, other, third = (table["case"][rows] for rows in (conditions, np.roll(conditions, 4), predicted))
        np.add.at(counts, (own, other, third), 1)
    for own, other in np.ndindex(4, 4):
        legal = [k for k in range(4) if k not in (own, other)]
        if own != other:
            found = counts[own, other]
            assert found.sum() == found[legal].sum() > 500
            assert abs(found[legal[0]] / found.sum() - 0.5) < 4 * 0.5 / np.sqrt(found.sum())


def test_a_batch_is_read_as_the_store_has_it_and_repeats(field_bank: Store):
    data, table = paired(field_bank), field_bank.split("train")
    windows, (conditions, predicted) = data(7), data.rows(7)
    assert windows.conditions.shape == windows.fields.shape == (8, 9, 17)
    assert windows.actions.shape == (8, 0)
    for row in (0, 5):
        for found, rows in ((windows.conditions, conditions), (windows.fields, predicted)):
            expected = field_bank.windows("field", table["episode"][rows[[row]]], [0], 9)[0]
            assert np.array_equal(found[row].numpy(), expected)
    again = paired(field_bank)
    assert all(torch.equal(a, b) for a, b in zip(again(7), windows, strict=True))
    assert again.identity() == data.identity()
    assert paired(field_bank, pairs=5).identity() != data.identity()
    halves = [data.shard(rank, 2)(7) for rank in (0, 1)]
    for name in ("conditions", "fields"):
        first, second = (getattr(half, name) for half in halves)
        whole = torch.cat([first[:2], second[:2], first[2:], second[2:]])
        assert torch.equal(whole, getattr(windows, name))


def test_a_history_may_condition_itself(field_bank: Store):
    data = paired(field_bank, condition="self")
    windows = data(0)
    assert torch.equal(windows.conditions, windows.fields)
    assert not torch.equal(windows.fields[:4], windows.fields[4:])
    assert data.identity() != paired(field_bank).identity()


def table_of(systems: list[str], cases: list[int]) -> EpisodeTable:
    return EpisodeTable(
        {"episode": np.arange(len(cases)), "system": systems, "case": cases, "length": np.full(len(cases), 3)}
    )


def test_cases_that_follow_and_donors_of_other_systems():
    table = table_of(["b", "a", "b", "a", "a", "b"], [7, 2, 5, 9, 4, 6])
    after = following(table)
    assert table["case"][after].tolist() == [5, 4, 6, 2, 9, 7]  # a: 2 4 9, b: 5 6 7
    wrong = wrong_donors(table, after)
    assert wrong.shape == (6, 1)
    assert table["case"][wrong[:, 0]].tolist() == [2, 6, 4, 5, 7, 9]  # as far in the other system as the matched one
    with pytest.raises(ValueError, match="a system has one case"):
        following(table_of(["a", "a", "b"], [0, 1, 0]))
    with pytest.raises(ValueError, match="there are 2 to 3"):
        wrong_donors(table_of(["a", "a", "b", "b", "b"], [0, 1, 0, 1, 2]), np.array([1, 0, 3, 4, 2]))


def test_refused(field_bank: Store):
    with pytest.raises(
        ValueError, match=r"the system nu=0\.0001 has 2 cases; legal with condition 'other': at least 3"
    ):
        PairedFields(field_bank, field_bank.split("id_test"))
    PairedFields(field_bank, field_bank.split("id_test"), condition="self")
    with pytest.raises(ValueError, match="condition is 'both'; legal: other, self"):
        paired(field_bank, condition="both")
    with pytest.raises(ValueError, match="4 pairs cannot be shared by 3 ranks"):
        paired(field_bank).shard(0, 3)
    table = EpisodeTable({"episode": [0, 1], "system": [0, 0], "case": [0, 1], "length": [3, 4]})
    with pytest.raises(ValueError, match="trajectories have 3 to 4 frames"):
        frames_of(table)
    store = ArrayStore(table_of(["a", "a"], [0, 1]), {"field": np.arange(12.0).reshape(2, 3, 2)})
    found = read_fields(store, np.array([1]), np.array([0]))
    assert found.conditions.tolist() == [[[6, 7], [8, 9], [10, 11]]]
    assert found.fields.dtype == torch.float32
