"""The arms of the D-Clean table: context, relation, kernel and weights, written out once more."""

import pytest

from sprii_envs.relations import SAME_ROLLOUT, SAME_SYSTEM, Derangement, Uniform
from sprii_train.protocol import Objective
from sprii_train.recipes import RECIPES, recipe

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
        assert arm.objective == Objective(lambda_p=lambda_p, lambda_x=lambda_x)
    assert len({arm.label for arm in RECIPES.values()}) == len(RECIPES)


def test_what_the_paper_leaves_open():
    """Native loss on all windows and Cross in both directions, in every arm alike."""
    for arm in RECIPES.values():
        assert (arm.objective.native_on, arm.objective.cross_directions) == ("all", "both")
        assert (arm.objective.invariance, arm.objective.variance, arm.objective.covariance) == (
            25.0,
            25.0,
            1.0,
        )


def test_unknown_arm():
    with pytest.raises(ValueError, match=r"unknown arm 'algin'; legal: native, structure, .*supervised"):
        recipe("algin")
