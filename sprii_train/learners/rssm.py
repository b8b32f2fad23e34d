"""Recurrent state-space model of windows of states or frames (`tab:spring-complete`; Hafner et al. 2019); the state of
the present has a deterministic part h and a stochastic part s.

    e, z_p, z_s    of the controlled JEPA; z_s = MLP(e_t) is of the present alone
    h_t = tanh(Linear(z_s))         h_{τ+1} = GRUCell(GELU(Linear([s_τ, u_τ, z_p])), h_τ)
    prior      p(s_τ | h_τ, z_p) = N(MLP([h_τ, z_p]))      posterior  q(s_τ | h_τ, e_τ) = N(MLP([h_τ, e_τ]))
    decoder    f̂_τ = MLP([z_p, h_τ, s_τ])                  f_τ standardised observation, τ = t + h
    L_base = mean_h ‖f̂ − f‖²/F of the prior's rollout, of the posterior's reconstruction, + 0.01·KL(q ‖ p)

Windows show the future at the horizons alone. There the filter reads a posterior, between them its s are of the prior,
and all three terms are means over the horizons. The rollout never reads a posterior. SDs are softplus + 0.1. The KL of
a horizon is balanced (0.8 of it trains the prior, 0.2 the posterior), neither part below 1 nat. In training s is drawn,
the noise of a batch's rollouts once, so that Self and Cross meet the same; in evaluation s is the mean. Ranks of a
process group draw alike, each for its own rows.

Decoded are states by z-score, and frames as averages over areas, 32 × 32, less their mean over training windows and in
units of one SD for all pixels, so that the mean frame scores 1. True targets cannot collapse: there is no SIGReg.

The paper prints its sizes and losses for CoPhy alone (`learners.object_rssm`), and of SpringWorld no more than the row.
Ours are by analogy: the losses, h 128, s 32 and hidden layers of the former, stem, history encoder and codes of the
JEPA that it is compared with. The start of h, the filter between horizons and what is decoded of frames are our choice;
the original filters and decodes every frame of a sequence.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sprii_envs.arguments import check, choice, instance, integer, number
from sprii_train.devices import demand
from sprii_train.learners.jepa import JEPA, JEPAConfig
from sprii_train.learners.object_rssm import FLOOR, LEAST, Normal, State, balanced_divergence
from sprii_train.modules import perceptron
from sprii_train.protocol import Batch, Codes, Windows, self_loss


class Future(NamedTuple):
    """What a rollout is told besides codes."""

    actions: Tensor  # (B, H, A)
    noise: Tensor  # (B, 1 + H, latent)


class Targets(NamedTuple):
    """What is predicted, and what posteriors read."""

    features: Tensor  # (B, K, F), standardised
    x: Tensor  # (B, K, embedding)


@dataclass(frozen=True)
class RSSMConfig(JEPAConfig):
    """Sizes; those of the controlled JEPA, whose predictor and `sigreg_…` it does without.

    Attributes:
        state: of h, and hidden width of prior and posterior.
        latent: of s.
        decoder: hidden width of the decoder.
        side: of the frames that are decoded, at most their own.
        kl_weight: of the KL divergence.
        kl_balance: share of it that trains the prior.
        free_nats: below which it trains nothing, at a horizon.
    """

    state: int = 128
    latent: int = 32
    decoder: int = 256
    side: int = 32
    kl_weight: float = 0.01
    kl_balance: float = 0.8
    free_nats: float = 1.0

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        super().__post_init__()
        check(self, choice, "context", legal=("split",))
        check(self, integer, "state", "latent", "decoder", "side", least=1)
        check(self, number, "kl_weight", "free_nats", least=0)
        check(self, number, "kl_balance", least=0, most=1)
        if self.image > self.side and self.image % self.side:
            raise ValueError(f"RSSMConfig.side is {self.side}; legal: a divisor of the frames' side {self.image}")

    @property
    def decoded(self) -> int:
        """F, the numbers that are decoded of an observation."""
        return min(self.side, self.image) ** 2 if self.image else self.observation_dim

    @classmethod
    def like(cls, jepa: JEPAConfig) -> "RSSMConfig":
        """The RSSM with the stem, history encoder and codes of a JEPA."""
        return cls(**asdict(jepa))


class Chain(NamedTuple):
    """States at the horizons (B, K, …), and the distributions that their s are of: priors, and posteriors if read."""

    states: State
    prior: Normal
    found: Normal


class Dynamics(nn.Module):
    """Start, transition, prior, posterior and decoder of states."""

    def __init__(self, c: RSSMConfig) -> None:
        super().__init__()
        self.start, self.cell = nn.Linear(c.current, c.state), nn.GRUCell(c.state, c.state)
        self.mix = nn.Linear(c.latent + c.action_dim + c.persistent, c.state)
        self.prior = perceptron(c.state + c.persistent, c.state, 2 * c.latent)
        self.posterior = perceptron(c.state + c.embedding, c.state, 2 * c.latent)
        self.decoder = perceptron(c.persistent + c.state + c.latent, c.decoder, c.decoded)

    def forward(self, z_s: Tensor, z_p: Tensor, u: Future, at: Sequence[int], x: Tensor | None = None) -> Chain:
        """States after `at` steps; given x (B, K, embedding) of these, filtered by posteriors that read it."""
        h, seen, kept = torch.tanh(self.start(z_s)), dict(zip(at, () if x is None else x.unbind(1), strict=False)), []
        for step, noise in enumerate(u.noise.unbind(1)):
            prior = _normal(self.prior(_joined(h, z_p)))
            found = _normal(self.posterior(_joined(h, seen[step]))) if step in seen else prior
            s = found.mean + found.sd * noise
            if step in at:
                kept.append((h, s, *prior, *found))
            if step < u.actions.shape[1]:
                mixed = F.gelu(self.mix(_joined(s, u.actions[:, step], z_p)))
                h = self.cell(mixed, h.to(mixed.dtype))
        h, s, *moments = (torch.stack(values, dim=1) for values in zip(*kept, strict=True))
        return Chain(State(h, s), Normal(*moments[:2]), Normal(*moments[2:]))

    def decode(self, states: State, z_p: Tensor) -> Tensor:
        """States (B, K, …) and contexts (B, d_p) → standardised observations (B, K, F)."""
        return self.decoder(_joined(z_p[:, None].expand(-1, states.h.shape[1], -1), *states))


class RSSM(JEPA):
    """The learner."""

    mean: Tensor
    sd: Tensor
    fitted: Tensor
    target: Any = None  # pyright: ignore[reportIncompatibleMethodOverride]  (no embedding is predicted)

    def __init__(self, config: RSSMConfig) -> None:
        super().__init__(instance("config", config, of=RSSMConfig))
        del self.horizon  # the rollout reads actions one by one
        self.predictor = Dynamics(config)
        self.register_buffer("mean", torch.zeros(config.decoded))
        self.register_buffer("sd", torch.ones(config.decoded))
        self.register_buffer("fitted", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def fit_statistics(self, windows: Windows) -> None:
        """Take what observations are standardised by, of training windows; of frames, the targets' alone."""
        seen = self.observations(windows.future_observations)
        if not self.config.image:
            seen = torch.cat([windows.observations.float(), seen], dim=1)
        variance, mean = torch.var_mean(seen.flatten(0, 1).double(), dim=0, correction=0)
        self.mean.copy_(mean)
        self.sd.copy_((variance.mean() if self.config.image else variance).sqrt().clamp_min(FLOOR))
        self.fitted.fill_(1)

    # The operations

    def prepare(self, windows: Windows) -> Batch:
        """Embed everything once; ValueError in training without statistics."""
        if self.training:
            why = "observations are not standardised yet; legal: to call fit_statistics before training"
            demand(self.fitted > 0, "statistics", lambda: why)
        batch = super().prepare(windows)
        features = (self.observations(windows.future_observations) - self.mean) / self.sd
        return batch._replace(u=Future(batch.u, self.noise(batch.u)), y=Targets(features, batch.y))

    def predict(self, z_s: Tensor, z_p: Tensor, u: Any) -> Tensor:
        """Codes and `Future` → standardised observations of the prior's rollout at the horizons (B, K, F)."""
        return self.predictor.decode(self.predictor(z_s, z_p, u, self.config.horizons).states, z_p)

    def horizon_losses(self, prediction: Tensor, y: Any) -> Tensor:
        """Mean squared error of `Targets.features` at each horizon, (B, K), float32."""
        return (prediction.float() - y.features).square().mean(-1)

    def task_loss(self, prediction: Tensor, y: Any) -> Tensor:
        """Mean over horizons, (B,)."""
        return self.horizon_losses(prediction, y).mean(-1)

    def present(self, observations: Tensor) -> Tensor:
        """Presents, as the JEPA takes them → their embeddings (B, embedding)."""
        return super().target(observations)

    def native_loss(self, batch: Batch, codes: Codes) -> tuple[Tensor, dict[str, Tensor]]:
        """Prior rollout + posterior reconstruction + weighted KL; parts also have KL in nats and the share below."""
        c, y, own = self.config, batch.y, self_loss(self, batch, codes)
        u = Future(batch.u.actions, self.noise(batch.u.actions))
        chain = self.predictor(codes.z_s, codes.z_p, u, c.horizons, y.x)
        reconstruction = self.task_loss(self.predictor.decode(chain.states, codes.z_p), y).mean()
        minimised, nats = balanced_divergence(chain.found, chain.prior, balance=c.kl_balance, free=c.free_nats)
        parts = {"self": own, "reconstruction": reconstruction, "kl": nats.mean()}
        parts["free_nats"] = (nats < c.free_nats).float().mean()
        return own + reconstruction + c.kl_weight * minimised.mean(), parts

    # Parts

    def observations(self, future: Tensor) -> Tensor:
        """What is decoded of `Windows.future_observations`, (B, K, F) float32: states, or frames in [0, 1]."""
        if not self.config.image:
            return future.float()
        side = min(self.config.side, self.config.image)
        tiles = future[:, :, 1].float().div(255).unflatten(-1, (side, -1)).unflatten(-3, (side, -1))
        return tiles.mean((-3, -1)).flatten(-2)

    def noise(self, actions: Tensor) -> Tensor:
        """(B, 1 + H, latent) for actions (B, H, A): standard normal in training, else zeros."""
        size, device = (len(actions), 1 + actions.shape[1], self.config.latent), actions.device
        return torch.randn(size, device=device) if self.training else torch.zeros(size, device=device)


def _joined(*parts: Tensor) -> Tensor:
    return torch.cat([part.to(parts[0].dtype) for part in parts], dim=-1)


def _normal(numbers: Tensor) -> Normal:
    mean, raw = numbers.float().chunk(2, dim=-1)
    return Normal(mean, F.softplus(raw) + LEAST)
