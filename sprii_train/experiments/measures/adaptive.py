"""Forecasts with a code inferred from a history, adapted to it, or without any: errors, probes, seconds."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sprii_envs.banks import Store
from sprii_envs.relations import EpisodeTable
from sprii_train.checkpoints import read_tensors, training_states
from sprii_train.experiments.sources import Source
from sprii_train.fields import errors, probes
from sprii_train.fields.windows import following, read_fields
from sprii_train.protocol import evaluation_mode

Array = NDArray[np.float64]

TRAIN, ID = "train", "id_test"
EVALUATED = (ID, "viscous_ood", "inviscid_ood")


def adaptive(source: Source) -> dict[str, Any]:
    """Native errors of every split by where the code came from, probes of viscosity, seconds a query; errors by case.

    A query is predicted from its first frame and a code of the next case of its system: `code0`, the encoder's;
    `code50`, adapted to that case, from there or from where the learner's own adaptation begins. Beside them the code
    that adaptation begins from (`zero`), the encoder's first weights (`untrained`), a code of another system
    (`wrong`), the first frame for ever (`still`) and the mean training trajectory (`mean`).
    """
    learner, store, name = source.learner, source.store, source.setting.properties[0]
    tables = {split: store.split(split) for split in (TRAIN, *EVALUATED)}
    inferred = hasattr(learner, "encoder")
    clock: dict[str, list[float]] = {}
    codes: dict[str, dict[str, Array]] = {}
    for split, table in tables.items():
        fields = read_fields(store, table["episode"], table["episode"]).fields
        with evaluation_mode(learner), torch.no_grad():
            begin = torch.zeros(len(fields), learner.config.code)
            if hasattr(learner, "start"):
                begin = learner.start.expand(len(fields), -1)
            elif inferred:
                begin = _timed(clock, "encode", len(fields), lambda f=fields: learner.encode_history(f))
            kinds = {"code0": begin, "code50": begin}
            if split != TRAIN or inferred:  # a probe of adapted codes is fitted on adapted training codes
                kinds["code50"] = _timed(
                    clock, "adapt", len(fields), lambda f=fields, b=begin: learner.adapt(f, b)
                )  # fmt: skip
        codes[split] = {kind: code.double().numpy() for kind, code in kinds.items()}
    row: dict[str, Any] = {"native": {}, "probe": _probes(codes, tables, name) if inferred else {}}
    arrays: dict[str, Array] = {}
    blind = _untrained(source, tables) if inferred else {}
    for split in EVALUATED:
        row["native"][split] = _native(source, tables, split, codes, blind, arrays, clock)
    row["seconds"] = {what: sum(spent) / len(spent) for what, spent in clock.items()}
    source.keep(arrays)
    described: Any = source.setting
    told = described.stages(source.folder) if hasattr(described, "stages") else {}
    row["stages"] = {key: value for key, value in told.items() if key != "seconds"}
    if inferred:
        row["decoder_change"] = _decoder_change(source, told)
        row["encoder_parameters"] = sum(p.numel() for p in learner.encoder.parameters())
    return row


def _timed(clock: dict[str, list[float]], what: str, count: int, run: Callable[[], Any]) -> Any:
    begun = time.perf_counter()
    found = run()
    clock.setdefault(what, []).append((time.perf_counter() - begun) / count)
    return found


def _native(
    source: Source, tables: dict[str, EpisodeTable], split: str, codes: dict[str, dict[str, Array]],
    blind: dict[str, Array], arrays: dict[str, Array], clock: dict[str, list[float]],
) -> dict[str, float]:  # fmt: skip
    learner, store, table = source.learner, source.store, tables[split]
    after = following(table)
    kinds = {"code50": codes[split]["code50"][after], "zero": np.zeros((len(table), learner.config.code))}
    if hasattr(learner, "start"):
        kinds["zero"] = codes[split]["code0"]
    if blind:
        kinds |= {"code0": codes[split]["code0"][after], "untrained": blind[split][after]}
        other = _other_systems(tables[TRAIN], table)
        kinds["wrong"] = codes[TRAIN]["code0"][other]
    found: dict[str, float] = {}
    for kind, code in kinds.items():
        error = _timed(clock, "forecast", len(table), lambda c=code: errors.case_errors(learner, store, table, c))
        found[kind] = errors.batch_mean(error)
        arrays[f"{split}|{kind}"] = error
    found["still"] = errors.batch_mean(errors.still_errors(store, table))
    found["mean"] = errors.batch_mean(_mean_errors(store, tables[TRAIN], table))
    return found


def _other_systems(train: EpisodeTable, table: EpisodeTable) -> NDArray[np.int64]:
    rng = np.random.default_rng(probes.SEED)
    return np.array([rng.choice(np.flatnonzero(train["system"] != own)) for own in table["system"]])


def _mean_errors(store: Store, train: EpisodeTable, table: EpisodeTable) -> Array:
    """Mean squared error of every case if it were the mean training trajectory."""
    mean = read_fields(store, train["episode"], train["episode"]).fields.double().mean(0)
    truth = read_fields(store, table["episode"], table["episode"]).fields.double()
    return (truth - mean).square().mean((1, 2)).numpy()


def _untrained(source: Source, tables: dict[str, EpisodeTable]) -> dict[str, Array]:
    """Codes of the encoder's first weights, of the same class: a row is of its own learner's code alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(source.seed)
        fresh = type(source.learner)(source.learner.config).eval()
    return {split: errors.codes_of(fresh, source.store, tables[split]) for split in EVALUATED}


def _probes(codes: dict[str, dict[str, Array]], tables: dict[str, EpisodeTable], name: str) -> dict[str, float]:
    """R² of raw viscosity on ID histories: of both codes, of shuffled labels, of the viscosity in a code's place."""
    values = {split: tables[split][name].astype(np.float64) for split in (TRAIN, ID)}
    cases, row = tables[TRAIN]["case"], {}
    for kind in ("code0", "code50"):
        fitted = probes.fit_probe(codes[TRAIN][kind], values[TRAIN], cases)
        row[kind] = probes.probe_score(fitted, codes[ID][kind], values[ID])
    blind = probes.fit_probe(codes[TRAIN]["code0"], probes.shuffled(values[TRAIN]), cases)
    row["shuffled"] = probes.probe_score(blind, codes[ID]["code0"], values[ID])
    oracle = probes.fit_probe(values[TRAIN][:, None], values[TRAIN], cases)
    return row | {"oracle": probes.probe_score(oracle, values[ID][:, None], values[ID])}


def _decoder_change(source: Source, told: dict[str, Any]) -> float:
    """Largest change of a weight of the decoder since CoDA's training ended."""
    folder = source.folder.parent / told["shared"]
    first = read_tensors(training_states(folder / "checkpoints")[-1] / "model.safetensors", f"remove {folder}")
    now = source.learner.decoder.state_dict()
    return max(float((value - first[f"decoder.{name}"]).abs().max()) for name, value in now.items())
