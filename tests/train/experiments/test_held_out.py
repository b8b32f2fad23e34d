"""The measures of one held-out split against plain computations, the cell that takes them, D-Clean's budgets."""

import dataclasses
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from tiny import HORIZONS, JEPA_CONFIG, PROTOCOL, naive_windows
from tiny_sources import cell_of, measuring

from sprii_envs.banks import D_CLEAN, Bank, BankError
from sprii_envs.relations import WindowSampler
from sprii_train.analysis.donors import encode_split
from sprii_train.checkpoints import load
from sprii_train.data import WindowReader
from sprii_train.experiments.cells import folder_of
from sprii_train.experiments.measures.formation import SEED
from sprii_train.experiments.measures.held_out import held_out
from sprii_train.experiments.sources import Source, SourceCell
from sprii_train.fit import TrainConfig, resolve_precision
from sprii_train.learners import JEPA, JEPAConfig
from sprii_train.recipes import EVERY_RECIPE, RECIPES
from sprii_train.settings import D_CLEAN as SETTING
from sprii_train.settings import Built

SHORT = replace(SETTING, history=JEPA_CONFIG.history)
TRAIN = TrainConfig(steps=3, pairs=8, warmup=1, checkpoint_every=2, log_every=1, precision="fp32")

MEASURES = {
    "drag_r2", "drag_r2_centroid", "log_drag_r2", "within", "between", "between_within", "code_sd",
    "target_variance", "episodes_per_system", "systems",
    "self_h1", "self_h3", "correct_h1", "correct_h3", "shuffled_h1", "shuffled_h3", "gap",
}  # fmt: skip


def cell(bank: Bank, arm: str = "align-cross", **changes: object) -> SourceCell:
    given = {"setting": SHORT, "learner": JEPA_CONFIG, "train": TRAIN}
    return measuring(cell_of(bank, "d-clean", arm, **given | changes), "held-out")


@pytest.mark.parametrize("arm", RECIPES)
def test_cell_end_to_end(bank: Bank, tmp_path: Path, arm: str):
    seen: list[int] = []
    row = cell(bank, arm).run(tmp_path, lambda step, values: seen.append(step))
    assert seen == [1, 2, 3]
    expected = MEASURES | {"world", "arm", "label", "seed", "steps", "train_seconds", "parameters"}
    if arm == "native":
        expected -= {"correct_h1", "shuffled_h1", "shuffled_h3"}
        assert row["gap"] is None
        assert row["correct_h3"] is None
    assert set(row) == expected
    assert (row["arm"], row["label"], row["seed"], row["steps"]) == (arm, RECIPES[arm].label, 0, 3)
    assert all(math.isfinite(v) for k, v in row.items() if k in MEASURES and v is not None)
    assert json.loads(json.dumps(row, allow_nan=False)) == row
    if arm != "native":
        assert row["gap"] == row["shuffled_h3"] - row["correct_h3"]
    assert row["between_within"] == pytest.approx(row["between"] / row["within"])

    learner = load(tmp_path / "model")
    assert isinstance(learner, JEPA)
    assert learner.config == replace(JEPA_CONFIG, context=RECIPES[arm].context)
    again = held_out(Source(cell(bank, arm), SHORT, bank, learner, tmp_path))
    assert again == {k: v for k, v in row.items() if k in again}
    kept = load_file(tmp_path / "held-out-test.safetensors")
    np.testing.assert_array_equal(kept["drag"], bank.split("test")["drag"])
    assert kept["xy"].shape == (24, 2)
    assert 0 < kept["shares"].sum() <= 1


def test_measures_by_hand(bank: Bank, tmp_path: Path):
    learner = JEPA(JEPA_CONFIG)
    reader = WindowReader(bank, JEPA_CONFIG.history, HORIZONS)
    row = held_out(Source(cell(bank, population="validation"), SHORT, bank, learner, tmp_path))
    assert not learner.training
    z = encode_split(learner, reader, "validation", seed=SEED).codes.z_p.double().numpy()
    z_train = encode_split(learner, reader, "train", seed=SEED).codes.z_p.double().numpy()
    assert z.shape == (16, 4)
    assert row["code_sd"] == pytest.approx(np.mean([z[:, j].std() for j in range(4)]))
    scaled = ((z - z_train.mean(0)) / z_train.std(0)).reshape(4, 4, 4)  # system, rollout, feature
    pairs = [(i, j) for i in range(4) for j in range(i)]
    within = np.mean([[((s[i] - s[j]) ** 2).sum() for i, j in pairs] for s in scaled])
    means = scaled.mean(1)
    between = np.mean([((means[i] - means[j]) ** 2).sum() for i, j in pairs])
    assert (row["within"], row["between"]) == (pytest.approx(within), pytest.approx(between))

    starts = WindowSampler(bank.split("validation"), 6, 3).starts(np.arange(16), seed=SEED)
    with torch.no_grad():
        batch = learner.prepare(naive_windows(bank, np.arange(48, 64), starts))
        z_s, z_p = learner.encode_current(batch.current), learner.encode_history(batch.history)
        errors = (learner.predict(z_s, z_p, batch.u) - batch.y).double().square().mean((0, 2))
    assert row["self_h1"] == pytest.approx(errors[0].item(), rel=1e-5)
    assert row["self_h3"] == pytest.approx(errors[1].item(), rel=1e-5)
    assert row["target_variance"] == pytest.approx(batch.y[:, 1].double().var(0).mean().item(), rel=1e-5)


def other(value: object) -> object:
    if isinstance(value, bool):
        return not value
    if isinstance(value, float):
        return value + 0.5
    if isinstance(value, int):
        return value + 1
    if isinstance(value, tuple):
        return (*value, value[-1] + 5) if value else ((0, 1e-3),)  # the rates of a training
    return {
        "raw": "scaled", "batch": "snapshot", "split": "monolithic", "transformer": "gru", "step": "pooled",
        "fp32": "bf16", "cpu": "cuda",
    }.get(str(value), f"{value}x")  # fmt: skip


TOLD = ("log_every", "checkpoint_every", "device")
"""What a run reports and where it runs: the weights do not depend on it."""


LEGAL = {"width": 16, "heads": 4, "image": 64, "endpoints": (0.5,)}  # where `other` gives a value that is refused


def test_identity_changes_with_every_field_that_matters(bank: Bank, tmp_path: Path):
    base = cell(bank)
    variants = {
        f"learner.{f.name}": replace(
            base, learner=replace(JEPA_CONFIG, **{f.name: LEGAL.get(f.name) or other(getattr(JEPA_CONFIG, f.name))})
        )
        for f in dataclasses.fields(JEPAConfig)
    }
    variants |= {
        f"train.{f.name}": replace(
            base, train=replace(TRAIN, **{f.name: LEGAL.get(f.name) or other(getattr(TRAIN, f.name))})
        )
        for f in dataclasses.fields(TrainConfig)
        if f.name not in TOLD
    }
    variants |= {"arm": replace(base, recipe=EVERY_RECIPE["align"]), "bank": replace(base, fingerprint="x")}
    folders = {name: folder_of(c, tmp_path) for name, c in variants.items()}
    folders["base"] = folder_of(base, tmp_path)
    assert len(set(folders.values())) == len(folders)
    for name in TOLD:
        told = replace(base, train=replace(TRAIN, **{name: other(getattr(TRAIN, name))}))
        assert folder_of(told, tmp_path) == folders["base"]
    validation = replace(base, population="validation")
    assert folder_of(validation, tmp_path) == folders["base"]
    assert validation.result != base.result
    assert folder_of(replace(base, bank="/elsewhere"), tmp_path) == folders["base"]  # its fingerprint says what it is
    resolved = resolve_precision(replace(TRAIN, precision="auto"))
    auto, explicit = (replace(base, train=replace(TRAIN, precision=p)) for p in ("auto", resolved))
    assert folder_of(auto, tmp_path) == folder_of(explicit, tmp_path)


def test_budgets():
    paper, smoke = SETTING.budget("paper"), SETTING.budget("smoke")
    assert set(SETTING.budgets) == {"smoke", "quick", "paper"}
    assert (paper.learner, paper.train, paper.store) == (JEPAConfig(), TrainConfig(), None)
    assert SETTING.store == Built(D_CLEAN)
    assert (paper.train.steps, paper.train.pairs, paper.train.learning_rate) == (20_000, 48, 3e-4)
    assert isinstance(smoke.store, Built)
    assert smoke.store.protocol.systems == {"train": 60, "validation": 20, "test": 20}


def test_a_budget_may_have_a_store_of_its_own(tmp_path: Path):
    small = replace(SETTING.budget("smoke"), store=Built(PROTOCOL))
    first = SETTING.open_store(tmp_path, small)
    assert isinstance(first, Bank)
    assert first.path == tmp_path / "banks" / "d-clean-12-4-6-r4"
    stamps = {file: file.stat().st_mtime_ns for file in first.path.iterdir()}
    assert len(stamps) >= 4
    assert SETTING.open_store(tmp_path, small).fingerprint == first.fingerprint
    assert {file: file.stat().st_mtime_ns for file in first.path.iterdir()} == stamps
    states = first.path / "states.f32"
    data = bytearray(states.read_bytes())
    data[100] ^= 1
    states.write_bytes(data)
    with pytest.raises(BankError, match=r"states\.f32 is damaged: its checksum is another"):
        SETTING.open_store(tmp_path, small)
