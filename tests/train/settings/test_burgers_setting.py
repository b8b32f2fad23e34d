"""Burgers: the paper's budget, its rates, the two stages of a source, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sprii_envs.banks import Store
from sprii_envs.fields.bank import BurgersProtocol
from sprii_train.checkpoints import read_tensors
from sprii_train.experiments.sources import SourceCell
from sprii_train.fields.errors import conditioned_error
from sprii_train.fit import TrainConfig, learning_rate, what_matters
from sprii_train.learners import NOD, NODConfig
from sprii_train.recipes import FIELD_RECIPES
from sprii_train.settings import BURGERS
from sprii_train.settings.burgers import FieldTraining
from sprii_train.settings.solved import Solved

SMOKE, PAPER = BURGERS.budget("smoke"), BURGERS.budget("paper")


def test_the_papers_budget():
    train = PAPER.train
    assert (train.steps, 2 * train.pairs, train.epoch) == (200 * 45, 8, 45)
    assert (train.learning_rate, train.weight_decay, train.clip, train.precision) == (1e-4, 1e-4, 1.0, "fp32")
    assert PAPER.sources == (1234, 5678, 9012)
    assert PAPER.learner == NODConfig()
    assert BURGERS.store == Solved(BurgersProtocol())
    objectives = {
        name: (recipe.objective.lambda_p, recipe.objective.lambda_x) for name, recipe in FIELD_RECIPES.items()
    }
    aligned, plain = (0.03, 0.0), (0.0, 0.0)
    assert objectives == {"nod": plain, "nod-sprii": aligned, "nod-continued": plain, "nod-random": aligned}


@pytest.mark.parametrize(("seed", "epochs"), [(1234, 25), (5678, 113), (9012, 127), (0, 113)])
def test_the_rates_of_both_stages(seed: int, epochs: int):
    train = replace(PAPER.train, seed=seed)
    assert {learning_rate(train.search, step) for step in (0, 1, 8_999)} == {1e-4}
    after = train.continuation
    assert after.steps == 45 * epochs
    halved = 45 * (epochs - 25)
    assert learning_rate(after, halved) == learning_rate(after, after.steps - 1) == 5e-5
    if halved:
        assert {learning_rate(after, step) for step in (0, halved - 1)} == {1e-4}


def test_rates_that_are_none_change_no_identity_and_wrong_ones_are_refused():
    assert "rates" not in what_matters(TrainConfig())
    assert what_matters(TrainConfig(rates=((0, 1e-3),)))["rates"] == ((0, 1e-3),)
    for rates, message in ((((1, 1e-3),), r"begin at \[1\]"), (((0, 1e-3), (0, 1e-4)), r"begin at \[0, 0\]"),
                           (((0, 0.0),), r"a rate of TrainConfig\.rates is 0\.0"),
                           (((0.5, 1e-3),), "a first step of TrainConfig.rates is 0.5")):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            TrainConfig(rates=rates)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"FieldTraining.continued is \(1, 2\); legal: one number for each of \(1,\)"):
        FieldTraining(continued=(1, 2), seeds=(1,))


def trained(bank: Store, arm: str, folder: Path, **changes: Any) -> NOD:
    train = replace(SMOKE.train, seed=1234, **changes)
    learner = BURGERS.train(
        bank, FIELD_RECIPES[arm], SMOKE.learner, train, folder / arm, identity={}, progress=lambda *_: None
    )
    assert isinstance(learner, NOD)
    return learner


@pytest.fixture(scope="module")
def sources(field_bank: Store, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, NOD]]:
    folder = tmp_path_factory.mktemp("sources")
    return folder, {arm: trained(field_bank, arm, folder) for arm in FIELD_RECIPES}


def test_arms_that_differ_in_the_continuation_share_the_search(sources: tuple[Path, dict[str, NOD]]):
    folder, _ = sources
    stages = {arm: BURGERS.stages(folder / arm) for arm in FIELD_RECIPES}
    assert stages["nod"]["search"] == stages["nod-continued"]["search"]
    assert len({told["search"] for told in stages.values()}) == 3
    assert [told.get("continued") for told in stages.values()] == [None, 10, 10, 10]
    assert BURGERS.seconds(folder / "nod-continued", SMOKE.train) >= BURGERS.seconds(folder / "nod", SMOKE.train) > 0


def test_the_selected_checkpoint_has_the_least_development_loss(
    sources: tuple[Path, dict[str, NOD]], field_bank: Store
):
    folder, learners = sources
    stages = BURGERS.stages(folder / "nod")
    rows = [json.loads(line) for line in (folder / stages["search"] / "development.jsonl").read_text().splitlines()]
    losses = {row["step"]: row["loss"] for row in rows}
    assert list(losses) == [10, 20]
    assert stages["step"] == min(losses, key=lambda step: losses[step])
    assert stages["development"] == min(losses.values())
    found = conditioned_error(learners["nod"], field_bank, field_bank.split("validation"))
    assert found == pytest.approx(stages["development"], rel=1e-6)


def test_a_continuation_goes_on_from_there_by_prediction_alone(sources: tuple[Path, dict[str, NOD]]):
    folder, learners = sources
    told = json.loads((folder / "nod-sprii" / "continued" / "run.json").read_text())
    assert told["objective"]["lambda_p"] == told["objective"]["lambda_x"] == 0.0
    assert told["train"]["rates"] == [[0, 5e-4]]  # the only epoch is among the last
    best = read_tensors(folder / BURGERS.stages(folder / "nod-sprii")["search"] / "best.safetensors")
    now = learners["nod-sprii"].state_dict()
    change = max(float((now[name] - best[name]).abs().max()) for name in now)
    assert 0.0 < change < 10 * 5e-4 * 1.5  # ten updates of AdamW at the rate
    data = [
        json.loads((folder / arm / "continued" / "run.json").read_text())["data"] for arm in ("nod-sprii", "nod-random")
    ]
    assert data[0] == data[1]  # every continuation sees the same batches


def test_a_source_that_was_stopped_in_either_stage_ends_in_the_same_weights(
    sources: tuple[Path, dict[str, NOD]], field_bank: Store, tmp_path: Path
):
    _, learners = sources

    class Stop(Exception):
        pass

    def stop_at(step: int) -> Any:
        def progress(done: int, _: Any) -> None:
            if done == step:
                raise Stop

        return progress

    arm, train = FIELD_RECIPES["nod-continued"], replace(SMOKE.train, seed=1234, checkpoint_every=5)
    for step in (17, 28):  # in the search, and in the continuation behind its 20
        with pytest.raises(Stop):
            BURGERS.train(
                field_bank, arm, SMOKE.learner, train, tmp_path / "a", identity={}, progress=stop_at(step)
            )  # fmt: skip
    seen: list[int] = []
    again = BURGERS.train(
        field_bank, arm, SMOKE.learner, train, tmp_path / "a", identity={}, progress=lambda done, _: seen.append(done)
    )
    cell = SourceCell(BURGERS, arm, SMOKE.learner, train, field_bank.name, field_bank.fingerprint)
    assert seen == [26, 27, 28, 29, 30]  # from the checkpoint on, up to the total of the cell
    assert cell.steps == 30
    for name, value in learners["nod-continued"].state_dict().items():
        assert torch.equal(again.state_dict()[name], value), name


def test_what_a_store_cannot_serve_is_refused_before_training(field_bank: Store, tmp_path: Path):
    BURGERS.check(field_bank, SMOKE.learner)
    BURGERS.check_learner(field_bank, FIELD_RECIPES["nod-random"], SMOKE.learner)
    with pytest.raises(ValueError, match=r"NODConfig is of trajectories \(101, 401\); legal: \(9, 17\)"):
        BURGERS.check(field_bank, NODConfig())
    with pytest.raises(ValueError, match="the search takes 5 steps; legal: an epoch at least, 10"):
        trained(field_bank, "nod", tmp_path, steps=5)
    facts = BURGERS.facts(PAPER)
    assert "continuation of 1,125, 5,085, 5,715" in facts["Budget"]
    assert "points 401" in facts["Fields"]
