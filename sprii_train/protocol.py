"""The five operations a learner offers (Algorithm `tab:ctp-algorithm`), and the one training loss written over them.

    encode_history   H           → z_p (B, d_p)   persistent context
    encode_current   C           → z_s (B, d_s)   current-input features
    predict          z_s, z_p, u → prediction
    task_loss        prediction, y → (B,)
    native_loss      batch, codes → scalar, parts  L_base with all its regularisers

What some measures read beyond them is optional, each an operation of its own:

    horizon_losses   prediction, y → (B, K)        the task loss by horizon
    present          observations → (B, d_q)       features of present observations that show no history
    target           observations → (B, D)         what `predict` aims at, of an observation

and two tell of which part of a prediction or of a code a relation is, for learners of several objects:

    cross_task_loss  prediction, y → (B,)          the task loss of Cross; without it, `task_loss`
    align_codes      z_p, batch → (B, d)           what Align is of; without it, the whole code

A learner whose native loss predicts each window with the other half of its pair says so by `native_of_pairs = True`.
One that Cross has nothing to add to says why by `without_cross = "…"`; see `check_objective`.

They consume what `prepare` makes of raw windows: a `Batch` of history, current input, conditioning and target, where an
embedding that several operations read is computed once.

A batch holds n donors stacked on n recipients, so each window is encoded once and every term reuses the codes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import torch
from torch import Tensor

from sprii_envs.arguments import check, choice, number
from sprii_train.devices import moved
from sprii_train.objectives import AlignTerms, align, cross, relational_info_nce


class Windows(NamedTuple):
    """Raw windows of B episodes, all float32 unless the observations are frames.

    Observations of several streams are a mapping from column to tensor, here and in the future.

    The history is `observations` with the actions between them; targets are observed at `horizons` steps
    after the last observation of the recipient, reached by `future_actions`.

    Frames are uint8, each with the one before it, from which a learner forms causal differences: `observations` is
    (B, 1 + T, H, W), the frame before the first in front (the first itself at the start of an episode), and
    `future_observations` is (B, K, 2, H, W), each target after the frame before it.
    """

    observations: Any  # (B, T, ...)
    actions: Tensor  # (B, T−1, A)
    future_observations: Any  # (B, K, ...) at `horizons`
    future_actions: Tensor  # (B, max horizon, A)
    labels: Tensor | None = None  # (B, F) persistent properties; read by supervised references only

    def to(self, device: torch.device | str) -> "Windows":
        """The same windows on a device."""
        return each(self, lambda tensor: moved(tensor, device))


class Batch(NamedTuple):
    """What the five operations consume; every field may be any structure whose leading axis is B.

    `support` is the history that a window offers to related recipients, where it is not the `history` that predicts
    its own future.
    """

    history: Any
    current: Any
    u: Any
    y: Any
    labels: Tensor | None = None
    support: Any = None


class Codes(NamedTuple):
    """Encoded windows: current features (B, d_s), persistent contexts (B, d_p) of `history` and of `support`."""

    z_s: Tensor
    z_p: Tensor
    support: Tensor | None = None

    @property
    def offered(self) -> Tensor:
        """The contexts that related recipients get, (B, d_p)."""
        return self.z_p if self.support is None else self.support


@runtime_checkable
class Learner(Protocol):
    """Any `nn.Module` with these methods can be trained with Align and Cross.

    `prepare` turns raw windows into a `Batch` and is where features shared by several operations (an observation
    embedding, say) are computed once.
    """

    def prepare(self, windows: Windows) -> Batch: ...
    def encode_history(self, history: Any) -> Tensor: ...
    def encode_current(self, current: Any) -> Tensor: ...
    def predict(self, z_s: Tensor, z_p: Tensor, u: Any) -> Tensor: ...
    def task_loss(self, prediction: Tensor, y: Any) -> Tensor: ...
    def native_loss(self, batch: Batch, codes: Codes) -> tuple[Tensor, dict[str, Tensor]]: ...


@dataclass(frozen=True)
class Objective:
    """Weights of Equation `eq:sprii-objective` and the two choices that the paper leaves open.

    Attributes:
        lambda_p: weight of Align; 0 switches it off.
        lambda_x: weight of Cross; 0 switches it off.
        lambda_nce: weight of the relational InfoNCE alternative to Align; 0 switches it off.
        temperature: of the relational InfoNCE.
        native_on: native loss on `all` 2n windows, or on the n `recipients` only.
        cross_directions: `both` (each half is once the recipient) or `one` (donor → recipient).
        invariance, variance, covariance, target_std: see `objectives.align`.
    """

    lambda_p: float = 0.0
    lambda_x: float = 0.0
    lambda_nce: float = 0.0
    temperature: float = 0.1
    native_on: str = "all"
    cross_directions: str = "both"
    invariance: float = 25.0
    variance: float = 25.0
    covariance: float = 1.0
    target_std: float = 1.0

    def __post_init__(self) -> None:
        check(self, choice, "native_on", legal=("all", "recipients"))
        check(self, choice, "cross_directions", legal=("both", "one"))
        check(self, number, "lambda_p", "lambda_x", "lambda_nce", "invariance", "variance", "covariance", least=0)
        check(self, number, "target_std", least=0)
        check(self, number, "temperature", above=0)


def encode(learner: Learner, batch: Batch) -> Codes:
    """All codes of every window."""
    support = None if batch.support is None else learner.encode_history(batch.support)
    return Codes(learner.encode_current(batch.current), learner.encode_history(batch.history), support)


def self_loss(learner: Learner, batch: Batch, codes: Codes) -> Tensor:
    """Mean task loss with each window's own context."""
    return cross(learner.predict, learner.task_loss, codes.z_s, codes.z_p, batch.u, batch.y)


def aligned_codes(learner: Learner, batch: Batch, codes: Codes) -> tuple[Tensor, Tensor]:
    """What Align is of: contexts that donors and recipients offer, or the learner's choice of them; (n, d) each."""
    part: Any = getattr(learner, "align_codes", None)
    offered: Any = part(codes.offered, batch) if callable(part) else codes.offered
    n = len(offered) // 2
    return offered[:n], offered[n:]


def align_terms(learner: Learner, batch: Batch, codes: Codes, objective: Objective) -> AlignTerms:
    """Align of the contexts that donors and recipients offer."""
    return _align(*aligned_codes(learner, batch, codes), objective)


def _align(donors: Tensor, recipients: Tensor, objective: Objective) -> AlignTerms:
    return align(
        donors,
        recipients,
        invariance=objective.invariance,
        variance=objective.variance,
        covariance=objective.covariance,
        target_std=objective.target_std,
    )


def cross_loss(learner: Learner, batch: Batch, codes: Codes, objective: Objective) -> Tensor:
    """Mean task loss with the related window's context, in one direction or both."""
    n = codes.z_p.shape[0] // 2
    if objective.cross_directions == "both":
        recipients, z_s = batch, codes.z_s
        donor_context = torch.cat([codes.offered[n:], codes.offered[:n]])
    else:
        recipients, z_s, donor_context = take(batch, slice(n, None)), codes.z_s[n:], codes.offered[:n]
    task_loss: Any = getattr(learner, "cross_task_loss", learner.task_loss)
    return cross(learner.predict, task_loss, z_s, donor_context, recipients.u, recipients.y)


def check_objective(learner: Any, objective: Objective) -> None:
    """ValueError for a weight that changes nothing of this learner, or a native loss of pairs on recipients alone."""
    name = type(learner).__name__
    if objective.native_on == "recipients" and getattr(learner, "native_of_pairs", False):
        raise ValueError(f"Objective.native_on is 'recipients', but {name}'s native loss is of pairs; legal: 'all'")
    if objective.lambda_x and (why := getattr(learner, "without_cross", "")):
        raise ValueError(f"Objective.lambda_x is {objective.lambda_x}, but {name} {why}; legal: 0")


def training_loss(learner: Learner, windows: Windows, objective: Objective) -> tuple[Tensor, dict[str, Tensor]]:
    """L = L_base + λ_p·Align + λ_x·Cross on a stacked batch of n donors and n recipients.

    In a process group the mean of the ranks' losses is the loss of all their windows, if what the native loss has of
    statistics of a batch is taken over gathered rows (`distributed.gather`).

    Args:
        windows: 2n windows; row i is the donor of row n + i.

    Returns:
        The scalar loss and its detached parts for logging.

    Raises:
        ValueError: for an odd number of windows, or as `check_objective`.
    """
    check_objective(learner, objective)
    batch = learner.prepare(windows)
    codes = encode(learner, batch)
    if codes.z_p.shape[0] % 2:
        raise ValueError(f"training_loss needs n donors stacked on n recipients, got {codes.z_p.shape[0]} windows")
    n = codes.z_p.shape[0] // 2
    if objective.native_on == "all":
        loss, parts = learner.native_loss(batch, codes)
    else:
        loss, parts = learner.native_loss(take(batch, slice(n, None)), take(codes, slice(n, None)))
    if objective.lambda_p or objective.lambda_nce:
        loss = with_relation(loss, parts, *aligned_codes(learner, batch, codes), objective)
    if objective.lambda_x:
        term = cross_loss(learner, batch, codes, objective)
        loss = loss + objective.lambda_x * term
        parts |= {"cross": term}
    return loss, {name: value.detach() for name, value in parts.items()}


def with_relation(
    loss: Tensor, parts: dict[str, Tensor], donors: Tensor, recipients: Tensor, objective: Objective
) -> Tensor:
    """A loss and what is of the related contexts of a whole batch, (n, d) each; `parts` are told of it."""
    if objective.lambda_p:
        terms = _align(donors, recipients, objective)
        loss = loss + objective.lambda_p * terms.total
        parts |= {"align": terms.total, "invariance": terms.invariance}
        parts |= {"variance": terms.variance, "covariance": terms.covariance}
    if objective.lambda_nce:
        term = relational_info_nce(donors, recipients, temperature=objective.temperature)
        loss = loss + objective.lambda_nce * term
        parts |= {"info_nce": term}
    return loss


def each(tree: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A structure of tuples, lists and mappings with every tensor of it changed."""
    if isinstance(tree, Tensor):
        return change(tree)
    if isinstance(tree, tuple):
        items = [each(item, change) for item in tree]
        return type(tree)(*items) if hasattr(tree, "_fields") else tuple(items)
    if isinstance(tree, list):
        return [each(item, change) for item in tree]
    if isinstance(tree, Mapping):
        return {key: each(item, change) for key, item in tree.items()}
    return tree


def take(tree: Any, rows: slice | Tensor) -> Any:
    """Rows of every tensor in a batch structure."""
    return each(tree, lambda tensor: tensor[rows])


def concatenated(trees: Sequence[Any]) -> Any:
    """Batch structures of one kind, their rows one after another."""
    first = trees[0]
    if isinstance(first, Tensor):
        return torch.cat(list(trees))
    if isinstance(first, tuple | list):
        items = [concatenated(items) for items in zip(*trees, strict=True)]
        return type(first)(*items) if hasattr(first, "_fields") else type(first)(items)
    if isinstance(first, Mapping):
        return {key: concatenated([tree[key] for tree in trees]) for key in first}
    return first


def optional_operation(learner: Any, name: str, what: str) -> Callable[..., Tensor]:
    """An operation beyond the five.

    Args:
        what: that reads it.

    Raises:
        MissingOperation: if the learner does not offer it.
    """
    operation: Any = getattr(learner, name, None)
    if not callable(operation):
        raise MissingOperation(f"{what} needs the operation {name!r}, which {type(learner).__name__} lacks")
    return cast(Callable[..., Tensor], operation)


class MissingOperation(TypeError):
    """A learner does not offer an operation: one of the five, or an optional one that a measure reads."""


@contextmanager
def own_modes(learner: Any) -> Iterator[list[torch.nn.Module]]:
    """Every module of a learner, given as a list, in its own mode again after the block."""
    modes = [(m, m.training) for m in learner.modules()] if isinstance(learner, torch.nn.Module) else []
    try:
        yield [module for module, _ in modes]
    finally:
        for module, mode in modes:
            module.training = mode


@contextmanager
def evaluation_mode(learner: Any) -> Iterator[None]:
    """Every module of a learner in evaluation mode for the block, and in its own mode again after it."""
    with own_modes(learner) as modules:
        for module in modules:
            module.training = False
        yield


def check_learner(learner: Learner, windows: Windows) -> None:
    """Check a learner on one stacked batch, as `check_env` checks an environment.

    Verifies that every operation exists, that shapes agree along the batch axis, that losses are finite, that the
    prediction depends on the persistent context unless that is empty, that the operations do not mix rows in
    evaluation mode.

    Raises:
        MissingOperation: naming it, a TypeError.
        ValueError: naming the operation and what it returned.
    """
    for name in ("prepare", "encode_history", "encode_current", "predict", "task_loss", "native_loss"):
        if not callable(getattr(learner, name, None)):
            raise MissingOperation(
                f"{type(learner).__name__} lacks the operation {name!r}; see sprii_train.protocol.Learner"
            )
    with evaluation_mode(learner), torch.no_grad():  # no dropout, and no batch statistics to leave behind
        _check_operations(learner, windows)


def _check_operations(learner: Learner, windows: Windows) -> None:
    size = len(windows.actions)
    if size < 4 or size % 2:
        raise ValueError(f"check_learner needs donors stacked on as many recipients, 4 windows or more, got {size}")
    batch = learner.prepare(windows)
    if not isinstance(batch, Batch):
        raise ValueError(f"prepare must return a Batch, got {type(batch).__name__}")
    codes = encode(learner, batch)
    for name, code in codes._asdict().items():
        if code is not None and (code.ndim != 2 or code.shape[0] != size):
            raise ValueError(f"{name} must have shape ({size}, d), got {tuple(code.shape)}")
    prediction = learner.predict(codes.z_s, codes.z_p, batch.u)
    losses = learner.task_loss(prediction, batch.y)
    if losses.shape != (size,):
        raise ValueError(f"task_loss must return one loss a recipient, ({size},), got {tuple(losses.shape)}")
    returned = learner.native_loss(batch, codes)
    if not (isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], dict)):
        raise ValueError(f"native_loss must return (loss, dict of parts), got {type(returned).__name__}")
    native = returned[0]
    if native.ndim != 0:
        raise ValueError(f"native_loss must return a scalar, got shape {tuple(native.shape)}")
    if not (torch.isfinite(losses).all() and torch.isfinite(native)):
        raise ValueError("task_loss or native_loss is not finite on this batch")
    of_cross: Any = getattr(learner, "cross_task_loss", None)
    if callable(of_cross):
        found: Any = of_cross(prediction, batch.y)
        if found.shape != (size,):
            raise ValueError(f"cross_task_loss must return one loss a recipient, ({size},), got {tuple(found.shape)}")
    of_align: Any = getattr(learner, "align_codes", None)
    if callable(of_align):
        found = of_align(codes.offered, batch)
        if found.ndim != 2 or found.shape[0] != size:
            raise ValueError(f"align_codes must return a code a row, ({size}, d), got {tuple(found.shape)}")
    by_horizon: Any = getattr(learner, "horizon_losses", None)
    if callable(by_horizon):
        found = by_horizon(prediction, batch.y)
        if found.ndim != 2 or found.shape[0] != size:
            raise ValueError(f"horizon_losses must return a loss by horizon, ({size}, K), got {tuple(found.shape)}")
    swapped = learner.task_loss(learner.predict(codes.z_s, codes.z_p.roll(1, 0), batch.u), batch.y)
    if codes.z_p.shape[1] and torch.equal(swapped, losses):
        raise ValueError("predict ignores z_p: another window's context gives the same losses")
    part = encode(learner, learner.prepare(take(windows, slice(0, size // 2))))
    for name, code in codes._asdict().items():
        if code is not None and not torch.allclose(code[: size // 2], getattr(part, name), atol=1e-4, rtol=1e-3):
            raise ValueError(f"{name} of a window depends on the other windows of its batch in evaluation mode")
