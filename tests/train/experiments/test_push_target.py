"""`ext:poke-push`: its cells, the report of real rows of the smoke budget, and its differences by hand."""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tiny_sources import serial

import sprii_train.experiments.reproduce as reproducing
from sprii_train.control.push import GROUPS, coordinates, success
from sprii_train.experiments.cells import folder_of
from sprii_train.experiments.groups import Scope
from sprii_train.experiments.push_references import PUSHERS, PushReferenceCell
from sprii_train.experiments.reproduce import Plan
from sprii_train.experiments.sources import SourceCell
from sprii_train.experiments.targets import TARGETS
from sprii_train.experiments.targets.push import CLAIMS, LINES, _courses, _found, _interval
from sprii_train.recipes import RECIPES
from sprii_train.reports.claims import HELD, OPEN, judge
from sprii_train.settings import PUSH
from sprii_train.settings.base import PlannedTrials

TARGET = TARGETS["ext:poke-push"]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory):
    """The folder, the page and its rows at the smoke budget."""
    root, patch = tmp_path_factory.mktemp("push"), pytest.MonkeyPatch()
    patch.setattr(reproducing, "run_grid", serial)
    page = reproducing.reproduce(Plan(TARGET, "smoke", root), "sprii reproduce it")
    patch.undo()
    folder = root / "ext-poke-push"
    return folder, page, json.loads((folder / "results.json").read_text())["rows"]


def test_every_line_is_of_the_same_systems_and_starts(told: Any):
    folder, page, rows = told
    arms = {row["arm"]: row for row in rows}
    assert set(arms) == {"random", "nominal-icem", "oracle-icem", "structure", "align-cross", "supervised"}
    found = {name: _found(arms, name, "icem") for name in LINES}
    for group in GROUPS:
        assert len({own[group]["starts"] for own in found.values() if own}) == 1
    acted = {tuple(x for group in GROUPS for x in own[group]["returns"]) for own in found.values() if own}
    assert len(acted) == len(LINES)  # and no two of them act alike
    assert page.facts["Planners of push"].startswith("icem: ICEM(candidates=8")
    assert len(page.tables) == 2
    assert [line[0] for line in page.tables[0].rows] == [line.label for line in LINES.values()]
    film = Image.open(io.BytesIO((folder / "OOD_heavy.gif").read_bytes()))
    assert (film.size, getattr(film, "n_frames", 1)) == ((3 * 160, 176), 64)
    assert {path.name for path in folder.glob("*.png")} == {"returns.png", "paths.png"}


def test_successes_are_of_the_recorded_states(told: Any):
    _, page, rows = told
    assert page.data["preset"] == "smoke"
    root = told[0].parent / "cells"
    for row in rows:
        paths = list(root.glob(f"push-{row['arm'].replace('-icem', '')}*/push*.safetensors"))
        assert paths
        row["arrays"] = {"push": str(paths[0])}
    arms = {row["arm"]: row for row in rows}
    for name, (states, values) in _courses(arms, "icem").items():
        own = _found(arms, name, "icem")
        assert own is not None
        assert bool(success(states[None])[0]) == own["OOD_heavy"]["successes"][0]
        assert values.tolist() == [own["OOD_heavy"][each][0] for each in ("mass", "drag", "stiffness")]
        gap = np.hypot(*(states[1:, 4:6] - (0.6, 0.0)).T)
        assert -gap.sum() - 63 * 2 * 0.0001 * 64 <= own["OOD_heavy"]["returns"][0] <= -gap.sum()


def test_cells_of_the_quick_preset(tmp_path: Path):
    spent = PUSH.budget("quick")
    trials = spent.trials
    assert isinstance(trials, PlannedTrials)
    store = PUSH.open_store(tmp_path, PUSH.budget("smoke"))
    cells = [c for g in TARGET.groups for c in g.cells(Scope(PUSH, spent, g.arms("quick"), store))]
    assert len({folder_of(cell, Path()) for cell in cells}) == len(cells)
    references = [c for c in cells if isinstance(c, PushReferenceCell)]
    expected = {("random", "icem")} | {(name, p) for name in PUSHERS if name != "random" for p, _ in trials.planners}
    assert {(c.name, c.planner) for c in references} == expected
    trained = [c for c in cells if isinstance(c, SourceCell)]
    assert [c.recipe.name for c in trained] == ["structure", "align-cross", "supervised"]
    one = trained[0]
    more = replace(one, trials=replace(trials, planners=trials.planners[:1]))
    assert more.measurement() != one.measurement()  # a row is of its planners too


def test_labels_are_the_properties_on_their_scales(tmp_path: Path):
    spent = PUSH.budget("smoke")
    store = PUSH.open_store(tmp_path, spent)
    config = PUSH.learner_config(spent.learner, RECIPES["supervised"])
    table = store.split("validation")
    windows = PUSH.reader(store, config).read(table["episode"][:5], np.zeros(5, np.int64))
    values = np.stack([table[name][:5] for name in PUSH.properties], axis=1)
    assert windows.labels is not None
    assert windows.labels.numpy() == pytest.approx(coordinates(values), rel=1e-5)
    assert windows.observations.shape == (5, 33, 8)
    assert PUSH.reader(store, spent.learner).read(table["episode"][:5], np.zeros(5, np.int64)).labels is None


def row(arm: str, act: str, returns: list[float], starts: str = "s") -> dict[str, Any]:
    groups = {g: {"returns": returns, "success": 0.5, "starts": starts} for g in GROUPS}
    return {"world": "push", "arm": arm, "seed": 0, "acts": {f"{act}|icem": {"groups": groups}}}


def test_differences_are_paired_and_those_of_other_episodes_are_none():
    noise = np.random.default_rng(0).normal(0, 30, 20)
    rows = [row("nominal-icem", "nominal", list(noise)), row("oracle-icem", "oracle", list(noise + 2.0))]
    arms = {r["arm"]: r for r in rows}
    found = _interval(arms, ("oracle", "nominal"), "icem", "ID")
    assert found is not None
    assert (found.low, found.estimate, found.high) == pytest.approx((2.0, 2.0, 2.0))  # whatever the episodes' spread
    arms["oracle-icem"] = row("oracle-icem", "oracle", list(noise + 2.0), starts="other")
    assert _interval(arms, ("oracle", "nominal"), "icem", "ID") is None
    assert _interval(arms, ("fit", "nominal"), "icem", "ID") is None


def test_claims_follow_the_numbers():
    noise = list(np.random.default_rng(0).normal(0, 1, 20))
    rows = [row("nominal-icem", "nominal", [0.0] * 20), row("oracle-icem", "oracle", [1.0 + 0.1 * x for x in noise])]
    statuses = {v.text: v.status for v in judge(CLAIMS, rows)}
    assert statuses["Knowing the system is worth something to exact equations in OOD_light"] == HELD
    rows[1] = row("oracle-icem", "oracle", noise)
    statuses = {v.text: v.status for v in judge(CLAIMS, rows)}
    assert statuses["Knowing the system is worth something to exact equations in OOD_light"] == OPEN
