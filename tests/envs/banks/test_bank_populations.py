"""Populations: counted and enumerated by hand, and the factorial allocation against the paper's donor counts."""

import itertools
import json

import numpy as np
import pytest

from sprii_envs.banks import populations
from sprii_envs.banks.populations import (
    Combinations,
    Extrapolated,
    FactorialBlocks,
    Interpolated,
    Uniform,
    Union,
)
from sprii_envs.properties import PersistentProperties, PersistentProperty, SystemDistribution
from sprii_envs.relations import EpisodeTable, PairSampler, Relation

PROPERTIES = PersistentProperties(
    [
        PersistentProperty(name="mass", symbol="m", unit="kg", low=0.5, high=3.0, nominal=1.0, scale="log"),
        PersistentProperty(name="drag", symbol="γ", unit="1/s", low=0.5, high=4.0, nominal=1.0),
        PersistentProperty(name="stiffness", symbol="k", unit="N/m", low=5e2, high=6e3, nominal=1e3, scale="log"),
    ]
)
LEVELS = {"mass": 3, "drag": (0.5, 1.0, 3.0), "stiffness": 4}
MASS, DRAG = np.array([0.5, np.sqrt(1.5), 3.0]), np.array([0.5, 1.0, 3.0])
STIFFNESS = 500.0 * 12.0 ** (np.arange(4) / 3)
EVERY = (
    Uniform(7),
    Combinations(LEVELS),
    Combinations(LEVELS, modulus=3, residues=(0, 2)),
    Interpolated(LEVELS, each=2),
    Extrapolated(LEVELS, {"mass": (0.4, 3.5), "stiffness": (7000.0,)}, each=5),
    FactorialBlocks(LEVELS, first=1, last=3),
    Union({"a": Uniform(2), "b": Interpolated(LEVELS)}),
)


def draw(population, seed=0):
    return population.draw(PROPERTIES, np.random.default_rng(seed))


@pytest.mark.parametrize("population", EVERY, ids=lambda p: p.kind)
def test_shapes_distinct_systems_and_json(population):
    drawn = draw(population)
    assert drawn.values.shape == drawn.levels.shape == (population.count, 3)
    assert drawn.group.shape == (population.count,)
    assert len(np.unique(drawn.values, axis=0)) == population.count
    assert np.array_equal(draw(population).values, drawn.values)
    data = populations.to_dict(population)
    assert populations.from_dict(json.loads(json.dumps(data))) == population
    for column, values in enumerate((MASS, DRAG, STIFFNESS)):
        on = drawn.levels[:, column] >= 0
        np.testing.assert_allclose(drawn.values[on, column], values[drawn.levels[on, column]], rtol=1e-14)


def test_uniform_is_the_declared_distribution():
    sample = SystemDistribution(PROPERTIES).sample(7, np.random.default_rng(0))
    drawn = draw(Uniform(7))
    assert np.array_equal(drawn.values, sample.values)
    assert (drawn.levels == -1).all()
    assert (drawn.group == "").all()


def test_combinations_are_those_with_the_residues():
    drawn = draw(Combinations(LEVELS, modulus=3, residues=(0, 2)))
    expected = [t for t in itertools.product(range(3), range(3), range(4)) if sum(t) % 3 in (0, 2)]
    assert drawn.levels.tolist() == [list(t) for t in expected]


def test_evenly_spaced_levels_include_both_ends_exactly():
    values = draw(Combinations({"mass": 7, "drag": 5, "stiffness": 28})).values
    for column, p in enumerate(PROPERTIES):
        assert values[:, column].min() == p.low
        assert values[:, column].max() == p.high
        scale = np.log if p.scale == "log" else np.asarray
        np.testing.assert_allclose(np.diff(scale(np.unique(values[:, column])), 2), 0.0, atol=1e-13)


def test_interpolated_systems_have_one_value_between_levels():
    drawn = draw(Interpolated(LEVELS, each=2))
    assert len(drawn.values) == 2 * (2 + 2 + 3)
    assert ((drawn.levels == -1).sum(axis=1) == 1).all()
    middles = {
        0: np.sqrt(MASS[1:] * MASS[:-1]),
        1: (DRAG[1:] + DRAG[:-1]) / 2,
        2: np.sqrt(STIFFNESS[1:] * STIFFNESS[:-1]),
    }
    for column, expected in middles.items():
        new = drawn.values[drawn.levels[:, column] == -1, column]
        np.testing.assert_allclose(new, np.repeat(expected, 2), rtol=1e-14)
    others = np.concatenate([draw(Interpolated(LEVELS, each=9), seed).levels[:9, 1:] for seed in range(20)])
    assert len(np.unique(others, axis=0)) == 12  # every combination of the others is drawn


def test_extrapolated_systems_have_one_value_beyond_its_range():
    drawn = draw(EVERY[4])
    assert [v for v in drawn.values[:10, 0]] == [0.4] * 5 + [3.5] * 5
    assert (drawn.values[10:, 2] == 7000.0).all()
    assert (PROPERTIES.extrapolated(drawn.values)).all()
    assert ((drawn.levels == -1).sum(axis=1) == 1).all()
    with pytest.raises(ValueError, match=r"'drag': 3.9 is not beyond the range"):
        draw(Extrapolated(LEVELS, {"drag": (3.9,)}))


def test_a_union_names_its_groups():
    drawn = draw(EVERY[6])
    assert drawn.group.tolist() == ["a"] * 2 + ["b"] * 7
    assert np.array_equal(drawn.values[:2], draw(Uniform(2)).values)


FACTORIAL = {"mass": 10, "drag": 10, "stiffness": 28}
SPLITS = {
    "train": (FactorialBlocks(FACTORIAL, 0, 20), 2000, {173, 174}, {19}),
    "validation": (FactorialBlocks(FACTORIAL, 20, 24), 400, {35, 36}, {3}),
    "confirmation": (FactorialBlocks(FACTORIAL, 24, 28), 400, {35, 36}, {3}),
}
G1 = Relation(shared=("mass",), differ=("drag", "stiffness"))
G2 = Relation(shared=("mass", "drag"), differ=("stiffness",))


def test_the_factorial_splits_cover_the_design_once():
    levels = np.concatenate([draw(population).levels for population, *_ in SPLITS.values()])
    assert len(levels) == len(np.unique(levels, axis=0)) == 2800


@pytest.mark.parametrize("split", SPLITS)
def test_the_papers_eligible_systems_by_brute_force(split):
    """Table `tab:donor-pool-audit`: G1 173–174 and 35–36, G2 19 and 3."""
    population, count, g1, g2 = SPLITS[split]
    levels = draw(population).levels
    assert len(levels) == population.count == count
    same = levels[:, None] == levels[None]
    assert set((same[..., 0] & ~same[..., 1] & ~same[..., 2]).sum(axis=1)) == g1
    assert set((same[..., 0] & same[..., 1] & ~same[..., 2]).sum(axis=1)) == g2
    for other in (0, 1):  # every level of the stiffness is as frequent at each level of the others, up to one
        counts = np.zeros((10, 28), int)
        np.add.at(counts, (levels[:, other], levels[:, 2]), 1)
        assert counts.max() - counts.min() == 1


@pytest.mark.parametrize("split", SPLITS)
def test_the_papers_eligible_systems_by_the_audit(split):
    population, count, g1, g2 = SPLITS[split]
    levels = np.repeat(draw(population).levels, 4, axis=0)
    rows = np.arange(4 * count)
    columns = {"episode": rows, "system": rows // 4, "rollout": rows % 4, "length": np.full(len(rows), 64)}
    table = EpisodeTable(columns | dict(zip(PROPERTIES.names, levels.T, strict=True)))
    for relation, expected in ((G1, g1), (G2, g2)):
        audit = PairSampler(table, relation).audit(draws=1000)
        assert audit.eligible_systems == (min(expected), max(expected))
        assert audit.eligible_histories == (4 * min(expected), 4 * max(expected))
        assert audit.coverage == 1.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Uniform(0), "count is 0; legal: an integer >= 1"),
        (lambda: Combinations({}), "levels must name every property"),
        (lambda: Combinations({"mass": 0}), "number of levels of 'mass'"),
        (lambda: Combinations({"mass": (1.0, 1.0)}), "levels of 'mass' must be distinct"),
        (lambda: Combinations(LEVELS, modulus=2, residues=(2,)), "residues must be among 0…1"),
        (lambda: Combinations(LEVELS, modulus=60, residues=(59,)), "number of combinations is 0; legal"),
        (lambda: draw(Combinations({"mass": 2})), "levels must name exactly the properties"),
        (
            lambda: Interpolated(LEVELS, each=10),
            "each = 10, but beside 'stiffness' there are only 9",
        ),
        (lambda: Interpolated({"mass": 1, "drag": 1}), "at least 2 levels"),
        (lambda: Extrapolated(LEVELS, {"size": (1.0,)}), "beyond names \\['size'\\]"),
        (lambda: Extrapolated(LEVELS, {"stiffness": (9e3,)}, each=10), "beside 'stiffness' there are only 9"),
        (lambda: Extrapolated(LEVELS, {}), "number of values beyond"),
        (lambda: Extrapolated(LEVELS, {"mass": (9.0, 9.0)}), "names a value twice"),
        (lambda: FactorialBlocks(LEVELS, 2, 5), "first < last"),
        (lambda: FactorialBlocks({"mass": 5}, 0, 2), "two properties or more"),
        (lambda: draw(FactorialBlocks({"drag": 2, "mass": 2, "stiffness": 2}, 0, 1)), "in the order of"),
        (lambda: Union({}), "named groups"),
        (lambda: Union({"a": Union({"b": Uniform(1)})}), "cannot be a union"),
        (lambda: populations.from_dict({"kind": "gauss", "count": 3}), "unknown population kind 'gauss'"),
        (lambda: populations.from_dict({"kind": "uniform", "n": 3}), "needs exactly \\['count'\\]"),
    ],
)
def test_illegal_populations(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_what_lies_beyond_needs_levels_of_the_others_alone():
    found = draw(Extrapolated(LEVELS, {"mass": (9.0,)}, each=12))  # of 3 drags and 4 stiffnesses
    assert len({tuple(row) for row in np.asarray(found.values).tolist()}) == 12


def test_levels_to_interpolate_between_are_in_order():
    assert Interpolated({"drag": (3.0, 2.0, 1.0)}).count == 2
    with pytest.raises(ValueError, match=r"levels of 'drag' are \(1.0, 3.0, 2.0\); legal: in order"):
        Interpolated({"drag": (1.0, 3.0, 2.0)})
