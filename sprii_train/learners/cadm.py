"""CaDM, context-aware dynamics (Lee et al., ICML 2020; the control interface of `app:pendulum-profile`).

    c    = encoder([differences, actions] of the last K transitions)          (10)
    d̂_t  = forward([o_t, a_t, c])        the change o_{t+1} − o_t
    b̂_t  = backward([o_{t+1}, a_t, c])   the change o_t − o_{t+1}
    L    = MSE(d̂) + 0.5·MSE(b̂) + Σ_layers decay/2·‖W‖²

The context of time t serves the one-step predictions of t … t + M − 1, each from the true state: nothing is unrolled in
training. Observations, actions and changes are standardised by training statistics; the history's differences are not,
as published, or slot by slot with `scaled_history`, as offline on D-Clean (`app:dclean-official`).

Members of an ensemble stand side by side, and forward beside backward models: one batched product a layer. The loss is
the sum over members, `step` their mean. Heads are deterministic.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sprii_envs.arguments import check, flag, instance, integer, integers, number, numbers
from sprii_envs.standardiser import constant
from sprii_train.learners.histories import History, window_history
from sprii_train.learners.products import BLOCK, fused_layer, fusible
from sprii_train.learners.scaling import check_fitted
from sprii_train.protocol import Batch, Codes, Windows, self_loss


@dataclass(frozen=True)
class CaDMConfig:
    """Sizes of CaDM; the defaults are the published ones for Pendulum.

    Attributes:
        observation_dim, action_dim: sizes of the state and action.
        history: K, transitions in a history.
        window: M, transitions that one context predicts.
        context: size of a member's context.
        encoder, dynamics: hidden widths, ReLU and SiLU.
        backward_weight: of the backward models' error.
        encoder_decay, dynamics_decay: L2 of the weights of each layer, output last; biases have none.
        members: of the ensemble, each with networks of its own.
        scaled_history: whether a history's differences are standardised slot by slot too, by `fit_statistics`.
        sd_floor: a coordinate whose training SD is at most this is centred and not scaled.
    """

    observation_dim: int = 3
    action_dim: int = 1
    history: int = 10
    window: int = 10
    context: int = 10
    encoder: tuple[int, ...] = (256, 128, 64)
    dynamics: tuple[int, ...] = (200, 200, 200, 200)
    backward_weight: float = 0.5
    encoder_decay: tuple[float, ...] = (2.5e-5, 5e-5, 7.5e-5, 7.5e-5)
    dynamics_decay: tuple[float, ...] = (2.5e-5, 5e-5, 7.5e-5, 7.5e-5, 1e-4)
    members: int = 1
    scaled_history: bool = False
    sd_floor: float = 1e-6

    @property
    def horizons(self) -> tuple[int, ...]:
        """Every step that one context predicts."""
        return tuple(range(1, self.window + 1))

    def __post_init__(self) -> None:
        check(self, integer, "observation_dim", "action_dim", "history", "window", "context", "members", least=1)
        check(self, number, "backward_weight", "sd_floor", least=0)
        check(self, flag, "scaled_history")
        check(self, integers, "encoder", "dynamics", least=1)
        check(self, numbers, "encoder_decay", "dynamics_decay", least=0)
        for name in ("encoder", "dynamics"):
            layers, decay = len(getattr(self, name)) + 1, getattr(self, f"{name}_decay")
            if len(decay) != layers:
                raise ValueError(
                    f"CaDMConfig.{name}_decay is {decay!r}; legal: a finite number >= 0 for each of the {layers} layers"
                )


class Statistics(NamedTuple):
    """Training mean and SD of what CaDM standardises, float64.

    Attributes:
        observation, action, difference: (2, S), (2, A), (2, S): mean, then SD, of transitions.
        slots: (2, K, A), of the actions in each slot of a history, empty slots counted as zeros.
    """

    observation: Tensor
    action: Tensor
    difference: Tensor
    slots: Tensor


def statistics(
    observations: Tensor, actions: Tensor, differences: Tensor, slots: Tensor, floor: float = 0.0
) -> Statistics:
    """Mean and population SD in float64; an SD of at most `floor`, or of equal values, becomes 1 (`Standardiser`).

    Args:
        observations, actions, differences: (N, S), (N, A), (N, S) of transitions.
        slots: (W, K, A) actions in the slots of histories.

    Raises:
        ValueError: for no transition or history, or values that are not finite.
    """
    found = []
    for name, values in zip(Statistics._fields, (observations, actions, differences, slots), strict=True):
        if not len(values) or not torch.isfinite(values).all():
            raise ValueError(f"statistics: {name} has {len(values)} rows; legal: at least one, and all finite")
        values = values.double()
        sd, still = values.std(0, correction=0), torch.from_numpy(constant(values.cpu().numpy())).to(values.device)
        found.append(torch.stack([values.mean(0), torch.where(still | (sd <= floor), 1.0, sd)]))
    return Statistics(*found)


class Networks(nn.Module):
    """`count` multilayer perceptrons side by side: (count, B, in) → (count, B, out).

    Weights are drawn as published, from a normal of SD 1/(2·√fan-in) cut at two SDs; biases are zero.
    """

    def __init__(
        self,
        count: int,
        sizes: Sequence[int],
        activation: Callable[[Tensor], Tensor],
        generator: torch.Generator | None,
    ) -> None:
        super().__init__()
        self.activation = activation
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for fan_in, fan_out in pairwise(sizes):
            sd = 0.5 * fan_in**-0.5
            weight = torch.empty(count, fan_in, fan_out)
            nn.init.trunc_normal_(weight, std=sd, a=-2 * sd, b=2 * sd, generator=generator)
            self.weights.append(nn.Parameter(weight))
            self.biases.append(nn.Parameter(torch.zeros(count, 1, fan_out)))

    def forward(self, x: Tensor) -> Tensor:
        """All networks, or the first ones where x has fewer."""
        last, some = len(self.weights) - 1, len(x) < len(self.weights[0])
        if fusible(x):
            return torch.stack([self._fused(each, network) for network, each in enumerate(x)])
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            if some:  # never in training, where the gradient of a slice would be a copy
                weight, bias = weight[: len(x)], bias[: len(x)]
            x = torch.baddbmm(bias, x, weight)
            if layer < last:
                x = self.activation(x)
        return x

    def _fused(self, x: Tensor, network: int) -> Tensor:
        """One network without gradients: (B, in) → (B, out)."""
        *hidden, last = zip(self.weights, self.biases, strict=True)
        for weight, bias in hidden:
            x = fused_layer(x, weight[network], bias[network, 0], _FUSED[self.activation])
        return fused_layer(x, last[0][network], last[1][network, 0])


_FUSED: dict[Any, str] = {F.relu: "relu", F.silu: "swish"}


class Conditioning(NamedTuple):
    """What a recipient's M predictions are told beside codes: the true course, from which each of them starts."""

    actions: Tensor  # (B, M, A)
    after: Tensor  # (B, M, S), the observation after each action


class CaDM(nn.Module):
    """CaDM as a `Learner`, and as a model that a planner steps.

    Args:
        seed: of the weights; None draws them from torch's own generator, as other learners do.
    """

    observation: Tensor
    action: Tensor
    difference: Tensor
    slots: Tensor

    def __init__(self, config: CaDMConfig, seed: int | None = None) -> None:
        super().__init__()
        self.config = c = instance("config", config, of=CaDMConfig)
        generator = None if seed is None else torch.Generator().manual_seed(integer("seed", seed))
        self.encoder = Networks(
            c.members, (c.history * (c.observation_dim + c.action_dim), *c.encoder, c.context), F.relu, generator
        )
        # The forward models of all members, then their backward models.
        inputs = c.observation_dim + c.action_dim + c.context
        self.dynamics = Networks(2 * c.members, (inputs, *c.dynamics, c.observation_dim), F.silu, generator)
        for name, shape in (
            ("observation", (c.observation_dim,)),
            ("action", (c.action_dim,)),
            ("difference", (c.observation_dim,)),
            ("slots", (c.history, c.action_dim)),
            *([("past", (c.history, c.observation_dim))] if c.scaled_history else []),
        ):
            self.register_buffer(name, torch.stack([torch.zeros(shape), torch.ones(shape)]))

    @property
    def history(self) -> int:
        """K, transitions in a history."""
        return self.config.history

    @property
    def rows(self) -> int | None:
        """Rows that a planner had best unroll at once; None is the planner's own choice."""
        with torch.no_grad():
            return BLOCK if fusible(self.observation) else None

    def standardise_by(self, found: Statistics) -> None:
        """Replace the statistics in the buffers `observation`, `action`, `difference` and `slots`."""
        for name, value in found._asdict().items():
            self.get_buffer(name).copy_(value)

    def fit_statistics(self, windows: Windows) -> None:
        """Standardise by the transitions and histories of these windows, which go on for M steps: offline training."""
        course = torch.cat([windows.observations, windows.future_observations], dim=1)
        actions = torch.cat([windows.actions, windows.future_actions], dim=1)
        history, floor = window_history(windows.observations, windows.actions, self.history), self.config.sd_floor
        before, taken, change = (each.flatten(0, 1) for each in (course[:, :-1], actions, course.diff(dim=1)))
        self.standardise_by(statistics(before, taken, change, history.actions, floor))
        if self.config.scaled_history:
            self.get_buffer("past").copy_(statistics(before, taken, change, history.differences, floor).slots)

    # Standardised arrays, as training keeps them, to losses

    def history_inputs(self, history: History) -> Tensor:
        """Histories → what the encoder reads, (B, K·(S + A)): all differences, then all standardised actions."""
        differences = history.differences
        if self.config.scaled_history:
            differences = _scaled(differences, self.get_buffer("past"))
        return torch.cat([differences.flatten(1), _scaled(history.actions, self.slots).flatten(1)], dim=1)

    def transition_inputs(self, before: Tensor, action: Tensor, after: Tensor) -> Tensor:
        """Transitions (…, S), (…, A), (…, S) → (2, …, S + A): what forward and backward models read of them."""
        states = _scaled(torch.stack([before, after]), self.observation)
        actions = _scaled(action, self.action).expand(2, *action.shape)
        return torch.cat([states, actions], dim=-1)

    def targets(self, before: Tensor, after: Tensor) -> Tensor:
        """The standardised forward changes (…, S). Backward ones, by their own mean −μ and SD σ, are minus these."""
        return _scaled(after - before, self.difference)

    def encode(self, inputs: Tensor) -> Tensor:
        """`history_inputs` (B, ·), or (members, B, ·) of a batch for each member → contexts (members, B, context)."""
        return self.encoder(inputs.expand(self.config.members, *inputs.shape[-2:]))

    def predictions(self, inputs: Tensor, contexts: Tensor) -> Tensor:
        """Standardised changes (2, members, B, S), forward and backward, under contexts (members, B, context).

        Args:
            inputs: `transition_inputs`, (2, B, ·), or (2, members, B, ·) of a batch for each member.
        """
        if inputs.dim() == 3:
            inputs = inputs[:, None].expand(2, *contexts.shape[:2], -1)
        x = torch.cat([inputs, contexts.expand(2, *contexts.shape)], dim=-1)
        return self.dynamics(x.flatten(0, 1)).unflatten(0, x.shape[:2])

    def l2(self) -> Tensor:
        """Σ over layers, and members, of decay/2·‖W‖²."""
        return torch.stack([0.5 * decay * weight.square().sum() for weight, decay in self.decays()]).sum()

    def decays(self) -> list[tuple[nn.Parameter, float]]:
        """Every weight that has an L2 decay, and the decay."""
        c = self.config
        return [
            *zip(self.encoder.weights, c.encoder_decay, strict=True),
            *zip(self.dynamics.weights, c.dynamics_decay, strict=True),
        ]

    # The model of a planner

    def context(self, history: History) -> Tensor:
        """Running histories → contexts (B, members·context); differentiable, so plan under `torch.inference_mode`."""
        return self.encode(self.history_inputs(history)).transpose(0, 1).flatten(1)

    def step(self, observation: Tensor, action: Tensor, context: Tensor) -> Tensor:
        """The next observation (B, S), mean over members, from (B, S), (B, A) and contexts (B, members·context)."""
        contexts = self._by_member(context)
        x = torch.cat([_scaled(observation, self.observation), _scaled(action, self.action)], dim=-1)
        change = self.dynamics(torch.cat([x.expand(len(contexts), *x.shape), contexts], dim=-1)).mean(0)
        mean, sd = self.difference
        return torch.addcmul(observation + mean, change, sd)

    # The five operations

    def prepare(self, windows: Windows) -> Batch:
        """A window's last K transitions, its last observation, and its M next transitions.

        Raises:
            ValueError: unless the windows have the observations at each of the next M steps, or none at all, or in
                training without statistics.
        """
        m, future = self.config.window, windows.future_observations
        steps = future.shape[1]
        if steps not in (0, m) or windows.future_actions.shape[1] != steps:
            raise ValueError(
                f"CaDM predicts each of {m} steps from the end of a window: it needs horizons 1 to {m}, "
                f"got {future.shape[1]} observations after {windows.future_actions.shape[1]} actions"
            )
        check_fitted(self, self.observation, self.action, self.difference)
        current = windows.observations[:, -1]
        history = window_history(windows.observations, windows.actions, self.history)
        y = self.targets(_course(current, future), future)
        return Batch(history, current, Conditioning(windows.future_actions, future), y, windows.labels)

    def encode_history(self, history: History) -> Tensor:
        """Histories → z_p (B, members·context)."""
        return self.context(history)

    def encode_current(self, current: Tensor) -> Tensor:
        """The last observation (B, S), as it is."""
        return current

    def predict(self, z_s: Tensor, z_p: Tensor, u: Conditioning) -> Tensor:
        """Standardised changes (B, M, 2, members, S), forward and backward, of each step of the true course."""
        inputs = self.transition_inputs(_course(z_s, u.after), u.actions, u.after)
        contexts = self._by_member(z_p)[:, :, None].expand(-1, -1, inputs.shape[2], -1)
        rows = self.predictions(inputs.flatten(1, 2), contexts.flatten(1, 2))
        return rows.permute(2, 0, 1, 3).unflatten(0, inputs.shape[1:3])

    def horizon_losses(self, prediction: Tensor, y: Tensor) -> Tensor:
        """Forward squared error (B, M) of the change at each step of the true course, mean over members, float32."""
        return (prediction[:, :, 0] - y[:, :, None]).float().square().mean((2, 3))

    def present(self, observations: Tensor) -> Tensor:
        """Observations (B, S) → standardised ones."""
        return _scaled(observations, self.observation)

    def task_loss(self, prediction: Tensor, y: Tensor) -> Tensor:
        """Forward plus weighted backward squared error, mean over steps and coordinates, sum over members, (B,)."""
        signed = torch.stack([y, -y], dim=2)[:, :, :, None]
        forward, backward = (prediction - signed).square().mean((1, 4)).sum(2).unbind(1)
        return forward + self.config.backward_weight * backward

    def native_loss(self, batch: Batch, codes: Codes) -> tuple[Tensor, dict[str, Tensor]]:
        """Mean task loss with the own context, plus L2."""
        own, penalty = self_loss(self, batch, codes), self.l2()
        return own + penalty, {"self": own, "l2": penalty}

    def _by_member(self, context: Tensor) -> Tensor:
        return context.unflatten(1, (self.config.members, -1)).transpose(0, 1)


def _scaled(x: Tensor, by: Tensor) -> Tensor:
    mean, sd = by
    return (x - mean) / sd


def _course(current: Tensor, after: Tensor) -> Tensor:
    """The true observation before each step, (B, M, S)."""
    return torch.cat([current[:, None], after[:, :-1]], dim=1)
