"""A right-hand side rolled out in time, from the first frame or, as in teacher forcing, from true ones too."""

from collections.abc import Callable

import torch
from torch import Tensor

from sprii_train.devices import moved
from sprii_train.randomness import torch_seed

Flow = Callable[[Tensor], Tensor]
"""Fields (B, S, X) → their derivatives in time."""
Solver = Callable[[Flow, Tensor, float], Tensor]


def euler(flow: Flow, y: Tensor, dt: float) -> Tensor:
    """One step of first order."""
    return y + dt * flow(y)


def rk4(flow: Flow, y: Tensor, dt: float) -> Tensor:
    """One step of fourth order."""
    a = flow(y)
    b = flow(y + 0.5 * dt * a)
    c = flow(y + 0.5 * dt * b)
    return y + dt / 6 * (a + 2 * b + 2 * c + flow(y + dt * c))


def restarts(frames: int, share: float, seed: int, step: int) -> Tensor:
    """Frames that a rollout begins at: 0, and of those between the ends each with a probability, by (seed, step)."""
    generator = torch.Generator().manual_seed(torch_seed(seed, step))
    inner = torch.rand(frames - 2, generator=generator) < share
    return torch.cat([torch.zeros(1, dtype=torch.int64), inner.nonzero().flatten() + 1])


def rolled(flow: Flow, truth: Tensor, starts: Tensor, frames: int, solver: Solver) -> Tensor:
    """Trajectories (B, frames, X) in unit time: a frame is reached from the true one at the last of `starts` before it.

    The stretches between starts do not wait for each other: they are rolled side by side, so that all it takes in
    sequence is the longest one.

    Args:
        truth: (B, T, X); of its frames those at `starts` are read.
        starts: increasing, the first of them 0.
    """
    dt = 1.0 / (frames - 1)
    lengths = torch.diff(starts, append=torch.tensor([frames - 1]))
    order = torch.argsort(lengths, descending=True, stable=True)
    starts, lengths = starts[order], lengths[order]
    y, found, places = truth[:, moved(starts, truth.device)], [truth[:, :1]], [torch.zeros(1, dtype=torch.int64)]
    for k in range(int(lengths[0])):
        active = int((lengths > k).sum())
        y = solver(flow, y[:, :active], dt)
        found.append(y)
        places.append(starts[:active] + k + 1)
    return torch.cat(found, 1)[:, moved(torch.argsort(torch.cat(places)), truth.device)]
