"""`sprii pendulum`: cells, the report on real rows of a tiny budget, and the command line."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import sprii_train.experiments.pendulum_banks as banks
from sprii_envs.envs.pendulum import GROUPS
from sprii_train.cli import main
from sprii_train.control.experience import Experience
from sprii_train.experiments.grid import folder_of
from sprii_train.experiments.pendulum import PRESETS, REFERENCES, ControlCell, ReferenceCell, cells
from sprii_train.experiments.pendulum_banks import assay_banks
from sprii_train.reports.claims import judge
from sprii_train.reports.page import write_page
from sprii_train.reports.pendulum import CLAIMS, TRAINED, page, videos


def silent(step: int, values: dict[str, float]) -> None:
    """A report to nobody."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory):
    """Rows of the smoke preset, with a small common bank, and the folder of the cells."""
    root, patch = tmp_path_factory.mktemp("pendulum"), pytest.MonkeyPatch()
    rng = np.random.default_rng(0)

    def small():
        every = GROUPS["ID"].combinations()
        for part in (slice(0, 120, 10), slice(5, 65, 10)):  # both properties vary in both
            store, own = Experience(3, 1, ("mass", "length")), every.values[part]
            for _ in range(2):
                store.add(
                    rng.normal(size=(len(own), 31, 3)), rng.uniform(-1, 1, (len(own), 30, 1)), every.ids[part], own
                )
            yield store

    patch.setattr(banks, "simulated_banks", lambda: tuple(small()))
    planned = cells(PRESETS["smoke"])
    rows = []
    for cell in planned:
        folder = folder_of(cell, root / "cells")
        folder.mkdir(parents=True)
        rows.append(json.loads(json.dumps(cell.run(folder, silent))))
    yield planned, rows, root
    patch.undo()


def test_cells_of_a_preset():
    planned = cells(PRESETS["paper"])
    assert len(planned) == 3 * (len(REFERENCES) + len(TRAINED))
    assert len({folder_of(cell, Path()) for cell in planned}) == len(planned)
    trained = [cell for cell in planned if isinstance(cell, ControlCell)]
    assert [(c.control.recipe, c.control.seed) for c in trained] == [(r, s) for s in (0, 1, 2) for r in TRAINED]
    one = trained[0].control
    for cell in trained:  # rows differ in nothing but recipe and seed
        assert replace(cell.control, recipe="cadm", training=one.training) == one
    assert {c.controller for c in planned if isinstance(c, ReferenceCell)} == {one.controller}
    published = PRESETS["paper"].run
    assert (published.iterations, published.episodes, published.training.epochs) == (20, 10, 5)


def test_all_rows_meet_the_same_systems_and_data(run):
    _, rows, _ = run
    for group in GROUPS:
        assert len({row["groups"][group]["starts"] for row in rows}) == 1
    trained = [row for row in rows if "iterations" in row]
    assert len({row["iterations"][0]["experience"] for row in trained}) == 1
    assert [row["arm"] for row in rows] == [*REFERENCES, *TRAINED]


def test_report_and_videos(run, tmp_path: Path):
    planned, rows, root = run
    told = page(rows, "smoke", PRESETS["smoke"], "sprii pendulum compare --preset smoke")
    write_page(told, tmp_path)
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert told.facts["Systems and starts"].startswith("the same in all rows")
    assert "-326.5 ± 46.5 (96.7%)" in html
    assert "nan" not in " ".join(cell for table in told.tables for row in table.rows for cell in row)
    returns = told.tables[0]
    assert [row[0] for row in returns.rows] == list(GROUPS)
    oracle = next(row for row in rows if row["arm"] == "oracle")
    assert returns.rows[0][-1] == f"{oracle['groups']['ID']['return']:.1f} (0.0%)"
    written = videos(rows, planned, root / "cells", tmp_path)
    assert [path.stem for path in written] == [row["arm"] for row in rows]
    picture = Image.open(written[0])
    assert (picture.size, getattr(picture, "n_frames", 1)) == ((5 * 96, 96), 101)


def test_two_seeds_have_a_spread(run):
    _, rows, _ = run
    other = [row | {"seed": 1} for row in rows]
    told = page([*rows, *other], "quick", PRESETS["quick"], "x")
    assert all("± 0.0 (" in cell for row in told.tables[0].rows for cell in row[1:])


def planted(lead: float, noise: float, success: float = 1.0, seeds: int = 2) -> list[dict]:
    """Rows whose R7 returns `lead` more than CaDM, episode by episode, up to the noise."""
    assay = {"r2_mass": 0.1, "r2_length": 0.7, "own_donor_h10": 0.02, "wrong_minus_matched": 0.1}
    rows = []
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
            rows.append({"arm": arm, "seed": seed, "groups": groups, "assay": assay})
    return rows


def statuses(rows: list[dict]) -> dict[str, str]:
    return {v.text: v.status for v in judge(CLAIMS, rows)}


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


def test_rows_that_met_other_starts_are_not_paired():
    rows = planted(50.0, 5.0)
    for row in rows:
        for group in row["groups"].values():
            group["starts"] += row["arm"]
    (verdict,) = judge([claim for claim in CLAIMS if claim.text == "R7 has a higher return than CaDM in ID"], rows)
    assert "over sources" in verdict.evidence


def test_success_is_judged_over_episodes():
    text = "CaDM swings up and holds most pendulums in ID"
    assert [statuses(planted(0.0, 1.0, share))[text] for share in (1.0, 0.5, 0.0)] == [
        "held", "not resolved", "did not hold",
    ]  # fmt: skip


def test_the_common_bank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(banks, "simulated_banks", lambda: banks_of_one(2))

    def banks_of_one(count: int):
        store = Experience(3, 1, ("mass", "length"))
        store.add(np.zeros((count, 3, 3)), np.zeros((count, 2, 1)), ["a", "b"], [[1.0, 1.0], [1.0, 0.8]])
        return store, store

    first = assay_banks(tmp_path)
    monkeypatch.setattr(banks, "simulated_banks", lambda: pytest.fail("simulated twice"))
    assert [bank.digest() for bank in assay_banks(tmp_path)] == [bank.digest() for bank in first]


@pytest.mark.slow
def test_simulated_banks_share_no_system_and_are_upright_half_the_time():
    train, held_out = banks.simulated_banks(each=1)
    assert len(set(train.systems.tolist())) == 81
    assert len(set(held_out.systems.tolist())) == 40
    assert not set(train.systems.tolist()) & set(held_out.systems.tolist())
    last = held_out.observations.reshape(80, 201, 3)[:, -1, 0]
    assert (last[40:] > 0.5).mean() > 0.9
    assert (last[:40] > 0.5).mean() < 0.3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare", "--rows", "cadm,r9"], "--rows names 'r9'; legal: cadm, random, r7"),
        (["compare", "--rows", "cadm,cadm"], "twice"),
        (["compare", "--workers", "0"], "--workers is 0"),
        (["train", "r9"], "legal: cadm, random, r7"),
        (["train", "cadm", "--iterations", "0"], ">= 1"),
        (["evaluate", "nowhere"], "nowhere"),
        (["evaluate", "nowhere", "--episodes", "0"], "--episodes is 0; legal: an integer >= 1"),
        (["evaluate", "nowhere", "--seed", "9" * 20], "--seed is 9"),
        (
            ["evaluate", "nowhere", "--device", "nonsense"],
            "device is 'nonsense', which cannot be used here; legal: cpu",
        ),
        (["train", "cadm", "--device", "meta"], "device is 'meta'"),
        (["train", "cadm", "--seed", "9" * 20], "legal: an integer >= 0, at most 2147483647"),
        (["train", "cadm", "--out", __file__], "is not a folder that can be written to"),
        (["compare", "--out", __file__], "is not a folder that can be written to"),
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
