"""What every controller is made of: bounds, guarded returns, elites and their moments, warm starts.

Controllers work in normalised actions, in which the bounds are ±1 and their middle is 0; a score sees real ones.
Shapes: E episodes planned at once, N candidates, horizon H, A action components.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from sprii_envs.arguments import MANY, check, instance, integer, number, shown

Score = Callable[[Tensor], Tensor]
"""Action sequences (E, N, H, A) float32, within the bounds → returns (E, N), higher is better.

A return that is NaN or infinite makes its candidate the worst.
"""

Bounds = tuple[Tensor, Tensor]
"""The least and the greatest action, (A,) each, on the device that plans."""

AnyState = TypeVar("AnyState", bound=tuple[Tensor, ...])


HORIZON = 10_000
"""Steps of a plan, at most."""


class Plan(NamedTuple):
    """The warm start of a controller: the plan that begins at the next step, (E, H, A), normalised."""

    mean: Tensor


class Box(NamedTuple):
    """Checked bounds: low, high, centre and half the width, (A,) float32 each."""

    low: Tensor
    high: Tensor
    centre: Tensor
    half: Tensor

    def scale(self, normalised: Tensor) -> Tensor:
        """Actions (..., A) of normalised ones; never outside the bounds, not by rounding either."""
        return torch.clamp(torch.addcmul(self.centre, self.half, normalised), self.low, self.high)


def box(bounds: Bounds) -> Box:
    """Bounds as a `Box`.

    Raises:
        ValueError: unless low and high are two (A,) tensors, finite, with low < high everywhere.
    """
    if not isinstance(bounds, tuple | list) or [isinstance(side, Tensor) for side in bounds] != [True, True]:
        raise ValueError(f"bounds is {shown(bounds)}; legal: two (A,) tensors")
    low, high = (side.to(torch.float32) for side in bounds)
    if low.ndim != 1 or low.shape != high.shape or not len(low):
        raise ValueError(f"bounds must be two (A,) tensors, got {tuple(low.shape)} and {tuple(high.shape)}")
    # Through halves, because high − low may overflow where both are finite.
    half = high / 2 - low / 2
    if not bool((torch.isfinite(half) & (half > 0)).all()):
        raise ValueError(f"bounds are low = {low.tolist()}, high = {high.tolist()}; legal: finite, low < high")
    return Box(low, high, low / 2 + high / 2, half)


def check_warm(mean: Tensor, horizon: int, space: Box) -> Tensor:
    """The warm start as given.

    Raises:
        ValueError: if it is not (E, horizon, A).
    """
    if mean.ndim != 3 or mean.shape[1:] != (horizon, len(space.low)):
        raise ValueError(
            f"the state's plan has shape {tuple(mean.shape)}; legal: (episodes, {horizon}, {len(space.low)}), "
            "as `initial` makes it for this config and these bounds"
        )
    return mean


def evaluate(score: Score, candidates: Tensor, space: Box) -> Tensor:
    """Returns (E, N) of normalised candidates (E, N, H, A); what is not finite becomes −∞.

    Raises:
        ValueError: if the score returns another shape.
    """
    returns = instance("what the score returned", score(space.scale(candidates)), of=Tensor)
    if returns.shape != candidates.shape[:2]:
        raise ValueError(
            f"the score returned shape {tuple(returns.shape)} for action sequences {tuple(candidates.shape)}; "
            f"legal: {tuple(candidates.shape[:2])}"
        )
    return torch.where(torch.isfinite(returns), returns, -math.inf)


def best(candidates: Tensor, returns: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` best candidates of each episode, best first: (E, count, H, A), and their returns (E, count)."""
    values, index = returns.topk(count, dim=1)
    return candidates[torch.arange(len(candidates), device=index.device)[:, None], index], values


def moments(elites: Tensor, values: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance (E, H, A) of elites (E, K, H, A), which divides by their number.

    Elites whose return in `values` (E, K) is −∞ do not count; an episode without others keeps `mean` and `variance`.
    """
    weight = (values > -math.inf).to(elites.dtype)[:, :, None, None]
    count = weight.sum(1)
    middle = (elites * weight).sum(1) / count.clamp_min(1)
    square = ((elites - middle[:, None]).square() * weight).sum(1) / count.clamp_min(1)
    return torch.where(count > 0, middle, mean), torch.where(count > 0, square, variance)


def shift(mean: Tensor, last: Tensor) -> Tensor:
    """A plan (..., H, A) one step later: its first action is gone and `last` (..., 1, A) stands at the end."""
    return torch.cat((mean[..., 1:, :], last), dim=-2)


def reset(state: AnyState, episodes: Tensor) -> AnyState:
    """The state with the warm starts of some episodes forgotten; those rows are again as `initial` made them.

    Args:
        episodes: (E,) bool, those that begin anew.

    Raises:
        ValueError: if the mask is not (E,) bool.
    """
    expected = (len(state[0]),)
    if instance("reset mask", episodes, of=Tensor).dtype != torch.bool or episodes.shape != expected:
        raise ValueError(f"reset mask is {episodes.dtype} of shape {tuple(episodes.shape)}; legal: bool {expected}")
    made: Any = type(state)
    # Every field of an initial state is zeros, which is false where it is a flag.
    return made(*(field.masked_fill(episodes.view(-1, *(1,) * (field.ndim - 1)), 0) for field in state))


def check_elites(config: Any) -> None:
    """ValueError for settings of a cross-entropy method that are not legal."""
    check(config, integer, "candidates", "elites", "iterations", least=1, most=MANY)
    check(config, integer, "horizon", least=1, most=HORIZON)
    check(config, number, "smoothing", least=0, below=1)
    check(config, number, "variance", above=0)
    if config.elites > config.candidates:
        raise ValueError(
            f"{type(config).__name__}.elites is {config.elites}; legal: at most candidates = {config.candidates}"
        )
