"""Mean and SD of states and actions in training windows, which learners of states read them by."""

import torch
from torch import Tensor, nn

from sprii_envs.standardiser import Standardiser
from sprii_train.devices import demand
from sprii_train.protocol import Windows


class Scales(nn.Module):
    """z-scores of states and actions; mean 0 and SD 1 until `fit` has been called, see `check_fitted`."""

    observation: Tensor
    action: Tensor

    def __init__(self, observation_dim: int, action_dim: int) -> None:
        super().__init__()
        for name, dim in (("observation", observation_dim), ("action", action_dim)):
            self.register_buffer(name, torch.stack([torch.zeros(dim), torch.ones(dim)]))

    def fit(self, windows: Windows) -> None:
        """Take mean and population SD over all times of histories (B, T, S) and of the actions between them."""
        for name, values in (("observation", windows.observations), ("action", windows.actions)):
            found = Standardiser.fit(values.flatten(0, 1).double().cpu().numpy())
            self.get_buffer(name).copy_(torch.stack([torch.from_numpy(v) for v in (found.mean, found.scale)]))

    def states(self, x: Tensor) -> Tensor:
        """(…, S) → (…, S)."""
        return (x - self.observation[0]) / self.observation[1]

    def actions(self, u: Tensor) -> Tensor:
        """(…, A) → (…, A)."""
        return (u - self.action[0]) / self.action[1]

    def tokens(self, observations: Tensor, actions: Tensor) -> Tensor:
        """States (B, T, S) and the actions between them (B, T − 1, A) → [state, action taken there] (B, T, S + A).

        At the last state none has been taken: its action is 0, which is the mean.
        """
        taken = nn.functional.pad(self.actions(actions), (0, 0, 0, 1))
        return torch.cat([self.states(observations), taken], dim=-1)


def check_fitted(learner: nn.Module, *moments: Tensor | tuple[Tensor, Tensor]) -> None:
    """ValueError in training mode while every (mean, SD), (2, …), is 0 and 1 as at first: nothing was fitted."""
    if learner.training:
        name = type(learner).__name__
        told = torch.stack([mean.any() | (sd != 1).any() for mean, sd in moments]).any()
        demand(
            told,
            f"{name}'s statistics",
            lambda: (
                f"{name} has taken no statistics and would train on raw numbers; call its fit_statistics(windows) "
                "with training windows first"
            ),
        )


def checked_history(name: str, windows: Windows, history: int) -> None:
    """ValueError for windows of another number of states than the learner was made for."""
    if (found := windows.observations.shape[1]) != history:
        raise ValueError(f"{name} was made for histories of {history} states, got {found}")
