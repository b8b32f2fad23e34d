"""Small banks of PokeWorld and SpringWorld, and learners of their pixels, for the tests of sources."""

from dataclasses import replace

from sprii_envs.banks import D_CLEAN, POKE_FACTORIAL, POKE_FRESH, SPRING, SPRING_SEALED
from sprii_envs.banks.populations import Combinations, Extrapolated, Interpolated, Uniform, Union
from sprii_train.learners import JEPAConfig

IMAGE = 16

POKE_SMALL = POKE_FACTORIAL.replace(
    systems={
        "train": Combinations({"mass": 2, "drag": 8, "stiffness": 2}),
        "validation": Combinations({"mass": (0.7, 1.1, 1.6), "drag": (0.5, 1.3), "stiffness": (200.0, 2000.0)}),
        "confirmation": Combinations({"mass": (0.8, 1.4), "drag": (0.7, 1.1), "stiffness": (100.0, 1000.0)}),
    },
    frames=None,
)
"""A full factorial design of 32 training systems, and 12 and 8 held-out ones off its levels; 4 episodes each."""

POKE_FRESH_SMALL = POKE_FRESH.replace(systems={"fresh": 12}, frames=None)

SPRING_SMALL = SPRING.replace(
    systems={
        "train": Combinations({"mass": 4, "drag": 2, "stiffness": 2}),
        "validation": Union(
            {
                "continuous": Uniform(3),
                "combination": Combinations({"mass": (0.7, 1.3), "drag": (0.6,), "stiffness": (9.0,)}),
                "interpolated": Interpolated({"mass": 2, "drag": 2, "stiffness": 2}),
                "extrapolated": Extrapolated(
                    {"mass": 2, "drag": 2, "stiffness": 2}, {"mass": (0.4,), "stiffness": (28.0,)}
                ),
            }
        ),
    },
    rollouts={
        "train": {"forced": 4, "mass": 1, "free": 1, "glide": 1, "static": 1, "cold": 3, "moving": 1},
        "validation": {"forced": 4, "mass": 2, "free": 2, "glide": 1, "static": 1, "cold": 6, "moving": 3},
    },
)
"""16 training systems and 10 held-out ones: 3 continuous, 2 combinations, 3 interpolated, 2 extrapolated."""

SPRING_SEALED_SMALL = SPRING_SEALED.replace(
    systems={
        "sealed": Union(
            {
                "continuous": Uniform(4),
                "combination": Combinations({"mass": (0.8, 1.4), "drag": (0.7,), "stiffness": (11.0,)}),
            }
        )
    }
)

D_CLEAN_SMALL = D_CLEAN.replace(systems={"train": 16, "validation": 5, "test": 4}, rollouts=4)

POKE_LEARNER = JEPAConfig(
    image=IMAGE, stem=(4,), patch=4, frames="scaled", embedding=8, persistent=4, current=3, action_feature=4,
    horizon_feature=4, width=8, layers=1, heads=2, predictor_width=16, dropout=0.0, sigreg_slices=16,
)  # fmt: skip

SPRING_LEARNER = replace(POKE_LEARNER, history=96)
D_CLEAN_LEARNER = replace(POKE_LEARNER, image=0, observation_dim=4)
