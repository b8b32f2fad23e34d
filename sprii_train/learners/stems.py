"""Observation encoders: raw observations → features, and the norm on top of them."""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sprii_envs.arguments import integer
from sprii_train.distributed import pooled


class ImageStem(nn.Module):
    """Stride-2 convolutions, one a channel count, then a linear projection of the whole map (`app:implementation`).

    Frames (n, 2, H, W) of `causal_frames`, or their patches (n, h, w, 2, patch²) → (n, out). The last map
    is kept whole, because where a disc is must survive. With `patch` the first convolution is of disjoint patches of
    that side, one matrix product: many times cheaper on CPUs.
    """

    def __init__(self, image: int, channels: tuple[int, ...], out: int, patch: int = 0) -> None:
        super().__init__()
        self.patch, deeper = patch, channels
        side, before = image, 2
        if patch:
            side, before, deeper = image // patch, channels[0], channels[1:]
            self.patches = nn.Linear(2 * patch * patch, before)
        sizes = pairwise((before, *deeper))
        self.convolutions = nn.ModuleList(nn.Conv2d(a, b, 3, stride=2, padding=1) for a, b in sizes)
        self.project = nn.Linear(channels[-1] * (side // 2 ** len(deeper)) ** 2, out)

    def forward(self, frames: Tensor) -> Tensor:
        if self.patch:
            if frames.ndim == 4:
                frames = tiles(frames, self.patch).movedim(1, 3)
            tiled = F.gelu(self.patches(frames.flatten(3)))
            if not self.convolutions:  # turning the weights to the map's order is cheaper than turning the maps
                weight = self.project.weight.unflatten(1, (-1, *tiled.shape[1:3])).permute(0, 2, 3, 1).flatten(1)
                return F.linear(tiled.flatten(1), weight, self.project.bias)
            frames = tiled.permute(0, 3, 1, 2)
        for convolution in self.convolutions:
            frames = F.gelu(convolution(frames))
        return self.project(frames.flatten(1))


def tiles(frames: Tensor, side: int) -> Tensor:
    """Frames (…, H, W) → disjoint patches (…, H / side, W / side, side²), rows of a patch one after another."""
    dtype, row = frames.dtype, side
    if not frames.requires_grad and side * frames.itemsize % 8 == 0 and frames.is_contiguous():
        frames, row = frames.view(torch.int64), side * frames.itemsize // 8  # moved eight bytes at a time
    return (
        frames.unflatten(-1, (-1, row)).unflatten(-3, (-1, side)).transpose(-3, -2).contiguous().view(dtype).flatten(-2)
    )


def causal_frames(observations: Tensor, future: Tensor, patch: int = 0) -> Tensor:
    """Frames of `Windows` → (B, T + K, 2, H, W): each frame in [0, 1], and its difference to the one before.

    Args:
        observations: (B, 1 + T, H, W) uint8, the frame before the first in front.
        future: (B, K, 2, H, W) uint8, each target after the frame before it.
        patch: side of the patches as which they are returned, (B, T + K, H / patch, W / patch, 2, patch²).
    """
    kind = observations.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else torch.float32
    if patch:  # while they are bytes: memory traffic is half of a cheap stem
        observations, future = tiles(observations, patch), tiles(future, patch)
    seen, targets = observations.to(dtype).mul_(1.0 / 255.0), future.to(dtype).mul_(1.0 / 255.0)
    b, t, k = len(seen), seen.shape[1] - 1, targets.shape[1]
    channels = 4 if patch else 2
    frames = seen.new_empty(b, t + k, *seen.shape[2:channels], 2, *seen.shape[channels:])
    now, change = frames.unbind(channels)
    now[:, :t], now[:, t:] = seen[:, 1:], targets[:, :, 1]
    torch.sub(seen[:, 1:], seen[:, :-1], out=change[:, :t])
    torch.sub(targets[:, :, 1], targets[:, :, 0], out=change[:, t:])
    return frames


EVERY = 4
"""A snapshot's statistics are those of every so many frames of the histories: neighbours differ little."""


class Snapshot(nn.Module):
    """Running statistics that are fixed while an update is computed; `after_step` moves them to what it saw.

    No statistic depends on the batch that it normalises, and none has a gradient.
    """

    mean: Tensor
    var: Tensor

    def __init__(self, features: int, momentum: float, eps: float) -> None:
        super().__init__()
        self.momentum, self.eps = momentum, eps
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("var", torch.ones(features))
        self.seen: tuple[Tensor, Tensor] | None = None

    def note(self, observed: Tensor, over: tuple[int, ...]) -> None:
        """In training, remember mean and unbiased variance of what an update observed, of all ranks."""
        if self.training:
            observed = observed.detach().float()
            mean = observed.mean(over, keepdim=True)  # two sums: `var_mean` over several axes is many times slower
            count = observed.numel() // mean.numel()
            variance = (observed - mean).square_().sum(over) / (count - 1)
            self.seen = pooled(mean.flatten(), variance, count)

    @torch.no_grad()
    def after_step(self) -> None:
        """Move the snapshot; without effect when no training batch was seen since the last call."""
        if self.seen is not None:
            self.mean.lerp_(self.seen[0], self.momentum)
            self.var.lerp_(self.seen[1], self.momentum)
            self.seen = None


class SnapshotNorm(Snapshot):
    """The batch norm of embeddings with the statistics of before the update (SpringWorld's, `app:spring-profile`).

    Histories and targets are normalised alike; the running statistics move to those of the histories alone.
    """

    def __init__(self, features: int, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__(features, momentum, eps)
        self.weight, self.bias = nn.Parameter(torch.ones(features)), nn.Parameter(torch.zeros(features))

    def forward(self, embeddings: Tensor, histories: int) -> Tensor:
        """(B, T, features) → the same; of T the first `histories` move the statistics."""
        self.note(embeddings[:, :histories], (0, 1))
        scale = self.weight * (self.var + self.eps).rsqrt()
        return ((embeddings.float() - self.mean) * scale + self.bias).to(embeddings.dtype)


class FrameNorm(Snapshot):
    """Both channels of frames centred and scaled by running statistics; the first update sets these outright.

    Frames are black but for a few discs, and differences are zero but at their edges: of SD 0.06 and 0.02 in
    PokeWorld, 0.04 and 0.002 in SpringWorld. Unscaled, a narrow stem does not see velocities within 10⁴ updates.
    """

    steps: Tensor

    def __init__(self, channels: int = 2, momentum: float = 0.1, eps: float = 1e-8) -> None:
        super().__init__(integer("channels", channels, least=1), momentum, eps)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, frames: Tensor, histories: int) -> Tensor:
        """Normalise (B, T, channels, H, W), or patches (B, T, h, w, channels, n), in place.

        In training, note statistics of the first `histories` of T.
        """
        self.note(frames[:, :histories:EVERY], (0, 1, 3, 4) if frames.ndim == 5 else (0, 1, 2, 3, 5))
        scale = torch.where(self.var > 0, self.var + self.eps, 1.0).rsqrt()  # a constant channel is centred alone
        scale, shift = scale.to(frames.dtype).view(-1, 1, 1), (self.mean * scale).to(frames.dtype).view(-1, 1, 1)
        if frames.ndim == 6:  # a factor for each pixel of a patch: longer loops
            scale, shift = (x.flatten(1).expand(-1, frames.shape[-1]).contiguous() for x in (scale, shift))
        return frames.mul_(scale).sub_(shift)

    @torch.no_grad()
    def after_step(self) -> None:
        """Move the snapshot, all the way in the first update."""
        if self.seen is not None:
            first, seen = self.steps == 0, self.seen  # chosen on the device: no wait for it
            super().after_step()
            for kept, now in zip((self.mean, self.var), seen, strict=True):
                kept.copy_(torch.where(first, now, kept))
            self.steps += 1
