"""A model and a reward as the score of a controller."""

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sprii_envs.arguments import instance, integer
from sprii_train.control.controllers.base import Score

Step = Callable[[Tensor, Tensor, Any], Tensor]
"""State (B, S), often an observation, action (B, A), context (B, d) or None → the next state (B, S)."""

Reward = Callable[[Tensor, Tensor, Any], Tensor]
"""Observation (B, S), action (B, A), next observation (B, S) → (B,), higher is better."""

ROWS = 512
"""Rows that a CPU unrolls at once: the activations of a network 200 units wide stay in a core's second cache."""


def rollout_score(
    step: Step,
    reward: Reward,
    observation: Tensor,
    context: Tensor | None = None,
    *,
    reads_next: bool = True,
    rows: int | None = None,
) -> Score:
    """The sum of rewards along the states that a model predicts, as a function of the actions.

    Args:
        observation: where the episodes are, (E, S).
        context: what is known of their systems, (E, d), held over the horizon; None is handed to `step` as it is.
        reads_next: False if the reward does not read the next observation, as that of Gymnasium's Pendulum: the last
            model call is then saved, and the last reward is given None in its place.
        rows: episodes × candidates unrolled at once; by default 512 on a CPU and all on another device.

    Raises:
        ValueError: if `context` is not of as many episodes as `observation`, or `rows` < 1; when called, for actions
            of another number of episodes, and for a model or reward that returns another shape than it should.
    """
    if instance("observation", observation, of=Tensor).ndim != 2:
        raise ValueError(f"observation has shape {tuple(observation.shape)}; legal: (E, S)")
    episodes = len(observation)
    if context is not None and len(instance("context", context, of=Tensor)) != episodes:
        raise ValueError(f"context is of {len(context)} episodes, observation of {episodes}; legal: as many")
    rows = None if rows is None else integer("rows", rows, least=1)

    def score(actions: Tensor) -> Tensor:
        if actions.ndim != 4 or len(actions) != episodes:
            raise ValueError(f"actions have shape {tuple(actions.shape)}; legal: ({episodes}, N, H, A)")
        _, candidates, horizon, size = actions.shape
        total = episodes * candidates
        block = rows or (ROWS if actions.device.type == "cpu" else total)
        with torch.inference_mode():
            # Time first, so that the actions of one step lie together.
            moves = actions.permute(2, 0, 1, 3).reshape(horizon, total, size)
            start = observation.repeat_interleave(candidates, dim=0)
            contexts = itertools.repeat(None)
            if context is not None:
                contexts = context.repeat_interleave(candidates, dim=0).split(block)
            parts = zip(start.split(block), moves.split(block, dim=1), contexts, strict=False)
            returns = torch.cat([_unroll(step, reward, *part, reads_next) for part in parts])
        return returns.view(episodes, candidates).clone()  # an ordinary tensor, outside inference mode

    return score


def _unroll(
    step: Step, reward: Reward, observation: Tensor, moves: Tensor, context: Tensor | None, reads_next: bool
) -> Tensor:
    """Returns (B,) of actions (H, B, A) from observations (B, S)."""
    total = observation.new_zeros(len(observation))
    for t, action in enumerate(moves):
        needed = reads_next or t + 1 < len(moves)
        after = step(observation, action, context) if needed else None
        if after is not None and after.shape != observation.shape:
            raise ValueError(f"step returned shape {tuple(after.shape)}; legal: {tuple(observation.shape)}")
        paid = reward(observation, action, after)
        if not isinstance(paid, Tensor) or paid.shape != total.shape:
            found = tuple(paid.shape) if isinstance(paid, Tensor) else repr(paid)
            raise ValueError(f"reward returned {found} for {len(total)} rows; legal: a tensor of shape ({len(total)},)")
        total += paid
        if after is not None:
            observation = after
    return total
