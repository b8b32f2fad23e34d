"""Sources of grasps on a small stand-in: rows, tables, pictures, verdicts, and whose data they are."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sprii_envs.banks.generated import build_generated
from sprii_envs.robots.tactile import TactileProtocol
from sprii_train.experiments.cells import result_of, work
from sprii_train.experiments.groups import Scope
from sprii_train.experiments.reproduce import merged
from sprii_train.experiments.targets import canonical, target
from sprii_train.experiments.targets.base import arrays_of
from sprii_train.experiments.targets.baxter import BAXTER_TARGETS, CLAIMS, GROUP
from sprii_train.fit import TrainConfig
from sprii_train.recipes import GRASP_RECIPES
from sprii_train.reports.claims import FAILED, HELD, OPEN, judge
from sprii_train.settings import BAXTER, Budget
from sprii_train.settings.recorded import Recorded

Row = dict[str, Any]
SMALL = TactileProtocol(counts=(6, 3, 3))
TINY = Budget(
    BAXTER.budget("smoke").learner, TrainConfig(steps=4, pairs=12, warmup=1, checkpoint_every=2, log_every=2),
    (0,), 1, 20, "tests", store=Recorded(SMALL),
)  # fmt: skip
TARGET = BAXTER_TARGETS[0]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    root = tmp_path_factory.mktemp("baxter")
    store = BAXTER.open_store(root, TINY)
    BAXTER.check(store, TINY.learner)
    for recipe in GRASP_RECIPES.values():
        BAXTER.check_learner(store, recipe, TINY.learner)
    cells = GROUP.cells(Scope(BAXTER, TINY, GROUP.recipes, store))
    for cell in cells:
        work(cell, root / "cells", lambda step, values: None)
    found = [result_of(cell, root / "cells") for cell in cells]
    return merged(cells, [row for row in found if row is not None], root / "cells")


def test_rows_hold_probes_of_codes_and_of_what_stands_beside_them(rows: list[Row]):
    assert [(row["arm"], row["seed"], row["data"]) for row in rows] == [(arm, 0, "stand-in") for arm in GRASP_RECIPES]
    for row in rows:
        for of in ("probe", "untrained", "raw", "last"):
            for split in ("validation", "confirmation"):
                assert set(row[of][split]) == {"hardness", "shape", "rho_hardness", "rho_shape"}
                assert 0.0 <= row[of][split]["hardness"] <= 1.0
        assert set(row["readout"]["confirmation"]) == {"early", "full"}
    for of in ("untrained", "raw", "last", "readout"):  # no arm's training enters
        assert rows[0][of] == rows[1][of] == rows[2][of]
    assert rows[0]["probe"] != rows[0]["untrained"]
    codes = [arrays_of(row, "tactile")["codes"] for row in rows]
    assert codes[0].shape == (18, 16)
    assert not np.allclose(codes[0], codes[1])


def test_the_sensor_picture_is_of_one_grasp_in_all_configurations(rows: list[Row]):
    changes = arrays_of(rows[0], "tactile")["changes"]
    assert changes.shape == (2, 3, 80, 16)
    plan = SMALL.plan()
    grasp = min(row["grasp"] for row in plan if row["split"] == "confirmation")
    for i, shape in enumerate(("cube", "cylinder")):
        for level in range(3):
            samples = SMALL.samples(shape, level, [grasp])[0]
            np.testing.assert_allclose(changes[i, level], samples - samples[0], atol=1e-6)


def test_tables_pictures_and_facts(rows: list[Row]):
    several = [*rows, *({**row, "seed": 1} for row in rows)]
    for chosen in (several, rows, rows[:1]):
        for table in TARGET.tables(chosen):
            assert {len(line) for line in table.rows} == {len(table.columns)}
            assert not any("nan" in cell for line in table.rows for cell in line)
        assert [picture.name for picture in TARGET.pictures(chosen)] == ["selectivity", "sensors"]
    assert "stand-in" in TARGET.facts(rows)["Data"]
    assert "stand-in" in TARGET.pictures(rows)[1].caption
    assert TARGET.facts([{**rows[0], "data": "published"}])["Data"] == "the published recordings"
    for alias in ("fig:v3-baxter", "fig:baxter-interface", "app:baxter", "setting:baxter"):
        assert canonical(alias) == "fig:baxter-selectivity"
        assert target(alias) is TARGET


def told(rows: list[Row], by_arm: dict[str, tuple[float, float]], untrained: float = 0.5) -> dict[str, str]:
    """Verdicts of three sources with planted accuracies (hardness, shape) of each arm."""
    made = []
    for seed in range(3):
        for arm, (hardness, shape) in by_arm.items():
            own = {"hardness": hardness + 1e-3 * seed, "shape": shape - 1e-3 * seed}
            first = {"hardness": untrained, "shape": untrained}
            made.append(
                {
                    **rows[0], "arm": f"baxter-{arm}", "seed": seed, "probe": {"validation": own, "confirmation": own},
                    "untrained": {"confirmation": first},
                }
            )  # fmt: skip
    return {verdict.text.split(":")[0]: verdict.status for verdict in judge(CLAIMS, made)}


def test_verdicts_follow_what_is_planted(rows: list[Row]):
    paper = told(rows, {"hardness": (0.99, 0.5), "shape": (1 / 3, 0.99)})
    names = [claim.text.split(":")[0] for claim in CLAIMS]
    assert names[:2] == ["C_H", "C_S"]
    assert all(paper[name] == HELD for name in names[:6])
    reverse = told(rows, {"hardness": (1 / 3, 0.99), "shape": (0.99, 0.5)})
    assert all(reverse[name] == FAILED for name in names[:6])
    alike = told(rows, {"hardness": (0.9, 0.95), "shape": (0.9, 0.95)})
    assert alike["C_H"] == alike["C_S"] == FAILED
    known = told(rows, {"hardness": (0.99, 0.5), "shape": (1 / 3, 0.99)}, untrained=0.9)
    assert known[names[2]] == known[names[3]] == OPEN  # an untrained network tells it as well
    for claim in CLAIMS[:2]:
        worst = [dict(row) for row in rows[:2]]
        for row, arm in zip(worst, ("baxter-hardness", "baxter-shape"), strict=True):
            low, high = {"hardness": 0.4, "shape": 0.6}, {"hardness": 0.9, "shape": 0.9}
            row |= {"arm": arm, "probe": {"validation": low, "confirmation": high}}
        assert claim.measure({row["arm"]: row for row in worst}) == pytest.approx(0.0)


def test_imported_recordings_are_read_where_they_lie(tmp_path: Path):
    made = Recorded(SMALL)(tmp_path)
    assert Path(made.name).name.startswith("baxter-standin-")
    other = build_generated(TactileProtocol(counts=(6, 3, 3), seed=5), tmp_path / "baxter")
    assert Recorded(SMALL)(tmp_path).fingerprint == other.fingerprint != made.fingerprint


def test_a_store_of_any_kind_is_read_where_recordings_lie(tmp_path: Path):
    pytest.importorskip("lance")
    from sprii_envs.banks.lance import write_lance

    bank = build_generated(SMALL, tmp_path / "bank")
    far = write_lance(bank, tmp_path / "banks" / "baxter")
    store = Recorded(SMALL)(tmp_path / "banks")
    assert store.fingerprint == far.fingerprint
    BAXTER.check(store, TINY.learner)
    config = BAXTER.learner_config(TINY.learner, GRASP_RECIPES["baxter-hardness"])
    batches = [
        BAXTER.data(each, config, GRASP_RECIPES["baxter-hardness"], pairs=12, seed=0)(0).observations
        for each in (bank, store)
    ]
    np.testing.assert_array_equal(*batches)


def test_the_papers_budget():
    paper = BAXTER.budget("paper")
    train, learner = paper.train, paper.learner
    assert (train.steps, train.pairs, train.learning_rate, train.weight_decay) == (10_000, 48, 3e-4, 0.05)
    assert (train.warmup, train.clip, paper.sources) == (500, 1.0, (0, 1, 2))
    assert (learner.history, learner.horizons, learner.dropout, learner.sigreg_weight) == (40, (1, 20, 40), 0.1, 0.02)
    for recipe in GRASP_RECIPES.values():
        told = recipe.objective
        assert (told.lambda_p, told.lambda_x, told.native_on, told.cross_directions) == (1.0, 0.1, "recipients", "one")
