"""Windows for learners with the controlled JEPA's interface: random ones, and those of carts in closed form."""

import numpy as np
import torch

from sprii_train.learners import JEPAConfig
from sprii_train.protocol import Windows


def windows_of(config: JEPAConfig, pairs: int = 4, seed: int = 0) -> Windows:
    draw, (t, k, h) = np.random.default_rng(seed), (config.history, len(config.horizons), config.horizons[-1])

    def numbers(*shape: int) -> torch.Tensor:
        return torch.from_numpy(draw.standard_normal((2 * pairs, *shape), np.float32))

    if not config.image:
        return Windows(
            numbers(t, config.observation_dim), numbers(t - 1, 2), numbers(k, config.observation_dim), numbers(h, 2)
        )
    side = (config.image, config.image)
    seen, ahead = (
        torch.from_numpy(draw.integers(0, 256, (2 * pairs, *shape, *side), np.uint8)) for shape in ((t + 1,), (k, 2))
    )
    return Windows(seen, numbers(t - 1, 2), ahead, numbers(h, 2))


class Carts:
    """Positions and speeds of carts v' = u − γv by the closed form over steps of 0.2 s; γ is what a history tells."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __call__(self, step: int, pairs: int = 24) -> Windows:
        draw, steps = np.random.default_rng([self.seed, step]), 12
        drag = np.tile(draw.uniform(0.2, 3.0, (pairs, 1)), (2, 1))
        actions = draw.standard_normal((2 * pairs, steps, 1)).astype(np.float32)
        speed = [draw.standard_normal((2 * pairs, 1))]
        kept = np.exp(-0.2 * drag)
        for t in range(steps):
            speed.append(speed[-1] * kept + actions[:, t] * (1 - kept) / drag)
        states = np.stack(speed, axis=1).astype(np.float32)
        seen, ahead = torch.from_numpy(states[:, :9]), torch.from_numpy(states[:, [9, 12]])
        u = torch.from_numpy(actions)
        return Windows(seen, u[:, :8], ahead, u[:, 8:])
