"""A frozen action learner cooks with partners: 20 episodes in a row, no optimiser (`app:overcooked-profile`)."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sprii_envs.overcooked.game import Game, check_process, reset, step
from sprii_envs.overcooked.partners.partner import Partner, actor
from sprii_train.learners.ad import AD, QUERY, SUPPORT, Play

Progress = Callable[[int, int], None]
"""Episodes done, of all."""


def play(
    learner: AD,
    game: Game,
    partners: Sequence[Partner],
    *,
    seat: int,
    episodes: int = 20,
    repeats: int = 4,
    seed: int = 0,
    progress: Progress | None = None,
) -> NDArray[np.float32]:
    """Returns (partners, repeats, episodes) of histories that grow episode by episode.

    The query is the running episode and up to two before it, its support the two before those, as in training; while
    there are none, the slot is zero. Actions are sampled.

    Args:
        repeats: independent histories with each partner.
        seed: of starts, recipes and all actions.
    """
    check_process()
    groups: dict[Any, list[int]] = {}
    for i, partner in enumerate(partners):
        partner.fits(game)
        groups.setdefault(partner.family, []).append(i)
    kitchens = [
        _Kitchens(game, seat, [partners[i] for i in own for _ in range(repeats)], seed + 1_000_003 * n)
        for n, own in enumerate(groups.values())
    ]
    order = np.argsort(np.concatenate([np.repeat(own, repeats) for own in groups.values()]), kind="stable")
    generator = torch.Generator().manual_seed(seed)
    past: list[Play] = []
    with torch.inference_mode():
        for episode in range(episodes):
            past.append(_episode(learner, game, kitchens, past, generator))
            if progress is not None:
                progress(episode + 1, episodes)
    returns = torch.stack([each.rewards.sum(-1)[:, 0] for each in past], dim=1).numpy()
    return returns[order].reshape(len(partners), repeats, episodes)


def slot_of(learner: AD, support: Sequence[Play], rows: int) -> Tensor:
    """Slots of up to two episodes (rows, 1, T, …) each; zeros without any."""
    if not support:
        return torch.zeros(rows, learner.config.slot)
    return learner.encode_history(Play(*(torch.cat(parts, dim=1) for parts in zip(*support, strict=True))))


def _episode(
    learner: AD, game: Game, kitchens: Sequence["_Kitchens"], past: Sequence[Play], generator: torch.Generator
) -> Play:
    """One episode everywhere, and what was seen, done and paid in it, (rows, 1, T, …)."""
    seen = torch.from_numpy(np.concatenate([kitchen.begin() for kitchen in kitchens]))
    rows, steps = len(seen), game.max_steps
    before = list(past[-(QUERY - 1) :])
    support = list(past[: len(past) - len(before)])[-SUPPORT:]
    slot = slot_of(learner, support, rows)
    now = Play(
        torch.zeros(rows, 1, steps, *seen.shape[1:], dtype=torch.uint8),
        torch.zeros(rows, 1, steps, dtype=torch.uint8),
        torch.zeros(rows, 1, steps),
    )
    cache = None
    if before:
        earlier = Play(*(torch.cat(parts, dim=1) for parts in zip(*before, strict=True)))
        cache = learner.act(learner.tokens(earlier), slot, None)[1]
    begun = len(before) * steps
    for t in range(steps):
        now.observations[:, 0, t] = seen
        token = learner.token_at(now, t, begun + t)
        logits, cache = learner.act(token, slot, cache)
        action = torch.multinomial(logits.float().softmax(-1), 1, generator=generator)[:, 0]
        at, parts, paid = 0, [], []
        for kitchen in kitchens:
            end = at + kitchen.rows
            after, reward = kitchen.step(action[at:end].numpy())
            parts.append(after)
            paid.append(reward)
            at = end
        seen = torch.from_numpy(np.concatenate(parts))
        now.actions[:, 0, t] = action
        now.rewards[:, 0, t] = torch.from_numpy(np.concatenate(paid))
    return now


class _Kitchens:
    """The state of kitchens whose partners are of one family, a row each."""

    def __init__(self, game: Game, seat: int, partners: Sequence[Partner], seed: int) -> None:
        self.rows = len(partners)
        self._game, self._seat, self._key = game, seat, jax.random.PRNGKey(seed)
        self._turn = _turn(game, seat, partners[0].family)
        self._weights = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(p.reads for p in partners))
        self._first = jnp.stack([jnp.asarray(p.initial()) for p in partners])
        self._now: Any = None

    def begin(self) -> NDArray[np.uint8]:
        """Begin an episode in every row: observations (rows, H, W, C)."""
        self._key, start = jax.random.split(self._key)
        seen, state = _begin(self._game)(jax.random.split(start, self.rows))
        self._now = (state, self._first, seen, jnp.int32(0))
        return np.array(seen[:, self._seat])

    def step(self, actions: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
        """Observations and rewards after the rows' actions."""
        self._key, key = jax.random.split(self._key)
        self._now, told = self._turn(self._weights, self._now, jnp.asarray(actions, jnp.int32), key)
        seen, reward = jax.device_get(told)
        return np.array(seen), np.array(reward)


@functools.cache
def _begin(game: Game) -> Any:
    return jax.jit(jax.vmap(functools.partial(reset, game)))


@functools.cache
def _turn(game: Game, seat: int, family: str) -> Any:
    answer = jax.vmap(actor(game, 1 - seat, family), in_axes=(0, 0, 0, 0, None, 0))

    @jax.jit
    def turn(weights, now, actions, key):
        state, carry, seen, time = now
        one, two = jax.random.split(key)
        rows = len(actions)
        reply, carry = answer(weights, carry, state, seen[:, 1 - seat], time, jax.random.split(one, rows))
        pair = jnp.stack([actions, reply] if seat == 0 else [reply, actions], axis=1)
        seen, state, reward, _ = jax.vmap(functools.partial(step, game))(jax.random.split(two, rows), state, pair)
        return (state, carry, seen, time + 1), (seen[:, seat], reward)

    return turn
