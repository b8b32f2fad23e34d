"""Pairing cells: their audits are those of the sampler that a source trains with."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny_sources import silent

from sprii_envs.banks import Bank
from sprii_envs.relations import PairSampler
from sprii_train.experiments.cells import folder_of
from sprii_train.experiments.graphs import NEIGHBOURS, inferred_graph, random_graph
from sprii_train.experiments.pairings import PairingCell
from sprii_train.experiments.reproduce import Plan
from sprii_train.experiments.sources import Source
from sprii_train.experiments.targets import TARGETS, Pairings
from sprii_train.recipes import EVERY_RECIPE
from sprii_train.settings import POKE


def cell(bank: Bank, recipe: str, splits: tuple[str, ...] = ("train",), seed: int = 3, teacher=None) -> PairingCell:
    return PairingCell(POKE, EVERY_RECIPE[recipe], splits, seed, bank.name, bank.fingerprint, teacher)


@pytest.mark.parametrize("recipe", ["g2", "mismatch-drag"])
def test_the_audit_is_of_the_pairs_that_a_source_sees(
    poke_bank: Bank, poke_source: Source, tmp_path: Path, recipe: str
):
    row = cell(poke_bank, recipe).run(tmp_path, silent)
    config = poke_source.learner.config
    data = POKE.data(poke_bank, config, EVERY_RECIPE[recipe], pairs=6, seed=3)
    expected = data.pairs.audit().to_dict()
    assert row["pairs"] == {"train": expected}
    assert {k: row[k] for k in ("world", "arm", "label", "seed")} == {
        "world": "poke", "arm": recipe, "label": EVERY_RECIPE[recipe].label, "seed": 3,
    }  # fmt: skip
    json.dumps(row)
    if recipe == "mismatch-drag":
        assert expected["match_rates"]["drag"] == pytest.approx(0.5, abs=0.02)
        assert expected["match_rates"]["mass"] == expected["match_rates"]["stiffness"] == 1.0


def test_every_split_by_itself(poke_bank: Bank, tmp_path: Path):
    found = cell(poke_bank, "g3", ("train", "validation")).run(tmp_path, silent)["pairs"]
    for split, systems in (("train", 32), ("validation", 12)):
        audit, table = found[split], poke_bank.split(split)
        assert audit["episodes"] == len(table) == 4 * systems
        # The whole tuple is shared: the other three episodes of the system.
        assert audit["eligible_systems"] == audit["selected_systems"] == [1, 1]
        assert audit["supported_histories"] == audit["eligible_histories"] == [3, 3]
        assert (audit["match_rates"]["system"], audit["correct_rate"]) == (1.0, 1.0)


def test_graphs_are_those_that_sources_train_on(poke_bank: Bank, poke_source: Source, tmp_path: Path):
    root = poke_source.folder.parent
    made = cell(poke_bank, "inferred", seed=0, teacher=poke_source.cell)
    assert folder_of(poke_source.cell, root) == poke_source.folder
    found = made.run(folder_of(made, root), silent)["pairs"]["train"]
    table, arm = poke_bank.split("train"), EVERY_RECIPE["inferred"]
    graph = inferred_graph(POKE, poke_bank, poke_source.learner)
    expected = PairSampler(table, arm.relation, graph, seed=0, distinct="system").audit()
    assert found == expected.to_dict()
    assert found["draws"] == 0
    assert found["supported_histories"] == [NEIGHBOURS, NEIGHBOURS]

    found = cell(poke_bank, "random-history").run(tmp_path, silent)["pairs"]["train"]
    expected = PairSampler(table, arm.relation, random_graph(table, 3), seed=3, distinct="system").audit()
    assert found == expected.to_dict()
    with pytest.raises(ValueError, match="'inferred' needs a teacher"):
        cell(poke_bank, "inferred").run(tmp_path, silent)


def test_folders_are_by_what_the_pairs_depend_on(poke_bank: Bank, poke_source: Source, tmp_path: Path):
    base = cell(poke_bank, "g1")
    others = (
        base, replace(base, recipe=EVERY_RECIPE["g2"]), replace(base, splits=("validation",)), replace(base, seed=4),
        replace(base, fingerprint="0" * 64), replace(base, teacher=poke_source.cell),
    )  # fmt: skip
    assert len({folder_of(each, tmp_path) for each in others}) == len(others)
    assert (base.steps, others[-1].steps) == (0, poke_source.cell.steps)
    assert folder_of(replace(base, bank="elsewhere"), tmp_path) == folder_of(base, tmp_path)


def test_cells_of_pairings(poke_bank: Bank, tmp_path: Path):
    """A law a seed; only inferred donors have a teacher, the Structure source of that seed."""
    target = TARGETS["tab:inferred-relation-quality"]
    (group,) = target.groups
    assert isinstance(group, Pairings)
    assert group.sources(group.recipes) == ("structure",)
    assert Pairings("poke", ("g1",)).sources(("g1",)) == ()
    cells = group.cells(Plan(target, "quick", tmp_path, seeds=(0, 1)).scope(group, poke_bank))
    assert all(isinstance(each, PairingCell) for each in cells)
    found = [(c.recipe.name, c.seed, None if c.teacher is None else (c.teacher.recipe.name, c.teacher.train.seed))
             for c in cells if isinstance(c, PairingCell)]  # fmt: skip
    assert found == [
        ("g3", 0, None), ("inferred", 0, ("structure", 0)), ("random-history", 0, None),
        ("g3", 1, None), ("inferred", 1, ("structure", 1)), ("random-history", 1, None),
    ]  # fmt: skip
    assert not np.any([len(list(tmp_path.iterdir()))])
