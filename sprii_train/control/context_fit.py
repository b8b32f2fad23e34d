"""A context fitted at test time: the one that predicts the running episode's last transitions best.

    J(c) = ½ Σ_i ‖(step(s_i, a_i, c) − s'_i) / σ‖² + ½ (c − μ)ᵀ Λ (c − μ)

over the last K transitions, with s = `model.state(o, c)`, or the observation; μ is the encoder's context or the
training contexts' mean, Λ their precision. It needs neither labels nor equations, any model with `step` and a context,
and few transitions: with none it is the encoder's context. A model that is linear in its context is solved by one
Newton step, the ridge solution.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from sprii_envs.arguments import check, choice, instance, integer, number, shown
from sprii_train.control.agent import DynamicsModel, started
from sprii_train.learners.histories import History

METHODS = ("newton", "gradient", "cem")
CENTRES = ("encoder", "training")
_LEAST_SD = 1e-3  # of a context coordinate, as a share of the largest: one that training never moved stays where it is


@dataclass(frozen=True, eq=False)
class ContextPrior:
    """What training says of contexts and errors.

    Attributes:
        mean, precision: (d,), (d, d) of the training contexts' Gaussian.
        noise: (Z,), the RMS error of a step by coordinate of the state, which weighs transitions against the Gaussian.
        low, high: (d,), where contexts end, if they do, as masses do at 0.
    """

    mean: Tensor
    precision: Tensor
    noise: Tensor
    low: Tensor | None = None
    high: Tensor | None = None

    def __post_init__(self) -> None:
        """ValueError for shapes that do not go together, or a precision or noise that is not positive."""
        d = len(self.mean)
        for name, shape in (("mean", (d,)), ("precision", (d, d)), ("low", (d,)), ("high", (d,))):
            value = getattr(self, name)
            if value is not None and tuple(value.shape) != shape:
                raise ValueError(f"ContextPrior.{name} has shape {tuple(value.shape)}; legal: {shape}")
        if not bool((self.noise > 0).all()) or not bool((torch.linalg.eigvalsh(self.precision.double()) > 0).all()):
            raise ValueError("ContextPrior.noise and .precision must be positive (definite)")

    def clamp(self, contexts: Tensor) -> Tensor:
        """Contexts (…, d) within low and high."""
        return contexts if self.low is None and self.high is None else contexts.clamp(self.low, self.high)


@dataclass(frozen=True, eq=False)
class ContextFit:
    """How contexts are fitted; the one argument of a `PlanningAgent`.

    Attributes:
        prior: see `ContextPrior`; `calibrated` finds it.
        transitions: K, of the running episode.
        method: `newton` (Levenberg and Marquardt's, with central differences), `gradient` (Adam; `step` must be
            differentiable), or `cem`, a population of contexts, elites of which are sampled around anew.
        steps: of the method; 0 keeps the better of the two starts.
        centre: μ, the `encoder`'s context or the `training` contexts' mean.
        strength: what Λ is multiplied by.
        rate: of Adam, in SDs of the training contexts.
        candidates, elites, spread: of `cem`; the first population has `spread` training SDs.
        seed: of `cem`.
    """

    prior: ContextPrior
    transitions: int = 10
    method: Literal["newton", "gradient", "cem"] = "newton"
    steps: int = 4
    centre: Literal["encoder", "training"] = "encoder"
    strength: float = 1.0
    rate: float = 0.3
    candidates: int = 64
    elites: int = 8
    spread: float = 1.0
    seed: int = 0
    _sd: Tensor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        check(self, instance, "prior", of=ContextPrior)
        check(self, integer, "transitions", "elites", least=1)
        check(self, integer, "steps", "seed")
        check(self, integer, "candidates", least=2)
        check(self, choice, "method", legal=METHODS)
        check(self, choice, "centre", legal=CENTRES)
        check(self, number, "strength", least=0)
        check(self, number, "rate", "spread", above=0)
        if self.elites > self.candidates:
            raise ValueError(f"ContextFit.elites is {self.elites}; legal: at most the {self.candidates} candidates")
        sd = torch.linalg.inv(self.prior.precision.double()).diagonal().sqrt().to(self.prior.mean)
        object.__setattr__(self, "_sd", sd)

    @torch.no_grad()
    def __call__(self, model: DynamicsModel, history: History, encoded: Tensor, warm: Tensor | None = None) -> Tensor:
        """Contexts (E, d) of the transitions in a history of E episodes.

        Args:
            history: of `transitions` slots or fewer, in any number filled.
            encoded: (E, d), the encoder's contexts, where the fit starts and what it returns of an episode without a
                transition.
            warm: (E, d), another start, such as the previous step's fit; of both the better is taken.

        Returns:
            Contexts of an objective no higher than that of either start. No parameter of the model gets a gradient.

        Raises:
            ValueError: for contexts of another size than the prior's, or a model without any.
        """
        _vectors("encoded", encoded)
        if encoded.ndim != 2 or encoded.shape[1] != len(self.prior.mean):
            raise ValueError(f"contexts have shape {tuple(encoded.shape)}; legal: (E, {len(self.prior.mean)})")
        objective = _Objective(self, model, history, encoded)
        best, value = encoded, objective(encoded[:, None])[:, 0]
        if warm is not None:
            best, value = _better(best, value, warm, objective(warm[:, None])[:, 0])
        best, _ = _SOLVERS[self.method](self, objective, best, value)
        return torch.where(history.filled[:, None] > 0, best, encoded)


class _Objective:
    """J of contexts (E, N, d), and the residuals that it sums the squares of."""

    def __init__(self, fit: ContextFit, model: DynamicsModel, history: History, encoded: Tensor) -> None:
        self.model, self.prior = model, fit.prior
        self.history = History(*(x.clone() for x in history))  # those of inference mode record no gradient
        self.mask = self.history.mask
        self.precision = fit.strength * fit.prior.precision
        self.centre = encoded.clone() if fit.centre == "encoder" else fit.prior.mean.expand_as(encoded)

    def residuals(self, contexts: Tensor) -> Tensor:
        """(E, N, K·Z), over the noise; zero in empty slots."""
        episodes, n, d = contexts.shape
        seen, taken, after, _ = self.history
        k = taken.shape[1]

        def rows(values: Tensor) -> Tensor:
            return values[:, None].expand(-1, n, -1, -1).reshape(episodes * n * k, -1)

        context = contexts[:, :, None].expand(-1, -1, k, -1).reshape(-1, d)
        found = self.model.step(started(self.model, rows(seen), context), rows(taken), context)
        error = (found - started(self.model, rows(after), context)) / self.prior.noise
        return (error.view(episodes, n, k, -1) * self.mask[:, None, :, None]).flatten(2)

    def __call__(self, contexts: Tensor) -> Tensor:
        """(E, N); not finite is infinite."""
        off = contexts - self.centre[:, None]
        value = 0.5 * (self.residuals(contexts).square().sum(2) + ((off @ self.precision) * off).sum(2))
        return torch.where(torch.isfinite(value), value, torch.inf)


Solver = Callable[[ContextFit, _Objective, Tensor, Tensor], tuple[Tensor, Tensor]]


def _newton(fit: ContextFit, objective: _Objective, context: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Gauss and Newton's steps, damped where one would not lower J."""
    d, step = context.shape[1], 0.1 * fit._sd
    shifts = torch.diag(step)
    damping = context.new_zeros(len(context))
    for _ in range(fit.steps):
        points = torch.cat([context[:, None], context[:, None] + shifts, context[:, None] - shifts], 1)
        r = objective.residuals(points).double()
        jacobian = ((r[:, 1 : 1 + d] - r[:, 1 + d :]) / (2.0 * step[:, None])).transpose(1, 2)  # (E, K·Z, d)
        off = (context - objective.centre).double()
        hessian = jacobian.mT @ jacobian + objective.precision
        slope = (jacobian.mT @ r[:, 0, :, None])[..., 0] + off @ objective.precision.double()
        lifted = hessian + torch.diag_embed(damping[:, None] * hessian.diagonal(dim1=1, dim2=2))
        change = torch.linalg.solve_ex(lifted, slope)[0]
        tried = objective.prior.clamp(context - torch.nan_to_num(change).to(context))
        found = objective(tried[:, None])[:, 0]
        damping = torch.where(found < value, damping * 0.1, (damping * 10.0).clamp(min=0.1))
        context, value = _better(context, value, tried, found)
    return context, value


def _gradient(fit: ContextFit, objective: _Objective, context: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Adam on J in units of training SDs; the best of its points."""
    first, second, here = torch.zeros_like(context), torch.zeros_like(context), context
    for t in range(1, fit.steps + 1):
        with torch.enable_grad():
            point = here.clone().requires_grad_()
            slope = torch.autograd.grad(objective(point[:, None]).sum(), point)[0] * fit._sd
        first, second = first.lerp(slope, 0.1), second.lerp(slope.square(), 0.01)
        move = (first / (1 - 0.9**t)) / ((second / (1 - 0.99**t)).sqrt() + 1e-8)
        here = objective.prior.clamp(here - fit.rate * fit._sd * torch.nan_to_num(move))
        context, value = _better(context, value, here, objective(here[:, None])[:, 0])
    return context, value


def _cem(fit: ContextFit, objective: _Objective, context: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Elites of a population around the best so far."""
    generator = torch.Generator(context.device).manual_seed(fit.seed)
    mean, sd = context, (fit.spread * fit._sd).expand_as(context)
    for _ in range(fit.steps):
        noise = torch.randn(fit.candidates, context.shape[1], generator=generator, device=context.device)
        tried = objective.prior.clamp(mean[:, None] + sd[:, None] * noise)
        found = objective(tried)
        least, which = found.topk(fit.elites, dim=1, largest=False)
        elites = tried.gather(1, which[..., None].expand(-1, -1, context.shape[1]))
        context, value = _better(context, value, elites[:, 0], least[:, 0])
        sd = (elites - mean[:, None]).square().mean(1).sqrt()  # around the old mean: a population that moves stays wide
        mean = elites.mean(1)
    return context, value


_SOLVERS: dict[str, Solver] = {"newton": _newton, "gradient": _gradient, "cem": _cem}


def _better(context: Tensor, value: Tensor, other: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    lower = others < value
    return torch.where(lower[:, None], other, context), torch.where(lower, others, value)


@torch.no_grad()
def calibrated(model: DynamicsModel, history: History, contexts: Tensor | None = None, **ends: Any) -> ContextPrior:
    """The prior of a model: Gaussian of its contexts of training histories, and its errors there.

    Args:
        history: of training episodes; their systems need not be known.
        contexts: (B, d), by default the encoder's.
        ends: `low`, `high` of the prior.

    Raises:
        ValueError: for fewer than two histories, contexts that are all one, or a model without any.
    """
    if contexts is None:
        found = _vectors(f"what {type(model).__name__}.context returns", model.context(history))
    else:
        found = _vectors("contexts", contexts)
    if len(found) < 2:
        raise ValueError(f"history is of {len(found)} episodes; legal: two or more")
    spread = found.double()
    covariance = torch.cov(spread.mT).reshape(found.shape[1], found.shape[1])
    floor = (_LEAST_SD**2) * covariance.diagonal().amax()
    if not float(floor) > 0:
        raise ValueError("the contexts of all histories are one; legal: a model whose contexts differ")
    precision = torch.linalg.inv(covariance + floor * torch.eye(len(covariance), device=found.device))
    mean = spread.mean(0).to(found)
    noise = torch.ones(1, device=found.device)
    unit = ContextFit(ContextPrior(mean, precision.to(found), noise))
    errors = _Objective(unit, model, history, found).residuals(found[:, None]).unflatten(2, (history.mask.shape[1], -1))
    count = history.mask.sum()
    rms = (errors[:, 0].double().square().sum((0, 1)) / count).sqrt()
    return ContextPrior(mean, precision.to(found), rms.clamp(min=1e-6).to(found), **ends)


def _vectors(name: str, contexts: Any) -> Tensor:
    if not isinstance(contexts, Tensor):
        raise ValueError(f"{name} is {shown(contexts)}; legal with a fit at test time: a tensor of contexts (E, d)")
    return contexts
