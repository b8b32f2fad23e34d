"""Losses of several objects a row: of all that are there, or of the focal one, which is Cross's and Align's."""

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from sprii_train.devices import on_host
from sprii_train.distributed import gather
from sprii_train.protocol import Batch


class ObjectLosses(nn.Module):
    """The operations that follow from losses by object; `y` has `active` (B, O) bool and `focal` (B,) int64."""

    @abstractmethod
    def object_losses(self, prediction: Any, y: Any) -> tuple[Tensor, Tensor]:
        """Losses at each time (B, K, O) float32, and the objects that they are of (B, O) bool."""

    def horizon_losses(self, prediction: Any, y: Any) -> Tensor:
        """Mean over counted objects at each time, (B, K)."""
        return means(*self.object_losses(prediction, y))

    def task_loss(self, prediction: Any, y: Any) -> Tensor:
        """Mean over counted objects and times, (B,)."""
        losses, counted = self.object_losses(prediction, y)
        return means(losses.mean(1), counted)

    def cross_task_loss(self, prediction: Any, y: Any) -> Tensor:
        """Mean over times of the focal object, (B,): what Cross is of."""
        losses, counted = self.object_losses(prediction, y)
        return means(losses.mean(1), counted & torch.zeros_like(counted).scatter_(1, y.focal[:, None], True))

    def align_codes(self, z_p: Tensor, batch: Batch) -> Tensor:
        """Flat codes (B, O·d) → those of the focal objects (B, d): what Align is of."""
        codes = z_p.unflatten(1, (batch.y.active.shape[1], -1))
        return codes[torch.arange(len(codes), device=codes.device), batch.y.focal]


def means(losses: Tensor, counted: Tensor) -> Tensor:
    """(B, …, O) → means over a row's counted objects (B, …).

    A row without any has 0, and the others weigh so much more that the mean of a batch is over those that count.
    """
    of = counted.view(len(counted), *[1] * (losses.ndim - 2), -1)
    rows = gather(counted.any(-1).float())
    return (losses * of).sum(-1) / of.sum(-1).clamp_min(1) * (len(rows) / rows.sum().clamp_min(1.0))


def variance(values: Tensor, counted: Tensor) -> Tensor:
    """Of values (…, D) over those that are counted (…), by their number less one: (D,), float32."""
    if on_host(counted):
        return values[counted].float().var(0)
    of, x = counted.flatten()[:, None].float(), values.flatten(0, -2).float()
    apart = x - (of * x).sum(0) / of.sum()
    return (of * apart.square()).sum(0) / (of.sum() - 1.0)
