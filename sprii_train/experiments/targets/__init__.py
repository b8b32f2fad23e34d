"""What `sprii reproduce` knows, by the paper's label."""

from sprii_envs.properties import unknown_name
from sprii_train.experiments.targets.aliases import OTHER_LABELS
from sprii_train.experiments.targets.base import INFERRED, Group, Pairings, Target, Unit
from sprii_train.experiments.targets.baxter import BAXTER_TARGETS
from sprii_train.experiments.targets.burgers import BURGERS_TARGETS
from sprii_train.experiments.targets.burgers_adaptive import BURGERS_ADAPTIVE_TARGETS
from sprii_train.experiments.targets.composed import COMPOSED, Composed
from sprii_train.experiments.targets.cophy import COPHY_SCENES, COPHY_TARGETS
from sprii_train.experiments.targets.cophy_balls import BALLS_TARGETS
from sprii_train.experiments.targets.cophy_sources import SOURCE_TARGETS
from sprii_train.experiments.targets.dclean import D_CLEAN_TARGETS
from sprii_train.experiments.targets.dclean_common import D_CLEAN_COMMON_TARGETS
from sprii_train.experiments.targets.dclean_full import D_CLEAN_FULL_TARGETS
from sprii_train.experiments.targets.fhn import FHN_TARGETS
from sprii_train.experiments.targets.inferred import INFERRED_TARGETS
from sprii_train.experiments.targets.overcooked import OVERCOOKED_TARGETS
from sprii_train.experiments.targets.pairings import PAIRING_TARGETS
from sprii_train.experiments.targets.pendulum import PENDULUM_TARGETS
from sprii_train.experiments.targets.pendulum_context import PENDULUM_CONTEXT_TARGETS
from sprii_train.experiments.targets.poke import POKE_TARGETS
from sprii_train.experiments.targets.poke_acquisition import POKE_ACQUISITION_TARGETS
from sprii_train.experiments.targets.poke_direction import POKE_DIRECTION_TARGETS
from sprii_train.experiments.targets.poke_followup import POKE_FOLLOWUP_TARGETS
from sprii_train.experiments.targets.poke_frozen import POKE_FROZEN_TARGETS
from sprii_train.experiments.targets.poke_infonce import POKE_INFONCE_TARGETS
from sprii_train.experiments.targets.poke_inputs import POKE_INPUT_TARGETS
from sprii_train.experiments.targets.poke_maps import POKE_MAP_TARGETS
from sprii_train.experiments.targets.poke_reliability import POKE_RELIABILITY_TARGETS
from sprii_train.experiments.targets.poke_value import POKE_VALUE_TARGETS
from sprii_train.experiments.targets.push import PUSH_TARGETS
from sprii_train.experiments.targets.reader_capacity import READER_CAPACITY_TARGETS
from sprii_train.experiments.targets.realization import REALIZATION_TARGETS
from sprii_train.experiments.targets.rh20t import RH20T_TARGETS
from sprii_train.experiments.targets.setting import PREFIX, setting_target
from sprii_train.experiments.targets.spring import SPRING_TARGETS
from sprii_train.experiments.targets.spring_gradients import SPRING_GRADIENT_TARGETS
from sprii_train.experiments.targets.spring_landscape import SPRING_LANDSCAPE_TARGETS
from sprii_train.experiments.targets.spring_prefix import SPRING_PREFIX_TARGETS
from sprii_train.experiments.targets.spring_sealed import SPRING_SEALED_TARGETS
from sprii_train.experiments.targets.swimmer import SWIMMER_TARGETS
from sprii_train.experiments.targets.tds import TDS_TARGETS
from sprii_train.settings import named_setting

TARGETS: dict[str, Target] = {
    target.label: target
    for target in (
        *D_CLEAN_FULL_TARGETS,
        *POKE_RELIABILITY_TARGETS,
        *POKE_TARGETS,
        *POKE_MAP_TARGETS,
        *POKE_INFONCE_TARGETS,
        *POKE_DIRECTION_TARGETS,
        *POKE_INPUT_TARGETS,
        *POKE_ACQUISITION_TARGETS,
        *PAIRING_TARGETS,
        *INFERRED_TARGETS,
        *POKE_VALUE_TARGETS,
        *POKE_FOLLOWUP_TARGETS,
        *POKE_FROZEN_TARGETS,
        *SPRING_TARGETS,
        *SPRING_LANDSCAPE_TARGETS,
        *SPRING_PREFIX_TARGETS,
        *READER_CAPACITY_TARGETS,
        *REALIZATION_TARGETS,
        *SPRING_GRADIENT_TARGETS,
        *SPRING_SEALED_TARGETS,
        *TDS_TARGETS,
        *D_CLEAN_TARGETS,
        *D_CLEAN_COMMON_TARGETS,
        *PENDULUM_TARGETS,
        *PENDULUM_CONTEXT_TARGETS,
        *PUSH_TARGETS,
        *OVERCOOKED_TARGETS,
        *BURGERS_TARGETS,
        *FHN_TARGETS,
        *BURGERS_ADAPTIVE_TARGETS,
        *COPHY_TARGETS,
        *BALLS_TARGETS,
        *SOURCE_TARGETS,
        *SWIMMER_TARGETS,
        *BAXTER_TARGETS,
        *RH20T_TARGETS,
    )
}

ALIASES = OTHER_LABELS | {alias: one.label for one in COMPOSED.values() for alias in one.aliases}
"""Label → the label of the target, or of the composed one, that carries it."""

__all__ = [
    "ALIASES",
    "COMPOSED",
    "COPHY_SCENES",
    "INFERRED",
    "TARGETS",
    "Composed",
    "Group",
    "Pairings",
    "Target",
    "Unit",
    "canonical",
    "composed",
    "target",
]


def canonical(label: str) -> str:
    """The label that a table or figure is kept under."""
    return ALIASES.get(label, label)


def composed(label: str) -> Composed | None:
    """The composed figure or table of a label; None for another label."""
    return COMPOSED.get(canonical(label))


def target(label: str) -> Target:
    """The target of a label, of another label of the same table or figure, or `setting:NAME` of any setting.

    Raises:
        ValueError: naming the legal ones.
    """
    label = canonical(label)
    if label.startswith(PREFIX):
        if (own := COPHY_SCENES.get(label.removeprefix(PREFIX))) is not None:
            return own
        return setting_target(named_setting(label.removeprefix(PREFIX)))
    if label not in TARGETS:
        legal = ("all", f"{PREFIX}NAME of any setting", *TARGETS, *COMPOSED, *ALIASES)
        raise unknown_name("table or figure", label, legal)
    return TARGETS[label]
