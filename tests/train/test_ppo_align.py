"""The example that trains PPO with a context from the episode before, and the block of its page."""

import csv
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ppo_align", ROOT / "examples" / "ppo_align.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_advantages_are_those_of_stable_baselines(example: ModuleType):
    buffers = pytest.importorskip("stable_baselines3.common.buffers")
    spaces = pytest.importorskip("gymnasium.spaces")
    rng, steps, n = np.random.default_rng(0), 12, 3
    reward, value = rng.normal(size=(steps, n)), rng.normal(size=(steps + 1, n))
    box = spaces.Box(-1.0, 1.0, (1,))
    buffer = buffers.RolloutBuffer(steps, box, box, "cpu", example.LAMBDA, example.GAMMA, n)
    buffer.rewards[:], buffer.values[:], buffer.episode_starts[:] = reward, value[:-1], 0.0
    buffer.compute_returns_and_advantage(torch.from_numpy(value[-1]), np.zeros(n))
    ours = example.advantages(torch.from_numpy(reward), torch.from_numpy(value))
    np.testing.assert_allclose(ours.numpy(), buffer.advantages, atol=1e-5)


@pytest.mark.parametrize("arm", ["none", "true", "untrained", "ppo", "align"])
def test_arms_differ_in_what_trains_the_encoder(example: ModuleType, arm: str, monkeypatch: pytest.MonkeyPatch):
    trainee = example.Trainee(arm, seed=0, envs=6)
    encoder = {name: each.clone() for name, each in trainee.encoder.state_dict().items()}
    actor = trainee.agent.actor[0].weight.clone()
    met, contexts, play = [], [], trainee.play

    def watched(envs, observation, context, noise=1.0):
        met.append((list(envs.system_ids), envs.rollouts.tolist()))
        contexts.append(context)
        return play(envs, observation, context, noise)

    monkeypatch.setattr(trainee, "play", watched)
    assert len(trainee.learn(2)) == 2
    (one, first), (again, second), (other, _), _ = met
    assert one == again
    assert not set(one) & set(other)
    assert (first, second) == ([0] * 6, [1] * 6)
    assert not contexts[0].any()
    assert not contexts[2].any()
    assert contexts[3].any() == (arm != "none")
    changed = any(not torch.equal(encoder[name], each) for name, each in trainee.encoder.state_dict().items())
    assert changed == (arm in ("ppo", "align"))
    assert not torch.equal(actor, trainee.agent.actor[0].weight)


def test_true_contexts_span_the_range(example: ModuleType):
    trainee = example.Trainee("true", seed=0, envs=2)
    told = trainee.context(torch.zeros(2, 5, 7), np.array([example.LOW, example.HIGH]))
    np.testing.assert_allclose(told[:, :2], [[-1, -1], [1, 1]], atol=1e-6)
    assert told.shape == (2, example.CODE + 1)
    assert (told[:, -1] == 1).all()


def test_wrong_donors_change_returns_where_there_is_a_context(example: ModuleType):
    found = example.systems(6, 7)
    assert not set(found.ids) & set(example.systems(6, 8).ids)
    own, wrong = example.Trainee("none", seed=0, envs=2).evaluate(found)
    np.testing.assert_array_equal(own, wrong)  # also: both play from the same starts
    own, wrong = example.Trainee("untrained", seed=0, envs=2).evaluate(found)
    assert (own != wrong).all()


def test_the_command_writes_what_it_prints(
    example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    sizes = ["--seeds", "2", "--iterations", "1", "--envs", "4", "--systems", "4"]
    monkeypatch.setattr(sys, "argv", ["ppo_align", "--arms", "none", "align", *sizes, "--out", str(tmp_path)])
    example.main()
    with open(tmp_path / "ppo_align.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * 4 * len(example.GROUPS)
    kept = [float(row["wrong donor"]) for row in rows if (row["arm"], row["group"]) == ("align", "new")]
    found = re.search(r"new \| align, wrong donor +\| +(-[\d.]+) \[", capsys.readouterr().out)
    assert found is not None
    assert float(found[1]) == pytest.approx(np.mean(kept), abs=0.06)
    assert (tmp_path / "ppo_align.png").read_bytes().startswith(b"\x89PNG")
    assert len((tmp_path / "curves.csv").read_text().splitlines()) == 5


def test_the_block_of_the_page_runs():
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "ppo_align.md").read_text(), re.DOTALL)
    told: dict = {}
    exec(block, told)
    assert told["x"].shape == (64, 3 + 8)
    assert told["losses"][-1] < told["losses"][0]
    assert not told["x"].requires_grad
