"""Protocols are strict values."""

import json
import pickle

import pytest

from sprii_envs.banks import D_CLEAN, BankProtocol, build


def test_d_clean_is_the_papers_protocol():
    assert dict(D_CLEAN.systems) == {"train": 1000, "validation": 200, "test": 200}
    assert (D_CLEAN.rollouts, D_CLEAN.steps, D_CLEAN.episodes) == (8, 64, 11_200)


def test_round_trips():
    assert BankProtocol.from_dict(json.loads(json.dumps(D_CLEAN.to_dict()))) == D_CLEAN
    assert pickle.loads(pickle.dumps(D_CLEAN)) == D_CLEAN
    assert hash(D_CLEAN.replace()) == hash(D_CLEAN)


def test_order_of_splits_counts():
    a = D_CLEAN.replace(systems={"train": 2, "test": 1})
    assert a != D_CLEAN.replace(systems={"test": 1, "train": 2})


def test_from_dict_is_strict():
    data = D_CLEAN.to_dict()
    with pytest.raises(ValueError, match="missing fields \\['seed'\\]"):
        BankProtocol.from_dict({key: value for key, value in data.items() if key != "seed"})
    with pytest.raises(ValueError, match="unknown fields \\['sed'\\]"):
        BankProtocol.from_dict({**data, "sed": 1})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("systems", {}),
        ("systems", {"train": 0}),
        ("systems", {"": 1}),
        ("rollouts", 0),
        ("steps", 1),
        ("seed", -1),
        ("seed", 0.5),
        ("systems_per_chunk", 0),
    ],
)
def test_illegal_fields_are_named(field, value):
    with pytest.raises(ValueError, match=field):
        D_CLEAN.replace(**{field: value})


def test_unknown_constants_are_named_before_anything_is_built(tmp_path):
    with pytest.raises(ValueError, match=r"unknown constant of D-Clean in protocol 'd-clean': 'foo'.*dt, mass, force"):
        build(D_CLEAN.replace(constants={"foo": 1}), tmp_path / "bank")
    assert not (tmp_path / "bank").exists()
    assert not (tmp_path / "bank.partial").exists()
    with pytest.raises(ValueError, match="did you mean 'mass'"):
        build(D_CLEAN.replace(constants={"mas": 1.0}), tmp_path / "bank")


def test_differences_name_the_field():
    assert D_CLEAN.differences(D_CLEAN.replace(seed=3)) == "seed: 0, not 3"
