"""Episodes under collection: columns that grow step by step, whatever runs the environment."""

from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from sprii_envs.collection.episodes import RelatedEpisodes
from sprii_envs.collection.spaces import in_space
from sprii_envs.collection.systems import Told
from sprii_envs.relations import EpisodeTable
from sprii_envs.relations.labels import count_rollouts, system_label


class Recorder:
    """Columns of episodes under collection."""

    def __init__(self, env: Any, steps: int, episodes: int) -> None:
        """ValueError where observations or actions are no arrays."""
        batch = isinstance(env, VectorEnv)
        space: gym.Space[Any] = env.single_observation_space if batch else env.observation_space
        self.action_space: gym.Space[Any] = env.single_action_space if batch else env.action_space
        # CARL's observations carry their context, which belongs into the table.
        self.context = isinstance(space, gym.spaces.Dict) and set(space.spaces) == {"obs", "context"}
        self.observation_space = space["obs"] if self.context and isinstance(space, gym.spaces.Dict) else space
        self.spaces = dict(_leaves(self.observation_space, "observations"))
        columns = {**self.spaces, **dict(_leaves(self.action_space, "actions", nested=False))}
        self.env, self.steps, self.episodes = env, steps, episodes
        self.columns: dict[str, NDArray[Any]] = {
            name: np.zeros((episodes, steps + (name in self.spaces), *leaf.shape), leaf.dtype)  # type: ignore[misc]
            for name, leaf in columns.items()
        }
        self.columns["rewards"] = np.zeros((episodes, steps))
        self.length = np.zeros(episodes, np.int64)
        self.ending = np.full(episodes, "", "<U10")
        self.told: list[Told | None] = [None] * episodes
        self.properties: dict[Any, str] = {}
        """What the systems told so far are known to have, spelt, by label."""

    def observe(self, rows: Any, t: int, observations: Any) -> None:
        """Entry t of some episodes: observations of one (row number) or of several (rows)."""
        if self.context:
            observations = observations["obs"]
        for name, space in self.spaces.items():
            value = observations
            for key in name.split("/")[1:]:
                value = value[key]
            self.columns[name][rows, t] = in_space(value, space, name, None if isinstance(rows, int) else len(rows))
        self.length[rows] += 1

    def act(self, rows: Any, t: int, actions: Any, rewards: Any) -> None:
        """Transition t of some episodes, with actions of the space."""
        self.columns["actions"][rows, t] = actions
        self.columns["rewards"][rows, t] = rewards

    def end(self, rows: Any, terminated: Any, truncated: Any) -> None:
        """How some episodes ended, if they did."""
        self.ending[rows] = np.where(terminated, "terminated", np.where(truncated, "truncated", ""))

    def finished(self) -> RelatedEpisodes:
        """The episodes with their table; ValueError if they do not tell the same properties."""
        systems = [told for told in self.told if told is not None]
        labels = [told.label for told in systems]
        columns: dict[str, Any] = {
            "episode": np.arange(self.episodes),
            "system": labels if len({type(label) for label in labels}) == 1 else list(map(str, labels)),
            "rollout": count_rollouts(labels),
            "length": self.length,
        }
        taken = {*columns, "ending", "split"}
        for name, first in systems[0].values.items():
            if not isinstance(first, bool | int | float | str):
                continue  # no label, as an array; the system's label has it
            if any(name not in told.values for told in systems):
                raise ValueError(f"only some systems tell {name!r}; each must tell all its properties")
            columns[f"property_{name}" if name in taken else name] = [told.values[name] for told in systems]
        columns["ending"] = self.ending
        return RelatedEpisodes(
            EpisodeTable(columns), self.columns, self.observation_space, self.action_space, self.env.spec
        )

    def tell(self, row: int, told: Told | None, of: int | None, info: Mapping[str, Any]) -> None:
        """The system of an episode, which must be that of episode `of`."""
        if told is None:
            raise ValueError(
                "the environment does not tell its system: a reset must give info['system_id'], info['context'] or "
                f"info['context_id'], or a 'context' in the observation (info has: {', '.join(info) or 'nothing'}); "
                "otherwise pass choose=, or give it systems with sprii_envs.wrappers.PersistentEnv"
            )
        before = told if of is None else self.told[of]
        if before is not None and told.label != before.label:
            raise ValueError(
                f"the environment changed its system from {before.label!r} to {told.label!r} where another episode of "
                "the same was asked for"
            )
        spelt = system_label(dict(sorted(told.values.items())))
        if (known := self.properties.setdefault(told.label, spelt)) != spelt:
            raise ValueError(
                f"the environment tells the system {told.label!r} with {known or 'nothing'} and then with "
                f"{spelt or 'nothing'}: its persistent properties are fixed"
            )
        self.told[row] = told


def _leaves(space: gym.Space[Any], name: str, *, nested: bool = True) -> Iterator[tuple[str, gym.Space[Any]]]:
    """The arrays in a space by name; ValueError for a space whose elements are no arrays."""
    if nested and isinstance(space, gym.spaces.Dict):
        for key, part in space.spaces.items():
            yield from _leaves(part, f"{name}/{key}")
    elif isinstance(space, gym.spaces.Box | gym.spaces.Discrete | gym.spaces.MultiDiscrete | gym.spaces.MultiBinary):
        yield name, space
    else:
        raise ValueError(f"{name} of the space {space} cannot be kept as arrays: wrap the environment")
