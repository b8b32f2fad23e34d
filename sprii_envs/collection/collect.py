"""Several episodes of each of several systems, from a live environment."""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from sprii_envs.arguments import MANY, WORD, integer
from sprii_envs.collection.episodes import RelatedEpisodes
from sprii_envs.collection.policies import actor
from sprii_envs.collection.recorder import Recorder
from sprii_envs.collection.spaces import legal_action
from sprii_envs.collection.systems import Choose, chooser
from sprii_envs.collection.vectors import Progress, vector
from sprii_envs.properties import System, SystemSet
from sprii_envs.relations.streams import COLLECTION, stream


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

    Args:
        env: one of

            - ours, single or vector (many episodes at once), wrapped or not;
            - any environment that tells `info["system_id"]` at reset and takes the reset option {"system": "same"},
              such as a `PersistentEnv`, or a `SyncVectorEnv` or `AsyncVectorEnv` of such; with `SAME_STEP`, of ours or
              `PersistentEnv`s only;
            - CARL's kind, with `contexts` and `context_id`; episodes of equal contexts are of one system, and the
              "obs" of the observations is recorded;
            - any other single one, or a `SyncVectorEnv` of such, with `choose`
        policy: None for uniformly random actions, a model with `predict` (Stable-Baselines3) or a function of the
            observation; a vector environment gives them batches. Actions must be in the space and are recorded and done
            in its type.
        systems: how many (drawn by the environment, or its first contexts), or which: what the reset option `system`
            takes, keys of `contexts`, or what `choose` takes
        seed: the whole collection is a pure function of it if the policy is one of the observations. Systems and
            episodes have streams of their own, so that more of either begin with the same ones.
        choose: `choose(env, item)` is called before each reset to put the environment in the system `item` (of
            `systems`, or 0, 1, … if that is a number) and may return options for the reset. An environment that
            does not tell its system has `item`, whose entries become columns if it is a mapping.
        progress: called with (done, total) episodes

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
        return vector(env, steps, total * each, choose).collect(policy, systems, seeds, progress)
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
