"""Windows of random states and actions, for the tests of learners of states."""

from itertools import pairwise

import torch

from sprii_train.protocol import Windows

S, A, T = 4, 2, 24


def random_windows(pairs: int = 3, horizons: tuple[int, ...] = (1, 4, 16), seed: int = 0, history: int = T) -> Windows:
    """Donors stacked on recipients; nothing in them is related."""
    draw = torch.Generator().manual_seed(seed)

    def numbers(*shape: int) -> torch.Tensor:
        return torch.randn(2 * pairs, *shape, generator=draw)

    return Windows(numbers(history, S), numbers(history - 1, A), numbers(len(horizons), S), numbers(horizons[-1], A))


def linear(*widths: int) -> int:
    """Parameters of linear layers of these widths, biases too."""
    return sum((a + 1) * b for a, b in pairwise(widths))


def shift_scales(learner: torch.nn.Module, seed: int = 5) -> None:
    """Give a learner of states means and SDs that are not those of the start."""
    draw = torch.Generator().manual_seed(seed)
    scales = learner.scales
    for name, dim in (("observation", S), ("action", A)):
        moments = torch.stack([torch.randn(dim, generator=draw), torch.rand(dim, generator=draw) + 0.5])
        scales.get_buffer(name).copy_(moments)
