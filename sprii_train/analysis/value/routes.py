"""Routes by which a frozen source's code reaches a prediction (`app:reader-interfaces`, frozen-source realization).

    R0 = the frozen recipient-only base of the features h (`bases`)
    v  = GELU(W_v h),  q = W_q h + b_q + W_proxy h
    M1 = R0 + W_o[v ⊙ tanh(q)]
    M2 = R0 + W_o[v ⊙ {tanh(q + W_p p) − tanh(q)}]

W_p and W_o have no bias, so M2(h, 0) = R0(h). M1 registers W_p, neither uses nor updates it. Weighted (`phys`) variants
multiply the residual coordinate by coordinate with fixed weights, see `physical.output_weights`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from sprii_train.analysis.populations import Training
from sprii_train.analysis.value.bases import (
    Base,
    BaseNetwork,
    RouteConfig,
    Selectable,
    check_populations,
    mean_errors,
    recipients,
)
from sprii_train.analysis.value.cases import Cases, check_horizons, codes, other_system_rows, tensor
from sprii_train.analysis.value.fitting import DonorInputs, Selection, check_seeds, fit_stack, in_stacks
from sprii_train.analysis.value.log_factors import LogFactors, fit_log_factors
from sprii_train.analysis.value.stacked import StackedLinear, member, predict_stack, stacked

Kind = Literal["m1", "m2"]
Context = Literal["persistent", "oracle"]
Donors = Literal["matched", "mismatched"]

SCALES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of `tab:realization-replacements`


class ResidualNetwork(nn.Module):
    """R residuals of one kind, without their bases.

    Args:
        size: d_h.
        code: d_p.
        outputs: D.
        factors: of the oracle route, projected to d_p; 0 for a persistent code.
        weights: (D,) of the residual's coordinates, or None.
    """

    weights: Tensor | None

    def __init__(
        self,
        config: RouteConfig,
        kind: Kind,
        size: int,
        code: int,
        outputs: int,
        factors: int,
        weights: Tensor | None,
        seeds: Sequence[int],
    ) -> None:
        super().__init__()
        width = config.width
        self.kind: Kind = kind
        self.value = StackedLinear(seeds, "value", size, width, bias=False)
        self.query = StackedLinear(seeds, "route.query", size, width)
        self.proxy = StackedLinear(seeds, "proxy", size, width, bias=False)
        self.persistent = StackedLinear(seeds, "persistent", code, width, bias=False)
        self.out = StackedLinear(seeds, "route.out", width, outputs, bias=False)
        # Without a bias, so that a scaled p is the projection of scaled factors.
        self.project = StackedLinear(seeds, "project", factors, code, bias=False) if factors else nn.Identity()
        self.register_buffer("weights", weights)

    def forward(self, h: Tensor, p: Tensor) -> Tensor:
        """h (R, n, K, d_h) and p (R, n, d_p), or factors (R, n, F) → residuals (R, n, K, D)."""
        x = h.flatten(1, 2)
        q = (self.query(x) + self.proxy(x)).unflatten(1, h.shape[1:3])
        if self.kind == "m1":
            gate = torch.tanh(q)
        else:
            gate = torch.tanh(q + self.persistent(self.project(p))[:, :, None]) - torch.tanh(q)
        residual = self.out(F.gelu(self.value(x)) * gate.flatten(1, 2)).unflatten(1, h.shape[1:3])
        return residual if self.weights is None else residual * self.weights


@dataclass(frozen=True, eq=False)
class Route:
    """A fitted residual route on a frozen base."""

    kind: Kind
    context: Context
    donors: Donors
    base: Base
    network: ResidualNetwork
    factors: LogFactors | None = None

    def persistent(self, cases: Cases[Any]) -> NDArray[Any]:
        """p (n, d_p) of the donors that the route reads, or the standardised log factors (n, F) of the oracle route."""
        return _persistent(cases, self.donors, self.base.config, self.factors)

    def predict(self, cases: Cases[Any], persistent: NDArray[Any] | None = None) -> NDArray[np.float32]:
        """Predicted standardised increments (n, K, D).

        Args:
            cases: of the horizons that the base was fitted for.
            persistent: another p; by default `persistent(cases)`.
        """
        check_horizons("the route", self.base.horizons, cases)
        p = tensor(self.persistent(cases) if persistent is None else persistent)
        inputs, device = (*recipients(cases), p), self.base.config.fit.device
        return _predict(self.base.network, self.network, inputs, device)[0].numpy()


def fit_routes(
    train: Cases[Training],
    select: Selectable,
    bases: Sequence[Base],
    kind: Kind,
    *,
    context: Context = "persistent",
    donors: Donors = "matched",
    weights: NDArray[np.floating] | None = None,
    batch: int | None = None,
) -> tuple[Route, ...]:
    """One residual a base, with the base's seed and config (`FitConfig.stack` changes rounding alone).

    The residual is fitted to the MSE of the whole prediction; bases and source are frozen. Checkpoints are selected on
    the error of `select`, with the donors that the route is fitted for (`app:reader-capacity-control`).

    Args:
        train, select: of the source that the bases were fitted on.
        bases: R fitted bases of distinct seeds and one config.
        kind: `m1` (query only) or `m2`.
        context: `persistent` codes, or `oracle`, a learned projection of the true log factors.
        donors: `matched`, or `mismatched` by a fixed map to other systems (`RouteConfig.donor_seed`).
        weights: (D,) of the residual's coordinates, non-negative: the `phys` variant.
        batch: cases in a batch; by default as many as of the bases.

    Raises:
        PopulationError: if `train` may not be fitted on, or `select` not selected on.
        ValueError: for bases that differ in more than seeds, illegal weights, or an oracle with mismatched donors.
    """
    check_populations(train, select, f"the route {kind!r}")
    config = _common(bases, train)
    for name, value, legal in (
        ("kind", kind, ("m1", "m2")),
        ("context", context, ("persistent", "oracle")),
        ("donors", donors, ("matched", "mismatched")),
    ):
        if value not in legal:
            raise ValueError(f"route {name} is {value!r}; legal: {', '.join(legal)}")
    if context == "oracle" and donors == "mismatched":
        raise ValueError("the oracle route reads the recipient's own factors; mismatched donors need persistent codes")
    outputs = train.targets.shape[-1]
    if weights is not None and (np.shape(weights) != (outputs,) or not (np.isfinite(weights) & (weights >= 0)).all()):
        raise ValueError(f"route weights must be {outputs} finite numbers >= 0, got {weights!r}")
    factors = fit_log_factors(train) if context == "oracle" else None
    budget = config.fit if batch is None else replace(config.fit, batch=batch)
    device = budget.device

    def persistent(cases: Cases[Any]) -> NDArray[Any]:
        return _persistent(cases, donors, config, factors)

    inputs = recipients(train)
    selection = (*recipients(select), tensor(persistent(select)))
    query, actions = (x.to(device) for x in inputs)
    scale = None if weights is None else tensor(weights)

    def fit(group: Sequence[Base]) -> list[Route]:
        base, seeds = stacked([b.network for b in group]).to(device), [b.seed for b in group]
        p = DonorInputs(train, persistent, seeds, device)
        code = config.code if factors else p.width
        network = ResidualNetwork(config, kind, base.size, code, outputs, len(factors or ()), scale, seeds).to(device)
        # The base is frozen, so what is left for the residual is known before.
        left = (tensor(train.targets) - base.predict(inputs, device)).to(device)
        member_axis = torch.arange(len(group), device=device)[:, None]

        def losses(rows: Tensor) -> Tensor:
            h = base.features(query[rows], actions[rows])
            return (network(h, p(rows)) - left[member_axis, rows]).square().mean((1, 2, 3))

        selected = Selection(
            lambda: mean_errors(_predict(base, network, selection, device), select), config.select_every
        )
        fit_stack(network, losses, len(train), seeds, budget, selected, weights=train.weights)
        return [Route(kind, context, donors, b, member(network, r), factors) for r, b in enumerate(group)]

    return tuple(route for group in in_stacks(bases, config.fit) for route in fit(group))


def fit_route(
    train: Cases[Training],
    select: Selectable,
    base: Base,
    kind: Kind,
    *,
    context: Context = "persistent",
    donors: Donors = "matched",
    weights: NDArray[np.floating] | None = None,
) -> Route:
    """One fitted route; see `fit_routes`."""
    return fit_routes(train, select, (base,), kind, context=context, donors=donors, weights=weights)[0]


def amplitude_errors(
    route: Route, cases: Cases[Any], scales: Sequence[float] = SCALES, *, seed: int
) -> dict[str, NDArray[np.float64]]:
    """Errors of M2(h, s·p) through fixed weights, own and cross-system p (`tab:realization-replacements`).

    Args:
        route: an M2 route of matched donors.
        scales: S factors s of p; at 0 the errors are the base's.
        seed: of the cross-system donors, `other_system_rows`.

    Returns:
        `own` and `cross`, (S, n, K) each: mean squared error over coordinates.

    Raises:
        ValueError: for M1, which reads no p, or a route of mismatched donors.
    """
    if route.kind != "m2" or route.donors != "matched":
        raise ValueError(f"amplitudes are of M2 with matched donors; this is {route.kind} with {route.donors} donors")
    own = route.persistent(cases)
    sources = {"own": own, "cross": own[other_system_rows(cases.systems, seed, cases.strata)]}
    return {
        name: np.stack(
            [((route.predict(cases, s * p).astype(np.float64) - cases.targets) ** 2).mean(-1) for s in scales]
        )
        for name, p in sources.items()
    }


def _common(bases: Sequence[Base], train: Cases[Any]) -> RouteConfig:
    check_seeds([b.seed for b in bases])
    for b in bases:
        check_horizons("the base", b.horizons, train)
        if b.config != bases[0].config:
            raise ValueError(f"bases of seeds {bases[0].seed} and {b.seed} have other configs; routes need one")
    return bases[0].config


def _persistent(cases: Cases[Any], donors: Donors, config: RouteConfig, factors: LogFactors | None) -> NDArray[Any]:
    if factors is not None:
        return factors.true(cases)
    return codes(cases.mismatched(config.donor_seed) if donors == "mismatched" else cases)


def _predict(base: BaseNetwork, residual: ResidualNetwork, inputs: Sequence[Tensor], device: str) -> Tensor:
    """R0 + residual (R, n, K, D) on the CPU, of `recipients` and p (n, d_p)."""

    def forward(query: Tensor, actions: Tensor, p: Tensor) -> Tensor:
        h = base.features(query, actions)
        return base(h) + residual(h, p)

    return predict_stack(forward, inputs, len(base.horizon), device)
