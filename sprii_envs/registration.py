"""Environments by id: our own under the namespace `sprii`, and worlds of anybody's by one call of `register`.

What is stored is strings, so that nothing is imported before it is made, and that a spec means the same in every
process which can import the world's module.
"""

import re
import sys
from functools import reduce
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium as gym

if TYPE_CHECKING:
    from sprii_envs.world import World

_ROWS = (
    ("D-Clean-v0", "sprii_envs.envs.d_clean", "DClean", 63),
    ("SpringWorld-v0", "sprii_envs.envs.spring_world", "SpringWorld", 95),
    ("PokeWorld-v0", "sprii_envs.envs.poke_world", "PokeWorld", 63),
    ("Swimmer-v0", "sprii_envs.mujoco.swimmer", "Swimmer", 1000),
    ("Pendulum-v0", "sprii_envs.envs.pendulum", "Pendulum", 200),
    ("HalfCheetah-v0", "sprii_envs.mujoco.half_cheetah", "HalfCheetah", 1000),
    ("Hopper-v0", "sprii_envs.mujoco.hopper", "Hopper", 1000),
    ("Walker2d-v0", "sprii_envs.mujoco.walker2d", "Walker2d", 1000),
    ("Ant-v0", "sprii_envs.mujoco.ant", "Ant", 1000),
    *((f"CoPhyBalls{k}-v0", "sprii_envs.cophy.balls", f"Balls{k}", 29) for k in ("", 2, 3, 5, 6)),
    ("CoPhyCollision-v0", "sprii_envs.cophy.collision", "Collision", 14),
    *((f"CoPhyBlocktower{k}-v0", "sprii_envs.cophy.blocktower", f"Blocktower{k}", 29) for k in ("", 4)),
)
"""(id, module, class stem, transitions of an episode: one fewer than the states in it)."""

_SINGLE, _VECTOR = (f"sprii_envs.envs.registered:Registered{kind}" for kind in ("Env", "VectorEnv"))
_ID = re.compile(r"([\w:-]+/)?[\w:.-]+-v\d+", re.ASCII)


class Registered(NamedTuple):
    """A world that was registered: picklable, so that another process can register it too."""

    id: str
    world: str
    """Where its class is, "module:Class"."""
    max_episode_steps: int

    def here(self) -> None:
        """Register it in this process, unless the id is; ValueError unless its class can be imported here."""
        resolve(self.world)
        if self.id not in gym.registry:
            gym.register(
                id=self.id,
                entry_point=_SINGLE,
                vector_entry_point=_VECTOR,
                max_episode_steps=self.max_episode_steps,
                kwargs={"world": self.world},
            )


def register(id: str, world: "type[World]", *, max_episode_steps: int | None = None) -> None:
    """Make environments of a world of one's own: `gym.make(id)`, `gym.make_vec(id, num_envs=64)`, banks of it.

    `id` is as Gymnasium's, "mine/Kite-v0". `max_episode_steps` is by default what the class says. Call it at the top
    of the module that defines the class: other processes import the module. A call again, of a notebook's cell or of a
    module that is loaded anew, replaces the class of that name.

    Raises ValueError, before anything is registered, for an id that is malformed or another's, for a class that lacks a
    declaration or a function or has one that is not legal, and for one that cannot be imported by its name.
    """
    from sprii_envs.arguments import integer
    from sprii_envs.declarations import check_declarations

    if not isinstance(id, str) or not _ID.fullmatch(id):
        raise ValueError(f"id is {id!r}; legal: a name with a version, and a namespace before it, like 'mine/Kite-v0'")
    check_declarations(world)
    given = getattr(world, "max_episode_steps", None) if max_episode_steps is None else max_episode_steps
    if given is None:
        raise ValueError(
            f"{world.__name__} has no time limit: register({id!r}, {world.__name__}, max_episode_steps=…), or "
            "max_episode_steps in the class"
        )
    path = f"{world.__module__}:{world.__qualname__}"
    new = Registered(id, path, integer("max_episode_steps", given, least=1))
    if "<locals>" in path or resolve(path) is not world:
        raise ValueError(f"{path} is not where {world.__name__} is found: define it at the top of a module")
    held = gym.registry.get(id)
    if held is not None and getattr(registered(id), "world", None) != path:
        place = held.kwargs.get("world", held.entry_point)
        raise ValueError(f"id {id!r} is that of {place} already; choose another name or version")
    gym.registry.pop(id, None)
    new.here()


def registered(id: str) -> Registered | None:
    """What `register` was given under this id; None for another environment and for an unknown id."""
    spec = gym.registry.get(id)
    if spec is None or spec.entry_point != _SINGLE:
        return None
    return Registered(id, spec.kwargs["world"], spec.max_episode_steps or 0)


def resolve(path: str) -> "type[World]":
    """The world at "module:Class"; ValueError that says what to do if there is none in this process."""
    from sprii_envs.world import World

    module, _, name = path.partition(":")
    try:
        found: Any = reduce(getattr, name.split("."), import_module(module))
    except (ImportError, AttributeError) as error:
        hint = "put the class into a module of its own" if module == "__main__" else f"{module} must be on sys.path"
        raise ValueError(f"the world {path} cannot be imported in this process ({error}): {hint}") from error
    if not (isinstance(found, type) and issubclass(found, World)):
        raise ValueError(f"{path} is no World, it is {found!r}")
    return found


def world_of(id: str) -> "type[World] | None":
    """The kind of world behind an id, None for an environment that has none; gymnasium's Error for an unknown id."""
    from sprii_envs.world import World

    entry = gym.spec(id).entry_point
    if (own := registered(id)) is not None:
        return resolve(own.world)
    if not isinstance(entry, str):
        entry = f"{entry.__module__}:{entry.__qualname__}" if isinstance(entry, type) else ""
    module, _, env = entry.partition(":")
    found = getattr(import_module(module), env.removesuffix("Env"), None) if module else None
    return found if isinstance(found, type) and issubclass(found, World) else None


def importable_elsewhere(module: str) -> bool:
    """Whether a spawned process can import what this module of ours defines: not if it is a notebook, or a shell."""
    main = sys.modules["__main__"]
    return module != "__main__" or getattr(main, "__spec__", None) is not None or _is_script(main)


def _is_script(main: Any) -> bool:
    from pathlib import Path

    return Path(getattr(main, "__file__", None) or "").is_file()


def register_all() -> None:
    """Register every environment once; nothing but strings is stored, so no environment is imported yet."""
    for name, module, stem, max_episode_steps in _ROWS:
        if f"sprii/{name}" not in gym.registry:
            gym.register(
                id=f"sprii/{name}",
                entry_point=f"{module}:{stem}Env",
                vector_entry_point=f"{module}:{stem}VectorEnv",
                max_episode_steps=max_episode_steps,
            )
    if "sprii/Overcooked-v0" not in gym.registry:  # it truncates its own episodes, of as many steps as it is told
        gym.register(id="sprii/Overcooked-v0", entry_point="sprii_envs.overcooked.env:OvercookedEnv")
