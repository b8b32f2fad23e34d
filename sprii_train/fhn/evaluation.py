"""What is measured of NOD-Hier on FitzHugh–Nagumo: errors by donors and horizon, and what codes tell of k and β."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sprii_envs.banks import Store
from sprii_envs.fields.bank import FIELD
from sprii_train.analysis.formation.factors import Factor
from sprii_train.analysis.formation.probes import fit_ridge, score
from sprii_train.analysis.populations import Confirmation, Sample, Training
from sprii_train.fhn.windows import frames
from sprii_train.learners.nod_hier import CONTEXT

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

STARTS, HORIZONS = (12, 42, 72, 92), (1, 5, 50)
"""Frames that a prediction starts from, and how far it goes."""
GREEDY = (9, 3, 1)
"""Heads that evaluation takes; 27 is for training alone."""
SELECTION, REPORTED = 5, (15, 24, 45)
"""Cases of recipients that recipes are chosen on, and that are reported."""
DONORS = (36, 5, 15, 24, 45)
"""Cases of donors, in their order."""
HISTORIES = (1, 2, 4)
SPLITS = ("id", "intra", "extra")
PENALTY = 1e-3
FACTORS = ("k", "beta")
ROWS = 32
"""Trajectories that are predicted at once."""


def decomposition(horizon: int) -> tuple[int, ...]:
    """A horizon as steps of 9, 3 and 1 frames, as many of the largest as fit, the small ones first."""
    steps: list[int] = []
    for head in GREEDY:
        steps += [head] * (horizon // head)
        horizon %= head
    return tuple(reversed(steps))


def donors_of(case: int, count: int) -> tuple[int, ...]:
    """Cases of the first so many donors of a recipient's case, itself left out."""
    return tuple(other for other in DONORS if other != case)[:count]


@dataclass(frozen=True)
class Held:
    """Trajectories of one group of systems.

    Attributes:
        systems: their labels, (S,).
        episodes: case → ids (S,).
        factors: name → (S,).
    """

    systems: NDArray[Any]
    episodes: Mapping[int, Rows]
    factors: Mapping[str, Array]


def held(store: Store, split: str) -> Held:
    """The systems of a split with every case that the store has of them outside of `train`."""
    table = store.table.select(store.table["split"] != "train")
    systems = np.unique(store.split(split)["system"])
    at = {(s, int(c)): e for s, c, e in zip(table["system"], table["case"], table["episode"], strict=True)}
    cases = [case for case in DONORS if all((s, case) in at for s in systems)]
    first = [table.select(table["system"] == s) for s in systems]
    return Held(
        systems,
        {case: np.array([at[s, case] for s in systems], np.int64) for case in cases},
        {name: np.array([rows[name][0] for rows in first], np.float64) for name in FACTORS},
    )


def codes(learner: Any, store: Store, episodes: Rows) -> Array:
    """Codes (n, latent) of trajectories."""
    found = []
    with torch.no_grad():
        for first in range(0, len(episodes), ROWS):
            part = np.asarray(episodes[first : first + ROWS])
            read = frames(store, part, np.broadcast_to(CONTEXT, (len(part), len(CONTEXT))))
            found.append(learner.encode_history(torch.from_numpy(read)))
    return torch.cat(found).double().numpy()


def predicted(learner: Any, starts: Tensor, code: Tensor, steps: Sequence[int]) -> Tensor:
    """Frames (n, steps, 2, side, side) that a learner reaches from starts (n, 2, side, side) by steps of its heads."""
    heads = torch.tensor([learner.config.heads.index(step) for step in steps])
    with torch.no_grad():
        parts = [
            learner.rollout(starts[i : i + ROWS], code[i : i + ROWS], heads.expand(len(starts[i : i + ROWS]), -1))
            for i in range(0, len(starts), ROWS)
        ]
    return torch.cat(parts)


def relative(prediction: Tensor, truth: Tensor) -> Array:
    """‖prediction − truth‖ / ‖truth‖ over both fields, of (…, 2, side, side)."""
    axes = (-3, -2, -1)
    lost = (prediction - truth).double().square().sum(axes).sqrt()
    return (lost / truth.double().square().sum(axes).sqrt()).numpy()


Predict = Callable[[Tensor, Sequence[int]], Tensor]
"""Starts (n, 2, side, side) and steps → frames (n, steps, 2, side, side)."""


def persistence(starts: Tensor, steps: Sequence[int]) -> Tensor:
    """The start, for ever."""
    return starts[:, None].expand(-1, len(steps), -1, -1, -1)


def errors(store: Store, episodes: Rows, predict: Predict) -> Array:
    """Relative errors (n, starts, horizons) of trajectories (n,); NaN where a horizon does not fit."""
    found = np.full((len(episodes), len(STARTS), len(HORIZONS)), np.nan)
    for i, start in enumerate(STARTS):
        fitting = [h for h in HORIZONS if start + h <= CONTEXT[-1]]
        steps = decomposition(fitting[-1])  # that of a shorter horizon is its beginning
        times = start + np.array([0, *fitting])
        read = torch.from_numpy(frames(store, episodes, np.broadcast_to(times, (len(episodes), len(times)))))
        made = predict(read[:, 0], steps)[:, [len(decomposition(h)) - 1 for h in fitting]]
        found[:, i, : len(fitting)] = relative(made, read[:, 1:])
    return found


def by_horizon(found: Array) -> dict[str, float]:
    """`h1`, `h5`, `h50`: unweighted means over systems, cases and starts of errors (…, starts, horizons)."""
    return {f"h{h}": float(np.nanmean(found[..., i])) for i, h in enumerate(HORIZONS)}


def r2(train: tuple[Array, Rows, Mapping[str, Array]], codes_: Array, factors: Mapping[str, Array]) -> dict[str, float]:
    """R² by factor of a ridge probe of standardised codes, fitted on (codes, systems, factors) of training systems."""
    fitted, systems, told = train
    sample = Sample(Training("train"), fitted, systems, told)
    rows = np.arange(len(codes_))
    other = Sample(Confirmation("held"), codes_, rows, factors)
    return {
        name: float(score(fit_ridge(sample, Factor(name), penalties=(PENALTY,)), other).r2) for name in FACTORS
    }  # fmt: skip


def code_table(learner: Any, store: Store, group: Held) -> dict[int, Array]:
    """Case → codes (S, latent) of a group's donors."""
    return {case: codes(learner, store, episodes) for case, episodes in group.episodes.items()}


def mean_codes(table: Mapping[int, Array], case: int, count: int) -> Array:
    """Mean (S, latent) of the codes of a recipient's first so many donors."""
    return np.mean([table[donor] for donor in donors_of(case, count)], axis=0)


def curve(learner: Any, store: Store, group: Held, cases: Sequence[int], given: Callable[[int], Array]) -> Array:
    """Errors (S, cases, starts, horizons) with the codes (S, latent) that `given` has for a recipient's case."""

    def one(case: int) -> Array:
        code = torch.from_numpy(given(case)).float()
        return errors(store, group.episodes[case], lambda starts, steps: predicted(learner, starts, code, steps))

    return np.stack([one(case) for case in cases], axis=1)


def field_of(store: Store, episodes: Rows, time: int) -> Tensor:
    """Frames (n, 2, side, side) at one time."""
    return torch.from_numpy(np.asarray(store.windows(FIELD, episodes, np.full(len(episodes), time), 1)[:, 0]))
