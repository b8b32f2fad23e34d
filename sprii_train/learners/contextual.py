"""Dynamics for control that are linear in what they are told of a system, and the reference that is told all.

    fitted     d̂ = b_0(o, a) + Σ_k c_k · b_k(o, a)    c = ridge on the history's transitions, N(0, I) before them
    encoded    the same d̂                            c = encoder([differences, actions] of the history)
    labelled   d̂ = net([o, a, c])                    c = the system's properties, standardised

The first is trained through its own fit (Harrison et al., "Meta-learning priors for efficient online Bayesian
regression", WAFR 2018): the context of K transitions predicts the M after them, and no label of a system is read. d̂ is
linear in c, and so it is of systems beyond the training ones.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sprii_envs.arguments import check, choice, instance, integer, integers, number
from sprii_train.learners.histories import History, window_history
from sprii_train.protocol import Batch, Codes, Windows, self_loss


@dataclass(frozen=True)
class ContextualConfig:
    """Sizes.

    Attributes:
        observation_dim, action_dim: sizes of the state and action.
        contexts: `fitted`, `encoded` or `labelled`.
        context: size of a context; of labels, their number.
        history: K, transitions that a fitted context is of.
        window: M, transitions that one context predicts.
        hidden, encoder: widths, SiLU and ReLU.
        noise: first SD of the ridge's errors, in SDs of a change; trained.
    """

    observation_dim: int = 3
    action_dim: int = 1
    contexts: Literal["fitted", "encoded", "labelled"] = "fitted"
    context: int = 3
    history: int = 10
    window: int = 10
    hidden: tuple[int, ...] = (64, 64)
    encoder: tuple[int, ...] = (64, 64)
    noise: float = 0.1

    def __post_init__(self) -> None:
        check(self, integer, "observation_dim", "action_dim", "context", "history", "window", least=1)
        check(self, choice, "contexts", legal=("fitted", "encoded", "labelled"))
        check(self, integers, "hidden", "encoder", least=1)
        check(self, number, "noise", above=0)

    @property
    def horizons(self) -> tuple[int, ...]:
        """Every step that one context predicts."""
        return tuple(range(1, self.window + 1))


class Course(NamedTuple):
    """What the M predictions are told beside a context."""

    actions: Tensor  # (B, M, A)
    after: Tensor  # (B, M, S)


class Contextual(nn.Module):
    """The dynamics as a `Learner`, and as a model that a planner steps."""

    observation: Tensor
    action: Tensor
    difference: Tensor

    def __init__(self, config: ContextualConfig, seed: int | None = None) -> None:
        super().__init__()
        self.config = c = instance("config", config, of=ContextualConfig)
        self.linear = c.contexts != "labelled"
        with torch.random.fork_rng(devices=[]):
            if seed is not None:
                torch.manual_seed(integer("seed", seed))
            sizes = [c.observation_dim + c.action_dim + (0 if self.linear else c.context), *c.hidden]
            outputs = c.observation_dim * (1 + c.context if self.linear else 1)
            self.net = _perceptron([*sizes, outputs], nn.SiLU)
            self.encoder = None
            if c.contexts == "encoded":
                read = c.history * (c.observation_dim + c.action_dim)
                self.encoder = _perceptron([read, *c.encoder, c.context], nn.ReLU)
        self.log_noise = nn.Parameter(torch.full((c.observation_dim,), c.noise).log())
        for name, size in (
            ("observation", c.observation_dim), ("action", c.action_dim), ("difference", c.observation_dim),
        ):  # fmt: skip
            self.register_buffer(name, torch.stack([torch.zeros(size), torch.ones(size)]))

    @property
    def history(self) -> int:
        """K, transitions in a history."""
        return self.config.history

    def fit_statistics(self, windows: Windows) -> None:
        """Standardise by the transitions of these windows."""
        course = torch.cat([windows.observations, windows.future_observations], dim=1)
        taken = torch.cat([windows.actions, windows.future_actions], dim=1)
        found = {"observation": course.flatten(0, 1), "action": taken.flatten(0, 1)}
        found |= {"difference": course.diff(dim=1).flatten(0, 1)}
        for name, values in found.items():
            sd = values.double().std(0, correction=0)
            self.get_buffer(name).copy_(torch.stack([values.double().mean(0), torch.where(sd > 1e-6, sd, 1.0)]))

    # The model of a planner

    def context(self, history: History) -> Tensor:
        """Fitted or encoded contexts (B, d); zeros, the training mean, of a labelled model that is not told."""
        if not self.linear:
            return self.log_noise.new_zeros(len(history.filled), self.config.context)
        return self.encode_history(history)

    def step(self, observation: Tensor, action: Tensor, context: Tensor) -> Tensor:
        """The next observation (B, S) from (B, S), (B, A) and contexts (B, d)."""
        mean, sd = self.difference
        return torch.addcmul(observation + mean, self._change(observation, action, context), sd)

    def _change(self, observation: Tensor, action: Tensor, context: Tensor) -> Tensor:
        """Standardised changes (…, S)."""
        x = torch.cat([_scaled(observation, self.observation), _scaled(action, self.action)], dim=-1)
        if not self.linear:
            return self.net(torch.cat([x, context], dim=-1))
        base, features = self._features(x)
        return base + (features @ context[..., None])[..., 0]

    def _features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """b_0 (…, S) and b (…, S, d) of standardised inputs."""
        found = self.net(x).unflatten(-1, (self.config.observation_dim, -1))
        return found[..., 0], found[..., 1:]

    def _ridge(self, history: History) -> Tensor:
        """The contexts' posterior mean (B, d)."""
        seen, taken = _scaled(history.observations, self.observation), _scaled(history.actions, self.action)
        with torch.autocast(seen.device.type, enabled=False):  # a solver has float32 alone
            return self._solved(history, *self._features(torch.cat([seen, taken], dim=-1)))

    def _solved(self, history: History, base: Tensor, features: Tensor) -> Tensor:
        weight = history.mask[..., None] * (-2.0 * self.log_noise).exp()  # (B, K, S)
        error = _scaled(history.differences, self.difference) - base
        weighted = (features * weight[..., None]).flatten(1, 2).mT
        gram = weighted @ features.flatten(1, 2) + torch.eye(self.config.context, device=features.device)
        return torch.linalg.solve_ex(gram, weighted @ error.flatten(1)[..., None])[0][..., 0]

    # The five operations

    def prepare(self, windows: Windows) -> Batch:
        """A window's last K transitions, or its labels, its last observation, and its M next transitions."""
        future, current = windows.future_observations, windows.observations[:, -1]
        if (steps := future.shape[1]) not in (0, self.config.window) or windows.future_actions.shape[1] != steps:
            raise ValueError(
                f"Contextual predicts each of {self.config.window} steps from the end of a window, got {steps} "
                f"observations after {windows.future_actions.shape[1]} actions"
            )
        history = window_history(windows.observations, windows.actions, self.history)
        if not self.linear and windows.labels is None:
            raise ValueError("labelled contexts need labels; legal: a reader with properties")
        source = history if self.linear else windows.labels
        y = _scaled(future - _course(current, future), self.difference)
        return Batch(source, current, Course(windows.future_actions, future), y, windows.labels)

    def encode_history(self, history: History | Tensor) -> Tensor:
        """z_p (B, d)."""
        if isinstance(history, Tensor):
            return history
        if self.encoder is None:
            return self._ridge(history)
        changes = _scaled(history.differences, self.difference) * history.mask[..., None]
        return self.encoder(torch.cat([changes, _scaled(history.actions, self.action)], dim=-1).flatten(1))

    def encode_current(self, current: Tensor) -> Tensor:
        """The last observation, as it is."""
        return current

    def predict(self, z_s: Tensor, z_p: Tensor, u: Course) -> Tensor:
        """Standardised changes (B, M, S) of each step of the true course."""
        contexts = z_p[:, None].expand(-1, u.actions.shape[1], -1)
        return self._change(_course(z_s, u.after), u.actions, contexts)

    def task_loss(self, prediction: Tensor, y: Tensor) -> Tensor:
        """Squared error, mean over steps and coordinates, (B,)."""
        return F.mse_loss(prediction, y, reduction="none").mean((1, 2))

    def native_loss(self, batch: Batch, codes: Codes) -> tuple[Tensor, dict[str, Tensor]]:
        """Mean task loss with the own context."""
        own = self_loss(self, batch, codes)
        return own, {"self": own}


def _perceptron(sizes: list[int], activation: type[nn.Module]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        layers += [nn.Linear(fan_in, fan_out), activation()]
    return nn.Sequential(*layers[:-1])


def _scaled(x: Tensor, by: Tensor) -> Tensor:
    mean, sd = by
    return (x - mean) / sd


def _course(current: Tensor, after: Tensor) -> Tensor:
    """The true observation before each step, (B, M, S)."""
    return torch.cat([current[:, None], after[:, :-1]], dim=1)
