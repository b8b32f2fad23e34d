"""Counts and sizes that people give have an upper end, whatever they are of."""

import gymnasium as gym
import pytest

from sprii_envs.banks import D_CLEAN, build
from sprii_envs.banks.populations import Uniform
from sprii_envs.collection import collect_related

HUGE = (2**31, 2**32, 2**64, 10**40)


@pytest.mark.parametrize("huge", HUGE)
def test_every_number_of_a_bank_has_an_upper_end(huge, tmp_path):
    for change in ({"rollouts": huge}, {"steps": huge}, {"systems": {"train": huge}}, {"systems_per_chunk": huge}):
        with pytest.raises(ValueError, match=f"is {huge}; legal: an integer >= .*at most 1000000"):
            D_CLEAN.replace(**change)
    with pytest.raises(ValueError, match=f"is {huge}; legal: an integer >= .*at most 1000000"):
        Uniform(huge)
    with pytest.raises(ValueError, match=f"workers is {huge}; legal: an integer >= 1, at most 4096"):
        build(D_CLEAN, tmp_path / "bank", workers=huge)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("huge", HUGE)
def test_every_number_of_a_collection_has_an_upper_end(huge):
    env = gym.make("sprii/D-Clean-v0")
    for change in ({"systems": huge}, {"episodes_per_system": huge}, {"steps": huge}):
        with pytest.raises(ValueError, match=f"{next(iter(change))} is {huge}; legal: .*, at most 1000000"):
            collect_related(env, None, **{"systems": 1, "steps": 2, **change})
    with pytest.raises(ValueError, match=f"num_envs is {huge}; legal: an integer >= 1, at most 10000000"):
        gym.make_vec("sprii/D-Clean-v0", num_envs=huge)
