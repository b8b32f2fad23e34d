"""Windows of environments: the same histories whoever is whose donor, and who that is."""

import numpy as np
import pytest
import torch

from sprii_envs.banks import Store
from sprii_train.fields.environments import Donors, EnvironmentFields
from sprii_train.fields.windows import PairedFields


def data(bank: Store, donors: Donors = "matched", **options) -> EnvironmentFields:
    given = {"pairs": 4, "seed": 1, "condition": "self"} | options
    return EnvironmentFields(PairedFields(bank, bank.split("train"), **given), donors)


def test_arms_see_the_same_histories_and_differ_in_donors_alone(field_bank: Store):
    arms = {donors: data(field_bank, donors) for donors in ("matched", "random", "own")}
    assert len({arm.histories(5) for arm in arms.values()}) == 1
    assert arms["own"].histories(5) != data(field_bank, seed=2).histories(5) != arms["own"].histories(4)
    table = field_bank.split("train")
    names = np.unique(table["system"])
    for step in range(5):
        found = {name: arm(step) for name, arm in arms.items()}
        rows = arms["own"].pairs.rows(step)[1]
        fields, systems = found["own"].fields, found["own"].systems
        assert [names[s] for s in systems] == list(table["system"][rows])
        for windows in found.values():
            assert torch.equal(windows.fields, fields)
            used = sorted(windows.support.flatten(1).sum(1).tolist())
            assert used == sorted(fields.flatten(1).sum(1).tolist())  # every history serves as often
        # Row i is predicted with what its partner, row i ± n, offers.
        donor = {name: windows.support.roll(4, 0) for name, windows in found.items()}
        assert torch.equal(donor["own"], fields)
        assert torch.equal(donor["matched"], fields.roll(4, 0))
        of = [int((fields == history).flatten(1).all(1).nonzero()[0]) for history in donor["random"]]
        assert all(systems[i] != systems[j] for i, j in enumerate(of))
        assert all(systems[i] == systems[(i + 4) % 8] for i in range(8))


def test_ranks_have_shares_of_the_same_batch(field_bank: Store):
    whole = data(field_bank, "random")
    one, two = (whole.shard(rank, 2)(3) for rank in (0, 1))
    for name in ("fields", "systems", "support"):
        both = torch.stack([getattr(part, name).unflatten(0, (2, 2)) for part in (one, two)], 1).flatten(0, 2)
        assert torch.equal(both, getattr(whole(3), name))
    with pytest.raises(ValueError, match="4 pairs cannot be shared by 3 ranks"):
        whole.shard(0, 3)


def test_refused(field_bank: Store):
    with pytest.raises(ValueError, match="the windows are conditioned by 'other'; legal: self"):
        data(field_bank, condition="other")
    with pytest.raises(ValueError, match="random donors are of 1 pairs; legal: 2 to 9"):
        data(field_bank, "random", pairs=1)
    with pytest.raises(ValueError, match="donors is 'any'"):
        data(field_bank, "any")  # type: ignore[arg-type]
