"""One run over several ranks: `torchrun`, or a process group that exists already.

Every rank holds the same share of a batch's donors and of their recipients. A mean over rows is taken by each rank over
its own rows, a statistic of the batch by every rank over gathered rows. The run's loss is the mean of the ranks'
losses; since `gather` has its true adjoint, the mean of the ranks' gradients, which DDP forms, is the gradient of that
loss. A process on its own passes through everything here untouched.
"""

import atexit
import gc
import os
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.parallel import DistributedDataParallel

T = TypeVar("T")

PATIENCE = timedelta(days=1)
"""Ranks wait for rank 0 while it measures alone; a rank that died, torchrun notices itself."""


def world() -> int:
    """Number of ranks; 1 without a process group."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """This rank; 0 without a process group."""
    return dist.get_rank() if world() > 1 else 0


def join() -> None:
    """Enter the process group that `torchrun` has prepared, unless that is done or there is none."""
    if not dist.is_available() or dist.is_initialized() or not dist.is_torchelastic_launched():
        return
    if int(os.environ["WORLD_SIZE"]) > 1:
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=PATIENCE)
        atexit.register(leave)


def leave() -> None:
    """Leave the process group, if there is one."""
    if dist.is_available() and dist.is_initialized():
        gc.collect()
        dist.destroy_process_group()
        # DDP leaves gloo's threads behind. What the last collective held they drop under the interpreter's lock, and a
        # thread that asks for the lock after the interpreter's end aborts the process.
        time.sleep(0.2)


def own_device(device: str) -> torch.device:
    """The device of this rank: `cuda` is the GPU of its number on this machine; others are as they are named.

    Raises:
        ValueError: for more ranks than GPUs.
    """
    place = torch.device(device)
    if place.type == "cuda" and world() > 1:
        if place.index is None:
            place = torch.device("cuda", int(os.environ.get("LOCAL_RANK", rank())))
        if place.index >= torch.cuda.device_count():
            raise ValueError(f"rank {rank()} has no GPU: there are {torch.cuda.device_count()}, one for each rank")
        torch.cuda.set_device(place)
    return place


def own_share(count: int) -> slice:
    """This rank's share of `count` rows, which the ranks divide."""
    share = count // world()
    return slice(rank() * share, (rank() + 1) * share)


def gather(x: Tensor, dim: int = 0) -> Tensor:
    """The ranks' tensors of one shape, in the order of ranks along `dim`; float32 at least, and differentiable.

    The adjoint sums what every rank's loss asks of this rank's rows.
    """
    if world() == 1:
        return x
    ranks: Tensor = _Gather.apply(x.to(torch.promote_types(x.dtype, torch.float32)))  # type: ignore[assignment]
    return torch.cat(ranks.unbind(), dim)


def pooled(mean: Tensor, variance: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Mean and variance (n − 1) of all ranks' samples from each rank's, of `count` samples a rank; differentiable."""
    if world() == 1:
        return mean, variance
    means, variances = gather(torch.stack([mean, variance])[None]).unbind(1)
    centre = means.mean(0)
    squares = (count - 1) * variances.sum(0) + count * (means - centre).square().sum(0)
    return centre, squares / (world() * count - 1)


def average(x: Tensor) -> Tensor:
    """The mean of the ranks' tensors."""
    if world() == 1:
        return x
    total = x.clone()
    dist.all_reduce(total)
    return total / world()


def any_rank(flag: bool, device: torch.device) -> bool:
    """Whether the flag is set on some rank."""
    return flag if world() == 1 else bool(average(torch.tensor(float(flag), device=device)))


def first(function: Callable[[], T]) -> T:
    """What `function` returns or raises on rank 0, on every rank; the others do not call it, and wait."""
    if world() == 1:
        return function()
    outcome: list[Any] = [None, None]
    if rank() == 0:
        try:
            outcome[0] = function()
        except Exception as error:
            outcome[1] = error
    dist.broadcast_object_list(outcome)
    if outcome[1] is not None:
        raise outcome[1]
    return outcome[0]


def parallel(learner: nn.Module, function: Callable[..., T]) -> Callable[..., T]:
    """`function(learner, …)` whose backward pass leaves the mean of the ranks' gradients: DDP."""
    if world() == 1:
        return function
    # A learner may have parameters that its loss does not reach; which ones does not change from step to step.
    forward = DistributedDataParallel(_Forward(learner, function), static_graph=True)
    return lambda _, *arguments: forward(*arguments)


class _Forward(nn.Module):
    """A function of a module as its forward pass, the only one that DDP sees."""

    def __init__(self, learner: nn.Module, function: Callable[..., Any]) -> None:
        super().__init__()
        self.learner, self.function = learner, function

    def forward(self, *arguments: Any) -> Any:
        return self.function(self.learner, *arguments)


class _Gather(torch.autograd.Function):
    """x → (world, *x.shape). The public collectives, because those of torch with a gradient change names by release."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        out = x.new_empty(world(), *x.shape)
        dist.all_gather(list(out), x.contiguous())
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, *grad_outputs: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        total = grad_outputs[0].clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total[rank()]
