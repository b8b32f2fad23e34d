"""What is asked of a device within an update, so that the host waits for it once."""

from collections.abc import Callable

import torch
from torch import Tensor


def moved(tensor: Tensor, device: torch.device | str) -> Tensor:
    """The tensor on a device; a copy from the CPU to CUDA is queued, where a plain one waits for all work before it."""
    if tensor.device.type == "cpu" and torch.device(device).type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def on_host(tensor: Tensor) -> bool:
    """Whether its numbers can be asked for at once: of a GPU, the host would wait for all work that is queued."""
    return tensor.device.type == "cpu"


def demand(fine: Tensor, what: str, message: Callable[[], str]) -> None:
    """ValueError with the message unless all of `fine` is true.

    On CUDA nobody waits for the answer: what is wrong ends the process there by a device-side assertion of `what`.
    """
    if fine.device.type == "cuda":
        told = f"{what} are not legal; the same on the CPU says why"
        torch._assert_async(fine.all(), told)  # pyright: ignore[reportPrivateImportUsage]
    elif not fine.all():
        raise ValueError(message())
