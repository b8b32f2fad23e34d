"""Systems that last for several episodes, in single and in vector environments."""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from sprii_envs.arguments import integer
from sprii_envs.vector import SpriiVectorEnv
from sprii_envs.wrappers.common import VectorInner, of_slots, said, sees_resets


class RepeatSystem(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Keeps each system for `episodes` episodes in a row, so that related episodes are collected.

    A bare reset begins another independent episode of the present system until it has had its episodes, then draws a
    new one; a reset with a seed or a system of its own begins that system's first. The info of every reset and step has
    the `system_id`, as replay buffers never see the info of a reset, and `rollout`, which counts the system's episodes
    from 0. For single environments, also inside a `SyncVectorEnv` or Stable-Baselines3's vectors: any that tells its
    `system_id` at reset and takes the reset option {"system": "same"}, ours, a `PersistentEnv` or your own.
    """

    def __init__(self, env: gym.Env[Any, Any], episodes: int = 4) -> None:
        """`episodes` is at least 1."""
        if not isinstance(env, gym.Env):
            other = ": VectorRepeatSystem takes vector environments" if isinstance(env, VectorEnv) else ""
            raise ValueError(f"RepeatSystem needs a single environment, got {env}{other}")
        sees_resets(env, "RepeatSystem")
        episodes = integer("episodes", episodes, least=1)
        RecordConstructorArgs.__init__(self, episodes=episodes)
        gym.Wrapper.__init__(self, env)
        self.episodes = episodes
        self._begun = 0  # episodes that the present system has had, the running one included
        self._system_id: Any = None

    @property
    def rollout(self) -> int:
        """How many episodes the present system has had before the running one."""
        return max(self._begun - 1, 0)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode, of the present system or of the next; ValueError if the environment changes a kept one."""
        if options is not None and not isinstance(options, Mapping):
            return self.env.reset(seed=seed, options=options)  # which refuses them
        chosen = dict(options or {})
        if seed is None and chosen.get("system") is None and 0 < self._begun < self.episodes:
            chosen["system"] = "same"
        again = _is_same(chosen.get("system"))
        observation, info = self.env.reset(seed=seed, options=chosen)
        system_id = said(info, "system_id", "RepeatSystem")
        if again and self._begun and system_id != self._system_id:
            raise ValueError(_changed(self._system_id, system_id))
        self._begun, self._system_id = self._begun + 1 if again else 1, system_id
        return observation, info | {"rollout": self.rollout}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step, with the `system_id` and the `rollout` in its info."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        told = {"system_id": self._system_id, "rollout": self.rollout}
        return observation, reward, terminated, truncated, info | told


class VectorRepeatSystem(VectorInner):
    """`RepeatSystem` for vector environments: each slot keeps its systems for `episodes` episodes in a row.

    Native vectors of ours, at full speed, and `SyncVectorEnv` or `AsyncVectorEnv` of ours or of `PersistentEnv`s, in
    every autoreset mode; with `AutoresetMode.DISABLED` any whose environments tell their `system_id` at reset and take
    the reset option {"system": "same"}. A slot does what `RepeatSystem` around its single environment does, bit for
    bit.

    The infos of every step have `system_id` (N,) and `rollout` (N,) int64, the number of episodes that a slot's system
    has had before, of the episode that the observation belongs to. In `SAME_STEP` that is, where a slot ends, the
    next episode, and `final_info` has both of the one that ended.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], episodes: int = 4) -> None:
        """`episodes` is at least 1. ValueError for a vector that cannot keep its systems through its autoresets."""
        if not isinstance(env, VectorEnv):
            other = ": RepeatSystem takes single environments" if isinstance(env, gym.Env) else ""
            raise ValueError(f"VectorRepeatSystem needs a vector environment, got {env}{other}")
        self.episodes = integer("episodes", episodes, least=1)
        super().__init__(env)
        self._native = env.unwrapped if isinstance(env.unwrapped, SpriiVectorEnv) else None
        if self._native is None:
            self._check_slots()
        # Replaced and never written into, as snapshots hold them.
        self._begun = np.zeros(self.num_envs, np.int64)  # episodes that the present systems have had, the running too
        self._ids: NDArray[np.object_] = np.full(self.num_envs, None, object)
        self._over = np.zeros(self.num_envs, np.bool_)  # episodes that the next step replaces (NEXT_STEP)
        self._kept = np.zeros(self.num_envs, np.bool_)  # what the slots of a foreign vector were last told

    @property
    def system_ids(self) -> list[Any]:
        """The id of the system running in each slot, None before the first reset."""
        return self._ids.tolist()

    @property
    def rollouts(self) -> NDArray[np.int64]:
        """How many episodes each slot's system has had before the running one, (N,)."""
        return np.maximum(self._begun - 1, 0)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin episodes in all slots or in `reset_mask`, each of its present system or of the next."""
        n = self.num_envs
        inner: Any = self.env.reset
        chosen = dict(options) if isinstance(options, Mapping) else {}
        mask = chosen.pop("reset_mask", None)
        fresh = np.ones(n, np.bool_) if mask is None else np.array(mask)
        seeds: Any = (
            seed if isinstance(seed, Sequence | np.ndarray) and not isinstance(seed, str | bytes) else [seed] * n
        )
        seeded = np.array([each is not None for each in seeds])
        if not isinstance(options, Mapping | None) or fresh.shape != (n,) or seeded.shape != (n,):
            return inner(seed=seed, options=options)  # which refuses them
        fresh = fresh.astype(np.bool_)
        if (self._over & fresh).any() and not getattr(self.unwrapped, "shared_memory", True):
            raise ValueError(
                f"{self.env} forgets resets of ended slots and begins their episodes twice: make it with "
                "shared_memory=True, or step them once before"
            )
        system = chosen.get("system")
        if system is None:
            stay = fresh & ~seeded & (self._begun > 0) & (self._begun < self.episodes)
        else:
            stay = fresh & _is_same(system)
        again = chosen | {"system": "same"}
        if not stay.any():
            observations, infos = inner(seed=seed, options=None if options is None else dict(options))
        elif (stay == fresh).all():
            given = {} if mask is None else {"reset_mask": mask}
            observations, infos = inner(seed=seed if _is_same(system) else None, options=again | given)
        else:
            _, infos = inner(seed=seed, options=chosen | {"reset_mask": fresh & ~stay})
            observations, more = inner(options=again | {"reset_mask": stay.copy()})
            _interleave(infos, more, stay)
        said(infos, "system_id", "VectorRepeatSystem")
        self._over = self._over & ~fresh
        self._begin(np.flatnonzero(fresh), infos, stay[fresh])
        infos["rollout"], infos["_rollout"] = np.where(fresh, self.rollouts, 0), fresh
        return observations, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """One step of every slot, with the `system_id` and the `rollout` of every slot in the infos."""
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        over = terminated | truncated
        if self._mode is AutoresetMode.NEXT_STEP:
            fresh, self._over = self._over, over
        else:
            fresh = over & (self._mode is AutoresetMode.SAME_STEP)
        if fresh.any():
            if self._mode is AutoresetMode.SAME_STEP:
                self._tell(infos.setdefault("final_info", {}), fresh)
                infos.setdefault("_final_info", fresh.copy())
            rows = np.flatnonzero(fresh)
            self._begin(rows, infos, self._begun[rows] < self.episodes)
        self._tell(infos)
        return observations, rewards, terminated, truncated, infos

    def _begin(self, rows: NDArray[np.intp], infos: Mapping[str, Any], stayed: NDArray[np.bool_]) -> None:
        """Count the episodes that have begun in some slots, where `stayed` of the present systems."""
        found = of_slots(infos, "system_id", rows)
        other = stayed & (self._begun[rows] > 0) & (found != self._ids[rows])
        if other.any():
            slot = rows[other][0]
            raise ValueError(_changed(self._ids[slot], found[other].tolist()[0], f"slot {slot} of "))
        ids = self._ids.copy()
        ids[rows] = found
        begun = self._begun.copy()
        begun[rows] = np.where(stayed, begun[rows] + 1, 1)
        self._ids, self._begun = ids, begun
        keep = begun < self.episodes
        if self._mode is AutoresetMode.DISABLED:
            return
        if self._native is not None:
            self._native.keep_systems(keep)
        elif (keep != self._kept).any():
            self.set_attr("keep_system", keep.tolist())
            self._kept = keep

    def _tell(self, infos: dict[str, Any], mask: NDArray[np.bool_] | None = None) -> None:
        """Put the systems of all slots, or of some, into infos."""
        ids, rollouts = self._ids.copy(), self.rollouts
        if mask is None:
            mask = np.ones(self.num_envs, np.bool_)
        else:
            ids[~mask], rollouts[~mask] = None, 0
        infos |= {"system_id": ids, "_system_id": mask.copy(), "rollout": rollouts, "_rollout": mask.copy()}

    def _check_slots(self) -> None:
        """ValueError unless the single environments of a foreign vector can be told to keep their systems."""
        wrapped = "wrap each single environment in RepeatSystem before it goes into the vector"
        disabled = self._mode is AutoresetMode.DISABLED
        if not hasattr(self.unwrapped, "call"):
            if disabled:
                return
            raise ValueError(
                f"VectorRepeatSystem cannot keep systems through the autoresets of {self.env}: it takes native vectors "
                "of sprii_envs, and SyncVectorEnv or AsyncVectorEnv of environments with systems, such as PersistentEnv"
            )
        if all(self.call("has_wrapper_attr", "rollout")) and all(self.call("has_wrapper_attr", "episodes")):
            raise ValueError(f"the environments of {self.env} are in RepeatSystem already: one of the two is enough")
        if not (disabled or all(self.call("has_wrapper_attr", "keep_system"))):
            raise ValueError(
                f"VectorRepeatSystem cannot keep systems through the autoresets of {self.env}, whose environments have "
                f"no `keep_system`, as ours and PersistentEnv have: {wrapped}, or make the vector with "
                "autoreset_mode=AutoresetMode.DISABLED"
            )


def _is_same(system: Any) -> bool:
    return isinstance(system, str) and system == "same"


def _changed(before: Any, after: Any, where: str = "") -> str:
    return (
        f"{where}the environment changed its system from {before!r} to {after!r} where another episode of the same was "
        'asked for: it must take the reset option {"system": "same"}'
    )


def _interleave(infos: dict[str, Any], more: Mapping[str, Any], rows: NDArray[np.bool_]) -> None:
    """Put what another reset tells of its slots into batched infos."""
    for name in [name for name in more if not name.startswith("_")]:
        value, told = more[name], more.get(f"_{name}", rows) & rows
        if name not in infos:
            infos[name], infos[f"_{name}"] = value, told
        elif isinstance(value, dict):
            _interleave(infos[name], value, rows)
        else:
            infos[name][told] = value[told]
        infos[f"_{name}"] = infos.get(f"_{name}", np.zeros_like(rows)) | told
