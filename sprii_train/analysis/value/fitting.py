"""One fit for all readers and routes: AdamW on stacked networks, each with its own batches and clipped gradient."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from sprii_envs.arguments import check, choice, instance, integer, integers, number
from sprii_train.analysis.value.cases import Cases, tensor
from sprii_train.analysis.value.stacked import generator

Item = TypeVar("Item")


@dataclass(frozen=True)
class FitConfig:
    """Budget of one fit; the defaults are the common reader's (`app:spring-profile`).

    Attributes:
        updates, batch: cases in a batch, drawn with replacement, all horizons of a case at once.
        learning_rate, weight_decay: of AdamW; the paper states no decay, this is PyTorch's default.
        clip: largest gradient norm of one reader.
        schedule: `constant`, or `cosine` to zero.
        warmup: updates in which the rate first rises in equal steps.
        stack: networks fitted at once. One alone is the fastest on a CPU, whose cache it fills; a GPU has room for all.
        device: a torch device.
    """

    updates: int = 10_000
    batch: int = 256
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    clip: float = 1.0
    schedule: Literal["constant", "cosine"] = "constant"
    warmup: int = 0
    stack: int = 1
    device: str = "cpu"

    def __post_init__(self) -> None:
        check(self, choice, "schedule", legal=("constant", "cosine"))
        check(self, integer, "updates", "batch", "stack", least=1)
        check(self, integer, "warmup")
        check(self, number, "learning_rate", "clip", above=0)
        check(self, number, "weight_decay", least=0)
        check(self, instance, "device", of=str)

    def rate(self, step: int) -> float:
        """Learning rate of update number `step`, from 0."""
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        if self.schedule == "constant":
            return self.learning_rate
        progress = (step - self.warmup) / max(1, self.updates - self.warmup)
        return 0.5 * self.learning_rate * (1 + math.cos(math.pi * progress))


@dataclass(frozen=True)
class Selection:
    """Keep each network's best checkpoint: `errors()` gives the selection errors (R,) every `every` updates."""

    errors: Callable[[], Tensor]
    every: int = 100


def fit_stack(
    network: nn.Module,
    losses: Callable[[Tensor], Tensor],
    cases: int,
    seeds: Sequence[int],
    config: FitConfig,
    selection: Selection | None = None,
    weights: ArrayLike | None = None,
) -> None:
    """Minimise each network's loss in place; parameters carry the axis R first, frozen ones need no gradient.

    The batches of a network are a function of its seed, so all arms of a seed see the same cases in the same order.

    Args:
        network: R networks; parameters that the loss does not reach stay as they are.
        losses: rows (R, batch) → losses (R,).
        cases: rows are drawn below this number.
        weights: (cases,) how often each is drawn; None is equally.
        selection: without one, the weights of the last step stay.

    Raises:
        RuntimeError: if a network's weights are no longer finite.
    """
    parameters = [p for p in network.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=config.learning_rate, weight_decay=config.weight_decay, fused=True)
    draws = [generator(seed, "batches") for seed in seeds]
    law = None if weights is None else torch.as_tensor(np.asarray(weights, np.float64)).cumsum(0)
    best: tuple[Tensor, list[Tensor]] | None = None
    network.train()
    for step in range(config.updates):
        rows = torch.stack([_draw(g, cases, config.batch, law) for g in draws]).to(config.device)
        optimizer.zero_grad()
        losses(rows).sum().backward()
        clip_each(parameters, config.clip)
        optimizer.param_groups[0]["lr"] = config.rate(step)
        optimizer.step()
        if selection is not None and ((step + 1) % selection.every == 0 or step + 1 == config.updates):
            best = _better(best, selection.errors().detach(), parameters)
    network.eval()
    if best is not None:
        for parameter, kept in zip(parameters, best[1], strict=True):
            parameter.data.copy_(kept)
    finite = torch.stack([p.detach().flatten(1).isfinite().all(1) for p in parameters]).all(0)
    if not finite.all():
        lost = [seed for seed, good in zip(seeds, finite.tolist(), strict=True) if not good]
        raise RuntimeError(
            f"the fits of seeds {lost} diverged; take a smaller learning rate than {config.learning_rate}"
        )


def _draw(rng: torch.Generator, cases: int, count: int, law: Tensor | None) -> Tensor:
    """Rows (count,) below `cases`, uniform or by a cumulated law (cases,)."""
    if law is None:
        return torch.randint(cases, (count,), generator=rng)
    drawn = torch.rand(count, generator=rng, dtype=torch.float64) * law[-1]
    return torch.searchsorted(law, drawn, right=True).clamp_(max=cases - 1)  # the product may round up to the end


class DonorInputs:
    """What a reader or route takes of its donors, for the rows of a batch.

    Where cases have a pool, the donor is drawn anew each time, uniformly among its system's; else it is the case's own.

    Args:
        cases: of the fit.
        of: cases → (m, s), a function of each case's donor and factors alone.
        seeds: (R,) of the networks.
    """

    def __init__(
        self, cases: Cases[Any], of: Callable[[Cases[Any]], NDArray[Any]], seeds: Sequence[int], device: str
    ) -> None:
        self._first: Tensor | None = None
        if cases.pool is not None:
            self._count = cases.pool.codes.shape[1]
            self._draws = [generator(seed, "donors") for seed in seeds]
            cases, first = cases.of_donors()
            self._first = torch.from_numpy(first).to(device)
        self._values = tensor(of(cases)).to(device)

    @property
    def width(self) -> int:
        """s."""
        return self._values.shape[1]

    def __call__(self, rows: Tensor) -> Tensor:
        """(R, batch) → (R, batch, s)."""
        if self._first is None:
            return self._values[rows]
        rank = torch.stack([torch.randint(self._count, rows.shape[1:], generator=g) for g in self._draws])
        return self._values[self._first[rows] + rank.to(rows.device)]


def in_stacks(items: Sequence[Item], config: FitConfig) -> list[Sequence[Item]]:
    """Seeds, or bases, in groups of `FitConfig.stack`."""
    return [items[i : i + config.stack] for i in range(0, len(items), config.stack)]


def check_seeds(seeds: Sequence[int]) -> None:
    """ValueError unless seeds are distinct: equal ones would count one fit twice."""
    if len(set(integers("reader seeds", list(seeds), some=True))) != len(seeds):
        raise ValueError(f"reader seeds are {tuple(seeds)}; legal: one or more distinct seeds")


def clip_each(parameters: Sequence[Tensor], largest: float) -> None:
    """Scale the gradient of each network r (all `grad[r]` together) down to at most this norm."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    squares = torch.stack([g.flatten(1).square().sum(1) for g in gradients]).sum(0)
    scale = (largest / (squares.sqrt() + 1e-6)).clamp(max=1.0)
    for g in gradients:
        g.mul_(scale.view(-1, *[1] * (g.ndim - 1)))


def _better(
    best: tuple[Tensor, list[Tensor]] | None, errors: Tensor, parameters: Sequence[Tensor]
) -> tuple[Tensor, list[Tensor]]:
    errors = errors.nan_to_num(nan=math.inf)
    if best is None:
        return errors.clone(), [p.detach().clone() for p in parameters]
    improved = errors < best[0]
    for kept, parameter in zip(best[1], parameters, strict=True):
        kept[improved] = parameter.detach()[improved]
    return torch.where(improved, errors, best[0]), best[1]
