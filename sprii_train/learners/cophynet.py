"""CoPhyNet: a supervised learner of CoPhy that reads a code of every object from one video and predicts another.

    code = last state of a GRU over the frames of AB, of a graph net over estimated positions     P16 | T16 in the split
    rest, move = graph nets over (position, code) of the objects of CD, the latter through a GRU
    position += move · gate      gate = σ(logit/0.01) in training, logit > 0 in evaluation; the logit is of moving
    L_base = 10·MSE of positions + binary cross-entropy of whether an object rests

Sizes, losses and the gate are the release's (Baradel et al. 2020). Its source objective stays: it predicts from the
first frame of CD on (`given` 1), and nothing of CD but that frame is read, by no operation. Align is of P16 of the
focal objects; Cross replaces P16 of all active objects, and is of the focal object. T16 of the recipient's own AB and
its first frame stay. The Native learner has one code of 32 numbers in place of P16 | T16.

Not in the release's description, so ours: ReLU lies between layers and not behind the last; the gate's graph net is the
mover's, with a linear layer of one number behind it; it is asked at every frame, and told of the frame that it leads
to; the mover's GRU begins at 0.

Train it in float32: bfloat16 leaves the gate no digits.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sprii_envs.arguments import check, choice, instance, integer
from sprii_train.cophy.towers import packed, spread
from sprii_train.cophy.windows import ObjectWindows, at_source, check_windows
from sprii_train.protocol import Batch, Codes, self_loss

FEW = 0.01
"""Added to numbers of objects that means are taken of, as in the release: the mean of none is 0."""
SHARPNESS = 0.01
POSE_WEIGHT = 10.0


class Query(NamedTuple):
    """What a prediction is made from: estimated positions (B, T, O, 3), of which `given` are read, and who is there."""

    poses: Tensor
    active: Tensor  # (B, O) bool


class Outcome(NamedTuple):
    """What becomes of the objects after the given frames, L of them."""

    positions: Tensor  # (B, L, O, 3)
    moves: Tensor  # (B, L, O) float, 1 where an object does not rest
    active: Tensor  # (B, O) bool
    focal: Tensor  # (B,) int64


@dataclass(frozen=True)
class CoPhyNetConfig:
    """Sizes; the defaults are the release's.

    Attributes:
        width: of all layers, and numbers in an object's code.
        persistent: of these, those that are P; the others are T.
        given: frames of CD that are read; the original reads the first alone.
        context: `split` (P and T), or `monolithic` (Native): one code.
    """

    width: int = 32
    persistent: int = 16
    given: int = 1
    context: Literal["split", "monolithic"] = "split"

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        check(self, integer, "width", "persistent", "given", least=1)
        check(self, choice, "context", legal=("split", "monolithic"))
        if self.persistent >= self.width:
            raise ValueError(f"CoPhyNetConfig.persistent is {self.persistent}; legal: less than the width {self.width}")


class Graph(nn.Module):
    """Objects told of the others: (…, O, size) → (…, O, width), 0 for objects that are not there."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.edge = _layers(2 * size, width, width, width)
        self.node = _layers(size + 2 * width, width, width)

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        """Objects (…, O, size), of which (…, O) are there."""
        o = x.shape[-2]
        pairs = torch.cat([x.unsqueeze(-2).expand(*x.shape[:-1], o, -1), x.unsqueeze(-3).expand(
            *x.shape[:-2], o, o, -1)], dim=-1)  # fmt: skip
        others = (seen.unsqueeze(-1) & seen.unsqueeze(-2) & ~torch.eye(o, dtype=torch.bool, device=x.device)).to(x)
        told = _mean(self.edge(pairs), others)
        scene = _mean(told, seen.to(x)).unsqueeze(-2).expand_as(told)
        return self.node(torch.cat([x, told, scene], dim=-1)) * seen.unsqueeze(-1)


class Observer(nn.Module):
    """Videos of estimated positions → codes of their objects."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.graph = Graph(3, width)
        self.gru = nn.GRU(width, width, batch_first=True)

    def forward(self, poses: Tensor, seen: Tensor) -> Tensor:
        """(N, T, O, 3) and (N, O) → (N, O, width), 0 for objects that are not there."""
        n, t, o, _ = poses.shape
        nodes = self.graph(poses, seen[:, None].expand(n, t, o))
        last = self.gru(nodes.transpose(1, 2).reshape(n * o, t, -1))[1][0]
        return last.view(n, o, -1) * seen.unsqueeze(-1)


class CoPhyNet(nn.Module):
    """The learner; its operations are those of `protocol.Learner`, and those that the common head reads."""

    def __init__(self, config: CoPhyNetConfig) -> None:
        super().__init__()
        self.config = c = instance("config", config, of=CoPhyNetConfig)
        self.history = Observer(c.width)
        self.rests = nn.Sequential(nn.ReLU(), nn.Linear(c.width, 1))
        self.rests_graph, self.moves_graph = Graph(3 + c.width, c.width), Graph(3 + c.width, c.width)
        self.moves_gru = nn.GRUCell(c.width, c.width)
        self.moves = nn.Linear(c.width, 3)

    # The five operations, and two for the focal object

    def prepare(self, windows: ObjectWindows) -> Batch:
        """The codes (B, O, width) of the videos that a row's objects are told by, the query and what becomes of it."""
        w, given = windows, self.config.given
        check_windows(w, means=True)
        if given >= w.query_poses.shape[1]:
            raise ValueError(f"a query has {w.query_poses.shape[1]} frames; legal: more than the {given} given")
        used = w.seen.any(-1)
        codes = self.history(packed(w.poses, used).float(), packed(w.seen, used)).to(w.poses.dtype)
        told = at_source(spread(codes.flatten(1), used).unflatten(-1, codes.shape[1:]), w)
        own = (told if w.video.ndim == 2 else told.mean(2)) * w.active.unsqueeze(-1)  # of several supports: their mean
        moves = (~w.still[:, given:]).to(w.positions.dtype)
        outcome = Outcome(w.positions[:, given:], moves, w.active, w.focal)
        return Batch(history=own, current=own, u=Query(w.query_poses, w.active), y=outcome)

    def encode_history(self, history: Tensor) -> Tensor:
        """Codes (B, O, width) → z_p (B, O·16), all of them (B, O·32) if monolithic."""
        return self.object_persistent(history).flatten(1)

    def encode_current(self, current: Tensor) -> Tensor:
        """Codes (B, O, width) → z_s (B, O·16), what the persistent part leaves."""
        return current[..., self._persistent :].flatten(1)

    def predict(self, z_s: Tensor, z_p: Tensor, u: Query) -> Tensor:
        """(B, L, O, 4): positions of the L frames after the given ones, and the logit of moving into each."""
        b, t, o, _ = u.poses.shape
        code = torch.cat([z_p.view(b, o, -1), z_s.view(b, o, -1)], dim=-1)
        hidden, frames, now = code.new_zeros(b * o, self.config.width), [], u.poses[:, 0]
        for step in range(t - 1):
            if step < self.config.given:
                now = u.poses[:, step]
            x = torch.cat([now, code], dim=-1)
            logit = self.rests(self.rests_graph(x, u.active))
            hidden = self.moves_gru(self.moves_graph(x, u.active).flatten(0, 1), hidden)
            gate = torch.sigmoid(logit / SHARPNESS) if self.training else (logit > 0).to(logit)
            now = now + gate * self.moves(hidden).view(b, o, 3)
            frames.append(torch.cat([now, logit], dim=-1))
        return torch.stack(frames[self.config.given - 1 :], dim=1)

    def task_loss(self, prediction: Tensor, y: Outcome) -> Tensor:
        """10·MSE + cross-entropy of moving, mean over the frames and the objects that are there, (B,)."""
        return _mean(self.object_losses(prediction, y).unsqueeze(-1), y.active.to(prediction), few=0.0).squeeze(-1)

    def native_loss(self, batch: Batch, codes: Codes) -> tuple[Tensor, dict[str, Tensor]]:
        """The task loss with each row's own code."""
        own = self_loss(self, batch, codes)  # pyright: ignore[reportArgumentType]  (its windows are of objects)
        return own, {"self": own}

    def cross_task_loss(self, prediction: Tensor, y: Outcome) -> Tensor:
        """The task loss of the focal objects, (B,)."""
        return self.object_losses(prediction, y).gather(1, y.focal[:, None])[:, 0]

    def align_codes(self, z_p: Tensor, batch: Batch) -> Tensor:
        """z_p (B, O·16) → P of the focal objects (B, 16)."""
        focal, objects = batch.y.focal, batch.y.active.shape[1]
        return z_p.view(len(z_p), objects, -1)[torch.arange(len(z_p), device=z_p.device), focal]

    # What readers of a frozen source take

    def object_memory(self, features: Any, poses: Tensor, seen: Tensor) -> Tensor:
        """Estimated positions (B, T, O, 3) of AB, objects (B, O) → U (B, O, width); features are not read."""
        return self.history(poses.float(), seen)

    def object_query(self, features: Any, poses: Tensor, seen: Tensor) -> Tensor:
        """Of a query: (B, O, 0), nothing: both parts of the code are from AB."""
        return poses.new_zeros(*seen.shape, 0)

    def object_state(self, memory: Tensor, query: Tensor) -> Tensor:
        """U (…, width) is the memory."""
        return memory

    def object_persistent(self, memory: Tensor) -> Tensor:
        """The persistent part (…, 16) of a memory (…, width), all of it if monolithic."""
        return memory[..., : self._persistent]

    # Parts

    def object_losses(self, prediction: Tensor, y: Outcome) -> Tensor:
        """10·MSE + cross-entropy of moving of each object, (B, O)."""
        pose = (prediction[..., :3] - y.positions).square().mean((1, 3))
        moving = F.binary_cross_entropy_with_logits(prediction[..., 3], y.moves, reduction="none").mean(1)
        return POSE_WEIGHT * pose + moving

    @property
    def _persistent(self) -> int:
        return self.config.persistent if self.config.context == "split" else self.config.width


def _layers(*sizes: int) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    made: list[nn.Module] = []
    for before, after in pairwise(sizes):
        made += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*made[:-1])


def _mean(values: Tensor, weights: Tensor, few: float = FEW) -> Tensor:
    """Weighted mean of values (…, O, d) over O by weights (…, O) of 0 and 1."""
    return (values * weights.unsqueeze(-1)).sum(-2) / (weights.sum(-1, keepdim=True) + few)
