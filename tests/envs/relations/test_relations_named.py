"""Relations and kernels by name."""

import numpy as np
import pytest
from relation_tables import factorial, legal, poke, systems

from sprii_envs.relations import (
    NAMED_KERNELS,
    NAMED_RELATIONS,
    SAME_ROLLOUT,
    SAME_SYSTEM,
    Derangement,
    EpisodeTable,
    Mismatch,
    Mixture,
    NoLegalDonorError,
    PairSampler,
    Relation,
    Uniform,
    donor_bank,
    named_kernel,
    named_relation,
)


def test_the_refinement_keys_of_the_paper():
    levels, values = poke("validation"), factorial()
    for table, end in ((levels, "_level"), (values, "")):
        mass, drag, stiffness = (f"{name}{end}" for name in ("mass", "drag", "stiffness"))
        assert named_relation("G1", table) == Relation((mass,), (drag, stiffness), name="G1")
        assert named_relation("G2", table) == Relation((mass, drag), (stiffness,), name="G2")
        assert named_relation("G3", table) == Relation((mass, drag, stiffness), name="G3")
    assert named_relation("same-system", values) is SAME_SYSTEM
    assert named_relation("same-rollout", values) is SAME_ROLLOUT


def test_g3_is_the_same_system_on_the_factorial_bank():
    table = poke("validation")
    a, b = (PairSampler(table, named_relation(name, table), seed=1) for name in ("G3", "same-system"))
    assert all((x == y).all() for x, y in zip(a.batch(0, 100), b.batch(0, 100), strict=True))
    assert a.audit(100).supported_histories == (3, 3)


@pytest.mark.parametrize(("split", "g1", "g2"), [("train", (173, 174), (19, 19)), ("validation", (35, 36), (3, 3))])
def test_eligible_systems_of_the_paper(split, g1, g2):
    table = poke(split)
    for name, expected in (("G1", g1), ("G2", g2), ("G3", (1, 1))):
        assert PairSampler(table, named_relation(name, table)).audit(100).eligible_systems == expected


@pytest.mark.parametrize("other_system", [False, True])
def test_labels_of_the_user(other_system):
    table = systems([3, 3, 3], partner=["x", "y", "x"] * 3)
    relation = named_relation("label:partner", table, other_system=other_system)
    assert str(relation) == "label:partner"
    recipient, donor, _ = PairSampler(table, relation).batch(0, 2000)
    allowed = legal(table, Relation(("partner",), ("system",) if other_system else ()))
    assert set(zip(recipient, donor, strict=True)) == set(zip(*np.nonzero(allowed), strict=True))


def test_kernels_by_name():
    table = factorial(2, 8, 3, 2)
    g1, g3 = named_relation("G1", table), named_relation("G3", table)
    assert named_kernel("uniform", table, g3) == Uniform()
    assert named_kernel("derangement", table, g3) == Derangement()
    assert named_kernel("derangement:mass", table, g3) == Derangement(by="mass")
    assert named_kernel("mismatch:drag", table, g3) == Mismatch("drag")
    assert named_kernel("mismatch:drag", table, g3, alpha=0.25) == Mixture(0.25, wrong=Mismatch("drag"))
    assert named_kernel("derangement", table, g3, alpha=0.0) == Mixture(0, wrong=Derangement())
    assert named_kernel("candidates", table, g1, seed=4) == donor_bank(table, 4)["G1"]


NAN = systems([2, 2], shape=[1.0, float("nan"), 2.0, 2.0])
OFF = systems([2, 2], mass_level=[0, 0, -1, -1], drag=[0] * 4, stiffness=[0] * 4)


@pytest.mark.parametrize(
    ("name", "table", "message"),
    [
        ("G4", factorial(), "unknown relation 'G4'; did you mean 'G[123]'.*legal names: G1, G2, G3, same-system"),
        ("same-sistem", factorial(), "unknown relation 'same-sistem'; did you mean 'same-system'"),
        ("label:", factorial(), "unknown relation 'label:'; did you mean 'label:COLUMN'"),
        ("label:colour", factorial(), "no column 'colour' in the episode table"),
        ("label:mas", factorial(), "no column 'mas' .*did you mean 'mass'"),
        ("label:shape", NAN, "column 'shape' is used as a label but is NaN for 1 episodes: 1"),
        ("G1", systems([2, 2]), "neither 'mass_level' nor 'mass'; columns: episode, system, rollout, length"),
        (
            "label:mass_level",
            OFF,
            r"2 of 4 episodes are off the levels of 'mass' \('mass_level' is -1\): episodes 2, 3",
        ),
        ("G1", OFF, r"2 of 4 episodes are off the levels of 'mass' \('mass_level' is -1\): episodes 2, 3"),
    ],
)
def test_bad_relations(name, table, message):
    with pytest.raises(ValueError, match=message):
        named_relation(name, table)


def test_another_system_goes_with_labels_only():
    with pytest.raises(ValueError, match="other_system=True goes with 'label:COLUMN' only, got 'G1'"):
        named_relation("G1", factorial(), other_system=True)


@pytest.mark.parametrize(
    ("name", "alpha", "message"),
    [
        ("uniformly", None, "unknown kernel 'uniformly'; did you mean 'uniform'"),
        ("mismatch", None, "unknown kernel 'mismatch'; did you mean 'mismatch:FACTOR'"),
        ("derangement:", None, "unknown kernel 'derangement:'; did you mean 'derangement'"),
        ("candidates", None, "made for the relations G1 and G2, not for 'same system'"),
        ("mismatch:drag", None, "and 'same system' shares 'system': take a relation over the factors, such as G3$"),
        ("uniform", 0.5, "needs the kernel derangement or mismatch:FACTOR, not 'uniform'"),
        ("derangement", 1.5, r"alpha is 1\.5; legal: a number in \[0, 1\]"),
        ("derangement", float("nan"), r"alpha is nan; legal"),
    ],
)
def test_bad_kernels(name, alpha, message):
    with pytest.raises(ValueError, match=message):
        named_kernel(name, factorial(), SAME_SYSTEM, alpha=alpha)


def test_the_named_errors_of_a_table():
    columns = {"episode": [1, 1, 2], "system": [0, 0, 1], "rollout": [0, 1, 0], "length": [9, 9, 9]}
    with pytest.raises(ValueError, match="'episode' must hold unique ids; 1 occur more than once: 1"):
        EpisodeTable(columns)
    table = systems([1, 1, 1], task=["a", "b", "c"])
    with pytest.raises(NoLegalDonorError, match="relation 'label:task' 3 of 3 recipients have no legal donor"):
        PairSampler(table, named_relation("label:task", table))


def test_every_name_is_explained():
    assert list(NAMED_RELATIONS) == ["G1", "G2", "G3", "same-system", "same-rollout", "label:COLUMN"]
    assert list(NAMED_KERNELS) == ["uniform", "candidates", "derangement", "derangement:COLUMN", "mismatch:FACTOR"]
