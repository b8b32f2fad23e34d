"""Small banks of the two worlds, every combination of a few levels, for counterfactuals and donor choices."""

import pytest

from sprii_envs.banks import POKE_FACTORIAL, SPRING, Bank, build
from sprii_envs.banks.populations import Combinations, FactorialBlocks, Uniform

_KINDS = {"forced": 2, "cold": 4}

SPRING_SMALL = SPRING.replace(
    systems={"train": Combinations({"mass": 3, "drag": 3, "stiffness": 3}), "validation": Uniform(5)},
    rollouts={"train": _KINDS, "validation": _KINDS},
    steps=48,
    lengths={"cold": 24},
)
"""Four cold episodes a system, so that the three templates do not start anew with each system."""

SPRING_TIGHT = SPRING_SMALL.replace(constants={**SPRING_SMALL.constants, "view_width": 0.66})
"""The same in a small view, which many episodes leave."""

POKE_SMALL = POKE_FACTORIAL.replace(
    systems={"train": FactorialBlocks({"mass": 3, "drag": 2, "stiffness": 6}, first=0, last=3)},
    rollouts=3,
    steps=30,
    frames=16,
    sealed_splits=(),
)


@pytest.fixture(scope="session")
def spring(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    return build(SPRING_SMALL, tmp_path_factory.mktemp("use") / "spring")


@pytest.fixture(scope="session")
def tight(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    return build(SPRING_TIGHT, tmp_path_factory.mktemp("use") / "tight")


@pytest.fixture(scope="session")
def poke(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    return build(POKE_SMALL, tmp_path_factory.mktemp("use") / "poke")
