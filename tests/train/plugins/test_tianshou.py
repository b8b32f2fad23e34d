"""Indices of Tianshou's own ring buffers, filled by vector environments with episodes of different lengths."""

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("tianshou")
from tianshou.data import Batch, ReplayBuffer, VectorReplayBuffer
from tianshou.env import DummyVectorEnv

from sprii_envs.relations import SAME_ROLLOUT, NoLegalDonorError, Relation, StaleError
from sprii_envs.wrappers import RepeatSystem
from sprii_train.plugins.tianshou import tianshou_indices


def filled(steps: int, size: int = 60) -> tuple[VectorReplayBuffer, list[dict]]:
    """A buffer, and for each transition what it is: its number is the reward."""
    make = lambda k: lambda: RepeatSystem(gym.make("sprii/Pendulum-v0", max_episode_steps=7 + 4 * k), 3)  # noqa: E731
    envs, buffer, log = DummyVectorEnv([make(0), make(1)]), VectorReplayBuffer(size, 2), []
    obs, _ = envs.reset(seed=0)
    episode, count, t = np.array([0, 1]), 2, np.zeros(2, int)
    for _ in range(steps):
        after, _, terminated, truncated, info = envs.step(np.zeros((2, 1), np.float32))
        number = np.array([len(log), len(log) + 1], float)
        for i in range(2):
            log.append({"episode": episode[i], "t": t[i], "system": info[i]["system_id"]})
            info[i]["odd"] = int(episode[i] % 2)
        batch = Batch(
            obs=obs, act=np.zeros((2, 1)), rew=number, terminated=terminated, truncated=truncated, obs_next=after,
            info=info, done=terminated | truncated,
        )  # fmt: skip
        buffer.add(batch, buffer_ids=np.arange(2))
        obs, t = after.copy(), t + 1
        done = np.flatnonzero(terminated | truncated)
        if len(done):
            obs[done], _ = envs.reset(done)
            t[done], episode[done], count = 0, count + np.arange(len(done)), count + len(done)
    return buffer, log


@pytest.mark.parametrize("steps", [25, 61, 200])
@pytest.mark.parametrize("relation", [None, SAME_ROLLOUT, Relation(("system",), ("odd",))])
def test_windows_of_related_episodes(steps, relation):
    buffer, log = filled(steps)
    arguments = {} if relation is None else {"relation": relation, "columns": ("odd",)}
    draw = tianshou_indices(buffer, 3, seed=4, **arguments)
    seen = set()
    for step in range(20):
        indices = draw(step, 32)
        assert indices.shape == (2, 32, 3)
        numbers = buffer[indices].rew.astype(int)
        said = np.vectorize(lambda k: log[k]["episode"])(numbers)
        t = np.vectorize(lambda k: log[k]["t"])(numbers)
        assert (said == said[..., :1]).all()
        assert (np.diff(t) == 1).all()
        system = np.vectorize(lambda k: log[k]["system"])(numbers)[..., 0]
        assert (system[0] == system[1]).all()
        if relation is SAME_ROLLOUT:
            assert (said[0] == said[1]).all()
            assert (t[1, :, -1] < t[0, :, 0]).all()
        else:
            assert (said[0] != said[1]).all()
        if arguments.get("columns") and relation is not SAME_ROLLOUT:
            assert (said[0] % 2 != said[1] % 2).all()
        seen.update(said.ravel().tolist())
        assert np.array_equal(draw(step, 32), indices)
    assert len(seen) > 3
    assert not np.array_equal(draw(0, 32), tianshou_indices(buffer, 3, seed=5, **arguments)(0, 32))


@pytest.mark.parametrize("more", [5, 30])  # partly, and wholly: each of the two rings holds 30
def test_an_index_over_a_ring_written_since_is_refused(more):
    buffer, _ = filled(30)
    draw = tianshou_indices(buffer, 3, seed=4)
    draw(0, 32)
    again, _ = filled(30 + more)
    late = Batch(again[again.sample_indices(0)])
    for i in range(2):
        own = np.flatnonzero(np.arange(60) // 30 == i)
        for k in own[-more:]:
            buffer.add(late[k : k + 1], buffer_ids=np.array([i]))
    with pytest.raises(StaleError, match="written to since"):
        draw(0, 32)
    tianshou_indices(buffer, 3, seed=4)(0, 32)


def test_bad_buffers_are_refused():
    with pytest.raises(NoLegalDonorError, match="empty"):
        tianshou_indices(ReplayBuffer(10))
    buffer, _ = filled(20)
    with pytest.raises(ValueError, match="no 'task'"):
        tianshou_indices(buffer, columns=("task",))
    with pytest.raises(NoLegalDonorError, match="no episode in the buffer has 12 steps"):
        tianshou_indices(buffer, 12)
    with pytest.raises(ValueError, match="steps is 0; legal: an integer >= 1"):
        tianshou_indices(buffer, 0)
    with pytest.raises(TypeError, match="relation must be"):
        tianshou_indices(buffer, relation="system")
