"""The same kitchen as a PettingZoo `ParallelEnv`: both seats are played."""

import functools
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from pettingzoo import ParallelEnv

from sprii_envs.arguments import check_seed
from sprii_envs.overcooked.game import ACTIONS, AGENTS, Game, check_process, reset, step
from sprii_envs.overcooked.rendering import picture
from sprii_envs.properties import unknown_name

Seen = dict[str, NDArray[np.uint8]]


class OvercookedParallelEnv(ParallelEnv[str, NDArray[np.uint8], int]):
    """OvercookedV2 for two agents, `agent_0` and `agent_1`.

    Observations, actions and rewards are those of `OvercookedEnv`; the reward is shared. Each agent's info holds its
    `shaped_reward`. Episodes are truncated after `max_steps`.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "name": "sprii_overcooked_v0", "render_fps": 5}  # noqa: RUF012

    def __init__(
        self,
        *,
        layout: str = "grounded_coord_simple",
        max_steps: int = 100,
        view: int | None = 2,
        render_mode: str | None = None,
    ) -> None:
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise unknown_name("render_mode", render_mode, self.metadata["render_modes"])
        self.game = Game(layout, max_steps, view)
        self.render_mode = render_mode
        self.possible_agents = list(AGENTS)
        self.agents: list[str] = []
        self.observation_spaces = {agent: gym.spaces.Box(0, 255, self.game.shape, np.uint8) for agent in AGENTS}
        self.action_spaces: dict[str, Any] = {agent: gym.spaces.Discrete(len(ACTIONS)) for agent in AGENTS}
        self._reset, self._turn = _compiled(self.game)
        self._random: np.random.Generator | None = None
        self._state: Any = None

    def observation_space(self, agent: str) -> gym.Space[Any]:
        """Box(0, 255, (H, W, C), uint8)."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> gym.Space[Any]:
        """Discrete(6): right, down, left, up, stay, interact."""
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Seen, dict[str, Any]]:
        """Begin an episode with both agents; PettingZoo asks that unknown options be ignored."""
        seed = check_seed(seed)
        check_process()
        random = self._random
        if seed is not None or random is None:
            random = self._random = np.random.default_rng(seed)
        start, self._key = jax.random.split(jax.random.PRNGKey(random.integers(2**32, dtype=np.uint32)))
        seen, self._state = self._reset(start)
        self.agents, self._time = [*self.possible_agents], 0
        return dict(zip(AGENTS, np.asarray(seen), strict=True)), {agent: {} for agent in AGENTS}

    def step(self, actions: dict[str, int]) -> tuple[Seen, dict[str, float], dict[str, bool], dict[str, bool], dict]:
        """One step of all agents that are left.

        Raises:
            ValueError: if an agent's action is missing or is none of 0 to 5.
        """
        if not self.agents:
            return {}, {}, {}, {}, {}
        check_process()
        told = actions if isinstance(actions, dict) else {}
        for agent in self.agents:
            if agent not in told:
                raise ValueError(f"actions lack {agent!r}; legal: one of each of {', '.join(self.agents)}")
            action = actions[agent]
            if not self.action_spaces[agent].contains(np.int64(action) if isinstance(action, int) else action):
                raise ValueError(
                    f"{agent}'s action {actions[agent]!r} is illegal; legal: 0 to {len(ACTIONS) - 1}: "
                    f"{', '.join(ACTIONS)}"
                )
        for agent in told:
            if agent not in self.agents:
                raise unknown_name("agent", agent, self.agents)
        chosen = np.array([actions[agent] for agent in AGENTS], np.int32)
        self._state, self._key, told = self._turn(self._key, self._state, chosen)
        self._time += 1
        seen, reward, shaped = jax.device_get(told)
        over = self._time >= self.game.max_steps
        left = self.agents
        if over:
            self.agents = []
        return (
            dict(zip(left, seen, strict=True)),
            dict.fromkeys(left, float(reward)),
            dict.fromkeys(left, False),
            dict.fromkeys(left, over),
            {agent: {"shaped_reward": float(s)} for agent, s in zip(left, shaped, strict=True)},
        )

    def render(self) -> NDArray[np.uint8] | None:
        """The kitchen from above, (height, width, 3) uint8."""
        if self.render_mode is None or self._state is None:
            gym.logger.warn("render() needs render_mode='rgb_array' and an episode")
            return None
        return picture(self.game, self._state)

    def close(self) -> None:
        """Nothing is open."""


@functools.cache
def _compiled(game: Game) -> tuple[Any, Any]:
    @jax.jit
    def turn(key, state, actions):
        key, now = jax.random.split(key)
        seen, state, reward, shaped = step(game, now, state, jnp.asarray(actions))
        return state, key, (seen, reward, shaped)

    return jax.jit(functools.partial(reset, game)), turn
