"""The schedule against torch's scheduler, Align's weight, and training resumed or switched off to the bit."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from field_banks import LEARNER, store_of

from sprii_train.fhn.schedule import Stages
from sprii_train.fhn.windows import PairedChains
from sprii_train.fit import fit, train_step
from sprii_train.learners.nod_hier import NODHier
from sprii_train.protocol import Objective
from sprii_train.recipes import FHN_RECIPES
from sprii_train.settings import FHN

SHORT = Stages(steps=50, pairs=3, log_every=1, checkpoint_every=5)


def test_rates_are_those_of_a_stair_scheduler_that_is_reset_once():
    parameter = torch.nn.Parameter(torch.zeros(400))
    own = Stages().optimizer(torch.nn.ParameterList([parameter]))
    assert isinstance(own, torch.optim.RMSprop)
    assert own.defaults["lr"] == pytest.approx(0.5 / 20.0)
    optimizer = torch.optim.RMSprop([parameter], lr=0.5 / 20.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 500, 0.95)
    stages = Stages().run(aligned=True)
    for step in range(50_000):
        if step == 40_000:
            optimizer.param_groups[0]["lr"] = 1e-5
        if step % 250 == 0 or step % 500 == 499:
            assert stages.rate(step, own.defaults["lr"]) == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-9)
        optimizer.step()
        scheduler.step()


def test_the_stages_are_the_papers_and_shrink_with_fewer_updates():
    assert Stages().ends(True) == (10_000, 30_000, 40_000, 50_000)
    assert Stages().ends(False) == (20_000, 30_000, 40_000, 45_000)
    assert Stages().run(False).steps == 45_000
    totals = {arm: FHN.updates(recipe, Stages()) for arm, recipe in FHN_RECIPES.items()}  # of a progress bar
    assert totals == {"fhn-nod": 45_000, "fhn-sprii": 50_000, "fhn-random": 50_000}
    short = Stages(steps=1_000)
    assert (short.ends(True), short.ends(False)) == ((200, 600, 800, 1_000), (400, 600, 800, 900))
    for aligned in (True, False):
        run = short.run(aligned)
        assert run.steps == run.ends(aligned)[-1] == short.ends(aligned)[-1]
        assert [run.rate(10 * i, 1.0) for i in (0, 1, 79)] == pytest.approx([1.0, 0.95, 0.95**79])
        assert run.rate(800, 1.0) == 1e-5
    with pytest.raises(ValueError, match=r"Stages\.share is 0"):
        Stages(share=0)


def test_the_weight_of_align_rises_and_ends():
    told, stages = FHN_RECIPES["fhn-sprii"].objective, Stages().run(True)
    weights = [stages.objective(told, step).lambda_p for step in (0, 999, 1_999, 2_000, 9_999, 10_000, 49_999)]
    assert weights == pytest.approx([0.01 / 2_000, 0.005, 0.01, 0.01, 0.01, 0.0, 0.0])
    plain = FHN_RECIPES["fhn-nod"].objective
    assert all(stages.objective(plain, step) == plain for step in (0, 5_000, 20_000))


def learner() -> Any:
    torch.manual_seed(0)
    return NODHier(LEARNER)


def updated(objective: Objective, step: int) -> dict[str, torch.Tensor]:
    """Weights after one update at a step of the run."""
    own, store, config = learner(), store_of(), SHORT.run(True)
    data: Any = PairedChains(store, store.split("train"), pairs=3, stages=config.ends(True))
    train_step(own, data(step), objective, config.optimizer(own), config, step, "fp32")
    return own.state_dict()


def test_without_its_weight_align_leaves_prediction_alone_to_the_bit():
    plain, aligned = (FHN_RECIPES[arm].objective for arm in ("fhn-nod", "fhn-sprii"))
    for step in (10, 30, 49):  # of 50, 10 of which are aligned
        a, b = updated(plain, step), updated(aligned, step)
        assert all(torch.equal(a[name], b[name]) for name in a)
    a, b = updated(plain, 9), updated(aligned, 9)
    assert not all(torch.equal(a[name], b[name]) for name in a)
    a, b = updated(plain, 9), updated(replace(aligned, lambda_p=0.0), 9)
    assert all(torch.equal(a[name], b[name]) for name in a)


class Killed(RuntimeError):
    pass


@pytest.mark.parametrize("killed", [7, 12])  # with Align, and in the stage after it
def test_a_run_that_was_killed_ends_in_the_same_bits(tmp_path: Path, killed: int):
    store, config = store_of(), SHORT.run(True)

    def run(folder: Path, stop: int | None = None) -> dict[str, torch.Tensor]:
        def progress(step: int, _values: dict[str, float]) -> None:
            if step == stop:
                raise Killed

        data: Any = PairedChains(store, store.split("train"), pairs=3, stages=config.ends(True))
        own = learner()
        objective = FHN_RECIPES["fhn-sprii"].objective
        return fit(own, data, objective, config, folder, progress=progress, tensorboard=False).state_dict()

    whole = run(tmp_path / "whole")
    with pytest.raises(Killed):
        run(tmp_path / "killed", killed)
    again = run(tmp_path / "killed")
    assert all(torch.equal(whole[name], again[name]) for name in whole)
