"""Fixed weights under substituted contexts: risk by system, its exact decomposition, amplitude sweeps.

Only the context changes; query, actions, target and every weight stay (`app:reader-interfaces`). A reader is any
callable (query, context, actions) → predictions: `learner_reader` makes one of a `Learner`, `case_reader` one of a
fitted task reader.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from sprii_train.analysis.formation import group_means, system_weights
from sprii_train.analysis.theory import Specificity, specificity
from sprii_train.analysis.use.donor_choice import Choice, paired
from sprii_train.analysis.value.cases import Cases
from sprii_train.analysis.value.risks import Predictor
from sprii_train.protocol import Learner, take

Array = NDArray[np.float64]
Reader = Callable[[Any, Tensor, Any], Any]
"""(query, context (r, d), actions) → predictions (r, ...); query and actions are structures of tensors with r rows."""

AMPLITUDES = (0.0, 0.25, 0.5, 0.75, 1.0)

CHUNK = 4096  # rows predicted at a time by default


class Effect(NamedTuple):
    """What replacing the matched donor does; systems count equally."""

    systems: NDArray[Any]  # (n,) ids
    matched: Array  # (n,) mean squared error
    substituted: Array  # (n,)
    specificity: Specificity  # of the mean over systems of substituted − matched

    @property
    def difference(self) -> Array:
        """Substituted minus matched error, (n,), for the paired bootstrap."""
        return self.substituted - self.matched


def learner_reader(learner: Learner, horizon: int | None = None) -> Reader:
    """A learner's predictor as a reader of (z_s, z_p, u).

    Args:
        horizon: index of the one predicted horizon to keep, along axis 1; all by default.
    """
    getattr(learner, "eval", lambda: None)()

    def read(query: Any, context: Tensor, actions: Any) -> Tensor:
        predicted = learner.predict(query, context, actions)
        return predicted if horizon is None else predicted[:, horizon]

    return read


def case_reader(predictor: Predictor, cases: Cases[Any], horizon: int | None = None) -> Reader:
    """A fitted task reader as a reader of rows: its queries are `torch.arange(len(cases))`, its actions None.

    Args:
        predictor: with `predict(cases)`, which reads the donor's code from `cases.context`.
        cases: the recipients.
        horizon: index of the one predicted horizon to keep, along axis 1; all by default.
    """

    def read(query: Tensor, context: Tensor, actions: None) -> NDArray[Any]:
        recipients = dataclasses.replace(cases.take(query.cpu().numpy()), context=context.cpu().numpy())
        predicted = predictor.predict(recipients)
        return predicted if horizon is None else predicted[:, horizon]

    return read


@torch.no_grad()
def predict_under(reader: Reader, query: Any, contexts: Tensor, actions: Any, chunk: int = CHUNK) -> Array:
    """Predictions of n recipients, each under one context or several.

    Args:
        query, actions: structures of tensors with n rows.
        contexts: (n, d), or (n, L, d) for L donors a recipient.
        chunk: rows predicted at a time, which bounds memory and changes nothing.

    Returns:
        (n, ...) or (n, L, ...) float64.
    """
    outer = contexts.shape[:-1]
    flat = contexts.reshape(-1, contexts.shape[-1])
    owner = torch.arange(outer[0], device=contexts.device).repeat_interleave(math.prod(outer[1:]))
    parts = []
    for i in range(0, len(flat), chunk):
        rows = owner[i : i + chunk]
        parts.append(torch.as_tensor(reader(take(query, rows), flat[i : i + chunk], take(actions, rows))))
    found = torch.cat(parts).double().cpu().numpy()
    return found.reshape(*outer, *found.shape[1:])


def effect(
    target: ArrayLike,
    matched: ArrayLike,
    substituted: ArrayLike,
    systems: ArrayLike,
    weights: NDArray[np.floating] | None = None,
) -> Effect:
    """Errors of two donors by system, and Δ_spec = sensitivity + cross (`eq:app-specificity-decomposition`).

    Squared errors are means over a row's numbers, then over a system's rows as they weigh, then over systems; the
    decomposition is of just that mean.

    Args:
        target, matched, substituted: (r, ...) of equal shape.
        systems: (r,) ids.
        weights: (r,) of the rows of a system, positive; None is equally.

    Raises:
        ValueError: for shapes that do not fit, or if the two sides of the decomposition differ numerically.
    """
    y, m, s = (_flat(name, a) for name, a in (("target", target), ("matched", matched), ("substituted", substituted)))
    if not y.shape == m.shape == s.shape:
        raise ValueError(f"target, matched and substituted must have one shape, got {y.shape}, {m.shape}, {s.shape}")
    labels = np.asarray(systems)
    if labels.shape != (len(y),):
        raise ValueError(f"systems must be ids ({len(y)},), one a row of the target, got shape {labels.shape}")
    share = np.ones(len(y)) if weights is None else np.asarray(weights, np.float64)
    share = share / group_means(share[:, None], labels)[0][np.unique(labels, return_inverse=True)[1], 0]
    squares = np.stack([np.square(y - m).mean(1), np.square(y - s).mean(1)], axis=1)
    errors, first = group_means(squares * share[:, None], labels)
    # `specificity` averages sums of squares over rows: so scaled, that is the mean over numbers, rows and systems.
    scale = np.sqrt(share * system_weights(labels) / y.shape[1])[:, None]
    parts = specificity(scale * y, scale * m, scale * s)
    total = float((errors[:, 1] - errors[:, 0]).mean())
    tolerance = 1e-9 * max(float(errors.mean(0).sum()), parts.sensitivity)
    if abs(parts.sensitivity + parts.cross - total) > tolerance or abs(parts.total - total) > tolerance:
        raise ValueError(f"the decomposition {parts} does not add up to the change of error {total!r}")
    return Effect(labels[first], errors[:, 0], errors[:, 1], parts)


def intervene(
    reader: Reader,
    query: Any,
    contexts: Tensor,
    actions: Any,
    target: ArrayLike,
    systems: ArrayLike,
    found: Mapping[str, Choice],
) -> dict[str, Effect]:
    """Every substitution against the matched donor, on the recipients that have both, and `zero` contexts.

    Args:
        query, actions, target, systems: one entry a row of the table that the choices are of.
        contexts: (N, d) codes of the same rows.
        found: `matched` and any others, from `donor_choice.choices`; one without any recipient is left out.

    Returns:
        The name of the substitution → its effect.

    Raises:
        ValueError: without a `matched` choice.
    """
    if "matched" not in found:
        raise ValueError(f"substitutions are compared with 'matched' donors; given were {', '.join(found) or 'none'}")
    target, systems = np.asarray(target), np.asarray(systems)
    own = found["matched"]

    def measured(recipient: NDArray[np.int64], matched: Tensor, substituted: Tensor) -> Effect:
        rows = torch.from_numpy(recipient).to(contexts.device)
        both = torch.stack([matched, substituted], dim=1)
        predicted = predict_under(reader, take(query, rows), both, take(actions, rows))
        return effect(target[recipient], predicted[:, 0], predicted[:, 1], systems[recipient])

    effects = {}
    for name, choice in found.items():
        recipient, matched, donor = paired(own, choice)
        if name != "matched" and len(recipient):
            effects[name] = measured(recipient, contexts[matched], contexts[donor])
    context = contexts[own.donor]
    return effects | {"zero": measured(own.recipient, context, torch.zeros_like(context))}


def amplitude_sweep(
    reader: Reader,
    query: Any,
    contexts: Tensor,
    actions: Any,
    target: ArrayLike,
    systems: ArrayLike,
    amplitudes: Sequence[float] = AMPLITUDES,
) -> Array:
    """Mean squared error (A, n) by system as contexts p become s·p (`tab:realization-replacements`).

    Args:
        query, actions, target, systems: r recipients.
        contexts: (r, d) of their donors: their own system's, or another's.
        amplitudes: the A values of s.
    """
    scaled = contexts[:, None] * torch.as_tensor(amplitudes, dtype=contexts.dtype, device=contexts.device)[:, None]
    predicted = predict_under(reader, query, scaled, actions)
    y = _flat("target", target)
    errors = np.square(predicted.reshape(*predicted.shape[:2], -1) - y[:, None]).mean(-1)
    return group_means(errors, np.asarray(systems))[0].T


def _flat(name: str, values: ArrayLike) -> Array:
    array = np.asarray(values, np.float64)
    if array.ndim < 1 or not array.size:
        raise ValueError(f"{name} must have r >= 1 rows, got shape {array.shape}")
    return array.reshape(len(array), -1)
