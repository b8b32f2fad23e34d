"""`tab:pendulum-r7`: its cells, the report of real rows of a tiny budget, its claims, and `sprii pendulum`."""

import importlib
import io
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tiny_sources import serial

import sprii_train.experiments.reproduce as reproducing
from sprii_envs.banks import Store, StoreError, open_store
from sprii_envs.envs.pendulum import GROUPS
from sprii_train.checkpoints import CheckpointError, load, save
from sprii_train.cli import main
from sprii_train.control.assay_bank import assay_bank, experience, record, simulated
from sprii_train.control.controllers import CEM, ICEM, named_controller
from sprii_train.control.draws import COLLECTION, draw
from sprii_train.control.experience import Experience
from sprii_train.control.loop import ControlRun, iterations_of
from sprii_train.control.pendulum_agents import ENV_ID, learned, nominal, planner_name
from sprii_train.evaluation import Evaluation, evaluate_agent
from sprii_train.experiments import costs
from sprii_train.experiments.cells import folder_of
from sprii_train.experiments.groups import Scope
from sprii_train.experiments.measures.control import Played
from sprii_train.experiments.references import REFERENCES, ReferenceCell, References
from sprii_train.experiments.reproduce import Plan, reproduce
from sprii_train.experiments.sources import SourceCell
from sprii_train.experiments.targets import TARGETS, target
from sprii_train.experiments.targets.pendulum import drawn, over_seeds
from sprii_train.learners import JEPA, LEARNERS, JEPAConfig
from sprii_train.recipes import EVERY_RECIPE
from sprii_train.reports.claims import judge
from sprii_train.reports.page import Page
from sprii_train.settings import PENDULUM, SETTINGS

TARGET = TARGETS["tab:pendulum-r7"]
measuring = importlib.import_module(
    "sprii_train.experiments.measures.control"
)  # the package has a function of that name
TRAINED = ("cadm", "random", "r7")
R7_AGAINST = f"{EVERY_RECIPE['r7'].label} − {EVERY_RECIPE['cadm'].label}"
RESULTS = Path(__file__).parents[3] / "docs" / "results" / "pendulum-quick" / "results.json"


def logged(steps: int = 30) -> Iterator[tuple[str, Experience]]:
    """Two splits of a few systems at random."""
    rng, every = np.random.default_rng(0), GROUPS["ID"].combinations()
    for split, part in (("train", slice(0, 120, 10)), ("validation", slice(5, 120, 6))):  # both properties vary in both
        store, own = Experience(3, 1, ("mass", "length")), every.values[part]
        for _ in range(2):
            seen, done = rng.normal(size=(len(own), steps + 1, 3)), rng.uniform(-1, 1, (len(own), steps, 1))
            store.add(seen, done, every.ids[part], own)
        yield split, store


def small(folder: Path) -> Store:
    """A bank of `logged`."""
    path = folder / "small"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        record(path, logged())
    return open_store(path)


SMALL = replace(PENDULUM, store=small, anchors=(10, 20, 29), case_count=8)
"""Four cases of an episode of 31: after a history of 11, 16 steps fit at five places."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory):
    """A folder of runs, and a function that reproduces into it."""
    root, patch = tmp_path_factory.mktemp("pendulum"), pytest.MonkeyPatch()
    patch.setitem(SETTINGS, "pendulum", SMALL)
    patch.setattr(reproducing, "run_grid", serial)

    def run(label: str = "tab:pendulum-r7", **changes: Any) -> tuple[Page, list[dict[str, Any]]]:
        page = reproduce(Plan(target(label), "smoke", root, **changes), "sprii reproduce it")
        return page, json.loads((root / label.replace(":", "-") / "results.json").read_text())["rows"]

    yield root, run
    patch.undo()


@pytest.fixture(scope="module")
def told(runs: Any) -> tuple[Page, list[dict[str, Any]]]:
    """The page and its rows at the smoke budget."""
    return runs[1]()


def test_cells_of_a_preset(tmp_path: Path):
    spent, store = PENDULUM.budget("paper"), small(tmp_path)
    planned = [c for g in TARGET.groups for c in g.cells(Scope(PENDULUM, spent, g.arms("paper"), store))]
    assert len(planned) == 3 * (len(REFERENCES) + len(TRAINED))
    assert len({folder_of(cell, Path()) for cell in planned}) == len(planned)
    trained = [cell for cell in planned if isinstance(cell, SourceCell)]
    assert [(c.recipe.name, c.train.seed) for c in trained] == [(r, s) for s in (0, 1, 2) for r in TRAINED]
    one = trained[0]
    for cell in trained:  # rows differ in nothing but recipe and seed
        assert replace(cell, recipe=one.recipe, train=replace(cell.train, seed=0)) == one
    references = [cell for cell in planned if isinstance(cell, ReferenceCell)]
    assert one.trials == spent.trials
    assert spent.trials is not None
    assert {c.controllers for c in references} == {(CEM(), ICEM(horizon=20))} == {spent.trials.controllers}
    assert {c.episodes for c in references} == {10}
    published = spent.train
    assert isinstance(published, ControlRun)
    assert (published.steps, published.episodes, published.training.epochs) == (20, 10, 5)


def test_a_source_s_folder_is_its_run_s(tmp_path: Path):
    store, group = small(tmp_path), TARGET.groups[1]

    def folder(**changes: Any) -> Path:
        spent = PENDULUM.budget("smoke")
        spent = replace(spent, **{k: changes.pop(k) for k in ("learner", "trials") if k in changes})
        spent = replace(spent, train=replace(spent.train, **changes))
        return folder_of(group.cells(Scope(PENDULUM, spent, ("r7",), store))[0], Path())

    spent = PENDULUM.budget("smoke")
    assert spent.trials is not None
    assert folder(device="cuda") == folder(trials=replace(spent.trials, episodes=5)) == folder()
    others = [
        folder(steps=3),
        folder(episodes=3),
        folder(cloned=False),
        folder(learner=replace(spent.learner, members=2)),
    ]
    others += [folder(controller=replace(spent.train.controller, horizon=5))]
    others += [folder(training=replace(spent.train.training, systems=16))]
    assert len({folder(), *others}) == 1 + len(others)


def test_all_rows_meet_the_same_systems_and_data(told: Any):
    _, rows = told
    for group in GROUPS:
        assert len({row["groups"][group]["starts"] for row in rows}) == 1
    trained = [row for row in rows if "iterations" in row]
    assert len({row["iterations"][0]["experience"] for row in trained}) == 1
    assert [row["arm"] for row in rows] == [*REFERENCES, *TRAINED]
    assert all(row["train_seconds"] > 0 and row["steps"] == 2 == len(row["iterations"]) for row in trained)
    assert {"groups", "evaluation_seconds"} <= rows[0].keys() <= trained[0].keys()


def test_report_and_films(told: Any, runs: Any):
    page, rows = told
    folder = runs[0] / "tab-pendulum-r7"
    html = (folder / "report.html").read_text(encoding="utf-8")
    assert page.facts["Systems and starts"].startswith("the same in all rows")
    assert page.facts["Planner of pendulum"].startswith("collects: CEM(candidates=8")
    titles = [table.title for table in page.tables[:-1]]  # the last is the paper's
    told = ("Return and success", "Contrasts of the trained rows", "By system: return, and successes")
    each = [[f"{title}, {planner}" for planner in ("CEM", "iCEM")] for title in told]
    assert [title for title in titles if "," in title and "Probes" not in title] == [*each[0], *each[1], *each[2]]
    assert {row["planner"] for row in rows} == {"CEM"}
    assert {tuple(row["others"]) for row in rows} == {("iCEM",)}
    assert page.facts["Budget"].startswith(
        "pendulum: iterations: 2, each of 2 episodes; seeds of sources: 0; evaluation: 2 episodes a group and seed; "
    )
    assert page.lead.startswith("tab:pendulum-r7. A check that everything runs; ")
    assert "-326.5 ± 46.5 (96.7%)" in html
    assert "nan" not in " ".join(cell for table in page.tables for row in table.rows for cell in row)
    returns = page.tables[0]
    assert [row[0] for row in returns.rows] == list(GROUPS)
    oracle = next(row for row in rows if row["arm"] == "oracle")
    assert returns.rows[0][-1] == f"{oracle['groups']['ID']['return']:.1f} (0.0%)"
    assert list(page.files) == [f"{row['arm']}.gif" for row in rows]
    film = Image.open(io.BytesIO(page.files["oracle.gif"]))
    assert (film.size, getattr(film, "n_frames", 1)) == ((5 * 96, 112), 101)
    assert (folder / "oracle.gif").read_bytes() == page.files["oracle.gif"]


def test_arms_are_those_that_train(runs: Any, told: Any):
    """References stay, and nothing that is there is run again."""
    before = {path: path.stat().st_mtime_ns for path in (runs[0] / "cells").glob("*/*.json")}
    page, rows = runs[1](arms=("r7",))
    assert [row["arm"] for row in rows] == [*REFERENCES, "r7"]
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert page.tables[0].columns == ["Group", "Random policy", "Nominal model", "SPRII (R7)", "Oracle dynamics"]
    again = {row["arm"]: row for row in told[1]}
    assert all(row == again[row["arm"]] for row in rows)
    with pytest.raises(ValueError, match="unknown arm 'oracle'; legal names: cadm, random, r7"):
        runs[1](arms=("oracle",))


def test_two_seeds_have_a_spread(told: Any):
    _, rows = told
    tables = TARGET.tables([*rows, *(row | {"seed": 1} for row in rows)])
    assert all("± 0.0 (" in cell for row in tables[0].rows for cell in row[1:])


def test_the_setting_has_a_report_of_its_own(runs: Any):
    """Of the arms that its loop takes, with the task readers of CaDM's standardised presents."""
    page, rows = runs[1]("setting:pendulum", arms=("r7",))
    assert target("setting:pendulum").groups[0].recipes == TRAINED
    found = rows[0]["validation"]
    assert {"ratio", "rho_mass"} | {f"{of}_h{h}" for of in ("self", "correct", "shuffled") for h in range(1, 11)} <= (
        found.keys()
    )
    assert {f"value_{reader}_h16" for reader in ("null", "persistent", "decode", "oracle", "m2")} <= rows[0].keys()
    assert "Not measured" not in page.facts


def test_cases_without_room_are_refused_before_anything_is_trained(runs: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(SETTINGS, "pendulum", replace(SMALL, case_count=16))
    monkeypatch.setattr(reproducing, "run_grid", lambda *_, **__: pytest.fail("trained"))
    told = (
        r"'pendulum' has case_count 16 and case_horizons \(1, 4, 16\); an episode of train has 31 observations, no room"
    )
    with pytest.raises(ValueError, match=told):
        runs[1]("setting:pendulum", arms=("r7",))


def test_what_it_would_cost(monkeypatch: pytest.MonkeyPatch):
    """Training, evaluation and assay of every arm, and the references' share of an evaluation."""
    monkeypatch.setattr(costs, "product_rate", lambda: costs.REFERENCE_RATE)
    spent = PENDULUM.budget("paper")
    assert spent.step_seconds is not None
    assert spent.trials is not None
    each = 20 * spent.step_seconds + spent.trials.seconds + costs.MEASURES["control"].seconds
    expected = 3 * (3 * each + References("pendulum").acting * spent.trials.seconds)
    assert costs.estimate(TARGET, "paper") == pytest.approx(expected)


def test_the_cost_is_told_before_anything_is_trained(runs: Any, told: Any, monkeypatch: Any, capsys: Any):
    """In words of the estimate; not where all is done, nor for less than a minute."""
    monkeypatch.setattr(costs, "product_rate", lambda: costs.REFERENCE_RATE / 1_000)
    runs[1]()
    assert "about" not in capsys.readouterr().err
    monkeypatch.setattr(reproducing, "run_grid", lambda *_, **__: pytest.fail("trained"))
    with pytest.raises(pytest.fail.Exception, match="trained"):
        runs[1](seeds=(1,))
    said = capsys.readouterr().err
    spent = replace(PENDULUM.budget("smoke"), sources=(1,))
    parts = [(group, PENDULUM, spent, group.arms("smoke")) for group in TARGET.groups]
    needed = costs.span(costs.seconds(parts, share=0.2))
    assert f"tab:pendulum-r7, preset smoke: about {needed} of one core of this machine" in said


def test_the_kept_rows_are_judged_as_before():
    kept = json.loads(RESULTS.read_text(encoding="utf-8"))
    verdicts = {verdict.text: verdict.status for verdict in judge(TARGET.claims, kept["rows"])}
    assert verdicts == {verdict["claim"]: verdict["verdict"] for verdict in kept["verdicts"]}


def planted(lead: float, noise: float, success: float = 1.0, seeds: int = 2, eligible: int = 40) -> list[dict]:
    """Rows whose R7 returns `lead` more than CaDM, episode by episode, up to the noise; half of the updates had
    `eligible` systems, the others one."""
    assay = {"r2_mass": 0.1, "r2_length": 0.7, "own_donor_h10": 0.02, "wrong_minus_matched": 0.1}
    other = dict.fromkeys(("collected_return", "collection_seconds", "training_seconds"), 0.0)
    other |= {"experience": "", "updates": 100}
    iterations, rows = [other | {"eligible_systems": n} for n in (1, eligible)], []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        starts = {g: rng.normal(-300.0 - 500.0 * (g == "OOD_c3"), 100.0, 10) for g in GROUPS}
        for arm in TRAINED:
            groups = {}
            for g in GROUPS:
                returns = starts[g] + (lead * (arm == "r7") + noise * rng.normal(size=10) if arm != "cadm" else 0.0)
                successes = [i < round(10 * success) for i in range(10)]
                groups[g] = {"return": float(np.mean(returns)), "returns": list(returns), "success": success}
                groups[g] |= {"successes": successes, "starts": f"{seed} {g}"}
                groups[g] |= {"mass": [1.0] * 10, "length": [0.5] * 5 + [0.7] * 5}
            rows.append({"world": "pendulum", "arm": arm, "label": EVERY_RECIPE[arm].label, "seed": seed})
            rows[-1] |= {"groups": groups, "assay": assay, "iterations": iterations, "pairs": 32}
    return rows


def statuses(rows: list[dict]) -> dict[str, str]:
    return {v.text: v.status for v in judge(TARGET.claims, rows)}


def test_differences_of_return_are_judged_over_paired_episodes():
    """Episodes differ by 100, the rows by the lead alone: what counts is the paired difference against its margin."""
    better, worse, same = statuses(planted(50.0, 5.0)), statuses(planted(-50.0, 5.0)), statuses(planted(0.1, 0.5))
    noisy = statuses(planted(1.5, 100.0))
    texts = [text for text in better if "than CaDM" in text]
    assert len(texts) == 5
    for text in texts:
        higher, lower = ("held", "did not hold") if "higher" in text else ("did not hold", "held")
        assert (better[text], worse[text]) == (higher, lower)
        assert same[text] == "did not hold"  # resolved, and smaller than what counts
        assert noisy[text] == "not resolved"


@pytest.mark.parametrize(("eligible", "tested"), [(31, False), (32, True)])
def test_a_relation_that_was_hardly_drawn_is_not_tested(eligible: int, tested: bool):
    """An advantage of 50 in every episode says nothing of pairs that were not there."""
    rows = planted(50.0, 5.0, eligible=eligible)
    found = {v.text: v for v in judge(TARGET.claims, rows) if "than CaDM" in v.text}
    assert {v.status == "not tested" for v in found.values()} == {not tested}
    if not tested:
        assert "0%, 0% of the updates (by source) had the 32 systems" in next(iter(found.values())).evidence
    words = {line[3] for line in contrast_table(rows).rows if line[1] == R7_AGAINST}
    assert words == {"higher" if tested else "not tested"}
    assert statuses(rows)["Contexts hold length, and mass hardly"] == "held"  # of whatever was trained
    assert [drawn(row) for row in rows] == [0.5 if tested else 0.0] * 6


@pytest.mark.parametrize("preset", ["quick", "paper"])
def test_presets_test_the_relation(preset: str):
    """Systems of the collected episodes are a function of seed and iteration: from them, whatever is learnt."""
    spent = PENDULUM.budget(preset)
    run = spent.train
    assert (spent.sources, run.cloned) == ((0, 1, 2), False)
    for seed in spent.sources:
        systems: list[str] = []
        iterations = []
        for i in range(run.steps):
            systems += draw("ID", run.episodes, (COLLECTION, seed, i)).ids.tolist()
            eligible = sum(count > 1 for count in Counter(systems).values())
            iterations.append({"eligible_systems": eligible, "updates": len(systems)})  # updates grow with the data
        assert drawn({"iterations": iterations, "pairs": run.training.systems}) >= 0.5


def contrast_table(rows: list[dict]) -> Any:
    return next(table for table in TARGET.tables(rows) if table.title.startswith("Contrasts"))


def test_contrasts_are_over_paired_episodes_and_seeds():
    """Against the bootstrap done by hand: seeds are drawn, then the same episodes of all of them."""
    rows = planted(3.0, 20.0, seeds=3)
    found = over_seeds([by_arm(rows, seed, "ID") for seed in range(3)], "r7", "cadm", "returns")
    assert found is not None
    differences = np.array([
        np.subtract(*(by_arm(rows, seed, "ID")[arm]["returns"] for arm in ("r7", "cadm"))) for seed in range(3)
    ])  # fmt: skip
    rng, means = np.random.default_rng(1), []
    for _ in range(4_000):
        seeds, episodes = rng.integers(3, size=3), rng.integers(10, size=10)
        means.append(differences[seeds][:, episodes].mean())
    assert found.estimate == pytest.approx(differences.mean())
    assert (found.low, found.high) == pytest.approx(np.quantile(means, (0.025, 0.975)), abs=0.2 * float(np.std(means)))
    line = next(line for line in contrast_table(rows).rows if line[:2] == ["ID", R7_AGAINST])
    assert line[3] == ("not resolved" if found.low <= 0 <= found.high else "higher" if found.low > 0 else "lower")
    assert line[4:] == ["+0.0 [+0.0, +0.0]", "not resolved"]  # all succeed


def by_arm(rows: list[dict], seed: int, group: str) -> dict[str, Any]:
    return {row["arm"]: row["groups"][group] for row in rows if row["seed"] == seed}


def test_rows_by_system():
    table = next(table for table in TARGET.tables(planted(0.0, 0.0)) if table.title.startswith("By system"))
    assert [line[:2] for line in table.rows] == [
        [group, f"1 kg, {length} m"] for group in GROUPS if group != "ID" for length in (0.5, 0.7)
    ]
    rows = planted(0.0, 0.0, seeds=1)
    own = by_arm(rows, 0, "OOD_c3")["cadm"]["returns"]
    line = TARGET.tables(rows)[-1].rows[-1]
    assert line[2] == f"{np.mean(own[5:]):.0f} (5 of 5)"


def test_a_stopped_evaluation_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Groups that were played are not played again, and the row is that of an evaluation in one go."""
    trials = PENDULUM.budget("smoke").trials
    assert trials is not None
    agents = {planner_name(each): nominal(each, seed=0) for each in trials.controllers}
    played, calls = Played(tmp_path, "one"), []

    def counted(agent: Any, *args: Any, groups: list[str], **kwargs: Any) -> Evaluation:
        if len(calls) == 7:
            calls.append("killed")
            raise KeyboardInterrupt
        calls.append(groups[0])
        return evaluate_agent(agent, *args, groups=groups, **kwargs)

    whole, courses = measuring.acted(agents, 3, 2)
    monkeypatch.setattr(measuring, "evaluate_agent", counted)
    with pytest.raises(KeyboardInterrupt):
        measuring.acted(agents, 3, 2, played)
    assert len(list(tmp_path.iterdir())) == 7
    row, again = measuring.acted(agents, 3, 2, played)
    assert calls == [*GROUPS, *list(GROUPS)[:2], "killed", *list(GROUPS)[2:]]
    assert row | {"evaluation_seconds": 0} == whole | {"evaluation_seconds": 0}
    assert all((courses[name] == again[name]).all() for name in courses)
    monkeypatch.setattr(measuring, "evaluate_agent", evaluate_agent)
    before = {path: path.read_text() for path in tmp_path.iterdir()}
    measuring.acted(agents, 3, 2, Played(tmp_path, "another"))
    assert all(json.loads(path.read_text())["claim"] == "another" for path in before)
    (tmp_path / "CEM-ID.json").write_text('{"claim": "another"}')
    with pytest.raises(CheckpointError, match=r"CEM-ID.json is damaged"):
        measuring.acted(agents, 3, 2, Played(tmp_path, "another"))


def test_rows_that_met_other_starts_are_not_paired():
    rows = planted(50.0, 5.0)
    for row in rows:
        for group in row["groups"].values():
            group["starts"] += row["arm"]
    (verdict,) = judge(
        [claim for claim in TARGET.claims if claim.text == "R7 has a higher return than CaDM in ID"], rows
    )
    assert "over sources" in verdict.evidence


def test_success_is_judged_over_episodes():
    text = "CaDM swings up and holds most pendulums in ID"
    assert [statuses(planted(0.0, 1.0, share))[text] for share in (1.0, 0.5, 0.0)] == [
        "held", "not resolved", "did not hold",
    ]  # fmt: skip


def test_the_common_bank(tmp_path: Path):
    """What is recorded is what was logged, to the last bit."""
    store = small(tmp_path)
    assert store.splits == ("train", "validation")
    assert [experience(store, s).digest() for s in store.splits] == [logs.digest() for _, logs in logged()]
    with pytest.raises(ValueError, match="has the anchor 70; legal: 10 to 30"):
        replace(SMALL, anchors=PENDULUM.anchors).check(store, PENDULUM.budget("smoke").learner)
    SMALL.check(store, PENDULUM.budget("smoke").learner)
    with pytest.raises(StoreError, match="no split 'test'"):
        experience(store, "test")


@pytest.mark.slow
def test_the_assay_s_bank_shares_no_system_and_is_upright_half_the_time(tmp_path: Path):
    train, held_out = (store for _, store in simulated(each=1))
    assert len(set(train.systems.tolist())) == 81
    assert len(set(held_out.systems.tolist())) == 40
    assert not set(train.systems.tolist()) & set(held_out.systems.tolist())
    last = held_out.observations.reshape(80, 201, 3)[:, -1, 0]
    assert (last[40:] > 0.5).mean() > 0.9
    assert (last[:40] > 0.5).mean() < 0.3
    store = assay_bank(tmp_path)
    PENDULUM.check(store, PENDULUM.budget("paper").learner, cases=True)
    assert assay_bank(tmp_path).fingerprint == store.fingerprint
    assert len(store.table) == 4 * 121


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "r9"], "legal names: cadm, random, r7"),
        (["train", "cadm", "--iterations", "0"], ">= 1"),
        (["evaluate", "nowhere"], "nowhere"),
        (["evaluate", "nowhere", "--episodes", "0"], "--episodes is 0; legal: an integer >= 1"),
        (["evaluate", "nowhere", "--systems", "0"], "--systems is 0; legal: an integer >= 1"),
        (["evaluate", "nowhere", "--json", "none/rows.json"], "--json none/rows.json: there is no folder none"),
        (["evaluate", "nowhere", "--plugin", "no_such"], "--plugin no_such: No module named 'no_such'"),
        (["evaluate", "nowhere", "--seed", "9" * 20], "--seed is 9"),
        (
            ["evaluate", "nowhere", "--device", "nonsense"],
            "device is 'nonsense', which cannot be used here; legal: cpu",
        ),
        (["train", "cadm", "--device", "meta"], "device is 'meta'"),
        (["train", "cadm", "--device", "cuda:99"], "device is 'cuda:99', which cannot be used here; legal: cpu"),
        (["train", "cadm", "--horizon", "0"], "--horizon is 0; legal: an integer >= 1"),
        (["train", "cadm", "--seed", "9" * 20], "legal: an integer >= 0, at most 2147483647"),
        (["train", "cadm", "--out", __file__], "is not a folder that can be written to"),
    ],
)
def test_illegal_commands(arguments, message, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["sprii", "pendulum", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_train_then_evaluate(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["sprii", "pendulum", "train", "r7", "--preset", "smoke"])
    main()
    assert "iteration 2/2" in capsys.readouterr().out
    command = [
        "sprii",
        "pendulum",
        "evaluate",
        "runs/pendulum-smoke-r7-0/model",
        "--episodes",
        "1",
        "--controller",
        "shooting",
    ]
    monkeypatch.setattr(sys, "argv", [*command, "--horizon", "2"])
    main()
    printed = capsys.readouterr().out
    assert all(group in printed for group in GROUPS)
    assert printed.count("oracle*") == printed.count("paper: CaDM") == len(GROUPS)
    given = [
        "--groups",
        "ID, OOD_c3",
        "--systems",
        "2",
        "--episodes",
        "4",
        "--json",
        "rows.json",
        "--by-system",
        "--alone",
    ]
    monkeypatch.setattr(sys, "argv", [*command[:4], "--controller", "shooting", "--horizon", "2", *given])
    main()
    printed = capsys.readouterr().out
    assert "oracle" not in printed
    found = Evaluation.from_json(tmp_path / "rows.json")
    assert [row["episodes"] for row in found.by_group()] == [4, 4]
    agent = learned(load(command[3]), named_controller("shooting", horizon=2), seed=0)
    again = evaluate_agent(agent, ENV_ID, groups=["ID", "OOD_c3"], systems=2, episodes=4)
    assert again.by_group() == found.by_group()


def test_the_planner_that_collects_is_an_option(monkeypatch, capsys, tmp_path):
    """Its run has a folder of its own, and its data are others after the first iteration, which acts at random."""
    monkeypatch.chdir(tmp_path)
    for given in ((), ("--controller", "icem", "--horizon", "3")):
        monkeypatch.setattr(sys, "argv", ["sprii", "pendulum", "train", "cadm", "--preset", "smoke", *given])
        main()
    found = [iterations_of(tmp_path / "runs" / f"pendulum-smoke-cadm-0{name}") for name in ("", "-icem")]
    first, last = ([rows[i]["experience"] for rows in found] for i in (0, 1))
    assert first[0] == first[1]
    assert last[0] != last[1]
    capsys.readouterr()


def test_a_learner_that_cannot_plan_is_refused_by_name(monkeypatch, capsys, tmp_path):
    save(JEPA(JEPAConfig(image=16, stem=(4,), patch=4)), tmp_path / "jepa")
    monkeypatch.setattr(sys, "argv", ["sprii", "pendulum", "evaluate", str(tmp_path / "jepa")])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert "JEPA lacks" in capsys.readouterr().err


def test_a_learner_of_a_plugin_plans(monkeypatch, capsys, tmp_path):
    (tmp_path / "still_plugin.py").write_text(PLUGIN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "learner").mkdir()
    still = importlib.import_module("still_plugin")
    save(still.Still(still.StillConfig()), tmp_path / "learner" / "still")
    given = ["learner/still", "--plugin", "still_plugin", "--episodes", "2", "--groups", "ID", "--alone"]
    monkeypatch.setattr(sys, "argv", ["sprii", "pendulum", "evaluate", *given, "--controller", "shooting"])
    try:
        main()
    finally:
        del LEARNERS["still"]
    assert "learner/still" in capsys.readouterr().out


PLUGIN = """
from dataclasses import dataclass

from torch import nn

from sprii_train.learners import register_learner


@dataclass(frozen=True)
class StillConfig:
    history: int = 2


class Still(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config, self.history, self.layer = config, config.history, nn.Linear(1, 1)

    def context(self, history):
        return None

    def step(self, observation, action, context):
        return observation


register_learner("still", Still, StillConfig)
"""
