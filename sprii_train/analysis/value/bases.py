"""The recipient-only base reader R0 of the realization routes, and the features h that it reads.

    h = [query feature, future actions up to the horizon, their mask, the base's horizon embedding]

A base is fitted first and then frozen; residual routes read the same h, so its horizon embedding is frozen too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from sprii_envs.arguments import check, instance, integer
from sprii_train.analysis.populations import Development, Training, check_fit, check_select
from sprii_train.analysis.value.cases import Cases, check_horizons, tensor
from sprii_train.analysis.value.fitting import FitConfig, Selection, check_seeds, fit_stack, in_stacks
from sprii_train.analysis.value.stacked import (
    StackedLinear,
    horizon_masks,
    masked_actions,
    member,
    normal,
    predict_stack,
)

Selectable = Cases[Training] | Cases[Development]


@dataclass(frozen=True)
class RouteConfig:
    """Base and residual; the defaults are the paper's.

    Attributes:
        base_width: units of each hidden layer of the base.
        base_layers: its hidden layers; the paper says "256-unit base", which we read as one.
        width: units of the residual.
        horizon: width of the base's horizon embedding.
        code: width of the projected true factors of the oracle route, that of a persistent code.
        donor_seed: of the mismatched donors' map, one for fitting, selection and every evaluation.
        select_every: updates between the checkpoints that are selected from.
        fit: the budget, of the base and of each route.
    """

    base_width: int = 256
    base_layers: int = 1
    width: int = 128
    horizon: int = 32
    code: int = 64
    donor_seed: int = 0
    select_every: int = 100
    fit: FitConfig = field(default_factory=lambda: FitConfig(updates=1_000, batch=128))

    def __post_init__(self) -> None:
        check(self, integer, "base_width", "base_layers", "width", "horizon", "code", "select_every", least=1)
        check(self, integer, "donor_seed")
        check(self, instance, "fit", of=FitConfig)


class BaseNetwork(nn.Module):
    """R recipient-only readers R0, each with the features h it reads."""

    masks: Tensor

    def __init__(self, config: RouteConfig, cases: Cases[Any], seeds: Sequence[int]) -> None:
        super().__init__()
        steps, actions = cases.actions.shape[1:]
        self.size = cases.query.shape[-1] + steps * actions + steps + config.horizon
        self.horizon = normal(seeds, "horizon", (len(cases.horizons), config.horizon))
        widths = [self.size] + [config.base_width] * config.base_layers
        self.hidden = nn.ModuleList(
            StackedLinear(seeds, f"base.{i}", a, b) for i, (a, b) in enumerate(pairwise(widths))
        )
        self.out = StackedLinear(seeds, "base.out", config.base_width, cases.targets.shape[-1])
        self.register_buffer("masks", horizon_masks(cases.horizons), persistent=False)

    def features(self, query: Tensor, actions: Tensor) -> Tensor:
        """h (R, n, K, d_h) of features (R, n, d_q) and actions (R, n, H, A)."""
        shape = (*query.shape[:2], len(self.masks), -1)
        return torch.cat(
            [
                query[:, :, None].expand(shape),
                masked_actions(actions, self.masks),
                self.masks.expand(shape),
                self.horizon[:, None].expand(shape),
            ],
            dim=-1,
        )

    def predict(self, inputs: Sequence[Tensor], device: str) -> Tensor:
        """R0 (R, n, K, D) on the CPU, of `recipients`."""
        return predict_stack(lambda *x: self(self.features(*x)), inputs, len(self.horizon), device)

    def forward(self, h: Tensor) -> Tensor:
        """(R, n, K, d_h) → (R, n, K, D)."""
        x = h.flatten(1, 2)
        for layer in self.hidden:
            x = F.gelu(layer(x))
        return self.out(x).unflatten(1, h.shape[1:3])


@dataclass(frozen=True, eq=False)
class Base:
    """A fitted, frozen recipient-only reader R0 (a stack of one)."""

    seed: int
    config: RouteConfig
    horizons: tuple[int, ...]
    network: BaseNetwork

    def predict(self, cases: Cases[Any]) -> NDArray[np.float32]:
        """R0 (n, K, D).

        Raises:
            ValueError: for cases of other horizons.
        """
        check_horizons("the base", self.horizons, cases)
        return self.network.predict(recipients(cases), self.config.fit.device)[0].numpy()


def fit_bases(
    train: Cases[Training], select: Selectable, config: RouteConfig, seeds: Sequence[int]
) -> tuple[Base, ...]:
    """One base a seed; checkpoints selected on the error of `select` (`FitConfig.stack` changes rounding alone).

    Raises:
        PopulationError: if `train` may not be fitted on, or `select` not selected on.
        ValueError: for repeated seeds or other horizons in `select`.
    """
    check_populations(train, select, "the base")
    check_seeds(seeds)
    device = config.fit.device
    query, actions, targets = (x.to(device) for x in (*recipients(train), tensor(train.targets)))
    selection = recipients(select)

    def fit(group: Sequence[int]) -> list[Base]:
        network = BaseNetwork(config, train, group).to(device)

        def losses(rows: Tensor) -> Tensor:
            h = network.features(query[rows], actions[rows])
            return (network(h) - targets[rows]).square().mean((1, 2, 3))

        selected = Selection(lambda: mean_errors(network.predict(selection, device), select), config.select_every)
        fit_stack(network, losses, len(train), group, config.fit, selected, weights=train.weights)
        network.requires_grad_(False)
        return [Base(seed, config, train.horizons, member(network, r)) for r, seed in enumerate(group)]

    return tuple(base for group in in_stacks(seeds, config.fit) for base in fit(group))


def fit_base(train: Cases[Training], select: Selectable, config: RouteConfig, seed: int) -> Base:
    """One fitted base; see `fit_bases`."""
    return fit_bases(train, select, config, (seed,))[0]


def check_populations(train: Cases[Any], select: Cases[Any], what: str) -> None:
    """Refuse to fit or select where that is not allowed, and cases of unlike horizons."""
    check_fit(train.population, what)
    check_select(select.population, f"the checkpoint of {what}")
    check_horizons(what, train.horizons, select)


def recipients(cases: Cases[Any]) -> tuple[Tensor, Tensor]:
    """Present features (n, d_q) and future actions (n, H, A)."""
    return tensor(cases.query if cases.query.ndim == 2 else cases.query[:, -1]), tensor(cases.actions)


def mean_errors(prediction: Tensor, cases: Cases[Any]) -> Tensor:
    """Mean squared errors (R,) of predictions (R, n, K, D), over cases as they weigh."""
    errors = (prediction - tensor(cases.targets)).square().mean((2, 3))
    if cases.weights is None:
        return errors.mean(1)
    return errors @ tensor(cases.weights / np.sum(cases.weights))
