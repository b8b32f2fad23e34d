"""Persistent properties, systems, sets and distributions: strictness, identity, round trips."""

import copy
import pickle
from collections.abc import Mapping, Sequence

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sprii_envs.properties import (
    PersistentProperties,
    PersistentProperty,
    System,
    SystemDistribution,
    SystemSet,
    content_ids,
    vary,
)

DRAG = PersistentProperty("drag", "γ", "1/s", 0.5, 4.0, 1.0)
MASS = PersistentProperty("mass", "m", "kg", 0.5, 3.0, 1.0, scale="log", physical_low_open=True)
BOTH = PersistentProperties([DRAG, MASS])
physical = st.floats(1e-6, 1e6)


def test_properties_are_iterable_printable_and_convertible_to_spaces():
    assert [p.name for p in BOTH] == ["drag", "mass"]
    assert BOTH["mass"] is MASS
    assert BOTH[0] is DRAG
    assert "drag" in BOTH
    assert "dragg" not in BOTH
    table = str(BOTH)
    assert all(word in table for word in ("drag", "γ", "1/s", "[0.5, 4]", "log", "nominal"))
    box, as_dict = BOTH.to_space("box"), BOTH.to_space("dict")
    assert box == gym.spaces.Box(np.array([0.5, 0.5]), np.array([4.0, 3.0]), dtype=np.float64)
    assert isinstance(as_dict, gym.spaces.Dict)
    assert list(as_dict) == ["drag", "mass"]
    assert as_dict.contains({"drag": np.array(1.0), "mass": np.array(1.0)})
    with pytest.raises(ValueError, match="'box' or 'dict'"):
        BOTH.to_space("tuple")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "pieces"),
    [
        ({"drga": 1.0, "mass": 1.0}, ["'drga'", "did you mean 'drag'"]),
        ({"Mass": 1.0, "drag": 1.0}, ["'Mass'", "did you mean 'mass'"]),
        ({"drag": 1.0}, ["'mass' is missing"]),
        ({"drag": -1.0, "mass": 1.0}, ["'drag'", "-1.0", "≥ 0", "1/s", "[0.5, 4]"]),
        ({"drag": 1.0, "mass": 0.0}, ["'mass'", "0.0", "> 0", "kg"]),
        ({"drag": np.nan, "mass": 1.0}, ["'drag'", "nan", "finite"]),
        ({"drag": np.inf, "mass": 1.0}, ["'drag'", "inf", "finite"]),
        ({"drag": [1.0, 2.0], "mass": 1.0}, ["'drag'", "(2,)"]),
        ({"drag": "fast", "mass": 1.0}, ["'drag'", "'fast'"]),
        ({"drag": None, "mass": 1.0}, ["'drag'", "one number", "None"]),
        ({"drag": "2", "mass": 1.0}, ["'drag'", "one number", "'2'"]),
        ({"drag": True, "mass": 1.0}, ["'drag'", "one number", "True"]),
        ({"drag": np.True_, "mass": 1.0}, ["'drag'", "one number", "True"]),
        (["2", 1.0], ["numbers", "'2'"]),
        ([1.0], ["('drag', 'mass')", "(1,)"]),
        ([[1.0, 2.0]], ["(1, 2)"]),
        ("drag", ["'drag'"]),
    ],
)
def test_bad_values_are_refused_by_name_value_and_legal_range(values, pieces):
    with pytest.raises(ValueError, match=r".+") as caught:
        BOTH.array(values)
    assert all(piece in str(caught.value) for piece in pieces), str(caught.value)


def test_declarations_that_contradict_themselves_are_refused():
    for bad in (
        {"low": 2.0, "high": 1.0},
        {"nominal": -1.0},
        {"scale": "log", "low": 0.0},
        {"scale": "cubic"},
        {"high": np.inf},
    ):
        with pytest.raises(ValueError, match="'x'"):
            PersistentProperty(
                **{"name": "x", "symbol": "x", "unit": "1", "low": 0.0, "high": 1.0, "nominal": 0.5} | bad
            )
    with pytest.raises(ValueError, match="unique"):
        PersistentProperties([DRAG, DRAG])


def test_batches_broadcast_scalars_and_name_the_offending_system():
    out = BOTH.batch({"drag": [1.0, 2.0, 3.0], "mass": 1.5}, 3)
    assert out.tolist() == [[1.0, 1.5], [2.0, 1.5], [3.0, 1.5]]
    assert BOTH.batch([1.0, 2.0], 2).tolist() == [[1.0, 2.0]] * 2
    with pytest.raises(ValueError, match=r"system 2"):
        BOTH.batch({"drag": [1.0, 2.0, -3.0], "mass": 1.5}, 3)
    with pytest.raises(ValueError, match=r"\(3,\)"):
        BOTH.batch({"drag": [1.0, 2.0], "mass": 1.5}, 3)


def test_a_system_is_immutable_hashable_picklable_and_named_by_content():
    system = System({"drag": 1.0, "mass": 2.0})
    assert system == System({"drag": 1.0, "mass": 2.0})
    assert system.id == System({"mass": 2.0, "drag": 1.0}).id
    assert system.id != System({"drag": 2.0, "mass": 1.0}).id
    assert System({"drag": 0.0}).id == System({"drag": -0.0}).id
    assert System({"drag": 1.0}).id != System({"mass": 1.0}).id
    assert len({system, System({"drag": 1.0, "mass": 2.0})}) == 1
    named = System({"drag": 1.0}, id="a", split="train", levels=[3])
    for twin in (pickle.loads(pickle.dumps(named)), copy.deepcopy(named), copy.copy(named)):
        assert twin == named
        assert (twin.split, twin.levels) == ("train", (3,))
    with pytest.raises(AttributeError, match="immutable"):
        system.id = "b"
    with pytest.raises(TypeError):
        system.values["drag"] = 3.0  # type: ignore[index]
    assert system.replace(drag=3.0).values == {"drag": 3.0, "mass": 2.0}
    with pytest.raises(ValueError, match="did you mean 'mass'"):
        system.replace(mas=3.0)
    assert BOTH.system(mass=2.0).values == {"drag": 1.0, "mass": 2.0}
    with pytest.raises(ValueError, match="did you mean 'drag'"):
        BOTH.system(darg=2.0)


@given(st.lists(st.tuples(physical, physical), min_size=1, max_size=20, unique=True))
@settings(max_examples=30, deadline=None)
def test_content_ids_do_not_depend_on_company_and_do_not_collide(rows):
    values = np.array(rows)
    ids = content_ids(("drag", "mass"), values)
    assert len(set(ids.tolist())) == len(rows)
    assert ids.tolist() == [System({"drag": a, "mass": b}).id for a, b in rows]


def make_set():
    return SystemSet.from_values(
        BOTH,
        {"drag": [0.5, 1.0, 2.0, 5.0], "mass": 1.0},
        ids=["a", "b", "c", "d"],
        split=["train", "train", "test", "test"],
        levels=[[0, 0], [1, 0], [2, 0], [3, 0]],
    )


def test_sets_index_by_position_id_mask_and_split():
    s = make_set()
    assert len(s) == 4
    assert s["c"] == s[2] == list(s)[2]
    assert s["c"].values == {"drag": 2.0, "mass": 1.0}
    assert (s["c"].split, s["c"].levels) == ("test", (2, 0))
    assert s.subset("test").ids.tolist() == ["c", "d"]
    assert s[1:3].ids.tolist() == ["b", "c"]
    assert s[s.column("drag") > 1.5].ids.tolist() == ["c", "d"]
    assert s.rows(["d", "a"]).tolist() == [3, 0]
    assert "a" in s
    assert s[0] in s
    assert "z" not in s
    assert BOTH.extrapolated(s.values).tolist() == [False, False, False, True]
    assert pickle.loads(pickle.dumps(s)) == s == copy.deepcopy(s)
    assert SystemSet.from_systems(BOTH, list(s)) == s
    assert s != s[:2]
    with pytest.raises(ValueError, match="read-only"):
        s.values[0, 0] = 9.0
    with pytest.raises(ValueError, match="unknown system id 'e'"):
        s["e"]
    with pytest.raises(ValueError, match="did you mean 'train'"):
        s.subset("trian")


def test_sets_refuse_bad_shapes_values_and_repeated_ids():
    with pytest.raises(ValueError, match=r"\(N, 2\), got \(3,\)"):
        SystemSet(BOTH, [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=r"'drag' = -1\.0"):
        SystemSet(BOTH, [[-1.0, 1.0]])
    with pytest.raises(ValueError, match="'a' occurs 2 times"):
        SystemSet(BOTH, [[1.0, 1.0], [2.0, 1.0]], ids=["a", "a"])
    for bad in ([["1", "2"]], [[True, False]]):
        with pytest.raises(ValueError, match="given by numbers"):
            SystemSet(BOTH, bad)
    for bad in ("2", True, None, [1.0]):
        with pytest.raises(ValueError, match="property 'drag' must be one number"):
            System({"drag": bad})
    with pytest.raises(ValueError, match="property 'drag' is given by numbers"):
        SystemDistribution(BOTH, {"drag": ["1", "2"]})
    for levels, shape in (([[1.0, 2.0], [3.0, 4.0]], r"\(2, 2\)"), (1.0, r"\(\)")):
        with pytest.raises(ValueError, match=rf"property 'drag': levels have shape {shape}; legal: a list of numbers"):
            SystemDistribution(BOTH, {"drag": levels})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="'drag' must be a number or shape"):
        BOTH.batch({"drag": ["1", "2"], "mass": 1.0}, 2)
    assert BOTH.batch({"drag": np.array([1, 2.5], object), "mass": 1}, 2).tolist() == [[1.0, 1.0], [2.5, 1.0]]
    with pytest.raises(ValueError, match="split must have shape"):
        SystemSet(BOTH, [[1.0, 1.0]], split=["a", "b"])


def test_vary_changes_exactly_one_property():
    base = System({"drag": 1.0, "mass": 2.0})
    s = vary(BOTH, base, "mass", [1.0, 2.0, 3.0])
    assert s.column("drag").tolist() == [1.0] * 3
    assert s.column("mass").tolist() == [1.0, 2.0, 3.0]
    assert s[1] == base
    with pytest.raises(ValueError, match=r"'mass' = -1\.0"):
        vary(BOTH, base, "mass", [-1.0])
    with pytest.raises(ValueError, match=r"values of property 'mass' must all be different.*: 2\.0 occurs 2 times"):
        vary(BOTH, base, "mass", [1.0, 2.0, 2.0])
    with pytest.raises(ValueError, match="property 'mass' is given by numbers"):
        vary(BOTH, base, "mass", ["1"])


def test_distributions_are_uniform_on_the_propertys_scale_and_reproducible():
    d = SystemDistribution(BOTH)
    s = d.sample(4000, np.random.default_rng(0))
    assert s == d.sample(4000, np.random.default_rng(0))
    assert stats.kstest(s.column("drag"), stats.uniform(0.5, 3.5).cdf).pvalue > 1e-3
    assert stats.kstest(s.column("mass"), stats.loguniform(0.5, 3.0).cdf).pvalue > 1e-3
    edges = d.from_uniforms(np.array([[0.0, 0.0], [1.0, 1.0]]))
    assert np.allclose(edges, [[0.5, 0.5], [4.0, 3.0]], rtol=1e-15)
    grid = SystemDistribution(BOTH, {"mass": [0.5, 1.0, 2.0]})
    assert pickle.loads(pickle.dumps(grid)) == grid
    drawn = grid.from_uniforms(np.random.default_rng(1).random((3000, 2)))[:, 1]
    assert stats.chisquare(np.unique(drawn, return_counts=True)[1]).pvalue > 1e-3
    with pytest.raises(ValueError, match=r"level -1\.0"):
        SystemDistribution(BOTH, {"mass": [-1.0]})
    with pytest.raises(ValueError, match="did you mean 'mass'"):
        SystemDistribution(BOTH, {"mas": [1.0]})


def test_combinations_of_levels_are_every_system_of_a_group_once():
    both = PersistentProperties([PersistentProperty(name, name, "1", 0.0, 2.0, 1.0) for name in ("a", "b")])
    systems = SystemDistribution(both, {"a": [0.0, 1.0], "b": [0.5, 1.0, 2.0]}).combinations()
    assert systems.values.tolist() == [[a, b] for a in (0.0, 1.0) for b in (0.5, 1.0, 2.0)]
    with pytest.raises(ValueError, match="'b' is drawn from a range"):
        SystemDistribution(both, {"a": [0.0, 1.0]}).combinations()


def test_a_system_is_a_mapping_of_names_to_numbers():
    values = {"drag": 1.0, "mass": 2.0}
    system = System(values, id="a", split="train")
    assert isinstance(system, Mapping)
    assert dict(system) == dict(system.items()) == {**system} == values
    assert list(system) == list(system.keys()) == ["drag", "mass"]
    assert list(system.values()) == [1.0, 2.0]  # and the attribute is still there
    assert system.values["mass"] == 2.0
    assert system.values == values
    assert len(system) == 2
    assert "mass" in system
    assert "mas" not in system
    assert 0 not in system
    assert system.get("mass") == 2.0
    assert system.get("mas", 5.0) == 5.0
    assert {**values} != system  # a system is more than its values
    assert system != System(values, id="b")
    assert hash(system) == hash(System(values, id="a"))
    match system:
        case {"mass": mass}:
            assert mass == 2.0
    for error in (KeyError, ValueError):
        with pytest.raises(error, match="unknown property 'mas'; did you mean 'mass'") as caught:
            system["mas"]
    assert not str(caught.value).startswith('"')
    assert BOTH.array(system).tolist() == [1.0, 2.0]
    assert SystemSet.from_values(BOTH, system).values.tolist() == [[1.0, 2.0]]
    assert pickle.loads(pickle.dumps(system)) == system


@pytest.mark.parametrize("wrong", [[1.0], "drag", None, 5])
def test_a_system_of_something_else_is_refused(wrong):
    with pytest.raises(ValueError, match="a system is a mapping of property names to numbers"):
        System(wrong)


def test_labels_and_levels_are_not_made_from_other_things():
    for levels in ("12", [1.5, 2.0], [True, False], np.ma.array([1, 2], mask=[0, 1])):
        with pytest.raises(ValueError, match="levels must be integers"):
            System({"drag": 1.0, "mass": 1.0}, levels=levels)
        with pytest.raises(ValueError, match="levels must be integers"):
            SystemSet(BOTH, [[1.0, 1.0]], levels=[levels])
    for labels in ([1.5], [None], [b"a"], [True]):
        for name in ("ids", "split"):
            with pytest.raises(ValueError, match=f"{name} must be text"):
                SystemSet(BOTH, [[1.0, 1.0]], **{name: labels})
    for mixed in (["a", float("nan")], ["1", 1], [True, 2]):  # of which NumPy makes text, or one number of two
        for name in ("ids", "split"):
            with pytest.raises(ValueError, match=f"{name} must be text, all of it"):
                SystemSet(BOTH, [[1.0, 1.0], [2.0, 2.0]], **{name: mixed})
    assert SystemSet(BOTH, [[1.0, 1.0]], ids=[7]).ids.tolist() == ["7"]
    for n in (1.5, "3", True):
        with pytest.raises(ValueError, match=r"n is .*; legal: an integer"):
            SystemDistribution(BOTH).sample(n, np.random.default_rng(0))
    for low in ("0.5", True, 10**40):
        with pytest.raises(ValueError, match="low must be a number"):
            PersistentProperty("x", "x", "1", low, 10**41, 10**40)
    with pytest.raises(TypeError):
        DRAG.is_physical("1")


def test_a_set_is_a_sequence_of_systems_also_found_by_id():
    s = make_set()
    assert isinstance(s, Sequence)
    assert s.index("c") == s.index(s["c"]) == s.index("c", 1, 3) == 2
    assert s.count(s["c"]) == 1
    for absent in ("z", System(s["c"].values, id="c"), s["c"].replace(drag=3.0)):
        with pytest.raises(ValueError, match=r"unknown system id|is not in the set"):
            s.index(absent)
    with pytest.raises(ValueError, match="'c' is not in the set"):
        s.index("c", 3)
    for key in (True, np.True_):
        with pytest.raises(TypeError, match="indexed by position"):
            s[key]
    with pytest.raises(ValueError, match="PersistentProperty declarations, got 'drag'"):
        SystemSet(["drag"], [[1.0]])


def test_what_has_names_is_read_by_them():
    """A row and columns of a data frame in another order than the properties', and one that lacks a property."""
    pandas = pytest.importorskip("pandas")
    row = pandas.Series({"mass": 2.0, "drag": 0.5})
    frame = pandas.DataFrame({"mass": [2.0, 3.0], "drag": [0.5, 1.0]})
    assert BOTH.array(row).tolist() == [0.5, 2.0]
    assert BOTH.batch(frame, 2).tolist() == BOTH.batch(frame, None).tolist() == [[0.5, 2.0], [1.0, 3.0]]
    assert SystemSet(BOTH, frame).values.tolist() == [[0.5, 2.0], [1.0, 3.0]]
    assert SystemSet.from_values(BOTH, frame).values.tolist() == [[0.5, 2.0], [1.0, 3.0]]
    with pytest.raises(ValueError, match="'mass' is missing"):
        BOTH.array(row.drop("mass"))
    env = gym.make("sprii/SpringWorld-v0")
    _, info = env.reset(options={"system": pandas.Series({"stiffness": 20.0, "drag": 0.5, "mass": 1.0})})
    assert info["persistent"].tolist() == [1.0, 0.5, 20.0]


def test_declarations_hold_pythons_numbers():
    """NumPy's are no JSON, which a bank writes when all of it is simulated."""
    made = PersistentProperty("drag", "γ", "1/s", np.float32(0.5), np.int64(4), np.float64(1.0))
    assert [type(value) for value in (made.low, made.high, made.nominal)] == [float, int, float]
    assert made == DRAG
