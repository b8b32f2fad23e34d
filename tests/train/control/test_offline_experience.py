"""Offline experience against the world stepped again from what was recorded."""

import numpy as np
import pytest

from sprii_envs.envs.pendulum import GROUPS
from sprii_envs.properties import SystemDistribution
from sprii_envs.world import rollout
from sprii_train.control.offline import HELD, excited, fit_by
from sprii_train.control.pendulum import WORLD
from sprii_train.learners import CaDM, CaDMConfig


def test_episodes_are_the_worlds_and_their_torques_are_held():
    store = excited(GROUPS["OOD_c3"].combinations(), 12, 3, seed=4, steps=30)
    assert len(np.unique(store.systems)) == 4
    assert store.lengths.tolist() == [30] * 12
    observations, actions = store.observations.reshape(12, 31, 3), store.actions.reshape(12, 30, 1)
    starts = np.stack([np.arctan2(observations[:, 0, 1], observations[:, 0, 0]), observations[:, 0, 2]], 1)
    again = rollout(WORLD, store.properties, starts, actions)
    seen = WORLD.observe(again.states.reshape(-1, 2)).reshape(12, 31, 3)
    np.testing.assert_allclose(seen[:, :8], observations[:, :8], atol=1e-3)
    sizes = np.abs(actions[:, :, 0]).reshape(12, 30 // HELD, HELD)
    np.testing.assert_allclose(sizes, sizes[:, :, :1].repeat(HELD, 2))
    signs = np.sign(actions[:, :, 0] * observations[:, :-1, 2]).reshape(12, -1, HELD)
    assert 0.3 < (np.ptp(signs, axis=2) == 0).mean() < 1.0  # along the swing, or against it: of one sign throughout
    assert store.digest() == excited(GROUPS["OOD_c3"].combinations(), 12, 3, seed=4, steps=30).digest()
    assert store.digest() != excited(GROUPS["OOD_c3"].combinations(), 12, 3, seed=5, steps=30).digest()


def test_numbers_that_are_not_legal_are_refused():
    with pytest.raises(ValueError, match="steps is 0"):
        excited(GROUPS["ID"], 2, 1, steps=0)
    with pytest.raises(ValueError, match="seed is -1"):
        excited(GROUPS["ID"], 2, 1, seed=-1)


def test_a_log_of_other_sizes_than_the_models_is_refused():
    log = excited(GROUPS["ID"], 4, 1, steps=20)
    fit_by(CaDM(CaDMConfig(), seed=0), log, histories=20)
    with pytest.raises(ValueError, match="the log's observation_dim is 3; legal: 4, as that of the CaDM"):
        fit_by(CaDM(CaDMConfig(observation_dim=4), seed=0), log)
    with pytest.raises(ValueError, match="the log's action_dim is 1; legal: 2"):
        fit_by(CaDM(CaDMConfig(action_dim=2), seed=0), log)


@pytest.mark.parametrize("seed", [0, 1])
def test_starts_tell_nothing_of_systems_that_are_drawn(seed: int):
    """Not at seed 0 either, whose keys of different lengths NumPy takes for one."""
    log = excited(SystemDistribution(WORLD.properties), 400, 1, seed=seed, steps=1)
    start = log.observations.reshape(400, 2, 3)[:, 0]
    angle = np.arctan2(start[:, 1], start[:, 0])
    for values in log.properties.T:
        assert abs(np.corrcoef(angle, values)[0, 1]) < 0.2  # of 400 independent ones four SDs
