"""One fit for all readers and routes: AdamW on stacked networks, each with its own batches and clipped gradient."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
from torch import Tensor, nn

from sprii_envs.arguments import check, choice, instance, integer, integers, number
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
        stack: networks fitted at once. One alone is the fastest on a CPU, whose cache it fills; a GPU has room for all.
        device: a torch device.
    """

    updates: int = 10_000
    batch: int = 256
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    clip: float = 1.0
    schedule: Literal["constant", "cosine"] = "constant"
    stack: int = 1
    device: str = "cpu"

    def __post_init__(self) -> None:
        check(self, choice, "schedule", legal=("constant", "cosine"))
        check(self, integer, "updates", "batch", "stack", least=1)
        check(self, number, "learning_rate", "clip", above=0)
        check(self, number, "weight_decay", least=0)
        check(self, instance, "device", of=str)


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
) -> None:
    """Minimise each network's loss in place; parameters carry the axis R first, frozen ones need no gradient.

    The batches of a network are a function of its seed, so all arms of a seed see the same cases in the same order.

    Args:
        network: R networks; parameters that the loss does not reach stay as they are.
        losses: rows (R, batch) → losses (R,).
        cases: rows are drawn below this number.
        selection: without one, the weights of the last step stay.

    Raises:
        RuntimeError: if a network's weights are no longer finite.
    """
    parameters = [p for p in network.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=config.learning_rate, weight_decay=config.weight_decay, fused=True)
    draws = [generator(seed, "batches") for seed in seeds]
    best: tuple[Tensor, list[Tensor]] | None = None
    network.train()
    for step in range(config.updates):
        rows = torch.stack([torch.randint(cases, (config.batch,), generator=g) for g in draws]).to(config.device)
        optimizer.zero_grad()
        losses(rows).sum().backward()
        clip_each(parameters, config.clip)
        if config.schedule == "cosine":
            optimizer.param_groups[0]["lr"] = (
                0.5 * config.learning_rate * (1 + math.cos(math.pi * step / config.updates))
            )
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
