"""Intervals of D-Clean's statements within one source, on planted systems, against resampling by hand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tiny import HORIZONS, JEPA_CONFIG
from tiny_sources import cell_of, measuring

from sprii_envs.banks import Bank
from sprii_train.analysis.bootstrap import system_resamples
from sprii_train.analysis.donors import encode_split
from sprii_train.analysis.formation import between_within, moments, total_variance
from sprii_train.data import WindowReader
from sprii_train.experiments.measures.formation import SEED
from sprii_train.experiments.measures.held_out import columns, held_out, numbers_of
from sprii_train.experiments.sources import Source
from sprii_train.experiments.targets import TARGETS
from sprii_train.learners import JEPA
from sprii_train.reports.claims import FAILED, HELD, OPEN, judge
from sprii_train.reports.page import ONE_SOURCE, condition_of
from sprii_train.settings import D_CLEAN

CLAIMS = TARGETS["tab:dclean-full"].claims
ARMS = ("structure", "same-rollout", "align-cross", "align-random")
NUMBERS = ("drag_r2", "between_within", "target_variance", "self_h1", "self_h3", "correct_h3", "shuffled_h1", "gap")
Row = dict[str, Any]


@pytest.fixture(scope="module")
def measured(bank: Bank, tmp_path_factory: pytest.TempPathFactory) -> tuple[Row, dict[str, np.ndarray], JEPA]:
    """Row and arrays of a learner with its first weights."""
    folder, learner = tmp_path_factory.mktemp("source"), JEPA(JEPA_CONFIG)
    setting = replace(D_CLEAN, history=JEPA_CONFIG.history)
    cell = measuring(cell_of(bank, "d-clean", setting=setting, learner=JEPA_CONFIG), "held-out")
    row = held_out(Source(cell, setting, bank, learner, folder))
    return row, load_file(folder / cell.arrays), learner


def test_means_over_systems_give_the_row(measured: tuple[Row, dict[str, np.ndarray], JEPA]):
    row, kept, _ = measured
    means = {name: column.mean() for name, column in columns(kept, NUMBERS).items()}
    assert numbers_of(means, NUMBERS) == pytest.approx({name: row[name] for name in NUMBERS}, rel=1e-9)


def test_numbers_of_other_systems_are_what_the_measure_gives_of_them(
    bank: Bank, measured: tuple[Row, dict[str, np.ndarray], JEPA]
):
    """Of systems drawn with replacement, each copy a system of its own: variances, ratio and R² from all episodes."""
    _, kept, learner = measured
    reader = WindowReader(bank, JEPA_CONFIG.history, HORIZONS)
    held, train = (encode_split(learner, reader, split, seed=SEED) for split in ("test", "train"))
    z_train, z = (each.codes.z_p.double().numpy() for each in (train, held))
    codes = (z - z_train.mean(0)) / z_train.std(0)
    targets, drag = held.targets[:, -1].double().numpy(), held.table["drag"].astype(float)
    table, checked = columns(kept, NUMBERS), 0
    for counts in system_resamples(6, seed=3, draws=30):
        if (counts > 0).sum() < 2:
            continue
        drawn = np.repeat(np.arange(6), counts)
        episodes = (4 * drawn[:, None] + np.arange(4)).ravel()
        got = numbers_of({name: column[drawn].mean() for name, column in table.items()}, NUMBERS)
        ratio = between_within(codes[episodes], np.repeat(np.arange(6), 4)).ratio
        assert got["between_within"] == pytest.approx(ratio, rel=1e-6)
        assert got["target_variance"] == pytest.approx(targets[episodes].var(0, ddof=1).mean(), rel=1e-6)
        error = kept["drag_error"][drawn].mean()
        assert got["drag_r2"] == pytest.approx(1 - error / drag[episodes].var(), rel=1e-6)
        checked += 1
    assert checked > 20


def test_a_variance_of_rounding_is_none():
    values = np.full((5, 3), 0.1)
    means = {name: column.mean() for name, column in moments("x", values).items()}
    assert total_variance("x", means) == 0.0
    spread = moments("x", np.random.default_rng(0).normal(size=(50, 3)))
    means = {name: column.mean() for name, column in spread.items()}
    raw = np.stack([spread[f"x {j}"] for j in range(3)], axis=1)
    assert total_variance("x", means) == pytest.approx(raw.var(0).sum())


# Statements on planted systems

TRUTH = {
    "structure": {"r2": 0.85, "ratio": 0.24, "self": 0.06, "h1": 0.6, "correct": 0.8, "gap": 0.08},
    "same-rollout": {"r2": 0.23, "ratio": 0.13, "self": 0.06, "h1": 0.6, "correct": 0.08, "gap": 0.002},
    "align-cross": {"r2": 0.97, "ratio": 13.0, "self": 0.025, "h1": 0.02, "correct": 0.0251, "gap": 0.13},
    "align-random": {"r2": 0.16, "ratio": 0.13, "self": 0.1, "h1": 0.1, "correct": 0.103, "gap": 0.001},
}
"""Near what was measured: Align + Cross is best."""


def around(rng: np.random.Generator, hard: np.ndarray, mean: float) -> np.ndarray:
    """Errors by system of this mean, with noise of an arm's own."""
    return mean * hard * rng.lognormal(-0.005, 0.1, len(hard))


def planted(folder: Path, truth: dict[str, dict[str, float]], seed: int = 0, n: int = 200) -> list[Row]:
    """Rows and arrays of one source of every arm; how hard a system is, all arms share."""
    rows, hard = [], np.random.default_rng(seed).lognormal(0, 0.5, n)
    hard /= hard.mean()
    for arm, told in truth.items():
        rng = np.random.default_rng([seed, *arm.encode()])

        drag, code, target = rng.normal(size=(n, 1)), rng.normal(size=(n, 3)), rng.normal(size=(n, 2))
        kept = {
            "drag_value": drag, "drag_error": around(rng, hard, (1 - told["r2"]) * drag.var()),
            "code": code - code.mean(0), "code_within": around(rng, hard, code.var(0).sum() / told["ratio"]),
            "target": 0.1 * (target - target.mean(0)), "target_square": around(rng, hard, 1.1),
            "self_h1": around(rng, hard, 0.02), "correct_h1": around(rng, hard, told["h1"]),
            "self_h16": around(rng, hard, told["self"]), "correct_h16": around(rng, hard, told["correct"]),
            "gap": around(rng, hard, told["gap"]),
        }  # fmt: skip
        file = folder / f"{arm}-{seed}.safetensors"
        save_file({name: np.ascontiguousarray(value) for name, value in kept.items()}, file)
        names = (
            "drag_r2",
            "between_within",
            "target_variance",
            *(name for name in kept if name.startswith(("self", "correct", "gap"))),
        )
        means = {name: column.mean() for name, column in columns(kept, names).items()}
        told_numbers = {name: float(value) for name, value in numbers_of(means, names).items()}
        rows.append({"arm": arm, "seed": seed, "arrays": {"held-out": str(file)}} | told_numbers)
    return rows


def test_one_source_is_judged_over_its_systems(tmp_path: Path):
    verdicts = judge(CLAIMS, planted(tmp_path, TRUTH))
    assert {v.status for v in verdicts} == {HELD}
    assert all(v.evidence.endswith("(95% over systems, given one source)") for v in verdicts)
    assert condition_of(verdicts) == ONE_SOURCE


def test_a_planted_lie_does_not_hold(tmp_path: Path):
    """Structure is given what Align + Cross has, and that what Align–Random has."""
    given = ("align-cross", "structure", "align-random", "same-rollout")
    swapped = {arm: TRUTH[other] for arm, other in zip(TRUTH, given, strict=True)}
    assert {v.status for v in judge(CLAIMS, planted(tmp_path, swapped))} == {FAILED}


def test_a_bound_within_the_interval_is_not_resolved(tmp_path: Path):
    near = TRUTH | {"align-cross": TRUTH["align-cross"] | {"correct": TRUTH["structure"]["correct"] / 10}}
    (verdict,) = judge([CLAIMS[3]], planted(tmp_path, near))
    assert verdict.status == OPEN
    assert "[" in verdict.evidence


def test_several_sources_must_agree(tmp_path: Path):
    both = [*planted(tmp_path, TRUTH), *planted(tmp_path, TRUTH, seed=1)]
    verdicts = judge(CLAIMS, both)
    assert {v.status for v in verdicts} == {HELD}
    assert all(v.evidence.endswith("(95% over systems, by source)") for v in verdicts)
    assert condition_of(verdicts) == ""
    worse = TRUTH | {"align-cross": TRUTH["structure"]}
    mixed = [*both, *planted(tmp_path, worse, seed=2)]
    assert {v.status for v in judge([CLAIMS[1], CLAIMS[3], CLAIMS[8]], mixed)} == {OPEN}


def test_an_interval_is_the_percentiles_of_the_numbers_of_resampled_systems(tmp_path: Path):
    """Paired over systems: the ratio of two arms' errors, each a share of its target's variance, computed by loops."""
    claim = CLAIMS[8]
    arms = {row["arm"]: row for row in planted(tmp_path, TRUTH, n=40)}
    assert claim.interval is not None
    found = claim.interval(arms)
    assert found is not None
    assert (found.n, found.level, found.unit) == (40, 0.95, "system")
    assert found.estimate == pytest.approx(claim.measure(arms), rel=1e-12)
    kept = {arm: load_file(arms[arm]["arrays"]["held-out"]) for arm in ("align-cross", "structure")}
    shares = {arm: [] for arm in kept}
    for counts in system_resamples(40, seed=0):
        drawn = np.repeat(np.arange(40), counts)
        for arm, of in kept.items():
            variance = of["target_square"][drawn].mean() - (of["target"][drawn].mean(0) ** 2).sum()
            shares[arm].append(of["self_h16"][drawn].mean() / variance)
    ratios = np.array(shares["align-cross"]) / np.array(shares["structure"])
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(ratios, [0.025, 0.975])), rel=1e-9)
    alone = np.quantile(shares["align-cross"], 0.975) / np.quantile(shares["structure"], 0.025)
    assert found.high < alone  # hard systems are hard for both


def test_what_no_resample_may_lack(tmp_path: Path):
    """A context that nothing depends on has no share of a wrong donor's cost: no interval, and no verdict."""
    rows = planted(tmp_path, {"align-cross": TRUTH["align-cross"]})
    kept = load_file(rows[0]["arrays"]["held-out"])
    kept |= {"correct_h16": kept["self_h16"], "gap": 0.0 * kept["gap"]}
    save_file(kept, rows[0]["arrays"]["held-out"])
    rows[0] |= {"correct_h16": rows[0]["self_h16"], "gap": 0.0}
    (verdict,) = judge([CLAIMS[2]], rows)
    assert verdict.status == OPEN
    assert verdict.evidence.endswith("nan (one source, no interval)")


def test_rows_of_a_kept_report_have_no_arrays(tmp_path: Path):
    rows = [{k: v for k, v in row.items() if k != "arrays"} for s in (0, 1) for row in planted(tmp_path, TRUTH, seed=s)]
    verdicts = judge(CLAIMS, rows)
    assert all(v.evidence.endswith("(95% over sources, t)") for v in verdicts)
    assert condition_of(verdicts) == ""
