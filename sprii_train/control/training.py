"""Training CaDM on growing experience: a few epochs over all of it, after every iteration of collection.

Validation anchors, batches and related pairs are functions of (seed, iteration, epoch, step). Between iterations a run
is its experience, weights and optimiser's moments; `checkpoints.save_training_state` keeps the latter two and, as its
step, the number of finished iterations. A resumed run equals an uninterrupted one bit for bit on a CPU.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from sprii_envs.arguments import check, instance, integer, number
from sprii_train.control.anchors import TrainingRows, anchors, epoch_order, rows, split
from sprii_train.control.experience import Experience
from sprii_train.control.relations import RelatedAnchors, RelationPairs, align_members, check_recipe
from sprii_train.control.tables import Tables, standardised
from sprii_train.devices import moved
from sprii_train.fit import NonFiniteLoss
from sprii_train.learners.cadm import CaDM
from sprii_train.protocol import Objective
from sprii_train.recipes import CONTROL_RECIPES, SHIFTED, Recipe
from sprii_train.records import Records

_CHUNK = 8192  # rows validated at a time: bounds memory


@dataclass(frozen=True)
class ControlTraining:
    """Optimisation after each iteration; the defaults are the published ones of CaDM.

    Attributes:
        epochs: over all experience, at most.
        batch: (window, offset) rows of an update, for each member.
        learning_rate: Adam's.
        first_anchor, dropped_transitions: see `anchors.anchors`; with 0 and 0 everything is trained on.
        validation, validation_limit: share of the anchors held out, drawn anew at every iteration; at most so many.
        early_stop: persistence of the rolling mean of the validation loss that ends an iteration's epochs, see
            `has_risen`; published with 0.99. None: no early stop, and one validation an iteration.
        systems: related pairs in an update at most, one for each system.
    """

    epochs: int = 5
    batch: int = 256
    learning_rate: float = 1e-3
    first_anchor: int = 1
    dropped_transitions: int = 1
    validation: float = 0.1
    validation_limit: int = 5000
    early_stop: float | None = None
    systems: int = 32

    def __post_init__(self) -> None:
        check(self, integer, "epochs", "batch", least=1)
        check(self, integer, "first_anchor", "dropped_transitions", "validation_limit")
        check(self, integer, "systems", least=2)
        check(self, number, "learning_rate", above=0)
        check(self, number, "validation", least=0, below=1)
        check(self, number, "early_stop", least=0, below=1, optional=True)


@dataclass(frozen=True)
class IterationReport:
    """What one iteration of training did.

    Attributes:
        iteration, episodes: its number, from 0, and how many episodes there were.
        rows: (window, offset) rows of an epoch.
        epochs, updates: done in this iteration.
        eligible_systems: systems that can give a related pair, whether or not the recipe asks for one.
        losses: name → mean over the last epoch; `l2` is that of its end.
        validation: standardised forward error of the held-out anchors, after every epoch or the last one; empty if
            none are held out.
        seconds: all of this took.
    """

    iteration: int
    episodes: int
    rows: int
    epochs: int
    updates: int
    eligible_systems: int
    losses: Mapping[str, float]
    validation: tuple[float, ...]
    seconds: float


def build_optimizer(learner: CaDM, config: ControlTraining) -> torch.optim.Adam:
    """Fused Adam, whose (coupled) weight decay is the gradient of CaDM's L2 term."""
    decay = {id(weight): value for weight, value in learner.decays()}
    groups: dict[float, list[nn.Parameter]] = {}
    for parameter in learner.parameters():
        groups.setdefault(decay.get(id(parameter), 0.0), []).append(parameter)
    described = [{"params": members, "weight_decay": value} for value, members in groups.items()]
    return torch.optim.Adam(described, lr=config.learning_rate, fused=True)


def updates_done(optimizer: torch.optim.Optimizer) -> int:
    """Updates since the start of the run, over all its resumptions."""
    return max((int(state["step"]) for state in optimizer.state.values()), default=0)


def train_iteration(
    learner: CaDM,
    optimizer: torch.optim.Optimizer,
    experience: Experience,
    iteration: int,
    config: ControlTraining,
    recipe: Recipe = CONTROL_RECIPES["cadm"],
    records: Records | None = None,
    *,
    seed: int = 0,
) -> IterationReport:
    """Refit the statistics, then train on all experience, in place.

    Args:
        learner, optimizer: carried from iteration to iteration; the latter is of `build_optimizer`.
        iteration: from 0; with the seed it decides every draw.
        recipe: under every recipe the weights are CaDM's to the last bit while fewer than two systems are eligible.
        records: gets the means of each epoch, at the number of updates since the start.
        seed: of batches, validation anchors and related pairs.

    Raises:
        ValueError: for experience without a row to train on, or a config, recipe, iteration or seed that is none.
        NonFiniteLoss: naming term, iteration, epoch and update, before that update changes a weight.
    """
    iteration, seed = integer("iteration", iteration), integer("seed", seed)
    instance("config", config, of=ControlTraining)
    check_recipe(recipe)
    began, start = time.perf_counter(), updates_done(optimizer)
    key = {"seed": seed, "iteration": iteration}
    at = anchors(
        experience.lengths, window=learner.config.window, first=config.first_anchor, dropped=config.dropped_transitions
    )
    trained, held_out = split(len(at.time), share=config.validation, limit=config.validation_limit, **key)
    used, validated = rows(at, trained), rows(at, held_out)
    if not len(used.anchor):
        raise ValueError(f"{len(experience)} episodes have no row to train on; collect more or longer ones")
    pairs = RelationPairs(
        experience, at, trained, history=learner.history, shifted=recipe.kernel == SHIFTED, systems=config.systems,
        seed=seed,
    )  # fmt: skip
    tables = standardised(learner, experience, at)
    losses: dict[str, float] = {}
    validation: list[float] = []
    epochs = 0
    for epoch in range(config.epochs):
        order = epoch_order(len(used.anchor), learner.config.members, **key, epoch=epoch)
        ordered = TrainingRows(*(numbers[order] for numbers in used))
        draw = partial(pairs.draw, iteration, epoch) if recipe.objective.lambda_p else None
        try:
            losses = _train_epoch(learner, optimizer, tables, ordered, config.batch, draw, recipe.objective)
        except NonFiniteLoss as error:
            raise NonFiniteLoss(f"iteration {iteration}, epoch {epoch}, {error}") from None
        if len(validated.anchor) and (config.early_stop is not None or epoch + 1 == config.epochs):
            validation.append(validation_error(learner, tables, validated))
            losses["validation"] = validation[-1]
        epochs += 1
        if records is not None:
            records.log(updates_done(optimizer), losses | {"iteration": iteration, "eligible_systems": pairs.eligible})
        if config.early_stop is not None and has_risen(validation, config.early_stop):
            break
    return IterationReport(
        iteration=iteration,
        episodes=len(experience),
        rows=len(used.anchor),
        epochs=epochs,
        updates=updates_done(optimizer) - start,
        eligible_systems=pairs.eligible,
        losses=losses,
        validation=tuple(validation),
        seconds=time.perf_counter() - began,
    )


def has_risen(validation: Sequence[float], persistence: float) -> bool:
    """Whether the last validation loss of an iteration lifts the rolling mean p·mean + (1 − p)·loss, as published.

    The mean begins at 1.5 times the first loss, so that a noisy start does not stop training.
    """
    mean = 1.5 * validation[0] if validation else math.inf
    for loss in validation[:-1]:
        mean = persistence * mean + (1.0 - persistence) * loss
    return bool(validation) and validation[-1] > mean


def errors(
    learner: CaDM, tables: Tables, anchor: Tensor, transition: Tensor, related: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """Squared errors of standardised changes.

    Args:
        anchor, transition: (members, B) int64, a batch of rows for each member.
        related: (n,) int64, anchors whose contexts are wanted beside.

    Returns:
        (2, members): forward and backward, mean over rows and coordinates; and the contexts (members, n, d), if wanted.
    """
    members, size = anchor.shape
    if related is not None:
        anchor = torch.cat([anchor, related.expand(members, -1)], dim=1)
    contexts = learner.encode(tables.histories.index_select(0, anchor.flatten()).unflatten(0, anchor.shape))
    drawn = tables.transitions.index_select(1, transition.flatten()).unflatten(1, transition.shape)
    dim = learner.config.observation_dim
    prediction = learner.predictions(drawn[..., :-dim], contexts[:, :size])
    found = (prediction - drawn[..., -dim:]).square().mean((2, 3))
    return found, None if related is None else contexts[:, size:]


def update(
    learner: CaDM,
    optimizer: torch.optim.Optimizer,
    tables: Tables,
    anchor: Tensor,
    transition: Tensor,
    pairs: RelatedAnchors | None,
    objective: Objective,
) -> dict[str, Tensor]:
    """One update by CaDM's loss and, with pairs, `objective.lambda_p`·Align; the parts, without L2, detached.

    Args:
        anchor, transition: (members, B) int64, a batch of rows for each member.

    Raises:
        NonFiniteLoss: before any weight changes.
    """
    related = None
    if pairs is not None:
        related = torch.cat([moved(torch.from_numpy(side), anchor.device) for side in (pairs.donor, pairs.recipient)])
    (forward, backward), contexts = errors(learner, tables, anchor, transition, related)
    parts = {"forward": forward.sum(), "backward": backward.sum()}
    loss = parts["forward"] + learner.config.backward_weight * parts["backward"]
    if contexts is not None:
        terms = align_members(contexts, objective)
        loss = loss + objective.lambda_p * terms.total
        parts |= {"align": terms.total, "invariance": terms.invariance}
        parts |= {"variance": terms.variance, "covariance": terms.covariance}
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    norm = get_total_norm([p.grad for p in learner.parameters() if p.grad is not None])
    told = torch.stack([each.detach() for each in (loss, norm, *parts.values())])
    value, norm, *told = told.tolist()  # the update's only wait for the device; weights have not changed yet
    if not math.isfinite(value):
        bad = [name for name, part in zip(parts, told, strict=True) if not math.isfinite(part)]
        raise NonFiniteLoss(f"{', '.join(bad) or 'loss'} is not finite")
    if not math.isfinite(norm):
        raise NonFiniteLoss(f"the gradient norm is not finite although the loss is {value}")
    optimizer.step()
    return {name: part.detach() for name, part in parts.items()}


@torch.no_grad()
def validation_error(learner: CaDM, tables: Tables, row: TrainingRows) -> float:
    """Mean squared forward error of rows, standardised, mean over members."""
    members, total = learner.config.members, 0.0
    device = tables.histories.device
    for chunk in zip(*(torch.from_numpy(x).to(device).split(_CHUNK) for x in row), strict=True):
        found, _ = errors(learner, tables, *(x.expand(members, -1) for x in chunk))
        total += found[0].mean().item() * len(chunk[0])
    return total / len(row.anchor)


def _train_epoch(
    learner: CaDM,
    optimizer: torch.optim.Optimizer,
    tables: Tables,
    row: TrainingRows,
    batch: int,
    draw: Callable[[int], RelatedAnchors | None] | None,
    objective: Objective,
) -> dict[str, float]:
    """Updates by successive batches of ordered rows (members, R); the mean of each part."""
    device, totals, steps = tables.histories.device, {}, math.ceil(row.anchor.shape[1] / batch)
    batches = zip(*(torch.from_numpy(x).to(device).split(batch, dim=1) for x in row), strict=True)
    for step, (anchor, transition) in enumerate(batches):
        pairs = None if draw is None else draw(step)
        try:
            parts = update(learner, optimizer, tables, anchor, transition, pairs, objective)
        except NonFiniteLoss as error:
            raise NonFiniteLoss(f"update {step}: {error}") from None
        totals = {name: part + totals.get(name, 0.0) for name, part in parts.items()}
    means = {name: total.item() / steps for name, total in totals.items()}
    return means | {"l2": learner.l2().item()}
