"""Windows of a ring that is written in any order: planted values tell where each came from."""

import pickle
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

pytest.importorskip("stable_baselines3")
from stable_baselines3 import SAC
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

import sprii_envs  # noqa: F401
from sprii_envs.relations import SAME_ROLLOUT, SAME_SYSTEM, Derangement, NoLegalDonorError, Relation
from sprii_envs.wrappers import ContextObservation, RepeatSystem
from sprii_train.plugins.sb3 import RelationReplayBuffer, ReplayWindows

SPACE, ACTIONS = spaces.Box(-np.inf, np.inf, (2,), np.float64), spaces.Box(-1.0, 1.0, (1,), np.float32)
SIZE, ENVS = 60, 3


class Log:
    """Writes episodes of random lengths into a buffer and remembers everything by itself."""

    def __init__(self, cut: float = 0.05, seed: int = 0, size: int = SIZE, **arguments) -> None:
        self.buffer = RelationReplayBuffer(size * ENVS, SPACE, ACTIONS, "cpu", ENVS, **arguments)
        self.rng, self.cut, self.now, self.episodes = np.random.default_rng(seed), cut, 0, 0
        self.value = 0
        self.runs: dict[int, dict] = {}  # by number of the episode, in the order that they begin
        self.live: list[int] = []
        for i in range(ENVS):
            self.live.append(self.begin(i))

    def begin(self, column: int) -> int:
        number, self.episodes = self.episodes, self.episodes + 1
        system, length = f"s{self.rng.integers(4)}", int(self.rng.integers(1, 15))
        self.value += 1
        self.runs[number] = {
            **{"system": system, "column": column, "length": length, "observations": [self.value], "actions": []},
            **{"began": None, "ended": False, "task": int(self.rng.integers(2)), "timeout": bool(self.rng.integers(2))},
        }
        return number

    def step(self) -> None:
        runs = [self.runs[number] for number in self.live]
        obs = np.array([[run["observations"][-1], run["column"]] for run in runs], float)
        after, infos, done = [], [], []
        for run in runs:
            run["began"] = self.now if run["began"] is None else run["began"]
            self.value += 1
            run["observations"].append(self.value)
            run["actions"].append(-self.value / 1e6)
            after.append([self.value, run["column"]])
            done.append(len(run["actions"]) == run["length"])
            timeout = {"TimeLimit.truncated": done[-1] and run["timeout"]}
            infos.append({"system_id": run["system"], "task": run["task"], **timeout})
        actions = np.array([[run["actions"][-1]] for run in runs], np.float32)
        reward = np.array([run["observations"][-2] for run in runs], float)
        self.buffer.add(obs, np.array(after, float), actions, reward, np.array(done), infos)
        self.now += 1
        for i, run in enumerate(runs):
            cut = self.rng.random() < self.cut  # a reset without an end, as a second `learn` does to all of them
            if done[i] or cut:
                run["ended"] = self.now if done[i] else self.now + 1  # seen with the next observation
                self.live[i] = self.begin(i)

    def usable(self, least: int) -> set[int]:
        """Ended episodes of at least `least` transitions whose every row is still in the ring."""
        return {
            number
            for number, run in self.runs.items()
            if run["ended"] and run["ended"] <= self.now and len(run["actions"]) >= least
            and run["began"] >= self.now - SIZE
        }  # fmt: skip

    def check(self, windows: ReplayWindows, steps: int) -> tuple[list[int], list[int]]:
        """Episodes and starts of windows, which must be exactly what was written."""
        numbers, starts = [], []
        for i in range(len(windows.episode)):
            first = int(windows.observations[i, 0, 0])
            (number,) = (k for k, run in self.runs.items() if first in run["observations"])
            run = self.runs[number]
            start = run["observations"].index(first)
            assert windows.observations[i, :, 0].tolist() == run["observations"][start : start + steps + 1]
            assert (windows.observations[i, :, 1] == run["column"]).all()
            assert np.allclose(windows.actions[i, :, 0], run["actions"][start : start + steps], rtol=1e-6)
            assert windows.rewards[i].tolist() == run["observations"][start : start + steps]
            want = [0.0] * steps
            if start + steps == run["length"] and not run["timeout"]:
                want[-1] = 1.0
            assert windows.dones[i].tolist() == want
            assert windows.system[i] == run["system"]
            numbers.append(number)
            starts.append(start)
        return numbers, starts


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("cut", [0.0, 0.1])
def test_windows_are_what_was_written(steps, cut):
    log = Log(cut, steps=steps, seed=1)
    wrapped = False
    for t in range(5 * SIZE):
        log.step()
        usable = log.usable(steps)
        systems = [log.runs[number]["system"] for number in usable]
        if len(systems) == len(set(systems)):
            with pytest.raises(NoLegalDonorError):
                log.buffer.sample_pairs(4)
            continue
        if t % 7:
            continue
        pairs = log.buffer.sample_pairs(16)
        recipient, _ = log.check(pairs.recipient, steps)
        donor, _ = log.check(pairs.donor, steps)
        assert set(recipient + donor) <= usable
        assert all(a != b for a, b in zip(recipient, donor, strict=True))
        assert (pairs.recipient.system == pairs.donor.system).all()
        assert (pairs.recipient.episode != pairs.donor.episode).all()
        assert pairs.correct.all()
        wrapped |= log.buffer.full
    assert wrapped


@pytest.mark.parametrize("full", [False, True])
def test_every_usable_window_is_drawn(full):
    log = Log(0.05, steps=3)
    for _ in range(3 * SIZE + 17 if full else SIZE - 10):
        log.step()
    seen: list[set[tuple[int, int]]] = [set(), set()]
    for _ in range(30):
        for side, found in zip(log.buffer.sample_pairs(128)[:2], seen, strict=True):
            found.update(zip(*log.check(side, 3), strict=True))
    usable = log.usable(3)
    systems = [log.runs[number]["system"] for number in usable]
    want = {
        (number, start)
        for number in usable
        if systems.count(log.runs[number]["system"]) > 1
        for start in range(len(log.runs[number]["actions"]) - 2)
    }
    assert len(want) > 30
    assert seen == [want, want]


def test_an_episode_longer_than_the_ring_keeps_its_end():
    log = Log(0.0, size=8, steps=2)
    log.runs = {number: run | {"length": 20, "system": "s0"} for number, run in log.runs.items()}
    for _ in range(20):
        log.step()
    starts = set()
    for _ in range(20):
        for side in log.buffer.sample_pairs(32)[:2]:
            starts.update(log.check(side, 2)[1])
    assert starts == set(range(12, 19))


def test_other_relations_and_kernels():
    log = Log(0.0, steps=2, relation=Relation(("system",), ("task",)), columns=("task",), seed=3)
    own = Log(0.0, steps=2, relation=SAME_ROLLOUT)
    wrong = Log(0.0, steps=2, kernel=Derangement(), distinct="system")
    for _ in range(2 * SIZE):
        for each in (log, own, wrong):
            each.step()
    recipient, donor = (log.check(side, 2)[0] for side in log.buffer.sample_pairs(32)[:2])
    for a, b in zip(recipient, donor, strict=True):
        assert log.runs[a]["system"] == log.runs[b]["system"]
        assert log.runs[a]["task"] != log.runs[b]["task"]
    pairs = own.buffer.sample_pairs(32)
    (recipient, late), (donor, early) = (own.check(side, 2) for side in pairs[:2])
    assert recipient == donor
    assert all(a + 3 <= b for a, b in zip(early, late, strict=True))
    pairs = wrong.buffer.sample_pairs(3)
    assert not pairs.correct.any()
    assert (pairs.recipient.system != pairs.donor.system).all()


def test_pairs_are_a_function_of_seed_and_step():
    def filled(seed):
        log = Log(0.0, steps=2, seed=5)
        log.buffer.law["seed"] = seed
        for _ in range(100):
            log.step()
        return log.buffer

    def same(a, b):
        return np.array_equal(a.recipient.observations, b.recipient.observations) and np.array_equal(
            a.donor.observations, b.donor.observations
        )

    one, two, other = filled(0), filled(0), filled(1)
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first, second = one.sample_pairs(8), one.sample_pairs(8)
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002
    two.pair_step = 1
    assert same(two.sample_pairs(8), second)
    assert not same(first, second)
    assert not same(first, other.sample_pairs(8))
    copy = pickle.loads(pickle.dumps(one))
    assert same(copy.sample_pairs(8), one.sample_pairs(8))


def make(limit: int, episodes: int = 3):
    env = gym.make("sprii/Pendulum-v0", max_episode_steps=limit)
    return RepeatSystem(ContextObservation(env, "all"), episodes)


def test_sac_runs_with_the_buffer():
    """Two environments whose episodes end at different times; the mass and length in the observation tell systems."""
    envs = DummyVecEnv([lambda: make(11), lambda: make(17)])
    model = SAC(
        *("MlpPolicy", envs),
        **{"learning_starts": 60, "batch_size": 16, "buffer_size": 200, "seed": 0, "device": "cpu"},
        policy_kwargs={"net_arch": [8]},
        replay_buffer_class=RelationReplayBuffer,
        replay_buffer_kwargs={"steps": 4, "seed": 1},
    )
    model.learn(150)
    model.learn(150)  # resets the environments halfway through an episode
    buffer = model.replay_buffer
    assert isinstance(buffer, RelationReplayBuffer)
    assert buffer.full
    assert len(buffer.sample(16).observations) == 16
    systems, lengths = set(), set()
    for _ in range(20):
        pairs = buffer.sample_pairs(24)
        for side in pairs[:2]:
            assert side.observations.shape == (24, 5, 5)
            assert side.actions.shape == (24, 4, 1)
            assert (side.observations[:, :, 3:] == side.observations[:, :1, 3:]).all()
            systems.update(side.system.tolist())
        assert torch.equal(pairs.recipient.observations[:, 0, 3:], pairs.donor.observations[:, 0, 3:])
        assert (pairs.recipient.episode != pairs.donor.episode).all()
        assert not (pairs.recipient.observations == pairs.donor.observations).all((1, 2)).any()
        velocity = pairs.recipient.observations[..., 2]
        assert ((velocity[:, 1:] - velocity[:, :-1]).abs() < 4.0).all()
    lengths = {e.length for column in buffer._ended for e in column}
    assert {11, 17} <= lengths
    assert len(systems) > 2


def test_a_saved_buffer_goes_on(tmp_path):
    kwargs = {"replay_buffer_class": RelationReplayBuffer, "replay_buffer_kwargs": {"steps": 2}}
    model = SAC("MlpPolicy", make(9), learning_starts=1000, buffer_size=100, seed=0, device="cpu", **kwargs)
    model.learn(60)
    model.save_replay_buffer(tmp_path / "buffer")
    want = model.replay_buffer.sample_pairs(8)
    model.load_replay_buffer(tmp_path / "buffer")
    assert torch.equal(model.replay_buffer.sample_pairs(8).donor.observations, want.donor.observations)
    model.learn(60)
    assert model.replay_buffer.sample_pairs(8).correct.all()
    assert all(e.length == 9 for e in model.replay_buffer._ended[0] if e.number not in (6, 13))


def test_normalised_like_the_policys_observations():
    envs = VecNormalize(DummyVecEnv([lambda: make(9)]))
    model = SAC(
        *("MlpPolicy", envs),
        **{"learning_starts": 1000, "buffer_size": 100, "seed": 0, "device": "cpu"},
        replay_buffer_class=RelationReplayBuffer,
        replay_buffer_kwargs={"steps": 2},
    )
    model.learn(60)
    buffer = model.replay_buffer
    raw = buffer.sample_pairs(8)
    buffer.pair_step = 0
    scaled = buffer.sample_pairs(8, env=envs)
    assert np.allclose(scaled.donor.observations, envs.normalize_obs(raw.donor.observations.numpy()))
    assert np.allclose(scaled.donor.rewards, envs.normalize_reward(raw.donor.rewards.numpy()))
    assert not np.allclose(scaled.donor.observations, raw.donor.observations)
    assert buffer._count == 7  # with VecNormalize too, only an end is an end


def test_systems_may_be_numbers():
    """Their steps make the episodes that those of the same systems as text make."""
    told = []
    for kind in (int, np.int64, str):
        buffer = RelationReplayBuffer(30, SPACE, ACTIONS, "cpu", 1)
        for t, system in enumerate((7, 7, 7, 8, 8, 8, 7, 7, 7)):
            before, after = np.full((1, 2), t), np.full((1, 2), t + 1)
            buffer.add(before, after, np.zeros((1, 1)), np.zeros(1), np.array([t == 8]), [{"system_id": kind(system)}])
        pairs = buffer.sample_pairs(64)
        assert set(pairs.recipient.episode) == {0, 2}
        told.append((pairs.recipient.episode.tolist(), pairs.donor.episode.tolist()))
    assert told[0] == told[1] == told[2]


def test_another_system_is_another_episode():
    """Even where it begins in the very observation that the last one left."""
    buffer = RelationReplayBuffer(30, SPACE, ACTIONS, "cpu", 1)
    for t, system in enumerate("aaabbbaaa"):
        before, after = np.full((1, 2), t), np.full((1, 2), t + 1)
        buffer.add(before, after, np.zeros((1, 1)), np.zeros(1), np.array([t == 8]), [{"system_id": system}])
    pairs = buffer.sample_pairs(64)
    assert set(pairs.recipient.system) == {"a"}
    assert set(pairs.recipient.episode) == set(pairs.donor.episode) == {0, 2}


def test_bad_input_is_refused():
    def buffer(space=SPACE, **arguments):
        return RelationReplayBuffer(30, space, ACTIONS, "cpu", 1, **arguments)

    one = np.zeros((1, 2)), np.ones((1, 2)), np.zeros((1, 1)), np.zeros(1), np.zeros(1, bool)
    with pytest.raises(ValueError, match=r"environment 0 has no 'system_id'.*RepeatSystem"):
        buffer().add(*one, [{}])
    labelled = buffer(columns=("task",))
    with pytest.raises(ValueError, match="no 'task'"):
        labelled.add(*one, [{"system_id": "a"}])
    assert labelled.size() == 0
    for arguments, message in (
        ({"optimize_memory_usage": True, "handle_timeout_termination": False}, "optimize_memory_usage"),
        ({"space": spaces.Dict({"a": SPACE})}, "one array"),
        ({"steps": 0}, "steps is 0; legal: an integer >= 1"),
        ({"kernels": None}, "unknown argument 'kernels'"),
        ({"law": "pairs"}, "law must be one of recipient, pair, balanced, got 'pairs'"),
    ):
        with pytest.raises(ValueError, match=message):
            buffer(**arguments)
    with pytest.raises(TypeError, match="relation must be"):
        buffer(relation="system")
    with pytest.raises(NoLegalDonorError, match="no episode of 3 steps or more"):
        buffer(steps=3).sample_pairs(2)
    with pytest.raises(NoLegalDonorError, match="no episode of 7 steps or more"):
        buffer(steps=3, relation=SAME_ROLLOUT).sample_pairs(2)
    filled = buffer()
    for i in range(2):
        filled.add(*one[:-1], np.ones(1, bool), [{"system_id": "ab"[i]}])
    with pytest.raises(NoLegalDonorError, match="2 of 2 recipients"):
        filled.sample_pairs(2)
    filled.reset()
    with pytest.raises(NoLegalDonorError, match="no episode of 1 steps"):
        filled.sample_pairs(2)
    assert SAME_SYSTEM is filled.relation


def test_one_line_says_what_to_install():
    code = "import sys; sys.modules['stable_baselines3'] = None; import sprii_train.plugins.sb3"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ImportError: sprii_train.plugins.sb3 needs Stable-Baselines3: pip install stable-baselines3" in found.stderr


def test_a_broken_package_says_why(tmp_path):
    (tmp_path / "stable_baselines3.py").write_text("import no_such_helper", encoding="utf-8")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import sprii_train.plugins.sb3"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr
    assert (
        "Stable-Baselines3, which is installed but fails to import (pip install stable-baselines3 may mend it)" in said
    )
    assert said.rstrip().endswith("ModuleNotFoundError: No module named 'no_such_helper'")
