"""Coordinates of factors, and which others are held fixed."""

import numpy as np
import pytest

from sprii_train.analysis.formation import POKE_FACTORS, SPRING_FACTORS, Factor
from sprii_train.analysis.formation.factors import by_name, controls_of

VALUES = {"mass": np.array([1.0, 2.0, 4.0]), "stiffness": np.array([8.0, 8.0, 2.0]), "drag": np.array([0.0, 1.0, 2.0])}


@pytest.mark.parametrize(
    ("factor", "name", "label", "expected"),
    [
        (Factor("mass"), "mass", "mass", [1.0, 2.0, 4.0]),
        (Factor("mass", log=True), "mass", "log mass", np.log([1.0, 2.0, 4.0])),
        (Factor("stiffness", over="mass"), "stiffness_over_mass", "stiffness/mass", [8.0, 4.0, 0.5]),
        (Factor("stiffness", over="mass", log=True), "stiffness_over_mass", "log stiffness/mass", np.log([8, 4, 0.5])),
    ],
)
def test_values(factor: Factor, name: str, label: str, expected: list[float]):
    assert (factor.name, factor.label) == (name, label)
    np.testing.assert_allclose(factor.of(VALUES), expected, rtol=1e-15)


@pytest.mark.parametrize(
    ("factor", "values", "message"),
    [
        (Factor("size"), VALUES, "no factor 'size'; factors: mass, stiffness, drag"),
        (Factor("drag", log=True), VALUES, "log drag needs positive values, but 'drag' has 0"),
        (Factor("mass", over="drag"), VALUES, "mass/drag needs positive values, but 'drag' has 0"),
        (Factor("mass"), {"mass": np.array([1.0, np.nan])}, "'mass' must be finite, got 1"),
    ],
)
def test_refused(factor: Factor, values: dict[str, np.ndarray], message: str):
    with pytest.raises(ValueError, match=message):
        factor.of(values)


def names(factor: Factor, factors: tuple[Factor, ...]) -> list[str]:
    return [other.name for other in controls_of(factor, factors)]


def test_the_other_factors_are_controlled():
    mass, drag, _ = POKE_FACTORS
    assert names(mass, POKE_FACTORS) == ["drag", "stiffness"]
    assert names(drag, POKE_FACTORS) == ["mass", "stiffness"]
    assert names(drag, (drag,)) == []


def test_a_ratio_is_no_control_and_controls_what_it_has_no_part_of():
    """`app:spring-components`: each controls the other two, k/m controls drag."""
    controlled = {factor.name: names(factor, SPRING_FACTORS) for factor in SPRING_FACTORS}
    assert controlled == {
        "mass": ["drag", "stiffness"],
        "drag": ["mass", "stiffness"],
        "stiffness": ["mass", "drag"],
        "stiffness_over_mass": ["drag"],
    }


def test_named_controls():
    mass = Factor("mass", controls=("stiffness",))
    assert names(mass, (mass, *POKE_FACTORS[1:])) == ["stiffness"]
    assert names(Factor("mass", controls=()), POKE_FACTORS) == []
    with pytest.raises(ValueError, match="mass cannot control 'mass'; legal: drag, stiffness"):
        names(Factor("mass", controls=("mass",)), POKE_FACTORS)
    with pytest.raises(ValueError, match="mass cannot control 'size'; legal: drag, stiffness"):
        names(Factor("mass", controls=("size",)), POKE_FACTORS)


def test_names_must_differ():
    with pytest.raises(ValueError, match=r"different names, got \['mass', 'mass'\]"):
        by_name((Factor("mass"), Factor("mass", log=True)))
    with pytest.raises(ValueError, match="one or more"):
        by_name(())
