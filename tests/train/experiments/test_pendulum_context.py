"""`ext:pendulum-context`: cells of a tiny budget, its report, and its statements on planted rows."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tiny_sources import serial

import sprii_train.experiments.reproduce as reproducing
from sprii_envs.banks import Store, open_store
from sprii_envs.envs.pendulum import GROUPS
from sprii_train.control.assay_bank import record
from sprii_train.control.experience import Experience
from sprii_train.control.pendulum import WORLD
from sprii_train.experiments.measures.context_control import physical
from sprii_train.experiments.reproduce import Plan, reproduce
from sprii_train.experiments.targets import TARGETS, target
from sprii_train.experiments.targets.base import arrays_of
from sprii_train.experiments.targets.pendulum_context import CONTRASTS, LEVERS, LINES, PICTURED, TRAINED
from sprii_train.reports.claims import FAILED, HELD, OPEN, judge
from sprii_train.reports.page import Page
from sprii_train.settings import PENDULUM_CONTEXT, SETTINGS

TARGET = TARGETS["ext:pendulum-context"]


def logged(steps: int = 30) -> Iterator[tuple[str, Experience]]:
    """Two splits of true episodes of a few systems, at random torques."""
    rng, every = np.random.default_rng(0), GROUPS["ID"].combinations()
    for split, part in (("train", slice(0, 120, 10)), ("validation", slice(5, 120, 6))):
        store, values = Experience(3, 1, ("mass", "length")), every.values[part]
        for _ in range(2):
            state = WORLD.initial(rng.random((len(values), 2)), values, None)
            seen, done = [WORLD.observe(state)], rng.uniform(-1, 1, (len(values), steps, 1)).astype(np.float32)
            prepared = WORLD.prepare(values)
            for t in range(steps):
                state, _ = WORLD.step(state, WORLD.force(done[:, t]), prepared)
                seen.append(WORLD.observe(state))
            store.add(np.stack(seen, 1), done, every.ids[part], values)
        yield split, store


def small(folder: Path) -> Store:
    path = folder / "small"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        record(path, logged())
    return open_store(path)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Page, list[dict[str, Any]], Path]]:
    """The page and its rows at the smoke budget."""
    root, patch = tmp_path_factory.mktemp("context"), pytest.MonkeyPatch()
    patch.setitem(SETTINGS, "pendulum-context", replace(PENDULUM_CONTEXT, store=small, anchors=(10, 19)))
    patch.setattr(reproducing, "run_grid", serial)
    page = reproduce(Plan(target("ext:pendulum-context"), "smoke", root), "sprii reproduce it")
    kept = root / "ext-pendulum-context"
    yield page, json.loads((kept / "results.json").read_text())["rows"], kept
    patch.undo()


def test_every_line_is_there_and_meets_the_same_episodes(told: Any):
    page, rows, kept = told
    assert {row["arm"] for row in rows} == {line.arm for line in LINES}
    assert set(TRAINED) < {row["arm"] for row in rows}
    acted = {(row["arm"], way) for row in rows for way in row["acted"]["mppi"]}
    assert acted == {(line.arm, line.context) for line in LINES}
    for planner in ("icem", "mppi"):
        for group in GROUPS:
            found = [each["groups"][group] for row in rows for each in row["acted"][planner].values()]
            assert len({each["starts"] for each in found}) == 1
            assert len({tuple(each["mass"]) for each in found}) == 1
    returns = {t.title: t for t in page.tables}["Return and success under mppi"]
    assert [line[0] for line in returns.rows] == [line.label for line in LINES]
    random = next(row for row in rows if row["arm"] == "random-policy")["acted"]["mppi"]["equations"]["groups"]["ID"]
    assert returns.rows[0][1].startswith(f"{np.mean(random['returns']):.2f}")
    losses = {t.title: t for t in page.tables}["Loss to the oracle under mppi"]
    oracle = next(row for row in rows if row["arm"] == "oracle")["acted"]["mppi"]["equations"]["groups"]["ID"]
    lost = 100 * (np.mean(oracle["returns"]) - np.mean(random["returns"])) / abs(np.mean(oracle["returns"]))
    assert float(losses.rows[0][1].split(" ")[0].replace("−", "-")) == pytest.approx(lost, abs=0.01)
    assert (kept / "episode.png").stat().st_size > 10_000
    film = Image.open(kept / "OOD_c3.gif")
    assert (film.size, getattr(film, "n_frames", 1)) == ((len(PICTURED) * 176, 192), 101)


def test_the_kept_episode_is_the_one_that_was_played(told: Any):
    _, rows, kept = told
    cells = kept.parent / "cells"
    for row in (row for row in rows if row["arm"] in ("oracle", "context-labelled")):
        (folder,) = cells.glob(f"pendulum-context-{row['arm']}-seed0-*")
        (file,) = folder.glob("context-control*.safetensors")
        arrays = arrays_of({"arrays": {"context-control": str(file)}}, "context-control")
        way = "equations" if row["arm"] == "oracle" else "true"
        own = row["acted"]["icem"][way]["groups"]["OOD_c3"]
        values = arrays[f"icem|{way}|values"]
        assert values.tolist() == [own["mass"][0], own["length"][0]]
        states, actions = (arrays[f"icem|{way}|{name}"] for name in ("states", "actions"))
        wrapped = (states[:-1, 0] + np.pi) % (2 * np.pi) - np.pi
        paid = -(wrapped**2 + 0.1 * states[:-1, 1] ** 2 + 0.001 * actions[:, 0].astype(np.float64) ** 2)
        assert paid.sum() == pytest.approx(own["returns"][0], rel=1e-5)
        if row["arm"] == "oracle":
            np.testing.assert_allclose(arrays[f"icem|{way}|contexts"], np.tile(values, (200, 1)), rtol=1e-6)


def test_physical_numbers():
    np.testing.assert_allclose(physical(np.array([[2.0, 0.5]])), [[2.0, 2.0]])


def planted(returns: dict[tuple[str, str], float], success: float) -> list[dict[str, Any]]:
    """Rows of two seeds in which every line returns −500 but those given; the fit succeeds so often."""
    rng, rows = np.random.default_rng(0), []
    for seed in (0, 1):
        own: dict[str, dict[str, Any]] = {}
        for line in LINES:
            mean = returns.get((line.arm, line.context), -500.0)
            groups = {}
            for group in GROUPS:
                values = mean + rng.normal(size=20)
                wins = [i < round(success * 20) for i in range(20)]
                groups[group] = {
                    "return": float(values.mean()), "returns": values.tolist(), "success": float(np.mean(wins)),
                    "successes": wins, "mass": [1.7] * 20, "length": [0.3] * 20, "starts": f"{seed}{group}",
                }  # fmt: skip
            acted = own.setdefault(line.arm, {"arm": line.arm, "label": line.arm, "world": "w", "seed": seed})
            acted.setdefault("acted", {}).setdefault("mppi", {})[line.context] = {"groups": groups}
            acted["probe"] = {"torque": 0.5, "gravity": 0.9}
        rows += list(own.values())
    return rows


def test_statements_are_judged_by_returns_and_successes():
    good = planted({("oracle", "equations"): -200.0, ("context-fitted", "fit"): -220.0}, 1.0)
    # That every episode of a few succeeds says of no rate that it is 100 %, nor of these few that it is above 90.
    assert [v.status for v in judge(TARGET.claims, good)[:4]] == [HELD, OPEN, HELD, OPEN]
    bad = planted({("oracle", "equations"): -200.0, ("context-fitted", "fit"): -260.0}, 0.5)
    assert [v.status for v in judge(TARGET.claims, bad)[:4]] == [FAILED] * 4
    fit = planted({("cadm-offline", "fit"): -300.0, ("cadm-align-cross", "encoder"): -600.0}, 1.0)
    outcomes = {v.text: v.status for v in judge(TARGET.claims, fit)[4:]}
    assert outcomes["The fit raises the return of CaDM's encoder"] == HELD
    assert outcomes["Align + Cross raise the return of CaDM's encoder"] == FAILED


def test_contrasts_that_span_zero_are_said_to_be_unresolved():
    rows = planted({("cadm-offline", "fit"): -300.0}, 1.0)
    table = next(t for t in TARGET.tables(rows) if t.title == "Contrasts under mppi")
    cells = dict(zip([f"{one} − {other}" for one, other in CONTRASTS], table.rows, strict=True))
    assert "not resolved" not in cells["CaDM, encoder + fit − CaDM, encoder"][1]
    assert float(cells["CaDM, encoder + fit − CaDM, encoder"][1].split(" ")[0]) == pytest.approx(200.0, abs=1.0)
    assert "not resolved" in cells["CaDM Align + Cross, encoder − CaDM, encoder"][1]


def test_the_gap_is_told_by_what_closes_it():
    means = {("oracle", "equations"): -200.0, ("cadm-offline", "encoder"): -600.0, ("context-fitted", "fit"): -220.0}
    rows = planted(means | {("cadm-align-cross", "encoder"): -600.0}, 1.0)
    gap = {t.title: t for t in TARGET.tables(rows)}["The gap of OOD_c3 before and after, under mppi"]
    assert [(line[0], *line[1:3]) for line in gap.rows] == list(LEVERS)
    told = {tuple(line[:2]): line[3:] for line in gap.rows}
    before, after, gain = told["Linear dynamics trained through the fit", "CaDM, encoder"]
    assert (before, after) == ("200 %", "10 %")
    assert float(gain.split(" ")[0]) == pytest.approx(380.0, abs=1.0)
    assert told["Align + Cross", "CaDM, encoder"][2].endswith("not resolved")
