"""What is measured of a frozen source of CoPhy: errors under other histories, and what three channels tell of physics.

    U  the source's state of an episode's own AB and query
    S  the persistent part of its memory, mean over three matched supports
    M  the head's memory of the same supports, behind its learned projection

Errors are kept by recipient, so that arms are paired on them. Under a wrong history all objects of a recipient are told
by wrong supports at once. Beside a source stand an untrained one (encode it as any other), extrapolations without a
source, probes of shuffled labels, and an oracle, whose memory is the properties themselves.

The paper names vertical gravity as Blocktower's probe; in CoPhy it is −10 in all episodes, and gravity along x and y
varies. Probed is what varies in both populations, nothing else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from sprii_envs.standardiser import constant
from sprii_train.analysis.formation.factors import Factor
from sprii_train.analysis.formation.geometry import Geometry, between_within, standardise
from sprii_train.analysis.formation.probes import FIXED_PENALTY, fit_ridge, score
from sprii_train.analysis.populations import Confirmation, Sample, Training
from sprii_train.cophy.reader import SUPPORTS, Encoded, Queries, Reader, contexts, errors, recipient_errors
from sprii_train.cophy.supports import FACTORS, Ids, Objects, Supports
from sprii_train.cophy.windows import GIVEN

Array = NDArray[np.float64]

GRAVITY = ("gravity_x", "gravity_y", "gravity_z")
COUNTS = (3, 5, 8)
"""Distinct histories through a head trained on three."""
MOVES = 1e-3
"""Least SD of a factor that is probed, in its own unit."""


class Risks(NamedTuple):
    """Errors (R,) in m² by condition, of recipients (R,); NaN where a recipient has no such histories.

    `matched`, `null`, `wrong`, `wrong_mass`, `wrong_friction`, `wrong_restitution`, `repeat`, `s3`, `s5`, `s8`.
    """

    recipients: Ids
    errors: Mapping[str, Array]


def risks(
    reader: Reader,
    encoded: Encoded,
    asked: Queries,
    supports: Supports,
    *,
    split: str = "validation",
    counts: Sequence[int] = COUNTS,
) -> Risks:
    """Errors of a fitted head on the eligible recipients of a split.

    `repeat` is of the three matched histories one at a time, mean over them: a mean of equal ones is that one. `s5` and
    `s8` begin with the three of `matched`, which is `s3`.

    Raises:
        ValueError: for a split without an eligible recipient.
    """
    rows = supports.rows(split, SUPPORTS)
    matched = supports.matched(SUPPORTS, seed=reader.seed)

    def of(ids: Ids | None) -> Array:
        told = rows if ids is None else rows[supports.eligible(ids)[rows]]
        found = np.full(len(rows), np.nan)
        places = np.searchsorted(rows, told)
        found[places] = errors(reader.head, encoded, asked, told, None if ids is None else torch.from_numpy(ids))
        return found

    found = {"matched": of(matched), "null": of(None), "wrong": of(supports.wrong(SUPPORTS, seed=reader.seed))}
    for factor in FACTORS:
        found[f"wrong_{factor}"] = of(supports.wrong(SUPPORTS, seed=reader.seed, factor=factor))
    found["repeat"] = np.mean([of(matched[..., k : k + 1]) for k in range(SUPPORTS)], axis=0)
    for count in counts:
        found[f"s{count}"] = found["matched"] if count == SUPPORTS else of(supports.matched(count, seed=reader.seed))
    return Risks(rows, found)


def paired(conditions: Mapping[str, Array]) -> dict[str, Array]:
    """Errors (…, R) of several conditions on the recipients that have all of them, for a bootstrap.

    Raises:
        ValueError: if no recipient has all of them.
    """
    whole = np.all([np.isfinite(e).reshape(-1, e.shape[-1]).all(0) for e in conditions.values()], axis=0)
    if not whole.any():
        raise ValueError(f"no recipient has all of the conditions {', '.join(conditions)}; take more episodes")
    return {name: e[..., whole] for name, e in conditions.items()}


# Channels


@torch.no_grad()
def channels(
    reader: Reader | None, encoded: Encoded, supports: Supports, rows: Ids, *, seed: int | None = None
) -> dict[str, Array]:
    """Channel → codes (N, d) float64 of objects that are asked about, an episode's together; `M` needs a head.

    Args:
        rows: eligible episodes (R,), see `Supports.rows`.
        seed: of the draws of supports; None is the head's, 0 without one.
    """
    seed = (0 if reader is None else reader.seed) if seed is None else seed
    part, seen = torch.from_numpy(rows), torch.from_numpy(supports.objects.active[rows])
    ids = torch.from_numpy(supports.matched(SUPPORTS, seed=seed))[part]
    count = seen.shape[1]
    own = (part[:, None] * count + torch.arange(count)).where(seen, -1).unsqueeze(-1)
    found = {
        "U": contexts(encoded, part, own)[:, :, 0],
        "S": encoded.persistent(encoded.memory.flatten(0, 1)[ids.clamp_min(0)]).mean(2),
    }
    if reader is not None:
        found["M"] = reader.head.memory(contexts(encoded, part, ids))
    return {name: codes[seen].double().numpy() for name, codes in found.items()}


def factors_of(objects: Objects, rows: Ids) -> dict[str, Array]:
    """Factor → (N,) of the objects that are asked about in episodes (R,): physics, and gravity of their scenes."""
    seen = objects.active[rows]
    physics = objects.physics[rows][seen]
    gravity = np.broadcast_to(objects.gravity[rows, None], (*seen.shape, 3))[seen]
    return dict(zip((*FACTORS, *GRAVITY), np.column_stack([physics, gravity]).T, strict=True))


def probes(
    train: Mapping[str, Array],
    held: Mapping[str, Array],
    supports: Supports,
    rows: tuple[Ids, Ids],
    *,
    penalties: Sequence[float] = FIXED_PENALTY,
    shuffled: int | None = None,
) -> dict[str, dict[str, float]]:
    """Channel → factor → R² on held-out objects of a ridge fitted on training objects.

    Factors that do not vary in both are left out. One penalty is not searched; where there are several, the objects of
    a class stay on one side of every fold, as they share supports. In the fit every class counts the same, in the score
    every object.

    Args:
        train, held: `channels` of the episodes `rows`.
        shuffled: seed of a permutation of the physics of training classes: what a probe finds where there is nothing
            but that objects of a class share supports.

    Raises:
        ValueError: for channels that differ.
    """
    if train.keys() != held.keys():
        raise ValueError(f"channels are {', '.join(train)} and {', '.join(held)}; legal: the same ones")
    told = [factors_of(supports.objects, r) for r in rows]
    names = [name for name in told[0] if not any(constant(t[name][:, None], floor=MOVES).all() for t in told)]
    _, first, classes = np.unique(_classes(supports, rows[0]), return_index=True, return_inverse=True)
    if shuffled is not None:
        first = np.random.default_rng(shuffled).permutation(first)
    told[0] = {name: values[first][classes] for name, values in told[0].items()}
    found: dict[str, dict[str, float]] = {}
    for channel, codes in train.items():
        fitted = Sample(Training("train"), codes, classes, told[0])
        other = Sample(Confirmation("held out"), held[channel], np.arange(len(held[channel])), told[1])
        found[channel] = {
            name: score(fit_ridge(fitted, Factor(name), penalties=penalties), other).r2 for name in names
        }  # fmt: skip
    return found


def _classes(supports: Supports, rows: Ids) -> Ids:
    """Classes (N,) of the objects that are asked about in episodes (R,)."""
    return supports.classes.reshape(supports.objects.seen.shape)[rows][supports.objects.active[rows]]


def within_between(train: Array, codes: Array, supports: Supports, rows: Ids) -> Geometry:
    """Distances of the codes (N, d) of objects of episodes (R,) within a class, and between those of a group.

    Codes are standardised by training codes and taken about their group's mean, so that a colour or a type, which is
    seen, is no distance between physics. The ratio is within / between: above 1, histories of one system are further
    apart than systems. Codes without information have R, the codes of a class.

    Raises:
        ValueError: for fewer than two classes with two objects each.
    """
    classes = _classes(supports, rows)
    groups = np.unique(supports.groups[classes], return_inverse=True)[1].ravel()
    scaled = standardise(train, codes)[1]
    sums = np.zeros((groups.max() + 1, scaled.shape[1]))
    np.add.at(sums, groups, scaled)
    centred = scaled - (sums / np.bincount(groups)[:, None])[groups]
    enough = np.isin(classes, np.flatnonzero(np.bincount(classes) >= 2))
    found = between_within(centred[enough], classes[enough])
    return Geometry(found.within, found.between, found.within / found.between if found.between else float("inf"))


# Baselines


def oracle(objects: Objects) -> Encoded:
    """A source whose memory is an object's true properties and its scene's gravity, and that says nothing of a query.

    They are taken about their mean over training objects, which is what no history says.
    """
    gravity = np.broadcast_to(objects.gravity[:, None], objects.physics.shape)
    properties = np.concatenate([objects.physics, gravity], axis=-1)
    mean = properties[objects.seen & (objects.split == "train")[:, None]].mean(0)
    memory = torch.from_numpy(((properties - mean) * objects.seen[..., None]).astype(np.float32))
    return Encoded(memory, memory[..., :0], lambda memory, _: memory, lambda memory: memory, torch.zeros_like(memory))


def class_means(encoded: Encoded, objects: Objects) -> Encoded:
    """The same source, whose null is the mean memory of training objects of a slot and kind: CoPhyNet's.

    Raises:
        ValueError: for an object of a slot and kind that no training episode has.
    """
    kinds = int(objects.kind.max()) + 1
    key = torch.from_numpy(np.where(objects.seen, objects.slot * kinds + objects.kind, 0))
    train = torch.from_numpy(objects.seen & (objects.split == "train")[:, None])
    sums = encoded.memory.new_zeros(int(key.max()) + 1, encoded.memory.shape[-1])
    sums.index_add_(0, key[train], encoded.memory[train])
    counts = torch.bincount(key[train], minlength=len(sums))
    seen = torch.from_numpy(objects.seen)
    if (lacking := seen & (counts[key] == 0)).any():
        e, o = (int(i[0]) for i in np.nonzero(lacking.numpy()))
        raise ValueError(f"no training object has the slot {objects.slot[e, o]} and the kind {objects.kind[e, o]}")
    return encoded._replace(null=(sums / counts.clamp_min(1).unsqueeze(1))[key] * seen.unsqueeze(-1))


def extrapolations(asked: Queries, rows: Ids, train: Ids, dims: int) -> dict[str, Array]:
    """Errors (R,) in m² without a source: `rest`, `velocity` (constant) and `mean` (of training objects, by frame)."""
    given = Queries(*(x[torch.from_numpy(rows)] for x in asked))
    told = Queries(*(x[torch.from_numpy(train)] for x in asked))
    ahead = torch.arange(1, asked.targets.shape[1] + 1).view(1, -1, 1, 1)
    last, rate = given.poses[:, -1:], (given.poses[:, -1:] - given.poses[:, :1]) / (GIVEN - 1)
    mean = told.targets.transpose(1, 2)[told.seen].mean(0)[:, None].expand_as(given.targets)
    made = {"rest": last.expand_as(given.targets), "velocity": last + ahead * rate, "mean": mean}
    return {name: recipient_errors(p[..., :dims], given).double().numpy() for name, p in made.items()}


# All of it


@dataclass(frozen=True)
class Evaluation:
    """What is measured of one source and one head.

    Attributes:
        risks: errors by recipient and condition.
        baselines: errors of the same recipients, by extrapolation.
        r2, shuffled: channel → factor → R², of true and of shuffled training labels.
        ratio: channel → within / between.
        epoch: of the head.
    """

    risks: Risks
    baselines: Mapping[str, Array]
    r2: Mapping[str, Mapping[str, float]]
    shuffled: Mapping[str, Mapping[str, float]]
    ratio: Mapping[str, float]
    epoch: int


def evaluate(
    reader: Reader,
    encoded: Encoded,
    asked: Queries,
    supports: Supports,
    *,
    split: str = "validation",
    penalties: Sequence[float] = FIXED_PENALTY,
) -> Evaluation:
    """Everything that is measured of a source and its head on a split; probes are fitted on the split `train`.

    Raises:
        ValueError: for a split without an eligible recipient.
    """
    rows = supports.rows("train", SUPPORTS), supports.rows(split, SUPPORTS)
    train, held = (channels(reader, encoded, supports, r) for r in rows)
    r2, shuffled = (probes(train, held, supports, rows, penalties=penalties, shuffled=s) for s in (None, reader.seed))
    return Evaluation(
        risks(reader, encoded, asked, supports, split=split),
        extrapolations(asked, rows[1], rows[0], reader.head.config.dims),
        r2, shuffled,
        {name: within_between(train[name], held[name], supports, rows[1]).ratio for name in held},
        reader.epoch,
    )  # fmt: skip
