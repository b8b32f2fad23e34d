"""What a system's own persistent update is worth through fixed weights, against another system's (`tab:v3-swimmer`)."""

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sprii_envs.banks import RecordedBank
from sprii_train.analysis.bootstrap import system_bootstrap
from sprii_train.analysis.statistics import difference
from sprii_train.experiments.sources import Source
from sprii_train.fit import ENGINE
from sprii_train.identity import code_of, digest
from sprii_train.learners.segments import Adapter
from sprii_train.selection import fit_selected
from sprii_train.swimmer import assay
from sprii_train.swimmer.rows import selecting, tables
from sprii_train.swimmer.updates import ADAPTER_SEEDS, UpdateBatches, fit_adapter, frozen_codes, shuffled, told

DRAWS = 4_000
SHUFFLE = 86_000
"""Seed of whose Δ the reference of shuffled ones is fitted on; selection systems have the next."""

VARIANTS = {"own": 3, "shuffled": 1, "oracle": 1, "untrained": 1}
"""Updates that adapters are fitted to, and how many adapters at most: the base's own; those of other systems; the five
true scales in the place of Δ; those of the base with its first weights."""

Array = NDArray[np.float64]


def fixed_weight(source: Source) -> dict[str, Any]:
    """Gain of the own update over a wrong one on prospective systems, its interval and the share of positive systems.

    Beside it the same of `VARIANTS`, the base's errors by segments seen, and what the wrong system costs a simulator.
    Adapters lie beside the source; a run that was stopped resumes them.
    """
    began, store = time.perf_counter(), source.store
    assert isinstance(store, RecordedBank)
    split, standards = tables(store)
    prospective = split["prospective"]
    at = assay.contexts(prospective.systems, prospective.draws)
    donor = assay.donors(prospective.systems, at.anchor)
    row: dict[str, Any] = {"base": assay.base_errors(source.learner, prospective, at), "epochs": {}}
    arrays: dict[str, Array] = {}
    for variant in VARIANTS:
        noisy, clean, row["epochs"][variant] = _errors(source, variant, at, donor)
        own = _summary(noisy, clean, getattr(source.cell.recipe, "resampling", 0))
        row |= own if variant == "own" else {variant: own}
        gain = noisy[1] - noisy[0]
        arrays[variant] = gain.mean((0, 2, 3))
        if variant == "own":
            arrays["by_row"], row["by_adapter"] = gain.mean((0, 1)), gain.mean((1, 2, 3)).tolist()
    made = store.origin["protocol"]
    row["true_cost"] = assay.true_cost(prospective, at, donor, standards, steps=made["steps"], rms=made["rms"])
    setting: Any = source.setting
    row["epoch"] = setting.stages(source.folder)["epoch"]
    source.keep(arrays)
    return row | {"evaluation_seconds": time.perf_counter() - began}


def _errors(source: Source, variant: str, at: assay.Contexts, donor: assay.Rows) -> tuple[Array, Array, list[int]]:
    """Errors (own / wrong / none, adapters, S, Q, C) against targets with noise and without; the adapters' epochs."""
    split, cell = tables(source.store)[0], source.cell
    setting: Any = source.setting
    base = source.learner
    if variant == "untrained":
        base = setting.first(cell.recipe, base.config, source.seed)
    codes = {name: frozen_codes(base, table) for name, table in split.items()}
    if variant == "oracle":
        codes = {name: told(each, split[name].scales) for name, each in codes.items()}
    if variant == "shuffled":  # fitted on them; what is assayed is the system's own, and another's
        codes |= {name: shuffled(codes[name], SHUFFLE + i) for i, name in enumerate(("train", "selection"))}
    _, rows = selecting(len(split["selection"].systems), halved=getattr(cell.recipe, "halved", False))
    law = [variant, cell.readers.updates, code_of(*ENGINE, Adapter, UpdateBatches, fit_adapter, fit_selected, shuffled)]
    root = source.folder / f"adapters-{digest(repr(law))[:10]}"
    noisy, clean, epochs = [], [], []
    for seed in ADAPTER_SEEDS[: min(VARIANTS[variant], cell.readers.count)]:
        adapter, chosen = fit_adapter(
            base, codes["train"], codes["selection"], rows, root / f"{variant}-{seed}",
            fingerprint=f"{source.store.fingerprint} {variant}", updates=cell.readers.updates,
            pairs=cell.train.pairs, seed=seed,
        )  # fmt: skip
        epochs.append(chosen.epoch)
        for kept, targets in ((noisy, split["prospective"].targets), (clean, split["prospective"].clean)):
            kept.append(assay.errors(base, adapter, codes["prospective"], at, donor, targets))
    return np.array(noisy).swapaxes(0, 1), np.array(clean).swapaxes(0, 1), epochs


def _summary(noisy: Array, clean: Array, seed: int) -> dict[str, Any]:
    """Means over adapters, rows, then systems; the interval is over systems."""
    own, wrong, none = noisy.mean((1, 3, 4))
    gain = wrong - own
    found = system_bootstrap(
        {"own": own, "wrong": wrong}, {"gain": difference("wrong", "own")}, seed=seed, draws=DRAWS
    )["gain"]  # fmt: skip
    return {
        "gain": found.estimate,
        "gain_interval": [found.low, found.high],
        "standard_error": float(gain.std(ddof=1) / np.sqrt(len(gain))),
        "positive": float((gain > 0).mean()),
        "systems": len(gain),
        "errors": {"own": float(own.mean()), "wrong": float(wrong.mean()), "none": float(none.mean())},
        "gain_clean": float((clean[1] - clean[0]).mean()),
    }
