"""Independent PPO in self-play with a recurrent actor, one jitted program an iteration (partners of `app:overcooked`).

Both seats share one network, so that a trained partner can take either. An iteration plays one whole episode in every
kitchen. Two aids fade linearly: OvercookedV2's shaped rewards, and a subsidy that makes presses of the recipe's button
free, without which no pair of this budget keeps pressing it. See Schulman et al. 2017 and de Witt et al. 2020.
"""

import functools
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from sprii_envs.arguments import check, integer, number
from sprii_envs.overcooked.game import ACTIONS, Game, reset, step
from sprii_envs.overcooked.partners.network import Parameters, features, heads, recur, shapes

RETURNS = "bootstrapped at the time limit"
"""What learning takes to follow an episode, which no field says: runs with another rule are other runs."""

DISH, PRESS = 20.0, 5.0
"""What a correct dish brings and a press of the button costs."""


@dataclass(frozen=True)
class IPPO:
    """Hyper-parameters.

    Attributes:
        kitchens: played at once.
        width: of the embedding and of the recurrent unit.
        epochs, minibatches: of an iteration; a minibatch is of whole sequences.
        fade: part of the training after which neither aid is left.
    """

    kitchens: int = 64
    width: int = 64
    epochs: int = 4
    minibatches: int = 4
    learning_rate: float = 1e-3
    clip: float = 0.2
    entropy: float = 0.02
    value: float = 0.5
    norm: float = 0.5
    discount: float = 0.99
    trace: float = 0.95
    fade: float = 0.6

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        check(self, integer, "kitchens", "width", "epochs", "minibatches", least=1)
        check(self, number, "learning_rate", "clip", "norm", above=0)
        check(self, number, "entropy", "value", least=0)
        check(self, number, "discount", "trace", "fade", least=0, most=1)


class Training(NamedTuple):
    """Everything that an iteration changes."""

    parameters: Parameters
    optimiser: optax.OptState
    key: jax.Array


class Sequences(NamedTuple):
    """Whole episodes of N seats: time first."""

    observation: jax.Array  # (T, N, H, W, C) uint8
    action: jax.Array  # (T, N)
    log_probability: jax.Array  # (T, N)
    advantage: jax.Array  # (T, N)
    target: jax.Array  # (T, N)


def initial(game: Game, config: IPPO, seed: int) -> Training:
    """Orthogonal weights, a small policy head and zero biases."""
    key, made = jax.random.PRNGKey(seed), {}
    height, width, layers = game.shape
    for i, (name, shape) in enumerate(shapes(height * width * layers, config.width, len(ACTIONS)).items()):
        scale = {"policy.w": 0.01, "embed.w": 2.0**0.5}.get(name, 1.0)
        draw = jax.nn.initializers.orthogonal(scale) if len(shape) == 2 else jax.nn.initializers.zeros
        made[name] = draw(jax.random.fold_in(key, i), shape, jnp.float32)
    return Training(made, optimiser(config).init(made), jax.random.fold_in(key, 1_000))


def optimiser(config: IPPO) -> optax.GradientTransformation:
    """Adam behind a clip of the gradient's norm."""
    return optax.chain(optax.clip_by_global_norm(config.norm), optax.adam(config.learning_rate, eps=1e-5))


def play(game: Game, config: IPPO, parameters: Parameters, shaping: jax.Array, key: jax.Array):
    """One episode in every kitchen: sequences of both seats, and the team's mean return."""
    start, *keys = jax.random.split(key, 2)
    observation, state = jax.vmap(functools.partial(reset, game))(jax.random.split(start, config.kitchens))
    carry = jnp.zeros((config.kitchens, 2, config.width))

    def move(now, key):
        observation, state, carry = now
        carry = recur(parameters, carry, features(parameters, observation))
        logits, value = heads(parameters, carry)
        choose, turn = jax.random.split(key)
        action = jax.random.categorical(choose, logits)
        log_probability = jnp.take_along_axis(jax.nn.log_softmax(logits), action[..., None], -1)[..., 0]
        after, state, reward, shaped = jax.vmap(functools.partial(step, game))(
            jax.random.split(turn, config.kitchens), state, action
        )
        presses = jnp.mod(-reward / PRESS, DISH / PRESS)  # a reward is 20 × dishes − 5 × presses, of two agents at most
        told = reward[:, None] + shaping * (shaped + PRESS * presses[:, None])
        return (after, state, carry), (observation, action, log_probability, value, told, reward)

    (last, _, carry), seen = jax.lax.scan(move, (observation, state, carry), jax.random.split(keys[0], game.max_steps))
    observation, action, log_probability, value, told, reward = seen
    cut = value_of(parameters, carry, last)
    advantage = advantages(told, value, cut, config.discount, config.trace)
    parts = (observation, action, log_probability, advantage, advantage + value)
    return Sequences(*(part.reshape(len(part), -1, *part.shape[3:]) for part in parts)), reward.sum(0).mean()


def value_of(parameters: Parameters, carry: jax.Array, observation: jax.Array) -> jax.Array:
    """Value of the state that comes after `carry`."""
    return heads(parameters, recur(parameters, carry, features(parameters, observation)))[1]


def advantages(reward: jax.Array, value: jax.Array, cut: jax.Array, discount: float, trace: float) -> jax.Array:
    """Generalised advantage estimates (Schulman et al. 2016) of whole episodes.

    Args:
        reward, value: after each action, and of the state before it, (T, …).
        cut: value of the state in which the time limit cut the episode off, (…): the task goes on there.
    """
    surprise = reward + discount * jnp.concatenate([value[1:], cut[None]]) - value

    def back(sum_of_later, now):
        found = now + discount * trace * sum_of_later
        return found, found

    return jax.lax.scan(back, jnp.zeros_like(value[0]), surprise, reverse=True)[1]


def loss(parameters: Parameters, batch: Sequences, config: IPPO) -> jax.Array:
    """The clipped surrogate, the value's squared error and the entropy."""
    read = features(parameters, batch.observation)

    def turn(carry, now):
        carry = recur(parameters, carry, now)
        return carry, carry

    _, carries = jax.lax.scan(turn, jnp.zeros((read.shape[1], config.width)), read)
    logits, value = heads(parameters, carries)
    logs = jax.nn.log_softmax(logits)
    chosen = jnp.take_along_axis(logs, batch.action[..., None], -1)[..., 0]
    advantage = (batch.advantage - batch.advantage.mean()) / (batch.advantage.std() + 1e-8)
    ratio = jnp.exp(chosen - batch.log_probability)
    surrogate = jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - config.clip, 1 + config.clip) * advantage).mean()
    entropy = -(jnp.exp(logs) * logs).sum(-1).mean()
    return -surrogate + config.value * jnp.square(value - batch.target).mean() - config.entropy * entropy


@functools.partial(jax.jit, static_argnums=(0, 1))
def iterate(game: Game, config: IPPO, training: Training, shaping: jax.Array) -> tuple[Training, jax.Array]:
    """Play, then learn: the next training and the mean return of the sampled policy, shaped rewards apart."""
    key, played, shuffled = jax.random.split(training.key, 3)
    batch, returned = play(game, config, training.parameters, shaping, played)
    parameters, moments = improve(config, training, batch, shuffled)
    return Training(parameters, moments, key), returned


def improve(config: IPPO, training: Training, batch: Sequences, key: jax.Array) -> tuple[Parameters, optax.OptState]:
    """Epochs of clipped updates on whole sequences: parameters and the optimiser's state after them."""
    rule = optimiser(config)

    def update(now, rows):
        parameters, moments = now
        part = Sequences(*(field[:, rows] for field in batch))
        gradient = jax.grad(loss)(parameters, part, config)
        change, moments = rule.update(gradient, moments)
        return (optax.apply_updates(parameters, change), moments), None

    count = batch.action.shape[1]
    orders = jax.vmap(lambda k: jax.random.permutation(k, count))(jax.random.split(key, config.epochs))
    rows = orders.reshape(config.epochs * config.minibatches, -1)
    return jax.lax.scan(update, (training.parameters, training.optimiser), rows)[0]  # type: ignore[return-value]


def shaping_at(iteration: int, iterations: int, config: IPPO) -> float:
    """Weight of the two aids: linearly from 1 to 0."""
    return max(0.0, 1.0 - iteration / max(1.0, config.fade * iterations))
