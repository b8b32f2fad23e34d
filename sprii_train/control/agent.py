"""A learned model, a reward and a controller as a policy: the context is inferred anew at every step."""

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sprii_envs.fields import integer
from sprii_envs.world import Array
from sprii_train.control.controllers import Bounds, Config, initial, plan
from sprii_train.control.controllers.base import box
from sprii_train.control.planning import Reward, rollout_score
from sprii_train.learners.histories import History, append, empty_history

LARGEST_SEED = 2**63 - 1

Policy = Callable[[int, Array], NDArray[np.float32]]
"""Time and states (E, S) of running episodes → actions (E, A), as `sprii_envs.world.rollout` asks for them."""


class DynamicsModel(Protocol):
    """What planning needs of a learner."""

    @property
    def history(self) -> int:
        """K, transitions in a history."""
        ...

    def context(self, history: History) -> Tensor:
        """Running histories of B episodes → contexts (B, d)."""
        ...

    def step(self, observation: Tensor, action: Tensor, context: Tensor) -> Tensor:
        """(B, S), (B, A), (B, d) → the next observation (B, S)."""
        ...


def planning_policy(
    model: DynamicsModel,
    reward: Reward,
    observe: Callable[[Array], NDArray[np.float32]],
    bounds: Bounds,
    controller: Config,
    episodes: int,
    *,
    seed: int,
    reads_next: bool = True,
    rows: int | None = None,
    device: torch.device | str = "cpu",
) -> Policy:
    """Plan with a frozen model; its context is of the last K transitions of each running episode.

    A policy holds the histories and warm starts of its episodes: make a new one for new episodes.

    Args:
        observe: states (E, S) → observations.
        bounds: of the actions, on the device.
        episodes: E; all begin at time 0, where the history is empty.
        seed: of the controller's noise, below 2⁶³.
        reads_next, rows: see `rollout_score`.

    Raises:
        ValueError: for another seed or number of episodes, a controller that is none, bounds that are not, or a device
            that this machine lacks.
    """
    seed, size = integer("seed", seed, most=LARGEST_SEED), len(box(bounds).low)
    warm = initial(controller, episodes, size, device)
    generator = torch.Generator(device).manual_seed(seed)
    history: History | None = None
    last: tuple[Tensor, Tensor] | None = None

    def policy(_: int, states: Array) -> NDArray[np.float32]:
        nonlocal warm, history, last
        observation = torch.from_numpy(observe(states)).to(device)
        if history is None:
            history = empty_history(episodes, model.history, observation.shape[1], size, device)
        with torch.inference_mode():
            if last is not None:
                history = append(history, *last, observation)
            context = model.context(history)
        score = rollout_score(model.step, reward, observation, context, reads_next=reads_next, rows=rows)
        action, warm = plan(controller, score, warm, bounds, generator)
        last = observation, action
        return action.cpu().numpy()

    return policy


def random_policy(episodes: int, bounds: Bounds, *, seed: int) -> Policy:
    """Uniform actions within the bounds; ValueError for what `planning_policy` refuses."""
    episodes, rng = (
        integer("episodes", episodes, least=1),
        np.random.default_rng(integer("seed", seed, most=LARGEST_SEED)),
    )
    space = box(bounds)
    low, high = space.low.cpu().numpy(), space.high.cpu().numpy()

    def policy(_: int, states: Array) -> NDArray[np.float32]:
        return rng.uniform(low, high, (episodes, len(low))).astype(np.float32)

    return policy
