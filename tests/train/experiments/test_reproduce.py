"""`reproduce` from a label to its report, at a budget of three steps; the grid runs in this process."""

import html
import json
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tiny_sources import TRAIN, silent
from tiny_worlds import POKE_LEARNER, POKE_SMALL, SPRING_LEARNER, SPRING_SMALL

import sprii_train.experiments.reproduce as reproducing
import sprii_train.settings.base as settings
from sprii_envs.banks import Bank
from sprii_envs.files import read_json, write_json
from sprii_train.experiments.cells import folder_of
from sprii_train.experiments.measures import MEASURES
from sprii_train.experiments.reproduce import Plan, reproduce
from sprii_train.experiments.sources import SourceCell
from sprii_train.experiments.targets import TARGETS
from sprii_train.reports.claims import Verdict
from sprii_train.reports.page import Page
from sprii_train.settings import POKE, SETTINGS, SPRING, Budget, Built

DIRECTION, LANDSCAPE = TARGETS["fig:v3-poke-semantics"], TARGETS["tab:spring-functional-landscape"]


@dataclass
class Log:
    """What has been trained, and which cells were run."""

    trained: list[str] = field(default_factory=list)
    run: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def log() -> Iterator[Log]:
    """Small banks, tiny budgets and a serial grid, for as long as this module runs."""
    log, patch, fit = Log(), pytest.MonkeyPatch(), settings.fit

    def logged(learner, data, objective, config, folder, **kwargs):
        log.trained.append(folder.name.rsplit("-", 1)[0])
        return fit(learner, data, objective, config, folder, tensorboard=False, **kwargs)

    def serial(cells, root, **_):
        for cell in cells:
            folder = folder_of(cell, root)
            if not (folder / cell.result).exists():
                folder.mkdir(parents=True, exist_ok=True)
                log.run.append(f"{cell.title} {cell.result}")
                write_json(folder / cell.result, cell.run(folder, silent))
        return [read_json(folder_of(cell, root) / cell.result) for cell in cells]

    def tiny(learner, note: str, *, judged: bool = True) -> Budget:
        return Budget(learner, TRAIN, (0,), 2, 4, note, judged, route_steps=4)

    patch.setattr(settings, "fit", logged)
    patch.setattr(reproducing, "run_grid", serial)
    for setting, protocol, learner in (
        (POKE, POKE_SMALL, POKE_LEARNER),
        (SPRING, SPRING_SMALL, SPRING_LEARNER),
    ):
        budgets = {
            "quick": tiny(learner, "three steps"),
            "smoke": tiny(learner, "nothing", judged=False),
            "paper": tiny(learner, "the paper's"),
        }
        patch.setitem(SETTINGS, setting.name, replace(setting, store=Built(protocol), budgets=budgets))
    yield log
    patch.undo()


Reproduce = Callable[..., tuple[Page, Path]]


@pytest.fixture(scope="module")
def run(log: Log, tmp_path_factory: pytest.TempPathFactory) -> Reproduce:
    """Targets of one folder, as one user has them; forgets what was logged before."""
    root = tmp_path_factory.mktemp("runs")

    def run(target, preset: str = "quick", **changes: Any) -> tuple[Page, Path]:
        log.trained.clear()
        log.run.clear()
        plan = Plan(target, preset, changes.pop("root", root), **changes)
        return reproduce(plan, "sprii reproduce it"), plan.root / target.folder

    return run


def results(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "results.json").read_text(encoding="utf-8"))


def test_pokeworld_end_to_end(run: Reproduce, log: Log):
    page, folder = run(DIRECTION)
    assert log.trained == ["poke-g1-seed0", "poke-g2-seed0"]
    assert {file.name for file in folder.iterdir()} == {
        "report.html", "results.json", "redirection.png", "risk.png", *(f"table-{i}.csv" for i in range(1, 7)),
    }  # fmt: skip
    seen = next(table for table in page.tables if table.title == "What embeddings of frames tell of the state")
    assert [line[:2] for line in seen.rows] == [["G₁", "0"], ["G₂", "0"]]
    told = results(folder)
    assert (told["table"], told["preset"], told["command"]) == ("fig:v3-poke-semantics", "quick", "sprii reproduce it")
    assert [(row["world"], row["arm"], row["seed"], row["steps"]) for row in told["rows"]] == [
        ("poke", "g1", 0, 3), ("poke", "g2", 0, 3),
    ]  # fmt: skip
    assert all("arrays" not in row and "P_mass" in row for row in told["rows"])
    assert {v["verdict"] for v in told["verdicts"]} <= {"held", "did not hold", "not resolved"}
    assert len(told["verdicts"]) == len(DIRECTION.claims)
    facts = told["facts"]
    assert facts["Budget"] == "poke: 3 steps of 6 pairs; seeds of sources: 0; readers of each: 2; three steps"
    assert "2 sources" in facts["Training time"]
    assert "fingerprint" in facts["Bank of poke"]
    assert "image 16" in facts["Learner of poke"]
    assert facts["Training of poke"].endswith("(fp32)")
    assert page.lead == f"fig:v3-poke-semantics. Three steps. {DIRECTION.note}"
    text = html.unescape((folder / "report.html").read_text(encoding="utf-8"))
    for words in (DIRECTION.title, "G₁", "G₂", "sprii reproduce it", DIRECTION.claims[0].text):
        assert words in text


def test_springworld_end_to_end(run: Reproduce, log: Log):
    """A figure and the paper's own table beside ours, its rows in grey."""
    _, folder = run(LANDSCAPE)
    assert log.trained == ["spring-structure-seed0", "spring-align-cross-seed0"]
    assert {file.name for file in folder.iterdir()} == {
        "report.html", "results.json", "landscape.png", "depths.png", "courses.png",
        *(f"table-{i}.csv" for i in range(1, 7)),
    }  # fmt: skip
    told = results(folder)
    assert [row["arm"] for row in told["rows"]] == ["structure", "align-cross"]
    ours, contrasts, responses, orthonormal, *papers = told["tables"]
    lines = [[label, factor] for label in ("Structure", "Align + Cross") for factor in ("mass", "drag", "stiffness")]
    assert [line[:2] for line in ours["rows"]] == lines == [line[:2] for line in responses["rows"]]
    assert [line[:2] for line in orthonormal["rows"]] == lines
    assert {line[2] for line in ours["rows"]} == {"Seed 0"}
    assert [set(line[1:]) == {"not tested"} for line in contrasts["rows"]] == [False, True, True]
    assert ours["paper"] == []
    assert [table["title"] for table in papers] == ["The paper's, panel A", "The paper's, panel B"]
    assert [len(table["rows"]) for table in papers] == [12, 4] == [len(table["paper"]) for table in papers]
    for name in ("landscape", "depths", "courses"):
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert text.count("data:image/png;base64,") == 3
    assert text.count('class="paper"') == 16


def test_again_nothing_is_trained_or_measured(run: Reproduce, log: Log):
    first, folder = run(DIRECTION)
    before = (folder / "results.json").read_bytes()
    second, _ = run(DIRECTION)
    assert log.trained == log.run == []
    assert (folder / "results.json").read_bytes() == before
    assert [t.rows for t in first.tables] == [t.rows for t in second.tables]


def test_another_arm_or_seed_keeps_the_others(run: Reproduce, log: Log):
    _, folder = run(LANDSCAPE)
    cells = folder.parent / "cells"
    stamps = {file: file.stat().st_mtime_ns for file in cells.glob("spring-*/*.json")}
    kept = {row["arm"]: row for row in results(folder)["rows"]}
    _, _ = run(LANDSCAPE, arms=("align", "align-cross", "structure"))
    assert log.trained == ["spring-align-seed0"]
    rows = results(folder)["rows"]
    assert [row["arm"] for row in rows] == ["structure", "align", "align-cross"]  # in the order of the table
    assert all(row == kept[row["arm"]] for row in rows if row["arm"] in kept)
    assert all(file.stat().st_mtime_ns == stamp for file, stamp in stamps.items())
    _, _ = run(LANDSCAPE, seeds=(0, 3), arms=("structure",))
    assert log.trained == ["spring-structure-seed3"]
    assert [row["seed"] for row in results(folder)["rows"]] == [0, 3]


def test_targets_share_sources(run: Reproduce, log: Log, monkeypatch: pytest.MonkeyPatch, poke_row: dict[str, Any]):
    """A measure that is new is all that is run; one row of a source has all of its measures."""
    run(DIRECTION)
    planted = replace(MEASURES["formation"], run=lambda source: {"validation": poke_row["validation"]})
    monkeypatch.setitem(MEASURES, "formation", planted)
    monkeypatch.setitem(TARGETS, "tab:both", replace(
        DIRECTION, groups=(replace(DIRECTION.groups[0], measures=("formation", "direction")),)
    ))  # fmt: skip
    _, folder = run(TARGETS["tab:both"])
    assert log.trained == []
    assert log.run == ["poke-g1-seed0 formation.json", "poke-g2-seed0 formation.json"]
    rows = results(folder)["rows"]
    assert [row["arm"] for row in rows] == ["g1", "g2"]
    assert all({"P_mass", "validation"} <= row.keys() for row in rows)


def test_a_teacher_of_one_source(run: Reproduce, log: Log, monkeypatch: pytest.MonkeyPatch, poke_row: dict[str, Any]):
    """Inferred relations at one source, of which no recovery has an interval."""
    planted = {"development": ("validation", poke_row["validation"]), "sight": ("sight", {"object_position": 0.5})}
    for name, (key, found) in planted.items():
        measure = replace(MEASURES[name], run=lambda source, key=key, found=found: {key: found})
        monkeypatch.setitem(MEASURES, name, measure)
    page, _ = run(TARGETS["tab:inferred-relation-recovery"])
    assert log.trained == [
        "poke-structure-seed0", "poke-g3-seed0", "poke-inferred-seed0", "poke-random-history-seed0",
    ]  # fmt: skip
    (recovered,) = [table for table in page.tables if "recovery" in table.title]
    assert {row[-1] for row in recovered.rows} == {"n.a.: one source"}
    page, _ = run(TARGETS["tab:inferred-relation-recovery"], seeds=(0, 1))
    assert len(log.trained) == 4
    page, _ = run(TARGETS["tab:inferred-relation-recovery"], arms=("inferred",), seeds=(2,))
    assert log.trained == ["poke-structure-seed2", "poke-inferred-seed2"]


def test_a_check_judges_nothing(run: Reproduce):
    page, folder = run(LANDSCAPE, "smoke", arms=("align-cross",))
    assert [(v.status, v.evidence) for v in page.verdicts] == [
        ("not tested", "this preset checks that everything runs")
    ]
    assert page.title.endswith("preset smoke")
    assert "not tested" in (folder / "report.html").read_text(encoding="utf-8")


def test_an_arm_that_was_not_trained_leaves_its_statements_open(run: Reproduce):
    page, _ = run(LANDSCAPE, arms=("align-cross",))
    status = {verdict.text: verdict.status for verdict in page.verdicts}
    for claim in LANDSCAPE.claims:
        assert (status[claim.text] == "not tested") == (claim.arms != ("align-cross",))


def test_statements_that_are_not_judged_are_told_where_others_are(run: Reproduce):
    open_ = Verdict("What the figure shows", "not tested", "it prints no number")
    one = replace(DIRECTION, untested=(open_,))
    page, folder = run(one)
    assert page.verdicts[-1] == open_
    assert results(folder)["verdicts"][-1] == open_.as_dict()
    assert [verdict.text for verdict in page.verdicts[:-1]] == [claim.text for claim in DIRECTION.claims]
    page, _ = run(one, "smoke")
    assert open_ not in page.verdicts


def test_what_cannot_be_measured_is_told_and_judges_nothing(
    run: Reproduce, log: Log, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """The report is written, names what the learner lacks, and has the paper's numbers alone."""
    monkeypatch.setitem(MEASURES, "direction", replace(MEASURES["direction"], needs=("dream",)))
    page, folder = run(DIRECTION, root=tmp_path)
    assert log.trained == ["poke-g1-seed0", "poke-g2-seed0"]
    reason = "direction needs the operation 'dream', which JEPA lacks"
    assert page.facts["Not measured"] == reason
    assert {verdict.status for verdict in page.verdicts} == {"not tested"}
    assert [row["unmeasured"] for row in results(folder)["rows"]] == [{"direction": reason}] * 2
    assert reason in html.unescape((folder / "report.html").read_text(encoding="utf-8"))
    assert not list(folder.glob("*.png"))


def test_other_steps_are_told(run: Reproduce, log: Log):
    run(DIRECTION)
    page, _ = run(DIRECTION, arms=("g1",), steps=2)
    assert log.trained == ["poke-g1-seed0"]  # another source than that of three steps
    assert page.lead == f"fig:v3-poke-semantics. Three steps; here --steps 2. {DIRECTION.note}"
    assert page.facts["Budget"].startswith("poke: 2 steps of 6 pairs")
    page, _ = run(DIRECTION, steps=3)
    assert log.trained == []
    assert page.lead == f"fig:v3-poke-semantics. Three steps. {DIRECTION.note}"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arms": ("g1", "g4")}, "unknown arm 'g4'; did you mean 'g2'. legal names: g1, g2"),
        ({"arms": ("align",)}, "unknown arm 'align'; legal names: g1, g2"),
        ({"arms": ("g4", "g1", "nada")}, "unknown arms 'g4', 'nada'; legal names: g1, g2"),
        ({"preset": "fast"}, "unknown preset 'fast'; legal names: smoke, quick, states, paper"),
    ],
)
def test_refused_before_anything_is_built(changes: dict[str, Any], message: str, run: Reproduce, tmp_path: Path):
    with pytest.raises(ValueError, match=message):
        run(DIRECTION, root=tmp_path / "new", **changes)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("asked", "sources"), [(2, (4200, 4201)), ((7,), (7,)), (None, (4200, 4201, 4202))])
def test_a_count_of_seeds_is_of_the_presets_sources(asked: int | tuple[int, ...] | None, sources: tuple[int, ...]):
    target = TARGETS["tab:overcooked-complete"]
    assert Plan(target, "quick", Path("unused"), seeds=asked).budget(target.groups[0]).sources == sources


def test_cells_of_a_group(poke_bank: Bank, tmp_path: Path):
    """Whole sources first; a teacher where donors are inferred, and it is the Structure arm of that seed."""
    target = TARGETS["tab:inferred-relation-factors"]
    plan = Plan(target, "paper", tmp_path, seeds=(4, 5))
    spent = plan.budget(target.groups[0])
    cells = [
        cell for cell in target.groups[0].cells(plan.scope(target.groups[0], poke_bank)) if isinstance(cell, SourceCell)
    ]
    seen = [cell for cell in cells if cell.measure == MEASURES["sight"]]  # what embeddings of frames tell
    cells = [cell for cell in cells if cell not in seen]
    assert {folder_of(cell, tmp_path) for cell in seen} == {folder_of(cell, tmp_path) for cell in cells}
    assert [(cell.train.seed, cell.recipe.name) for cell in cells] == [
        (seed, arm) for seed in (4, 5) for arm in ("structure", "g3", "inferred", "random-history")
    ]
    for cell in cells:
        assert (cell.setting, cell.measure) == (SETTINGS["poke"], MEASURES["development"])
        assert cell.bank == str(poke_bank.path)
        assert replace(cell.train, seed=0) == spent.train
        assert cell.learner == spent.learner
        assert cell.readers.count == spent.readers
        assert pickle.loads(pickle.dumps(cell)) == cell
        assert (cell.teacher is None) == (cell.recipe.name != "inferred")
        if cell.teacher is not None:
            (structure,) = [c for c in cells if c.recipe.name == "structure" and c.train.seed == cell.train.seed]
            assert folder_of(cell.teacher, tmp_path) == folder_of(structure, tmp_path)

    spring = TARGETS["tab:spring-same-donor"]
    cells = spring.groups[0].cells(Plan(spring, "paper", tmp_path, seeds=(0, 1)).scope(spring.groups[0], poke_bank))
    assert [(c.train.seed, c.measure and c.measure.name) for c in cells if isinstance(c, SourceCell)] == [
        (0, "formation"), (0, "value"), (1, "formation"), (1, "value"),
    ]  # fmt: skip
    assert not list(tmp_path.iterdir())
