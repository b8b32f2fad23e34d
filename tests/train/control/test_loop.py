"""The online loop: pure functions of the config, exact resume, and recipes that differ in nothing but the relation."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sprii_envs.envs.pendulum import GROUPS
from sprii_train.checkpoints import CheckpointError
from sprii_train.control.controllers import CEM
from sprii_train.control.draws import COLLECTION, EVALUATION, draw
from sprii_train.control.experience import Experience
from sprii_train.control.loop import ControlRun, collect, train_control
from sprii_train.control.training import ControlTraining
from sprii_train.learners.cadm import CaDM, CaDMConfig
from sprii_train.protocol import Objective
from sprii_train.recipes import CONTROL_RECIPES, RECIPES, Recipe

TINY = ControlRun(
    steps=3,
    episodes=2,
    controller=CEM(candidates=4, elites=2, iterations=1, horizon=3),
    training=ControlTraining(epochs=1),
    seed=3,
)
CONFIG = CaDMConfig(encoder=(8,), dynamics=(8,), encoder_decay=(0.0, 0.0), dynamics_decay=(0.0, 0.0))
ONE = replace(TINY, steps=1)


def trained(folder: Path, run: ControlRun = TINY, arm: str = "cadm", report: Any = None) -> Any:
    """The learner, and the rows of the iterations."""
    return train_control(run, CONFIG, CONTROL_RECIPES[arm], folder, report)


def weights(learner: CaDM) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in learner.state_dict().items()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_draws_are_functions_of_their_key():
    one, again, other = (draw("ID", 6, (EVALUATION, seed)) for seed in (4, 4, 5))
    assert one.digest() == again.digest() != other.digest()
    assert (one.states == again.states).all()
    levels = {value / 100 for value in range(75, 130, 5)}
    assert set(one.values.ravel().tolist()) <= levels
    assert len({tuple(v) for v in draw("ID", 40, (COLLECTION,)).values.tolist()}) > 20
    assert (np.abs(one.states[:, 0] - np.pi) <= np.pi / 8).all()
    assert len(set(one.states[:, 0].tolist())) == 6


def test_cloned_episodes_are_of_one_system_and_start():
    drawn = draw("OOD_c3", 5, (COLLECTION, 0, 0), cloned=True)
    assert len(set(drawn.ids.tolist())) == 1
    assert (drawn.states == drawn.states[0]).all()


def test_unknown_group():
    with pytest.raises(ValueError, match="OOD_c9"):
        draw("OOD_c9", 1, (0,))
    assert list(GROUPS) == ["ID", "OOD_c0", "OOD_c1", "OOD_c2", "OOD_c3"]


def test_a_stopped_run_resumes_bit_for_bit(tmp_path: Path):
    whole, rows = trained(tmp_path / "whole")
    assert [row["episodes"] for row in rows] == [2, 4, 6]

    class Stop(Exception): ...

    def stop(iteration: int, _: dict[str, float]) -> None:
        if iteration == 2:
            raise Stop

    with pytest.raises(Stop):
        trained(tmp_path / "stopped", report=stop)
    resumed, resumed_rows = trained(tmp_path / "stopped")
    assert same(weights(whole), weights(resumed))
    assert [row["experience"] for row in rows] == [row["experience"] for row in resumed_rows]
    assert [p.name for p in (tmp_path / "stopped").glob("experience-*")] == ["experience-3"]
    assert not whole.training


def test_killed_between_experience_and_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What was collected for an iteration that has no checkpoint is collected again, the same."""
    whole, _ = trained(tmp_path / "whole")
    replace_folder = os.replace

    def killed(source, target):
        if Path(target).name == "step-00000002":
            raise KeyboardInterrupt
        replace_folder(source, target)

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "killed")
    monkeypatch.undo()
    assert {path.name for path in (tmp_path / "killed").glob("experience-*")} == {"experience-1", "experience-2"}
    resumed, rows = trained(tmp_path / "killed")
    assert len(rows) == 3
    assert same(weights(whole), weights(resumed))


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("how", ["SIGKILL", "SIGTERM"])
def test_a_killed_process_loses_one_iteration_at_most(how: str, tmp_path: Path):
    """A process that trains is killed after its second iteration; the run goes on, to the bits of one in one go."""
    run = replace(TINY, steps=8)
    code = f"""
import sys
from pathlib import Path
from sprii_train.control.controllers import CEM
from sprii_train.control.loop import ControlRun, train_control
from sprii_train.control.training import ControlTraining
from sprii_train.learners import CaDMConfig
from sprii_train.recipes import CONTROL_RECIPES

run, config = {run!r}, {CONFIG!r}
train_control(run, config, CONTROL_RECIPES["r7"], Path(sys.argv[1]), lambda i, _: print(i, flush=True))
"""
    killed = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "killed")], stdout=subprocess.PIPE)
    assert killed.stdout is not None
    told = [int(killed.stdout.readline()) for _ in range(2)]
    killed.send_signal(getattr(signal, how))
    told += map(int, killed.communicate()[0].split())
    assert killed.returncode == -getattr(signal, how)
    assert told == list(range(1, len(told) + 1))
    assert 2 <= len(told) < 8
    again: list[int] = []
    resumed, _ = trained(tmp_path / "killed", run, "r7", report=lambda iteration, _: again.append(iteration))
    # what was told of had been kept; one more may have been kept and not yet told of
    assert again in [list(range(first, 9)) for first in (len(told) + 1, len(told) + 2)]
    assert same(weights(trained(tmp_path / "whole", run, "r7")[0]), weights(resumed))


def test_another_run_s_folder_is_refused(tmp_path: Path):
    trained(tmp_path, ONE)
    for run, config, arm in (
        (ONE, CONFIG, "r7"),
        (replace(ONE, episodes=3), CONFIG, "cadm"),
        (replace(ONE, seed=4), CONFIG, "cadm"),
        (ONE, replace(CONFIG, backward_weight=0.25), "cadm"),
        (TINY, CONFIG, "cadm"),
    ):
        with pytest.raises(CheckpointError):
            train_control(run, config, CONTROL_RECIPES[arm], tmp_path)


@pytest.mark.parametrize("held", ["{}", '{"iterations": []}', '{"iterations": [1, 2, 3]}'])
def test_lost_rows_are_named(tmp_path: Path, held: str):
    trained(tmp_path)
    (tmp_path / "iterations.json").write_text(held)
    with pytest.raises(CheckpointError, match=r"iterations.json is damaged: it lacks the rows"):
        trained(tmp_path)


def test_first_data_are_the_same_for_every_recipe_and_the_weights_too_while_no_system_repeats(tmp_path: Path):
    runs = {name: trained(tmp_path / name, ONE, name) for name in CONTROL_RECIPES}
    assert len({rows[0]["experience"] for _, rows in runs.values()}) == 1
    assert {rows[0]["eligible_systems"] for _, rows in runs.values()} == {0}
    assert all(same(weights(runs["cadm"][0]), weights(learner)) for learner, _ in runs.values())


def test_collected_episodes_are_those_of_the_environment(tmp_path: Path):
    """Observations follow from actions, start and system through the environment itself."""
    import gymnasium as gym

    store = Experience(3, 1, ("mass", "length"))
    learner = CaDM(CONFIG, seed=0)
    mean = collect(TINY, learner, store, 1)
    total = 0.0
    for episode in range(2):
        env = gym.make("sprii/Pendulum-v0").unwrapped
        drawn = draw("ID", 2, (COLLECTION, 3, 1))
        system = dict(zip(("mass", "length"), drawn.values[episode].tolist(), strict=True))
        observation, _ = env.reset(options={"system": system, "state": drawn.states[episode]})
        seen, actions = store.windows(np.array([episode]), np.array([0]), 201)
        np.testing.assert_allclose(seen[0, 0], observation, atol=1e-6)
        for t in range(200):
            observation, reward, *_ = env.step(actions[0, t])
            total += float(reward)
            np.testing.assert_allclose(seen[0, t + 1], observation, atol=1e-5)
    assert mean == pytest.approx(total / 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"steps": 0}, ">= 1"), ({"episodes": 1.5}, ">= 1"), ({"seed": -1}, "seed is -1; legal: an integer >= 0")],
)
def test_illegal_runs(changes: dict, message: str):
    with pytest.raises(ValueError, match=message):
        replace(TINY, **changes)


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (RECIPES["cross"], "the arm 'cross' has Cross or InfoNCE; legal in control: Align alone"),
        (Recipe("n", "N", Objective(lambda_nce=1.0)), "the arm 'n' has Cross or InfoNCE"),
        (RECIPES["align-random"], r"'align-random' has .* the kernel Derangement\(.*; legal in control: .* 'shifted'"),
        (RECIPES["same-rollout"], "the relation same rollout"),
        (RECIPES["native"], "the context 'monolithic'"),
    ],
)
def test_recipes_that_control_does_not_take(recipe: Recipe, message: str, tmp_path: Path):
    with pytest.raises(ValueError, match=message):
        train_control(TINY, CONFIG, recipe, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_law_tells_runs_apart():
    base = TINY.law()
    assert replace(TINY, device="cuda").law() == base  # where, not what
    for change in (
        {"cloned": True},
        {"episodes": 3},
        {"controller": replace(TINY.controller, horizon=4)},
        {"training": replace(TINY.training, epochs=3)},
        {"seed": 4},
    ):
        assert replace(TINY, **change).law() != base, change
