"""What CoDA and GEPS share: a right-hand side per environment, rolled out in time, and codes fitted while it is frozen.

    θ_e = decoder(c_e),  du/dt = f_{θ_e}(u) on a ring,  c_e of a new trajectory by gradient steps on its error

Fields hold both ends of the ring; the last point is the first, and the network sees it once.
"""

from abc import abstractmethod
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sprii_envs.arguments import check, integer, number
from sprii_train.devices import demand
from sprii_train.fields.environments import EnvironmentWindows
from sprii_train.fields.rings import RingWeights, ring_network
from sprii_train.fields.rolling import Solver, restarts, rolled
from sprii_train.fields.windows import FieldWindows
from sprii_train.protocol import Batch, Codes, self_loss

SLOPE = 0.5
"""That every Swish begins with."""
ENDS = 1e-4
"""By which the ends of a field may differ, in its largest value."""
AT_ONCE = 8
"""Trajectories whose codes are adapted side by side: the fastest of 4 to 32 on a CPU, and it bounds memory."""


@dataclass(frozen=True)
class ForecasterConfig:
    """Sizes, forcing and adaptation.

    Attributes:
        points, frames: of a trajectory.
        environments: that codes are learned of in training.
        code: dimensions of a code.
        width, layers, kernel: of the network; kernels are odd.
        forcing: share of frames that training begins again at; it falls by a hundredth every `forcing_every` updates.
        adapt_steps, adapt_rate, adapt_forcing: Adam on the code alone.
    """

    points: int = 401
    frames: int = 101
    environments: int = 9
    code: int = 2
    width: int = 64
    layers: int = 4
    kernel: int = 3
    forcing: float = 0.99
    forcing_every: int = 30
    adapt_steps: int = 50
    adapt_rate: float = 1e-3
    adapt_forcing: float = 0.95

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        check(self, integer, "points", "frames", least=3)
        check(self, integer, "environments", "code", "width", "kernel", "forcing_every", "adapt_steps", least=1)
        check(self, integer, "layers", least=2)
        check(self, number, "forcing", "adapt_forcing", least=0, most=1)
        check(self, number, "adapt_rate", above=0)
        if self.kernel % 2 == 0 or self.kernel >= self.points:
            raise ValueError(f"{type(self).__name__}.kernel is {self.kernel}; legal: odd, below the points")

    @property
    def shapes(self) -> list[tuple[int, int, int]]:
        """(out, in, kernel) of every layer."""
        widths = (1, *(self.width for _ in range(self.layers - 1)), 1)
        return [(b, a, self.kernel) for a, b in pairwise(widths)]


class Decoder(nn.Module):
    """Codes (B, code) → weights of as many networks."""

    @abstractmethod
    def weights(self, codes: Tensor) -> RingWeights:
        """Of every row."""


class Forecaster(nn.Module):
    """Prediction from a first frame and a code, and adaptation of codes; a learner adds where codes come from."""

    solver: ClassVar[Solver]
    config: Any
    decoder: Any  # a Decoder, of whichever kind

    def forecast(self, fields: Tensor, codes: Tensor, starts: Tensor | None = None) -> Tensor:
        """Trajectories (B, T, X), from first frames or from the true frames at `starts` (see `rolled`) of `fields`."""
        weights = self.decoder.weights(codes)
        starts = torch.zeros(1, dtype=torch.int64) if starts is None else starts
        solver = type(self).solver
        ring = rolled(lambda u: ring_network(weights, u), fields[..., :-1], starts, self.config.frames, solver)
        return torch.cat([ring, ring[..., :1]], -1)

    def adapt(self, fields: Tensor, codes: Tensor, steps: int | None = None) -> Tensor:
        """Codes (B, code) after gradient steps on the error of trajectories (B, T, X), the decoder as it is.

        Every row has an error of its own: rows do not depend on each other. The restarts are the same in every call.
        """
        c, found = self.config, []
        for own, code in zip(fields.split(AT_ONCE), codes.detach().split(AT_ONCE), strict=True):
            code = code.clone().requires_grad_()
            optimizer = torch.optim.Adam([code], lr=c.adapt_rate)
            for step in range(c.adapt_steps if steps is None else steps):
                with torch.enable_grad():
                    starts = restarts(c.frames, c.adapt_forcing, 0, step)
                    error = (self.forecast(own, code, starts) - own).square().mean((1, 2))
                    loss = (error + self.code_penalty(code)).sum()
                    code.grad = torch.autograd.grad(loss, code)[0]
                optimizer.step()
            found.append(code.detach())
        return torch.cat(found)

    def code_penalty(self, codes: Tensor) -> Tensor:
        """Of every code, (B,)."""
        return torch.zeros_like(codes[:, 0])

    def checked(self, windows: FieldWindows | EnvironmentWindows) -> None:
        """ValueError for fields that are no trajectories of the config's size, or hold NaN, or whose ends differ."""
        self.rings("trajectories", windows.fields, self.config.frames, self.config.points)

    def rings(self, what: str, fields: Tensor, *shape: int) -> Tensor:
        """Fields (B, *shape); ValueError for another shape, what is not finite, and ends that differ."""
        name, found = type(self).__name__, tuple(fields.shape[1:])
        if found != shape:
            names = " (frames, points)" if len(shape) == 2 else " (points,)"
            raise ValueError(f"{name} was made for {what} of shape {shape}{names}, got {found}")
        demand(fields.isfinite(), what, lambda: f"{name}: the {what} are not finite; legal: finite numbers")
        apart = (fields[..., 0] - fields[..., -1]).abs()
        demand(
            apart <= ENDS * fields.abs().amax(-1),
            f"the ends of {what}",
            lambda: (
                f"{name}: the ends of {what} differ by up to {float(apart.max()):g}; legal: the last point is the "
                "first again, for fields lie on a ring"
            ),
        )
        return fields

    # Operations of a learner

    def encode_current(self, current: Tensor) -> Tensor:
        """First frames (B, X), as they are."""
        return current

    def predict(self, z_s: Tensor, z_p: Tensor, u: tuple[Tensor, Tensor] | None) -> Tensor:
        """First frames and codes → trajectories (B, T, X); `u`: true ones, and restarts (B, frames) on the CPU."""
        self.rings("first frames", z_s, self.config.points)
        if z_p.shape != (legal := (len(z_s), self.config.code)):
            raise ValueError(f"{type(self).__name__} got codes of shape {tuple(z_p.shape)}; legal: {legal}")
        if u is None:
            return self.forecast(z_s.unsqueeze(1), z_p)
        return self.forecast(u[0], z_p, u[1][0].nonzero().flatten())

    def task_loss(self, prediction: Tensor, y: Tensor) -> Tensor:
        """Mean squared error, (B,)."""
        return (prediction - y).square().mean((1, 2))


class PerEnvironment(Forecaster):
    """A learner of the codes of its training environments; of anything else a code is adapted from `start`."""

    codes: Tensor

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.codes = nn.Parameter(torch.zeros(config.environments, config.code))
        self.forced_at = (0, 0)

    @property
    def start(self) -> Tensor:
        """The code that adaptation begins from, (code,)."""
        return torch.zeros_like(self.codes[0])

    def at_step(self, seed: int, step: int) -> None:
        """Key the frames that training begins again at."""
        self.forced_at = (seed, step)

    def prepare(self, windows: FieldWindows | EnvironmentWindows) -> Batch:
        """Systems in training, trajectories otherwise, as the histories that codes are of.

        ValueError for trajectories of another size, and in training for windows that do not say their systems.
        """
        self.checked(windows)
        fields = windows.fields
        if not self.training:
            history = windows.conditions if isinstance(windows, FieldWindows) else fields
            return Batch(history=history, current=fields[:, 0], u=None, y=fields)
        if isinstance(windows, FieldWindows):
            raise ValueError(f"{type(self).__name__} learns a code per system; legal in training: EnvironmentWindows")
        c, (seed, step) = self.config, self.forced_at
        starts = restarts(c.frames, c.forcing * 0.99 ** (step // c.forcing_every), seed, step)
        mask = torch.zeros(len(fields), c.frames, dtype=torch.bool)  # on the CPU, which rolls by it
        mask[:, starts] = True
        return Batch(history=windows.systems, current=fields[:, 0], u=(fields, mask), y=fields)

    def encode_history(self, history: Tensor) -> Tensor:
        """Systems (B,) → their codes; trajectories (B, T, X) → codes adapted to them."""
        if history.ndim == 1:
            name, most = type(self).__name__, len(self.codes) - 1
            legal = (history >= 0) & (history <= most) & (not history.is_floating_point())
            demand(legal, "systems", lambda: f"{name} has codes of the systems 0 to {most}, got {history.tolist()}")
            return self.codes[history]
        self.rings("histories", history, self.config.frames, self.config.points)
        return self.adapt(history, self.start.detach().expand(len(history), -1))

    def native_loss(self, batch: Batch, codes: Codes) -> tuple[Tensor, dict[str, Tensor]]:
        """The error of every window with its own code, and penalties."""
        loss = self_loss(self, batch, codes)  # type: ignore[arg-type]
        penalty = self.penalty(codes.z_p)
        return loss + penalty, {"self": loss, "penalty": penalty}

    def penalty(self, codes: Tensor) -> Tensor:
        """Of the weights and of these codes."""
        return self.code_penalty(codes).mean()


def swish_slopes(layers: int) -> Tensor:
    """That networks of so many layers begin with, (layers − 1,)."""
    return torch.full((layers - 1,), SLOPE)


def first_layers(config: ForecasterConfig) -> list[nn.Conv1d]:
    """Convolutions as torch begins them."""
    return [nn.Conv1d(a, b, k) for b, a, k in config.shapes]


def normed(error: Tensor, truth: Tensor) -> Tensor:
    """‖error‖ / ‖truth‖ of every row, (B,)."""
    return error.flatten(1).norm(dim=1) / F.threshold(truth.flatten(1).norm(dim=1), 1e-8, 1e-8)
