"""The training recipes of Table `tab:dclean-full`: which context, which relation, which terms."""

from dataclasses import dataclass

from sprii_envs.relations import SAME_ROLLOUT, SAME_SYSTEM, Derangement, Kernel, Relation, Uniform
from sprii_train.learners.jepa import Context
from sprii_train.protocol import Objective


@dataclass(frozen=True)
class Recipe:
    """One arm of a comparison.

    Attributes:
        name: key on the command line and in `results.json`.
        label: as the paper's tables print it.
        objective: loss weights.
        context: interface of the learner (`split`, `monolithic`, `supervised`).
        relation, kernel: who may be whose donor, and which one is drawn.
    """

    name: str
    label: str
    objective: Objective
    context: Context = "split"
    relation: Relation = SAME_SYSTEM
    kernel: Kernel = Uniform()  # noqa: RUF009 (a frozen dataclass without state)


RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe("native", "Native", Objective(), context="monolithic"),
        Recipe("structure", "Structure", Objective()),
        Recipe("same-rollout", "Same-rollout alignment", Objective(lambda_p=1.0), relation=SAME_ROLLOUT),
        Recipe("align", "Align", Objective(lambda_p=1.0)),
        Recipe("cross", "Cross", Objective(lambda_x=0.1)),
        Recipe("align-cross", "Align + Cross", Objective(lambda_p=1.0, lambda_x=0.1)),
        Recipe("align-random", "Align–Random", Objective(lambda_p=1.0), kernel=Derangement()),
        Recipe("supervised", "Supervised γ", Objective(), context="supervised"),
    )
}


def recipe(name: str) -> Recipe:
    """The recipe of that name.

    Raises:
        ValueError: naming the legal ones.
    """
    if name not in RECIPES:
        raise ValueError(f"unknown arm {name!r}; legal: {', '.join(RECIPES)}")
    return RECIPES[name]
