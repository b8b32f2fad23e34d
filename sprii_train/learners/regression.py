"""The supervised split of SpringWorld (`tab:spring-complete`): the controlled JEPA's networks, whose predictor
gives true increments of the state in the place of embeddings.

    ŷ_h = q([z_s, z_p], padded future actions and mask, horizon)        (8), h ∈ {1, 4, 16}
    L   = mean_h ‖ŷ_h − y_h‖²/8,   y_h = s_{t+h} − s_t, standardised for each horizon and coordinate

Codes are of the window itself: no relation is used, and nothing regresses the factors. Frames after the history are not
read; there is no regulariser, because true states cannot collapse.
"""

from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from sprii_envs.arguments import check, choice, instance, integer
from sprii_train.learners.jepa import JEPA, JEPAConfig, target_variance
from sprii_train.learners.scaling import check_fitted
from sprii_train.modules import perceptron
from sprii_train.protocol import Batch, Codes, Windows, self_loss

LEAST_SD = 1e-6
"""Of what increments are divided by."""


@dataclass(frozen=True)
class RegressionConfig(JEPAConfig):
    """Sizes; those of the controlled JEPA.

    Attributes:
        state_dim: coordinates of the state whose increments windows have as labels, see `IncrementReader`.
    """

    state_dim: int = 8

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        super().__post_init__()
        check(self, integer, "state_dim", least=1)
        check(self, choice, "context", legal=("split", "monolithic"))

    @classmethod
    def like(cls, jepa: JEPAConfig) -> "RegressionConfig":
        """The supervised split with the networks of a JEPA."""
        return cls(**asdict(jepa))


class Regression(JEPA):
    """The supervised split as a `Learner`; `target` and `present` are the JEPA's."""

    shift: Tensor
    spread: Tensor

    def __init__(self, config: RegressionConfig) -> None:
        super().__init__(instance("config", config, of=RegressionConfig))
        c, k = config, len(config.horizons)
        context = c.persistent + c.current
        inputs = context + c.horizons[-1] * (c.action_dim + 1) + c.horizon_feature
        self.predictor = perceptron(inputs, c.predictor_width, c.predictor_width, c.state_dim)
        self.register_buffer("shift", torch.zeros(k, c.state_dim))
        self.register_buffer("spread", torch.ones(k, c.state_dim))

    @torch.no_grad()
    def fit_statistics(self, windows: Windows) -> None:
        """Take mean and SD of the increments of training windows over each horizon."""
        increments = self._increments(windows)
        self.shift.copy_(increments.mean(0))
        self.spread.copy_(increments.std(0, correction=0).clamp_min(LEAST_SD))

    def prepare(self, windows: Windows) -> Batch:
        """Histories embedded, targets standardised; a window without labels has no targets.

        Raises:
            ValueError: in training without statistics, or for labels that are no increments at the horizons.
        """
        check_fitted(self, (self.shift, self.spread))
        history = self.embed(windows.observations, windows.future_observations[:, :0])
        y = history.new_empty(len(history), 0, self.config.state_dim)
        if windows.labels is not None:
            y = (self._increments(windows) - self.shift) / self.spread
        return Batch((history, windows.actions), history[:, -1], windows.future_actions, y, windows.labels)

    def _increments(self, windows: Windows) -> Tensor:
        k, s = self.spread.shape
        if windows.labels is None or windows.labels.shape[1:] != (k * s,):
            found = None if windows.labels is None else tuple(windows.labels.shape[1:])
            raise ValueError(
                f"windows have labels {found}; legal: increments of {s} coordinates at {k} horizons, ({k * s},)"
            )
        return windows.labels.unflatten(1, (k, s))

    def native_loss(self, batch: Batch, codes: Codes) -> tuple[Tensor, dict[str, Tensor]]:
        """Squared error of the increments by a window's own codes."""
        own = self_loss(self, batch, codes)
        return own, {"self": own, "target_variance": target_variance(batch.y)}
