"""How an environment is given a system, and how it tells which one it runs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import gymnasium as gym
import numpy as np

from sprii_envs.properties import System
from sprii_envs.relations.labels import spelt, system_label

Choose = Callable[[gym.Env[Any, Any], Any], Mapping[str, Any] | None]


class Told(NamedTuple):
    """A system: its label in the table, and what is known of it by name."""

    label: Any
    values: dict[str, Any]


class ByOption:
    """Environments with the reset option `system` and `info["system_id"]`, as ours."""

    def __init__(self, env: gym.Env[Any, Any], systems: int | Sequence[Any]) -> None:
        self.env = env
        self.items = [None] * systems if isinstance(systems, int) else list(systems)

    def reset(self, item: Any, first: bool, seed: int) -> tuple[Any, dict[str, Any], Told | None]:
        """Begin an episode of the chosen system, or of a drawn one and then of that one again."""
        options = None if item is None and first else {"system": "same" if item is None else item}
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, info, told(self.env, observation, info)


class ByContext:
    """CARL's interface: a set `contexts`, the settable number `context_id` of the present one, told in the info.

    A selector decides at each reset. A static one keeps what was set, a round-robin one takes the next: how far it
    moves is found out at the first reset. One that does not follow what was set, as CARL's random one, is refused.
    """

    def __init__(self, env: gym.Env[Any, Any], systems: int | Sequence[Any]) -> None:
        self.env, self.moves = env, 0
        contexts = list(env.get_wrapper_attr("contexts"))
        if isinstance(systems, int):
            if systems > len(contexts):
                raise ValueError(f"systems={systems}, but the environment has {len(contexts)} contexts")
            self.items = list(range(systems))
        else:
            for item in systems:
                if item not in contexts:
                    raise ValueError(f"no context {item!r} in the environment; it has {', '.join(map(str, contexts))}")
            self.items = [contexts.index(item) for item in systems]
        self.count = len(contexts)

    def reset(self, item: int, first: bool, seed: int) -> tuple[Any, dict[str, Any], Told | None]:
        """Begin an episode of the `item`-th context."""
        info: dict[str, Any] = {}
        for _ in range(2):
            self.env.set_wrapper_attr("context_id", (item - self.moves) % self.count)
            observation, info = self.env.reset(seed=seed)
            if info.get("context_id") == item:
                return observation, info, told(self.env, observation, info)
            if not isinstance(info.get("context_id"), int | np.integer):
                break
            self.moves = (self.moves + int(info["context_id"]) - item) % self.count
        got = _scalar(info.get("context_id"))
        raise ValueError(
            f"the environment was set to context {item} and reset to context {got!r}: its selector does not follow "
            "`context_id`; give it a static or round-robin selector, or pass choose="
        )


class ByHook:
    """Any environment whose system the caller sets: `choose(env, item)` before each reset; may return its options."""

    def __init__(self, env: gym.Env[Any, Any], systems: int | Sequence[Any], choose: Choose) -> None:
        self.env, self.choose = env, choose
        self.items = list(range(systems)) if isinstance(systems, int) else list(systems)

    def reset(self, item: Any, first: bool, seed: int) -> tuple[Any, dict[str, Any], Told | None]:
        """Begin an episode of `item` as `choose` sets it; where the environment tells nothing, that is the system."""
        observation, info = self.env.reset(seed=seed, options=self.options(item))
        return observation, info, told(self.env, observation, info) or self.told(item)

    def options(self, item: Any) -> dict[str, Any] | None:
        """Put the environment in the system `item`; the options of its next reset."""
        options = self.choose(self.env, item)
        if options is not None and not isinstance(options, Mapping):
            raise ValueError(f"choose must return None or reset options, a mapping; it returned {options!r}")
        return None if options is None else dict(options)

    @staticmethod
    def told(item: Any) -> Told:
        """`item` as a system."""
        if isinstance(item, System):
            return Told(item.id, dict(item))
        if isinstance(item, Mapping):
            values = {str(name): _scalar(value) for name, value in item.items()}
            return Told(system_label(dict(sorted(values.items()))), values)
        return Told(_label(item), {})


def chooser(env: gym.Env[Any, Any], systems: Any, choose: Choose | None) -> ByOption | ByContext | ByHook:
    """The way in which this environment is given a system."""
    if choose is not None:
        return ByHook(env, systems, choose)
    if env.has_wrapper_attr("contexts") and env.has_wrapper_attr("context_id"):
        return ByContext(env, systems)
    return ByOption(env, systems)


class Asked(Protocol):
    """What is asked of an environment."""

    def has_wrapper_attr(self, name: str) -> bool: ...
    def get_wrapper_attr(self, name: str) -> Any: ...


def told(env: Asked, observation: Any, info: Mapping[str, Any]) -> Told | None:
    """The system that a reset tells of, or None: `info["system_id"]`, else a whole context, else an observed one."""
    if "system_id" in info:
        return Told(_label(info["system_id"]), _persistent(env, info.get("persistent")))
    for context in _contexts(env, observation, info):
        if isinstance(context, Mapping) and context:
            values = {str(name): _scalar(value) for name, value in context.items()}
            return Told(system_label(dict(sorted(values.items()))), values)
        if context is not None and not isinstance(context, Mapping) and np.size(context):
            values = {f"context_{i}": value for i, value in enumerate(np.ravel(context).tolist())}
            return Told(system_label(values), values)
    return Told(_label(info["context_id"]), {}) if "context_id" in info else None


def _contexts(env: Asked, observation: Any, info: Mapping[str, Any]) -> list[Any]:
    """Where a context may be read, the most complete first: an observed one may leave features out."""
    number, whole = info.get("context_id"), None
    if number is not None and env.has_wrapper_attr("contexts"):
        contexts = env.get_wrapper_attr("contexts")
        if isinstance(number, int | np.integer) and 0 <= number < len(contexts):  # CARL counts, whatever the keys
            whole = list(contexts.values())[number] if isinstance(contexts, Mapping) else contexts[number]
    observed = observation.get("context") if isinstance(observation, Mapping) else None
    return [info.get("context"), whole, observed]


def _persistent(env: Asked, persistent: Any) -> dict[str, Any]:
    if persistent is None:
        return {}
    if isinstance(persistent, Mapping):
        return {str(name): _scalar(value) for name, value in persistent.items()}
    values = np.ravel(persistent).tolist()
    declared = env.get_wrapper_attr("persistent_properties") if env.has_wrapper_attr("persistent_properties") else None
    names = declared.names if declared is not None else [f"persistent_{i}" for i in range(len(values))]
    return dict(zip(names, values, strict=True))


def _scalar(value: Any) -> Any:
    """A number, boolean or string as a Python one, also out of an array of one."""
    return np.asarray(value).item() if np.size(value) == 1 and not isinstance(value, str) else value


def _label(value: Any) -> int | str:
    value = _scalar(value)
    return value if isinstance(value, int | str) and not isinstance(value, bool) else spelt(value, "label")
