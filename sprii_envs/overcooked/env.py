"""`sprii/Overcooked-v0`: one seat of a kitchen, the other taken by a fixed partner that persists."""

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

from sprii_envs.arguments import check_seed
from sprii_envs.overcooked.game import ACTIONS, AGENTS, Game, check_process, reset, step
from sprii_envs.overcooked.partners.partner import SAME, Partner, actor, seat_of
from sprii_envs.overcooked.partners.roster import GROUPS, roster_of
from sprii_envs.overcooked.rendering import TILE, picture
from sprii_envs.properties import unknown_name

_OPTIONS = ("partner",)


class OvercookedEnv(gym.Env[NDArray[np.uint8], np.int64]):
    """Cook with a partner whose identity persists and is never observed (`app:overcooked-profile`).

    Observation: (H, W, C) uint8, JaxMARL's layers of the cells around this seat. Actions: right, down, left, up, stay,
    interact. Reward, of the team: +20 for a dish of the episode's recipe, −5 for a press of the recipe's button.
    Episodes are truncated after `max_steps`.

    `info` holds `partner_id` (also as `system_id`), `partner` (its name) and, from `step`, `partner_action` and
    `shaped_reward`, those of both seats in order.

    A bare `reset()` draws a partner of the roster, or uses the one the constructor was given. `reset(options=
    {"partner": ...})` takes a name, an id, or "same" for another episode with the present one. The same seed gives
    the same recipe and start whatever the partner.

    Args:
        layout, max_steps, view: see `game.Game`.
        ego: the seat that is played, `agent_0` or `agent_1`.
        partner: name or id of one partner, who then stays.
        partners: a roster, partners, or a folder of them; by default the shipped ones.
        group: which of them bare resets draw from: `familiar`, `held_out` or `all`.

    Raises:
        ValueError: for unknown names, and for partners trained in another kitchen.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 5}  # noqa: RUF012

    def __init__(
        self,
        *,
        layout: str = "grounded_coord_simple",
        max_steps: int = 100,
        view: int | None = 2,
        ego: str = "agent_0",
        partner: str | int | None = None,
        partners: Iterable[Partner] | str | Path | None = None,
        group: str = "all",
        render_mode: str | None = None,
    ) -> None:
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise unknown_name("render_mode", render_mode, self.metadata["render_modes"])
        self.game = Game(layout, max_steps, view)
        self.seat = seat_of(ego)
        self.partners = roster_of(partners, self.game)
        for each in self.partners:
            each.fits(self.game)
        self.drawn = self.partners.group(group)
        if not self.drawn:
            filled = [name for name in GROUPS if self.partners.group(name)]
            raise ValueError(f"group {group!r} of the roster is empty; legal: {', '.join(filled)}")
        self.fixed = None if partner is None else self.partners.id(partner)
        self.observation_space = gym.spaces.Box(0, 255, self.game.shape, np.uint8)
        self.action_space = gym.spaces.Discrete(len(ACTIONS))
        self.render_mode = render_mode
        self._reset = jax.jit(functools.partial(reset, self.game))
        self._partner = -1
        self._now: Any = None

    @property
    def partner(self) -> Partner:
        """The partner of the present episode."""
        self._needs_reset()
        return self.partners[self._partner]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Begin an episode; see the class docstring for `options`. Bad options change nothing."""
        if options is not None and not isinstance(options, dict):
            raise ValueError(f"reset options are {options!r}; legal: a dictionary such as {{'partner': 'still'}}")
        for name in options or {}:
            if name not in _OPTIONS:
                raise unknown_name("reset option", name, _OPTIONS)
        check_process()
        asked = (options or {}).get("partner")
        if asked == SAME:
            if self._now is None:
                raise ValueError("partner 'same' needs a partner: reset once without it")
            chosen = self._partner
        else:
            chosen = None if asked is None else self.partners.id(asked)
        super().reset(seed=check_seed(seed))
        key, drawn = self.np_random.integers(2**32, dtype=np.uint32), self.np_random.integers(len(self.drawn))
        if chosen is None:
            chosen = self.drawn[drawn] if self.fixed is None else self.fixed
        self._partner = chosen
        start, episode = jax.random.split(jax.random.PRNGKey(key))
        observation, state = self._reset(start)
        self._now = (state, self.partners[chosen].initial(), observation, episode)
        self._time = 0
        return np.asarray(observation[self.seat]), self._who()

    def step(self, action: Any) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """One step of both seats.

        Raises:
            ValueError: for an action that is none of 0 to 5.
        """
        check_process()
        self._needs_reset()
        if not self.action_space.contains(np.int64(action) if isinstance(action, int) else action):
            raise ValueError(f"action {action!r} is illegal; legal: 0 to {len(ACTIONS) - 1}: {', '.join(ACTIONS)}")
        if self._time >= self.game.max_steps:
            raise ResetNeeded(f"the episode ended after {self.game.max_steps} steps: call reset()")
        turn = _turn(self.game, self.seat, self.partner.family)
        now, told = turn(self.partner.reads, self._now, np.int32(action), np.int32(self._time))
        self._now, self._time = now, self._time + 1
        observation, reward, partner_action, shaped = jax.device_get(told)
        info = self._who() | {"partner_action": int(partner_action), "shaped_reward": shaped}
        return observation, float(reward), False, self._time >= self.game.max_steps, info

    def render(self) -> NDArray[np.uint8] | None:  # type: ignore[override]
        """The kitchen from above, (height, width, 3) uint8, 32 pixels a cell."""
        if self.render_mode is None:
            gym.logger.warn("render() needs a render_mode: gym.make(..., render_mode='rgb_array')")
            return None
        self._needs_reset()
        return picture(self.game, self._now[0], tile=TILE)

    def _needs_reset(self) -> None:
        if self._now is None:
            raise ResetNeeded("call reset() first: there is no episode yet")

    def _who(self) -> dict[str, Any]:
        return {"system_id": self._partner, "partner_id": self._partner, "partner": self.partner.name}


@functools.cache
def _turn(game: Game, seat: int, family: str) -> Any:
    """The jitted step of a seat with partners of one family."""
    other = 1 - seat
    act = actor(game, other, family)

    @jax.jit
    def turn(parameters, now, action, time):
        state, carry, seen, key = now
        key, chosen, stepped = jax.random.split(key, 3)
        answer, carry = act(parameters, carry, state, seen[other], time, chosen)
        pair = jnp.stack([action, answer] if seat == 0 else [answer, action])
        seen, state, reward, shaped = step(game, stepped, state, pair)
        return (state, carry, seen, key), (seen[seat], reward, answer, shaped)

    return turn


__all__ = ["ACTIONS", "AGENTS", "OvercookedEnv"]
