"""Environments of the worlds that `sprii_envs.register` was given, found by where their class is."""

from typing import Any

from sprii_envs.envs.base import WorldEnv, WorldVectorEnv
from sprii_envs.registration import resolve
from sprii_envs.world_checks import check_once


class RegisteredEnv(WorldEnv):
    """The single environment of a registered world; its arguments are those of `WorldEnv`."""

    def __init__(self, *, world: str, **given: Any) -> None:
        """`world` is "module:Class", which `register` fills in."""
        self._world_type = resolve(world)
        super().__init__(**given)
        check_once(self.world)


class RegisteredVectorEnv(WorldVectorEnv):
    """The vector environment of a registered world; its arguments are those of `WorldVectorEnv`."""

    def __init__(self, num_envs: int = 1, *, world: str, **given: Any) -> None:
        """`world` is "module:Class", which `register` fills in."""
        self._world_type = resolve(world)
        super().__init__(num_envs, **given)
        check_once(self.world)
