"""Recurrent state-space model over the objects of CoPhy (`app:cophy-profile`; Hafner et al. 2019); an object's state
has a deterministic part h and a stochastic part s.

    h_t = GRUCell(GELU(Linear([interaction(h_{t−1}), s_{t−1}, P])), h_{t−1})
    prior      p(s_t | h_t, P) = N(MLP([h_t, P]))          posterior  q(s_t | h_t, x_t) = N(MLP([h_t, x_t]))
    decoder    f̂_t = MLP([P, h_t, s_t])                    x_t projections of z-scored features f_t
    z_p = P of AB        z_s = (h, s) of CD[:3], filtered by the posterior with P = 0
    L_base = ‖f̂_t − f_t‖²/F of the prior's rollout, of the posterior's reconstruction, + 0.01·KL(q ‖ p)

All three are means over active objects and the frames t = 3 … of CD, from z_s on. The rollout never reads a posterior
of them. SDs are softplus + 0.1. The KL of an object and frame is balanced (0.8 of it trains the prior, 0.2 the
posterior), neither part below 1 nat. In training s is drawn, the noise of a batch's rollouts once, so that Self and
Cross meet the same; in evaluation s is the mean. Ranks of a process group draw alike, each for its own rows.

Native has no P: z_p is the state (h, s) after AB, the boundary and CD[:3], filtered as one course, with the fixed
vectors of `cophy.towers` added to projections. Features are z-scored by statistics that `fit_statistics` takes once,
before training, and that checkpoints keep.

Sizes and losses are the paper's. The interaction, that losses are of the frames after the third alone, and the layers'
activations (GELU) are our choice.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sprii_envs.arguments import check, choice, instance, integer, number
from sprii_train.cophy.losses import ObjectLosses, means
from sprii_train.cophy.towers import (
    History,
    Interaction,
    PersistentTower,
    Projection,
    alone,
    embedded,
    fixed_vector,
    joined,
    others,
    packed,
    spread,
)
from sprii_train.cophy.windows import GIVEN, ObjectWindows, check_windows
from sprii_train.devices import demand
from sprii_train.protocol import Batch, Codes, self_loss

FLOOR = 1e-3
"""Least SD of a feature."""
LEAST = 0.1
"""Least SD of a latent."""


class Normal(NamedTuple):
    """Independent normal distributions."""

    mean: Tensor
    sd: Tensor

    def detach(self) -> "Normal":
        """The same without gradient."""
        return Normal(self.mean.detach(), self.sd.detach())


class State(NamedTuple):
    """h (…, O, width) and s (…, O, latent)."""

    h: Tensor
    s: Tensor


class Given(NamedTuple):
    """The query's frames that are given, and what draws their latents."""

    x: Tensor  # (B, 3, O, D)
    active: Tensor  # (B, O) bool
    noise: Tensor  # (B, 3, O, latent)


class Future(NamedTuple):
    """What a rollout is told besides codes."""

    active: Tensor  # (B, O) bool
    noise: Tensor  # (B, K, O, latent)


class Targets(NamedTuple):
    """What is predicted, what posteriors read, and of which objects."""

    features: Tensor  # (B, K, O, F), z-scored
    x: Tensor  # (B, K, O, D)
    active: Tensor  # (B, O) bool
    focal: Tensor  # (B,) int64


@dataclass(frozen=True)
class ObjectRSSMConfig:
    """Sizes; the defaults are the paper's.

    Attributes:
        features: numbers of an object in a frame.
        projection: hidden width of the projection.
        width: of projections, interactions, hidden layers and h.
        latent: of s.
        persistent: numbers of an object's P.
        layers: of the recurrent network over AB (split only).
        decoder: hidden width of the decoder.
        context: `split` (P apart from the state) or `monolithic` (Native).
        kl_weight: of the KL divergence.
        kl_balance: share of it that trains the prior.
        free_nats: below which it trains nothing, of an object in a frame.
    """

    features: int = 784
    projection: int = 256
    width: int = 128
    latent: int = 32
    persistent: int = 64
    layers: int = 2
    decoder: int = 256
    context: Literal["split", "monolithic"] = "split"
    kl_weight: float = 0.01
    kl_balance: float = 0.8
    free_nats: float = 1.0

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        check(self, integer, "features", "projection", "width", "latent", "persistent", "layers", "decoder", least=1)
        check(self, number, "kl_weight", "free_nats", least=0)
        check(self, number, "kl_balance", least=0, most=1)
        check(self, choice, "context", legal=("split", "monolithic"))


def divergence(q: Normal, p: Normal) -> Tensor:
    """KL(q ‖ p), summed over the last axis."""
    ratio = (q.sd / p.sd).square()
    return 0.5 * (ratio + ((q.mean - p.mean) / p.sd).square() - 1.0 - ratio.log()).sum(-1)


def balanced_divergence(q: Normal, p: Normal, *, balance: float, free: float) -> tuple[Tensor, Tensor]:
    """What is minimised of KL(q ‖ p): `balance` of it in p, the rest in q, none below `free` nats; and KL itself."""
    to_prior, to_posterior = divergence(q.detach(), p), divergence(q, p.detach())
    return balance * to_prior.clamp_min(free) + (1.0 - balance) * to_posterior.clamp_min(free), to_prior.detach()


class Told(NamedTuple):
    """What a context adds to the hidden layers of the transition and of the prior, the same at every step."""

    mix: Tensor  # (B, O, width)
    prior: Tensor  # (B, O, width)


class Dynamics(nn.Module):
    """Transition, prior and posterior of a state; `context` numbers an object are told at every step."""

    def __init__(self, width: int, latent: int, context: int) -> None:
        super().__init__()
        self.interaction, self.cell = Interaction(width), nn.GRUCell(width, width)
        self.mix = nn.Linear(width + latent, width)
        self.prior_hidden, self.prior_out = nn.Linear(width, width), nn.Linear(width, 2 * latent)
        self.posterior_hidden, self.posterior_out = nn.Linear(width, width), nn.Linear(width, 2 * latent)
        self.context = nn.Linear(context, 2 * width, bias=False) if context else None
        self.seen = nn.Linear(width, width, bias=False)

    def told(self, context: Tensor) -> Told | None:
        """Contexts (B, O, context), of which zeros tell nothing; None where the config has none."""
        return None if self.context is None else Told(*self.context(context).chunk(2, dim=-1))

    def step(self, state: State, told: Told | None, weights: Tensor) -> Tensor:
        """States (B, O, …) and weights of others (B, O, O) → the next h (B, O, width)."""
        around = self.interaction(state.h, weights)
        mixed = self.mix(torch.cat([around, state.s.to(around.dtype)], dim=-1))
        mixed = F.gelu(mixed if told is None else mixed + told.mix)
        return self.cell(mixed.flatten(0, 1), state.h.to(mixed.dtype).flatten(0, 1)).view(state.h.shape)

    def prior(self, h: Tensor, told: Tensor | None) -> Normal:
        """p(s | h, context); `told` is `Told.prior`, with an axis of times where h has one."""
        hidden = self.prior_hidden(h)
        return _normal(self.prior_out(F.gelu(hidden if told is None else hidden + told)))

    def filtered(
        self, state: State, told: Told | None, x: Tensor, active: Tensor, noise: Tensor
    ) -> tuple[State, Normal]:
        """States after projections x (B, T, O, width), each of which its posterior reads: (B, T, O, …)."""
        weights, states, found = others(active), [], []
        for seen, drawn in zip(self.seen(x).unbind(1), noise.unbind(1), strict=True):
            h = self.step(state, told, weights)
            found.append(_normal(self.posterior_out(F.gelu(self.posterior_hidden(h) + seen))))
            state = State(h, found[-1].mean + found[-1].sd * drawn)
            states.append(state)
        return State(*map(_over_times, zip(*states, strict=True))), Normal(*map(_over_times, zip(*found, strict=True)))

    def rolled(self, state: State, told: Told | None, active: Tensor, noise: Tensor) -> State:
        """States (B, T, O, …) that the prior alone leads to, as many as there are draws (B, T, O, latent)."""
        weights, states = others(active), []
        for drawn in noise.unbind(1):
            h = self.step(state, told, weights)
            mean, sd = self.prior(h, None if told is None else told.prior)
            state = State(h, mean + sd * drawn)
            states.append(state)
        return State(*map(_over_times, zip(*states, strict=True)))


class ObjectRSSM(ObjectLosses):
    """The learner; its operations are those of `protocol.Learner`, and the reader's three."""

    mean: Tensor
    sd: Tensor
    fitted: Tensor
    segments: Tensor

    def __init__(self, config: ObjectRSSMConfig) -> None:
        super().__init__()
        self.config = c = instance("config", config, of=ObjectRSSMConfig)
        context = c.persistent if c.context == "split" else 0
        self.register_buffer("mean", torch.zeros(c.features))
        self.register_buffer("sd", torch.ones(c.features))
        self.register_buffer("fitted", torch.zeros((), dtype=torch.int64))
        self.projection = Projection(c.features, c.projection, c.width)
        if context:
            self.history = PersistentTower(c.width, c.layers, c.persistent)
        else:
            segments = torch.stack([fixed_vector(k, c.width) for k in (1, 2, 3)])
            self.register_buffer("segments", segments, persistent=False)
        self.dynamics = Dynamics(c.width, c.latent, context)
        size = context + c.width + c.latent
        self.decoder = nn.Sequential(nn.Linear(size, c.decoder), nn.GELU(), nn.Linear(c.decoder, c.features))

    @torch.no_grad()
    def fit_statistics(self, features: Tensor) -> None:
        """Take the statistics that features are z-scored by, before training.

        Args:
            features: (…, F) of objects that are there; the paper's are of 256 training episodes.

        Raises:
            ValueError: for another F, fewer than two rows, or numbers that are not finite.
        """
        f, rows = self.config.features, features.reshape(-1, features.shape[-1]).to(self.mean.device, torch.float64)
        if rows.shape[1] != f or len(rows) < 2 or not bool(torch.isfinite(rows).all()):
            raise ValueError(f"features have shape {tuple(features.shape)}; legal: finite, (…, {f}), two rows or more")
        self.mean.copy_(rows.mean(0))
        self.sd.copy_(rows.std(0, correction=0).clamp_min(FLOOR))
        self.fitted.fill_(1)

    # The operations

    def prepare(self, windows: ObjectWindows) -> Batch:
        """Project everything once; ValueError for windows that `check_windows` refuses, and without statistics."""
        w = windows
        check_windows(w, features=self.config.features)
        if self.training:
            why = "features are not z-scored yet; legal: to call fit_statistics before training"
            demand(self.fitted > 0, "statistics", lambda: why)
        ab, cd = embedded(self.projected, w)
        given, future = cd[:, :GIVEN], cd[:, GIVEN:]
        noise = self.noise(*cd.shape[:3])
        return Batch(
            history=History(ab, w.seen, w.video, w.place, w.active, given),
            current=Given(given, w.active, noise[:, :GIVEN]),
            u=Future(w.active, noise[:, GIVEN:]),
            y=Targets(self.scored(w.query_features[:, GIVEN:]), future, w.active, w.focal),
        )

    def encode_history(self, history: History) -> Tensor:
        """z_p (B, O·persistent); (B, O·(width + latent)) if monolithic: the state after AB and CD[:3]."""
        if self.config.context == "split":
            return self.history(history).flatten(1)
        full, rows = history.seen.any(-1), torch.arange(len(history.seen), device=history.seen.device)[:, None]
        after = spread(self.after(packed(history.x, full), packed(history.seen, full)).flatten(1), full)
        after = after.unflatten(-1, (history.seen.shape[2], -1))[rows, history.video, history.place]
        asked = history.given + self.segments[1]
        return self.resumed(after * history.active[..., None], asked, history.active).flatten(1)

    def encode_current(self, current: Given) -> Tensor:
        """z_s (B, O·(width + latent)), filtered with zeros for P; (B, 0) for the monolithic context."""
        if self.config.context == "monolithic":
            return current.x.flatten(1)[:, :0]
        return self.query_state(current).flatten(1)

    def predict(self, z_s: Tensor, z_p: Tensor, u: Future) -> Tensor:
        """Codes → z-scored features of the prior's rollout (B, K, O, F)."""
        state, context = self.started(z_s, z_p, u.active)
        return self.decoded(self.dynamics.rolled(state, self.dynamics.told(context), u.active, u.noise), context)

    def object_losses(self, prediction: Tensor, y: Targets) -> tuple[Tensor, Tensor]:
        """Mean squared errors at each time (B, K, O) float32, and the active objects (B, O)."""
        return (prediction.float() - y.features).square().mean(-1), y.active

    def native_loss(self, batch: Batch, codes: Codes) -> tuple[Tensor, dict[str, Tensor]]:
        """Prior rollout + posterior reconstruction + weighted KL; parts also have KL in nats and the share below."""
        c, y = self.config, batch.y
        own = self_loss(self, batch, codes)  # pyright: ignore[reportArgumentType]  (its windows are of objects)
        state, context = self.started(codes.z_s, codes.z_p, y.active)
        x = y.x if c.context == "split" else y.x + self.segments[1]
        told = self.dynamics.told(context)
        states, posterior = self.dynamics.filtered(state, told, x, y.active, self.noise(*x.shape[:3]))
        reconstruction = self.task_loss(self.decoded(states, context), y).mean()
        prior = self.dynamics.prior(states.h, None if told is None else told.prior[:, None])
        minimised, nats = balanced_divergence(posterior, prior, balance=c.kl_balance, free=c.free_nats)
        kl = means(minimised.mean(1), y.active).mean()
        parts = {"self": own, "reconstruction": reconstruction, "kl": means(nats.mean(1), y.active).mean()}
        parts["free_nats"] = means((nats < c.free_nats).float().mean(1), y.active).mean()
        return own + reconstruction + c.kl_weight * kl, parts

    # The reader's operations

    def object_memory(self, features: Tensor, poses: Tensor, seen: Tensor) -> Tensor:
        """What is kept of videos AB: features (B, T, O, F), seen (B, O) → P (B, O, persistent).

        Of the monolithic context it is the state after AB, (B, O, width + latent).
        """
        x = self.projected(features)
        return self.history(alone(x, seen)) if self.config.context == "split" else self.after(x, seen)

    def object_query(self, features: Tensor, poses: Tensor, seen: Tensor) -> Tensor:
        """What is kept of CD[:3]: features (B, 3, O, F), seen (B, O) → the state (B, O, width + latent).

        Of the monolithic context it is the projections that its filter goes on with, (B, O, 3·width).
        """
        x = self.projected(features)
        if self.config.context == "monolithic":
            return (x + self.segments[1]).transpose(1, 2).flatten(2) * seen[..., None]
        return self.query_state(Given(x, seen, self.noise(*x.shape[:3])))

    def object_state(self, memory: Tensor, query: Tensor) -> Tensor:
        """Memory and query (…, O, d) → U (…, O, persistent + width + latent), (…, O, width + latent) if monolithic.

        Objects whose query is all zeros are not there.
        """
        both = joined(memory, query)
        if self.config.context == "split":
            return both
        states, asked = both.flatten(0, -3).split([memory.shape[-1], query.shape[-1]], dim=-1)
        x = asked.unflatten(-1, (GIVEN, -1)).transpose(1, 2)
        return self.resumed(states, x, (asked != 0).any(-1)).view(*both.shape[:-1], -1)

    # Parts

    def scored(self, features: Tensor) -> Tensor:
        """Features (…, F), z-scored, float32."""
        return (features.float() - self.mean) / self.sd

    def projected(self, features: Tensor) -> Tensor:
        """Features (…, T, O, F) → projections (…, T, O, width)."""
        return self.projection(self.scored(features))

    def noise(self, *shape: int) -> Tensor:
        """(*shape, latent): standard normal in training, else zeros."""
        size, device = (*shape, self.config.latent), self.mean.device
        return torch.randn(size, device=device) if self.training else torch.zeros(size, device=device)

    def decoded(self, states: State, context: Tensor) -> Tensor:
        """States (B, T, O, …) and contexts (B, O, …) → features (B, T, O, F)."""
        told = context[:, None].expand(*states.h.shape[:3], -1)
        return self.decoder(torch.cat([told.to(states.h.dtype), states.h, states.s.to(states.h.dtype)], dim=-1))

    def started(self, z_s: Tensor, z_p: Tensor, active: Tensor) -> tuple[State, Tensor]:
        """State after CD[:3] and context of codes."""
        objects, monolithic = active.shape[1], self.config.context == "monolithic"
        state = (z_p if monolithic else z_s).unflatten(1, (objects, -1))
        return self.state(state), state[..., :0] if monolithic else z_p.unflatten(1, (objects, -1))

    def state(self, numbers: Tensor) -> State:
        """(…, width + latent) → its two parts."""
        return State(*numbers.split([self.config.width, self.config.latent], dim=-1))

    def filtered(self, start: Tensor, x: Tensor, active: Tensor, noise: Tensor) -> Tensor:
        """The state (B, O, width + latent) after projections (B, T, O, width), told no context; 0 of absent objects."""
        states, _ = self.dynamics.filtered(self.state(start), None, x, active, noise)
        return torch.cat([states.h[:, -1], states.s[:, -1].to(states.h.dtype)], dim=-1) * active[..., None]

    def query_state(self, given: Given) -> Tensor:
        """The state after CD[:3] with zeros for P, (B, O, width + latent)."""
        start = given.x.new_zeros((*given.active.shape, self.config.width + self.config.latent))
        return self.filtered(start, given.x, given.active, given.noise)

    def after(self, x: Tensor, seen: Tensor) -> Tensor:
        """Native: the state after videos AB, (B, O, width + latent)."""
        start = x.new_zeros((*seen.shape, self.config.width + self.config.latent))
        return self.filtered(start, x + self.segments[0], seen, self.noise(*x.shape[:3]))

    def resumed(self, states: Tensor, asked: Tensor, active: Tensor) -> Tensor:
        """Native: states after AB (B, O, …), continued through the boundary and CD[:3] (B, 3, O, width)."""
        boundary = self.segments[2].expand(len(asked), 1, *asked.shape[2:]).to(asked.dtype)
        x = torch.cat([boundary, asked], dim=1)
        return self.filtered(states, x, active, self.noise(*x.shape[:3]))


def _normal(numbers: Tensor) -> Normal:
    mean, raw = numbers.float().chunk(2, dim=-1)
    return Normal(mean, F.softplus(raw) + LEAST)


def _over_times(values: tuple[Tensor, ...]) -> Tensor:
    return torch.stack(values, dim=1)
