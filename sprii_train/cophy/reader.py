"""The common head of CoPhy: from what a frozen source says of three other histories and of three frames to the rest.

    M = mean over supports of ReLU layers of (U − mean)/SD          of every object, 64
    q = last state of a GRU over the three given frames             64
    h₀ = layers [M, q, whether there is a history]                  128
    m = mean over the other objects of ReLU layers [h, x, h′, x′];  h ← GRU(m, h);  v ← v + linear(h);  x ← x + v

Supports are other episodes of an object's slot, kind, gravity and physics, drawn anew every epoch for every object;
those of evaluation are of epoch 0. Of one training recipient in ten the history is dropped: its memory is the source's
`null`, the given frames are its own. The error is the mean square in metres of a recipient's objects; the weights of
the epoch with the least on a fixed choice of validation recipients are kept.

What a source says of a history and of a query is computed once (`encode`) and gathered in training.

From the published recipe: sizes, optimiser, draws, dropout and selection. Not stated there, so ours: the head's GRU
reads messages alone (and the memory, if delivered at `every` step); the 129th input says whether there is a history;
poses are standardised by the training queries; and the three laws of initial weights of `HeadConfig.initial`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sprii_envs.arguments import check, choice, flag, integer, number
from sprii_train.cophy.supports import Ids, Supports
from sprii_train.cophy.windows import GIVEN
from sprii_train.protocol import evaluation_mode, optional_operation

KINDS = 4
SUPPORTS = 3
CHUNK = 256
"""Episodes encoded, or predicted, at once."""


@dataclass(frozen=True)
class HeadConfig:
    """Sizes, budget and variants; the defaults are the published main recipe.

    Attributes:
        dims: coordinates predicted: 2 of Balls (x, y), 3 of the others.
        code: numbers in a memory, and of the given frames.
        hidden: of the rollout.
        types: whether the given frames are told with the object's kind.
        epochs, batch, learning_rate, weight_decay, clip: of AdamW.
        dropout: share of recipients whose history is dropped in training.
        selection: validation recipients on which an epoch is chosen.
        precision: of training: `bf16` is autocast, twice as fast where a CPU has it; errors are always of float32.
        initial: law of the initial weights. `main`: torch's. `alternative`: orthogonal recurrent weights, Xavier for
            all others, biases 0. `new`: He's for all but recurrent ones, which are orthogonal; biases 0. In all, what
            moves an object begins at SD 0.001.
        delivery: the memory is an input at the `initial` state, or at `every` step too.
    """

    dims: int = 3
    code: int = 64
    hidden: int = 128
    types: bool = True
    epochs: int = 100
    batch: int = 128
    learning_rate: float = 3e-4
    weight_decay: float = 1e-4
    clip: float = 1.0
    dropout: float = 0.1
    selection: int = 512
    precision: Literal["fp32", "bf16"] = "fp32"
    initial: Literal["main", "alternative", "new"] = "main"
    delivery: Literal["initial", "every"] = "initial"

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        check(self, integer, "dims", least=2, most=3)
        check(self, integer, "code", "hidden", "epochs", "batch", "selection", least=1)
        check(self, flag, "types")
        check(self, number, "learning_rate", "clip", above=0)
        check(self, number, "weight_decay", least=0)
        check(self, number, "dropout", least=0, below=1)
        check(self, choice, "precision", legal=("fp32", "bf16"))
        check(self, choice, "initial", legal=("main", "alternative", "new"))
        check(self, choice, "delivery", legal=("initial", "every"))


class Queries(NamedTuple):
    """What the head is given of E episodes, and what becomes of them, float32."""

    poses: Tensor  # (E, 3, O, 3) estimated positions
    targets: Tensor  # (E, L, O, 3) true positions after them
    seen: Tensor  # (E, O) bool
    kind: Tensor  # (E, O) int64


class Encoded(NamedTuple):
    """What a source says of E episodes, of O objects each."""

    memory: Tensor  # (E, O, d_m) of AB
    query: Tensor  # (E, O, d_q) of CD's given frames
    state: Callable[[Tensor, Tensor], Tensor]  # (…, O, d_m), (…, O, d_q) → U (…, O, d_U)
    persistent: Callable[[Tensor], Tensor]  # (…, d_m) → the part of a memory that is persistent
    null: Tensor  # (E, O, d_m), the memory of no history


def queries(poses: Any, positions: Any, seen: Any, kind: Any) -> Queries:
    """Of estimated poses and true positions (E, T, O, 3) of CD, objects (E, O) and their kinds."""
    poses, positions = (torch.as_tensor(np.asarray(x, np.float32)) for x in (poses, positions))
    return Queries(poses[:, :GIVEN], positions[:, GIVEN:], torch.as_tensor(seen), torch.as_tensor(kind))


@torch.no_grad()
def encode(learner: Any, features: Any, poses: Any, seen: Any, *, chunk: int = CHUNK) -> Encoded:
    """A frozen source's memories of all AB videos and its codes of all queries.

    Args:
        learner: with `object_memory`, `object_query` and `object_state`; `object_persistent` is optional.
        features: (E, 2, T, O, F) of AB and CD, any array that can be sliced, such as a memory map.
        poses: (E, 2, T, O, 3) estimated positions.
        seen: (E, O), or (E, 2, O) where AB and CD have other objects.

    Raises:
        MissingOperation: for a learner that lacks one of them.
    """
    memory, query, state = (
        optional_operation(learner, f"object_{name}", "the common head of CoPhy")
        for name in ("memory", "query", "state")
    )
    parts, there = [], np.asarray(seen)
    both = np.stack([there, there], axis=1) if there.ndim == 2 else there
    with evaluation_mode(learner):
        for i in range(0, len(both), chunk):
            place = slice(i, i + chunk)
            # Of a query, the given frames alone are read.
            videos = ((0, slice(None), memory), (1, slice(GIVEN), query))
            parts.append([
                ask(*(torch.from_numpy(np.array(x[place, v, frames], np.float32)) for x in (features, poses)),
                    torch.from_numpy(both[place, v]))
                for v, frames, ask in videos
            ])  # fmt: skip
    memories, codes = (torch.cat(part).float() for part in zip(*parts, strict=True))
    persistent = getattr(learner, "object_persistent", _whole)
    return Encoded(memories, codes, state, persistent, torch.zeros_like(memories))


def _whole(memory: Tensor) -> Tensor:
    return memory


@torch.no_grad()
def contexts(encoded: Encoded, rows: Tensor, ids: Tensor | None) -> Tensor:
    """States U (n, O, k, d_U) of recipients (n,) told by objects ids (n, O, k); by no history (k = 1) without them."""
    memories = encoded.memory.flatten(0, 1)
    found = []
    for i in range(0, len(rows), CHUNK):
        part = rows[i : i + CHUNK]
        if ids is None:
            memory = encoded.null[part].unsqueeze(1)
        else:
            told = ids[i : i + CHUNK].transpose(1, 2)
            memory = memories[told.clamp_min(0)] * (told >= 0).unsqueeze(-1)  # an object that is not there has 0
        query = encoded.query[part].unsqueeze(1).expand(*memory.shape[:-1], -1)
        found.append(encoded.state(memory, query).transpose(1, 2))
    return torch.cat(found)


class Head(nn.Module):
    """The network; `context` is d_U."""

    context_mean: Tensor
    context_scale: Tensor
    pose_mean: Tensor
    pose_scale: Tensor

    def __init__(self, config: HeadConfig, context: int) -> None:
        super().__init__()
        self.config = c = config
        self.support = nn.Sequential(nn.Linear(context, c.code), nn.ReLU(), nn.Linear(c.code, c.code), nn.ReLU())
        self.query = nn.GRU(7 + KINDS * c.types, c.code, batch_first=True)
        self.start = nn.Sequential(nn.Linear(2 * c.code + 1, c.hidden), nn.ReLU(), nn.Linear(c.hidden, c.hidden))
        self.pair, self.message = nn.Linear(2 * (c.hidden + c.dims), c.hidden), nn.Linear(c.hidden, c.hidden)
        self.step = nn.GRUCell(c.hidden + c.code * (c.delivery == "every"), c.hidden)
        self.move = nn.Linear(c.hidden, c.dims)
        _initialise(self)
        for name, size in (("context", context), ("pose", 3)):
            self.register_buffer(f"{name}_mean", torch.zeros(size))
            self.register_buffer(f"{name}_scale", torch.ones(size))

    def memory(self, told: Tensor) -> Tensor:
        """States U (n, O, k, d_U) of k supports → M (n, O, code)."""
        return self.support((told - self.context_mean) / self.context_scale).mean(2)

    def forward(self, memory: Tensor, known: Tensor, given: Queries) -> Tensor:
        """M (n, O, code), whether it is of a history (n,), and n queries → positions (n, L, O, dims) in metres."""
        c, (n, _, o, _) = self.config, given.poses.shape
        seen = given.seen.to(memory)
        poses = (given.poses - self.pose_mean) / self.pose_scale
        parts = [poses, torch.diff(poses, dim=1, prepend=poses[:, :1]), seen[:, None, :, None].expand(n, GIVEN, o, 1)]
        if c.types:
            kinds = F.one_hot(given.kind.clamp_min(0), KINDS).to(poses)
            parts.append(kinds[:, None].expand(n, GIVEN, o, KINDS))
        frames = torch.cat(parts, dim=-1).transpose(1, 2).reshape(n * o, GIVEN, -1)
        asked = self.query(frames)[1][0].view(n, o, -1)
        hidden = self.start(torch.cat([memory, asked, known.to(memory).view(n, 1, 1).expand(n, o, 1)], dim=-1))
        x = poses[:, -1, :, : c.dims]
        v = (x - poses[:, 0, :, : c.dims]) / (GIVEN - 1)
        turned = [seen.roll(-r, 1) for r in range(1, o)]  # an object's others, one after another
        share = 1.0 / torch.stack(turned).sum(0).clamp_min(1.0) if turned else seen
        half, found = c.hidden + c.dims, []
        for _ in range(given.targets.shape[1]):
            state = torch.cat([hidden, x], dim=-1)
            # A layer of [i, j] is the sum of a layer of i and one of j: n·O products in place of n·O².
            to = F.linear(state, self.pair.weight[:, :half], self.pair.bias)
            from_ = F.linear(state, self.pair.weight[:, half:])
            told = torch.zeros_like(to)
            for r, there in enumerate(turned, 1):
                told = told + F.relu(self.message(F.relu(to + from_.roll(-r, 1)))) * (there * share).unsqueeze(-1)
            if c.delivery == "every":
                told = torch.cat([told, memory], dim=-1)
            hidden = self.step(told.flatten(0, 1), hidden.flatten(0, 1)).view(n, o, -1)
            v = v + self.move(hidden)
            x = x + v
            found.append(x)
        return torch.stack(found, dim=1) * self.pose_scale[: c.dims] + self.pose_mean[: c.dims]


def _initialise(head: Head) -> None:
    law = head.config.initial
    if law != "main":
        for name, parameter in head.named_parameters():
            if parameter.ndim == 1:
                nn.init.zeros_(parameter)
            elif "weight_hh" in name:
                for gate in parameter.data.chunk(3):
                    nn.init.orthogonal_(gate)
            elif law == "alternative":
                nn.init.xavier_uniform_(parameter)
            else:
                nn.init.kaiming_normal_(parameter, nonlinearity="relu")
    nn.init.normal_(head.move.weight, std=1e-3)
    nn.init.zeros_(head.move.bias)


def recipient_errors(prediction: Tensor, given: Queries) -> Tensor:
    """Mean squared error in m² over a recipient's frames, objects and predicted coordinates, (n,)."""
    squared = (prediction - given.targets[..., : prediction.shape[-1]]).square().mean((1, 3))
    return (squared * given.seen).sum(1) / given.seen.sum(1)


@dataclass(frozen=True)
class Reader:
    """A fitted head.

    Attributes:
        head: with the weights of the best epoch, in evaluation mode.
        epoch: which that is, from 1.
        curve: (training error, validation error) of each epoch.
        seed: of its draws; evaluation takes those of epoch 0.
    """

    head: Head
    epoch: int
    curve: tuple[tuple[float, float], ...]
    seed: int


def selected(supports: Supports, count: int, *, split: str = "validation") -> Ids:
    """A fixed choice of recipients of a split, at most `count`: the same for every arm and seed."""
    rows = supports.rows(split, SUPPORTS)
    return np.sort(np.random.default_rng(0).permutation(rows)[:count])


def fit_reader(
    encoded: Encoded,
    asked: Queries,
    supports: Supports,
    config: HeadConfig,
    *,
    seed: int,
    selection: str = "validation",
    progress: Callable[[int, float, float], None] | None = None,
) -> Reader:
    """Train a head on a frozen source's contexts of the split `train`.

    Args:
        encoded, asked, supports: of the same E episodes of all splits.
        seed: of weights, order, dropped histories and draws of supports.
        selection: split on which the epoch is chosen.
        progress: called after an epoch with its number, training and validation error.

    Raises:
        ValueError: for too few episodes of a class in either split, or episodes and objects that differ.
        FloatingPointError: if the validation error is never finite.
    """
    if not len(encoded.memory) == len(asked.poses) == len(supports.objects.split):
        sizes = len(encoded.memory), len(asked.poses), len(supports.objects.split)
        raise ValueError(f"the source, the queries and the supports are of {sizes} episodes; legal: the same ones")
    if not np.array_equal(asked.seen.numpy(), supports.objects.active):
        raise ValueError("the queries are of other objects than the supports; legal: `Objects.active`")
    rows, watched = supports.rows("train", SUPPORTS), selected(supports, config.selection, split=selection)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        head = Head(config, contexts(encoded, torch.tensor([0]), None).shape[-1])
    _standardise(head, encoded, asked, supports, rows, seed)
    optimizer = torch.optim.AdamW(
        head.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, fused=True
    )
    kept = torch.from_numpy(supports.matched(SUPPORTS, seed=seed))
    curve: list[tuple[float, float]] = []
    best: tuple[float, dict[str, Tensor]] | None = None
    for epoch in range(1, config.epochs + 1):
        rng = np.random.default_rng([seed, epoch])
        order, drop = rng.permutation(rows), rng.random(len(rows)) < config.dropout
        ids, total = supports.matched(SUPPORTS, seed=seed, epoch=epoch), 0.0
        for i in range(0, len(order), config.batch):
            part = torch.from_numpy(order[i : i + config.batch])
            dropped = torch.from_numpy(drop[i : i + config.batch])
            told = contexts(encoded, part, torch.from_numpy(ids)[part])
            if dropped.any():
                told[dropped] = contexts(encoded, part[dropped], None).expand_as(told[dropped])
            given = Queries(*(x[part] for x in asked))
            with torch.autocast("cpu", torch.bfloat16, enabled=config.precision == "bf16"):
                loss = recipient_errors(head(head.memory(told), ~dropped, given), given).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(head.parameters(), config.clip)
            optimizer.step()
            total += loss.item() * len(part)
        found = float(errors(head, encoded, asked, watched, kept).mean())
        curve.append((total / len(rows), found))
        if np.isfinite(found) and (best is None or found < best[0]):
            best = found, {name: value.clone() for name, value in head.state_dict().items()}
        if progress is not None:
            progress(epoch, *curve[-1])
    if best is None:
        raise FloatingPointError(f"the head of seed {seed} diverged: its validation error is never finite")
    head.load_state_dict(best[1])
    return Reader(head.eval(), 1 + [found for _, found in curve].index(best[0]), tuple(curve), seed)


@torch.no_grad()
def errors(head: Head, encoded: Encoded, asked: Queries, rows: Ids, ids: Tensor | None) -> np.ndarray:
    """Errors (n,) of recipients (n,) told by objects ids (E, O, k), or by no history."""
    found = [torch.zeros(0)]
    for i in range(0, len(rows), CHUNK):
        part = torch.from_numpy(rows[i : i + CHUNK])
        told = contexts(encoded, part, None if ids is None else ids[part])
        given = Queries(*(x[part] for x in asked))
        known = torch.full((len(part),), ids is not None)
        found.append(recipient_errors(head(head.memory(told), known, given), given))
    return torch.cat(found).double().numpy()


def _standardise(head: Head, encoded: Encoded, asked: Queries, supports: Supports, rows: Ids, seed: int) -> None:
    """The scales of contexts and poses of the training recipients that are there."""
    part = torch.from_numpy(rows)
    seen = asked.seen[part]
    told = contexts(encoded, part, torch.from_numpy(supports.matched(SUPPORTS, seed=seed))[part])[seen].flatten(0, 1)
    poses = asked.poses[part].transpose(1, 2)[seen].flatten(0, 1)
    for name, values, floor in (("context", told, 0.0), ("pose", poses, 0.1)):
        mean, scale = values.double().mean(0), values.double().std(0, correction=0)
        scale = torch.where(scale < 1e-6, torch.ones_like(scale), scale).clamp_min(floor)
        getattr(head, f"{name}_mean").copy_(mean)
        getattr(head, f"{name}_scale").copy_(scale)
