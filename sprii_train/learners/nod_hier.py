"""NOD-Hier: a hierarchical operator of fields, told by another trajectory's code whose they are.

The published profile is `app:nod-fhn-profile`.

    z_p  = mean over the grid of strided convolutions of five context frames     (2)
    x̂    = x + Δt·q(x, z_p over the grid, one-hot of the head, coordinates)      heads jump Δt of 1, 3, 9 or 27 frames
    L_base = mean over a chain of four heads, each from the frame predicted before it, of the squared error

From the paper and its release: the heads, the code of two numbers broadcast over the grid, five context frames, the
lift of 64 channels, three conditioning layers of 128, the coordinates linspace(0, 1, side + 1)[1:], the chains of four
and their loss. The layers of the released network are not published with it, so these are ours: q is a Fourier neural
operator of four layers (Li et al. 2021) whose local path is a periodic 3 × 3 convolution; it predicts the mean rate of
change over a jump, at first nearly 0. The conditioning layers are periodic convolutions of stride 2 under a mean over
the grid.
"""

import math
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sprii_envs.arguments import check, flag, instance, integer, integers
from sprii_train.devices import demand, moved
from sprii_train.protocol import Batch, Codes, self_loss

FIELDS = 2
INTERVAL = 0.1
"""Time between frames."""
CONTEXT = (0, 25, 50, 75, 100)
"""Frames of a trajectory that its code is of."""


class ChainWindows(NamedTuple):
    """Trajectories of B systems to predict, and others of them that codes are of: what `fit` calls windows."""

    context: Tensor  # (B, frames, 2, side, side) float32, of the conditioning trajectory
    start: Tensor  # (B, 2, side, side)
    actions: Tensor  # (B, L) int64, the heads of the chain, positions in `NODHierConfig.heads`
    targets: Tensor  # (B, L, 2, side, side), the frames that they reach

    def to(self, device: torch.device | str) -> "ChainWindows":
        """The same windows on a device."""
        return ChainWindows(*(moved(field, device) for field in self))


@dataclass(frozen=True)
class NODHierConfig:
    """Sizes; the defaults are the paper's where it says them.

    Attributes:
        width: channels of the lift.
        layers: of the predictor.
        modes: waves along each axis that its Fourier layers mix.
        kernel: side of its local convolutions, odd.
        latent: numbers in a code.
        condition_width, condition_layers: of the encoder of context frames.
        frames: context frames.
        heads: frames that each head jumps, increasing.
        coordinates: whether both networks see where a point lies. Without it, predictions move with their start.
    """

    width: int = 64
    layers: int = 4
    modes: int = 12
    kernel: int = 3
    latent: int = 2
    condition_width: int = 128
    condition_layers: int = 3
    frames: int = len(CONTEXT)
    heads: tuple[int, ...] = (1, 3, 9, 27)
    coordinates: bool = True

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        check(self, integer, "width", "layers", "modes", "kernel", "latent", "condition_width", least=1)
        check(self, integer, "condition_layers", "frames", least=1)
        check(self, integers, "heads", least=1, some=True)
        check(self, flag, "coordinates")
        if self.kernel % 2 == 0:
            raise ValueError(f"NODHierConfig.kernel is {self.kernel}; legal: odd numbers")
        if list(self.heads) != sorted(set(self.heads)):
            raise ValueError(f"NODHierConfig.heads are {self.heads}; legal: increasing numbers of frames")


class FourierLayer(nn.Module):
    """A mixture of the lowest waves plus a periodic convolution, (B, C, side, side) → the same.

    Waves are taken by products with their sines and cosines, which for a few of them are as fast as a transform of all,
    and channels are mixed as real numbers, for which CPUs have batched products.
    """

    def __init__(self, width: int, modes: int, kernel: int) -> None:
        super().__init__()
        self.modes = modes
        # Real and imaginary parts; waves −m … m − 1 along the first axis, 0 … m − 1 along the second.
        self.weight = nn.Parameter(torch.randn(2, 2 * modes, modes, width, width) / width)
        self.local = nn.Conv2d(width, width, kernel, padding=kernel // 2, padding_mode="circular")

    def forward(self, x: Tensor) -> Tensor:
        b, c, side, _ = x.shape
        m = self.modes
        if side < 2 * m:
            raise ValueError(
                f"a field of side {side} has fewer than {m} waves along an axis; legal: modes <= {side // 2}"
            )
        last, first = _waves(side, m, x.device)
        along = (x @ last).view(b, c, side, 2, m).transpose(2, 3).reshape(b, c, 2 * side, m)
        waves = (first @ along).view(b, c, 2, 2 * m, m).permute(3, 4, 0, 2, 1).reshape(2 * m * m, b, 2 * c)
        real, imaginary = self.weight.flatten(1, 2)
        mix = torch.cat([torch.cat([real, imaginary], dim=-1), torch.cat([-imaginary, real], dim=-1)], dim=-2)
        mixed = (waves @ mix).view(2 * m, m, b, 2, c).permute(2, 4, 3, 0, 1).reshape(b, c, 4 * m, m)
        back = (first.T @ mixed).view(b, c, 2, side, m).transpose(2, 3).reshape(b, c, side, 2 * m)
        twice = (
            last.T * (1.0 + (torch.arange(2 * m, device=x.device) % m > 0))[:, None]
        )  # each stands for its conjugate too
        return back @ twice + self.local(x)


@cache
def _waves(side: int, modes: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Products with the waves of a grid: (side, 2m) along the last axis, (4m, 2·side) along the first; orthonormal."""
    place = 2.0 * math.pi * torch.arange(side, dtype=torch.float64) / side
    angle, turned = place[:, None] * torch.arange(modes), torch.arange(-modes, modes)[:, None] * place
    last = torch.cat([angle.cos(), -angle.sin()], dim=1)
    cos, sin = turned.cos(), turned.sin()
    first = torch.cat([torch.cat([cos, sin], dim=1), torch.cat([-sin, cos], dim=1)])
    return tuple(moved((part / math.sqrt(side)).float(), device) for part in (last, first))  # type: ignore[return-value]


class NODHier(nn.Module):
    """The learner; its operations are those of `protocol.Learner`."""

    spans: Tensor

    def __init__(self, config: NODHierConfig) -> None:
        super().__init__()
        self.config = c = instance("config", config, of=NODHierConfig)
        extra = 2 * c.coordinates
        sizes = [FIELDS * c.frames + extra, *[c.condition_width] * c.condition_layers]
        self.condition = nn.ModuleList(
            nn.Conv2d(before, after, 3, stride=2, padding=1, padding_mode="circular")
            for before, after in pairwise(sizes)
        )
        for layer in self.condition:  # torch's own weights would leave hardly a difference between two histories
            assert isinstance(layer, nn.Conv2d)
            nn.init.kaiming_normal_(layer.weight)
            nn.init.zeros_(cast(Tensor, layer.bias))
        self.code = nn.Linear(c.condition_width, c.latent)
        self.lift = nn.Conv2d(FIELDS + c.latent + len(c.heads) + extra, c.width, 1)
        self.layers = nn.ModuleList(FourierLayer(c.width, c.modes, c.kernel) for _ in range(c.layers))
        self.project = nn.Sequential(nn.Conv2d(c.width, c.width, 1), nn.GELU(), nn.Conv2d(c.width, FIELDS, 1))
        with torch.no_grad():  # what does not know better yet leaves a frame nearly as it is
            for parameter in self.project[-1].parameters():
                parameter.mul_(0.01)
        self.register_buffer("spans", INTERVAL * torch.tensor(c.heads), persistent=False)

    # The five operations

    def prepare(self, windows: ChainWindows) -> Batch:
        """Context frames, the start, the chain and the frames that it reaches."""
        return Batch(history=windows.context, current=windows.start, u=windows.actions, y=windows.targets)

    def encode_history(self, history: Tensor) -> Tensor:
        """Context frames (B, frames, 2, side, side) → z_p (B, latent); ValueError for another shape."""
        frames, shape = self.config.frames, tuple(history.shape)
        if len(shape) != 5 or shape[1:3] != (frames, FIELDS) or (self.config.coordinates and shape[3] != shape[4]):
            raise ValueError(f"history has shape {shape}; legal: (B, {frames}, {FIELDS}, side, side)")
        x = self.placed(history.flatten(1, 2))
        for layer in self.condition:
            x = F.gelu(layer(x))
        return self.code(x.mean((-2, -1)))

    def encode_current(self, current: Tensor) -> Tensor:
        """The start (B, 2, side, side), flat: (B, 2·side²)."""
        return current.flatten(1)

    def predict(self, z_s: Tensor, z_p: Tensor, u: Tensor) -> Tensor:
        """A flat start, codes and a chain of heads (B, L) → frames (B, L, 2, side, side), each from the one before."""
        side = round((z_s.shape[1] / FIELDS) ** 0.5)
        if z_s.shape[1:] != (FIELDS * side**2,):
            raise ValueError(f"z_s has shape {tuple(z_s.shape)}; legal: (B, {FIELDS}·side²), of `encode_current`")
        return self.rollout(z_s.view(len(z_s), FIELDS, side, side), z_p, u)

    def horizon_losses(self, prediction: Tensor, y: Tensor) -> Tensor:
        """Mean squared error at each head of the chain, (B, L)."""
        return (prediction - y).square().mean((-3, -2, -1))

    def task_loss(self, prediction: Tensor, y: Tensor) -> Tensor:
        """Mean over the chain of the mean squared error, (B,)."""
        return self.horizon_losses(prediction, y).mean(-1)

    def native_loss(self, batch: Batch, codes: Codes) -> tuple[Tensor, dict[str, Tensor]]:
        """The prediction error with each row's own code."""
        own = self_loss(self, batch, codes)  # pyright: ignore[reportArgumentType]  (its windows are fields)
        return own, {"self": own}

    # Parts

    def rollout(self, start: Tensor, code: Tensor, heads: Tensor) -> Tensor:
        """Starts (B, 2, side, side), codes (B, latent) and heads (B, L) → frames (B, L, 2, side, side).

        ValueError for other shapes, and for heads that are no positions in `NODHierConfig.heads`.
        """
        if heads.ndim != 2 or not heads.shape[1]:
            raise ValueError(f"heads have shape {tuple(heads.shape)}; legal: (B, L), at least one of each")
        frames, now = [], start
        for head in heads.unbind(1):
            now = self.jump(now, code, head)
            frames.append(now)
        return torch.stack(frames, dim=1)

    def jump(self, frame: Tensor, code: Tensor, head: Tensor) -> Tensor:
        """Frames (B, 2, side, side) after a jump of heads (B,); ValueError as `rollout`."""
        shape, b, known = tuple(frame.shape), len(frame), len(self.config.heads)
        if len(shape) != 4 or shape[1] != FIELDS or shape[2] != shape[3]:
            raise ValueError(f"a frame has shape {shape}; legal: (B, {FIELDS}, side, side)")
        for name, found, legal in (("codes", code, (b, self.config.latent)), ("heads", head, (b,))):
            if found.shape != legal:
                raise ValueError(f"{name} have shape {tuple(found.shape)}; legal: {legal}, a row for each frame")
        demand(
            (head >= 0) & (head < known) & (not head.is_floating_point()),
            "heads",
            lambda: f"heads are {head.tolist()}; legal: 0 to {known - 1}, positions in the heads {self.config.heads}",
        )
        told = torch.cat([code, F.one_hot(head, len(self.config.heads)).to(code.dtype)], dim=1)
        over = told[:, :, None, None].expand(-1, -1, *frame.shape[-2:])
        x = self.lift(self.placed(torch.cat([frame, over], dim=1)))
        for layer in self.layers:
            x = x + F.gelu(layer(x))
        return frame + self.spans[head][:, None, None, None] * self.project(x)

    def placed(self, x: Tensor) -> Tensor:
        """Channels (B, C, side, side) with the two of coordinates behind them, where there are any."""
        if not self.config.coordinates:
            return x
        side = x.shape[-1]
        line = torch.linspace(0.0, 1.0, side + 1, device=x.device, dtype=x.dtype)[1:]
        grid = torch.stack(torch.meshgrid(line, line, indexing="ij")).expand(len(x), -1, -1, -1)
        return torch.cat([x, grid], dim=1)
