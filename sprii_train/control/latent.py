"""Planning in the embedding space of a controlled JEPA.

    e_t     = learner.embed(o_t)                                    the state that is planned on (D)
    z_p     = learner.encode_history of the running episode         the context, held over a plan (C)
    e_{t+1} = learner.predict(encode_current(e_t), z_p, a_t) at horizon 1, chained: no observation is ever decoded
    r_t     = head([e_t, a_t])                                      fitted on embeddings of a frozen learner

The longer horizons of the learner serve its training only. Chained, one-step predictions of embeddings go astray within
ten steps; with `transition_width` a model has a head of its own in their place, fitted to whole chains of a frozen
learner's embeddings:

    e_{t+1} = e_t + f(e_t, z_p, a_t)
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sprii_envs.arguments import check, instance, integer, shown
from sprii_train.control.experience import Experience
from sprii_train.control.planning import Reward
from sprii_train.data import PairedWindows
from sprii_train.learners.histories import History
from sprii_train.learners.jepa import JEPA, JEPAConfig
from sprii_train.modules import perceptron
from sprii_train.protocol import Windows

_CHUNK = 8192  # rows embedded at a time: bounds memory


@dataclass(frozen=True)
class LatentConfig:
    """A JEPA to plan with.

    Attributes:
        jepa: of states, with a split or supervised context, and 1 among its horizons; also as a mapping of its fields.
        head_width: of the reward head's two hidden layers.
        transition_width: of the transition's two hidden layers; 0 chains the learner's own predictor.
    """

    jepa: JEPAConfig = field(default_factory=JEPAConfig)
    head_width: int = 128
    transition_width: int = 0

    def __post_init__(self) -> None:
        check(self, integer, "head_width", least=1)
        check(self, integer, "transition_width")
        if isinstance(self.jepa, Mapping):  # as a file has it
            fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in self.jepa.items()}
            try:
                object.__setattr__(self, "jepa", JEPAConfig(**fields))
            except TypeError as error:
                raise ValueError(f"LatentConfig.jepa is {shown(self.jepa)}: {error}") from None
        c = instance("LatentConfig.jepa", self.jepa, of=JEPAConfig)
        if c.image or c.context == "monolithic" or 1 not in c.horizons:
            raise ValueError(
                f"LatentConfig.jepa has image {c.image}, context {c.context!r} and horizons {c.horizons}; legal: "
                "image 0, context 'split' or 'supervised', and 1 among the horizons"
            )

    @property
    def observation_dim(self) -> int:
        """Of the learner."""
        return self.jepa.observation_dim

    @property
    def action_dim(self) -> int:
        """Of the learner."""
        return self.jepa.action_dim


class LatentModel(nn.Module):
    """A JEPA with heads as a `control.agent.DynamicsModel`, fitted by `fit_reward` and `fit_transition`.

    Args:
        learner: a trained one of the config; by default a new one, whose weights a checkpoint brings.
    """

    def __init__(self, config: LatentConfig, learner: JEPA | None = None) -> None:
        super().__init__()
        self.config, c = config, config.jepa
        self.learner = JEPA(c) if learner is None else learner
        self.head = perceptron(c.embedding + c.action_dim, config.head_width, config.head_width, 1)
        self.register_buffer("paid", torch.tensor([0.0, 1.0]))  # mean and SD of the rewards
        codes = c.label_dim if c.context == "supervised" else c.persistent
        self.register_buffer("prior", torch.zeros(codes))  # the context of an episode without a transition
        self.transition = None
        if w := config.transition_width:
            self.transition = perceptron(c.embedding + codes + c.action_dim, w, w, c.embedding)
            for name, size in (("embedding", c.embedding), ("code", codes), ("change", c.embedding)):
                self.register_buffer(name, torch.tensor([[0.0], [1.0]]).repeat(1, size))  # mean, SD

    @property
    def history(self) -> int:
        """Transitions between the observations that the learner reads."""
        return self.config.jepa.history - 1

    def context(self, history: History) -> Tensor:
        """z_p (B, C) of the running episodes; `prior` of those that have just begun."""
        seen = torch.cat([history.observations[:, :1], history.after], dim=1)
        embeddings = self.learner.embed(seen, seen[:, :0])
        codes = self.learner.encode_history((embeddings, history.actions, history.filled))
        return torch.where((history.filled > 0)[:, None], codes, self.get_buffer("prior"))

    def state(self, observation: Tensor, context: Tensor) -> Tensor:
        """Observations (B, S) → embeddings (B, D)."""
        return self.learner.target(observation)

    def step(self, state: Tensor, action: Tensor, context: Tensor) -> Tensor:
        """Embeddings (B, D), actions (B, A), contexts (B, C) → embeddings one step later."""
        if self.transition is not None:
            (e_mean, e_sd), (c_mean, c_sd) = self.get_buffer("embedding"), self.get_buffer("code")
            read = torch.cat([(state - e_mean) / e_sd, (context - c_mean) / c_sd, action], dim=1)
            mean, sd = self.get_buffer("change")
            return torch.addcmul(state + mean, self.transition(read), sd)
        return one_step(self.learner, self.learner.encode_current(state), context, action)

    def reward(self, state: Tensor, action: Tensor, after: Tensor | None = None) -> Tensor:
        """What the head says of embeddings (B, D) and actions (B, A), (B,); `after` is not read."""
        mean, sd = self.get_buffer("paid")
        return mean + sd * self.head(torch.cat([state, action], dim=1))[:, 0]


def one_step(learner: JEPA, z_s: Tensor, z_p: Tensor, action: Tensor) -> Tensor:
    """`learner.predict` of codes and actions (B, A) at horizon 1 alone, (B, D): the others are not computed."""
    k, steps = learner.config.horizons.index(1), learner.config.horizons[-1]
    padded = action.new_zeros(len(action), steps * action.shape[1])
    padded[:, : action.shape[1]] = action
    told = torch.cat([learner.mask[k], learner.horizon.weight[k]]).expand(len(action), -1)
    return learner.predictor(torch.cat([z_s, z_p, padded, told], dim=1))


def goal_reward(model: LatentModel, goal: Tensor) -> Reward:
    """−‖e − e_goal‖²/D of an observation (S,) to reach, in place of the head."""
    with torch.inference_mode():
        target = model.state(goal[None], model.get_buffer("prior")[None])
    return lambda state, action, after: -(state - target).square().mean(1)


def fit_reward(
    model: LatentModel,
    observations: Tensor,
    actions: Tensor,
    rewards: Tensor,
    *,
    steps: int = 2_000,
    batch: int = 512,
    learning_rate: float = 1e-3,
    seed: int = 0,
) -> float:
    """Fit the head to rewards by its squared error on embeddings of the frozen learner; and the prior, the mean code
    of an observation alone.

    Args:
        observations, actions, rewards: (N, S), (N, A), (N,) of transitions; observations before the actions.
        steps, batch, learning_rate, seed: of Adam, with a cosine to zero.

    Returns:
        Squared error over variance on all rewards.
    """
    learner, prior, scale = model.eval().learner, model.get_buffer("prior"), model.get_buffer("paid")
    with torch.no_grad():
        embeddings = torch.cat([learner.target(each) for each in observations.split(_CHUNK)])
        none = actions.new_empty(_CHUNK, 0, actions.shape[1])
        alone = [learner.encode_history((e[:, None], none[: len(e)])) for e in embeddings.split(_CHUNK)]
        prior.copy_(torch.cat(alone).mean(0))
        scale.copy_(torch.stack([rewards.mean(), rewards.std(correction=0).clamp_min(1e-6)]))
    optimizer, generator = (
        torch.optim.AdamW(model.head.parameters(), learning_rate),
        torch.Generator().manual_seed(seed),
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        rows = torch.randint(len(rewards), (batch,), generator=generator).to(rewards.device)
        error = (model.reward(embeddings[rows], actions[rows]) - rewards[rows]) / scale[1]
        optimizer.zero_grad(set_to_none=True)
        error.square().mean().backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        return float(((model.reward(embeddings, actions) - rewards) / scale[1]).square().mean())


def fit_transition(
    model: LatentModel,
    experience: Experience,
    *,
    steps: int = 3_000,
    horizon: int = 16,
    batch: int = 128,
    learning_rate: float = 2e-3,
    seed: int = 0,
) -> float:
    """Fit the transition to embeddings of a frozen learner along whole chains, by its squared error at every step.

    Args:
        experience: episodes of a whole history and `horizon` transitions more; a chain begins after a history of any
            length, as plans of a beginning episode do.
        steps, horizon, batch, learning_rate, seed: of Adam, with a cosine to zero; of the chains; and of the draws.

    Returns:
        Mean loss of the last tenth of the updates, in variances of an embedding.

    Raises:
        ValueError: for a model without a transition, or episodes that are too short.
    """
    if model.transition is None:
        raise ValueError("LatentConfig.transition_width is 0; legal for fit_transition: a width >= 1")
    learner, k, length = model.eval().learner, model.history, integer("horizon", horizon, least=1)
    if (short := experience.lengths < k + length).any():
        raise ValueError(f"{short.sum()} episodes have fewer than {k + length} transitions, a history and a chain")
    rng, losses = np.random.default_rng(seed), []

    def drawn(count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Embeddings (B, H + 1, D), actions (B, H, A) and codes (B, C) of histories of one length."""
        n, episodes = int(rng.integers(k)) + 1, rng.integers(len(experience), size=count)
        starts = rng.integers(experience.lengths[episodes] - k - length + 1)
        device = model.get_buffer("prior").device
        found = (torch.from_numpy(x).to(device) for x in experience.windows(episodes, starts, k + length + 1))
        seen, done = next(found), next(found)
        with torch.no_grad():
            embedded = learner.target(seen.flatten(0, 1)).unflatten(0, seen.shape[:2])
            codes = learner.encode_history((embedded[:, k - n : k + 1], done[:, k - n : k]))
        return embedded[:, k:], done[:, k:], codes

    embedded, _, codes = drawn(2_048)
    for name, values in (("embedding", embedded), ("code", codes), ("change", embedded.diff(dim=1))):
        rows = values.flatten(0, -2)
        model.get_buffer(name).copy_(torch.stack([rows.mean(0), rows.std(0, correction=0).clamp_min(1e-6)]))
    scale = model.get_buffer("embedding")[1]
    optimizer = torch.optim.Adam(model.transition.parameters(), learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        truth, done, codes = drawn(batch)
        here, chain = truth[:, 0], []
        for action in done.unbind(1):
            here = model.step(here, action, codes)
            chain.append(here)
        loss = ((torch.stack(chain, 1) - truth[:, 1:]) / scale).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.transition.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return float(np.mean(losses[-max(1, steps // 10) :]))


class ShortHistories:
    """Batches whose histories are of 1 observation, or any number more, as those of episodes that have just begun.

    Args:
        data: windows of whole histories.
    """

    def __init__(self, data: PairedWindows) -> None:
        self.data = data

    def identity(self) -> dict[str, Any]:
        """See `PairedWindows`."""
        return self.data.identity() | {"histories": "short"}

    def __call__(self, step: int) -> Windows:
        """The last of each history, as many in all of a batch."""
        windows, longest = self.data(step), self.data.reader.history
        n = int(np.random.default_rng((self.data.pairs.seed + 1, step)).integers(longest)) + 1
        return windows._replace(
            observations=windows.observations[:, longest - n :], actions=windows.actions[:, longest - n :]
        )
