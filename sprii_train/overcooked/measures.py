"""Formation and use of a partner's slot: behaviour probe, distances, and other histories at fixed weights.

Formation is read on a panel of fresh episodes with one fixed ego (`panel`), so that samples of two partners differ in
nothing but the partner; a slot of histories would tell learning runs of egos apart as well.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sprii_envs.overcooked.bank import HistoryBank
from sprii_train.learners.ad import AD, Play
from sprii_train.overcooked.panel import Panel
from sprii_train.overcooked.windows import SPAN, read_windows

Array = NDArray[np.float64]

PENALTY = 1e-3
"""Of the published probe's ridge."""

PENALTIES = tuple(10.0**power for power in range(-3, 5))
"""Among which one is chosen by partners that the ridge was not fitted with."""

SHOWN = 8
"""Principal components of what a sample shows without a learner: as many as partners' visible habits, say."""


class Slots(NamedTuple):
    """Codes of samples of some partners.

    Attributes:
        codes: (N, slot).
        partners: ids, (N,).
        contexts: places of the samples, (N,); those of one place begin alike, so that no distance compares them.
    """

    codes: Array
    partners: NDArray[np.int64]
    contexts: NDArray[np.int64]


class Probed(NamedTuple):
    """Mean squared errors by partner, and of the fitted samples' mean signature in its place, (P,) each."""

    error: Array
    constant: Array


class Swapped(NamedTuple):
    """Cross-entropy of the ego's actions with other slots: of the same partner, none, and of another one."""

    matched: float
    null: float
    wrong: float


def slots(learner: AD, panel: Panel, *, batch: int = 64) -> Array:
    """A pooled slot of each sample, (N, slot)."""
    whole = Play(*(torch.from_numpy(part) for part in (panel.observations, panel.actions, panel.rewards)))
    with torch.inference_mode():
        parts = [
            learner.encode_history(Play(*(field[i : i + batch] for field in whole)))
            for i in range(0, len(panel.partners), batch)
        ]
    return torch.cat(parts).double().numpy()


def shown(panel: Panel, partners: NDArray[np.int64]) -> Array:
    """What a sample shows without a learner, (N, ≤ 8): principal components of mean observations, actions and rewards.

    Args:
        partners: whose fit samples the components are of.
    """
    seen = panel.observations.reshape(*panel.actions.shape, -1)
    counts = np.stack([panel.actions == action for action in range(6)], axis=-1)
    parts = (seen, counts, panel.rewards[..., None])
    means = np.concatenate([part.mean((1, 2), dtype=np.float64) for part in parts], axis=1)
    fitted = means[panel.fit & np.isin(panel.partners, partners)]
    standard = StandardScaler().fit(fitted)
    rank = int(np.linalg.matrix_rank(np.asarray(standard.transform(fitted))))
    return PCA(min(SHOWN, rank), random_state=0).fit(standard.transform(fitted)).transform(standard.transform(means))


def chosen(panel: Panel, codes: Array, partners: NDArray[np.int64], *, fit: bool) -> Slots:
    """The fit or test samples of some partners."""
    rows = (panel.fit == fit) & np.isin(panel.partners, partners)
    return Slots(codes[rows], panel.partners[rows], panel.contexts[rows])


def probe(fitted: Slots, tested: Slots, signatures: Array, *, penalty: float = PENALTY) -> Probed:
    """Ridge from standardised slots to signatures.

    Args:
        fitted: samples of the training partners, the only ones that anything is taken from.
        tested: further samples, of these partners or of others; results are in the order of their ids.
        signatures: of all partners, (P, F).
    """
    targets, wanted = signatures[fitted.partners], signatures[tested.partners]
    model = make_pipeline(StandardScaler(), Ridge(alpha=penalty)).fit(fitted.codes, targets)
    read = np.square(model.predict(tested.codes).reshape(wanted.shape) - wanted).mean(1)
    constant = np.square(targets.mean(0) - wanted).mean(1)
    of = [tested.partners == partner for partner in np.unique(tested.partners)]
    return Probed(np.array([read[rows].mean() for rows in of]), np.array([constant[rows].mean() for rows in of]))


def compact(signatures: Array) -> Array:
    """P signatures (P, F) by P numbers each, whose mean squared differences are the same: what a probe costs.

    A linear probe stays in the plane of the signatures it was fitted to, so that nothing is lost.
    """
    left, size, _ = np.linalg.svd(signatures, full_matrices=False)
    return left * size * np.sqrt(len(size) / signatures.shape[1])


def chosen_penalty(fitted: Slots, signatures: Array) -> float:
    """That of `PENALTIES` whose probes read partners best that they were not fitted with; of fit samples alone."""

    def error(penalty: float) -> float:
        return float(left_out(fitted, fitted, signatures, penalty=penalty).error.mean())

    return min(PENALTIES, key=error)


def left_out(fitted: Slots, tested: Slots, signatures: Array, *, penalty: float | None = None) -> Probed:
    """Each partner read by a probe, and compared with a constant, of the other partners: a new one to both.

    Args:
        fitted, tested: samples of the same partners.
        penalty: of the ridge; None chooses it for each partner, among the others.

    Raises:
        ValueError: for a single partner.
    """
    names = np.unique(fitted.partners)
    if len(names) < 2:
        raise ValueError(f"fitted samples are of {len(names)} partners; legal: at least 2")
    found = []
    for name in names:
        others, own = (
            Slots(part.codes[rows], part.partners[rows], part.contexts[rows])
            for part, rows in ((fitted, fitted.partners != name), (tested, tested.partners == name))
        )
        of = penalty if penalty is not None else PENALTY if len(names) == 2 else chosen_penalty(others, signatures)
        found.append(probe(others, own, signatures, penalty=of))
    return Probed(*(np.concatenate(parts) for parts in zip(*found, strict=True)))


def distance_ratio(fitted: Slots, tested: Slots) -> float:
    """Mean cosine distance between test slots of different partners over that between those of one partner.

    Slots are standardised by the fitted ones; pairs of one context are left out, so that all pairs begin unlike. A
    constant slot has 1.

    Raises:
        ValueError: without two partners, or two contexts of one, or for slots that differ between partners
            and not within them.
    """
    codes = np.asarray(StandardScaler().fit(fitted.codes).transform(tested.codes))
    apart = cosine_distances(codes)
    unlike = tested.contexts[:, None] != tested.contexts[None]
    same = tested.partners[:, None] == tested.partners[None]
    if not (same & unlike).any() or not (~same & unlike).any():
        raise ValueError("a distance ratio needs samples of two partners, and two contexts of one of them")
    within = apart[same & unlike].mean()
    if within < 1e-12:
        raise ValueError("a distance ratio is undefined: the slots of each partner are the same in all its samples")
    return float(apart[~same & unlike].mean() / within)


def cosine_distances(codes: Array) -> Array:
    """1 − cosine of all pairs, (N, N); a slot of zeros is at distance 1 from every other."""
    norms = np.linalg.norm(codes, axis=1, keepdims=True)
    unit = codes / np.where(norms > 0, norms, 1.0)
    return 1.0 - unit @ unit.T


def two_names(fitted: Slots, tested: Slots) -> tuple[float, float]:
    """What ratio and probe say where one partner has two names, one for its fit samples and one for its test samples.

    Returns:
        The distance ratio of names within partners, 1 where names mean nothing; and the error of a probe from slots to
        names within a partner over that of their mean, mean over partners, at least 1 where they mean nothing. Names of
        the probe alternate with contexts.
    """
    codes = np.asarray(StandardScaler().fit(fitted.codes).transform(np.concatenate([fitted.codes, tested.codes])))
    partners, contexts = (np.concatenate(pair) for pair in zip(fitted[1:], tested[1:], strict=True))
    names = np.repeat([0, 1], [len(fitted.codes), len(tested.codes)])
    apart, same = cosine_distances(codes), names[:, None] == names[None]
    own = (partners[:, None] == partners[None]) & (contexts[:, None] != contexts[None])
    sign, errors = np.array([[1.0], [-1.0]]), []
    for partner in np.unique(tested.partners):
        a, b = (
            Slots(part.codes[rows], part.contexts[rows] % 2, part.contexts[rows])
            for part, rows in ((each, each.partners == partner) for each in (fitted, tested))
        )
        told = probe(a, b, sign)
        errors.append(told.error.mean() / told.constant.mean())
    return float(apart[own & ~same].mean() / apart[own & same].mean()), float(np.mean(errors))


def swapped(
    learner: AD, bank: HistoryBank, split: str, panel: Panel, codes: Array, *, seed: int = 0, batch: int = 64
) -> Swapped:
    """The action loss of the last query of a split's histories at fixed weights, with slots of the panel's fit samples.

    Slots of the same partner and of another one are of the same ego, so that they differ in the partner alone.

    Args:
        codes: slots of the panel's samples; another partner is one of the split's.
    """
    table, rng = bank.split(split), np.random.default_rng(seed)
    partners, begin = table["system"], bank.protocol.episodes - SPAN
    others = np.unique(partners)

    def drawn(partner: int) -> int:
        return int(rng.choice(np.flatnonzero(panel.fit & (panel.partners == partner))))

    own = np.array([drawn(partner) for partner in partners])
    wrong = np.array([drawn(rng.choice(others[others != partner])) for partner in partners])
    losses: list[list[float]] = []
    with torch.inference_mode():
        for rows in np.array_split(np.arange(len(table)), -(-len(table) // batch)):
            told = learner.prepare(read_windows(bank, table, rows, np.full(len(rows), begin)))
            z_s = learner.encode_current(told.current)
            found = (torch.from_numpy(codes[which[rows]]).float() for which in (own, wrong))
            matched, other = found
            choices = (matched, torch.zeros_like(matched), other)
            losses.append([float(learner.task_loss(learner.predict(z_s, z, None), told.y).sum()) for z in choices])
    return Swapped(*(np.sum(losses, axis=0) / len(table)).tolist())


def imitated(bank: HistoryBank) -> tuple[dict[str, float], dict[str, float]]:
    """Returns of the imitated egos by partner: of the last three kept episodes of a history, and of all of them.

    They are of training runs, of validation runs with held-out partners. The first is what imitation can reach at best.
    """
    last: dict[str, float] = {}
    whole: dict[str, float] = {}
    for split in ("train", "held_out"):
        table = bank.split(split)
        own = bank.windows("rewards", table["episode"], 0, bank.protocol.episodes).sum(-1)
        for name in np.unique(table["partner"]):
            rows = table["partner"] == name
            last[str(name)], whole[str(name)] = float(own[rows, -3:].mean()), float(own[rows].mean())
    return last, whole
