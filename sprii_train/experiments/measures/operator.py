"""What an operator with a condition predicts, what its codes hold and what they do (`app:external-nod`)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sprii_envs.banks import Store
from sprii_envs.relations import EpisodeTable
from sprii_train.experiments.measures.untrained import first_weights
from sprii_train.experiments.sources import Source
from sprii_train.fields import errors, probes
from sprii_train.fields.windows import Rows, following, frames_of, read_fields

Array = NDArray[np.float64]

ID, VISCOUS, INVISCID = "id_test", "viscous_ood", "inviscid_ood"
EVALUATED = (ID, VISCOUS, INVISCID)
PANEL = 5
"""Cases of each system of the second donor assay."""


def operator(source: Source) -> dict[str, Any]:
    """Errors of the released evaluation, geometry and probes of codes, two donor assays; arrays by recipient or system.

    Beside each stands what the network with its first weights, a constant code (the training codes' mean), wrong
    conditions or shuffled labels score, and what the property itself would in the code's place.
    """
    arrays: dict[str, Array] = {}
    row = measured(source, source.learner, arrays)
    row["untrained"] = measured(source, first_weights(source), {})
    source.keep(arrays)
    described: Any = source.setting
    stages = described.stages(source.folder) if hasattr(described, "stages") else {}
    return row | {name: stages[name] for name in ("step", "development", "continued") if name in stages}


def measured(source: Source, learner: Any, arrays: dict[str, Array]) -> dict[str, Any]:
    """The row of one learner; `arrays` receives what is kept beside it."""
    store, name = source.store, source.setting.properties[0]
    tables = {split: store.split(split) for split in ("train", *EVALUATED)}
    codes = {split: errors.codes_of(learner, store, table) for split, table in tables.items()}
    mean = codes["train"].mean(0, keepdims=True)
    _keep_example(learner, store, tables[ID], name, codes[ID], arrays)
    native: dict[str, dict[str, float]] = {}
    for split in EVALUATED:
        table, own = tables[split], codes[split]
        given = {
            "own": own[following(table)],
            "constant": np.repeat(mean, len(table), 0),
            "wrong": codes["train"][_other_systems(tables["train"], table)],
        }
        found = {kind: errors.case_errors(learner, store, table, code) for kind, code in given.items()}
        arrays[f"native|{split}"] = found["own"]
        native[split] = {kind: errors.batch_mean(error) for kind, error in found.items()}
        native[split]["still"] = errors.batch_mean(errors.still_errors(store, table))
    return {
        "native": native,
        "geometry": _geometry(codes, tables),
        "probe": _probes(codes, tables, name),
        "donors": _donors(learner, store, tables[ID], codes[ID], mean, arrays),
        "panel": _panel(learner, store, name, arrays),
    }


def _other_systems(train: EpisodeTable, table: EpisodeTable) -> Rows:
    """A training row of another system for each row of a table, the same in every run."""
    rng = np.random.default_rng(probes.SEED)
    return np.array([rng.choice(np.flatnonzero(train["system"] != own)) for own in table["system"]])


def _geometry(codes: dict[str, Array], tables: dict[str, EpisodeTable]) -> dict[str, float]:
    fitted = codes["train"]
    return {
        "train": probes.separation(fitted, fitted, tables["train"]["system"]),
        "id": probes.separation(fitted, codes[ID], tables[ID]["system"]),
        "train_shuffled": probes.separation(fitted, fitted, probes.shuffled(tables["train"]["system"])),
        "id_shuffled": probes.separation(fitted, codes[ID], probes.shuffled(tables[ID]["system"])),
    }


def _probes(codes: dict[str, Array], tables: dict[str, EpisodeTable], name: str) -> dict[str, float]:
    values = {split: table[name].astype(np.float64) for split, table in tables.items()}
    cases = tables["train"]["case"]
    fitted = probes.fit_probe(codes["train"], values["train"], cases)
    blind = probes.fit_probe(codes["train"], probes.shuffled(values["train"]), cases)
    oracle = probes.fit_probe(values["train"][:, None], values["train"], cases)
    row = {}
    for short, split in (("id", ID), ("viscous", VISCOUS)):
        truth = values[split]
        row[short] = probes.probe_score(fitted, codes[split], truth)
        row[f"{short}_shuffled"] = probes.probe_score(blind, codes[split], truth)
        row[f"{short}_oracle"] = probes.probe_score(oracle, truth[:, None], truth)
    return row


def _donors(
    learner: Any, store: Store, table: EpisodeTable, codes: Array, mean: Array, arrays: dict[str, Array]
) -> dict[str, float]:
    """Mean squared errors of ID recipients at the middle frame with the matched, wrong ones' and a constant code."""
    frame, matched = middle(table), following(table)
    wrong = errors.wrong_donors(table, matched)
    found = {
        "matched": errors.case_errors(learner, store, table, codes[matched], frame=frame),
        "wrong": np.mean(
            [errors.case_errors(learner, store, table, codes[donors], frame=frame) for donors in wrong.T], axis=0
        ),
        "constant": errors.case_errors(learner, store, table, np.repeat(mean, len(table), 0), frame=frame),
    }
    arrays.update({f"donors|{name}": error for name, error in found.items()})
    means = {name: float(error.mean()) for name, error in found.items()}
    return means | {"penalty": means["wrong"] - means["matched"]}


def _keep_example(
    learner: Any, store: Store, table: EpisodeTable, name: str, codes: Array, arrays: dict[str, Array]
) -> None:
    """Trajectories of a case with the largest property, with its matched donor's code and the smallest property's."""
    matched = following(table)
    recipient = int(np.argmax(table[name]))
    wrong = errors.wrong_donors(table, matched)[recipient]
    episode = table["episode"][[recipient]]
    windows = read_fields(store, episode, episode)
    for kind, row in (("matched", matched[recipient]), ("wrong", wrong[np.argmin(table[name][wrong])])):
        predicted, truth = errors.trajectories(learner, windows, codes[[row]])
        arrays[f"example|{kind}"], arrays["example|truth"] = predicted[0], truth[0]


def _panel(learner: Any, store: Store, name: str, arrays: dict[str, Array]) -> dict[str, float]:
    """Relative errors at the middle frame, mean over the systems of `panel`."""
    table = panel(store, name)
    codes, frame, matched = errors.codes_of(learner, store, table), middle(table), following(table)

    def of(donors: Rows) -> Array:
        return errors.case_errors(learner, store, table, codes[donors], frame=frame, relative=True)

    found = {
        "matched": of(matched),
        "wrong": np.mean([of(donors) for donors in errors.wrong_donors(table, matched).T], axis=0),
    }
    systems = [table["system"] == system for system in np.unique(table["system"])]
    for kind, error in found.items():
        arrays[f"panel|{kind}"] = np.array([error[own].mean() for own in systems])
    means = {kind: float(arrays[f"panel|{kind}"].mean()) for kind in found}
    return means | {"penalty": means["wrong"] - means["matched"], "systems": len(systems)}


def panel(store: Store, name: str) -> EpisodeTable:
    """Cases of the second assay: of the systems out of distribution and of every second one in it, equally many.

    The paper has eleven systems and does not name them; with nine of training, five between them and the inviscid one
    these are eleven.
    """
    groups = []
    for split in EVALUATED:
        table = store.split(split)
        values = np.unique(table[name])
        for value in values[::2] if split == ID else values:
            own = np.flatnonzero(table[name] == value)
            groups.append(table["episode"][own[np.argsort(table["case"][own])]])
    count = min(PANEL, *map(len, groups))
    chosen = np.concatenate([episodes[:count] for episodes in groups])
    return store.table.select(np.isin(store.table["episode"], chosen))


def middle(table: EpisodeTable) -> int:
    """The middle frame, 50 of 101."""
    return (frames_of(table) - 1) // 2
