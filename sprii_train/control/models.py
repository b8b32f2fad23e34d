"""What planning needs of a model, learned or true."""

from typing import Any, Protocol, cast

from torch import Tensor

from sprii_envs.arguments import integer, shown
from sprii_envs.checks import is_integer
from sprii_train.control.planning import Reward
from sprii_train.learners.histories import History


class DynamicsModel(Protocol):
    """What planning needs of a learner; two more methods are optional.

    A model that does not step observations has `state(observation, context)`, (B, S), (B, d) → (B, Z): where planning
    starts. One that knows what is to be reached has `reward(state, action, next_state)` → (B,), of such states, for a
    planner that is given none.
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
    """The reward given, or the model's own; ValueError where there is neither."""
    found: Any = getattr(model, "reward", None) if reward is None else reward
    if not callable(found):
        raise ValueError(
            f"reward is {shown(reward)}; legal: a function of state, action and next state, or None with a model that "
            "has one"
        )
    return cast(Reward, found)


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
