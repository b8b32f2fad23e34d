"""Return and success of a policy in every group of systems, from the same trajectories (`tab:pendulum-r7`)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sprii_envs.envs.pendulum import GROUPS
from sprii_envs.fields import choice, instance, integer, shown
from sprii_envs.physics.pendulum import success
from sprii_envs.world import Array, rollout
from sprii_train.control import pendulum
from sprii_train.control.agent import Policy, planning_policy, random_policy
from sprii_train.control.controllers import Config
from sprii_train.control.draws import EVALUATION, Drawn, draw
from sprii_train.learners.cadm import CaDM
from sprii_train.learners.histories import History

PolicyOf = Callable[[Drawn], Policy]
"""The episodes to come → their policy."""


@dataclass(frozen=True)
class Trial:
    """Episodes of one group under one policy.

    Attributes:
        group: name.
        values: mass and length, (E, 2).
        states, actions: (E, T + 1, 2) and (E, T, 1).
        returns: sums of rewards, (E,).
        success: whether the last 100 states reached all lie within 60° of upright, (E,) bool.
        starts: hash of systems and starting states.
    """

    group: str
    values: Array
    states: Array
    actions: NDArray[np.float32]
    returns: Array
    success: NDArray[np.bool_]
    starts: str

    def row(self) -> dict[str, Any]:
        """Numbers for JSON."""
        return {
            "return": float(self.returns.mean()),
            "success": float(self.success.mean()),
            "returns": self.returns.tolist(),
            "successes": self.success.tolist(),
            "mass": self.values[:, 0].tolist(),
            "length": self.values[:, 1].tolist(),
            "starts": self.starts,
        }


def evaluate(
    policy_of: PolicyOf, *, seed: int, episodes: int = 10, groups: Sequence[str] = tuple(GROUPS)
) -> dict[str, Trial]:
    """200-step episodes in every group, all of them at once.

    Args:
        policy_of: called once, with the episodes of all groups, one group after another.
        seed: of systems and starts: equal seeds give equal ones to every policy.
        episodes: in a group.
        groups: names of `sprii_envs.envs.pendulum.GROUPS`, each once.

    Raises:
        ValueError: for no function of episodes, another seed or number, no or unknown groups, or a policy whose actions
            are no array.
    """
    seed, episodes = integer("seed", seed), integer("episodes", episodes, least=1)
    if not callable(policy_of):
        raise ValueError(f"policy_of is {shown(policy_of)}; legal: a function of the episodes to come")
    instance("groups", groups, of=(tuple, list))
    for group in groups:
        choice("groups", group, legal=GROUPS)
    if not groups or len(set(groups)) < len(groups):
        raise ValueError(f"groups is {groups!r}; legal: at least one of {', '.join(GROUPS)}, each once")
    drawn = [draw(group, episodes, (EVALUATION, seed, list(GROUPS).index(group))) for group in groups]
    together = Drawn(*(np.concatenate(parts) for parts in zip(*drawn, strict=True)))
    steps = pendulum.WORLD.max_episode_steps
    policy = policy_of(together)

    def acted(t: int, states: Array) -> NDArray[np.float32]:
        return instance("the policy's action", policy(t, states), of=np.ndarray)

    found = rollout(pendulum.WORLD, together.values, together.states, acted, steps=steps)
    returns, succeeded = found.rewards.sum(1), success(found.states)
    trials = {}
    for i, (group, own) in enumerate(zip(groups, drawn, strict=True)):
        at = slice(i * episodes, (i + 1) * episodes)
        trials[group] = Trial(
            group, own.values, found.states[at], found.actions[at], returns[at], succeeded[at], own.digest()
        )
    return trials


def learned(learner: CaDM, controller: Config, *, seed: int) -> PolicyOf:
    """Planning with a trained learner, context re-inferred at every step.

    Raises:
        ValueError: for a learner of other observations or actions than the pendulum's, or another seed.
    """
    instance("learner", learner, of=CaDM)
    told, asked = (learner.config.observation_dim, learner.config.action_dim), (3, pendulum.WORLD.action_size)
    if told != asked:
        raise ValueError(
            f"the model is of {told[0]} observations and {told[1]} actions; legal: {asked[0]} and {asked[1]}"
        )
    device = learner.observation.device

    def policy(drawn: Drawn) -> Policy:
        return planning_policy(
            learner, pendulum.reward, pendulum.WORLD.observe, pendulum.bounds(device), controller, len(drawn.values),
            seed=seed, reads_next=False, device=device,
        )  # fmt: skip

    return policy


@dataclass(frozen=True)
class KnownModel:
    """The true equations as a model whose context is given: mass and length (E, 2)."""

    believed: torch.Tensor
    history: int = 1

    def context(self, history: History) -> torch.Tensor:
        """What is believed, whatever has been seen."""
        return self.believed

    def step(self, observation: torch.Tensor, action: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        """See `pendulum.step`."""
        return pendulum.step(observation, action, context)


def known(controller: Config, *, seed: int, nominal: bool = False) -> PolicyOf:
    """Planning with the true equations: of the true mass and length, the oracle, or of nominal ones."""

    def policy(drawn: Drawn) -> Policy:
        n = len(drawn.values)
        believed = pendulum.nominal_context(n) if nominal else torch.tensor(drawn.values, dtype=torch.float32)
        return planning_policy(
            KnownModel(believed), pendulum.reward, pendulum.WORLD.observe, pendulum.bounds(), controller, n,
            seed=seed, reads_next=False, rows=8_192,  # cheaper than the calls that compute it, unless rows are many
        )  # fmt: skip

    return policy


def random(*, seed: int) -> PolicyOf:
    """Uniform actions."""
    return lambda drawn: random_policy(len(drawn.values), pendulum.bounds(), seed=seed)
