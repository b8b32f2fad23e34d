"""A D-Clean cell from bank to row, and what makes two cells different."""

import dataclasses
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import HORIZONS, JEPA_CONFIG, PROTOCOL, naive_windows

from sprii_envs.banks import D_CLEAN, Bank, BankError
from sprii_envs.relations import WindowSampler
from sprii_train.analysis.donors import encode_split
from sprii_train.checkpoints import load
from sprii_train.data import WindowReader
from sprii_train.experiments.dclean import (
    EVALUATION_SEED,
    PRESETS,
    DCleanCell,
    Preset,
    cells,
    measure,
    open_bank,
)
from sprii_train.experiments.grid import folder_of
from sprii_train.fit import TrainConfig, resolve_precision
from sprii_train.learners import JEPA, JEPAConfig
from sprii_train.recipes import RECIPES

TRAIN = TrainConfig(steps=3, pairs=8, warmup=1, checkpoint_every=2, log_every=1, precision="fp32")
TINY = Preset("tiny", JEPA_CONFIG, TRAIN, ("structure", "align-random"), (0, 1), PROTOCOL)

MEASURES = {
    "drag_r2", "drag_r2_centroid", "log_drag_r2", "within", "between", "between_within", "code_sd",
    "target_variance",
    "self_h1", "self_h3", "correct_h1", "correct_h3", "shuffled_h1", "shuffled_h3", "gap",
}  # fmt: skip


def cell(bank: Bank, arm: str = "align-cross", **changes: object) -> DCleanCell:
    given = DCleanCell(arm, JEPA_CONFIG, TRAIN, str(bank.path), bank.fingerprint, "test")
    return replace(given, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("arm", RECIPES)
def test_cell_end_to_end(bank: Bank, tmp_path: Path, arm: str):
    seen: list[int] = []
    row = cell(bank, arm).run(tmp_path, lambda step, values: seen.append(step))
    assert seen == [1, 2, 3]
    expected = MEASURES | {"arm", "label", "seed", "steps", "train_seconds"}
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
    reader = WindowReader(bank, learner.config.history, HORIZONS, properties=("drag",))
    again = measure(learner, reader, "test")
    assert again == {k: v for k, v in row.items() if k in again}


def test_measures_by_hand(bank: Bank):
    learner = JEPA(JEPA_CONFIG)
    reader = WindowReader(bank, JEPA_CONFIG.history, HORIZONS)
    row = measure(learner, reader, "validation")
    assert not learner.training
    z = encode_split(learner, reader, "validation", seed=EVALUATION_SEED).codes.z_p.double().numpy()
    z_train = encode_split(learner, reader, "train", seed=EVALUATION_SEED).codes.z_p.double().numpy()
    assert z.shape == (16, 4)
    assert row["code_sd"] == pytest.approx(np.mean([z[:, j].std() for j in range(4)]))
    scaled = ((z - z_train.mean(0)) / z_train.std(0)).reshape(4, 4, 4)  # system, rollout, feature
    pairs = [(i, j) for i in range(4) for j in range(i)]
    within = np.mean([[((s[i] - s[j]) ** 2).sum() for i, j in pairs] for s in scaled])
    means = scaled.mean(1)
    between = np.mean([((means[i] - means[j]) ** 2).sum() for i, j in pairs])
    assert (row["within"], row["between"]) == (pytest.approx(within), pytest.approx(between))

    starts = WindowSampler(bank.split("validation"), 6, 3).starts(np.arange(16), seed=EVALUATION_SEED)
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
        return (*value, value[-1] + 5)
    return {
        "split": "monolithic", "pooled": "step", "fp32": "bf16", "cpu": "cuda", "test": "validation",
        "align-cross": "align",
    }.get(str(value), f"{value}x")  # fmt: skip


TOLD = ("log_every", "checkpoint_every", "device")
"""What a run reports and where it runs: the weights do not depend on it."""


LEGAL = {"width": 16, "heads": 4, "image": 64}  # where `other` gives a value that is refused


def test_identity_changes_with_every_field_that_matters(bank: Bank, tmp_path: Path):
    base = cell(bank)
    variants = {
        f"learner.{f.name}": replace(
            base,
            learner=replace(
                JEPA_CONFIG, **{f.name: LEGAL[f.name] if f.name in LEGAL else other(getattr(JEPA_CONFIG, f.name))}
            ),
        )
        for f in dataclasses.fields(JEPAConfig)
    }
    variants |= {
        f"train.{f.name}": replace(base, train=replace(TRAIN, **{f.name: other(getattr(TRAIN, f.name))}))
        for f in dataclasses.fields(TrainConfig)
        if f.name not in TOLD
    }
    variants |= {name: replace(base, **{name: other(getattr(base, name))}) for name in ("arm", "fingerprint")}
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


def test_cells_are_ordered_by_source(bank: Bank):
    got = cells(TINY, bank)
    assert [c.title for c in got] == [
        "structure-seed0", "align-random-seed0", "structure-seed1", "align-random-seed1",
    ]  # fmt: skip
    assert {c.steps for c in got} == {3}
    assert {c.population for c in got} == {"test"}
    assert {c.population for c in cells(TINY, bank, population="validation")} == {"validation"}


def test_presets():
    assert set(PRESETS) == {"smoke", "quick", "paper"}
    for name, preset in PRESETS.items():
        assert preset.name == name
        assert set(preset.arms) <= set(RECIPES)
    paper = PRESETS["paper"]
    assert (paper.learner, paper.train, paper.protocol) == (JEPAConfig(), TrainConfig(), D_CLEAN)
    assert (paper.train.steps, paper.train.pairs, paper.train.learning_rate) == (20_000, 48, 3e-4)
    assert paper.arms == tuple(RECIPES)


def test_open_bank_builds_once(tmp_path: Path):
    first = open_bank(TINY, tmp_path)
    assert first.path == tmp_path / "banks" / "d-clean-12-4-6"
    stamps = {file: file.stat().st_mtime_ns for file in first.path.iterdir()}
    assert len(stamps) >= 4
    second = open_bank(TINY, tmp_path)
    assert second.fingerprint == first.fingerprint
    assert {file: file.stat().st_mtime_ns for file in second.path.iterdir()} == stamps


def test_open_bank_refuses_an_altered_bank(tmp_path: Path):
    states = open_bank(TINY, tmp_path).path / "states.f32"
    data = bytearray(states.read_bytes())
    data[100] ^= 1
    states.write_bytes(data)
    with pytest.raises(BankError, match=r"states\.f32 is damaged: its checksum is another"):
        open_bank(TINY, tmp_path)
