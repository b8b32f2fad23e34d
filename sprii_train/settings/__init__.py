"""One setting, one file. `SETTINGS` maps the name on the command line to what is so of a setting."""

import re
from importlib.metadata import entry_points

from sprii_envs.properties import unknown_name
from sprii_train.settings.base import PRESET_NAMES, Budget, Built, Other, Setting, Trials
from sprii_train.settings.baxter import BAXTER
from sprii_train.settings.burgers import BURGERS
from sprii_train.settings.burgers_adaptive import BURGERS_ADAPTIVE
from sprii_train.settings.cophy import COPHY
from sprii_train.settings.d_clean import D_CLEAN
from sprii_train.settings.fhn import FHN
from sprii_train.settings.frozen import FrozenBudget, FrozenSetting
from sprii_train.settings.overcooked import OVERCOOKED, OVERCOOKED_HALF, OVERCOOKED_QUARTER
from sprii_train.settings.pendulum import PENDULUM
from sprii_train.settings.pendulum_context import PENDULUM_CONTEXT
from sprii_train.settings.poke import POKE, POKE_ROLLOUTS
from sprii_train.settings.poke_frozen import POKE_FROZEN, POKE_FROZEN_FACTORIAL
from sprii_train.settings.push import PUSH
from sprii_train.settings.rh20t import RH20T
from sprii_train.settings.spring import SPRING
from sprii_train.settings.swimmer import SWIMMER

SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        D_CLEAN,
        POKE,
        *POKE_ROLLOUTS,
        POKE_FROZEN,
        POKE_FROZEN_FACTORIAL,
        SPRING,
        PENDULUM,
        PENDULUM_CONTEXT,
        OVERCOOKED,
        OVERCOOKED_HALF,
        OVERCOOKED_QUARTER,
        BURGERS,
        BURGERS_ADAPTIVE,
        FHN,
        *COPHY,
        SWIMMER,
        BAXTER,
        RH20T,
        PUSH,
    )
}

__all__ = [
    "BAXTER",
    "BURGERS",
    "BURGERS_ADAPTIVE",
    "COPHY",
    "D_CLEAN",
    "FHN",
    "OVERCOOKED",
    "OVERCOOKED_HALF",
    "OVERCOOKED_QUARTER",
    "PENDULUM",
    "PENDULUM_CONTEXT",
    "POKE",
    "POKE_FROZEN",
    "POKE_FROZEN_FACTORIAL",
    "PRESET_NAMES",
    "PUSH",
    "RH20T",
    "SETTINGS",
    "SPRING",
    "SWIMMER",
    "Budget",
    "Built",
    "FrozenBudget",
    "FrozenSetting",
    "Other",
    "Setting",
    "Trials",
    "load_entry_points",
    "named_setting",
    "register_setting",
]


def register_setting(setting: Setting) -> Setting:
    """Let the command line and targets name a setting of one's own; returns it.

    An installed package may name the setting in the entry-point group `sprii.settings` in place of the call.

    Raises:
        ValueError: for a name that another setting has or that is no folder's, and for budgets that no preset names.
    """
    if not isinstance(setting, Setting):
        raise ValueError(f"register_setting got {setting!r}; legal: a Setting")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", setting.name):
        raise ValueError(f"a setting is named {setting.name!r}; legal: letters, digits, '.', '_' and '-'")
    for preset, budget in setting.budgets.items():
        if preset not in PRESET_NAMES or not isinstance(budget, Budget):
            legal = f"legal: a Budget under each of {', '.join(PRESET_NAMES)} that there is"
            raise ValueError(f"the setting {setting.name!r} has the budget {preset!r}: {budget!r}; {legal}")
    if SETTINGS.get(setting.name, setting) != setting:
        raise ValueError(f"a setting {setting.name!r} is registered already; choose another name")
    SETTINGS[setting.name] = setting
    return setting


def load_entry_points() -> None:
    """Register the settings of installed packages; ValueError naming the one that cannot be."""
    for point in entry_points(group="sprii.settings"):
        if point.name not in SETTINGS:
            try:
                register_setting(point.load())
            except Exception as error:
                raise ValueError(f"the entry point sprii.settings {point.name!r} = {point.value}: {error}") from error


def named_setting(name: str) -> Setting:
    """The setting of that name.

    Raises:
        ValueError: naming the legal ones.
    """
    load_entry_points()
    if name not in SETTINGS:
        raise unknown_name("setting", name, SETTINGS)
    return SETTINGS[name]
