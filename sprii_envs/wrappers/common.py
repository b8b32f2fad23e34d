"""What the wrappers share: vector environments in any autoreset mode, and what infos tell."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

Array = NDArray[Any]


def autoreset_mode(env: VectorEnv[Any, Any, Any]) -> AutoresetMode:
    """How a vector environment begins its next episodes; where it does not say, with the next step, as in Gymnasium."""
    return AutoresetMode(env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))


class VectorInner(VectorWrapper[Any, Any, Any, Any, Any]):
    """What Gymnasium's lacks: the attributes of the single environments, and which slots have `final_obs`."""

    def __init__(self, env: VectorEnv[Any, Any, Any], space: spaces.Space[Any] | None = None) -> None:
        """`space` is that of one observation, if it is another than the wrapped environment's."""
        super().__init__(env)
        if space is not None:
            self.single_observation_space = space
            self.observation_space = batch_space(space, self.num_envs)
        self._mode = autoreset_mode(env)

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """As the wrapped environment's."""
        return self.unwrapped.call(name, *args, **kwargs)  # type: ignore[attr-defined]

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """As the wrapped environment's."""
        return self.unwrapped.get_attr(name)  # type: ignore[attr-defined]

    def set_attr(self, name: str, values: Any) -> None:
        """As the wrapped environment's."""
        self.unwrapped.set_attr(name, values)  # type: ignore[attr-defined]

    def _last(self, done: NDArray[np.bool_], infos: Mapping[str, Any]) -> tuple[NDArray[np.intp], Any]:
        """The slots that ended an episode and began another in one step, and their last observations as one batch."""
        rows = np.flatnonzero(done) if self._mode is AutoresetMode.SAME_STEP else _NONE
        if not len(rows):
            return rows, None
        items = list(of_slots(infos, "final_obs", rows))
        if isinstance(items[0], dict):
            return rows, {name: np.stack([item[name] for item in items]) for name in items[0]}
        return rows, np.stack(items)


_NONE = np.zeros(0, np.intp)


class VectorObservation(VectorInner, ABC):
    """Gymnasium's `VectorObservationWrapper` refuses `SAME_STEP`; this one transforms its `final_obs`, in batches."""

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """As the wrapped environment's, with the observations transformed."""
        observations, infos = self.env.reset(seed=seed, options=options)
        return self.observations(observations), infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """As the wrapped environment's, with the observations and `final_obs` transformed."""
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        rows, last = self._last(terminated | truncated, infos)
        if len(rows):
            infos["final_obs"] = final_observations(self.last(last, rows), rows, self.num_envs)
        return self.observations(observations), rewards, terminated, truncated, infos

    @abstractmethod
    def observations(self, observations: Any) -> Any:
        """Observations of all slots, transformed."""

    @abstractmethod
    def last(self, observations: Any, rows: NDArray[np.intp]) -> Any:
        """The last observations of the episodes that ended in some slots, transformed."""


def of_slots(infos: Mapping[str, Any], name: str, rows: NDArray[np.intp]) -> Any:
    """What the infos say of some slots; ValueError where they say nothing, which Gymnasium fills with zeros."""
    mask = infos.get(f"_{name}")
    silent = rows if mask is None else rows[~mask[rows]]
    if len(silent):
        raise ValueError(f"the infos lack {name!r} of slots {silent.tolist()}, which have begun an episode")
    return infos[name][rows]


def final_observations(observations: Any, rows: NDArray[np.intp], n: int) -> NDArray[np.object_]:
    """`final_obs`: one observation for each of `rows`, None for the other slots."""
    final = np.full(n, None, object)
    for i, row in enumerate(rows):
        if isinstance(observations, dict):
            final[row] = {name: batch[i] for name, batch in observations.items()}
        else:
            final[row] = observations[i]
    return final


def sees_resets(env: gym.Env[Any, Any], wrapper: str) -> None:
    if env.has_wrapper_attr("autoreset"):
        raise ValueError(f"{wrapper} does not see the resets within Gymnasium's Autoreset: put that outside, got {env}")


def said(info: Mapping[str, Any], name: str, wrapper: str) -> Any:
    if name in info:
        return info[name]
    raise ValueError(
        f"the info of a reset lacks {name!r}: put {wrapper} inside the wrapper that drops it; an environment that has "
        "no systems of its own gets them from PersistentEnv"
    )
