"""What may be done with which population, and which population a bank's split is."""

from pathlib import Path

import numpy as np
import pytest
from tiny import PROTOCOL

from sprii_envs.banks import PROTOCOLS, Bank, build
from sprii_train.analysis.populations import (
    Confirmation,
    Development,
    Population,
    PopulationError,
    Sample,
    Sealed,
    Training,
    check_fit,
    check_select,
    population_of,
)


@pytest.mark.parametrize("population", [Development("validation"), Confirmation("confirmation"), Sealed("sealed")])
def test_only_training_systems_are_fitted_on(population: Population):
    check_fit(Training("train"), "a ridge probe")
    name, kind = population.name, type(population).__name__.lower()
    with pytest.raises(PopulationError, match=f"a ridge probe may be fitted on training.*'{name}' is {kind}"):
        check_fit(population, "a ridge probe")


def test_training_and_development_systems_are_selected_on():
    check_select(Training("train"), "a penalty")
    check_select(Development("validation"), "a penalty")


@pytest.mark.parametrize("population", [Confirmation("confirmation"), Sealed("sealed"), Population("unknown")])
def test_nothing_is_selected_on_systems_held_back(population: Population):
    with pytest.raises(PopulationError, match=f"a penalty may be selected on training or dev.*'{population.name}'"):
        check_select(population, "a penalty")


def test_a_population_error_is_a_value_error():
    assert issubclass(PopulationError, ValueError)


def test_populations_of_one_name_differ_by_kind():
    assert Training("a") == Training("a")
    assert Training("a") != Development("a")
    assert Training("a") != Training("b")


# Splits of banks


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    splits = ("train", "validation", "test", "confirmation", "sealed")
    protocol = PROTOCOL.replace(
        systems=dict.fromkeys(splits, 2), rollouts=2, steps=4, sealed_splits=("confirmation", "sealed")
    )
    return build(protocol, tmp_path_factory.mktemp("populations") / "bank")


@pytest.mark.parametrize(
    ("split", "population"),
    [
        ("train", Training("train")),
        ("validation", Development("validation")),
        ("test", Sealed("test")),  # `tab:dclean-full` measures it once
        ("confirmation", Confirmation("confirmation")),
        ("sealed", Sealed("sealed")),
    ],
)
def test_population_of_a_split(bank: Bank, split: str, population: Population):
    assert population_of(bank, split) == population


def test_population_of_an_unknown_split(bank: Bank):
    with pytest.raises(ValueError, match="no split 'dev'; splits: train, validation, test, confirmation, sealed"):
        population_of(bank, "dev")


def test_a_sealed_split_is_held_back_whatever_its_name(tmp_path: Path):
    protocol = PROTOCOL.replace(
        systems={"train": 2, "validation": 2}, rollouts=2, steps=4, sealed_splits=("train", "validation")
    )
    closed = build(protocol, tmp_path / "closed")
    for split in ("train", "validation"):
        assert population_of(closed, split) == Sealed(split)


def test_every_split_of_the_papers_banks():
    """`tab:result-identities`: training, development and what is held back, over all protocols."""

    class Unbuilt:
        name = "unbuilt"

        def __init__(self, protocol):
            self.splits, self.sealed_splits = tuple(protocol.systems), protocol.sealed_splits

    ours = {name: protocol for name, protocol in PROTOCOLS.items() if protocol.env_id.startswith("sprii/")}
    found = {
        (name, split): type(population_of(Unbuilt(protocol), split))  # type: ignore[arg-type]
        for name, protocol in ours.items()
        for split in protocol.systems
    }
    assert {key for key, kind in found.items() if kind is Training} == {
        (name, "train") for name in ours if name not in ("spring-sealed", "poke-fresh")
    }
    assert {key for key, kind in found.items() if kind is Development} == {
        *((name, "validation") for name in ("d-clean", "spring", "poke-factorial", "poke-original")),
        ("swimmer", "selection"),
    }
    assert found["poke-factorial", "confirmation"] is Confirmation
    assert {key for key, kind in found.items() if kind is Sealed} == {
        ("d-clean", "test"),
        ("spring-sealed", "sealed"),
        ("poke-original", "test"),
        ("poke-fresh", "fresh"),
        ("swimmer", "prospective"),
    }


# Samples


def sample(**changes) -> Sample[Training]:
    arguments = {
        "population": Training("train"),
        "codes": np.ones((3, 2)),
        "systems": np.array([4, 4, 7]),
        "factors": {"drag": np.ones(3)},
    }
    return Sample(**{**arguments, **changes})


def test_a_sample_holds_float64_codes():
    got = sample(codes=np.ones((3, 2), np.float32))
    assert len(got) == 3
    assert got.codes.dtype == np.float64
    assert got.population == Training("train")
    assert got.rollouts is None


def test_samples_are_told_apart_without_comparing_arrays():
    one = sample()
    assert one == one
    assert one != sample()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"codes": np.ones(3)}, r"codes must be finite and of shape \(n, d\), got shape \(3,\)"),
        ({"codes": np.ones((0, 2))}, r"got shape \(0, 2\)"),
        ({"codes": np.full((3, 2), np.nan)}, "codes must be finite"),
        ({"systems": np.arange(2)}, r"3 codes, but 'systems' has shape \(2,\)"),
        ({"factors": {"drag": np.ones(4)}}, r"3 codes, but 'drag' has shape \(4,\)"),
        ({"factors": {"drag": np.ones((3, 1))}}, r"'drag' has shape \(3, 1\)"),
        ({"rollouts": np.arange(4)}, r"'rollouts' has shape \(4,\)"),
    ],
)
def test_a_sample_refuses(changes: dict, message: str):
    with pytest.raises(ValueError, match=message):
        sample(**changes)
