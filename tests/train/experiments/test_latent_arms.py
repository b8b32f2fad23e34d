"""Arms of CPC, of the RSSM and of the supervised split through the measures of SpringWorld and of held-out systems."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from tiny import JEPA_CONFIG
from tiny_sources import cell_of, measuring, row_of
from tiny_worlds import SPRING_LEARNER

from sprii_envs.banks import Bank
from sprii_train.learners import CPCConfig, RegressionConfig, RSSMConfig
from sprii_train.settings import D_CLEAN, POKE, SPRING

LIKE = {"cpc": CPCConfig.like, "rssm": RSSMConfig.like}


@pytest.mark.parametrize("name", LIKE)
def test_springworlds_measures(spring_bank: Bank, tmp_path: Path, name: str) -> None:
    row = row_of(
        cell_of(spring_bank, "spring", f"spring-{name}", learner=LIKE[name](SPRING_LEARNER)),
        tmp_path, ["value", "formation"],
    )  # fmt: skip
    assert row["arm"] == f"spring-{name}"
    found = {key: value for key, value in row.items() if key.startswith("reader0_") and isinstance(value, float)}
    assert found
    assert all(map(math.isfinite, found.values()))
    assert "window_ridge_mass" in str(row)


def test_the_supervised_split_is_read_as_they_are(spring_bank: Bank, tmp_path: Path) -> None:
    cell = cell_of(spring_bank, "spring", "supervised-split", learner=RegressionConfig.like(SPRING_LEARNER))
    row = row_of(cell, tmp_path, ["value", "formation"])
    assert (row["arm"], row["label"]) == ("supervised-split", "Supervised split")
    assert math.isfinite(row["reader0_cold_persistent"])
    assert "window_ridge_mass" in str(row)


@pytest.mark.parametrize("name", LIKE)
def test_errors_of_held_out_systems(bank: Bank, tmp_path: Path, name: str) -> None:
    setting = replace(D_CLEAN, history=JEPA_CONFIG.history)
    cell = cell_of(bank, "d-clean", f"spring-{name}-align-cross", setting=setting, learner=LIKE[name](JEPA_CONFIG))
    row = measuring(cell, "held-out").run(tmp_path, lambda step, values: None)
    assert row["gap"] == row["shuffled_h3"] - row["correct_h3"]
    assert row["self_h3"] > 0
    assert row["target_variance"] > 0


@pytest.mark.parametrize("setting", [D_CLEAN, POKE, SPRING], ids=lambda one: one.name)
def test_every_budget_has_them_with_the_networks_of_its_own_learner(setting) -> None:
    for budget in setting.budgets.values():
        for name, like in LIKE.items():
            other = budget.others[name]
            assert other.learner == like(budget.learner)
            assert other.train == budget.train
