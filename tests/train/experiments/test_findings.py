"""The page of all reports: every statement once, with its verdict, whatever was run."""

import html
import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from queued import Queue
from tiny_sources import TRAIN
from tiny_worlds import POKE_LEARNER, POKE_SMALL

import sprii_train.experiments.reproduce as reproducing
from sprii_envs.banks.populations import Combinations
from sprii_train.experiments.collect import reproduce_all, reproduce_composed
from sprii_train.experiments.findings import FINDINGS, ReportError, scoreboard
from sprii_train.experiments.grid import run_grid
from sprii_train.experiments.reproduce import Plan
from sprii_train.experiments.targets import ALIASES, COMPOSED, TARGETS, Composed, Target, composed
from sprii_train.reports.claims import FAILED, HELD
from sprii_train.settings import POKE, SETTINGS, SPRING, Budget, Built

RESULTS = Path(__file__).parents[3] / "docs" / "results"
AUDIT = TARGETS["tab:donor-pool-audit"]


def kept(folder: Path, label: str, verdicts: dict[str, str], **more: Any) -> Path:
    """A report as `write_page` leaves it, of two sources of 3,000 updates."""
    folder.mkdir(parents=True)
    (folder / "report.html").write_text("report")
    told = {"table": label, "title": "T", "preset": "quick", "rows": [{"seed": s, "steps": 3_000} for s in (0, 1)]}
    told["verdicts"] = [{"claim": text, "verdict": status, "evidence": "4 [3, 5]"} for text, status in verdicts.items()]
    (folder / "results.json").write_text(json.dumps(told | more))
    return folder


def page_of(folder: Path, **options: Any) -> str:
    path = scoreboard(folder, **options)
    return html.unescape(path.read_text(encoding="utf-8"))


def test_a_target_has_one_finding_and_parts_exist():
    labels = [label for one in FINDINGS for label in one.labels]
    assert len(set(labels)) == len(labels)
    assert set(labels) == set(TARGETS)  # a new one says where it belongs
    for one in COMPOSED.values():
        assert set(one.parts) <= set(TARGETS)
        assert len(set(one.parts)) == len(one.parts)
        assert one.label not in TARGETS
        for alias in (one.label, *one.aliases):
            assert composed(alias) is one
            assert alias not in TARGETS
    assert composed("tab:refinement-full") is None
    assert set(ALIASES.values()) <= {*TARGETS, *COMPOSED}


def test_a_folder_without_reports_is_refused_and_deep_ones_are_found(tmp_path: Path):
    with pytest.raises(ReportError, match=r"holds no report: no results\.json"):
        page_of(tmp_path)
    kept(tmp_path / "cells" / "x", "tab:refinement-full", {})  # no report
    with pytest.raises(ReportError, match="holds no report"):
        page_of(tmp_path)
    kept(tmp_path / "quick" / "deep" / "a", "tab:refinement-full", {})
    assert 'href="quick/deep/a/report.html"' in page_of(tmp_path)


def test_without_reports_every_statement_was_never_tested(tmp_path: Path):
    text = page_of(tmp_path, failures={})
    claims = Counter(html.unescape(claim.text) for one in TARGETS.values() for claim in one.claims)
    for claim, times in claims.items():
        assert text.count(f'<th scope="row" class="text" role="rowheader">{claim}</th>') == times, claim
    untested = sum(claims.values()) + sum(len(one.untested) for one in TARGETS.values())
    assert text.count('<td class="verdict" role="cell"><span class="none">not tested</span>') == untested
    for one in FINDINGS:
        assert one.title in text
        assert all(lacking in text for lacking in one.lacking)


def test_a_report_is_shown_with_what_it_says_and_where_it_lies(tmp_path: Path):
    target = TARGETS["tab:refinement-full"]
    first, *others = [claim.text for claim in target.claims]
    kept(tmp_path / "a", target.label, {first: HELD, "A statement of old": FAILED})
    text = page_of(tmp_path)
    (table,) = re.findall(r'<p><a href="a/report.html">.*?</table>', text, flags=re.S)
    assert "quick, 3,000 updates, 2 sources" in table
    assert f'{first}</th><td class="verdict" role="cell"><span class="held">held</span></td>' in table
    assert "4 [3, 5]" in table
    assert 'A statement of old</th><td class="verdict" role="cell"><span class="not">did not hold' in table
    assert table.count("this report is older than the statement") == len(others)
    below = page_of(tmp_path, where=tmp_path / "pages" / "index.html") if (tmp_path / "pages").mkdir() is None else ""
    assert 'href="../a/report.html"' in below


def test_other_labels_composed_ones_and_own_settings(tmp_path: Path):
    kept(tmp_path / "a", "dclean", {TARGETS["tab:dclean-full"].claims[0].text: HELD})  # an alias
    kept(tmp_path / "b", "fig:relation-mechanism", {"twice": HELD}, parts=["tab:fidelity-full"])
    kept(tmp_path / "c", "setting:valves", {"<b>mine</b>": HELD})
    raw = scoreboard(tmp_path).read_text(encoding="utf-8")
    assert "twice" not in raw
    assert "Further settings" in raw
    assert "&lt;b&gt;mine&lt;/b&gt;" in raw
    assert raw.count('href="a/report.html"') == raw.count('href="c/report.html"') == 1


def test_the_index_of_the_kept_results_is_that_of_the_code(tmp_path: Path):
    """`sprii scoreboard docs/results` writes it anew."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "results").symlink_to(RESULTS)
    now = scoreboard(tmp_path / "docs" / "results", where=tmp_path / "docs" / "now.html").read_text(encoding="utf-8")
    assert now.replace('href="results/', 'href="') == (RESULTS / "index.html").read_text(encoding="utf-8")


def test_damaged_results_are_named(tmp_path: Path):
    (kept(tmp_path / "a", "tab:refinement-full", {}) / "results.json").write_text("{")
    with pytest.raises(ReportError, match=r"a/results\.json .*write the report again"):
        page_of(tmp_path)
    kept(tmp_path / "b", "tab:refinement-full", {})
    text = page_of(tmp_path)
    assert 'href="b/report.html"' in text
    assert "Reports that cannot be read" in text
    assert "write the report again" in text


PAIRED = POKE_SMALL.replace(
    systems={
        split: Combinations(
            {"mass": (0.7, 1.6), "drag": tuple(0.3 + 0.1 * i for i in range(8)), "stiffness": (k, 3 * k)}
        )
        for split, k in zip(POKE_SMALL.systems, (200.0, 300.0, 400.0), strict=True)
    }
)
"""Levels enough for candidates of another drag in every split."""


@pytest.fixture
def plan_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    budget = Budget(POKE_LEARNER, TRAIN, (0,), 1, 4, "three steps", route_steps=4)
    monkeypatch.setitem(SETTINGS, "poke", replace(POKE, store=Built(PAIRED), budgets={"quick": budget}))

    monkeypatch.setitem(SETTINGS, "spring", replace(SPRING, budgets={}))
    monkeypatch.setattr(reproducing, "run_grid", lambda cells, root, **_: run_grid(cells, root, launcher=Queue(1)))

    def plan_of(target: Target) -> Plan:
        return Plan(target, "quick", tmp_path)

    return plan_of


def broken(rows: Any) -> list[Any]:
    raise ValueError("no tables today")


def test_all_targets_run_on_past_one_that_fails(plan_of, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    fails = replace(AUDIT, label="tab:other", tables=broken)
    targets = [AUDIT, fails, replace(TARGETS["tab:v3-horizon"], label="tab:third")]
    index, failures = reproduce_all(
        plan_of, "quick", tmp_path, lambda target: f"sprii {target.label}", targets=targets, workers=1
    )
    assert failures == {"tab:other": "it failed: no tables today", "tab:third": "spring has no preset quick"}
    assert "the others go on: no tables today" in capsys.readouterr().err
    assert json.loads((tmp_path / "tab-donor-pool-audit" / "results.json").read_text())["command"] == (
        "sprii tab:donor-pool-audit"
    )
    assert 'href="tab-donor-pool-audit/report.html"' in index.read_text(encoding="utf-8")


def test_a_composed_label_has_the_tables_and_statements_of_its_parts(plan_of, tmp_path: Path):
    one = Composed("fig:both", "Both", ("tab:donor-pool-audit",), ("a third",))
    page = reproduce_composed(one, plan_of, "sprii reproduce fig:both --preset quick", workers=1)
    assert [table.title.split(":")[0] for table in page.tables] == ["tab"] * len(page.tables)
    assert [verdict.text for verdict in page.verdicts] == [claim.text for claim in AUDIT.claims]
    assert "Not here: a third." in page.lead
    told = json.loads((tmp_path / "fig-both" / "results.json").read_text())
    assert told["parts"] == ["tab:donor-pool-audit"]
    part = json.loads((tmp_path / "tab-donor-pool-audit" / "results.json").read_text())
    assert part["command"] == "sprii reproduce tab:donor-pool-audit --preset quick"
