"""What measures ask of a setting: they name none, and say what one lacks."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from sprii_train.cases.windows import cases_of, window_cases
from sprii_train.experiments import measures
from sprii_train.experiments.measures import MEASURES
from sprii_train.experiments.sources import Source
from sprii_train.settings import D_CLEAN, POKE, SPRING
from sprii_train.settings.spring import SPRING_CASES


@pytest.mark.parametrize("file", sorted(Path(measures.__path__[0]).glob("*.py")), ids=lambda file: file.stem)
def test_a_measure_names_no_setting(file: Path):
    source = file.read_text()
    assert "setting.name ==" not in source
    assert set(re.findall(r"sprii_train\.settings[.\w]*", source)) <= {"sprii_train.settings.base"}


@pytest.mark.parametrize(
    ("measure", "reason"),
    [
        ("components", "components needs 'components' of the setting, which d-clean has not"),
        ("direction", "direction needs 'pushed' of the setting, which d-clean has not"),
        ("evidence", "evidence needs 'evidence' of the setting, which d-clean has not"),
        ("landscape", "landscape needs 'cases.features' of the setting, which d-clean has not"),
        ("prefix", "prefix needs 'cases.prefixes' of the setting, which d-clean has not"),
        ("sealed", "sealed needs 'cases.sealed' of the setting, which d-clean has not"),
        ("value", None),
    ],
)
def test_what_a_setting_lacks(poke_source: Source, measure: str, reason: str | None):
    assert MEASURES[measure].lacking(replace(poke_source, setting=D_CLEAN)) == reason


def test_a_property_that_is_compared(poke_source: Source):
    one = replace(POKE, name="drags", properties=("drag",))
    reason = "targeted compares 'mass', which is no property of drags"
    assert MEASURES["targeted"].lacking(replace(poke_source, setting=one)) == reason
    assert MEASURES["targeted"].lacking(poke_source) is None


def test_sealed_needs_a_sealed_bank(spring_source: Source):
    assert MEASURES["sealed"].lacking(spring_source) is None
    none = replace(spring_source, setting=replace(SPRING, sealed=None))
    assert MEASURES["sealed"].lacking(none) == "sealed needs 'sealed' of the setting, which spring has not"


def test_cases_are_the_settings_own_or_windows(poke_source: Source, spring_source: Source):
    assert SPRING.cases is SPRING_CASES
    assert cases_of(spring_source).train.horizons == SPRING_CASES.horizons
    found, windows = cases_of(poke_source), window_cases(poke_source, (1, 4, 16), 16)
    assert (found.development.query == windows.development.query).all()
    assert not found.panels


def test_value_without_panels_or_groups(poke_source: Source, tmp_path: Path):
    row = MEASURES["value"](replace(poke_source, folder=tmp_path))
    assert row["full_persistent"] > 0
    assert not [key for key in row if key.startswith("cold") or key == "strata"]
