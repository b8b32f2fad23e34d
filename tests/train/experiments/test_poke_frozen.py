"""`ext:poke-frozen-pixels`: the report of the smoke budget, its tables by hand, and what embeddings tell."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import RidgeCV
from tiny_sources import cell_of, serial, source_of

import sprii_train.experiments.reproduce as reproducing
from sprii_envs.banks import Bank
from sprii_envs.files import write_json
from sprii_train.experiments.groups import Group, Scope
from sprii_train.experiments.measures.sight import sight, sight_of
from sprii_train.experiments.reproduce import Plan
from sprii_train.experiments.stems import FrozenGroup, StemCell
from sprii_train.experiments.targets import TARGETS
from sprii_train.experiments.targets.poke_frozen import ALPHAS, CLAIMS, TWINS, pictures, states_of, tables
from sprii_train.experiments.targets.sight import sight_tables
from sprii_train.reports.claims import HELD, judge
from sprii_train.reports.glossary import arm_of, without_meaning
from sprii_train.settings import POKE, POKE_FROZEN, SETTINGS

TARGET = TARGETS["ext:poke-frozen-pixels"]
COMPONENTS = ["finger_position", "finger_velocity", "object_position", "object_velocity"]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory):
    """The folder, the page and its rows at the smoke budget, of two arms."""
    root, patch = tmp_path_factory.mktemp("frozen"), pytest.MonkeyPatch()
    patch.setattr(reproducing, "run_grid", serial)
    own = replace(TARGET, groups=(replace(TARGET.groups[0], recipes=("alpha-1", "alpha-1-end-to-end")),))  # type: ignore[type-var]
    page = reproducing.reproduce(Plan(own, "smoke", root), "sprii reproduce it")
    patch.undo()
    folder = root / "ext-poke-frozen-pixels"
    return folder, page, json.loads((folder / "results.json").read_text())["rows"]


def test_the_report_says_what_is_frozen_and_what_it_sees(told: Any):
    folder, page, rows = told
    assert [row["arm"] for row in rows] == ["stem", "alpha-1", "alpha-1-end-to-end"]
    found = {row["arm"]: row for row in rows}
    assert "sight" not in found["alpha-1"]  # its embeddings are the stem's
    for arm in ("stem", "alpha-1-end-to-end"):
        assert list(found[arm]["sight"]) == COMPONENTS
    # Both see with the same stem, but 20 updates of the smoke budget later.
    assert found["stem"]["sight"] != found["alpha-1-end-to-end"]["sight"]
    assert page.facts["Frozen of poke-frozen"].startswith("the stem, trained once a source without any relation")
    assert "trains end to end" in page.lead
    titles = [table.title for table in page.tables]
    assert "What embeddings of frames tell of the state" in titles
    assert "A few updates at α = 1, frozen or end to end" in titles
    for table in page.tables:
        assert not without_meaning(table.columns, TARGET.label), table.title
    for row in rows:
        assert arm_of(row["label"]) is not None, row["label"]
    assert (folder / "alpha.png").exists()
    stems = folder.parent / "banks" / "stems"
    assert len([each for each in stems.iterdir() if each.is_dir()]) == 1


def test_stems_come_first_and_twins_are_of_the_first_source(poke_bank: Bank):
    group, budget = TARGET.groups[0], POKE_FROZEN.budget("quick")
    assert isinstance(group, FrozenGroup)
    cells = group.cells(Scope(POKE_FROZEN, budget, group.arms("quick"), poke_bank))
    told = [(cell.title, getattr(getattr(cell, "measure", None), "name", None)) for cell in cells]
    assert told[:2] == [("poke-frozen-stem-seed0", None), ("poke-frozen-stem-seed1", None)]
    assert sorted(told[2:]) == sorted(
        [(f"poke-frozen-{arm}-seed{seed}", "validation") for arm in ALPHAS for seed in (0, 1)]
        + [(f"poke-frozen-{arm}-seed0", "validation") for arm in TWINS]
        + [("poke-frozen-alpha-1-end-to-end-seed0", "sight")]
    )
    stems = {cell.seed: cell for cell in cells[:2] if isinstance(cell, StemCell)}
    for cell in cells[2:]:  # an arm's identity has its source's stem and no other
        seed = cell.train.seed  # type: ignore[attr-defined]
        assert cell.identity()["train"]["stem"] == stems[seed].identity()["stem"]
        assert cell.identity()["train"]["stem"]["train"]["seed"] == seed


def test_every_source_of_pixels_is_measured_so_and_none_of_states(poke_bank: Bank):
    group = Group("poke", ("align", "structure"))
    for preset, seen in (("quick", 2), ("paper", 6), ("states", 0)):
        cells = group.cells(Scope(POKE, POKE.budget(preset), group.recipes, poke_bank))
        assert sum(cell.measure.name == "sight" for cell in cells) == seen  # type: ignore[attr-defined]
    spring = SETTINGS["spring"]
    cells = group.cells(Scope(spring, spring.budget("quick"), group.recipes, poke_bank))
    assert all(cell.measure.name == "formation" for cell in cells)  # type: ignore[attr-defined]


def test_what_embeddings_tell_is_what_a_regression_of_sklearn_tells(poke_bank: Bank):
    rng = np.random.default_rng(0)
    mixing, noise = rng.normal(size=(8, 12)), rng.normal(size=(100_000, 12))

    def states(episodes: Any, times: Any) -> Any:
        return poke_bank.windows("states", episodes, times, 1)[:, 0].astype(np.float64)

    exact = sight_of(POKE, poke_bank, lambda e, t: states(e, t) @ mixing)
    assert min(exact.values()) > 0.999
    nothing = sight_of(POKE, poke_bank, lambda e, t: noise[: len(e)])
    assert max(nothing.values()) < 0.1

    def blurred(episodes: Any, times: Any) -> Any:
        return states(episodes, times)[:, :4] @ mixing[:4] + 0.3 * noise[: len(episodes)]

    told = sight_of(POKE, poke_bank, blurred)
    both = {}
    for split in ("train", "validation"):
        table = poke_bank.split(split)
        episodes, times = np.repeat(table["episode"], 4), np.tile(POKE.anchors, len(table))
        both[split] = blurred(episodes, times), states(episodes, times)
    model = RidgeCV(10.0 ** np.arange(-6, 3)).fit(*both["train"])
    x, y = both["validation"]
    expected = 1 - ((model.predict(x) - y) ** 2).mean(0) / y.var(0)
    assert [told[name] for name in COMPONENTS] == pytest.approx(expected.reshape(4, 2).mean(1), abs=0.02)


def test_a_source_of_pixels_tells_what_its_own_embeddings_do(poke_bank: Bank, tmp_path: Path):
    row = sight(source_of(cell_of(poke_bank, "poke"), tmp_path))
    assert list(row["sight"]) == COMPONENTS
    (table,) = sight_tables(
        [{"label": "Align", "seed": 3, "world": "poke"} | row, {"label": "α = 0", "seed": 3, "world": "poke"}]
    )
    assert [line[:2] for line in table.rows] == [["Align", "3"]]
    assert float(table.rows[0][2]) == pytest.approx(row["sight"]["finger_position"], abs=1e-3)
    assert sight_tables([{"label": "α = 0", "seed": 0, "world": "poke"}]) == []


# --- tables, statements and the figure, of rows made here ---


def rows(effect: float = 1.0) -> list[dict[str, Any]]:
    found = []
    for seed in (0, 1):
        for arm, alpha in zip(ALPHAS, (0.0, 0.5, 1.0), strict=True):
            ratio, rho = 0.125 * (1 + effect * alpha), 0.02 + 0.3 * effect * alpha + 0.01 * seed
            ends = {"ratio": [ratio - 0.004, ratio + 0.004], "rho_drag": [rho - 0.03, rho + 0.03]}
            measured = {"ratio": ratio, "rho_drag": rho, "intervals": ends, "within": 1.0, "between": ratio}
            probes = {f"centroid_ridge_{f}": 0.1 for f in ("mass", "drag", "stiffness")}
            found.append({
                "world": "poke-frozen", "arm": arm, "label": f"α = {alpha:g}", "seed": seed, "arrays": {},
                "validation": measured | probes,
            })  # fmt: skip
    return found


@pytest.mark.parametrize("effect", [0.0, 1.0])
def test_statements_hold_where_both_rise_by_more_than_their_intervals(effect: float):
    verdicts = judge(CLAIMS, rows(effect))[:4]
    assert [each.status == HELD for each in verdicts] == [effect > 0] * 4


def test_tables_have_a_line_a_source_with_its_interval():
    first, second = tables(rows())
    assert [line[:2] for line in first.rows] == [[f"α = {a}", str(s)] for a in ("0", "0.5", "1") for s in (0, 1)]
    assert first.rows[-1][2:] == ["0.2500 [0.2460, 0.2540]", "0.3300 [0.3000, 0.3600]"]
    assert [line[0] for line in second.rows] == ["α = 0", "α = 0.5", "α = 1"]


def test_the_figure_has_ours_of_states_and_the_papers(tmp_path: Path):
    own = [row | {"folder": str(tmp_path / "cells" / "some")} for row in rows()]
    kept, where = states_of(own[0])
    assert "kept report" in where
    assert len(kept) == 6
    (picture,) = pictures(own)
    ratio, drag = picture.figure.axes
    legend = ratio.get_legend()
    assert legend is not None
    names = [text.get_text() for text in legend.get_texts()]
    assert sorted(names) == ["numerical states", "pixels, frozen stem", "the paper's, pixels end to end"]
    assert (ratio.get_yscale(), drag.get_yscale()) == ("log", "linear")
    lines = {
        tuple(np.round(np.asarray(line.get_ydata(), float), 3)) for line in drag.lines if np.size(line.get_xdata()) == 3
    }
    assert (0.061, 0.243, 0.781) in lines  # tab:fidelity-full
    assert (0.025, 0.175, 0.325) in lines
    # A report of the same folder goes before the kept one.
    folder = tmp_path / "tab-fidelity-full"
    folder.mkdir()
    write_json(folder / "results.json", {"preset": "states", "rows": kept[:3]})
    assert states_of(own[0]) == (kept[:3], "this folder's report of tab:fidelity-full")
    write_json(folder / "results.json", {"preset": "quick", "rows": kept[:3]})
    assert "kept report" in states_of(own[0])[1]
    assert pictures([row for row in own if row["arm"] == "none"]) == []
