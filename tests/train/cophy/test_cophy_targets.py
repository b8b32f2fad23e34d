"""CoPhy's targets on planted rows: tables, figures, statements that follow the numbers, and quotes of the paper."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted_rows import planted

from sprii_train.experiments.targets import COPHY_SCENES, TARGETS, Group, Target
from sprii_train.experiments.targets.cophy import (
    BALLS_CLAIMS,
    COLLISION_CLAIMS,
    MATRIX_ARMS,
    MATRIX_CLAIMS,
    PAPER_BALLS,
    PAPER_COLLISION,
    PAPER_MATRIX,
)
from sprii_train.experiments.targets.cophy_balls import PAPER_CONTEXTS, PAPER_DIFFERENCES, PAPER_HISTORIES
from sprii_train.experiments.targets.cophy_rows import ARMS, CONTROLS, FAMILIES, SCENES, name
from sprii_train.experiments.targets.cophy_sources import PAPER, PAPER_READERS, READERS
from sprii_train.reports.claims import FAILED, HELD, OPEN, UNTESTED, Claim, judge, named
from sprii_train.reports.paper import paper_panels

LABELS = [label for label, one in TARGETS.items() if any(g.world.startswith("cophy-") for g in one.groups)]
EVERY: list[Target] = [*(TARGETS[label] for label in LABELS), *COPHY_SCENES.values()]


def ids(one: Any) -> str:
    return one.label


def test_the_labels():
    assert set(LABELS) == {
        "tab:v3-collision", "tab:balls-heldout", "tab:cophy-complete", "tab:ctp-replication-complete",
        "tab:cophy-new5-summary", "tab:cophy-new5-probes", "tab:v3-balls-histories", "tab:v3-cophy-reader",
        "tab:followup-complete-summary", "fig:v3-balls",
    }  # fmt: skip
    assert sum(len(group.recipes) for group in TARGETS["tab:cophy-complete"].groups) == 45  # the paper's cells
    assert len(MATRIX_ARMS) == 15


@pytest.mark.parametrize("one", EVERY, ids=ids)
def test_three_sources_of_every_arm(one: Target, tmp_path: Path):
    rows = planted(one, tmp_path, (0, 1, 2))
    tables = one.tables(rows)
    for table in tables:
        assert table.rows
        assert {len(row) for row in table.rows} == {len(table.columns)}, table.title
    assert any("±" in cell for table in tables for row in table.rows for cell in row)
    for verdict in judge(one.claims, rows):
        assert verdict.status in (HELD, FAILED, OPEN), verdict
    facts = one.facts(rows)
    if one.label != "tab:v3-cophy-reader":
        assert len(facts) == len({group.world for group in one.groups})
        assert all("trained: position rmse 0.250; constant: position rmse 2.000" in told for told in facts.values())
    pictures = one.pictures(rows)
    assert len({picture.name for picture in pictures}) == len(pictures)
    assert all(picture.title and picture.figure.axes for picture in pictures)


@pytest.mark.parametrize("one", EVERY, ids=ids)
def test_any_arm_alone_and_none_of_a_learner(one: Target, tmp_path: Path):
    for arm in list(dict.fromkeys(arm for group in one.groups for arm in group.recipes))[::5]:
        rows = planted(one, tmp_path, (0,), arms=[arm])
        for table in one.tables(rows):
            assert {len(row) for row in table.rows} <= {len(table.columns)}
        one.pictures(rows)
        there = {each for row in rows for each in named(row)}
        for verdict, claim in zip(judge(one.claims, rows), one.claims, strict=True):
            assert (verdict.status == UNTESTED) == (not set(claim.arms) <= there)


@pytest.mark.parametrize("one", EVERY, ids=ids)
def test_statements_name_arms_of_the_target_and_cannot_be_held_without_information(one: Target, tmp_path: Path):
    known = {f"{g.world}/{arm}" for g in one.groups for arm in g.recipes}
    assert len({claim.text for claim in one.claims}) == len(one.claims)
    rows = planted(one, tmp_path, (0, 1, 2), noise=0.0)
    for verdict, claim in zip(judge(one.claims, rows), one.claims, strict=True):
        assert set(claim.arms) <= known
        assert math.isfinite(claim.above) or math.isfinite(claim.below)
        assert isinstance(claim.null, str) or verdict.status in (FAILED, OPEN), verdict


@pytest.mark.parametrize("one", EVERY, ids=ids)
def test_intervals_are_of_the_numbers_that_statements_judge(one: Target, tmp_path: Path):
    arms = {each: row for row in planted(one, tmp_path, (0,)) for each, row in named(row).items()}
    for claim in one.claims:
        if (found := claim.interval and claim.interval(arms)) is not None:
            assert found.estimate == pytest.approx(claim.measure(arms), rel=1e-6)
            assert found.unit == "recipient"


def matrix(world: str, arm: str, seed: int) -> float:
    """The paper's errors."""
    _, family, which = arm.split("-")
    scene = world.removeprefix("cophy-")
    found = {
        **{("collision", f): e for f, e in PAPER_COLLISION.items()},
        **PAPER_MATRIX,
    }[scene, family]  # fmt: skip
    value = dict(zip(ARMS, found, strict=True))[which]
    assert value is not None
    return value


def test_the_papers_errors_hold_its_statements(tmp_path: Path):
    """Of the matrix, each with a control that it beats or not; and their reverse fails all of them."""
    one = TARGETS["tab:cophy-complete"]
    rows = planted(one, tmp_path, (0,), error=matrix, noise=1e-4)
    assert {v.status for v in judge(one.claims, rows)} == {HELD}
    reverse = planted(one, tmp_path, (0,), error=lambda *key: 1.0 / matrix(*key), noise=1e-4)
    assert {v.status for v in judge(one.claims, reverse)} == {FAILED}


# Numbers that statements quote are the paper's


def numbers(label: str, panel: int = 0) -> dict[str, list[str]]:
    return {head: cells for head, *cells in paper_panels(label)[panel][1:]}


def plain(cell: str) -> float:
    return float(cell.partition(" ")[0].strip("%+"))


def quotes(claims: Sequence[Claim]) -> list[float]:
    return [claim.paper for claim in claims if isinstance(claim.paper, float)]


def test_quotes_of_errors():
    order = ("native", "structure", "random", "sprii")
    for family, label in (("cpc", "CPC"), ("rssm", "RSSM"), ("j2", "JEPA")):
        told = dict(zip(order, map(plain, numbers("tab:v3-collision")[label][:4]), strict=True))
        assert dict(zip(ARMS, PAPER_COLLISION[family], strict=True)) == told
    balls = numbers("tab:balls-heldout")
    assert [plain(balls[head][0]) for head in ("Native", "Structure", "SPRII (Cross)", "Random")] == list(PAPER_BALLS)
    told = numbers("tab:cophy-complete")
    for (scene, family), found in PAPER_MATRIX.items():
        cells = told[f"{SCENES[scene]}, {FAMILIES[family]}"]
        assert [None if cell == "--" else plain(cell) for cell in cells] == list(found)
    assert len(COLLISION_CLAIMS) == 12
    assert len(BALLS_CLAIMS) == 4
    assert len(MATRIX_CLAIMS) == 9 * 3 + 3 * 2
    for claim in (*COLLISION_CLAIMS, *BALLS_CLAIMS, *MATRIX_CLAIMS):
        if claim.paper is not None:
            assert isinstance(claim.paper, float)
            assert claim.above < claim.paper < claim.below, claim.text


def test_quotes_of_balls():
    told = numbers("tab:cophy-new5-summary", 1)
    assert {
        key: plain(told[f"{FAMILIES[key[0]]}, {ARMS[key[1]]}"][0]) for key in PAPER_DIFFERENCES
    } == PAPER_DIFFERENCES
    arms = {**ARMS, "sprii": {"rssm": "SPRII (C)", "net": "SPRII (A+C)"}}
    told = numbers("tab:cophy-new5-summary")
    for (family, arm), found in PAPER_CONTEXTS.items():
        label = arms[arm] if isinstance(arms[arm], str) else arms[arm][family]
        assert list(map(plain, told[f"{FAMILIES[family]}, {label}"])) == list(found)
    told = numbers("tab:v3-balls-histories")
    for arm, found in PAPER_HISTORIES.items():
        assert list(map(plain, told["SPRII (Cross)" if arm == "sprii" else ARMS[arm]])) == list(found)


def test_quotes_of_sources_and_readers():
    told = numbers("tab:ctp-replication-complete")
    for (family, scene), found in PAPER.items():
        for arm, means in found.items():
            label = "Cross" if arm == "sprii" else ARMS[arm]
            cells = [None if c == "–" else plain(c) for c in told[f"{FAMILIES[family]}, {SCENES[scene]}, {label}"]]
            parts = [[c for c in cells[i : i + 3] if c is not None] for i in (0, 3, 6)]
            np.testing.assert_allclose(means, [np.mean(part) for part in parts], atol=1e-3)
    told = numbers("tab:v3-cophy-reader")
    assert {key: tuple(map(plain, told[label])) for key, label in READERS.items()} == PAPER_READERS


def test_every_control_of_a_scene_is_compared():
    for scene, one in COPHY_SCENES.items():
        (group,) = one.groups
        assert isinstance(group, Group)
        assert group.world == scene
        compared = {claim.arms for claim in one.claims if len(claim.arms) == 2}
        short = scene.removeprefix("cophy-")
        for family in ("jepa", "cpc", "rssm"):
            assert {(name(short, family, "sprii"), name(short, family, c)) for c in CONTROLS} <= compared
