"""Many episodes of a pair of policies in one jitted scan."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from sprii_envs.arguments import integer
from sprii_envs.overcooked.game import ACTIONS, SEEDS, Game, check_process, observe, reset, step
from sprii_envs.overcooked.partners.partner import Partner, actor

COUNT = 1_000_000
"""The most histories of a call, and the most episodes."""


@dataclass(frozen=True)
class Histories:
    """N histories of E consecutive episodes of T steps, seen from one seat.

    Attributes:
        observations: before each action, (N, E, T, H, W, C) uint8, or None.
        actions, partner_actions: (N, E, T) uint8.
        rewards: the team's after each action, (N, E, T) float32.
        states: of the kitchen before each action, every leaf (N, E, T, …), or None.
    """

    observations: NDArray[np.uint8] | None
    actions: NDArray[np.uint8]
    partner_actions: NDArray[np.uint8]
    rewards: NDArray[np.float32]
    states: Any = None

    @property
    def returns(self) -> NDArray[np.float32]:
        """Of each episode, (N, E)."""
        return self.rewards.sum(-1)


def collect(
    game: Game,
    seat: int,
    ego: Partner | Sequence[Partner],
    partner: Partner,
    *,
    histories: int,
    episodes: int = 1,
    seed: int,
    observations: bool = True,
    states: bool = False,
) -> Histories:
    """Play whole episodes, all histories at once.

    Args:
        seat: of the ego, 0 or 1; the partner takes the other.
        ego: who plays it, or one policy for each episode, all of one family and size.
        histories, episodes: N and E.
        seed: of starts, recipes and actions.
        observations, states: whether to keep them.

    Raises:
        ValueError: for a number below 1, for egos that are not one an episode, or for networks of another kitchen.
    """
    check_process()
    seat = integer("seat", seat, most=1)
    histories = integer("histories", histories, least=1, most=COUNT)
    episodes = integer("episodes", episodes, least=1, most=COUNT)
    seed = integer("seed", seed, most=SEEDS - 1)
    egos = [ego] * episodes if isinstance(ego, Partner) else list(ego)
    for each in (*egos, partner):
        if not isinstance(each, Partner):
            raise ValueError(f"a player is {each!r}; legal: a Partner, such as shipped()[0]")
    if len(egos) != episodes:
        raise ValueError(f"{len(egos)} egos for {episodes} episodes; legal: one, or one for each episode")
    families = {each.family for each in egos}
    if len(families) > 1:
        raise ValueError(f"egos are of {len(families)} families; legal: one in a call")
    for each in (*egos, partner):
        each.fits(game)
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *(each.reads for each in egos))
    play = _program(game, seat, egos[0].family, partner.family, histories, episodes, bool(observations), bool(states))
    carries = (egos[0].initial(), partner.initial())
    found = jax.device_get(play(stacked, partner.reads, carries, jax.random.PRNGKey(seed)))
    # Scans put episode and time in front of the histories.
    return Histories(*jax.tree.map(lambda leaf: np.moveaxis(leaf, 2, 0), found))


@functools.cache
def _program(
    game: Game, seat: int, ego: Any, partner: Any, histories: int, episodes: int, observations: bool, states: bool
) -> Any:
    act, answer = actor(game, seat, ego), actor(game, 1 - seat, partner)

    def many(policy: Any) -> Any:
        return jax.vmap(policy, in_axes=(None, 0, 0, 0, None, 0))

    def keys(key: jax.Array) -> jax.Array:
        return jax.random.split(key, histories)

    @jax.jit
    def play(egos, parameters, carries, key):
        first = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (histories, *jnp.shape(leaf))), carries)

        def episode(_, now):
            own, key = now
            start, run = jax.random.split(key)
            _, state = jax.vmap(functools.partial(reset, game))(keys(start))

            def move(now, at):
                time, key = at
                state, (mine, theirs) = now
                # Not carried from the step before, so that what nobody reads is not computed.
                seen = jax.vmap(functools.partial(observe, game))(state)
                one, two, three = jax.random.split(key, 3)
                action, mine = many(act)(own, mine, state, seen[:, seat], time, keys(one))
                reply, theirs = many(answer)(parameters, theirs, state, seen[:, 1 - seat], time, keys(two))
                pair = jnp.stack([action, reply] if seat == 0 else [reply, action], axis=1)
                _, after, reward, _ = jax.vmap(functools.partial(step, game))(keys(three), state, pair)
                return (after, (mine, theirs)), (
                    seen[:, seat] if observations else None,
                    action.astype(jnp.uint8),
                    reply.astype(jnp.uint8),
                    reward,
                    state if states else None,
                )

            times = jnp.arange(game.max_steps)
            _, found = jax.lax.scan(move, (state, first), (times, jax.random.split(run, game.max_steps)))
            return None, found

        return jax.lax.scan(episode, None, (egos, jax.random.split(key, episodes)))[1]

    return play


def action_counts(actions: NDArray[np.uint8]) -> NDArray[np.float64]:
    """How often each action was taken, as shares over all but the first axis: (N, …) → (N, 6)."""
    flat = actions.reshape(len(actions), -1)
    return np.stack([(flat == a).mean(1) for a in range(len(ACTIONS))], axis=1)
