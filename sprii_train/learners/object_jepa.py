"""JEPA over the objects of CoPhy (`app:cophy-profile`); the towers are those of `cophy.towers`.

    z_p = P (64 an object) of AB                     z_s = T (64) of CD[:3]
    x̂_t = rollout from T with P, t = 3 … of CD       (128 an object)
    L_base = mean over active objects and times of ‖x̂_t − x_t‖²/128 + 0.2·SIGReg(x)

Targets are live projections and carry gradient. The monolithic Native learner has one context U of AB and CD[:3] in
place of (P, T); it starts the rollout and is told at every step. Codes are flat, O objects after one another, zeros for
those that are not there. Cross predicts all objects, each with its donor's P, and its loss is of the focal object.

SIGReg is of three times of each video of a row (its first AB: first, middle, last; CD from the fourth frame on: the
same), tested over the objects of one slot at a time, and averaged over times and slots. In an arm with donors it is of
recipients (`Objective.native_on`).
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from sprii_envs.arguments import check, choice, instance, integer, number
from sprii_train.cophy.losses import ObjectLosses, variance
from sprii_train.cophy.towers import (
    CurrentTower,
    Given,
    History,
    JointTower,
    PersistentTower,
    Projection,
    Rollout,
    alone,
    embedded,
    joined,
    spread,
)
from sprii_train.cophy.windows import GIVEN, ObjectWindows, check_windows
from sprii_train.devices import moved
from sprii_train.distributed import gather
from sprii_train.objectives import sigreg, sigreg_directions
from sprii_train.protocol import Batch, Codes, self_loss

Context = Literal["split", "monolithic"]


class Future(NamedTuple):
    """What a prediction is told besides codes."""

    active: Tensor  # (B, O) bool
    times: Tensor  # (B, K) int64, frames to predict


class Targets(NamedTuple):
    """What is predicted, and of which objects."""

    x: Tensor  # (B, K, O, D)
    active: Tensor  # (B, O) bool
    focal: Tensor  # (B,) int64
    slot: Tensor  # (B, O) int64
    kind: Tensor  # (B, O) int64


@dataclass(frozen=True)
class ObjectJEPAConfig:
    """Sizes; the defaults are the paper's.

    Attributes:
        features: numbers of an object in a frame.
        projection: hidden width of the projection.
        width: of projections, interactions and recurrent states.
        persistent, current: numbers of an object's P and T.
        layers: of the recurrent networks over AB and CD[:3].
        context: `split` (P, T) or `monolithic` (Native).
        sigreg_weight, sigreg_slices: λ_reg and the number of random directions.
    """

    features: int = 784
    projection: int = 256
    width: int = 128
    persistent: int = 64
    current: int = 64
    layers: int = 2
    context: Context = "split"
    sigreg_weight: float = 0.2
    sigreg_slices: int = 1024

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        check(self, integer, "features", "projection", "width", "persistent", "current", "layers", least=1)
        check(self, integer, "sigreg_slices", least=1)
        check(self, number, "sigreg_weight", least=0)
        check(self, choice, "context", legal=("split", "monolithic"))


class ObjectJEPA(ObjectLosses):
    """The learner; its operations are those of `protocol.Learner`, and the reader's three."""

    def __init__(self, config: ObjectJEPAConfig) -> None:
        super().__init__()
        self.config = c = instance("config", config, of=ObjectJEPAConfig)
        self.projection = Projection(c.features, c.projection, c.width)
        if c.context == "split":
            self.history: PersistentTower | JointTower = PersistentTower(c.width, c.layers, c.persistent)
            self.current = CurrentTower(c.width, c.layers, c.current)
            self.rollout = Rollout(c.current, c.persistent, c.width)
        else:
            self.history = JointTower(c.width, c.layers)
            self.rollout = Rollout(c.width, c.width, c.width)
        self.directions_at = (0, 0)

    def at_step(self, seed: int, step: int) -> None:
        """Key the random directions of SIGReg, so that the loss is a pure function of (weights, batch, seed, step)."""
        self.directions_at = (seed, step)

    # The operations

    def prepare(self, windows: ObjectWindows) -> Batch:
        """Project everything once; ValueError for windows that `check_windows` refuses."""
        w = windows
        check_windows(w, features=self.config.features)
        ab, cd = embedded(self.projection, w)
        given, future = cd[:, :GIVEN], cd[:, GIVEN:]
        times = torch.arange(GIVEN, cd.shape[1], device=cd.device).expand(len(cd), -1)
        return Batch(
            history=History(ab, w.seen, w.video, w.place, w.active, given),
            current=Given(given, w.active),
            u=Future(w.active, times),
            y=Targets(future, w.active, w.focal, w.slot, w.kind),
        )

    def encode_history(self, history: History) -> Tensor:
        """z_p (B, O·persistent), (B, O·width) if monolithic: it is then of CD[:3] too."""
        return self.history(history).flatten(1)

    def encode_current(self, current: Given) -> Tensor:
        """z_s (B, O·current); (B, 0) for the monolithic context."""
        return current.x.flatten(1)[:, :0] if self.config.context == "monolithic" else self.current(current).flatten(1)

    def predict(self, z_s: Tensor, z_p: Tensor, u: Future) -> Tensor:
        """Codes → projections of the frames to predict (B, K, O, width)."""
        context = z_p.unflatten(1, (u.active.shape[1], -1))
        start = context if self.config.context == "monolithic" else z_s.unflatten(1, (u.active.shape[1], -1))
        return self.rollout(start, context, u.active, u.times.shape[1])

    def object_losses(self, prediction: Tensor, y: Targets) -> tuple[Tensor, Tensor]:
        """Losses at each time (B, K, O) float32, and the objects that they are of (B, O) bool."""
        return (prediction.float() - y.x.float()).square().mean(-1), y.active

    def native_loss(self, batch: Batch, codes: Codes) -> tuple[Tensor, dict[str, Tensor]]:
        """Self prediction of all active objects + λ_reg·SIGReg."""
        own = self_loss(self, batch, codes)  # pyright: ignore[reportArgumentType]  (its windows are of objects)
        regularizer = self.regularizer(batch)
        spread_out = variance(batch.y.x.detach(), batch.y.active[:, None].expand(batch.y.x.shape[:3]))
        parts = {"self": own, "sigreg": regularizer, "target_variance": spread_out.mean()}
        return own + self.config.sigreg_weight * regularizer, parts

    def regularizer(self, batch: Batch) -> Tensor:
        """SIGReg of three times of each video by slot, the mean over those of which a batch has two objects."""
        z = torch.cat([_three(batch.history.x[:, 0]), _three(batch.y.x)], dim=1)
        z = gather(z.transpose(1, 2).flatten(0, 1).float())
        slot = gather(batch.y.slot.masked_fill(~batch.y.active, -1).flatten()).long()
        seed, step = self.directions_at
        directions = sigreg_directions(z.shape[-1], self.config.sigreg_slices, seed=seed, step=step, device=z.device)
        slot = slot.cpu()  # the one wait for a device: how many rows each test has is the host's to know
        slots, counts = slot.unique(return_counts=True)
        tested = [
            sigreg(z[moved((slot == one).nonzero()[:, 0], z.device)].transpose(0, 1), directions, gathered=True)
            for one in slots[(slots >= 0) & (counts > 1)].tolist()
        ]
        return torch.stack(tested).mean() if tested else z.sum() * 0.0

    # The reader's operations

    def object_memory(self, features: Tensor, poses: Tensor, seen: Tensor) -> Tensor:
        """What is kept of videos AB: features (B, T, O, F), seen (B, O) → P (B, O, persistent).

        Of the monolithic context it is the recurrent state after AB, (B, O, layers·width).
        """
        history = alone(self.projection(features), seen)
        if isinstance(self.history, PersistentTower):
            return self.history(history)
        return spread(self.history.states(history), seen)

    def object_query(self, features: Tensor, poses: Tensor, seen: Tensor) -> Tensor:
        """What is kept of CD[:3]: features (B, 3, O, F), seen (B, O) → T (B, O, current).

        Of the monolithic context it is the frames as the recurrent network gets them, (B, O, 3·width).
        """
        given = Given(self.projection(features), seen)
        return self.history.asked(given) if isinstance(self.history, JointTower) else self.current(given)

    def object_state(self, memory: Tensor, query: Tensor) -> Tensor:
        """Memory and query (…, O, d) → U (…, O, persistent + current), (…, O, width) if monolithic; 0 of the absent."""
        both = joined(memory, query)
        if isinstance(self.history, PersistentTower):
            return both
        states, asked = both.flatten(0, -2).split([memory.shape[-1], query.shape[-1]], dim=-1)
        state = self.history.resumed(states, asked) * (asked != 0).any(-1, keepdim=True)
        return state.view(*both.shape[:-1], -1)


def _three(x: Tensor) -> Tensor:
    """First, middle and last time of (B, T, …)."""
    return torch.stack([x[:, 0], x[:, (x.shape[1] - 1) // 2], x[:, -1]], dim=1)
