"""Several episodes of each of several systems, from a live environment."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from sprii_envs.collection.episodes import RelatedEpisodes
from sprii_envs.collection.policies import actor
from sprii_envs.collection.recorder import Recorder
from sprii_envs.collection.spaces import legal_action
from sprii_envs.collection.systems import Choose, Told, chooser
from sprii_envs.fields import MANY, WORD, integer
from sprii_envs.properties import System, SystemSet
from sprii_envs.relations.streams import COLLECTION, stream
from sprii_envs.vector import SpriiVectorEnv

Progress = Callable[[int, int], None]


def collect_related(
    env: gym.Env[Any, Any] | VectorEnv[Any, Any, Any],
    policy: Any = None,
    *,
    systems: int | Sequence[Any] | NDArray[Any] = 1,
    episodes_per_system: int = 2,
    steps: int,
    seed: int = 0,
    choose: Choose | None = None,
    progress: Progress | None = None,
) -> RelatedEpisodes:
    """Collect `episodes_per_system` episodes of each of `systems`, at most `steps` transitions long.

    Parameters
    ----------
    env : one of

        - ours, single or vector (many episodes at once), wrapped or not;
        - any environment that tells `info["system_id"]` at reset and takes the reset option {"system": "same"};
        - CARL's kind, with `contexts` and `context_id`; episodes of equal contexts are of one system, and the
          "obs" of the observations is recorded;
        - any other single one, with `choose`
    policy : None for uniformly random actions, a model with `predict` (Stable-Baselines3) or a function of the
        observation; a vector environment gives them batches. Actions must be in the space and are recorded and done
        in its type.
    systems : how many (drawn by the environment, or its first contexts), or which: what the reset option `system`
        takes, keys of `contexts`, or what `choose` takes
    seed : the whole collection is a pure function of it if the policy is one of the observations. Systems and
        episodes have streams of their own, so that more of either begin with the same ones.
    choose : `choose(env, item)` is called before each reset to put the environment in the system `item` (of
        `systems`, or 0, 1, … if that is a number) and may return options for the reset. An environment that
        does not tell its system has `item`, whose entries become columns if it is a mapping.
    progress : called with (done, total) episodes

    All is kept in memory. Systems that are drawn twice are one system with more rollouts. ValueError where the
    environment tells no system, changes it between the episodes of one, tells one label with different properties, or
    has observations or actions that are no arrays or not of its spaces; TypeError for a policy that cannot act and for
    what is no environment.
    """
    if not isinstance(env, gym.Env | VectorEnv):
        raise TypeError(f"env must be a Gymnasium environment, got {env!r}: pass gym.make(...)")
    systems = _listed(systems)
    total = systems if isinstance(systems, int) else len(systems)
    each = integer("episodes_per_system", episodes_per_system, least=1, most=MANY)
    steps = integer("steps", steps, least=1, most=MANY)
    seed = integer("seed", seed, most=WORD)
    # Two seeds an episode: of its reset and of its random actions. Below 2^31: some environments seed NumPy's global
    # generator, which takes 32 bits.
    seeds = np.stack([stream(seed, k, COLLECTION).integers(2**31, size=(each, 2)) for k in range(total)])
    if isinstance(env, VectorEnv):
        if choose is not None:
            raise ValueError("choose= is for single environments: it sets one system at a time")
        return _Vector(env, steps, total * each).collect(policy, systems, seeds, progress)
    return _Single(env, steps, total * each).collect(policy, systems, seeds, choose, progress)


def _listed(systems: Any) -> int | list[Any]:
    """A number of systems, or those given."""
    if isinstance(systems, str | Mapping | System):
        raise ValueError(f"systems must be a number of systems or a list of them, got {systems!r}: put it in a list")
    if isinstance(systems, np.ndarray) and systems.ndim:
        systems = systems.tolist() if systems.ndim == 1 else list(systems)
    if isinstance(systems, SystemSet | Sequence):
        if len(systems) == 0:
            raise ValueError("systems must hold at least one system")
        return list(systems)
    return integer("systems", systems, least=1, most=MANY)


class _Single(Recorder):
    """One episode after the other, of any environment."""

    def collect(
        self, policy: Any, systems: Any, seeds: NDArray[np.int64], choose: Choose | None, progress: Progress | None
    ) -> RelatedEpisodes:
        ways: Any = chooser(self.env, systems, choose)
        row = 0
        for item, rollouts in zip(ways.items, seeds.tolist(), strict=True):
            first = row
            for reset_seed, action_seed in rollouts:
                observation, info, told = ways.reset(item, row == first, reset_seed)
                self.tell(row, told, None if row == first else first, info)
                act = actor(policy, self.action_space, [action_seed], self.steps, batched=False)
                self.observe(row, 0, observation)
                for t in range(self.steps):
                    action = legal_action(act(observation, t), self.action_space)
                    observation, reward, terminated, truncated, _ = self.env.step(action)
                    self.act(row, t, action, reward)
                    self.observe(row, t + 1, observation)
                    if terminated or truncated:
                        self.end(row, terminated, truncated)
                        break
                row += 1
                if progress:
                    progress(row, self.episodes)
        return self.finished()


class _Vector(Recorder):
    """As many systems at once as one of our vector environments has slots; the same episodes as from a single one."""

    def __init__(self, env: VectorEnv[Any, Any, Any], steps: int, episodes: int) -> None:
        if not isinstance(env.unwrapped, SpriiVectorEnv):
            raise ValueError(
                f"collection from a {type(env.unwrapped).__name__} is not supported: pass one of our vector "
                "environments (gym.make_vec of a sprii id), or a single environment"
            )
        super().__init__(env, steps, episodes)
        self.slots: SpriiVectorEnv = env.unwrapped

    def collect(
        self, policy: Any, systems: Any, seeds: NDArray[np.int64], progress: Progress | None
    ) -> RelatedEpisodes:
        total, each = seeds.shape[:2]
        n = self.slots.num_envs
        given = None if isinstance(systems, int) else [s if isinstance(s, str | System) else System(s) for s in systems]
        for turn in range(math.ceil(total / n)):
            # Slots beyond the last system repeat it; their episodes are not kept.
            which = np.minimum(np.arange(turn * n, turn * n + n), total - 1)
            kept = min(n, total - turn * n)
            chosen: Any = None if given is None else [given[k] for k in which]
            for rollout in range(each):
                options = None if chosen is None else {"system": chosen}
                observations, info = self.env.reset(seed=seeds[which, rollout, 0].tolist(), options=options)
                # An autoreset draws another system, after which "same" would be the wrong one.
                chosen = [self.slots.system(slot) for slot in range(n)] if chosen is None else chosen
                rows = which[:kept] * each + rollout
                self._tell(rows, each, info)
                act = actor(policy, self.action_space, seeds[which, rollout, 1].tolist(), self.steps, batched=True)
                self._run(rows, observations, act)
                if progress:
                    progress(turn * n * each + kept * (rollout + 1), self.episodes)
        return self.finished()

    def _tell(self, rows: NDArray[np.int64], each: int, info: Mapping[str, Any]) -> None:
        names, values = self.slots.persistent_properties.names, self.slots.values.tolist()
        ids = self.slots.system_ids
        for slot, row in enumerate(rows.tolist()):
            first = row - row % each
            told = Told(ids[slot], dict(zip(names, values[slot], strict=True)))
            self.tell(row, told, None if row == first else first, info)

    def _run(self, rows: NDArray[np.int64], observations: Any, act: Any) -> None:
        """One episode in each of the first slots, until the last of them has ended."""
        running = np.arange(len(rows))
        self.observe(rows, 0, _take(observations, running))
        for t in range(self.steps):
            actions = legal_action(act(observations, t), self.action_space, self.slots.num_envs)
            observations, rewards, terminated, truncated, info = self.env.step(actions)
            done = terminated | truncated
            seen = observations
            if done.any() and self.slots.autoreset_mode is AutoresetMode.SAME_STEP:
                seen = _with_final(observations, info["final_obs"], done)
            self.act(rows[running], t, actions[running], rewards[running])
            self.observe(rows[running], t + 1, _take(seen, running))
            self.end(rows[running], terminated[running], truncated[running])
            running = running[~done[running]]
            if not len(running):
                return
            if self.slots.autoreset_mode is AutoresetMode.DISABLED and done.any():
                observations, _ = self.env.reset(options={"reset_mask": done})


def _take(observations: Any, rows: NDArray[np.intp]) -> Any:
    if isinstance(observations, Mapping):
        return {key: _take(part, rows) for key, part in observations.items()}
    return observations[rows]


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
