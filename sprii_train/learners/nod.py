"""NOD, a conditioned operator network for fields of one dimension, as released (`app:external-nod`; Chen et al. 2026).

    z_p    = CNN(trajectory of another case)        (d = 1)
    z_s    = u(0, ·)                                (points)
    û(t,x) = u(0,x) + s·(⟨branch(z_s, z_p), trunk(t, x)⟩ + c)

L_base is the mean squared error at random places of time and space, in evaluation over the whole grid. What the release
leaves open, and is so here: the Fourier features are sin and cos of πkx and πkt, and s begins at 1 and c at 0.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from sprii_envs.arguments import check, instance, integer, integers
from sprii_train import distributed
from sprii_train.devices import moved
from sprii_train.fields.windows import FieldWindows
from sprii_train.protocol import Batch, Codes
from sprii_train.randomness import torch_seed

SHARPNESS = 10.0
"""β of Softplus."""
BIAS = 0.01
"""That every linear layer begins with; its weights are Xavier normal."""


@dataclass(frozen=True)
class NODConfig:
    """Sizes; the defaults are the released ones, 10,081,637 parameters.

    Attributes:
        points, frames: of a trajectory.
        code: dimensions of the condition's code.
        widths: channels of the condition network's blocks; every one after the first halves time and space.
        head: width between pooled channels and code.
        branch, trunk: hidden widths of the two networks; both have four layers.
        rank: of their inner product.
        waves, tones: Fourier features in space and in time.
        queries: random places of a trajectory in training.
    """

    points: int = 401
    frames: int = 101
    code: int = 1
    widths: tuple[int, ...] = (46, 92, 184, 368, 368)
    head: int = 256
    branch: int = 800
    trunk: int = 1100
    rank: int = 512
    waves: int = 8
    tones: int = 4
    queries: int = 8192

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        check(self, integer, "points", "frames", least=2)
        check(self, integer, "code", "head", "branch", "trunk", "rank", "queries", least=1)
        check(self, integer, "waves", "tones")
        check(self, integers, "widths", least=1, some=True)


class ConditionNet(nn.Module):
    """Trajectories (B, T, X) → codes (B, code)."""

    def __init__(self, config: NODConfig) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for i, (before, width) in enumerate(pairwise((1, *config.widths))):
            groups = next(g for g in (16, 8, 4, 2, 1) if width % g == 0)
            for channels, stride in ((before, 1 if i == 0 else 2), (width, 1)):
                layers += [nn.Conv2d(channels, width, 3, stride, 1), nn.GroupNorm(groups, width), nn.GELU()]
        self.blocks = nn.Sequential(*layers)
        self.head = nn.Sequential(
            nn.Linear(2 * config.widths[-1], config.head), nn.GELU(), nn.Linear(config.head, config.code)
        )

    def forward(self, trajectories: Tensor) -> Tensor:
        found = self.blocks(trajectories[:, None])
        return self.head(torch.cat([found.mean((2, 3)), found.amax((2, 3))], dim=1))


class NOD(nn.Module):
    """The learner; its operations are those of `protocol.Learner`, with `FieldWindows`."""

    places: Tensor

    def __init__(self, config: NODConfig) -> None:
        super().__init__()
        self.config = c = instance("config", config, of=NODConfig)
        self.condition = ConditionNet(c)
        self.branch = _network(c.points + c.code, c.branch, c.rank)
        self.trunk = _network(2 + 2 * (c.waves + c.tones), c.trunk, c.rank)
        self.scale, self.offset = nn.Parameter(torch.tensor(1.0)), nn.Parameter(torch.tensor(0.0))
        self.register_buffer("places", _features(c), persistent=False)
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                nn.init.xavier_normal_(layer.weight)
                nn.init.constant_(layer.bias, BIAS)
        self.queries_at = (0, 0)

    def at_step(self, seed: int, step: int) -> None:
        """Key the places that the loss is taken at."""
        self.queries_at = (seed, step)

    # The five operations

    def prepare(self, windows: FieldWindows) -> Batch:
        """Conditions, first frames and targets: in training at random places, else all of them, frame by frame.

        ValueError for trajectories of another size than the config's.
        """
        c, found = self.config, tuple(windows.fields.shape[1:])
        if found != (c.frames, c.points):
            raise ValueError(f"NOD was made for trajectories of shape {(c.frames, c.points)}, got {found}")
        y, u = windows.fields.flatten(1), None
        if self.training:
            u = moved(self._queries(len(y)), y.device)
            y = y.gather(1, u)
        return Batch(history=windows.conditions, current=windows.fields[:, 0], u=u, y=y)

    def encode_history(self, history: Tensor) -> Tensor:
        """Trajectories (B, T, X) → codes (B, code)."""
        return self.condition(history)

    def encode_current(self, current: Tensor) -> Tensor:
        """First frames (B, X), as they are."""
        return current

    def predict(self, z_s: Tensor, z_p: Tensor, u: Tensor | None) -> Tensor:
        """First frames and codes → trajectories (B, T·X), or their values at places `u` (B, Q) of them.

        The trunk knows no case, so it is evaluated once for the whole grid: fewer places than the queries of a batch.
        """
        inner = self.branch(torch.cat([z_s, z_p], dim=1)) @ self.trunk(self.places).T
        whole = z_s.repeat(1, self.config.frames) + self.scale * (inner + self.offset)
        return whole if u is None else whole.gather(1, u)

    def task_loss(self, prediction: Tensor, y: Tensor) -> Tensor:
        """Mean squared error, (B,)."""
        return (prediction.float() - y.float()).square().mean(1)

    def native_loss(self, batch: Batch, codes: Codes) -> tuple[Tensor, dict[str, Tensor]]:
        """The error of every window with the code of its own condition."""
        loss = self.task_loss(self.predict(codes.z_s, codes.z_p, batch.u), batch.y).mean()
        return loss, {"self": loss}

    def _queries(self, windows: int) -> Tensor:
        """Places (B, Q) of this rank's windows, drawn for those of all ranks."""
        seed, step = self.queries_at
        ranks, c = distributed.world(), self.config
        generator = torch.Generator().manual_seed(torch_seed(seed, step))
        drawn = torch.randint(c.frames * c.points, (ranks * windows, c.queries), generator=generator)
        return drawn.view(2, ranks, -1)[:, distributed.rank()].reshape(windows, -1) if ranks > 1 else drawn


def _network(inputs: int, width: int, outputs: int) -> nn.Sequential:
    sizes = (inputs, width, width, width, outputs)
    layers = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.Softplus(SHARPNESS))]
    return nn.Sequential(*layers[:-1])


def _features(c: NODConfig) -> Tensor:
    """Time in [0, 1], space in [−1, 1] and their waves, of every place of the grid, (T·X, features)."""
    t, x = torch.meshgrid(torch.linspace(0, 1, c.frames), torch.linspace(-1, 1, c.points), indexing="ij")
    angles = [torch.pi * k * axis for axis, count in ((x, c.waves), (t, c.tones)) for k in range(1, count + 1)]
    waves = [function(angle) for angle in angles for function in (torch.sin, torch.cos)]
    return torch.stack([t, x, *waves], dim=-1).flatten(0, 1)
