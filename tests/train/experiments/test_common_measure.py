"""The common reader as a measure: sources that know the drag or nothing, and what all sources share."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from knowing import knowing_source
from safetensors.numpy import load_file
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score
from tiny_sources import cell_of, measuring, source_of
from tiny_worlds import D_CLEAN_SMALL

from sprii_envs.banks import Bank, build
from sprii_train.analysis.populations import Training
from sprii_train.analysis.value.common import CommonConfig, common_errors, hash_halves, report_pairs
from sprii_train.experiments.measures.common import (
    ANCHORS,
    FIRST_SEED,
    SEED,
    Comparison,
    common_reader,
    window_codes,
    windows_of,
)
from sprii_train.experiments.sources import ReaderBudget

CONFIG = CommonConfig(slot=4, horizon=4, width=24, systems=24, updates=250, learning_rate=1e-2, warmup=10)
NAMES = {"matched", "wrong", "zero", "null", "constant", "shuffled", "untrained", "oracle"}


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    protocol = D_CLEAN_SMALL.replace(systems={"train": 60, "validation": 24, "test": 4})
    return build(protocol, tmp_path_factory.mktemp("common") / "bank")


@pytest.fixture(scope="module")
def found(bank: Bank, tmp_path_factory: pytest.TempPathFactory):
    """Rows and arrays of a source whose code is the drag, and of one whose code is noise, in one folder of cells."""
    root, rows = tmp_path_factory.mktemp("cells"), {}
    for name, knows in (("knowing", True), ("noise", False)):
        source = knowing_source(bank, "d-clean", root / name, knows=knows, readers=ReaderBudget(2, 5, 5))
        rows[name] = common_reader(source, CONFIG), load_file(source.folder / source.cell.arrays)
    rows["root"] = root
    return rows


def test_a_code_that_is_the_drag_is_used_and_noise_is_not(found):
    row, noise = found["knowing"][0], found["noise"][0]
    for h in (16, 32):
        assert row[f"matched_h{h}"] < 0.6 * row[f"null_h{h}"]
        assert row[f"oracle_h{h}"] < 0.6 * row[f"null_h{h}"]
        assert row[f"wrong_h{h}"] > 1.5 * row[f"matched_h{h}"]
        assert noise[f"matched_h{h}"] == pytest.approx(noise[f"null_h{h}"], rel=0.2)
        assert noise[f"wrong_h{h}"] == pytest.approx(noise[f"matched_h{h}"], rel=0.1)
        assert row[f"shuffled_h{h}"] == pytest.approx(row[f"null_h{h}"], rel=0.2)
    assert row["wrong_minus_matched_h32"] == pytest.approx(row["wrong_h32"] - row["matched_h32"])
    assert row["code"] == 1


def test_what_no_learner_has_a_part_in_is_fitted_once(found):
    (row, kept), (other, theirs) = found["knowing"], found["noise"]
    for name in ("null", "constant", "oracle"):
        np.testing.assert_array_equal(kept[name], theirs[name])
    np.testing.assert_array_equal(kept["constant"], kept["null"])
    assert row["systems"] == other["systems"]
    files = list(found["root"].glob("common-reader-*.safetensors"))
    assert len(files) == 1
    assert set(load_file(files[0])) == {"null", "constant", "oracle"}


def test_rows_are_means_of_errors_by_report_system(found, bank: Bank):
    row, kept = found["knowing"]
    validation = np.unique(bank.split("validation")["system"])
    selection, report = hash_halves(validation)
    assert row["systems"] == validation[report].tolist()
    assert not set(row["systems"]) & set(validation[selection].tolist())
    assert set(kept) == NAMES
    for name, errors in kept.items():
        assert errors.shape == (2, 12, 4)
        for k, h in enumerate((1, 4, 16, 32)):
            assert row[f"{name}_h{h}"] == pytest.approx(errors[..., k].mean())
    assert 1e-3 < row["null_h32"] < 2.0  # metres and metres a second, squared


def test_the_selection_is_of_the_other_half(bank: Bank, tmp_path: Path):
    """Its errors by hand, of the readers that the row is of; a learner that knows the drag is as good there."""
    source = knowing_source(bank, "d-clean", tmp_path / "source", readers=ReaderBudget(2, 5, 5))
    row = common_reader(source, CONFIG)
    shared = Comparison(source, CONFIG, (FIRST_SEED, FIRST_SEED + 1))
    validation = np.unique(bank.split("validation")["system"])
    assert shared.selection.panel.systems.tolist() == validation[hash_halves(validation)[0]].tolist()
    assert not set(shared.selection.panel.systems.tolist()) & set(row["systems"])
    codes = shared.codes(source, source.learner)
    network, _ = shared.fit(codes)
    train = codes[0].reshape(-1, 1)
    seen = window_codes(source, source.learner, shared.selection, CONFIG)
    told = np.zeros((seen.size, CONFIG.slot), np.float32)
    told[:, 0] = (seen.ravel() - train.mean()) / train.std()
    pairs = report_pairs((12, 4, ANCHORS), seed=SEED)
    errors = common_errors(network, shared.selection.panel, torch.from_numpy(told), shared.scales, CONFIG, pairs)
    for k, h in enumerate(CONFIG.horizons):
        assert row[f"selection_matched_h{h}"] == pytest.approx(errors[..., k].mean(), rel=1e-4)
        assert row[f"selection_matched_h{h}"] != pytest.approx(row[f"matched_h{h}"], rel=1e-4)
    assert row["selection_matched_h32"] < 0.6 * row["null_h32"]


def test_windows_are_those_of_the_bank(bank: Bank, tmp_path: Path):
    source = knowing_source(bank, "d-clean", tmp_path / "source", readers=ReaderBudget(1, 5, 5))
    shared = Comparison(source, CONFIG, (FIRST_SEED,))
    windows, table = shared.report, bank.table
    for i, system in enumerate(windows.panel.systems):
        assert table["system"][windows.episodes[i]].tolist() == [system] * 4
        np.testing.assert_array_equal(windows.panel.states[i], bank["states"][windows.episodes[i]])
        np.testing.assert_array_equal(windows.panel.actions[i], bank["actions"][windows.episodes[i]])
        assert windows.drag[i] == table["drag"][windows.episodes[i, 0]]
    codes = shared.codes(source, source.learner)
    drag = bank.split("train")["drag"]
    assert codes[1].shape == (12, 4, ANCHORS, 1)
    np.testing.assert_allclose(
        codes[1][..., 0], np.broadcast_to(((windows.drag - drag.mean()) / drag.std())[:, None, None], (12, 4, ANCHORS)),
        rtol=1e-5,
    )  # fmt: skip


def test_codes_are_of_the_histories_that_end_at_the_anchors(bank: Bank, tmp_path: Path):
    source = source_of(cell_of(bank, "d-clean"), tmp_path)
    shared = Comparison(source, CONFIG, (FIRST_SEED,))
    codes = window_codes(source, source.learner, shared.report, CONFIG)
    for n, e, w in ((0, 0, 0), (3, 2, 8), (11, 3, 4)):
        episode, start = shared.report.episodes[n, e], w
        batch = source.learner.prepare(source.reader.histories(np.array([episode]), np.array([start])))
        with torch.no_grad():
            np.testing.assert_allclose(source.learner.encode_history(batch.history)[0], codes[n, e, w], rtol=1e-4)


def test_the_probe_is_a_ridge_of_penalty_one_on_all_windows(bank: Bank, tmp_path: Path):
    source = source_of(cell_of(bank, "d-clean"), tmp_path)
    shared = Comparison(source, CONFIG, (FIRST_SEED,))
    train, report = shared.codes(source, source.learner)
    mean, sd = train.reshape(-1, 4).mean(0), train.reshape(-1, 4).std(0)
    each = train.shape[1] * train.shape[2]
    ridge = Ridge(1.0).fit((train.reshape(-1, 4) - mean) / sd, np.log(shared.train.drag).repeat(each))
    truth = np.log(shared.report.drag).repeat(each)
    expected = r2_score(truth, ridge.predict((report.reshape(-1, 4) - mean) / sd))
    assert shared.probe((train, report)) == pytest.approx(expected, abs=1e-3)


def test_a_budget_decides_readers_and_updates(bank: Bank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Twice the updates of a budget's readers, of seeds that count on from the first."""
    import sprii_train.experiments.measures.common as measure

    seen = []

    def errors(network, panel, codes, scales, config, pairs):
        seen.append((network.horizon.shape[0], config))
        return common_errors(network, panel, codes, scales, config, pairs)

    monkeypatch.setattr(measure, "common_errors", errors)
    cell = measuring(cell_of(bank, "d-clean", readers=ReaderBudget(3, 2, 5)), "common-reader")
    cell.run(source_of(cell, tmp_path).folder, lambda step, values: None)
    assert {members for members, _ in seen} == {3}
    assert {config for _, config in seen} == {replace(CommonConfig(), updates=4)}


def test_wide_codes_and_uneven_episodes_are_refused(bank: Bank, tmp_path: Path):
    source = source_of(cell_of(bank, "d-clean"), tmp_path)
    with pytest.raises(ValueError, match="codes of 4 numbers do not fit the common reader's slot; legal: at most 3"):
        common_reader(source, replace(CONFIG, slot=3))
    with pytest.raises(ValueError, match="window of 72 from 0 is not inside episode 0, which has 64 entries"):
        common_reader(source, replace(CONFIG, horizons=(1, 40)))
    table = source.setting.episodes(bank, "train")
    with pytest.raises(ValueError, match="equally many episodes of every system; those of train have 3 to 4"):
        windows_of(source, Training("train"), table.select(table["episode"] > 0), CONFIG)
