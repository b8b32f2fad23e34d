"""CoDA: a code moves every weight of a right-hand side, θ_e = θ + W c_e (Kirchmeyer et al. 2022; `app:coda-sprii`).

    native     mean squared error + 10⁻⁶ · Σ ‖rows of W‖ + 10⁻⁴ · ‖c‖²
    new case   50 steps of Adam on its code, from zero, θ and W as they are

Its amortised form leaves the decoder as it is and infers the code from a history: z_p = CNN(trajectory), c = z_p.

The published networks convolve two axes; one of them has a single point here, which leaves a kernel of one axis. W
begins as torch begins a linear layer: with codes of zero a W of zero would never move.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sprii_envs.arguments import check, instance, integer, integers, number
from sprii_train.fields.environments import EnvironmentWindows
from sprii_train.fields.rings import RingWeights
from sprii_train.fields.rolling import rk4
from sprii_train.fields.windows import FieldWindows
from sprii_train.learners.forecasters import (
    Decoder,
    Forecaster,
    ForecasterConfig,
    PerEnvironment,
    first_layers,
    swish_slopes,
)
from sprii_train.protocol import Batch, Codes, self_loss


@dataclass(frozen=True)
class CoDAConfig(ForecasterConfig):
    """Sizes; the defaults are those of the paper's Burgers.

    Attributes:
        row_weight, code_weight: of the norms of W's rows, and of the squared norm of a code.
    """

    row_weight: float = 1e-6
    code_weight: float = 1e-4

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        super().__post_init__()
        check(self, number, "row_weight", "code_weight", least=0)


@dataclass(frozen=True)
class AmortisedCoDAConfig(CoDAConfig):
    """CoDA's, and a history encoder's; at the defaults that has 89,282 parameters.

    Attributes:
        widths: channels of convolutions of stride 2; the first kernel is 5 × 5, the others 3 × 3.
        pool: side of the pooled map.
        hidden: width between it and the code.
    """

    widths: tuple[int, ...] = (16, 32, 64)
    pool: int = 4
    hidden: int = 64

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        super().__post_init__()
        check(self, integer, "pool", "hidden", least=1)
        check(self, integers, "widths", least=1, some=True)

    @property
    def coda(self) -> CoDAConfig:
        """Of the decoder's own learner."""
        return CoDAConfig(**{name: getattr(self, name) for name in CoDAConfig.__dataclass_fields__})


class Hypernetwork(Decoder):
    """θ + W c: one bias-free linear layer from the code to every kernel, bias and slope."""

    def __init__(self, config: CoDAConfig) -> None:
        super().__init__()
        self.shapes = config.shapes
        layers = first_layers(config)
        parts = [part.detach().flatten() for layer in layers for part in layer.parameters()]
        theta = torch.cat([*parts, swish_slopes(config.layers)])
        self.theta = nn.Parameter(theta)
        self.moves = nn.Linear(config.code, len(theta), bias=False)

    def weights(self, codes: Tensor) -> RingWeights:
        """Codes (B, code) → weights of B networks."""
        theta = self.theta + self.moves(codes)
        kernels, biases, at = [], [], 0
        for out, channels, width in self.shapes:
            size = out * channels * width
            kernels.append(theta[:, at : at + size].view(-1, out, channels, width))
            biases.append(theta[:, at + size : at + size + out])
            at += size + out
        return RingWeights(kernels, biases, theta[:, at:])


class CoDA(PerEnvironment):
    """The learner; its operations are those of `protocol.Learner`, with `EnvironmentWindows`."""

    solver = staticmethod(rk4)

    def __init__(self, config: CoDAConfig) -> None:
        super().__init__(instance("config", config, of=CoDAConfig))
        self.decoder = Hypernetwork(config)

    def code_penalty(self, codes: Tensor) -> Tensor:
        """Weighted squared norms, (B,)."""
        return self.config.code_weight * codes.square().sum(1)

    def penalty(self, codes: Tensor) -> Tensor:
        """Codes', and that of W's rows."""
        return super().penalty(codes) + self.config.row_weight * self.decoder.moves.weight.norm(dim=1).sum()


class HistoryEncoder(nn.Module):
    """Trajectories (B, T, X) → codes (B, code)."""

    def __init__(self, config: AmortisedCoDAConfig) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for i, (before, width) in enumerate(zip((1, *config.widths), config.widths, strict=False)):
            side = 3 if i else 5
            layers += [nn.Conv2d(before, width, side, 2, side // 2), nn.SiLU()]
        self.map = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(config.pool), nn.Flatten())
        inner = config.widths[-1] * config.pool**2
        self.head = nn.Sequential(nn.Linear(inner, config.hidden), nn.SiLU(), nn.Linear(config.hidden, config.code))

    def forward(self, trajectories: Tensor) -> Tensor:
        return self.head(self.map(trajectories.unsqueeze(1)))


class AmortisedCoDA(Forecaster):
    """A history encoder before a frozen decoder; training rolls out from first frames alone."""

    solver = staticmethod(rk4)
    code_penalty = CoDA.code_penalty

    def __init__(self, config: AmortisedCoDAConfig) -> None:
        super().__init__()
        self.config = instance("config", config, of=AmortisedCoDAConfig)
        self.encoder = HistoryEncoder(config)
        self.decoder = Hypernetwork(config).requires_grad_(False)

    def prepare(self, windows: FieldWindows | EnvironmentWindows) -> Batch:
        """Histories, first frames and targets; ValueError for trajectories of another size."""
        self.checked(windows)
        fields = windows.fields
        if isinstance(windows, FieldWindows):
            return Batch(history=windows.conditions, current=fields[:, 0], u=None, y=fields)
        return Batch(history=fields, current=fields[:, 0], u=None, y=fields, support=windows.support)

    def encode_history(self, history: Tensor) -> Tensor:
        """Trajectories (B, T, X) → codes (B, code)."""
        return self.encoder(self.rings("histories", history, self.config.frames, self.config.points))

    def native_loss(self, batch: Batch, codes: Codes) -> tuple[Tensor, dict[str, Tensor]]:
        """The error of every window with its own code, and the codes' penalty."""
        loss = self_loss(self, batch, codes)  # type: ignore[arg-type]
        penalty = self.code_penalty(codes.z_p).mean()
        return loss + penalty, {"self": loss, "penalty": penalty}
