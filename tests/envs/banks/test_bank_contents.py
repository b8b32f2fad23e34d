"""What a D-Clean bank holds: exact physics, the env's own trajectories, the protocol's distributions.

Statistical tests reject a correct build with probability `ALPHA` each.
"""

import gymnasium as gym
import numpy as np
import pytest
from scipy import stats
from scipy.integrate import solve_ivp

from sprii_envs.banks import D_CLEAN, simulate

ALPHA = 1e-4


@pytest.fixture(scope="module")
def systems():
    return simulate.systems(D_CLEAN)


@pytest.fixture(scope="module")
def chunk(systems):
    """First chunk of the full protocol: 50 systems × 8 episodes."""
    first = simulate.chunks(D_CLEAN)[0]
    return simulate.simulate(D_CLEAN, systems.values[first.first : first.last], first)


def test_trajectories_solve_the_differential_equation(bank):
    """Against an independent integrator on the recorded forces, to float32 precision."""
    for episode in (0, 11, 29):
        drag = bank.table["drag"][episode]
        state = bank["states"][episode, 0].astype(np.float64)
        for t, action in enumerate(bank["actions"][episode].astype(np.float64)):

            def motion(_, y, force=4.0 * action, drag=drag):
                return np.concatenate([y[2:], force - drag * y[2:]])

            state = solve_ivp(motion, (0, 0.05), state, rtol=1e-11, atol=1e-12).y[:, -1]
            np.testing.assert_allclose(bank["states"][episode, t + 1], state, rtol=2e-7, atol=1e-8)


def test_the_environment_replays_the_bank_bit_for_bit(bank):
    env = gym.make("sprii/D-Clean-v0", max_episode_steps=19)
    for episode in (0, 7, 29):
        drag = float(bank.table["drag"][episode])
        start = bank["states"][episode, 0].astype(np.float64)
        observation, info = env.reset(options={"system": {"drag": drag}, "state": start})
        assert info["system_id"] == bank.systems.ids[bank.table["system"][episode]]
        assert np.array_equal(observation, bank["states"][episode, 0])
        for t in range(19):
            observation, reward, terminated, truncated, _ = env.step(bank["actions"][episode, t])
            assert np.array_equal(observation, bank["states"][episode, t + 1])
            assert np.float32(reward) == bank["rewards"][episode, t]
            assert not terminated
            assert truncated == (t == 18)


def test_a_chunk_has_the_protocols_shape(chunk):
    assert chunk["states"].shape == (400, 64, 4)
    assert chunk["actions"].shape == (400, 63, 2)
    assert chunk["rewards"].shape == (400, 63)
    assert all(np.isfinite(column).all() for column in chunk.values())


def test_drag_is_uniform_in_every_split(systems):
    for split in D_CLEAN.systems:
        drag = systems.subset(split).column("drag")
        assert stats.kstest(drag, stats.uniform(0.5, 3.5).cdf).pvalue > ALPHA


def test_starts_follow_the_protocol():
    protocol = D_CLEAN.replace(systems={"train": 500}, systems_per_chunk=500, steps=2)
    start = simulate.simulate(protocol, np.full((500, 1), 1.0), simulate.chunks(protocol)[0])["states"][:, 0]
    for column in (0, 1):
        assert stats.kstest(start[:, column], stats.uniform(-1, 2).cdf).pvalue > ALPHA
    assert stats.kstest(np.hypot(start[:, 2], start[:, 3]), stats.uniform(0, 2).cdf).pvalue > ALPHA
    angle = np.arctan2(start[:, 3], start[:, 2])
    assert stats.kstest(angle, stats.uniform(-np.pi, 2 * np.pi).cdf).pvalue > ALPHA


def test_splits_share_no_system(systems):
    assert len(np.unique(systems.values, axis=0)) == len(systems) == 1400
    values = [set(systems.subset(split).column("drag")) for split in D_CLEAN.systems]
    assert not values[0] & values[1]
    assert not values[0] & values[2]
    assert not values[1] & values[2]


def test_no_two_episodes_are_alike(bank):
    assert len(np.unique(bank["states"][:, 0], axis=0)) == len(bank)
    assert len(np.unique(bank["actions"].reshape(len(bank), -1), axis=0)) == len(bank)


def test_splits_and_chunks_are_independent_of_each_other(systems):
    """More test systems leave the training systems as they are."""
    larger = simulate.systems(D_CLEAN.replace(systems={**D_CLEAN.systems, "test": 300}))
    assert np.array_equal(larger.values[:1200], systems.values[:1200])
    assert np.array_equal(larger.values[1200:1400], systems.values[1200:])


def test_another_seed_changes_everything(bank):
    other = bank.protocol.replace(seed=1)
    first = simulate.chunks(other)[0]
    values = simulate.systems(other).values
    assert not np.isin(values, bank.systems.values).any()
    again = simulate.simulate(other, values[first.first : first.last], first)
    assert not np.isin(again["states"][:, 0].astype(np.float32), bank["states"][:6, 0]).any()


def test_the_frozen_draw(systems):
    """The systems of D-Clean v1 never change; if they must, the protocol gets a new version."""
    expected = [
        0.5404136400021604,
        1.5682873617261157,
        1.6976397465981714,
        3.536998514047362,
        1.2681012706531793,
    ]
    np.testing.assert_allclose(systems.values[[0, 999, 1000, 1200, 1399], 0], expected, rtol=1e-15)


def test_chunks_cover_every_system_once_and_cross_no_split():
    protocol = D_CLEAN.replace(systems={"train": 7, "test": 3}, systems_per_chunk=5)
    assert [(c.first, c.last) for c in simulate.chunks(protocol)] == [(0, 5), (5, 7), (7, 10)]


def test_constants_reach_the_physics(bank):
    heavy = bank.protocol.replace(constants={**bank.protocol.constants, "mass": 2.0})
    first = simulate.chunks(heavy)[0]
    states = simulate.simulate(heavy, bank.systems.values[first.first : first.last], first)["states"]
    assert np.array_equal(states[:, 0], bank["states"][:6, 0])
    assert (states[:, -1].astype(np.float32) != bank["states"][:6, -1]).all()


@pytest.mark.parametrize("env_id", ["sprii/Nowhere-v0", "CartPole-v1"])
def test_an_environment_that_is_not_ours(env_id):
    with pytest.raises(ValueError, match="d-clean"):
        simulate.world(D_CLEAN.replace(env_id=env_id))
