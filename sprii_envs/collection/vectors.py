"""Related episodes from vector environments: as many at once as there are slots, the same ones as from a single one."""

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv, VectorWrapper
from numpy.typing import NDArray

from sprii_envs.collection.episodes import RelatedEpisodes
from sprii_envs.collection.policies import actor
from sprii_envs.collection.recorder import Recorder
from sprii_envs.collection.spaces import legal_action
from sprii_envs.collection.systems import ByHook, Choose, Told, told
from sprii_envs.properties import System
from sprii_envs.vector import SpriiVectorEnv

Progress = Callable[[int, int], None]


class Batch(Recorder, ABC):
    """Rounds of one episode in every slot."""

    def __init__(self, env: VectorEnv[Any, Any, Any], steps: int, episodes: int) -> None:
        super().__init__(env, steps, episodes)
        self.mode = AutoresetMode(env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))

    def collect(
        self, policy: Any, systems: int | Sequence[Any], seeds: NDArray[np.int64], progress: Progress | None
    ) -> RelatedEpisodes:
        """All episodes of all systems, with `seeds` (systems, episodes, 2) of their resets and actions."""
        (total, each), n = seeds.shape[:2], self.env.num_envs
        for turn in range(math.ceil(total / n)):
            # Slots beyond the last system repeat it; their episodes are not kept.
            which = np.minimum(np.arange(turn * n, turn * n + n), total - 1)
            kept = min(n, total - turn * n)
            items = [None] * n if isinstance(systems, int) else [systems[k] for k in which]
            for rollout in range(each):
                observations, found = self.begin(items, rollout == 0, seeds[which, rollout, 0].tolist())
                rows = which[:kept] * each + rollout
                for row, (one, info) in zip(rows.tolist(), found, strict=False):
                    self.tell(row, one, None if rollout == 0 else row - rollout, info)
                act = actor(policy, self.action_space, seeds[which, rollout, 1].tolist(), self.steps, batched=True)
                self._run(rows, observations, act)
                if progress:
                    progress(turn * n * each + kept * (rollout + 1), self.episodes)
        return self.finished()

    @abstractmethod
    def begin(self, items: list[Any], first: bool, seeds: list[int]) -> tuple[Any, list[tuple[Told | None, Any]]]:
        """Begin an episode in every slot, the `first` of its system or another; what each tells, and its info."""

    @abstractmethod
    def go_on(self, ended: NDArray[np.bool_], observations: Any) -> Any:
        """Keep ended slots running until the round is over; what they do is not kept."""

    def _run(self, rows: NDArray[np.int64], observations: Any, act: Any) -> None:
        """One episode in each of the first slots, until the last of them has ended."""
        running = np.arange(len(rows))
        self.observe(rows, 0, take(observations, running))
        for t in range(self.steps):
            actions = legal_action(act(observations, t), self.action_space, self.env.num_envs)
            observations, rewards, terminated, truncated, info = self.env.step(actions)
            done = terminated | truncated
            seen = observations
            if done.any() and self.mode is AutoresetMode.SAME_STEP:
                seen = _with_final(observations, info["final_obs"], done)
            self.act(rows[running], t, actions[running], rewards[running])
            self.observe(rows[running], t + 1, take(seen, running))
            self.end(rows[running], terminated[running], truncated[running])
            running = running[~done[running]]
            if not len(running):
                return
            if done.any():
                observations = self.go_on(done, observations)


class Native(Batch):
    """One of our vector environments."""

    def __init__(self, env: VectorEnv[Any, Any, Any], steps: int, episodes: int) -> None:
        super().__init__(env, steps, episodes)
        self.slots: SpriiVectorEnv = env.unwrapped  # type: ignore[assignment]
        self.chosen: list[Any] | None = None

    def begin(self, items: list[Any], first: bool, seeds: list[int]) -> tuple[Any, list[tuple[Told | None, Any]]]:
        """All slots in one reset."""
        if first:
            drawn = items[0] is None
            self.chosen = None if drawn else [self._system(item) for item in items]
        options = None if self.chosen is None else {"system": self.chosen}
        observations, info = self.env.reset(seed=seeds, options=options)
        if self.chosen is None:  # an autoreset draws another system, after which "same" would be the wrong one
            self.chosen = [self.slots.system(slot) for slot in range(self.slots.num_envs)]
        names = self.slots.persistent_properties.names
        systems = zip(self.slots.system_ids, self.slots.values.tolist(), strict=True)
        return observations, [(Told(id, dict(zip(names, values, strict=True))), info) for id, values in systems]

    def _system(self, item: Any) -> str | System:
        properties = self.slots.persistent_properties
        return item if isinstance(item, str | System) else System(properties.mapping(properties.array(item)))

    def go_on(self, ended: NDArray[np.bool_], observations: Any) -> Any:
        """Slots that do not reset by themselves are."""
        if self.mode is AutoresetMode.DISABLED:
            return self.env.reset(options={"reset_mask": ended})[0]
        return observations


class Foreign(Batch):
    """Single environments in a vector of Gymnasium's, each of which takes the reset option `system`, or a hook.

    Where the vector would draw another system within its next step, the ended slot is reset before that. Within the
    step itself, of `SAME_STEP`, environments must be told beforehand, by their `keep_system`.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], steps: int, episodes: int, choose: Choose | None) -> None:
        super().__init__(env, steps, episodes)
        self.choose = choose
        self.inner: Any = env.unwrapped
        self.has = functools.cache(lambda name: self.inner.call("has_wrapper_attr", name))
        self.get = functools.cache(self.inner.get_attr)
        if choose is not None and not isinstance(self.inner, SyncVectorEnv):
            raise ValueError(
                f"choose= sets single environments, alone or in a SyncVectorEnv; those of {env} are out of its reach"
            )
        if choose is None and all(self.has("contexts")) and all(self.has("context_id")):
            raise ValueError(
                f"collection by contexts from {env} is not supported: pass the single environment, or choose="
            )
        if self.mode is AutoresetMode.NEXT_STEP and not getattr(self.inner, "shared_memory", True):
            raise ValueError(
                f"{env} forgets resets of ended slots: make it with shared_memory=True, or with "
                "autoreset_mode=AutoresetMode.DISABLED"
            )
        self.keeps = choose is None and self.mode is AutoresetMode.SAME_STEP
        if self.keeps and not all(self.has("keep_system")):
            raise ValueError(
                f"the environments of {env} draw other systems in the resets within their steps, and have no "
                "`keep_system`: make the vector with autoreset_mode=AutoresetMode.DISABLED or NEXT_STEP"
            )

        layer: Any = env
        while self.keeps and isinstance(layer, VectorWrapper):
            if hasattr(layer, "rollouts"):  # VectorRepeatSystem
                raise ValueError(
                    f"{env} draws systems by itself, within its steps: pass the vector inside it, {layer.env}"
                )
            layer = layer.env

    def collect(
        self, policy: Any, systems: int | Sequence[Any], seeds: NDArray[np.int64], progress: Progress | None
    ) -> RelatedEpisodes:
        """As `Batch`, while the environments keep their systems."""
        if self.choose is not None and isinstance(systems, int):
            systems = list(range(systems))
        if not self.keeps:
            return super().collect(policy, systems, seeds, progress)
        before = list(self.inner.get_attr("keep_system"))
        self.inner.set_attr("keep_system", True)
        try:
            return super().collect(policy, systems, seeds, progress)
        finally:
            self.inner.set_attr("keep_system", before)

    def begin(self, items: list[Any], first: bool, seeds: list[int]) -> tuple[Any, list[tuple[Told | None, Any]]]:
        """One reset for all slots, where their options are alike; otherwise one after the other."""
        if self.choose is not None:
            hooks = [ByHook(env, [item], self.choose) for env, item in zip(self.inner.envs, items, strict=True)]
            options = [hook.options(item) for hook, item in zip(hooks, items, strict=True)]
        elif first:
            options = [None if item is None else {"system": item} for item in items]
        else:
            options = [{"system": "same"}] * len(items)
        observations, infos = self.env.reset(seed=list(seeds), options=_copy(options[0]))
        found = [of_slot(infos, slot) for slot in range(len(items))]
        if any(each is not options[0] for each in options):
            for slot in range(1, len(items)):
                mask, seed = np.arange(len(items)) == slot, [None] * len(items)
                seed[slot] = seeds[slot]  # type: ignore[call-overload]
                given = {**(options[slot] or {}), "reset_mask": mask}
                observations, infos = self.env.reset(seed=seed, options=given)
                found[slot] = of_slot(infos, slot)
        all_told = []
        for slot, info in enumerate(found):
            one = told(_Slot(self, slot), take(observations, slot), info)
            all_told.append((one or (None if self.choose is None else ByHook.told(items[slot])), info))
        return observations, all_told

    def go_on(self, ended: NDArray[np.bool_], observations: Any) -> Any:
        """Slots that have not begun another episode do, of the same system."""
        if self.mode is AutoresetMode.SAME_STEP:
            return observations
        options: dict[str, Any] = {"reset_mask": ended}
        return self.env.reset(options=options if self.choose else options | {"system": "same"})[0]


class _Slot:
    """What `told` asks a single environment, of one in a vector."""

    def __init__(self, of: Foreign, slot: int) -> None:
        self.of, self.slot = of, slot

    def has_wrapper_attr(self, name: str) -> bool:
        return self.of.has(name)[self.slot]

    def get_wrapper_attr(self, name: str) -> Any:
        return self.of.get(name)[self.slot]


def vector(env: VectorEnv[Any, Any, Any], steps: int, episodes: int, choose: Choose | None) -> Batch:
    """What collects from a vector environment; ValueError where nothing does."""
    if isinstance(env.unwrapped, SpriiVectorEnv):
        if choose is not None:
            raise ValueError("choose= is for single environments, alone or in a SyncVectorEnv: ours take systems=")
        return Native(env, steps, episodes)
    if isinstance(env.unwrapped, SyncVectorEnv | AsyncVectorEnv):
        return Foreign(env, steps, episodes, choose)
    raise ValueError(
        f"collection from a {type(env.unwrapped).__name__} is not supported: pass one of our vector environments "
        "(gym.make_vec of a sprii id), a SyncVectorEnv, an AsyncVectorEnv, or a single environment"
    )


def of_slot(infos: Mapping[str, Any], slot: int) -> dict[str, Any]:
    """What batched infos tell of one slot."""
    found = {}
    for name, value in infos.items():
        if name.startswith("_") and name[1:] in infos:
            continue
        mask = infos.get(f"_{name}")
        if mask is None or mask[slot]:
            found[name] = of_slot(value, slot) if isinstance(value, Mapping) else value[slot]
    return found


def take(observations: Any, rows: Any) -> Any:
    """Some rows of batched observations, or one."""
    if isinstance(observations, Mapping):
        return {key: take(part, rows) for key, part in observations.items()}
    return observations[rows]


def _copy(options: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if options is None else dict(options)


def _with_final(observations: Any, final: Any, done: NDArray[np.bool_]) -> Any:
    """Observations with the final ones of the slots that have ended, (N,) objects."""
    if isinstance(observations, Mapping):
        slots = np.flatnonzero(done)
        parts = {}
        for key, part in observations.items():
            inner = np.full(len(done), None, object)
            for slot in slots:
                inner[slot] = final[slot][key]
            parts[key] = _with_final(part, inner, done)
        return parts
    seen = observations.copy()
    for slot in np.flatnonzero(done):
        seen[slot] = final[slot]
    return seen
