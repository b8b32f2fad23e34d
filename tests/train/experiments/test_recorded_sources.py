"""Sources over a recorded bank, without a simulator: CaDM's, and those of a learner of one's own."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from tiny_sources import TRAIN, silent, source_of
from torch import Tensor, nn

from sprii_envs.banks import RecordedBank, Recording, StreamSpec
from sprii_envs.relations import WindowSampler
from sprii_train.analysis.donors import donor_pairs
from sprii_train.cases.encoding import features
from sprii_train.cases.windows import cases_of
from sprii_train.experiments.cells import folder_of
from sprii_train.experiments.measures import MEASURES
from sprii_train.experiments.measures.formation import SEED
from sprii_train.experiments.sources import ReaderBudget, Source, SourceCell
from sprii_train.learners import LEARNERS, CaDMConfig, register_learner
from sprii_train.protocol import Batch, Codes, MissingOperation, Windows, check_learner, self_loss
from sprii_train.recipes import EVERY_RECIPE
from sprii_train.settings import Setting

STREAMS = {"touch": StreamSpec((4,)), "joints": StreamSpec((2,)), "push": StreamSpec((2,), per="transition")}
SPLITS = {"train": 12, "validation": 6, "test": 4}
HISTORY, LENGTH = 6, 24


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> RecordedBank:
    """Objects of unknown softness under random pushes, four episodes each; the test objects are sealed."""
    path, rng = tmp_path_factory.mktemp("recorded") / "gripper", np.random.default_rng(0)
    with Recording(path, STREAMS, origin={"source": "a test"}, sealed=("test",)) as recording:
        for split, count in SPLITS.items():
            for i in range(count):
                softness = float(rng.uniform(0.2, 2.0))
                for _ in range(4):
                    push = rng.standard_normal((LENGTH - 1, 2))
                    joints = np.cumsum(np.concatenate([np.zeros((1, 2)), push]), axis=0)
                    touch = np.concatenate([softness * joints, rng.standard_normal((LENGTH, 2))], axis=1)
                    arrays = {"touch": touch, "joints": joints, "push": push}
                    recording.append(
                        {name: array.astype("f4") for name, array in arrays.items()},
                        system=f"{split}-{i}", split=split, softness=softness,
                    )  # fmt: skip
    return RecordedBank(path)


GRIPPER = Setting(
    "gripper",
    RecordedBank,
    properties=("softness",),
    history=HISTORY,
    anchors=(8, 12),
    observation="touch",
    action="push",
    case_horizons=(1, 3),
    case_count=8,
    unsealed=True,
)
BIMODAL = replace(GRIPPER, name="bimodal", observation=("touch", "joints"))


@dataclass(frozen=True)
class GripperConfig:
    width: int = 3
    horizons: tuple[int, ...] = (1, 3)


class GripperLearner(nn.Module):
    """Linear maps of two streams; it offers the five operations and `present`."""

    def __init__(self, config: GripperConfig) -> None:
        super().__init__()
        self.config = config
        self.history = nn.Linear(HISTORY * 6, config.width)
        self.current = nn.Linear(6, config.width)
        self.ahead = nn.Linear(2 * config.width + config.horizons[-1] * 2, 4)

    def prepare(self, windows: Windows) -> Batch:
        seen = windows.observations
        now = {name: stream[:, -1] for name, stream in seen.items()}
        return Batch(seen, now, windows.future_actions, windows.future_observations)

    def encode_history(self, history: dict[str, Tensor]) -> Tensor:
        return self.history(torch.cat([history["touch"], history["joints"]], dim=-1).flatten(1))

    def encode_current(self, current: dict[str, Tensor]) -> Tensor:
        return self.current(torch.cat([current["touch"], current["joints"]], dim=-1))

    def present(self, observations: dict[str, Tensor]) -> Tensor:
        return self.encode_current(observations)

    def predict(self, z_s: Tensor, z_p: Tensor, u: Tensor) -> Tensor:
        return self.ahead(torch.cat([z_s, z_p, u.flatten(1)], dim=1))

    def task_loss(self, prediction: Tensor, y: dict[str, Tensor]) -> Tensor:
        return (prediction - y["touch"][:, -1]).square().mean(1)

    def native_loss(self, batch: Batch, codes: Codes) -> tuple[Tensor, dict[str, Tensor]]:
        own = self_loss(self, batch, codes)
        return own, {"self": own}


@pytest.fixture
def _registered() -> Iterator[None]:
    register_learner("gripper", GripperLearner, GripperConfig)
    yield
    del LEARNERS["gripper"]


CADM = CaDMConfig(
    observation_dim=4, action_dim=2, history=HISTORY - 1, window=4, context=2, encoder=(8, 7, 6), dynamics=(8, 7, 6, 5)
)


def cell_of(setting: Setting, bank: RecordedBank, learner: Any, arm: str, measure: str | None = None) -> SourceCell:
    return SourceCell(
        setting, EVERY_RECIPE[arm], learner, TRAIN, bank.name, bank.fingerprint,
        measure=None if measure is None else MEASURES[measure], readers=ReaderBudget(1, 5, 5),
    )  # fmt: skip


@pytest.mark.parametrize("arm", ["structure", "align-cross", "align-random"])
def test_cadm_over_a_recorded_bank(recorded: RecordedBank, tmp_path: Path, arm: str):
    """Trained, read back and measured at each of its steps; every held-out split is a population."""
    cell = cell_of(GRIPPER, recorded, CADM, arm, "formation")
    folder = folder_of(cell, tmp_path)
    row = cell.run(folder, silent)
    assert (row["world"], row["arm"], row["steps"]) == ("gripper", arm, 3)
    assert json.loads(json.dumps(row, allow_nan=False)) == row
    source = source_of(cell, tmp_path)
    assert (source.learner.config, source.separate) == (CADM, True)
    assert row["parameters"] == sum(p.numel() for p in source.learner.parameters())
    check_learner(source.learner, GRIPPER.data(recorded, CADM, cell.recipe, pairs=6, seed=0)(0))
    run = json.loads((folder / "run.json").read_text())
    assert run["data"]["bank"] == recorded.fingerprint
    kept = load_file(folder / cell.arrays)
    for split in ("validation", "test"):
        assert {"within", "between", "centroid_ridge_softness"} <= row[split].keys()
        assert not {"self", "correct", "shuffled"} & row[split].keys()
        for name, expected in stepped(source, split).items():
            assert [row[split][f"{name}_h{h}"] for h in CADM.horizons] == pytest.approx(expected, rel=1e-4), name
        assert kept[f"{split}|centroid_ridge_softness"].shape == (SPLITS[split],)
    with pytest.raises(ValueError, match="gripper has no simulator"):
        _ = source.bank


@torch.no_grad()
def stepped(source: Source, split: str) -> dict[str, list[float]]:
    """Errors of one-step predictions from the true course, in training SDs of changes, as a planner steps CaDM.

    Under the own, every same-system and a shuffled context (four episodes a system), with the variance of changes.
    """
    learner, reader, table = source.learner, source.reader, source.store.split(split, unseal=True)
    starts = WindowSampler(table, history=HISTORY, horizon=CADM.window).starts(np.arange(len(table)), seed=SEED)
    seen = torch.from_numpy(source.store.windows("touch", table["episode"], starts, HISTORY + CADM.window))
    done = torch.from_numpy(source.store.windows("push", table["episode"], starts + HISTORY - 1, CADM.window))
    contexts = learner.encode_history(learner.prepare(reader.histories(table["episode"], starts)).history)
    course, (mean, sd) = seen[:, HISTORY - 1 :], learner.difference
    changes = ((course.diff(dim=1) - mean) / sd).double()
    recipient, correct, shuffled = donor_pairs(table["system"], SEED)
    every = np.arange(len(table))
    told: dict[str, list[float]] = {"variance": changes.var(0).mean(1).tolist()}
    for name, rows, donors in (
        ("self", every, every),
        ("correct", recipient, correct),
        ("shuffled", recipient, shuffled),
    ):
        told[name] = [
            float((((learner.step(before, done[rows, h], contexts[donors]) - after) / sd) ** 2).mean())
            for h, (before, after) in enumerate(pairwise(course[rows].unbind(1)))
        ]
    return told


@pytest.mark.usefixtures("_registered")
def test_a_learner_of_ones_own_reads_several_streams(recorded: RecordedBank, tmp_path: Path):
    cell = cell_of(BIMODAL, recorded, GripperConfig(), "align-cross", "task")
    row = cell.run(folder_of(cell, tmp_path), silent)
    source = source_of(cell, tmp_path)
    assert isinstance(source.learner, GripperLearner)
    check_learner(source.learner, BIMODAL.data(recorded, GripperConfig(), cell.recipe, pairs=6, seed=0)(0))
    kept = load_file(source.folder / cell.arrays)
    assert {"value|null", "value|persistent", "value|oracle", "value|m2", "wrong|m2"} <= kept.keys()
    for name, errors in kept.items():
        assert errors.shape == (1, SPLITS["validation"], 2)
        prefix, reader = name.split("|")
        assert row[f"{prefix}_{reader}"] == pytest.approx(errors.mean())
    assert row["own_s0"] == row["cross_s0"] == pytest.approx(row["value_r0"])  # no context, no donor
    assert "unmeasured" not in row


@pytest.mark.usefixtures("_registered")
def test_errors_are_by_horizon_only_where_the_learner_says_so(recorded: RecordedBank, tmp_path: Path):
    """One horizon and one task loss look alike, but the targets' axes are the learner's own affair."""
    cell = cell_of(BIMODAL, recorded, GripperConfig(horizons=(3,)), "structure", "formation")
    row = cell.run(folder_of(cell, tmp_path), silent)["validation"]
    assert {"self", "correct", "shuffled"} <= row.keys()
    assert not {"self_h3", "variance_h3"} & row.keys()


def test_a_measure_that_cannot_be_taken_says_why(recorded: RecordedBank, tmp_path: Path):
    """The operation that the learner lacks, or the simulator that the store has not; the source is there."""
    reasons = {
        "fixed-weight": "fixed-weight needs the operation 'aggregate', which CaDM lacks",
        "native-decoder": "native-decoder needs the operation 'forecast', which CaDM lacks",
        "gradients": "gradients needs the operation 'history', which CaDM lacks",
        "direction": f"direction needs a simulator, which {recorded.name} has not",
        "evidence": f"evidence needs a simulator, which {recorded.name} has not",
    }
    for measure, reason in reasons.items():
        cell = cell_of(GRIPPER, recorded, CADM, "structure", measure)
        row = cell.run(folder_of(cell, tmp_path), silent)
        assert row["unmeasured"] == {measure: reason}
        assert row["train_seconds"] >= 0
        assert not (folder_of(cell, tmp_path) / cell.arrays).exists()


@pytest.mark.usefixtures("_registered")
def test_a_learner_without_presents_serves_no_reader_of_them(
    recorded: RecordedBank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delattr(GripperLearner, "present")
    cell = cell_of(BIMODAL, recorded, GripperConfig(), "structure", "task")
    for measure in ("task", "bottleneck"):
        row = replace(cell, measure=MEASURES[measure]).run(folder_of(cell, tmp_path), silent)
        assert row["unmeasured"] == {measure: f"{measure} needs the operation 'present', which GripperLearner lacks"}
    told = "a reader of presents needs the operation 'present', which GripperLearner lacks"
    with pytest.raises(MissingOperation, match=told):
        features(source_of(cell, tmp_path).learner, torch.zeros(2, 4))


def test_readers_take_cadms_standardised_observations(recorded: RecordedBank, tmp_path: Path):
    cell = cell_of(GRIPPER, recorded, CADM, "structure", "task")
    row = cell.run(folder_of(cell, tmp_path), silent)
    source = source_of(cell, tmp_path)
    kept = load_file(source.folder / cell.arrays)
    assert "unmeasured" not in row
    assert {"value|null", "value|persistent", "value|decode", "value|oracle", "value|m2", "wrong|m2"} <= kept.keys()
    assert all(errors.shape == (1, SPLITS["validation"], 2) for errors in kept.values())
    cases, mean, sd = cases_of(source), *source.learner.observation.double().numpy()
    drawn = cases.drawn["validation"]
    present = recorded.windows("touch", drawn.episodes, drawn.anchors, 1)[:, 0]
    np.testing.assert_allclose(cases.development.query, (present - mean) / sd, rtol=1e-5, atol=1e-5)


def test_contexts_that_a_learner_does_not_have(recorded: RecordedBank, tmp_path: Path):
    for arm in ("native", "supervised"):
        cell = cell_of(GRIPPER, recorded, CADM, arm)
        with pytest.raises(ValueError, match=f"the arm '{arm}' is of the context .*, but CaDMConfig has"):
            cell.run(folder_of(cell, tmp_path), silent)


def test_what_a_measurement_depends_on_is_no_address(recorded: RecordedBank):
    """A setting's functions count by their code, which a result outlives in another process."""

    def opener(inner: bool) -> Any:
        if inner:
            return lambda folder: RecordedBank(folder / "one")
        return lambda folder: RecordedBank(folder)

    base = cell_of(GRIPPER, recorded, CADM, "structure", "formation")
    one, again, other = (replace(base, setting=replace(GRIPPER, store=opener(inner))) for inner in (True, True, False))
    assert one.setting.store is not again.setting.store
    assert one.measurement() == again.measurement() != other.measurement()
    assert one.measurement() != base.measurement()
    assert replace(base, setting=replace(GRIPPER, anchors=(8,))).measurement() != base.measurement()
    assert "0x" not in json.dumps(one.measurement())
