"""What words of reports mean: every arm, every heading of the paper's tables and of the kept reports."""

import json
from pathlib import Path

import pytest

from sprii_train.experiments.targets import ALIASES, COPHY_SCENES, TARGETS
from sprii_train.experiments.targets.setting import setting_target
from sprii_train.recipes import EVERY_RECIPE
from sprii_train.reports.glossary import (
    ARMS,
    COLUMNS,
    OWN,
    PATTERNS,
    REFERENCES,
    VERDICTS,
    arm_of,
    arms_in,
    label_of,
    meanings_of,
    references_in,
    without_meaning,
    words_of,
)
from sprii_train.reports.page import Table, headed, paper_table_of
from sprii_train.reports.paper import paper_panels
from sprii_train.settings import SETTINGS

RESULTS = sorted((Path(__file__).parents[3] / "docs" / "results").rglob("results.json"))


@pytest.mark.parametrize("name", EVERY_RECIPE)
def test_every_arm_says_what_it_is(name: str):
    assert arm_of(EVERY_RECIPE[name].label) is not None


@pytest.mark.parametrize("label", TARGETS)
def test_every_column_of_the_papers_tables_has_a_meaning(label: str):
    try:
        panels = paper_panels(label)
    except ValueError:  # a figure, whose numbers are not kept
        return
    for panel in panels:
        assert not without_meaning(headed(paper_table_of("", panel)).columns, label)


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.parent.name)
def test_every_column_of_a_kept_report_has_a_meaning(path: Path):
    told = json.loads(path.read_text(encoding="utf-8"))
    assert told["tables"]
    for each in told["tables"]:
        table = Table(each["title"], each["columns"], each["rows"], each["note"], frozenset(each["paper"]))
        columns = headed(table).columns
        assert not without_meaning(columns, told["table"]), table.title
        assert meanings_of(columns, told["table"])


def test_the_reports_of_settings_are_checked_too():
    """Planted rows of `setting:NAME`, whose headings follow the names of a setting's properties."""
    own = setting_target(SETTINGS["d-clean"])
    split = {"ratio": 1.0, "rho_gamma": 0.5, "intervals": {}, "self_h16": 0.1, "correct_h16": 0.1, "shuffled_h16": 0.2}
    split |= {
        f"{level}_{kind}_gamma": 0.5
        for level, kind in (("centroid", "ridge"), ("centroid", "mlp"), ("window", "ridge"))
    }
    rows = [{"world": "d-clean", "arm": "align", "label": "Align", "seed": 0, "arrays": {}, "validation": split}]
    tables = own.tables(rows)
    assert len(tables) == 3
    for table in tables:
        assert not without_meaning(table.columns, own.label), table.columns


def test_headings_are_read_in_parts():
    found = words_of("ρ drag, validation ↑")
    assert found is not None
    assert [word for word, _ in found] == ["ρ drag", "validation", "↑"]
    assert words_of("Weight of the moon") is None
    assert words_of("Ratio, weight of the moon") is None
    assert without_meaning(["Ratio", "Zorn", "Zorn, test"]) == ["Zorn", "Zorn, test"]
    told = meanings_of(["Arm", "Ratio, validation", "Ratio, test", "h1", "h16", "Zorn"])
    assert [words for words, _ in told] == ["Arm", "Ratio", "validation", "test", "h1, h16"]


def test_a_word_may_mean_something_of_its_own_in_a_table():
    general, own = (meanings_of(["Gain"], label)[0][1] for label in ("", "tab:v3-swimmer"))
    assert general != own
    assert "update" in own
    assert label_of("tab:v3-swimmer: Errors", "fig:x") == "tab:v3-swimmer"
    assert label_of("R_H: same hardness", "fig:x") == "fig:x"
    assert set(OWN) <= {*TARGETS, *ALIASES, *(one.label for one in COPHY_SCENES.values())}


def test_the_arms_and_references_of_tables():
    table = Table(
        "T", ["Learner", "Native", "SPRII"], [["CPC, Align", "1", "2"], ["untrained", "3", "4"], ["G₁", "5", "6"]]
    )
    assert [words for words, _ in arms_in([table])] == ["Native", "SPRII", "CPC", "Align", "G₁"]
    assert references_in([table]) == [("untrained", REFERENCES["untrained"])]
    assert arms_in([]) == references_in([]) == []


def test_every_entry_is_a_sentence_and_no_pattern_hides_another():
    entries = [*ARMS.items(), *REFERENCES.items(), *COLUMNS.items(), *PATTERNS, *VERDICTS]
    for word, meaning in entries:
        assert meaning[:1].isupper() or meaning[:1].isdigit() or meaning.startswith("ρ"), word
        assert meaning.endswith("."), word
        assert "  " not in meaning, word
    folded = [word.casefold() for word in COLUMNS]
    assert len(set(folded)) == len(folded)
    patterns = [pattern for pattern, _ in PATTERNS]
    assert len(set(patterns)) == len(patterns)
