"""PokeWorld: a finger pushes an object of unknown mass, drag and contact stiffness (`app:poke-profile`)."""

from dataclasses import replace

from sprii_envs.banks import POKE_FACTORIAL, POKE_FRESH, POKE_ORIGINAL
from sprii_train.analysis.formation import POKE_FACTORS, SPRING_FACTORS, poke_evidence
from sprii_train.fit import TrainConfig
from sprii_train.learners.jepa import JEPAConfig
from sprii_train.settings.base import SMOKE_NOTE, SMOKE_ROUTES, SMOKE_TRAIN, Budget, Built, Setting
from sprii_train.settings.others import latent_losses, told_drag, with_others

TINY = JEPAConfig(
    image=32, stem=(16,), patch=8, frames="scaled", width=32, layers=1, heads=4, dropout=0.0, sigreg_slices=32,
    sigreg_samples="pooled",
)  # fmt: skip
NARROW = JEPAConfig(
    image=32, stem=(64,), patch=8, frames="scaled", width=64, layers=2, heads=4, dropout=0.0, sigreg_slices=128,
    sigreg_knots=9, sigreg_samples="pooled",
)  # fmt: skip

POKE_BUDGETS = {
    "smoke": Budget(
        TINY, SMOKE_TRAIN, (0,), 1, 20, SMOKE_NOTE, judged=False, route_steps=SMOKE_ROUTES, step_seconds=0.02
    ),
    "quick": Budget(
        NARROW,
        TrainConfig(steps=3_000, learning_rate=1e-3, warmup=100, checkpoint_every=500),
        (0,),
        1,
        2_000,
        "32 × 32 frames, a stem of 8 × 8 patches with 64 channels, width 64 × 2 layers, no dropout, 128 "
        "slices, 9 knots, a rate of 1e-3 and 3,000 of the paper's 20,000 steps: too few, see the results",
        step_seconds=0.095,
    ),
    "states": Budget(
        JEPAConfig(
            observation_dim=8,
            width=64,
            layers=2,
            heads=4,
            dropout=0.0,
            sigreg_slices=128,
            sigreg_knots=9,
            sigreg_samples="pooled",
        ),
        TrainConfig(steps=4_000, learning_rate=1e-3, warmup=100, checkpoint_every=500),
        (0,),
        1,
        2_000,
        "numerical states in place of frames, width 64 × 2 layers, no dropout, 128 slices, 9 knots, a "
        "rate of 1e-3 and 4,000 of the paper's 20,000 steps: what relations do where positions "
        "and velocities need not be learned from pixels",
        step_seconds=0.04,
    ),
    "paper": Budget(
        JEPAConfig(image=64), TrainConfig(), (0, 1, 2), 3, None, "the paper's model and budget", step_seconds=4.4
    ),
}

# Banks hold states; frames are drawn from them at the learner's size, which costs about 1 % of an update.
POKE = Setting(
    "poke",
    Built(POKE_FACTORIAL.replace(frames=None)),
    properties=("mass", "drag", "stiffness"),
    history=24,
    anchors=(24, 32, 40, 47),
    budgets=with_others(POKE_BUDGETS, latent_losses, told_drag),
    factors=POKE_FACTORS,
    donor_factors=SPRING_FACTORS,  # log m, log γ, log k and log k/m: the columns of `tab:poke-targeted-utility`
    components={
        "finger_position": slice(0, 2),
        "finger_velocity": slice(2, 4),
        "object_position": slice(4, 6),
        "object_velocity": slice(6, 8),
    },
    pushed=slice(4, 8),
    evidence=poke_evidence,
    sealed=Built(POKE_FRESH.replace(frames=None)),
    unsealed=True,
)
POKE_ROLLOUTS = tuple(
    replace(
        POKE, name=f"poke-r{rollouts}", store=Built(POKE_ORIGINAL.replace(rollouts=rollouts, frames=None)), sealed=None
    )
    for rollouts in (2, 4, 8)
)
"""The same of 2, 4 and 8 episodes a system."""
