"""Planning with a recurrent model over (observation, action): its hidden state is the context.

    h_{t+1} = GRU([o_t, a_t], h_t)          h = 0 where the history begins
    o_{t+1} = o_t + head(h_{t+1})           the change, standardised

The state that is planned on is [o, h]: a plan carries on from the hidden state of the running episode.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from sprii_envs.arguments import check, integer
from sprii_train.control.experience import Experience
from sprii_train.learners.encoders import recurrent_states
from sprii_train.learners.histories import History
from sprii_train.modules import perceptron


@dataclass(frozen=True)
class RecurrentConfig:
    """Sizes of the model.

    Attributes:
        observation_dim, action_dim: sizes of the observation and action.
        history: transitions that the context is of, K.
        width: of the hidden state.
        head_width: of the head's hidden layer.
    """

    observation_dim: int = 3
    action_dim: int = 1
    history: int = 40
    width: int = 96
    head_width: int = 96

    def __post_init__(self) -> None:
        check(self, integer, "observation_dim", "action_dim", "history", "width", "head_width", least=1)


class RecurrentModel(nn.Module):
    """A GRU as a `control.agent.DynamicsModel`; `fit_recurrent` fits it."""

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.config = c = config
        self.network = nn.GRU(c.observation_dim + c.action_dim, c.width, batch_first=True)
        self.head = perceptron(c.width, c.head_width, c.observation_dim)
        self.register_buffer("observation", torch.tensor([[0.0], [1.0]]).repeat(1, c.observation_dim))  # mean, SD
        self.register_buffer("action", torch.tensor([[0.0], [1.0]]).repeat(1, c.action_dim))
        self.register_buffer("change", torch.tensor([[0.0], [1.0]]).repeat(1, c.observation_dim))

    @property
    def history(self) -> int:
        """K."""
        return self.config.history

    def inputs(self, observations: Tensor, actions: Tensor) -> Tensor:
        """(…, S), (…, A) → what the network reads, standardised, (…, S + A)."""
        pairs = (observations, self.get_buffer("observation")), (actions, self.get_buffer("action"))
        return torch.cat([(x - mean) / sd for x, (mean, sd) in pairs], dim=-1)

    def changes(self, observations: Tensor, actions: Tensor) -> Tensor:
        """Windows (B, T, S), (B, T, A) → the predicted changes after each action, in units of their SDs, (B, T, S)."""
        return self.head(recurrent_states(self.network, self.inputs(observations, actions)))

    def context(self, history: History) -> Tensor:
        """The hidden state (B, width) after the transitions of each history, zeros after none."""
        states = recurrent_states(self.network, self.inputs(history.observations, history.actions))
        last = states[torch.arange(len(states), device=states.device), (history.filled - 1).clamp_min(0)]
        return last * (history.filled > 0)[:, None]

    def state(self, observation: Tensor, context: Tensor) -> Tensor:
        """[o, h], (B, S + width)."""
        return torch.cat([observation, context], dim=1)

    def observed(self, state: Tensor) -> Tensor:
        """The observations in states, (B, S)."""
        return state[:, : self.config.observation_dim]

    def step(self, state: Tensor, action: Tensor, context: Tensor) -> Tensor:
        """States (B, S + width), actions (B, A) → the next states; the context is in the state already."""
        observation, hidden = state.split((self.config.observation_dim, self.config.width), dim=1)
        hidden = torch.gru_cell(self.inputs(observation, action), hidden, *self.network.all_weights[0])
        mean, sd = self.get_buffer("change")
        return torch.cat([torch.addcmul(observation + mean, self.head(hidden), sd), hidden], dim=1)


def fit_recurrent(
    model: RecurrentModel,
    experience: Experience,
    *,
    steps: int = 3_000,
    batch: int = 128,
    learning_rate: float = 3e-3,
    seed: int = 0,
) -> float:
    """Fit to one-step changes by their squared error at every step of windows of K transitions, from a zero state.

    Args:
        experience: episodes of K transitions or more.
        steps, batch, learning_rate, seed: of Adam, with a cosine to zero, and of the windows.

    Returns:
        Mean loss of the last tenth of the updates.

    Raises:
        ValueError: for episodes that are too short.
    """
    if (short := experience.lengths < model.history).any():
        raise ValueError(f"{short.sum()} episodes have fewer than {model.history} transitions, a whole history")
    before, action, after = (torch.from_numpy(each) for each in experience.transitions())
    for name, values in (("observation", before), ("action", action), ("change", after - before)):
        sd = values.std(0, correction=0)
        model.get_buffer(name).copy_(torch.stack([values.mean(0), torch.where(sd > 1e-6, sd, 1.0)]))
    mean, sd = model.get_buffer("change")
    optimizer = torch.optim.Adam(model.parameters(), learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    rng, losses = np.random.default_rng(seed), []
    for _ in range(steps):
        episodes = rng.integers(len(experience), size=batch)
        starts = rng.integers(experience.lengths[episodes] - model.history + 1)
        seen, done = (torch.from_numpy(x).to(mean) for x in experience.windows(episodes, starts, model.history + 1))
        loss = (model.changes(seen[:, :-1], done) - (seen.diff(dim=1) - mean) / sd).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return float(np.mean(losses[-max(1, steps // 10) :]))
