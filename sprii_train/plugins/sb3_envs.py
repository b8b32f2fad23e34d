"""Native vector environments in Stable-Baselines3: `PPO("MlpPolicy", NativeVecEnv(gym.make_vec(...)))`."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from numpy.typing import NDArray

from sprii_envs.arguments import integer
from sprii_envs.dependencies import needed
from sprii_envs.properties import System, unknown_name
from sprii_envs.slots import resolve
from sprii_envs.vector import CHANGES, SpriiVectorEnv
from sprii_envs.wrappers import autoreset_mode

with needed("sprii_train.plugins.sb3_envs needs Stable-Baselines3", "stable-baselines3", "stable_baselines3"):
    from stable_baselines3.common.vec_env.base_vec_env import VecEnv, VecEnvIndices, VecEnvObs, VecEnvStepReturn

OPTIONS = ("system", "state", "query")
"""What one environment's reset options may name."""


class NativeVecEnv(VecEnv):
    """Stable-Baselines3's vector of environments over one native vector environment, N systems a step.

    It does what `DummyVecEnv` of N single environments does, bit for bit: `seed(s)` gives slot i the seed s + i at the
    next reset, and `set_options`, one mapping for all slots or a list with one for each, holds for that reset alone.
    The options are those of `SpriiEnv.reset`; for one system throughout, give `make_vec` its `system`.

    With `episodes` above 1 each slot keeps its systems for so many episodes in a row, as `RepeatSystem` does, and infos
    have its `rollout`.

    The info of every step also has what the last reset told of the slot's episode: `system_id`, `persistent` (F,)
    float64, read-only, and `extrapolated`. That of an episode's last step has its `terminal_observation`;
    `reset_infos` are those of the present episodes. `get_attr` and `env_method` ask copies of the slots.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], episodes: int = 1) -> None:
        """`env` is a native vector environment, or wrappers around one.

        ValueError for another vector environment, and for one that resets within its own step.
        """
        if not isinstance(env, VectorEnv) or not isinstance(env.unwrapped, SpriiVectorEnv):
            raise ValueError(
                f"NativeVecEnv needs a native vector environment, as gym.make_vec('sprii/...') gives it; got {env}: "
                "Stable-Baselines3's DummyVecEnv takes single environments"
            )
        if autoreset_mode(env) is AutoresetMode.SAME_STEP:
            raise ValueError(
                "NativeVecEnv resets ended slots by itself: autoreset_mode must be NextStep or Disabled, got SameStep"
            )
        self.env, self.episodes = env, integer("episodes", episodes, least=1)
        self._native: SpriiVectorEnv = env.unwrapped
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)
        self.metadata["render_fps"] = self._native.metadata["render_fps"]
        self._begun = np.zeros(self.num_envs, np.int64)  # episodes that each present system has had
        self._told: list[dict[str, Any]] = []  # what the info of every step says

    # --- episodes ---

    def reset(self) -> VecEnvObs:
        """Begin an episode in every slot, with the seeds and options given since the last reset."""
        if len(self._options) != self.num_envs:
            raise ValueError(f"options must be one mapping, or {self.num_envs}; got {len(self._options)}")
        options = [dict(each or {}) for each in self._options]
        for slot, each in enumerate(options):
            if self._seeds[slot] is None and each.get("system") is None and self._goes_on(slot):
                each["system"] = "same"
        groups = self._groups(options)
        seeds = None if all(seed is None for seed in self._seeds) else self._seeds
        if not self._told:
            self._told = [{} for _ in options]
            if len(groups) > 1:  # a vector's first reset is one of every slot
                self._begin(np.arange(self.num_envs), {}, seeds)
        observations: Any = None
        for slots, chosen in groups:
            observations = self._begin(slots, chosen, seeds)
        self._reset_seeds()
        self._reset_options()
        return observations

    def step_async(self, actions: NDArray[Any]) -> None:
        """Keep actions (N, A) for `step_wait`."""
        self._actions = actions

    def step_wait(self) -> VecEnvStepReturn:
        """One step of every slot: observations (N, …), rewards (N,) float32, dones (N,) bool, N infos."""
        if not self._told:
            raise ResetNeeded("call reset() first: there is no episode yet")
        observations, rewards, terminated, truncated, told = self.env.step(self._actions)
        infos = [each.copy() for each in self._told]
        _spread(told, infos)
        dones = terminated | truncated
        if dones.any():
            slots = np.flatnonzero(dones)
            for slot in slots.tolist():
                infos[slot]["TimeLimit.truncated"] = not terminated[slot]
                infos[slot]["terminal_observation"] = _one(observations, slot)
            observations = self._begin_next(slots)
        return observations, rewards.astype(np.float32), dones, infos

    def _begin_next(self, slots: NDArray[np.intp]) -> Any:
        """Next episodes in ended slots, of the present systems or of others; observations of all slots."""
        if self.episodes == 1:
            return self._begin(slots, {})
        stay = self._goes_on(slots)
        observations = None
        for some, options in ((slots[stay], {"system": "same"}), (slots[~stay], {})):
            if len(some):
                observations = self._begin(some, options)
        return observations

    def _goes_on(self, slots: Any) -> Any:
        """Whether the present system of a slot has begun, and has episodes left."""
        had = self._begun[slots]
        return (had > 0) & (had < self.episodes)

    def _begin(self, slots: NDArray[np.intp], options: dict[str, Any], seeds: Any = None) -> Any:
        mask = np.zeros(self.num_envs, np.bool_)
        mask[slots] = True
        observations, told = self.env.reset(seed=seeds, options=options | {"reset_mask": mask})
        again = isinstance(options.get("system"), str)
        self._begun[slots] = self._begun[slots] + 1 if again else 1
        for value in told.values():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False  # one array serves all steps of an episode
        rows = slots.tolist()
        for slot in rows:
            self.reset_infos[slot] = {}
        _spread(told, self.reset_infos)
        for slot in rows:
            if self.episodes > 1:
                self.reset_infos[slot]["rollout"] = int(self._begun[slot]) - 1
            self._told[slot] = {"TimeLimit.truncated": False, **self.reset_infos[slot]}
        return observations

    def _groups(self, options: Sequence[Mapping[str, Any]]) -> list[tuple[NDArray[np.intp], dict[str, Any]]]:
        """Slots that one reset of the vector can serve, and its options."""
        groups: dict[Any, list[int]] = {}
        for slot, each in enumerate(options):
            for name in each:
                if name not in OPTIONS:
                    raise unknown_name("reset option", name, OPTIONS)
            if _is_same(each) and not self._begun[slot]:
                raise ValueError(f"system 'same' of slot {slot} needs a system: reset once without it")
            kind = "same" if _is_same(each) else each.get("system") is not None
            groups.setdefault((repr(each.get("query")), kind, each.get("state") is not None), []).append(slot)
        return [(np.array(slots), self._merged(slots, options)) for slots in groups.values()]

    def _merged(self, slots: list[int], options: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The vector's options from those of some slots, which name the same things; other slots are filled."""
        native, first = self._native, options[slots[0]]
        merged: dict[str, Any] = {name: first[name] for name in OPTIONS if first.get(name) is not None}
        if "system" in merged and not _is_same(first):
            systems = {slot: self._system(options[slot]["system"]) for slot in slots}
            merged["system"] = [systems.get(slot, systems[slots[0]]) for slot in range(self.num_envs)]
        if "state" in merged:
            states = {slot: native.world.check_state(options[slot]["state"], 1)[0] for slot in slots}
            merged["state"] = np.array([states.get(slot, states[slots[0]]) for slot in range(self.num_envs)])
        return merged

    def _system(self, given: Any) -> System:
        """What a single environment takes for its system; ValueError as there."""
        properties = self._native.world.properties
        values, ids, origin = (column[0] for column in resolve(given, None, properties, self._native.systems))
        return System(properties.mapping(values), id=ids) if origin is None else origin

    # --- the slots, one by one ---

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """An attribute of the single environments, such as `system`; AttributeError if they have none."""
        found = self._native.call("get_wrapper_attr", attr_name)
        return [found[slot] for slot in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Give slots a label of one's own, for `get_attr`; slots that never had one have None.

        AttributeError for what environments have already.
        """
        chosen = list(range(self.num_envs))
        chosen = {chosen[slot] for slot in self._get_indices(indices)}
        held = self.get_attr(attr_name) if self.has_attr(attr_name) else [None] * self.num_envs
        self._native.set_attr(attr_name, [value if slot in chosen else held[slot] for slot in range(self.num_envs)])

    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any
    ) -> list[Any]:
        """What a method of the single environments returns; ValueError for those that change an environment."""
        if method_name in CHANGES:
            raise ValueError(
                f"env_method({method_name!r}) cannot change slots one by one: set_options and reset choose systems and "
                "states"
            )
        return [method(*method_args, **method_kwargs) for method in self.get_attr(method_name, indices)]

    def env_is_wrapped(self, wrapper_class: type[Any], indices: VecEnvIndices = None) -> list[bool]:
        """Whether the vector environment has a wrapper of this class, once for each slot asked about."""
        found, env = False, self.env
        while isinstance(env, VectorWrapper):
            found, env = found or isinstance(env, wrapper_class), env.env
        return [found for _ in self._get_indices(indices)]

    # --- pictures ---

    def get_images(self) -> Sequence[NDArray[np.uint8] | None]:
        """N pictures for people, (h, w, 3) uint8; None, with a warning, unless the render mode is `rgb_array`."""
        if self.render_mode != "rgb_array":
            warnings.warn(f"pictures need render_mode='rgb_array', and it is {self.render_mode}", stacklevel=2)
            return [None] * self.num_envs
        return list(self._native.render() or ())

    def close(self) -> None:
        """Close the vector environment."""
        self.env.close()


def _is_same(options: Mapping[str, Any]) -> bool:
    system = options.get("system")
    return isinstance(system, str) and system == "same"


def _one(observations: Any, slot: int) -> Any:
    """A copy of one slot's observation."""
    if isinstance(observations, dict):
        return {name: batch[slot].copy() for name, batch in observations.items()}
    return observations[slot].copy()


def _spread(told: Mapping[str, Any], infos: list[dict[str, Any]]) -> None:
    """Put what a vector environment tells of each slot into that slot's info, scalars as Python ones."""
    for name, values in told.items():
        if name.startswith("_"):
            continue
        if isinstance(values, dict):  # as Gymnasium's RecordEpisodeStatistics tells
            items: list[Any] = [{} for _ in infos]
            _spread(values, items)
        else:
            items = values.tolist() if values.ndim == 1 else list(values)
        mask = told.get(f"_{name}")
        for slot in range(len(infos)) if mask is None else np.flatnonzero(mask).tolist():
            infos[slot][name] = items[slot]
