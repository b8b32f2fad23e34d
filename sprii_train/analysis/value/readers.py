"""Fresh task readers on frozen features: Null, Persistent, Decode, Oracle and Shuffled (`app:reader-interfaces`).

    context = [query (64), slot (64)]
    ŷ_h     = MLP([context, future actions up to h, their mask, horizon embedding (32)]), two hidden layers of 256

The arms differ in the slot alone: zeros; the persistent code itself (through one linear map where it is not as wide as
the slot); ridge estimates of the log factors, or the true ones, through one linear map; the code of another system. All
arms of a seed see the same cases in the same order and start from the same weights outside that map.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from sprii_envs.arguments import check, flag, instance, integer, numbers
from sprii_train.analysis.formation import RIDGE_PENALTIES
from sprii_train.analysis.populations import Training
from sprii_train.analysis.value.cases import Cases, check_horizons, tensor
from sprii_train.analysis.value.fitting import DonorInputs, FitConfig, check_seeds, fit_stack, in_stacks
from sprii_train.analysis.value.slots import Arm, Slot, fit_slot
from sprii_train.analysis.value.stacked import (
    StackedGRU,
    StackedLinear,
    horizon_masks,
    masked_actions,
    member,
    normal,
    predict_stack,
)


@dataclass(frozen=True)
class ReaderConfig:
    """The common reader; the defaults are the paper's (`app:spring-profile`).

    Attributes:
        query: width of the query feature in the context; a frozen feature of this width is kept, others are projected.
        slot: width of the persistent slot; a code of this width is kept, others are projected.
        project: codes of the slot's width are projected too.
        horizon: width of the horizon embedding.
        width: of the two hidden layers.
        prefix: None reads the present feature; r reads the last r + 1 features with a GRU of width `query`
            (`app:spring-recipient-evidence`).
        decoder_penalties: ridge coefficients of Decode, selected from on training systems.
        log_factors: Decode and Oracle read logs of the factors; False: the factors, as for the drag of
            `tab:v3-bottleneck-endpoints`.
        donor_seed: of Shuffled's map of systems, one for fitting and every evaluation.
        fit: the budget.
    """

    query: int = 64
    slot: int = 64
    project: bool = False
    horizon: int = 32
    width: int = 256
    prefix: int | None = None
    decoder_penalties: tuple[float, ...] = RIDGE_PENALTIES
    log_factors: bool = True
    donor_seed: int = 0
    fit: FitConfig = field(default_factory=FitConfig)

    def __post_init__(self) -> None:
        check(self, integer, "query", "slot", "horizon", "width", least=1)
        check(self, integer, "prefix", optional=True)
        check(self, numbers, "decoder_penalties", least=0, some=True)
        check(self, flag, "project", "log_factors")
        check(self, integer, "donor_seed")
        check(self, instance, "fit", of=FitConfig)


class Sizes(NamedTuple):
    """What a reader is fitted for."""

    query: int  # d_q
    actions: int  # A
    horizons: tuple[int, ...]
    outputs: int  # D


class ReaderNetwork(nn.Module):
    """R readers of one arm and one source.

    Args:
        sizes: of the cases.
        mapped: inputs of the slot's linear map (`Slot.mapped`); 0 puts the slot's input there as it is.
        seeds: (R,) one reader each.
    """

    masks: Tensor

    def __init__(self, config: ReaderConfig, sizes: Sizes, mapped: int, seeds: Sequence[int]) -> None:
        super().__init__()
        self.query: nn.Module
        if config.prefix is not None:
            self.query = StackedGRU(seeds, "query", sizes.query, config.query)
        elif sizes.query != config.query:
            self.query = StackedLinear(seeds, "query", sizes.query, config.query)
        else:
            self.query = nn.Identity()
        self.slot = StackedLinear(seeds, "slot", mapped, config.slot) if mapped else nn.Identity()
        steps = sizes.horizons[-1]
        self.horizon = normal(seeds, "horizon", (len(sizes.horizons), config.horizon))
        context, plan, of_horizon = config.query + config.slot, steps * sizes.actions, steps + config.horizon
        fan_in = context + plan + of_horizon
        # One layer in three parts: only the actions belong to a case and a horizon, the others are computed once.
        self.by_case = StackedLinear(seeds, "first.case", context, config.width, fan_in=fan_in)
        self.by_action = StackedLinear(seeds, "first.action", plan, config.width, bias=False, fan_in=fan_in)
        self.by_horizon = StackedLinear(seeds, "first.horizon", of_horizon, config.width, bias=False, fan_in=fan_in)
        self.second = StackedLinear(seeds, "second", config.width, config.width)
        self.last = StackedLinear(seeds, "last", config.width, sizes.outputs)
        self.register_buffer("masks", horizon_masks(sizes.horizons), persistent=False)

    def forward(self, query: Tensor, slot: Tensor, actions: Tensor) -> Tensor:
        """Features (R, n, [T,] d_q), slot inputs (R, n, s), actions (R, n, H, A) → predictions (R, n, K, D)."""
        r, n, k = query.shape[0], query.shape[1], len(self.masks)
        x = self.by_action(masked_actions(actions, self.masks).flatten(1, 2)).unflatten(1, (n, k))
        x = x + self.by_case(torch.cat([self.query(query), self.slot(slot)], dim=-1))[:, :, None]
        x = x + self.by_horizon(torch.cat([self.masks.expand(r, -1, -1), self.horizon], dim=-1))[:, None]
        x = F.gelu(self.second(F.gelu(x.flatten(1, 2))))
        return self.last(x).unflatten(1, (n, k))


@dataclass(frozen=True, eq=False)
class Reader:
    """A fitted reader: the network (a stack of one) and what fills its slot."""

    seed: int
    config: ReaderConfig
    sizes: Sizes
    slot: Slot
    network: ReaderNetwork

    def predict(self, cases: Cases[Any]) -> NDArray[np.float32]:
        """Predicted standardised increments (n, K, D).

        Raises:
            ValueError: for cases of other horizons or sizes than the reader was fitted for.
        """
        check_horizons("the reader", self.sizes.horizons, cases)
        if _sizes(cases) != self.sizes:
            raise ValueError(f"the reader was fitted for {self.sizes}; the cases have {_sizes(cases)}")
        query, actions = _recipients(cases, self.config)
        inputs = (query, tensor(self.slot(cases)), actions)
        return predict_stack(self.network, inputs, 1, self.config.fit.device)[0].numpy()


def fit_readers(cases: Cases[Training], arm: Arm, config: ReaderConfig, seeds: Sequence[int]) -> tuple[Reader, ...]:
    """One reader a seed; fitted in stacks (`FitConfig.stack`) or alone, they are the same up to rounding.

    MSE over all horizons of a case, AdamW, the weights of the last step (`app:spring-profile`).

    Args:
        cases: of the frozen source; targets standardised.
        arm: what the slot holds, see `slots.Slot`.
        seeds: R distinct ones, for initial weights and batches.

    Raises:
        PopulationError: for cases of another population.
        ValueError: for an unknown arm, repeated seeds, or cases that lack what the arm reads.
    """
    check_seeds(seeds)
    slot = fit_slot(
        cases,
        arm,
        config.slot,
        project=config.project,
        donor_seed=config.donor_seed,
        penalties=config.decoder_penalties,
        log_factors=config.log_factors,
    )
    inputs = (*_recipients(cases, config), tensor(cases.targets))
    # All that a recipient needs in one row: one gather a batch.
    shapes = [x.shape[1:] for x in inputs]
    widths = [shape.numel() for shape in shapes]
    table = torch.cat([x.flatten(1) for x in inputs], dim=1).to(config.fit.device)

    def fit(group: Sequence[int]) -> list[Reader]:
        network = ReaderNetwork(config, _sizes(cases), slot.mapped, group).to(config.fit.device)
        filled = DonorInputs(cases, slot, group, config.fit.device)

        def losses(rows: Tensor) -> Tensor:
            batch = table.index_select(0, rows.flatten()).unflatten(0, rows.shape).split(widths, dim=-1)
            query, actions, targets = (x.unflatten(-1, shape) for x, shape in zip(batch, shapes, strict=True))
            return (network(query, filled(rows), actions) - targets).square().mean((1, 2, 3))

        fit_stack(network, losses, len(cases), group, config.fit, weights=cases.weights)
        return [Reader(seed, config, _sizes(cases), slot, member(network, r)) for r, seed in enumerate(group)]

    return tuple(reader for group in in_stacks(seeds, config.fit) for reader in fit(group))


def fit_reader(cases: Cases[Training], arm: Arm, config: ReaderConfig, seed: int) -> Reader:
    """One fitted reader; see `fit_readers`."""
    return fit_readers(cases, arm, config, (seed,))[0]


def _sizes(cases: Cases[Any]) -> Sizes:
    return Sizes(cases.query.shape[-1], cases.actions.shape[-1], cases.horizons, cases.targets.shape[-1])


def _recipients(cases: Cases[Any], config: ReaderConfig) -> tuple[Tensor, Tensor]:
    """What the network reads of recipients: features (n, [r + 1,] d_q) and actions (n, H, A)."""
    query, length = cases.query, 1 if config.prefix is None else config.prefix + 1
    query = query[:, None] if query.ndim == 2 else query
    if query.shape[1] < length:
        raise ValueError(
            f"prefix {config.prefix} reads {length} features of a recipient; the cases have {query.shape[1]}"
        )
    query = query[:, -length:]
    return tensor(query[:, 0] if config.prefix is None else query), tensor(cases.actions)
