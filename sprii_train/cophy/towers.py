"""Networks over objects that JEPA, CPC and RSSM of CoPhy share (`app:cophy-profile`). Sizes here are the paper's.

    x_t  = projection([f_t, f_t − f_{t−1}])                    LayerNorm 1568 – 256 – GELU – 128 – LayerNorm
    x_i′ = x_i + LN(update([x_i, mean_j≠i edge([x_i, x_j])]))  interaction; edge and update are 256 – 128 – GELU – 128
    P    = LN(Linear(GRU(x′ of AB)_last))                      two layers of 128, then 64
    T    = LN(GRU(x′ of CD[:3])_last)                          two layers of 64
    U    = LN(GRU(x′ of AB, boundary, x′ of CD[:3])_last)      128: Native, in place of P and T

Means of an interaction are over the other objects that are there. Every tower has an interaction of its own.

The sizes are known; that an edge has no activation behind it, that LN(update) is what is added, and which numbers k of
the fixed vectors sin(k·dim)/√width mark AB (1), CD (2) and the boundary between them (3), is our choice.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sprii_train.cophy.windows import GIVEN, ObjectWindows
from sprii_train.devices import on_host


class History(NamedTuple):
    """What persistent codes are read from: projections of videos AB, whose objects they are of, and CD[:3]."""

    x: Tensor  # (B, V, T, O, D)
    seen: Tensor  # (B, V, O) bool
    video: Tensor  # (B, O) int64
    place: Tensor  # (B, O) int64
    active: Tensor  # (B, O) bool
    given: Tensor  # (B, 3, O, D), read by Native only


class Given(NamedTuple):
    """The query's frames that are given."""

    x: Tensor  # (B, 3, O, D)
    active: Tensor  # (B, O) bool


def others(present: Tensor) -> Tensor:
    """(…, O) bool → weights of a mean over the other objects that are there, (…, O, O)."""
    itself = torch.eye(present.shape[-1], dtype=torch.bool, device=present.device)
    weights = (present[..., None, :] & ~itself).float()
    return weights / weights.sum(-1, keepdim=True).clamp_min(1.0)


def fixed_vector(k: int, width: int) -> Tensor:
    """sin(k·dim)/√width for dim = 1 … width."""
    return torch.sin(k * torch.arange(1, width + 1, dtype=torch.float64)).float() / math.sqrt(width)


class Projection(nn.Module):
    """Features of objects (…, T, O, F) → projections of them and of their change over a frame, (…, T, O, width)."""

    def __init__(self, features: int, hidden: int, width: int) -> None:
        super().__init__()
        self.norm, self.first = nn.LayerNorm(2 * features), nn.Linear(2 * features, hidden)
        self.second, self.out = nn.Linear(hidden, width), nn.LayerNorm(width)

    def forward(self, features: Tensor) -> Tensor:
        f = features.shape[-1]
        x = torch.empty((*features.shape[:-1], 2 * f), dtype=torch.float32, device=features.device)
        now, change = x[..., :f], x[..., f:]
        now.copy_(features)
        change[..., :1, :, :] = 0.0
        change[..., 1:, :, :] = now[..., 1:, :, :] - now[..., :-1, :, :]
        # With the norm's scale and shift in the weights, no gradient of its width is formed: a third of the work.
        weight = self.first.weight * self.norm.weight
        bias = self.first.bias + self.first.weight @ self.norm.bias
        x = F.linear(F.layer_norm(x, (2 * f,), eps=self.norm.eps), weight, bias)
        return self.out(self.second(F.gelu(x)))


class Interaction(nn.Module):
    """Objects (…, O, width) and the weights of their others (…, O, O) → (…, O, width), residual."""

    def __init__(self, width: int) -> None:
        super().__init__()
        # edge([x_i, x_j]) = edge(GELU(target(x_i) + source(x_j))): its layers act on objects, not on pairs of them.
        self.target, self.source = nn.Linear(width, width), nn.Linear(width, width, bias=False)
        self.edge = nn.Linear(width, width)
        self.update = nn.Sequential(nn.Linear(2 * width, width), nn.GELU(), nn.Linear(width, width))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, weights: Tensor) -> Tensor:
        return self.updated(x, self.source(x)[..., None, :, :], weights)

    def updated(self, x: Tensor, sources: Tensor, weights: Tensor) -> Tensor:
        """Objects (…, width), `source` of those around each (…, O, width), and their weights (…, O)."""
        pairs = F.gelu(self.target(x)[..., None, :] + sources)
        message = self.edge((weights[..., None].to(pairs.dtype) * pairs).sum(-2))
        return x + self.norm(self.update(torch.cat([x, message], dim=-1)))

    def chosen(self, history: History) -> Tensor:
        """Courses (T, N, width) of the objects that the N active objects' codes are read from, among those around."""
        x, seen, video, place, active, _ = history
        full = seen.any(-1)
        courses, pair_of = packed(x, full), numbered(full)
        rows = packed(torch.arange(len(active), device=x.device)[:, None].expand(active.shape), active)
        video, place = packed(video, active), packed(place, active)
        pair = pair_of[rows, video]
        around = torch.arange(x.shape[3], device=x.device) != place[:, None]
        weights = (around & seen[rows, video]).float()
        weights = (weights / weights.sum(-1, keepdim=True).clamp_min(1.0))[:, None]
        own = courses[pair, :, place]
        return self.updated(own, self.source(courses)[pair], weights).transpose(0, 1)


def packed(values: Tensor, there: Tensor) -> Tensor:
    """Of values (B, O, …) those `there` (B, O): (N, …); all B·O on a device, where N is not the host's to know."""
    return values[there] if on_host(there) else values.flatten(0, 1)


def numbered(there: Tensor) -> Tensor:
    """Which row of `packed` each is, (B, O)."""
    counted = there if on_host(there) else torch.ones_like(there)
    return counted.flatten().cumsum(0).view_as(there) - 1


def spread(values: Tensor, active: Tensor) -> Tensor:
    """Packed numbers (N, D) in their places (B, O, D), zeros where nothing is."""
    if not on_host(active):
        return values.unflatten(0, active.shape).masked_fill(~active[..., None], 0.0)
    placed = values.new_zeros((*active.shape, values.shape[-1]))
    placed[active] = values
    return placed


class PersistentTower(nn.Module):
    """`History` → P (B, O, out)."""

    def __init__(self, width: int, layers: int, out: int) -> None:
        super().__init__()
        self.interaction, self.gru = Interaction(width), nn.GRU(width, width, layers)
        self.head, self.norm = nn.Linear(width, out), nn.LayerNorm(out)

    def forward(self, history: History) -> Tensor:
        state = self.gru(self.interaction.chosen(history))[1][-1]
        return spread(self.norm(self.head(state)), history.active)


class CurrentTower(nn.Module):
    """`Given` → T (B, O, out)."""

    def __init__(self, width: int, layers: int, out: int) -> None:
        super().__init__()
        self.interaction, self.gru = Interaction(width), nn.GRU(width, out, layers)
        self.norm = nn.LayerNorm(out)

    def forward(self, given: Given) -> Tensor:
        x = self.interaction(given.x, others(given.active)[:, None])
        state = self.norm(self.gru(x.transpose(0, 1).flatten(1, 2))[1][-1])
        return state.view(*given.active.shape, -1) * given.active[..., None]


class JointTower(nn.Module):
    """Native: one recurrent network over AB, the boundary and CD[:3] → U (B, O, width)."""

    segments: Tensor

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.interaction, self.gru = Interaction(width), nn.GRU(width, width, layers)
        self.norm = nn.LayerNorm(width)
        self.register_buffer("segments", torch.stack([fixed_vector(k, width) for k in (1, 2, 3)]), persistent=False)

    def forward(self, history: History) -> Tensor:
        asked = self.asked(Given(history.given, history.active))
        asked = packed(asked, history.active)
        return spread(self.resumed(self.states(history), asked), history.active)

    def states(self, history: History) -> Tensor:
        """States of all layers after AB, (N, layers·width) of the active objects."""
        state = self.gru(self.interaction.chosen(history) + self.segments[0])[1]
        return state.transpose(0, 1).flatten(1)

    def asked(self, given: Given) -> Tensor:
        """CD[:3] as the recurrent network gets it, (B, O, 3·width)."""
        x = self.interaction(given.x, others(given.active)[:, None]) + self.segments[1]
        return x.transpose(1, 2).flatten(2) * given.active[..., None]

    def resumed(self, states: Tensor, asked: Tensor) -> Tensor:
        """States after AB (N, layers·width), continued through the boundary and CD[:3] → U (N, width)."""
        width = self.segments.shape[1]
        query = asked.unflatten(-1, (GIVEN, width)).transpose(0, 1)
        boundary = self.segments[2].to(query.dtype).expand(1, len(states), width)
        state = states.unflatten(-1, (-1, width)).transpose(0, 1).contiguous()
        return self.norm(self.gru(torch.cat([boundary, query]), state)[1][-1])


class Rollout(nn.Module):
    """Future projections from what the query shows and a context.

    h_0 = LN(GELU(Linear(start))); h_t = GRUCell(GELU(Linear([interaction(h_{t−1}), context])), h_{t−1});
    x̂_t = Linear(h_t).
    """

    def __init__(self, start: int, context: int, width: int) -> None:
        super().__init__()
        self.init = nn.Sequential(nn.Linear(start, width), nn.GELU(), nn.LayerNorm(width))
        self.interaction, self.mix = Interaction(width), nn.Linear(width, width)
        self.told = nn.Linear(context, width, bias=False)  # the context's part of a layer is the same at every step
        self.cell, self.out = nn.GRUCell(width, width), nn.Linear(width, width)

    def forward(self, start: Tensor, context: Tensor, active: Tensor, steps: int) -> Tensor:
        """Starts and contexts (B, O, …), active (B, O) → (B, steps, O, width), 0 of objects that are not there."""
        h, told, weights, states = self.init(start), self.told(context), others(active), []
        for _ in range(steps):
            mixed = F.gelu(self.mix(self.interaction(h, weights)) + told)
            h = self.cell(mixed.flatten(0, 1), h.flatten(0, 1)).view(h.shape)
            states.append(h)
        return self.out(torch.stack(states, dim=1)) * active[:, None, :, None]


def embedded(projection: Callable[[Tensor], Tensor], windows: ObjectWindows) -> tuple[Tensor, Tensor]:
    """Projections of the videos AB (B, V, T, O, D), zeros where a row has none, and of the query (B, T, O, D).

    Where donor rows have the queries of their recipients, bit for bit, these are projected once, on a CPU.
    """
    full, query = windows.seen.any(-1), windows.query_features
    videos = projection(packed(windows.features, full))
    n = len(query) // 2
    shared = on_host(query) and n > 0 and len(query) == 2 * n and torch.equal(query[:n], query[n:])
    cd = projection(query[n:] if shared else query)
    return spread(videos.flatten(1), full).unflatten(-1, videos.shape[1:]), torch.cat([cd, cd]) if shared else cd


def alone(x: Tensor, seen: Tensor) -> History:
    """Videos (B, T, O, D), each read on its own and all of its objects (B, O)."""
    place = torch.arange(seen.shape[1], device=seen.device).expand_as(seen)
    return History(x[:, None], seen[:, None], torch.zeros_like(place), place, seen, x[:, :0])


def joined(memory: Tensor, query: Tensor) -> Tensor:
    """Memory and query behind one another, (…, d_m + d_q); their other axes are broadcast."""
    shape = torch.broadcast_shapes(memory.shape[:-1], query.shape[:-1])
    return torch.cat([memory.expand(*shape, -1), query.expand(*shape, -1)], dim=-1)
