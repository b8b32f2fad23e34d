"""Fields of a model that several properties decide together."""

from dataclasses import dataclass

import numpy as np
import pytest

from sprii_envs.mujoco import MujocoWorld, assign, multiple, without_effect
from sprii_envs.properties import PersistentProperties

pytest.importorskip("mujoco")

TWO = """
<mujoco><default><geom contype="0" conaffinity="0"/></default>
  <worldbody><geom name="floor" type="plane" size="1 1 1"/>
    <body name="a" pos="0 0 0.1"><joint name="x" type="slide" axis="1 0 0"/><joint name="z" type="slide" axis="0 0 1"/>
      <geom name="a" size="0.1" mass="1"/></body></worldbody>
  <contact><pair name="a-floor" geom1="a" geom2="floor" friction="1 1 0 0 0"/></contact>
  <actuator><motor joint="x" ctrllimited="true" ctrlrange="-5 5"/></actuator>
</mujoco>
"""
NAMES = [multiple(name, 0.5, 2.0) for name in ("mass", "mu_a", "mu_b")]


def world(edits, properties, computed):
    body = {"name": "Mine", "model": TWO, "properties": PersistentProperties(properties), "edits": edits}
    kind = type("Mine", (MujocoWorld,), body | {"computed": computed})
    return dataclass(frozen=True, kw_only=True)(kind)


def product(values):
    out = np.tile([1.0, 1.0, 0.005, 0.0001, 0.0001], (len(values), 1, 1))
    out[:, 0, :2] = (values[:, 1] * values[:, 2])[:, None]
    return out


def made(computed):
    return world({"mass": assign("body_mass", "a")}, NAMES, computed)


def test_a_product_of_two_properties_is_the_friction_of_a_pair():
    kind = made({"pair_friction": product})
    values = np.array([[1.0, 0.5, 0.5], [2.0, 0.25, 1.0], [1.0, 2.0, 0.5]])
    models = kind().prepare(values)
    frictions = [model.pair_friction[0, 0] for model in models.models]
    assert frictions == [0.25, 0.25, 1.0]
    models = kind().update(models, np.array([1]), np.array([[1.0, 0.5, 0.2]]))
    assert models.models[1].pair_friction[0, 0] == 0.5 * 0.2
    assert kind().compiled.model.pair_friction[0, 0] == 1.0
    assert without_effect(kind(), change=2.0) == ()


def test_an_edit_may_name_a_pair():
    kind = world({"mu": assign("pair_friction", "a-floor", column=0)}, [multiple("mu", 0.5, 2.0)], {})
    assert kind().prepare(np.array([[0.7]])).models[0].pair_friction[0].tolist() == [0.7, 1.0, 0.0, 0.0, 0.0]
    below = [multiple("mu", 0.5, 2.0, physical_low=-1.0)]
    with pytest.raises(ValueError, match="pair_friction must not be negative"):
        world({"mu": assign("pair_friction", "a-floor", column=0)}, below, {})().load()


@pytest.mark.parametrize(
    ("computed", "says"),
    [
        ({"pair_frictions": product}, "unknown computed field of Mine 'pair_frictions'; did you mean 'pair_friction'"),
        ({"pair_friction": lambda v: product(v)[:, 0]}, r"computed as float64 \(1, 5\) .*; legal: float64 \(1, 1, 5\)"),
        ({"pair_friction": lambda v: product(v).astype(np.float32)}, "computed as float32"),
        ({"body_mass": lambda v: np.ones((len(v), 2))}, "body_mass of Mine is computed and edited"),
    ],
)
def test_what_is_no_field_or_of_another_shape_is_refused_when_it_is_compiled(computed, says):
    kind = made(computed)
    with pytest.raises(ValueError, match=says):
        kind().load()


def test_without_anything_computed_every_property_needs_an_edit():
    with pytest.raises(ValueError, match="property 'mu_a' of Mine acts on nothing"):
        made({})


def test_fields_that_others_follow_from_are_derived_anew():
    def masses(values):
        return np.stack([np.zeros(len(values)), values[:, 0] * values[:, 1]], axis=1)

    kind = world({"mu_b": assign("pair_friction", "a-floor", column=0)}, NAMES, {"body_mass": masses})
    model = kind().prepare(np.array([[2.0, 3.0, 1.0]])).models[0]
    assert model.body_subtreemass[0] == 6.0  # which MuJoCo computes from masses
