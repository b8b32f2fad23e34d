"""Environments of one kind of world: its own defaults, its physical constants by name, `systems` by group."""

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from types import EllipsisType
from typing import Any

from gymnasium.vector import AutoresetMode

from sprii_envs.core import SpriiEnv
from sprii_envs.declarations import check_declarations
from sprii_envs.properties import unknown_name
from sprii_envs.slots import Source
from sprii_envs.vector import SpriiVectorEnv
from sprii_envs.world import World


class _Signature:
    """A constructor's signature as `help` shows it: the world's own defaults, its physical constants by name."""

    def __get__(self, env: object, owner: "type[_OfWorld]") -> inspect.Signature:
        world = owner._world_type  # AttributeError for the bases themselves: they show what they declare
        _, *given = inspect.signature(owner.__init__).parameters.values()
        parameters: list[inspect.Parameter] = []
        for p in given:
            if p.kind is p.VAR_KEYWORD and p.name == "constants":
                each = _constants(world).values()
                parameters += [p.replace(name=f.name, kind=p.KEYWORD_ONLY, default=f.default) for f in each]
            else:
                parameters.append(p.replace(default=getattr(world, p.name)) if p.default is ... else p)
        return inspect.Signature(parameters)


class _OfWorld:
    """Takes the world in the header of a class: `class DCleanEnv(WorldEnv, world=DClean)`."""

    _world_type: type[World]
    __signature__ = _Signature()

    def __init_subclass__(cls, *, world: type[World] | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if world is not None:
            cls._world_type = world

    def _own(self, name: str, value: Any) -> Any:
        return getattr(self._world_type, name) if value is ... else value

    def _built(self, constants: Mapping[str, float | str]) -> World:
        """The world with some constants changed; ValueError with the nearest name for an unknown one."""
        world = self._world_type
        check_declarations(world)
        legal = _constants(world)
        for name in constants:
            if name not in legal:
                own = ("num_envs", "max_episode_steps", "autoreset_mode") if isinstance(self, SpriiVectorEnv) else ()
                raise unknown_name(f"argument of {world.name}", name, (*_ARGUMENTS, *own, *legal))
        return world(**constants)


class WorldEnv(_OfWorld, SpriiEnv):
    """The single environment of a kind of world, for `gym.make`; the docstring of a subclass is its manual."""

    def __init__(
        self,
        *,
        obs_type: str | EllipsisType = ...,
        render_mode: str | None = None,
        system: Any = None,
        systems: Source | str | None = None,
        image_size: int | Sequence[int] | EllipsisType = ...,
        **constants: float | str,
    ) -> None:
        """See the class docstring; `...` is the world's own default, `constants` are the fields of the world."""
        super().__init__(
            self._built(constants),
            obs_type=self._own("obs_type", obs_type),
            render_mode=render_mode,
            system=system,
            systems=systems,
            image_size=self._own("image_size", image_size),
        )


class WorldVectorEnv(_OfWorld, SpriiVectorEnv):
    """The vector environment of a kind of world, for `gym.make_vec`; see `SpriiVectorEnv` for resets."""

    def __init__(
        self,
        num_envs: int = 1,
        *,
        max_episode_steps: int | EllipsisType | None = ...,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        obs_type: str | EllipsisType = ...,
        render_mode: str | None = None,
        system: Any = None,
        systems: Source | str | None = None,
        image_size: int | Sequence[int] | EllipsisType = ...,
        **constants: float | str,
    ) -> None:
        """As of the single environment and of `SpriiVectorEnv`; `...` is the world's own default."""
        super().__init__(
            self._built(constants),
            num_envs,
            max_episode_steps=self._own("max_episode_steps", max_episode_steps),
            autoreset_mode=autoreset_mode,
            obs_type=self._own("obs_type", obs_type),
            render_mode=render_mode,
            system=system,
            systems=systems,
            image_size=self._own("image_size", image_size),
        )


_ARGUMENTS = ("obs_type", "render_mode", "system", "systems", "image_size")


def _constants(world: type[World]) -> "dict[str, dataclasses.Field[Any]]":
    return {f.name: f for f in dataclasses.fields(world) if f.init}  # type: ignore[arg-type]
