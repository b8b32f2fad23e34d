"""SpringWorld: two balls on a spring, of unknown mass, drag and stiffness (`app:spring-profile`)."""

from dataclasses import replace

from sprii_envs.banks import SPRING as SPRING_PROTOCOL
from sprii_envs.banks import SPRING_SEALED
from sprii_train.analysis.formation import SPRING_FACTORS
from sprii_train.cases.queries import QueryCases
from sprii_train.fit import TrainConfig
from sprii_train.learners.jepa import JEPAConfig
from sprii_train.settings.base import SMOKE_NOTE, SMOKE_ROUTES, SMOKE_TRAIN, Budget, Built, Setting
from sprii_train.settings.poke import NARROW, POKE, TINY

SPRING_BUDGETS = {
    "smoke": Budget(
        replace(TINY, history=96), SMOKE_TRAIN, (0,), 1, 20, SMOKE_NOTE, judged=False, route_steps=SMOKE_ROUTES,
        step_seconds=0.03,
    ),
    "quick": Budget(
        replace(NARROW, history=96),
        TrainConfig(steps=1_500, pairs=24, learning_rate=1e-3, warmup=100, checkpoint_every=250),
        (0,),
        2,
        3_000,
        "32 × 32 frames, a stem of 8 × 8 patches with 64 channels, width 64 × 2 layers, no dropout, 128 slices, 24 "
        "pairs, a rate of 1e-3 and 1,500 of the paper's 10,000 steps",
        step_seconds=0.19,
    ),
    "paper": Budget(
        JEPAConfig(image=128, stem=(32, 64, 128, 256, 512), history=96),
        TrainConfig(steps=10_000),
        (0, 1, 2),
        3,
        None,
        "the paper's budget; its stem is not printed, and this one is the convolutions of PokeWorld and one more",
        step_seconds=75.0,
    ),
}  # fmt: skip

SPRING_CASES = QueryCases(
    anchors={"cold": 1, "moving": 95, "forced": 79, "mass": 79, "free": 79, "glide": 79},
    horizons=(1, 2, 4, 8, 16),
    groups=("continuous", "combination"),
)
"""With the bank's 6 cold, 3 moving, 4 forced, 2 mass, 2 free and 1 glide episodes of a held-out system, 18 queries × 5
horizons = 90 cases of the full mixture. The panels' 100 systems are 64 continuous ones and 36 unseen combinations."""

SPRING = Setting(
    "spring",
    Built(SPRING_PROTOCOL),
    properties=POKE.properties,
    history=96,
    anchors=(95,),
    budgets=SPRING_BUDGETS,
    factors=SPRING_FACTORS,
    kind="forced",
    shortest=16,
    sealed=Built(SPRING_SEALED),
    cases=SPRING_CASES,
    unsealed=True,
)
