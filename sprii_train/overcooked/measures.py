"""Formation and use of a partner's slot: behaviour probe, distances, and other histories at fixed weights."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sprii_envs.overcooked.bank import HistoryBank
from sprii_envs.overcooked.collect import action_counts
from sprii_train.learners.ad import AD, SUPPORT
from sprii_train.overcooked.windows import SPAN, read_windows

Array = NDArray[np.float64]


class Slots(NamedTuple):
    """Of N histories.

    Attributes:
        codes: slots of two support episodes, (N, slot).
        signatures: how often the partner took each action in the three episodes after them, (N, 6).
        partners: ids, (N,).
        runs: of the ego, (N,); None where nobody asks for them.
    """

    codes: Array
    signatures: Array
    partners: NDArray[np.int64]
    runs: NDArray[np.int64] | None = None


class Probed(NamedTuple):
    """Mean squared errors of a behaviour probe, and of the training histories' mean signature in its place."""

    error: float
    constant: float


class Swapped(NamedTuple):
    """Cross-entropy of the ego's actions with other slots: the history's own, none, and another partner's."""

    matched: float
    null: float
    wrong: float


def slots(learner: AD, bank: HistoryBank, split: str, *, batch: int = 64) -> Slots:
    """Of every history of a split, at its last five episodes; the signature is of episodes that no slot is made of."""
    table = bank.split(split)
    begin, codes = bank.protocol.episodes - SPAN, []
    with torch.inference_mode():
        for rows in np.array_split(np.arange(len(table)), -(-len(table) // batch)):
            windows = read_windows(bank, table, rows, np.full(len(rows), begin))
            codes.append(learner.encode_history(learner.prepare(windows).history).numpy())
    later = bank.partner_actions[table["episode"], begin + SUPPORT :]
    return Slots(np.concatenate(codes).astype(np.float64), action_counts(later), table["system"], table["run"])


def probe(train: Slots, held_out: Slots, *, penalty: float = 1.0) -> Probed:
    """Ridge from standardised slots to signatures, fitted on training histories alone.

    Args:
        penalty: fixed, so that nothing is selected.
    """
    model = make_pipeline(StandardScaler(), Ridge(alpha=penalty)).fit(train.codes, train.signatures)
    error = np.square(model.predict(held_out.codes) - held_out.signatures).mean()
    constant = np.square(train.signatures.mean(0) - held_out.signatures).mean()
    return Probed(float(error), float(constant))


def distance_ratio(found: Slots) -> float:
    """Mean distance between slots of different partners over that between slots of one partner.

    Where a partner's histories are of one run of the ego, as in a validation split, it tells runs apart as well: see
    `alias_ratio`.

    Raises:
        ValueError: without two partners, or two histories of one, or for slots that do not differ within partners.
    """
    apart = np.linalg.norm(found.codes[:, None] - found.codes[None], axis=-1)
    same = found.partners[:, None] == found.partners[None]
    other = ~np.eye(len(apart), dtype=bool)
    if same.all() or not (same & other).any():
        raise ValueError("a distance ratio needs histories of two partners, and two histories of one of them")
    within = apart[same & other].mean()
    if within == 0.0:
        raise ValueError("a distance ratio is undefined: the slots of each partner are the same in all its histories")
    return float(apart[~same].mean() / within)


def alias_ratio(*parts: Slots) -> float:
    """`distance_ratio` of one partner under several names, a name for each run of the ego; mean over partners.

    Slots that hold the partner alone have 1: what is above it in a `distance_ratio` need not be of partners.

    Args:
        parts: slots of splits; partners with one run in all of them are left out.

    Raises:
        ValueError: if none has two runs, one of them of two histories.
    """
    codes = np.concatenate([part.codes for part in parts])
    partners = np.concatenate([part.partners for part in parts])
    runs = np.concatenate([part.runs for part in parts if part.runs is not None])
    ratios = []
    for partner in np.unique(partners):
        own = partners == partner
        if len(np.unique(runs[own])) > 1:
            ratios.append(distance_ratio(Slots(codes[own], codes[own], runs[own])))
    if not ratios:
        raise ValueError("a ratio of aliases needs a partner with two runs of the ego")
    return float(np.mean(ratios))


def ratios(fitted: Slots, own: Slots) -> dict[str, float]:
    """The distance ratio of validation histories, and that of one partner under several names, in both splits."""
    return {"distance_ratio": distance_ratio(own), "alias_ratio": alias_ratio(fitted, own)}


def swapped(learner: AD, bank: HistoryBank, split: str, *, seed: int = 0, batch: int = 64) -> Swapped:
    """The action loss of the last five episodes of a split's histories at fixed weights, the slot exchanged."""
    table = bank.split(split)
    rng, begin = np.random.default_rng(seed), bank.protocol.episodes - SPAN
    partners = table["system"]
    donor = np.array([rng.choice(np.flatnonzero(partners != own)) for own in partners])
    losses: list[list[float]] = []
    with torch.inference_mode():
        for rows in np.array_split(np.arange(len(table)), -(-len(table) // batch)):
            own, other = (
                learner.prepare(read_windows(bank, table, which, np.full(len(which), begin)))
                for which in (rows, donor[rows])
            )
            z_s, z_p = learner.encode_current(own.current), learner.encode_history(own.history)
            choices = (z_p, torch.zeros_like(z_p), learner.encode_history(other.history))
            losses.append([float(learner.task_loss(learner.predict(z_s, z, None), own.y).sum()) for z in choices])
    return Swapped(*(np.sum(losses, axis=0) / len(table)).tolist())
