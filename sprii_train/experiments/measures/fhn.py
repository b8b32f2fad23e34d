"""How well an operator predicts fields with whose history, and what its codes tell (`tab:fhn-breadth`)."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sprii_train.experiments.measures.untrained import first_weights
from sprii_train.experiments.sources import Source
from sprii_train.fhn.evaluation import (
    DONORS,
    FACTORS,
    HISTORIES,
    REPORTED,
    SELECTION,
    SPLITS,
    STARTS,
    Held,
    by_horizon,
    code_table,
    codes,
    curve,
    decomposition,
    errors,
    field_of,
    held,
    mean_codes,
    persistence,
    predicted,
    r2,
)
from sprii_train.records import read_rows

SHOWN = 50
"""Frames after the first start that the figure of fields is of."""


def fhn(source: Source) -> dict[str, Any]:
    """Errors by split, donors and horizon, reductions by history count, and R² of probes; errors by case are kept.

    Donors: `k1`, `k2`, `k4` histories of the recipient's system; `wrong`, the first history of another system of the
    split; `zero`, a code of zeros; `untrained`, the first weights with the first history; `persistence`, the start.
    `oracle` probes are of the true (k, β) in place of a code.
    """
    learner, store = source.learner, source.store
    blank = first_weights(source)
    told, blank_told = training(learner, source), training(blank, source)
    trained = read_rows(source.folder / "metrics.jsonl")[-1]["step"]  # fewer without Align
    row: dict[str, Any] = {"steps": trained}
    row |= {"errors": {}, "reduction": {}, "probe": {}, "untrained_probe": {}, "oracle_probe": {}}
    kept: dict[str, NDArray[Any]] = {}
    for split in SPLITS:
        group = held(store, split)
        table, blank_table = (code_table(each, store, group) for each in (learner, blank))
        given = donors(table)
        found = {name: curve(learner, store, group, REPORTED, code) for name, code in given.items()}
        found["untrained"] = curve(blank, store, group, REPORTED, donors(blank_table)["k1"])
        found["persistence"] = np.stack([errors(store, group.episodes[c], persistence) for c in REPORTED], axis=1)
        row["errors"][split] = own = {name: by_horizon(each) for name, each in found.items()}
        row["reduction"][split] = {
            f"k{k}": 100.0 * (1.0 - own[f"k{k}"]["h50"] / own["k1"]["h50"]) for k in HISTORIES[1:]
        }
        row["probe"][split] = probes(told, table, group)
        row["untrained_probe"][split] = probes(blank_told, blank_table, group)
        truth = np.stack([group.factors[name] for name in FACTORS], axis=1)
        fitted = np.stack([told[2][name] for name in FACTORS], axis=1)
        row["oracle_probe"][split] = r2((fitted, *told[1:]), truth, group.factors)
        kept |= {f"{split}|{name}": each for name, each in found.items()}
        kept[f"{split}|fields"] = shown(source, group, given)
        if split == "id":
            chosen = curve(learner, store, group, (SELECTION,), given["k1"])
            row["selection"] = float(np.mean(list(by_horizon(chosen).values())))
    source.keep(kept)
    return row


def donors(table: dict[int, NDArray[Any]]) -> dict[str, Callable[[int], NDArray[Any]]]:
    """Whose code → a recipient's case → codes (S, latent) of the systems of a group."""
    first = table[DONORS[0]]
    matched = {f"k{k}": partial(mean_codes, table, count=k) for k in HISTORIES}
    return matched | {
        "zero": lambda case: np.zeros_like(first),
        "wrong": lambda case: np.roll(mean_codes(table, case, 1), len(first) // 2, axis=0),
    }


def training(learner: Any, source: Source) -> tuple[NDArray[Any], NDArray[Any], dict[str, NDArray[Any]]]:
    """Codes, systems and factors of every training trajectory."""
    table = source.store.split("train")
    factors = {name: np.asarray(table[name], np.float64) for name in FACTORS}
    return codes(learner, source.store, table["episode"]), table["system"], factors


def probes(told: Any, table: dict[int, NDArray[Any]], group: Held) -> dict[str, dict[str, float]]:
    """R² with one history, one code a system, and with several, a code for each of four recipients of a system."""
    found = {"k1": r2(told, table[DONORS[0]], group.factors)}
    recipients = DONORS[1:]
    for k in HISTORIES[1:]:
        several = np.concatenate([mean_codes(table, case, k) for case in recipients])
        factors = {name: np.tile(values, len(recipients)) for name, values in group.factors.items()}
        found[f"k{k}"] = r2(told, several, factors)
    return found


def shown(source: Source, group: Held, given: Any) -> NDArray[np.float32]:
    """u of the first system at the first start, and 50 frames later: true, with one matched history and a wrong one."""
    case, start = REPORTED[0], STARTS[0]
    episode = group.episodes[case][:1]
    before, after = (field_of(source.store, episode, time) for time in (start, start + SHOWN))
    made = [
        predicted(source.learner, before, torch.from_numpy(given[name](case)[:1]).float(), decomposition(SHOWN))[:, -1]
        for name in ("k1", "wrong")
    ]
    return torch.cat([before, after, *made])[:, 0].numpy()
