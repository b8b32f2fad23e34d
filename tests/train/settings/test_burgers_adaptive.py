"""Burgers with codes: the paper's budget, the stages that arms share, resumption, the decoder, and what is measured."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sprii_envs.banks import Store
from sprii_envs.fields.bank import BurgersProtocol
from sprii_train.checkpoints import read_tensors, save
from sprii_train.experiments.costs import REFERENCE_RATE, estimate
from sprii_train.experiments.measures import MEASURES
from sprii_train.experiments.measures.adaptive import adaptive
from sprii_train.experiments.sources import Source, SourceCell
from sprii_train.experiments.targets import TARGETS
from sprii_train.fields.errors import BATCH, case_errors, codes_of
from sprii_train.fields.windows import following, read_fields
from sprii_train.fit import learning_rate
from sprii_train.learners import GEPS, AmortisedCoDA, AmortisedCoDAConfig, CoDA, CoDAConfig, GEPSConfig
from sprii_train.recipes import ADAPTED_RECIPES
from sprii_train.settings import BURGERS_ADAPTIVE as SETTING
from sprii_train.settings.burgers_adaptive import AdaptiveTraining, teacher_codes
from sprii_train.settings.solved import Solved

SMOKE, PAPER = SETTING.budget("smoke"), SETTING.budget("paper")
HOSTED = ("coda-plain", "coda-cross", "coda-random", "coda-duplicate")


def test_the_papers_budget():
    train, learner = PAPER.train, PAPER.learner
    assert (train.decoder_steps, train.decoder_rate, train.geps_steps, train.geps_rate) == (5_000, 1e-3, 5_000, 1e-2)
    assert (train.geps_pairs, train.teacher_steps, train.teacher_rate) == (4, 500, 3e-4)
    assert (train.steps, train.learning_rate, train.weight_decay, train.clip) == (1_000, 1e-4, 0.0, 1.0)
    spent = train.stage(5_000, 9, 1e-3)
    assert {learning_rate(spent, step) for step in (0, 4_999)} == {1e-3}
    assert PAPER.sources == (1234, 5678, 9012)
    assert SETTING.store == Solved(BurgersProtocol())
    configs = {arm: SETTING.learner_config(learner, recipe) for arm, recipe in ADAPTED_RECIPES.items()}
    assert configs["coda"] == CoDAConfig() == learner.coda
    assert configs["geps"] == GEPSConfig()
    assert all(configs[arm] == AmortisedCoDAConfig() for arm in HOSTED)
    weights = {arm: (r.objective.lambda_p, r.objective.lambda_x) for arm, r in ADAPTED_RECIPES.items()}
    assert weights == {a: (0.0, float(a in HOSTED[1:])) for a in ADAPTED_RECIPES}
    assert "CoDA 5,000 updates of 9 trajectories" in SETTING.facts(PAPER)["Budget"]
    with pytest.raises(ValueError, match=r"AdaptiveTraining.decoder_steps is 0"):
        AdaptiveTraining(decoder_steps=0)


def trained(bank: Store, arm: str, folder: Path, progress: Any = lambda *_: None) -> Any:
    recipe = ADAPTED_RECIPES[arm]
    config = SETTING.learner_config(SMOKE.learner, recipe)
    train = replace(SMOKE.train, seed=1234)
    return SETTING.train(bank, recipe, config, train, folder / arm, identity={}, progress=progress)


@pytest.fixture(scope="module")
def sources(field_bank: Store, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("adaptive")
    return folder, {arm: trained(field_bank, arm, folder) for arm in ADAPTED_RECIPES}


def test_arms_share_decoder_teacher_first_weights_and_histories(
    sources: tuple[Path, dict[str, Any]], field_bank: Store
):
    folder, learners = sources
    assert [type(learner) for learner in learners.values()] == [GEPS, CoDA, *[AmortisedCoDA] * 4]
    told = {arm: SETTING.stages(folder / arm) for arm in ADAPTED_RECIPES}
    assert len({told[arm]["histories"] for arm in HOSTED}) == 1
    assert len({told[arm]["decoder"] for arm in ("coda", *HOSTED)}) == 1
    runs = {arm: json.loads((folder / arm / "fit" / "run.json").read_text()) for arm in HOSTED}
    assert len({run["learner"]["weights"] for run in runs.values()}) == 1
    assert len({json.dumps(run["learner"] | {"donors": None}) for run in runs.values()}) == 1
    assert [run["data"]["donors"] for run in runs.values()] == ["matched", "matched", "random", "own"]
    shared = folder / told["coda-plain"]["shared"]
    (teacher,) = shared.glob("teacher-*.safetensors")
    kept, table = read_tensors(teacher), field_bank.split("train")
    fields, codes = teacher_codes(learners["coda"], field_bank)
    assert torch.equal(
        fields, read_fields(field_bank, table["episode"], table["episode"]).fields
    )  # training ones alone
    assert torch.equal(kept["codes"], codes)
    begun = AmortisedCoDA(SMOKE.learner)
    begun.encoder.load_state_dict({k.removeprefix("encoder|"): v for k, v in kept.items() if k != "codes"})
    for arm in HOSTED:
        for name, value in learners[arm].decoder.state_dict().items():
            assert torch.equal(value, learners["coda"].decoder.state_dict()[name])
        change = max(
            float((b - a).detach().abs().max())
            for a, b in zip(begun.encoder.parameters(), learners[arm].encoder.parameters(), strict=True)
        )
        assert 0.0 < change < SMOKE.train.steps * 1.5e-4  # four updates of Adam at the rate, from the teacher's


def test_an_arm_that_was_stopped_ends_in_the_same_weights(
    sources: tuple[Path, dict[str, Any]], field_bank: Store, tmp_path: Path
):
    class Stop(Exception):
        pass

    seen = 0

    def stop(after: int) -> Any:
        def progress(*_: Any) -> None:
            nonlocal seen
            seen += 1
            if seen == after:
                raise Stop

        return progress

    for after in (5, 4):  # in the decoder, whose checkpoint is behind by then, and in the encoder
        seen = 0
        with pytest.raises(Stop):
            trained(field_bank, "coda-cross", tmp_path, stop(after))
    again = trained(field_bank, "coda-cross", tmp_path)
    for name, value in sources[1]["coda-cross"].state_dict().items():
        assert torch.equal(again.state_dict()[name], value), name


class Cell:
    """What a measure asks of the cell of a source."""

    arrays = "adaptive.safetensors"
    train = replace(SMOKE.train, seed=1234)


def test_what_is_measured(sources: tuple[Path, dict[str, Any]], field_bank: Store):
    folder, learners = sources
    rows = {}
    for arm in ("geps", "coda", "coda-random"):
        cell: Any = Cell()
        rows[arm] = adaptive(Source(cell, SETTING, field_bank, learners[arm], folder / arm))
        kept = read_tensors(folder / arm / "adaptive.safetensors")
        for split, count in (("id_test", 18), ("viscous_ood", 25), ("inviscid_ood", 5)):
            error = kept[f"{split}|code50"]
            assert len(error) == count
            batches = [float(part.mean()) for part in error.split(BATCH)]
            assert rows[arm]["native"][split]["code50"] == pytest.approx(sum(batches) / len(batches))
    row, learner, table = rows["coda-random"], learners["coda-random"], field_bank.split("id_test")
    assert row["decoder_change"] == 0.0
    assert row["probe"]["oracle"] == pytest.approx(1.0)
    assert row["encoder_parameters"] == sum(p.numel() for p in learner.encoder.parameters())
    own = case_errors(learner, field_bank, table, codes_of(learner, field_bank, table)[following(table)])
    kept = read_tensors(folder / "coda-random" / "adaptive.safetensors")
    assert kept["id_test|code0"].numpy() == pytest.approx(own)
    fields = read_fields(field_bank, table["episode"], table["episode"]).fields
    adapted = learner.adapt(fields, learner.encoder(fields)).numpy()[following(table)]
    assert kept["id_test|code50"].numpy() == pytest.approx(case_errors(learner, field_bank, table, adapted), rel=1e-5)
    assert rows["coda"]["native"]["id_test"]["zero"] == pytest.approx(row["native"]["id_test"]["zero"])
    still = (fields - fields[:, :1]).square().mean((1, 2))
    assert row["native"]["id_test"]["still"] == pytest.approx(
        sum(float(p.mean()) for p in still.split(8)) / len(still.split(8)), rel=1e-5
    )


def test_a_changed_decoder_is_seen(sources: tuple[Path, dict[str, Any]], field_bank: Store, tmp_path: Path):
    folder, learners = sources
    save(learners["coda-plain"], tmp_path / "model")
    changed = AmortisedCoDA(SMOKE.learner)
    changed.load_state_dict(learners["coda-plain"].state_dict())
    changed.decoder.theta.data[3] += 0.25
    cell: Any = Cell()
    row = adaptive(Source(cell, SETTING, field_bank, changed.eval(), folder / "coda-plain"))
    assert row["decoder_change"] == pytest.approx(0.25)


def test_what_a_store_cannot_serve_is_refused_before_training(field_bank: Store):
    SETTING.check(field_bank, SMOKE.learner)
    for recipe in ADAPTED_RECIPES.values():
        SETTING.check_learner(field_bank, recipe, SMOKE.learner)
    with pytest.raises(ValueError, match=r"AmortisedCoDAConfig is of trajectories \(101, 401\); legal: \(9, 17\)"):
        SETTING.check(field_bank, AmortisedCoDAConfig())


@pytest.mark.parametrize(("arm", "stages"), [("geps", [6]), ("coda", [6]), ("coda-plain", [6, 5, 4])])
def test_progress_counts_every_stage_up_to_the_total_of_the_cell(
    arm: str, stages: list[int], field_bank: Store, tmp_path: Path
):
    """The fit to teacher codes says nothing itself, but counts; a decoder that is there already counts as done."""
    train = replace(SMOKE.train, seed=1234)
    cell = SourceCell(SETTING, ADAPTED_RECIPES[arm], SMOKE.learner, train, field_bank.name, field_bank.fingerprint)
    assert cell.steps == sum(stages)
    seen: list[int] = []
    trained(field_bank, arm, tmp_path, lambda step, _: seen.append(step))
    assert seen == [*range(1, 7), *range(sum(stages[:2]) + 1, sum(stages) + 1)][: len(seen)]
    assert seen[-1] == cell.steps
    if arm == "coda-plain":
        seen.clear()
        trained(field_bank, "coda-cross", tmp_path, lambda step, _: seen.append(step))
        assert seen == [12, 13, 14, 15]


def test_an_estimate_counts_the_updates_of_every_stage():
    found = estimate(TARGETS["tab:burgers-adaptation-cost"], "quick", REFERENCE_RATE)
    spent, measure = SETTING.budget("quick"), MEASURES["adaptive"]
    assert spent.step_seconds is not None
    assert found == pytest.approx(3 * ((1_500 + 1_500) * spent.step_seconds + 2 * measure.seconds))
