"""A learned model, a reward and a controller as an agent: the context is inferred anew at every step."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import numpy as np
import torch
from gymnasium.spaces import Box
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray
from torch import Tensor

from sprii_envs.arguments import integer, shown
from sprii_envs.checks import is_integer
from sprii_envs.world import Array, World
from sprii_train.control.controllers import Bounds, Config, initial, plan
from sprii_train.control.controllers.base import box
from sprii_train.control.planning import Reward, rollout_score
from sprii_train.learners.histories import History, append, empty_history
from sprii_train.protocol import evaluation_mode

LARGEST_SEED = 2**32 - 1
"""A generator of torch on the CPU reads no more of a seed."""

Policy = Callable[[NDArray[np.float32]], NDArray[np.float32]]
"""Observations (E, O) of running episodes → actions (E, A)."""


class DynamicsModel(Protocol):
    """What planning needs of a learner; three more methods are optional.

    A model that does not step observations has `state(observation, context)`, (B, S), (B, d) → (B, Z): where planning
    starts. One that knows what is to be reached has `reward(state, action, next_state)` → (B,), of such states, for a
    planner that is given none. One whose states hold observations has `observed(state)`, (B, Z) → (B, S): a reward that
    a planner is given then reads those.
    """

    @property
    def history(self) -> int:
        """K, transitions in a history."""
        ...

    def context(self, history: History, /) -> Any:
        """Running histories of B episodes → contexts (B, d), or None, which `step` then gets."""
        ...

    def step(self, state: Tensor, action: Tensor, context: Any, /) -> Tensor:
        """(B, Z), (B, A), (B, d) → the next state (B, Z); without `state` that is an observation."""
        ...


def started(model: DynamicsModel, observation: Tensor, context: Any) -> Tensor:
    """Where a model's steps start: `model.state` of the observation, or the observation itself."""
    state: Any = getattr(model, "state", None)
    return observation if state is None else state(observation, context)


def reward_of(model: DynamicsModel, reward: Reward | None) -> Reward:
    """The reward given, of what the model's states hold of observations, or its own; ValueError for neither."""
    found: Any = getattr(model, "reward", None) if reward is None else reward
    if not callable(found):
        raise ValueError(
            f"reward is {shown(reward)}; legal: a function of state, action and next state, or None with a model that "
            "has one"
        )
    paid, observed = cast(Reward, found), cast(Any, getattr(model, "observed", None))
    if reward is None or observed is None:
        return paid
    return lambda state, action, after: paid(observed(state), action, None if after is None else observed(after))


def check_model(model: Any) -> None:
    """ValueError naming what a model lacks of `DynamicsModel`."""
    lacking = [name for name in ("context", "step") if not callable(getattr(model, name, None))]
    if not is_integer(getattr(model, "history", None)):
        lacking.insert(0, "history")
    if lacking:
        raise ValueError(
            f"{type(model).__name__} lacks {', '.join(lacking)}; legal for a planner: a model with history (an "
            "integer), context(history) and step(observation, action, context)"
        )
    integer(f"{type(model).__name__}.history", model.history, least=1)


class ContextFitter(Protocol):
    """What fits contexts at test time, as `control.context_fit.ContextFit` does."""

    @property
    def transitions(self) -> int:
        """K, the last ones of the running episode that it reads."""
        ...

    def __call__(
        self, model: DynamicsModel, history: History, encoded: Tensor, warm: Tensor | None = None, /
    ) -> Tensor:
        """Contexts (E, d) of histories, from the model's own and the step before's."""
        ...


def on_states(policy: Policy, world: World) -> Callable[[int, Array], NDArray[np.float32]]:
    """A policy as `sprii_envs.world.rollout` asks for it."""
    return lambda _, states: policy(world.observe(states))


@dataclass
class PlanningAgent:
    """A frozen model, a reward and a controller, for `sprii_train.evaluation.evaluate_agent`.

    Attributes:
        model: a `DynamicsModel` on `device`.
        controller: a config of `sprii_train.control.controllers`.
        reward: what the controller sums, see `control.planning.Reward`; None is the model's own.
        seed: of the controller's noise.
        reads_next, rows: see `rollout_score`.
        device: where to plan.
        bounds: of the actions, on the device; by default those of the environment that was checked last.
        fit: of the context, at every step, by prediction error of the running episode; None acts on the model's own.
        watch: called at every step with the contexts (E, d) that are planned with.
    """

    model: Any
    controller: Config
    reward: Reward | None = None
    seed: int = 0
    reads_next: bool = True
    rows: int | None = None
    device: torch.device | str = "cpu"
    bounds: Bounds | None = None
    fit: ContextFitter | None = None
    watch: Callable[[Any], None] | None = None
    _policy: Policy | None = field(default=None, init=False, repr=False)
    _box: Bounds | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        """ValueError for a model that lacks an operation, no reward, or another seed."""
        check_model(self.model)
        integer("seed", self.seed, most=LARGEST_SEED)
        reward_of(self.model, self.reward)

    def describe(self) -> str:
        """Controller and model."""
        return f"{type(self.controller).__name__} with {type(self.model).__name__}"

    def check(self, env: VectorEnv[Any, Any, Any]) -> None:
        """Take the bounds of the actions; ValueError unless the model takes what the environment shows."""
        seen, acts = env.single_observation_space, env.single_action_space
        if not isinstance(seen, Box) or len(seen.shape) != 1 or not isinstance(acts, Box) or len(acts.shape) != 1:
            raise ValueError(f"a planner needs vectors; observations are {seen}, actions {acts}")
        self._box = torch.tensor(acts.low, device=self.device), torch.tensor(acts.high, device=self.device)
        self.check_sizes(seen.shape[0], acts.shape[0])
        initial(self.controller, 1, acts.shape[0], self.device)

    def check_sizes(self, observations: int, actions: int) -> None:
        """ValueError unless the model is of so many observations and actions."""
        config = getattr(self.model, "config", None)
        told = [getattr(config, name, None) for name in ("observation_dim", "action_dim")]
        if None not in told and told != [observations, actions]:
            raise ValueError(
                f"the model is of {told[0]} observations and {told[1]} actions; legal: {observations} and {actions}"
            )
        with torch.inference_mode():
            history = empty_history(1, self.model.history, observations, actions, self.device)
            seen, action = (torch.zeros(1, size, device=self.device) for size in (observations, actions))
            try:
                context = self.model.context(history)
                here = started(self.model, seen, context)
                after = self.model.step(here, action, context)
            except (RuntimeError, ValueError, IndexError) as error:
                raise ValueError(
                    f"{type(self.model).__name__} does not step {observations} observations and {actions} actions: "
                    f"{error}"
                ) from error
        if not isinstance(after, Tensor) or after.shape != here.shape:
            raise ValueError(
                f"{type(self.model).__name__}.step gives {shown(after)}; legal: a (1, {here.shape[1]}) tensor"
            )

    def reset(self, episodes: int) -> None:
        """New histories and warm starts, and the noise from its beginning."""
        bounds = self._box if self.bounds is None else self.bounds
        if bounds is None:
            raise ValueError("bounds is None; legal without check(env): two (A,) tensors")
        self._policy = planning_policy(
            self.model, self.reward, bounds, self.controller, episodes,
            seed=self.seed, reads_next=self.reads_next, rows=self.rows, device=self.device, finite=True,
            fit=self.fit, watch=self.watch,
        )  # fmt: skip

    def act(self, observations: NDArray[np.float32]) -> NDArray[np.float32]:
        """(E, O) → (E, A), with a torch model in evaluation mode; ValueError where no plan of an episode has a finite
        return.
        """
        if self._policy is None:
            raise ValueError("act() before reset(episodes)")
        with evaluation_mode(self.model):
            return self._policy(observations)


def planning_policy(
    model: DynamicsModel,
    reward: Reward | None,
    bounds: Bounds,
    controller: Config,
    episodes: int,
    *,
    seed: int,
    reads_next: bool = True,
    rows: int | None = None,
    device: torch.device | str = "cpu",
    finite: bool = False,
    fit: ContextFitter | None = None,
    watch: Callable[[Any], None] | None = None,
) -> Policy:
    """Plan with a frozen model; its context is of the last K transitions of each running episode.

    A policy holds the histories and warm starts of its episodes: make a new one for new episodes.

    Args:
        reward: see `PlanningAgent`.
        bounds: of the actions, on the device.
        episodes: E; all begin at time 0, where the history is empty.
        seed: of the controller's noise, below 2³².
        reads_next, rows: see `rollout_score`.
        finite: whether the policy refuses, with a ValueError, to act where no candidate of an episode ever had a finite
            return; otherwise such an episode keeps its plan, as while a model is still learnt.
        fit, watch: see `PlanningAgent`; each fit starts from the model's context and from the step before's.

    Raises:
        ValueError: for no reward, another seed or number of episodes, a controller that is none, bounds that are not,
            or a device that this machine lacks.
    """
    reward = reward_of(model, reward)
    seed, size = integer("seed", seed, most=LARGEST_SEED), len(box(bounds).low)
    warm = initial(controller, episodes, size, device)
    generator = torch.Generator(device).manual_seed(seed)
    history: History | None = None
    recent: History | None = None  # of the fit, which may look further back
    fitted: Tensor | None = None
    last: tuple[Tensor, Tensor] | None = None

    def policy(observations: NDArray[np.float32]) -> NDArray[np.float32]:
        nonlocal warm, history, recent, fitted, last
        observation = torch.from_numpy(observations).to(device)
        if history is None:
            history = empty_history(episodes, model.history, observation.shape[1], size, device)
            if fit is not None:
                recent = empty_history(episodes, fit.transitions, observation.shape[1], size, device)
        with torch.inference_mode():
            if last is not None:
                history = append(history, *last, observation)
                recent = None if recent is None else append(recent, *last, observation)
            context = model.context(history)
        if fit is not None and recent is not None:
            context = fitted = fit(model, recent, context, fitted)
        if watch is not None:
            watch(context)
        with torch.inference_mode():
            start = started(model, observation, context)
        score = rollout_score(model.step, reward, start, context, reads_next=reads_next, rows=rows)
        known = torch.zeros(episodes, dtype=torch.bool, device=device)

        def scored(actions: Tensor) -> Tensor:
            returns = score(actions)
            known.logical_or_(torch.isfinite(returns).any(1))
            return returns

        action, warm = plan(controller, scored if finite else score, warm, bounds, generator)
        if finite and not bool(known.all()):
            raise ValueError(
                f"no plan of {int((~known).sum())} of {episodes} episodes has a finite return; legal: a model and a "
                "reward that are finite where the episodes are"
            )
        last = observation, action
        return action.cpu().numpy()

    return policy
