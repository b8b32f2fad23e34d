"""D-Clean: a cart without noise, of unknown drag (`app:dclean-profile`)."""

from sprii_envs.banks import D_CLEAN as PROTOCOL
from sprii_train.fit import TrainConfig
from sprii_train.learners.jepa import JEPAConfig
from sprii_train.settings.base import SMOKE_NOTE, Budget, Built, Setting
from sprii_train.settings.others import latent_losses, tds_of_states, with_others
from sprii_train.settings.others_d_clean import OTHERS

D_CLEAN_BUDGETS = {
    "smoke": Budget(
        JEPAConfig(width=32, layers=1, heads=4, sigreg_slices=64, sigreg_samples="pooled"),
        TrainConfig(steps=60, pairs=24, warmup=20, checkpoint_every=30, log_every=10),
        (0,),
        1,
        20,
        SMOKE_NOTE,
        judged=False,
        step_seconds=0.02,
        store=Built(PROTOCOL.replace(systems={"train": 60, "validation": 20, "test": 20})),
    ),
    "quick": Budget(
        JEPAConfig(
            width=64, layers=2, heads=4, dropout=0.0, sigreg_slices=128, sigreg_knots=9, sigreg_samples="pooled"
        ),
        TrainConfig(steps=3_000, learning_rate=1e-3, warmup=100, checkpoint_every=250),
        (0, 1),
        2,
        3_000,
        "a narrower model (width 64 × 2 layers, no dropout, 128 slices, 9 knots), SIGReg over all times pooled, a rate "
        "of 1e-3 and 3,000 of the paper's 20,000 steps; these settings were chosen on validation systems",
        step_seconds=0.05,
    ),
    "paper": Budget(
        JEPAConfig(),
        TrainConfig(),
        (0, 1, 2),
        3,
        None,
        "the paper's model; its budget is 20,000 steps and three sources",
        step_seconds=0.27,
    ),
}

D_CLEAN = Setting(
    "d-clean",
    Built(PROTOCOL),
    properties=("drag",),
    history=24,
    anchors=(24, 32, 40, 47),
    budgets=with_others(D_CLEAN_BUDGETS, tds_of_states, latent_losses, lambda preset, budget: OTHERS[preset]),
    unsealed=True,
)
