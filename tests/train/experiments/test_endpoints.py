"""Endpoints: arms whose learner another arm's training has kept on its way; the training is made once."""

import json
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tiny_sources import TRAIN, silent
from tiny_worlds import D_CLEAN_SMALL

from sprii_envs.banks import Bank, build
from sprii_train.experiments.cells import folder_of
from sprii_train.experiments.groups import Group, Scope
from sprii_train.experiments.sources import SourceCell, train_source
from sprii_train.fit import TrainConfig, endpoint_folder, fit, what_matters
from sprii_train.learners import DALIConfig
from sprii_train.protocol import Objective
from sprii_train.recipes import EVERY_RECIPE, Endpoint
from sprii_train.settings import named_setting
from sprii_train.settings.base import Budget, Other

SETTING = named_setting("d-clean")
DALI = DALIConfig(width=8, forward_width=8)
ARMS = ("dali", "dali-quarter", "dali-half")


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    return build(D_CLEAN_SMALL, tmp_path_factory.mktemp("banks") / "clean")


def scope_of(bank: Bank, endpoints: tuple[float, ...] = (0.25, 0.5)) -> Scope:
    train = replace(TRAIN, steps=8, rates=((0, 1e-3),), log_every=3, endpoints=endpoints)
    budget: Budget = replace(SETTING.budget("smoke"), others={"dali": Other(DALI, train)})
    return Scope(SETTING, budget, ARMS, bank)


def cells_of(bank: Bank) -> dict[str, SourceCell]:
    return {cell.recipe.name: cell for cell in Group("d-clean", ARMS, ("formation",)).cells(scope_of(bank))}  # type: ignore[attr-defined]


def test_an_endpoint_is_a_run_of_so_many_steps(clean: Bank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    cells, trained = cells_of(clean), []
    clock = SimpleNamespace(perf_counter=count().__next__)  # a second from row to row of the metrics
    monkeypatch.setattr("sprii_train.records.time", clock)
    monkeypatch.setattr("sprii_train.settings.base.fit", lambda *a, **k: trained.append(a[3].steps) or fit(*a, **k))
    sources = {name: train_source(cell, folder_of(cell, tmp_path), silent) for name, cell in reversed(cells.items())}
    assert trained == [8]
    assert [cells[name].train.steps for name in ARMS] == [8, 2, 4]
    seconds = {name: SETTING.seconds(source.folder, cells[name].train) for name, source in sources.items()}
    assert seconds == {"dali": 5.0, "dali-quarter": 1.0, "dali-half": 3.0}  # rows after 2, 3, 4, 6 and 8 steps
    weights = {}
    for name, source in sources.items():
        short = replace(cells["dali"].train, steps=cells[name].train.steps, endpoints=())
        torch.manual_seed(0)
        learner = SETTING.fresh(clean, DALI)
        data = SETTING.data(clean, DALI, EVERY_RECIPE["dali"], pairs=6, seed=0)
        fit(learner, data, Objective(), short, tmp_path / name)
        weights[name] = learner.get_parameter("dynamics.0.weight")
        for a, b in zip(learner.state_dict().values(), source.learner.state_dict().values(), strict=True):
            assert torch.equal(a, b)
    assert not torch.equal(weights["dali-quarter"], weights["dali-half"])


def test_the_training_of_an_endpoint_is_part_of_what_it_is(clean: Bank):
    cells = cells_of(clean)
    half, whole = cells["dali-half"], cells["dali"]
    assert half.teacher == replace(whole, measure=None)
    other = replace(half, teacher=replace(whole, train=replace(whole.train, seed=1), measure=None))
    assert half.identity() != other.identity()
    assert Group("d-clean", ARMS).sources(ARMS) == ("dali",)
    assert Group("d-clean", ARMS).sources(("dali-half", "structure")) == ("dali", "structure")


def test_a_run_that_was_stopped_keeps_its_endpoints(clean: Bank, tmp_path: Path):
    config = replace(cells_of(clean)["dali"].train, checkpoint_every=1)
    data = SETTING.data(clean, DALI, EVERY_RECIPE["dali"], pairs=6, seed=0)

    def run(folder: Path, stop: int | None = None) -> None:
        def progress(step: int, values: dict[str, float]) -> None:
            if step == stop:
                raise KeyboardInterrupt

        torch.manual_seed(0)
        fit(SETTING.fresh(clean, DALI), data, Objective(), config, folder, progress=progress)

    run(tmp_path / "whole")
    for stop in (2, 3):
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "cut", stop)
    run(tmp_path / "cut")
    for step in (2, 4):
        kept = [endpoint_folder(tmp_path / name, step) / "model.safetensors" for name in ("whole", "cut")]
        assert kept[0].read_bytes() == kept[1].read_bytes()
    assert json.loads((tmp_path / "cut" / "run.json").read_text())["train"]["endpoints"] == [0.25, 0.5]


def test_refused(clean: Bank):
    with pytest.raises(ValueError, match=r"the arm 'dali-half' has the share 0\.5; legal: \(0\.25,\)"):
        scope_of(clean, (0.25,)).source(0, "dali-half")
    with pytest.raises(ValueError, match=r"TrainConfig\.endpoints are \(1\.0,\); legal: shares between 0 and 1"):
        TrainConfig(endpoints=(1.0,))
    with pytest.raises(ValueError, match=r"\(0\.25, 0\.5\) of 2 steps are after 1, 1; legal: distinct steps before"):
        TrainConfig(steps=2, endpoints=(0.25, 0.5))
    with pytest.raises(ValueError, match=r"\(0\.9,\) of 3 steps are after 3; legal: distinct steps before the last"):
        TrainConfig(steps=3, endpoints=(0.9,))
    with pytest.raises(ValueError, match=r"Endpoint\.of is ''"):
        Endpoint("a", "A", Objective(), learner="dali")
    lonely = replace(cells_of(clean)["dali-half"], teacher=None)
    with pytest.raises(ValueError, match="the recipe 'dali-half' needs a teacher"):
        train_source(lonely, Path("nowhere"), silent)
    assert "endpoints" not in what_matters(TrainConfig())
