"""Evidence of numerical states, the atlas, and what an update costs."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from tiny_sources import TRAIN, measuring

from sprii_envs.banks import Bank
from sprii_train.analysis.formation import POKE_FACTORS, fit_mlp, fit_ridge, poke_evidence, score
from sprii_train.analysis.populations import Development, Sample, Training
from sprii_train.cases.encoding import encode_histories
from sprii_train.experiments.measures import MEASURES
from sprii_train.experiments.measures.evidence import evidence
from sprii_train.experiments.measures.formation import SEED, development
from sprii_train.experiments.sources import Source
from sprii_train.experiments.state_decoder import fit_state_decoder
from sprii_train.protocol import encode
from sprii_train.settings import POKE


def test_evidence_by_hand(poke_source: Source, poke_bank: Bank):
    """Of numerical states alone: the learner is not read."""
    row = evidence(replace(poke_source, learner=None), kinds=("ridge",))  # type: ignore[arg-type]  # networks take seconds
    assert len(row) == 2 * 3

    def one(split: str) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        table, features = poke_bank.split(split), []
        for e in table["episode"]:
            for last in (24, 32, 40, 47):
                states = poke_bank["states"][e, last - 23 : last + 1][None]
                features.append(poke_evidence(states, poke_bank["actions"][e, last - 23 : last][None])[0])
        columns = {name: np.repeat(table[name], 4) for name in ("mass", "drag", "stiffness")}
        return np.array(features), np.repeat(table["system"], 4), columns

    train, held_out = Sample(Training("train"), *one("train")), Sample(Development("validation"), *one("validation"))
    for factor in POKE_FACTORS:
        expected = score(fit_ridge(train, factor), held_out).r2
        assert row[f"one_ridge_{factor.name}"] == pytest.approx(expected, rel=1e-6)
    # Four whole episodes tell the mass: the impulse that the finger lacks is what the object got.
    assert row["all_ridge_mass"] > 0.9
    assert row["all_ridge_mass"] > row["one_ridge_mass"]


def test_networks_on_single_histories(poke_source: Source, poke_bank: Bank):
    one_factor = replace(POKE, factors=POKE_FACTORS[1:2])  # a network takes a second
    row = MEASURES["windows"](replace(poke_source, setting=one_factor))
    learner, reader = poke_source.learner, POKE.reader(poke_bank, poke_source.learner.config)

    def histories(split: str) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        table = poke_bank.split(split)
        codes = np.stack([encode_histories(learner, reader, table, start) for start in (1, 9, 17, 24)], axis=1)
        columns = {name: np.repeat(table[name], 4) for name in ("mass", "drag", "stiffness")}
        return codes.reshape(len(table) * 4, -1), np.repeat(table["system"], 4), columns

    train = Sample(Training("train"), *histories("train"))
    held_out = Sample(Development("validation"), *histories("validation"))
    expected = score(fit_mlp(train, POKE_FACTORS[1], seed=SEED), held_out).r2
    assert row == {"window_mlp_drag": pytest.approx(expected, rel=1e-6)}


def test_few_systems_are_those_that_a_setting_draws(
    poke_source: Source, poke_bank: Bank, monkeypatch: pytest.MonkeyPatch
):
    """200 of the paper's 400: where a bank has no more, `development` is `formation`; of 8 it is a choice of them."""
    source = replace(poke_source, cell=measuring(poke_source.cell, "development"))
    whole, all_of_them = MEASURES["formation"](poke_source), MEASURES["development"](source)
    assert list(all_of_them) == ["validation"]
    assert all_of_them["validation"] == whole["validation"]

    monkeypatch.setattr(sys.modules[development.__module__], "FEW", 8)
    row = MEASURES["development"](source)["validation"]
    kept = load_file(source.folder / source.cell.arrays)["validation|window_ridge_drag"]
    chosen = np.unique(POKE.episodes(poke_bank, "validation", systems=8)["system"])
    assert kept.shape == chosen.shape == (8,)
    drag = poke_bank.split("validation")["drag"][np.isin(poke_bank.split("validation")["system"], chosen)]
    assert row["window_ridge_drag"] == pytest.approx(1.0 - kept.mean() / drag.var(), rel=1e-6)
    assert row["self_h16"] != whole["validation"]["self_h16"]


def test_decoded_states_by_hand(poke_source: Source, poke_bank: Bank):
    source = replace(poke_source, cell=measuring(poke_source.cell, "decoded"))
    row = MEASURES["decoded"](source)
    assert list(row) == ["object_validation", "object_confirmation"]
    decoder, learner, table = fit_state_decoder(source), source.learner, poke_bank.split("validation")
    errors = []
    for episode in table["episode"].tolist():
        for last in (24, 32, 40, 47):
            batch = learner.prepare(source.reader.read(np.array([episode]), np.array([last - 23])))
            with torch.no_grad():
                codes = encode(learner, batch)
                predicted = decoder(learner.predict(codes.z_s, codes.z_p, batch.u)[:, 2].double().numpy())[0]
            truth = decoder.standardise(poke_bank["states"][episode, last + 16])
            errors.append(np.square(predicted - truth).mean())
    assert row["object_validation"] == pytest.approx(np.mean(errors), rel=1e-5)
    kept = load_file(source.folder / source.cell.arrays)["validation"]
    np.testing.assert_allclose(kept, np.array(errors).reshape(12, 16).mean(1), rtol=1e-5)


def test_atlas_by_hand(poke_source: Source, poke_bank: Bank):
    source = replace(poke_source, cell=measuring(poke_source.cell, "atlas"))
    row = MEASURES["atlas"](source)
    kept = load_file(source.folder / source.cell.arrays)
    learner, reader = source.learner, POKE.reader(poke_bank, source.learner.config)

    def rollouts(split: str) -> np.ndarray:
        table = poke_bank.split(split)
        return np.mean([encode_histories(learner, reader, table, start) for start in (1, 9, 17, 24)], axis=0)

    train = rollouts("train")
    centroids = ((rollouts("validation") - train.mean(0)) / train.std(0)).reshape(12, 4, -1).mean(1)
    _, singular, axes = np.linalg.svd(centroids - centroids.mean(0), full_matrices=False)
    signs = np.sign([axis[np.abs(axis).argmax()] for axis in axes[:2]])
    np.testing.assert_allclose(kept["xy"], (centroids - centroids.mean(0)) @ axes[:2].T * signs, atol=1e-5)
    np.testing.assert_allclose(kept["shares"], singular[:2] ** 2 / (singular**2).sum(), rtol=1e-5)
    assert (row["pc1"], row["pc2"]) == pytest.approx(tuple(kept["shares"]))
    for factor in ("mass", "drag", "stiffness"):
        assert kept[factor].tolist() == poke_bank.split("validation")[factor][::4].tolist()


def test_timing_an_update_leaves_everything_as_it_was(poke_source: Source):
    before = {name: value.clone() for name, value in poke_source.learner.state_dict().items()}
    torch.manual_seed(11)
    expected = torch.rand(3)
    torch.manual_seed(11)
    row: dict[str, Any] = MEASURES["cost"](poke_source)
    assert torch.equal(torch.rand(3), expected)
    assert all(torch.equal(value, before[name]) for name, value in poke_source.learner.state_dict().items())
    assert not poke_source.learner.training
    assert row["update_seconds"] > 0
    assert row["batch_seconds"] > 0
    assert (row["pairs"], row["reader_updates"]) == (TRAIN.pairs, poke_source.cell.readers.updates)


def test_gradients_of_a_source_as_its_run_wrote_them(spring_source: Source, tmp_path: Path):
    source = replace(spring_source, cell=measuring(spring_source.cell, "gradients"))
    row = MEASURES["gradients"](source)
    kept = load_file(source.folder / source.cell.arrays)
    lines = [json.loads(line) for line in (source.folder / "gradients.jsonl").read_text(encoding="utf-8").splitlines()]
    assert kept["step"].tolist() == [1, 2, 3]  # a run of three updates is observed at each
    assert kept["cosine"].tolist() == [line["cosine"] for line in lines]
    assert row["smallest_norm"] == min(min(line["align_norm"], line["cross_norm"]) for line in lines)
    assert row["mean"] == pytest.approx(np.mean(kept["cosine"]))
    assert [row[f"mean_{phase}"] for phase in ("early", "middle", "late")] == kept["cosine"].tolist()

    untold = replace(source, folder=tmp_path)
    with pytest.raises(ValueError, match="was trained without the gradient diagnostic"):
        MEASURES["gradients"](untold)


def test_gradients_are_observed_where_both_terms_are_on(poke_source: Source):
    assert not (poke_source.folder / "gradients.jsonl").exists()  # Structure has neither
