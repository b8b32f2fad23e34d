"""Dynamics with a context pooled over the transitions that a running episode has seen, each weighed by itself.

    μ_i, λ_i = encoder([o_i, a_i, o_{i+1} − o_i])        a transition's vote, and how much it knows (softplus)
    z_p      = Σ_i λ_i·μ_i / (1 + Σ_i λ_i)               a product of Gaussians around a prior of mean 0 and precision 1
    d̂_t      = dynamics([o_t, a_t, z_p])                 the change o_{t+1} − o_t, a perceptron and a linear part
    L        = MSE(d̂) over the next M transitions, each from its true observation

The pooling is that of PEARL's encoder (Rakelly et al., ICML 2019): it does not ask in which order transitions came or
how many there are, so one context serves an episode's first step and its last, and the few steps with a contact are not
drowned. In training a random number of a window's last transitions is kept, 0 included. All inputs and changes are
standardised by training statistics. With `context="supervised"` z_p is the true, standardised labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sprii_envs.arguments import check, choice, instance, integer, integers
from sprii_train.learners.histories import History, window_history
from sprii_train.learners.jepa import Context
from sprii_train.protocol import Batch, Codes, Windows, self_loss


@dataclass(frozen=True)
class PooledConfig:
    """Sizes of the pooled dynamics.

    Attributes:
        observation_dim, action_dim: of the state and action.
        history: K, transitions that a context is pooled over at most.
        window: M, transitions that one context predicts.
        persistent: size of z_p.
        encoder, dynamics: hidden widths, SiLU.
        context: `split`, or `supervised`: the labels are the context.
        label_dim: number of labels (context `supervised` only).
    """

    observation_dim: int = 8
    action_dim: int = 2
    history: int = 32
    window: int = 10
    persistent: int = 6
    encoder: tuple[int, ...] = (64, 64)
    dynamics: tuple[int, ...] = (200, 200, 200)
    context: Context = "split"
    label_dim: int = 0

    @property
    def horizons(self) -> tuple[int, ...]:
        """Every step that one context predicts."""
        return tuple(range(1, self.window + 1))

    def __post_init__(self) -> None:
        check(self, integer, "observation_dim", "action_dim", "history", "window", "persistent", least=1)
        check(self, integers, "encoder", "dynamics", least=1)
        check(self, choice, "context", legal=[each for each in get_args(Context) if each != "monolithic"])
        check(self, integer, "label_dim", least=int(self.context == "supervised"))


class PooledDynamics(nn.Module):
    """The dynamics as a `Learner`, and as a model that a planner steps."""

    observation: Tensor
    action: Tensor
    difference: Tensor
    label: Tensor

    def __init__(self, config: PooledConfig) -> None:
        super().__init__()
        self.config = c = instance("config", config, of=PooledConfig)
        seen, told = c.observation_dim, c.context == "supervised"
        size = c.label_dim if told else c.persistent
        self.encoder = None if told else _perceptron((2 * seen + c.action_dim, *c.encoder, 2 * size))
        inputs = seen + c.action_dim + size
        self.dynamics, self.direct = _perceptron((inputs, *c.dynamics, seen)), nn.Linear(inputs, seen)
        sizes = {"observation": seen, "action": c.action_dim, "difference": seen, "label": c.label_dim}
        for name, width in sizes.items():
            self.register_buffer(name, torch.stack([torch.zeros(width), torch.ones(width)]))

    @property
    def history(self) -> int:
        """K, transitions in a history."""
        return self.config.history

    def fit_statistics(self, windows: Windows) -> None:
        """Standardise by the transitions of these windows, and by their labels."""
        course = torch.cat([windows.observations, windows.future_observations], dim=1)
        found = {"observation": course.flatten(0, 1), "difference": course.diff(dim=1).flatten(0, 1)}
        found["action"] = torch.cat([windows.actions, windows.future_actions], dim=1).flatten(0, 1)
        if self.config.label_dim and windows.labels is not None:
            found["label"] = windows.labels
        for name, values in found.items():
            sd = values.double().std(0, correction=0)
            scale = torch.where(sd > 1e-6, sd, 1.0)
            self.get_buffer(name).copy_(torch.stack([values.double().mean(0), scale]))

    # The model of a planner

    def context(self, history: History) -> Tensor:
        """Running histories → contexts (B, persistent); of an empty one it is 0.

        Raises:
            ValueError: for a supervised context, which no history tells.
        """
        if self.encoder is None:
            raise ValueError("a supervised context is told, not inferred; legal: told(labels)")
        seen, action = _scaled(history.observations, self.observation), _scaled(history.actions, self.action)
        inputs = torch.cat([seen, action, _scaled(history.differences, self.difference)], dim=-1)
        vote, weight = self.encoder(inputs).chunk(2, dim=-1)
        weight = F.softplus(weight) * history.mask[..., None]
        return (weight * vote).sum(1) / (1.0 + weight.sum(1))

    def told(self, labels: Tensor) -> Tensor:
        """Labels (B, label_dim) as they come → the contexts of the supervised learner."""
        return _scaled(labels, self.label)

    def step(self, observation: Tensor, action: Tensor, context: Tensor) -> Tensor:
        """The next observation (B, S) from (B, S), (B, A) and contexts (B, persistent)."""
        mean, sd = self.difference
        return torch.addcmul(observation + mean, self._change(observation, action, context), sd)

    # The five operations

    def prepare(self, windows: Windows) -> Batch:
        """A window's last K transitions, fewer in training, its last observation, and its next M transitions.

        Raises:
            ValueError: unless the windows have the observations at each of the next M steps, or none at all, and labels
                where the context is supervised.
        """
        m, future = self.config.window, windows.future_observations
        steps = future.shape[1]
        if steps not in (0, m) or windows.future_actions.shape[1] != steps:
            raise ValueError(
                f"the pooled dynamics predict each of {m} steps: they need horizons 1 to {m}, got {steps} observations "
                f"after {windows.future_actions.shape[1]} actions"
            )
        current = windows.observations[:, -1]
        if self.encoder is None:
            if windows.labels is None:
                raise ValueError("the supervised context needs labels in its windows")
            history: History | Tensor = windows.labels
        else:
            history = window_history(windows.observations, windows.actions, self.history)
            history = shortened(history) if self.training else history
        y = _scaled(future - _course(current, future), self.difference)
        return Batch(history, current, (windows.future_actions, future), y, windows.labels)

    def encode_history(self, history: History | Tensor) -> Tensor:
        """Histories, or labels, → z_p (B, d)."""
        return self.context(history) if isinstance(history, History) else self.told(history)

    def encode_current(self, current: Tensor) -> Tensor:
        """The last observation (B, S), as it is."""
        return current

    def predict(self, z_s: Tensor, z_p: Tensor, u: tuple[Tensor, Tensor]) -> Tensor:
        """Standardised changes (B, M, S) of each step of the true course, u its actions and observations after them."""
        actions, after = u
        return self._change(_course(z_s, after), actions, z_p[:, None].expand(-1, actions.shape[1], -1))

    def horizon_losses(self, prediction: Tensor, y: Tensor) -> Tensor:
        """Squared error (B, M) of the standardised change at each step of the true course, float32."""
        return (prediction - y).float().square().mean(2)

    def present(self, observations: Tensor) -> Tensor:
        """Observations (B, S) → standardised ones."""
        return _scaled(observations, self.observation)

    def task_loss(self, prediction: Tensor, y: Tensor) -> Tensor:
        """Mean over steps and coordinates, (B,)."""
        return self.horizon_losses(prediction, y).mean(1)

    def native_loss(self, batch: Batch, codes: Codes) -> tuple[Tensor, dict[str, Tensor]]:
        """Mean task loss with the own context."""
        own = self_loss(self, batch, codes)
        return own, {"self": own}

    def _change(self, observation: Tensor, action: Tensor, context: Tensor) -> Tensor:
        x = torch.cat([_scaled(observation, self.observation), _scaled(action, self.action), context], dim=-1)
        return self.dynamics(x) + self.direct(x)


def shortened(history: History) -> History:
    """A random number of each history's last transitions, 0 to all of them, in its first slots."""
    slots, filled = history.actions.shape[1], history.filled
    kept = (torch.rand(len(filled), device=filled.device) * (filled + 1)).long()
    at = torch.arange(slots, device=filled.device) + (filled - kept)[:, None]
    mask = torch.arange(slots, device=filled.device) < kept[:, None]

    def moved(values: Tensor) -> Tensor:
        index = at.clamp(max=slots - 1)[..., None].expand(-1, -1, values.shape[2])
        return values.gather(1, index) * mask[..., None]

    return History(moved(history.observations), moved(history.actions), moved(history.after), kept)


def _perceptron(sizes: Sequence[int]) -> nn.Sequential:
    layers = [layer for pair in pairwise(sizes) for layer in (nn.Linear(*pair), nn.SiLU())]
    return nn.Sequential(*layers[:-1])


def _course(first: Tensor, after: Tensor) -> Tensor:
    """Observations before each step (B, M, S) of those after it."""
    return torch.cat([first[:, None], after[:, :-1]], dim=1)[:, : after.shape[1]]


def _scaled(x: Tensor, by: Tensor) -> Tensor:
    mean, sd = by
    return (x - mean) / sd
