"""Sources of manipulation on a small stand-in: rows, tables, pictures, verdicts, and whose data they are."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sprii_envs.banks import Store
from sprii_envs.banks.generated import build_generated
from sprii_envs.robots.arms import ArmsProtocol
from sprii_train.checkpoints import write_tensors
from sprii_train.experiments.cells import result_of, work
from sprii_train.experiments.groups import Group, Scope
from sprii_train.experiments.reproduce import merged
from sprii_train.experiments.targets import canonical, target
from sprii_train.experiments.targets.base import arrays_of
from sprii_train.experiments.targets.rh20t import CONDITIONS, CROSS, JOINT, MONO, RH20T_TARGETS, STRUCTURE
from sprii_train.fit import TrainConfig
from sprii_train.recipes import SCENE_RECIPES, SceneRecipe
from sprii_train.reports.claims import FAILED, HELD, OPEN, judge
from sprii_train.reports.paper import paper_panels
from sprii_train.settings import RH20T, Budget
from sprii_train.settings.recorded import Recorded

Row = dict[str, Any]
SMALL = ArmsProtocol(tasks=18, each=4, frames=72, size=16, people=3)
TINY = Budget(
    RH20T.budget("smoke").learner, TrainConfig(steps=3, pairs=6, warmup=1, checkpoint_every=3, log_every=3),
    (0,), 1, None, "tests", store=Recorded(SMALL),
)  # fmt: skip
ARMS = ("rh20t-native", STRUCTURE, CROSS, JOINT, MONO, "rh20t-ac-random", "rh20t-ld-cross-indep")


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    root = tmp_path_factory.mktemp("rh20t")
    store = RH20T.open_store(root, TINY)
    RH20T.check(store, TINY.learner)
    group = Group("rh20t", ARMS, ("scenes",))
    cells = group.cells(Scope(RH20T, TINY, ARMS, store))
    for cell in cells:
        work(cell, root / "cells", lambda step, values: None)
    found = [result_of(cell, root / "cells") for cell in cells]
    return merged(cells, [row for row in found if row is not None], root / "cells")


def test_rows_hold_the_conditions_that_a_context_has(rows: list[Row]):
    by_arm = {row["arm"]: row for row in rows}
    assert list(by_arm) == list(ARMS)
    for arm, row in by_arm.items():
        assert (row["data"], row["tasks"]) == ("stand-in", {"test": 4, "validation": 4})
        found = row["errors"]["test"]
        assert ("matched" in found) == (arm != "rh20t-native")
        assert ("self" in found) == (arm != MONO)
        assert ("correct_k4" in found) == (arm not in ("rh20t-native", MONO))
        kept = arrays_of(row, "scenes")
        for condition, errors in found.items():
            for endpoint, value in errors.items():
                assert np.nanmean(kept[f"test|{condition}|{endpoint}"]) == pytest.approx(value)
    plain = [row for row in rows if row["arm"] not in (MONO, "rh20t-ld-cross-indep")]
    for row in plain[1:]:  # no arm's training enters
        assert row["baseline"]["test"]["last"] == plain[0]["baseline"]["test"]["last"]
    assert by_arm[CROSS]["errors"] != by_arm[STRUCTURE]["errors"]


def test_tables_pictures_and_names(rows: list[Row]):
    several = [*rows, *({**row, "seed": 1} for row in rows)]
    for one in RH20T_TARGETS:
        own = set(one.groups[0].recipes)
        for chosen in (several, rows):
            asked = [row for row in chosen if row["arm"] in own]
            for table in one.tables(asked):
                assert {len(line) for line in table.rows} == {len(table.columns)}
                assert not any("nan" in cell for line in table.rows for cell in line)
        assert "stand-in" in one.facts(rows)["Data"]
        assert len(paper_panels(one.label)) >= 2
    forecast, risk, validation = RH20T_TARGETS
    assert [picture.name for picture in forecast.pictures(rows)] == ["tasks"]
    assert len(forecast.groups[0].recipes) == 14 == len(CONDITIONS)
    labels = {name: arm.label.removeprefix("RH20T, ") for name, arm in SCENE_RECIPES.items()}
    assert [labels[arm] for arm in CONDITIONS] == [line[0] for line in paper_panels(forecast.label)[0][1:]]
    for alias, one in {
        "tab:rh20t-complete-correct": forecast, "setting:rh20t": forecast, "tab:rh20t-hard-negative": risk,
        "tab:rh-closure-25": validation,
    }.items():  # fmt: skip
        assert canonical(alias) == one.label
        assert target(alias) is one
    native = next(row for row in rows if row["arm"] == "rh20t-native")
    matched = forecast.tables(rows)[1]
    assert matched.rows[ARMS.index(native["arm"])][1:] == ["–"] * 5


def planted(folder: Path, effect: float, spread: float) -> list[Row]:
    """Rows of three sources: 20 tasks, errors 1 under the worse condition of every claim and less by an effect."""
    found = []
    better = {"self", "matched", "correct_k1", "correct_k4", "bank:matched"}
    rng = np.random.default_rng(0)
    for seed in range(3):
        for name in SCENE_RECIPES:
            errors: Row = {"test": {}, "validation": {}}
            arrays = {}
            for split, of in errors.items():
                for condition in (*better, "shuffled", "still", "random_k1", "random_k4", "bank:hard"):
                    less = condition in better and name not in (STRUCTURE, MONO)
                    of[condition] = {}
                    for endpoint in ("force_h1", "force_h4", "force_h16", "tcp_h4", "tcp_h16"):
                        values = 1.0 - effect * less + spread * rng.normal(size=20)
                        arrays[f"{split}|{condition}|{endpoint}"] = torch.from_numpy(values)
                        of[condition][endpoint] = float(values.mean())
            path = folder / f"{name}-{seed}-{effect}.safetensors"
            write_tensors(path, arrays)
            found.append({"arm": name, "world": "rh20t", "seed": seed, "errors": errors, "arrays": {"scenes": path}})
    return found


def test_verdicts_follow_what_is_planted(tmp_path: Path):
    forecast, risk, validation = RH20T_TARGETS

    def told(effect: float, spread: float) -> dict[str, str]:
        rows = planted(tmp_path, effect, spread)
        return {v.text: v.status for one in RH20T_TARGETS for v in judge(one.claims, rows)}

    good, bad, unclear = told(0.5, 0.01), told(-0.5, 0.01), told(0.0, 0.3)
    donors = [c.text for c in (*forecast.claims[:5], *risk.claims[:3], *validation.claims[:9])]
    assert {good[text] for text in donors} == {HELD}
    assert {bad[text] for text in donors} == {FAILED}
    assert sum(unclear[text] == OPEN for text in donors) >= len(donors) - 3


def test_the_recipes_and_the_papers_budget():
    paper = RH20T.budget("paper")
    train, learner = paper.train, paper.learner
    assert (train.steps, train.pairs, train.learning_rate, train.weight_decay) == (20_000, 48, 3e-4, 0.05)
    assert (train.warmup, train.clip, paper.sources) == (500, 1.0, (0, 1, 2))
    assert (learner.image, learner.history, learner.horizons, learner.sigreg_weight) == (96, 24, (1, 4, 16), 0.02)
    expected = {
        "native": (0, 0), "structure": (0, 0), "align": (1, 0), "cross": (0, 0.1), "ac": (1, 0.1), "mono": (0, 0),
    }  # fmt: skip
    kinds = {"sameep": "own", "indep": "matched", "random": "random", "": "matched", "qd": "matched"}
    for name, arm in SCENE_RECIPES.items():
        assert isinstance(arm, SceneRecipe)
        low = name.startswith("rh20t-ld-")
        term, _, donors = name.removeprefix("rh20t-").removeprefix("ld-").partition("-")
        assert (arm.objective.lambda_p, arm.objective.lambda_x) == expected[term]
        assert (arm.donors, arm.pictures, arm.joint) == (kinds[donors], not low, term == "mono")
        told = RH20T.learner_config(learner, arm)
        assert told.image == (0 if low else 96)
        assert told.context == {"native": "monolithic", "mono": "joint"}.get(term, "split")
    with pytest.raises(ValueError, match=r"SceneRecipe\.joint is True with the context 'split'"):
        SceneRecipe("own", "Own", SCENE_RECIPES[MONO].objective, joint=True)


def test_imported_recordings_are_read_where_they_lie(tmp_path: Path):
    small = ArmsProtocol(tasks=5, each=4, frames=64, size=16)
    made = Recorded(small)(tmp_path)
    assert Path(made.name).name.startswith("rh20t-standin-")
    other = build_generated(ArmsProtocol(tasks=5, each=4, frames=64, size=16, seed=5), tmp_path / "rh20t")
    assert Recorded(small)(tmp_path).fingerprint == other.fingerprint != made.fingerprint


def test_what_a_setting_refuses(scene_bank: Store):
    tiny = TINY.learner
    RH20T.check(scene_bank, tiny)
    for changed, message in (
        ({"history": 12}, r"history is 12; legal: 24"),
        ({"sensors": 15}, r"sensors is 15; legal: 14, as recorded"),
        ({"action_dim": 2}, r"action_dim is 2; legal: 1"),
        ({"image": 32}, r"image is 32; legal: 0, or 16"),
    ):
        with pytest.raises(ValueError, match=message):
            RH20T.check(scene_bank, replace(tiny, **changed))
