"""Trajectory-decoupled prediction, TDS (`app:tds-spring`, `app:tds-dclean`; the principle of Chen et al. 2026).

A recipient's future is predicted with the code of another trajectory of its system, never with its own:

    z_p  = causal Transformer([e_t, action feature_{t−1}])_last of the donor   (d)
    ŷ_h  = q([z_s, z_p], padded future actions and mask, horizon)              h ∈ {1, 4, 16}

    target = "increments"   y_h = s_{t+h} − s_t, standardised;  z_s = s_t standardised;   L = mean_h ‖ŷ_h − y_h‖²/S
    target = "embedding"    y_h = e_{t+h};                      z_s = MLP(e_t) (64);      L = L_cross + 0.02·SIGReg(e)

Networks are the controlled JEPA's, so that visual TDS with d = 64 differs from it in the loss alone: no self term and
no Align. Both trajectories of a pair are once the recipient. With d = 0 there is no history network.
Increments are standardised by training windows, each horizon and coordinate by itself; there is no regulariser, because
true states cannot collapse. The paper says no more of either than the targets, the terms and d; what is left out of the
original is its operator network, of which the paper keeps the principle alone.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from sprii_envs.arguments import check, choice, instance
from sprii_train.learners.jepa import JEPA, JEPAConfig, target_variance
from sprii_train.learners.scaling import check_fitted
from sprii_train.modules import perceptron
from sprii_train.protocol import Batch, Codes, MissingOperation, Objective, Windows, cross_loss

Target = Literal["increments", "embedding"]
BOTH = Objective(cross_directions="both")
LEAST_SD = 1e-6
"""Of what states are divided by."""


@dataclass(frozen=True)
class TDSConfig(JEPAConfig):
    """Sizes; those of the controlled JEPA, whose `sigreg_…` and `current` are of the target `embedding` alone.

    Attributes:
        persistent: d, the size of the code; 0 too.
        target: what is predicted, true `increments` of states or the recipient's frames by their `embedding`.
    """

    persistent: int = 4
    target: Target = "increments"

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        super().__post_init__()
        check(self, choice, "target", legal=("increments", "embedding"))
        check(self, choice, "context", legal=("split",))
        if self.image and self.target == "increments":
            raise ValueError(f"TDSConfig.target is 'increments' with frames of side {self.image}; legal: image 0")

    @classmethod
    def like(cls, jepa: JEPAConfig, persistent: int, target: Target) -> "TDSConfig":
        """The TDS with the networks of a JEPA."""
        return cls(**asdict(jepa) | {"persistent": persistent, "target": target})


class TDS(JEPA):
    """State-space and visual TDS as a `Learner`."""

    native_of_pairs = True
    without_cross = "predicts with the code of a pair's other window already"

    centre: Tensor
    scale: Tensor
    shift: Tensor
    spread: Tensor

    def __init__(self, config: TDSConfig) -> None:
        super().__init__(instance("config", config, of=TDSConfig))
        self.states = config.target == "increments"
        if not self.states:
            return
        c, (s, k) = config, (config.observation_dim, len(config.horizons))
        inputs = s + c.persistent + c.horizons[-1] * (c.action_dim + 1) + c.horizon_feature
        self.predictor = perceptron(inputs, c.predictor_width, c.predictor_width, s)
        self.current = nn.Identity()
        if not c.persistent:
            self.encoder, self.encoder_norm = nn.Identity(), nn.Identity()
        for name, shape, value in (
            ("centre", (s,), 0.0), ("scale", (s,), 1.0), ("shift", (k, s), 0.0), ("spread", (k, s), 1.0)
        ):  # fmt: skip
            self.register_buffer(name, torch.full(shape, value))

    @property
    def fit_statistics(self) -> Callable[[Windows], None] | None:
        """Takes moments of states, and of increments over each horizon, of training windows; None for embeddings."""
        return self._take_moments if self.states else None

    @torch.no_grad()
    def _take_moments(self, windows: Windows) -> None:
        states = windows.observations.flatten(0, 1)
        increments = windows.future_observations - windows.observations[:, -1:]
        for found, mean, sd in ((states, self.centre, self.scale), (increments, self.shift, self.spread)):
            mean.copy_(found.mean(0))
            sd.copy_(found.std(0, correction=0).clamp_min(LEAST_SD))

    def prepare(self, windows: Windows) -> Batch:
        """Histories embedded, the present, and targets; see the module. ValueError in training without statistics."""
        if not self.states:
            return super().prepare(windows)
        check_fitted(self, (self.centre, self.scale), (self.shift, self.spread))
        observed, future = (windows.observations - self.centre) / self.scale, windows.future_observations
        k = future.shape[1]
        history = observed if self.history is None else self.embed(observed, observed[:, :0])
        y = (future - windows.observations[:, -1:] - self.shift[:k]) / self.spread[:k]
        return Batch((history, windows.actions), observed[:, -1], windows.future_actions, y, windows.labels)

    def present(self, observations: Tensor) -> Tensor:
        """Presents → z_s: of states (B, S) themselves, standardised; of frames as the JEPA's."""
        return (observations - self.centre) / self.scale if self.states else super().present(observations)

    def target(self, observations: Tensor) -> Tensor:
        """Observations → their embeddings (B, embedding).

        Raises:
            MissingOperation: for increments, which are of two observations.
        """
        if self.states:
            raise MissingOperation("TDS of increments has no 'target' of a single observation")
        return super().target(observations)

    def forecast(self, states: Tensor, z_p: Tensor, actions: Tensor) -> Tensor:
        """States (B, S), donors' codes (B, d) and future actions (B, H, A) → states at the horizons (B, K, S).

        Raises:
            MissingOperation: for a TDS of embeddings, which has no decoder.
        """
        if not self.states:
            raise MissingOperation("'forecast' needs a TDS of increments; this one predicts embeddings")
        increments = self.predict(self.present(states), z_p, actions)
        return states[:, None] + increments * self.spread + self.shift

    def native_loss(self, batch: Batch, codes: Codes) -> tuple[Tensor, dict[str, Tensor]]:
        """Prediction with the code of the other half of each pair (+ λ_reg·SIGReg of embeddings)."""
        decoupled = cross_loss(self, batch, codes, BOTH)
        parts = {"decoupled": decoupled, "target_variance": target_variance(batch.y)}
        if self.states:
            return decoupled, parts
        regularizer = self.regularizer(batch)
        return decoupled + self.config.sigreg_weight * regularizer, parts | {"sigreg": regularizer}
