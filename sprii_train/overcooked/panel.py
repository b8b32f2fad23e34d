"""A panel: fresh episodes of every partner with one fixed ego, so that nothing but the partner differs between them.

Every partner plays the same starts and recipes against the same greedy ego. What is read from a slot is how a partner
behaves: the probabilities of its six actions in the same situations, taken from episodes of the training partners.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from sprii_envs.arguments import check, integer
from sprii_envs.overcooked.collect import Histories, collect
from sprii_envs.overcooked.game import ACTIONS, Game, observe
from sprii_envs.overcooked.partners.network import features, heads, recur
from sprii_envs.overcooked.partners.partner import NEURAL, Partner, actor
from sprii_envs.overcooked.partners.roster import Roster

STARTS, LENGTH, HORIZON = (0, 32), 8, 100
"""Where snippets begin in an episode of `HORIZON` steps, in a shorter one sooner, and how many steps they have."""

DRAWS = 256
"""Of each scripted action, whose policy is a sampler: those that draw nothing are exact."""

GREEDY = 1e6
"""Times a policy's logits: sampling takes the largest, unless two differ by less than 1e-4."""


@dataclass(frozen=True)
class PanelConfig:
    """What is played.

    Attributes:
        episodes: with each partner, the first half to fit and the second to test; two in a row make a sample.
        seed: of starts, recipes and actions, the same with every partner.
    """

    episodes: int = 16
    seed: int = 920_140

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        check(self, integer, "episodes", least=8)
        check(self, integer, "seed")
        if self.episodes % 4:
            raise ValueError(f"PanelConfig.episodes is {self.episodes}; legal: a multiple of 4")


class Panel(NamedTuple):
    """N samples of two episodes, partner by partner; a partner's first half is fitted on, its second tested.

    Attributes:
        observations, actions, rewards: the ego's, (N, 2, T, …), as `learners.ad.Play` has them.
        partners: ids, (N,).
        contexts: place among the samples of a partner's half, (N,); samples of one place begin alike.
        fit: whether a sample is fitted on, (N,).
        signatures: of all partners, (P, snippets × steps × 6) float64.
        returns: mean of a partner's episodes, (P,).
        behaviour: how partners truly behaved in the samples, (N, F): shares of their actions, places and loads.
    """

    observations: NDArray[np.uint8]
    actions: NDArray[np.uint8]
    rewards: NDArray[np.float32]
    partners: NDArray[np.int64]
    contexts: NDArray[np.int64]
    fit: NDArray[np.bool_]
    signatures: NDArray[np.float64]
    returns: NDArray[np.float64]
    behaviour: NDArray[np.float64]


def fixed_ego(roster: Roster) -> Partner:
    """The last checkpoint of the first training run, made greedy; the first partner of a roster without networks."""
    neural = [partner for partner in roster if partner.family == NEURAL]
    if not neural:
        return roster[0]
    first = [partner for partner in neural if partner.source == neural[0].source]
    return greedy(max(first, key=lambda partner: partner.checkpoint))


def greedy(partner: Partner) -> Partner:
    """The network that takes its likeliest action."""
    sharper = {name: partner.parameters[name] * np.float32(GREEDY) for name in ("policy.w", "policy.b")}
    return replace(partner, parameters={**partner.parameters, **sharper})


def panel(game: Game, seat: int, roster: Roster, config: PanelConfig = PanelConfig()) -> Panel:
    """Play and describe all partners of a roster: a pure function of its arguments.

    Args:
        seat: of the ego.
    """
    ego, half = fixed_ego(roster), config.episodes // 2
    played = [
        collect(game, seat, ego, partner, histories=config.episodes, seed=config.seed, states=True)
        for partner in roster
    ]
    samples = half // 2
    pairs = {
        name: np.concatenate([_pairs(getattr(own, name)[:, 0]) for own in played])
        for name in ("observations", "actions", "rewards")
    }
    return Panel(
        **pairs,
        partners=np.repeat(np.arange(len(roster)), 2 * samples),
        contexts=np.tile(np.arange(samples), 2 * len(roster)),
        fit=np.tile(np.repeat([True, False], samples), len(roster)),
        signatures=signatures(game, 1 - seat, roster, [played[i] for i in roster.group("familiar")]),
        returns=np.array([own.returns.mean() for own in played], np.float64),
        behaviour=_behaviour(1 - seat, played),
    )


def _behaviour(seat: int, played: Sequence[Histories]) -> NDArray[np.float64]:
    agents, found = [own.states.agents for own in played], []
    for values in (
        np.stack([own.partner_actions for own in played]),
        np.stack([own.pos.y[..., seat] * 1000 + own.pos.x[..., seat] for own in agents]),
        np.stack([own.inventory[..., seat] for own in agents]),
    ):
        shares = (values[..., None] == np.unique(values)).mean(axis=(2, 3))  # of an episode, (P, episodes, values)
        found.append(shares.reshape(len(played), -1, 2, shares.shape[-1]).mean(2).reshape(-1, shares.shape[-1]))
    return np.concatenate(found, axis=1)


def signatures(game: Game, seat: int, partners: Sequence[Partner], played: Sequence[Histories]) -> NDArray[np.float64]:
    """Probabilities of the six actions in the same snippets, (P, snippets × steps × 6); each is begun anew.

    Args:
        seat: of the partners.
        played: histories with their states; snippets are of the first episode of each.
    """
    starts = [start * min(game.max_steps, HORIZON) // HORIZON for start in STARTS]
    length = min(LENGTH, game.max_steps - starts[-1])
    pieces = [
        jax.tree.map(lambda leaf, s=start: leaf[0, 0, s : s + length], own.states) for own in played for start in starts
    ]
    states = jax.tree.map(lambda *leaves: np.stack(leaves), *pieces)
    times = np.tile(np.array(starts)[:, None] + np.arange(length), (len(played), 1))
    told = [
        _answers(game, seat, partner.family)(partner.reads, partner.initial(), states, times) for partner in partners
    ]
    return np.stack([np.asarray(own, np.float64).ravel() for own in told])


@functools.cache
def _answers(game: Game, seat: int, family: str) -> Any:
    """(weights, carry, states (S, L, …), times (S, L)) → probabilities (S, L, 6)."""
    if family == NEURAL:

        def chances(weights, carry, state, time):
            def move(carry, state):
                carry = recur(weights, carry, features(weights, observe(game, state)[seat]))
                return carry, jax.nn.softmax(heads(weights, carry)[0])

            return jax.lax.scan(move, carry, state)[1]

    else:
        act = actor(game, seat, family)

        def chances(weights, carry, state, time):
            def one(key):
                def move(carry, at):
                    state, time, key = at
                    action, carry = act(weights, carry, state, jnp.zeros(()), time, key)
                    return carry, jax.nn.one_hot(action, len(ACTIONS))

                return jax.lax.scan(move, carry, (state, time, jax.random.split(key, len(time))))[1]

            return jax.vmap(one)(jax.random.split(jax.random.PRNGKey(0), DRAWS)).mean(0)

    return jax.jit(jax.vmap(chances, in_axes=(None, None, 0, 0)))


def _pairs(episodes: NDArray[Any]) -> NDArray[Any]:
    return episodes.reshape(len(episodes) // 2, 2, *episodes.shape[1:])
