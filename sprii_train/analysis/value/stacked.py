"""Independent networks of one shape stacked along a leading axis R, so that the readers of several seeds fit at once.

Initial weights are functions of (seed, layer name) alone: networks that share a layer name start equal there, and a
stack starts as its members would alone.
"""

import copy
import hashlib
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

Stack = TypeVar("Stack", bound=nn.Module)

CHUNK = 4096  # cases predicted at a time by default: bounds memory


def generator(seed: int, name: str) -> torch.Generator:
    """The random stream of one purpose."""
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "little"))


def uniform(seeds: Sequence[int], name: str, shape: tuple[int, ...], bound: float) -> nn.Parameter:
    """A stack (R, *shape) of uniform draws in ±bound, one stream a seed."""
    drawn = [torch.empty(shape).uniform_(-bound, bound, generator=generator(seed, name)) for seed in seeds]
    return nn.Parameter(torch.stack(drawn))


def normal(seeds: Sequence[int], name: str, shape: tuple[int, ...]) -> nn.Parameter:
    """A stack (R, *shape) of standard normal draws, one stream a seed."""
    return nn.Parameter(torch.stack([torch.randn(shape, generator=generator(seed, name)) for seed in seeds]))


class StackedLinear(nn.Module):
    """R linear layers: (R, n, in) → (R, n, out), initialised in ±1/√in as `nn.Linear` is.

    Args:
        fan_in: where this is a part of a wider layer, the inputs of all of it.
    """

    def __init__(
        self,
        seeds: Sequence[int],
        name: str,
        inputs: int,
        outputs: int,
        *,
        bias: bool = True,
        fan_in: int | None = None,
    ) -> None:
        super().__init__()
        bound = (fan_in or inputs) ** -0.5
        self.weight = uniform(seeds, f"{name}.weight", (inputs, outputs), bound)
        self.bias = uniform(seeds, f"{name}.bias", (1, outputs), bound) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return torch.bmm(x, self.weight) if self.bias is None else torch.baddbmm(self.bias, x, self.weight)


class StackedGRU(nn.Module):
    """R gated recurrent units: the last state (R, n, out) of sequences (R, n, T, in), as `nn.GRU` computes it."""

    def __init__(self, seeds: Sequence[int], name: str, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = outputs**-0.5
        self.input_weight = uniform(seeds, f"{name}.input_weight", (inputs, 3 * outputs), bound)
        self.state_weight = uniform(seeds, f"{name}.state_weight", (outputs, 3 * outputs), bound)
        self.input_bias = uniform(seeds, f"{name}.input_bias", (1, 3 * outputs), bound)
        self.state_bias = uniform(seeds, f"{name}.state_bias", (1, 3 * outputs), bound)

    def forward(self, x: Tensor) -> Tensor:
        steps = torch.baddbmm(self.input_bias, x.flatten(1, 2), self.input_weight).unflatten(1, x.shape[1:3])
        state = x.new_zeros(*x.shape[:2], self.state_weight.shape[1])
        for now in steps.unbind(2):
            reset, update, new = now.chunk(3, dim=-1)
            by_reset, by_update, by_new = torch.baddbmm(self.state_bias, state, self.state_weight).chunk(3, dim=-1)
            candidate = torch.tanh(new + torch.sigmoid(reset + by_reset) * by_new)
            state = torch.lerp(candidate, state, torch.sigmoid(update + by_update))
        return state


def member(stack: Stack, r: int) -> Stack:
    """Network r of a stack, as a stack of one."""
    one = copy.deepcopy(stack)
    for parameter in one.parameters():
        parameter.data = parameter.data[r : r + 1].clone()
        parameter.grad = None
    return one


def stacked(networks: Sequence[Stack]) -> Stack:
    """Stacks of one shape joined into one, frozen."""
    joined = copy.deepcopy(networks[0])
    for parts in zip(*(n.parameters() for n in (joined, *networks)), strict=True):
        parts[0].data = torch.cat([p.data for p in parts[1:]])
    return joined.requires_grad_(False)


@torch.no_grad()
def predict_stack(
    forward: Callable[..., Tensor], inputs: Sequence[Tensor], members: int, device: str, chunk: int = CHUNK
) -> Tensor:
    """(R, n, …) on the CPU, of inputs (n, …) that all R networks read, `chunk` at a time."""
    parts = []
    for i in range(0, len(inputs[0]), chunk):
        part = (x[i : i + chunk].to(device).expand(members, *[-1] * x.ndim) for x in inputs)
        parts.append(forward(*part).cpu())
    return torch.cat(parts, dim=1)


def horizon_masks(horizons: Sequence[int]) -> Tensor:
    """Which future actions each horizon reaches, (K, H) float32 of zeros and ones."""
    return (torch.arange(horizons[-1]) < torch.tensor(horizons)[:, None]).float()


def masked_actions(actions: Tensor, masks: Tensor) -> Tensor:
    """Actions (…, H, A) padded by zeros beyond each horizon, (…, K, H·A)."""
    return (actions.unsqueeze(-3) * masks[..., None]).flatten(-2)
