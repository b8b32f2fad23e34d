"""The arms of every table: context, relation, kernel and weights, written out once more; and whom they pair."""

from dataclasses import replace

import numpy as np
import pytest

from sprii_envs.banks import Bank
from sprii_envs.relations import SAME_ROLLOUT, SAME_SYSTEM, Derangement, PairSampler, Uniform
from sprii_train.protocol import Objective
from sprii_train.recipes import (
    ADAPTED_RECIPES,
    CONTEXT_RECIPES,
    CONTROL_RECIPES,
    COPHY_RECIPES,
    EVERY_RECIPE,
    FHN_RECIPES,
    FIELD_RECIPES,
    FROZEN_RECIPES,
    GRASP_RECIPES,
    LATENT_RECIPES,
    LINKED,
    PARTNER_RECIPES,
    POKE_RECIPES,
    RECIPES,
    REFERENCE_RECIPES,
    SCENE_RECIPES,
    SPRING_RECIPES,
    STATE_RECIPES,
    SWIMMER_RECIPES,
    TDS_RECIPES,
    Compared,
    Endpoint,
    ObjectRecipe,
    Spaced,
    recipe,
)
from sprii_train.settings import named_setting

EXPECTED = {
    "native": ("monolithic", SAME_SYSTEM, Uniform(), 0.0, 0.0),
    "structure": ("split", SAME_SYSTEM, Uniform(), 0.0, 0.0),
    "same-rollout": ("split", SAME_ROLLOUT, Uniform(), 1.0, 0.0),
    "align": ("split", SAME_SYSTEM, Uniform(), 1.0, 0.0),
    "cross": ("split", SAME_SYSTEM, Uniform(), 0.0, 0.1),
    "align-cross": ("split", SAME_SYSTEM, Uniform(), 1.0, 0.1),
    "align-random": ("split", SAME_SYSTEM, Derangement(), 1.0, 0.0),
    "supervised": ("supervised", SAME_SYSTEM, Uniform(), 0.0, 0.0),
}


def test_every_arm():
    assert list(RECIPES) == list(EXPECTED)
    for name, (context, relation, kernel, lambda_p, lambda_x) in EXPECTED.items():
        arm = recipe(name)
        assert arm.name == name
        assert (arm.context, arm.relation, arm.kernel) == (context, relation, kernel)
        directions = "one" if lambda_x else "both"
        assert arm.objective == Objective(lambda_p=lambda_p, lambda_x=lambda_x, cross_directions=directions)
    assert len({arm.label for arm in RECIPES.values()}) == len(RECIPES)


def test_what_the_paper_leaves_open():
    """Native loss on all windows, and Cross from donors to recipients, in every arm alike."""
    for arm in (*RECIPES.values(), *SPRING_RECIPES.values()):
        assert arm.objective.native_on == "all"
        assert not arm.objective.lambda_x or arm.objective.cross_directions == "one"
        assert (arm.objective.invariance, arm.objective.variance, arm.objective.covariance) == (
            25.0,
            25.0,
            1.0,
        )


def test_unknown_arm():
    with pytest.raises(
        ValueError, match=r"unknown arm 'algin'; did you mean 'align'\? legal names: native, structure, .*supervised"
    ):
        recipe("algin")


def test_the_arms_of_pokeworld_and_springworld():
    align, linked = Objective(lambda_p=1.0), ("inferred", "random-history")
    assert list(POKE_RECIPES) == [
        "alpha-0", "alpha-0.5", "alpha-1", "g1", "g2", "g3", "mismatch-random", "mismatch-drag", "mismatch-mass",
        "supervised-drag", "spaced-rollout", "spaced-system", "inferred", "random-history",
        "nce-0.07-0.1", "nce-0.07-1", "nce-0.1-0.1", "nce-0.1-1", "nce-0.2-0.1", "nce-0.2-1",
    ]  # fmt: skip
    for name, arm in POKE_RECIPES.items():
        if name.startswith("spaced-"):
            assert arm.objective == Objective(lambda_p=1.0, lambda_x=0.1, cross_directions="one"), name
        elif name == "supervised-drag":
            assert (arm.objective, arm.context) == (Objective(), "split")  # its labels are the learner's
        elif not name.startswith("nce-"):
            assert arm.objective == align, name
    with pytest.raises(ValueError, match=r"Spaced\.apart is 0; legal: an integer >= 1"):
        Spaced("own", "Own", align, apart=0)
    for temperature in (0.07, 0.1, 0.2):
        for weight in (0.1, 1.0):
            arm = POKE_RECIPES[f"nce-{temperature:g}-{weight:g}"]
            assert arm.objective == Objective(lambda_nce=weight, temperature=temperature)
            assert (arm.relation, arm.kernel) == (SAME_SYSTEM, Uniform())
    assert [name for name, arm in EVERY_RECIPE.items() if arm.kernel == LINKED] == list(linked)
    assert {name: (a.objective.lambda_p, a.objective.lambda_x) for name, a in SPRING_RECIPES.items()} == {
        "supervised-split": (0.0, 0.0),
        "weights-0.25-0.1": (0.25, 0.1), "weights-4-0.1": (4.0, 0.1),
        "weights-1-0.025": (1.0, 0.025), "weights-1-0.4": (1.0, 0.4),
    }  # fmt: skip
    own = (
        RECIPES, POKE_RECIPES, SPRING_RECIPES, CONTROL_RECIPES, PARTNER_RECIPES, FIELD_RECIPES, FHN_RECIPES,
        ADAPTED_RECIPES, COPHY_RECIPES, GRASP_RECIPES, SWIMMER_RECIPES, SCENE_RECIPES, TDS_RECIPES,
        STATE_RECIPES, LATENT_RECIPES, REFERENCE_RECIPES, CONTEXT_RECIPES, FROZEN_RECIPES,
    )  # fmt: skip
    assert len(EVERY_RECIPE) == sum(map(len, own))
    assert all(arm.name == name and arm.context == "split" for name, arm in (POKE_RECIPES | SPRING_RECIPES).items())
    assert len({arm.label for arm in EVERY_RECIPE.values()}) == len(EVERY_RECIPE)


def test_the_arms_of_other_learners_of_states():
    own = {
        "cadm-offline": ("cadm", 0, 0), "cadm-align-cross": ("cadm", 1, 0.1), "fcrl": ("fcrl", 0, 0),
        "fcrl-align": ("fcrl", 1, 0), "nod-states": ("nod-states", 0, 0), "nod-states-align": ("nod-states", 1, 0),
        "dali": ("dali", 0, 0), "dali-eighth": ("dali", 0, 0), "dali-quarter": ("dali", 0, 0),
        "dali-half": ("dali", 0, 0), "dali-align-cross": ("dali", 1, 0.1),
    }  # fmt: skip
    found = {name: arm for name, arm in STATE_RECIPES.items() if isinstance(arm, Compared)}
    assert {n: (a.learner, a.objective.lambda_p, a.objective.lambda_x) for n, a in found.items()} == own
    ends = {name: (arm.of, arm.share) for name, arm in STATE_RECIPES.items() if isinstance(arm, Endpoint)}
    assert ends == {"dali-eighth": ("dali", 0.125), "dali-quarter": ("dali", 0.25), "dali-half": ("dali", 0.5)}
    budgets = named_setting("d-clean").budgets.values()
    assert all(
        budget.of(arm).train.steps == budget.others["dali"].train.steps / 8
        for budget in budgets
        for arm in [STATE_RECIPES["dali-eighth"]]
    )


def test_the_arms_of_objects():
    weights = {name: (a.objective.lambda_p, a.objective.lambda_x) for name, a in COPHY_RECIPES.items()}
    for family, expected in {
        "jepa": (0, 1), "j2": (0, 0.3), "cpc": (0, 1), "rssm": (0, 1), "net": (1, 0.1), "net50": (1, 0.1),
    }.items():  # fmt: skip
        arms = {arm: COPHY_RECIPES[f"cophy-{family}-{arm}"] for arm in ("native", "structure", "sprii", "random")}
        assert [weights[arm.name] for arm in arms.values()] == [(0, 0), (0, 0), expected, expected]
        assert [arm.context for arm in arms.values()] == ["monolithic", "split", "split", "split"]
        assert arms["sprii"].objective == arms["random"].objective
        assert arms["sprii"].objective.native_on == "recipients"
        told = [(arm.learner, arm.share, arm.donors) for arm in arms.values() if isinstance(arm, ObjectRecipe)]
        learner = {"j2": "jepa", "net": "cophynet", "net50": "cophynet"}.get(family, family)
        share = 0.5 if family in ("j2", "net50") else 1.0
        assert told == [(learner, share, donors) for donors in ("none", "none", "related", "random")]
    assert (weights["cophy-cpc-align"], weights["cophy-net-cross"]) == ((1, 0), (0, 0.1))
    with pytest.raises(ValueError, match=r"ObjectRecipe\.donors is 'none' with λp 0.0, λx 1.0; legal: none if both"):
        ObjectRecipe("own", "Own", Objective(lambda_x=1.0))
    with pytest.raises(ValueError, match=r"ObjectRecipe\.learner is 'gru'; legal: jepa, cpc, rssm, cophynet"):
        ObjectRecipe("own", "Own", Objective(), learner="gru")


# Whom they pair, on a full factorial design of 2 masses × 8 drags × 2 stiffnesses with 4 episodes a system

PAIRS, STEPS = 16, 25


def drawn(bank: Bank, name: str) -> dict[str, np.ndarray]:
    """Of 400 pairs: level of every factor, system, episode and step, `recipient` and `donor` in front."""
    table = bank.split("train")
    relation, kernel = EVERY_RECIPE[name].pairing(table)
    sampler = PairSampler(table, relation, kernel, seed=5, distinct="system")
    batches = [sampler.batch(step, PAIRS) for step in range(STEPS)]
    found = {"correct": np.array([b.correct for b in batches])}
    for side in ("recipient", "donor"):
        rows = np.array([getattr(b, side) for b in batches])
        found |= {
            f"{side} {c}": table[c][rows] for c in ("system", "episode", "mass", "drag", "stiffness", "drag_level")
        }
    assert all(len(set(row)) == PAIRS for row in found["recipient system"])  # distinct systems in a batch
    return found


def same(found: dict[str, np.ndarray], column: str) -> np.ndarray:
    """(steps, pairs): whether the two sides agree."""
    return found[f"recipient {column}"] == found[f"donor {column}"]


@pytest.mark.parametrize("name", ["align", "cross", "align-cross", "g3", "alpha-1", "nce-0.1-1", "weights-4-0.1"])
def test_correct_pairs_are_of_one_system_and_two_episodes(poke_bank: Bank, name: str):
    found = drawn(poke_bank, name)
    assert same(found, "system").all()
    assert not same(found, "episode").any()
    assert found["correct"].all()


def test_alpha_is_the_exact_share_of_correct_pairs(poke_bank: Bank):
    """Half of every batch at α = 0.5, none at 0; wrong donors are the batch's own, dealt to other systems."""
    none, half = drawn(poke_bank, "alpha-0"), drawn(poke_bank, "alpha-0.5")
    assert not same(none, "system").any()
    assert (np.sort(none["recipient system"]) == np.sort(none["donor system"])).all()
    assert (same(half, "system").sum(1) == PAIRS // 2).all()
    assert (same(half, "system") == half["correct"]).all()
    for found in (half, drawn(poke_bank, "alpha-1"), drawn(poke_bank, "align-random")):
        assert (found["recipient episode"] == none["recipient episode"]).all()  # one stream of recipients
    assert (np.sort(half["recipient system"]) == np.sort(half["donor system"])).all()


def test_g1_shares_mass_and_draws_from_three_frozen_candidates(poke_bank: Bank):
    """Drags 1, 3 and 7 levels on, modulo 8, and the other of two stiffnesses."""
    found = drawn(poke_bank, "g1")
    assert same(found, "mass").all()
    assert not same(found, "drag").any()
    assert not same(found, "stiffness").any()
    steps = (found["donor drag_level"] - found["recipient drag_level"]) % 8
    counts = np.bincount(steps.ravel(), minlength=8)
    assert set(np.flatnonzero(counts)) == {1, 3, 7}
    assert (np.abs(counts[[1, 3, 7]] - 400 / 3) < 5 * np.sqrt(400 * 2 / 9)).all()


def test_g2_shares_mass_and_drag(poke_bank: Bank):
    found = drawn(poke_bank, "g2")
    assert same(found, "mass").all()
    assert same(found, "drag").all()
    assert not same(found, "stiffness").any()
    assert len(np.unique(found["donor episode"] % 4)) == 4  # every episode of the one candidate


@pytest.mark.parametrize(("name", "wrong", "kept"), [
    ("mismatch-drag", "drag", ("mass", "stiffness")), ("mismatch-mass", "mass", ("drag", "stiffness")),
])  # fmt: skip
def test_structured_mismatch_is_wrong_in_one_factor_of_half_of_the_pairs(poke_bank: Bank, name: str, wrong: str, kept):
    found = drawn(poke_bank, name)
    assert all(same(found, factor).all() for factor in kept)
    assert (same(found, wrong).sum(1) == PAIRS // 2).all()
    assert (same(found, wrong) == same(found, "system")).all()
    assert not same(found, "episode").any()
    other = found[f"donor {wrong}"][~same(found, wrong)]
    assert len(np.unique(other)) == (8 if wrong == "drag" else 2)


def test_random_mismatch_is_another_system_in_half_of_the_pairs(poke_bank: Bank):
    found = drawn(poke_bank, "mismatch-random")
    assert (same(found, "system").sum(1) == PAIRS // 2).all()
    wrong = ~same(found, "system")
    for factor, share in (("mass", 15 / 31), ("drag", 3 / 31), ("stiffness", 15 / 31)):
        rate = same(found, factor)[wrong].mean()
        assert abs(rate - share) < 5 * np.sqrt(share * (1 - share) / wrong.sum())


def test_names_that_a_table_does_not_support(poke_bank: Bank, bank: Bank):
    with pytest.raises(ValueError, match="mass"):
        POKE_RECIPES["g1"].pairing(bank.split("train"))
    with pytest.raises(ValueError, match="unknown kernel 'linked'"):
        POKE_RECIPES["inferred"].pairing(poke_bank.split("train"))
    with pytest.raises(ValueError, match="unknown kernel 'shifted'"):
        CONTROL_RECIPES["random"].pairing(poke_bank.split("train"))
    with pytest.raises(ValueError, match="unknown relation 'G4'"):
        replace(POKE_RECIPES["g1"], relation="G4").pairing(poke_bank.split("train"))


def test_the_twins_of_a_frozen_stem_differ_in_what_trains_alone():
    frozen, moved = (FROZEN_RECIPES[f"alpha-1-{name}"] for name in ("frozen", "end-to-end"))
    named = {"name": "", "label": "", "learner": "any"}
    assert replace(frozen, **named) == replace(moved, **named)
    alone = POKE_RECIPES["alpha-1"]
    assert (frozen.objective, frozen.relation, frozen.kernel, frozen.alpha) == (
        alone.objective, alone.relation, alone.kernel, alone.alpha,
    )  # fmt: skip
