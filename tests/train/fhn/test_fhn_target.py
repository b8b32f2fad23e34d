"""Sources trained and measured on a small bank: what rows hold, tables and verdicts of them, and what is refused."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from field_banks import LEARNER, SMALL

from sprii_train.checkpoints import load
from sprii_train.experiments.cells import result_of, work
from sprii_train.experiments.groups import Scope
from sprii_train.experiments.reproduce import merged
from sprii_train.experiments.targets import target
from sprii_train.experiments.targets.base import arrays_of
from sprii_train.experiments.targets.fhn import CLAIMS, FHN_TARGETS, GROUP, PROBE_CLAIMS
from sprii_train.fhn.evaluation import REPORTED, errors, held, persistence
from sprii_train.fhn.schedule import Stages
from sprii_train.recipes import FHN_RECIPES
from sprii_train.reports.claims import FAILED, HELD, OPEN, UNTESTED, judge
from sprii_train.settings import FHN, Budget
from sprii_train.settings.solved import Solved

Row = dict[str, Any]
TINY = Budget(
    LEARNER, Stages(steps=10, pairs=3, log_every=2, checkpoint_every=5), (42,), 1, 20, "tests", store=Solved(SMALL)
)


def silent(step: int, values: dict[str, float]) -> None:
    pass


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fhn")


@pytest.fixture(scope="module")
def rows(root: Path) -> list[Row]:
    store = FHN.open_store(root, TINY)
    FHN.check(store, LEARNER)
    cells = GROUP.cells(Scope(FHN, TINY, GROUP.recipes, store))
    for cell in cells:
        work(cell, root / "cells", silent)
    found = [result_of(cell, root / "cells") for cell in cells]
    return merged(cells, [row for row in found if row is not None], root / "cells")


def test_rows_hold_what_was_measured(rows: list[Row], root: Path):
    store = FHN.open_store(root, TINY)
    assert [(row["arm"], row["seed"]) for row in rows] == [(arm, 42) for arm in FHN_RECIPES]
    for row in rows:
        assert row["steps"] == (9 if row["arm"] == "fhn-nod" else 10)  # 45,000 for 50,000
        assert row["train_seconds"] > 0
        arrays = arrays_of(row, "fhn")
        for split in ("id", "intra", "extra"):
            told, group = row["errors"][split], held(store, split)
            for name, by_horizon in told.items():
                found = arrays[f"{split}|{name}"]
                assert found.shape == (len(group.systems), 3, 4, 3)
                assert by_horizon["h50"] == pytest.approx(np.nanmean(found[..., 2]))
            still = np.stack([errors(store, group.episodes[case], persistence) for case in REPORTED], axis=1)
            np.testing.assert_array_equal(arrays[f"{split}|persistence"], still)
            assert row["reduction"][split]["k4"] == pytest.approx(100 * (1 - told["k4"]["h50"] / told["k1"]["h50"]))
            assert min(row["oracle_probe"][split].values()) > 0.9999
            assert set(row["probe"][split]) == {"k1", "k2", "k4"}
            fields = arrays[f"{split}|fields"]
            assert fields.shape == (4, 8, 8)
            assert not np.array_equal(fields[2], fields[3])
        assert row["probe"] != row["untrained_probe"]
    same = [row["errors"]["id"]["untrained"] for row in rows]
    assert same[0] == same[1] == same[2]  # arms of a seed begin with the same weights
    assert len({row["errors"]["id"]["k1"]["h50"] for row in rows}) == 3


def test_a_source_is_its_seed_and_recipe_and_its_model_is_kept(rows: list[Row]):
    learner = load(Path(rows[0]["folder"]) / "model")
    assert learner.config == LEARNER


def test_tables_and_pictures(rows: list[Row]):
    rows = [*rows, *({**row, "seed": 43} for row in rows)]
    for one in FHN_TARGETS:
        for chosen in (rows, rows[:1], rows[1:3]):
            tables = one.tables(chosen)
            for table in tables:
                assert {len(row) for row in table.rows} == {len(table.columns)}
                assert not any("n.a." in cell or "nan" in cell for row in table.rows for cell in row)
            assert all(picture.figure.axes for picture in one.pictures(chosen))
    breadth = FHN_TARGETS[0].tables(rows)[0]
    assert breadth.rows[0][0] == "ID, NOD"
    mean = np.mean([row["errors"]["id"]["k1"]["h50"] for row in rows if row["arm"] == "fhn-nod"])
    assert breadth.rows[0][1].startswith(f"{mean:.4f}")
    assert target("setting:fhn") is target("fig:visual-fhn-history") is FHN_TARGETS[0]


def planted(rows: Sequence[Row], **by_arm: float) -> list[Row]:
    """Three sources whose errors with K histories fall by the arm's factor to the power K − 1."""
    made = []
    for seed in (0, 1, 2):
        for arm, factor in by_arm.items():
            factor *= 1.0 + 1e-3 * seed
            errors_ = {}
            for split, own in rows[0]["errors"].items():
                errors_[split] = {name: dict(value) for name, value in own.items()}
                for k in (1, 2, 4):
                    errors_[split][f"k{k}"]["h50"] = 0.1 * factor ** (k - 1)
                errors_[split]["wrong"]["h50"] = 0.1 / factor
                errors_[split]["persistence"]["h50"] = 0.4
            lost = {
                split: {f"k{k}": 100 * (1 - own[f"k{k}"]["h50"] / own["k1"]["h50"]) for k in (2, 4)}
                for split, own in errors_.items()
            }
            arm = f"fhn-{arm}"
            made.append({**rows[0], "arm": arm, "seed": seed, "errors": errors_, "reduction": lost})
    return made


def test_verdicts_follow_what_is_planted(rows: list[Row]):
    def statuses(chosen: Sequence[Row]) -> dict[str, str]:
        return {verdict.text: verdict.status for verdict in judge(CLAIMS, chosen)}

    lead = [claim.text for claim in CLAIMS if claim.text.startswith("Four histories in place")]
    better = statuses(planted(rows, nod=0.95, sprii=0.8, random=0.99))
    assert all(better[text] == HELD for text in lead)
    assert better["Four histories lower the error of both, on every split"] == HELD
    assert better["Aligning the right pairs makes donors matter more than aligning random ones"] == HELD
    assert better["SPRII's error stays above NOD's with four histories on every split"] == FAILED
    worse = statuses(planted(rows, nod=0.8, sprii=0.95, random=0.8))
    assert all(worse[text] == FAILED for text in lead)
    nothing = statuses(planted(rows, nod=1.0, sprii=1.0, random=1.0))
    assert not any(status == HELD for text, status in nothing.items() if "stays as it is" not in text)
    alone = judge(CLAIMS, [row for row in planted(rows, nod=0.9) if row["seed"] == 0])
    assert {verdict.status for verdict in alone} <= {OPEN, UNTESTED}


def test_a_probe_that_an_untrained_network_passes_too_is_not_held(rows: list[Row]):
    def told(trained: float, untrained: float) -> dict[str, str]:
        r2 = lambda value: {s: {"k1": {"k": value, "beta": value}} for s in ("id", "intra", "extra")}  # noqa: E731
        made = [
            {**rows[0], "arm": arm, "seed": seed, "probe": r2(trained + 1e-3 * seed), "untrained_probe": r2(untrained)}
            for arm in ("fhn-nod", "fhn-sprii")
            for seed in (0, 1, 2)
        ]
        return {verdict.text: verdict.status for verdict in judge(PROBE_CLAIMS, made)}

    text = "β can be read from SPRII's code of one history on every split"
    assert told(0.9, 0.1)[text] == HELD
    assert told(0.9, 0.8)[text] == OPEN
    assert told(0.2, 0.1)[text] == FAILED


def test_what_a_store_or_a_learner_cannot_serve_is_refused(root: Path):
    store = FHN.open_store(root, TINY)
    with pytest.raises(ValueError, match="NODHierConfig has no head of 3 frames, which evaluation takes"):
        FHN.check(store, replace(LEARNER, heads=(1, 9)))
    with pytest.raises(ValueError, match=r"NODHierConfig\.frames is 3; legal: 5, of a context"):
        FHN.check(store, replace(LEARNER, frames=3))
    few = replace(TINY, store=Solved(replace(SMALL, test_cases=(15, 24, 36), train_cases=(50, 51))))
    with pytest.raises(ValueError, match="lacks the case 45 of a system of 'id'"):
        FHN.check(FHN.open_store(root, few), LEARNER)
    short = replace(TINY, store=Solved(replace(SMALL, frames=60, duration=5.9, train_cases=(50,))))
    with pytest.raises(ValueError, match="has trajectories of 60 frames; legal: at least 101"):
        FHN.check(FHN.open_store(root, short), LEARNER)


def test_facts_say_the_schedule():
    facts = FHN.facts(FHN.budget("paper"))
    assert "10,000/30,000/40,000/50,000 updates with Align and 20,000/30,000/40,000/45,000 without" in facts["Budget"]
    assert "RMSprop, initial rate 0.5/√P, × 0.95 every 500 updates, 1e-5 after 40,000" in facts["Training"]
