"""Forces of SpringWorld's episodes, told step by step against a reading of the paper's protocol."""

import numpy as np
import pytest
from scipy.stats import chisquare, kstest

from sprii_envs.banks.behaviours import SpringEpisodes
from sprii_envs.envs.spring_world import SpringWorld

WORLD = SpringWorld()


def forces(kind: str, n: int, steps: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Starts (n, 8) and forces (n, steps, 2) in newtons."""
    rng = np.random.default_rng(seed)
    values = np.repeat(WORLD.properties.nominal[None], n, 0)
    start = WORLD.initial(rng.random((n, 6)), values, kind)
    acted = SpringEpisodes().policy(rng, WORLD, values, start, steps, kind)
    assert acted.shape == (n, steps, 2)
    assert acted.dtype == np.float32
    return start, acted.astype(np.float64)


def units(force: np.ndarray) -> list[tuple[complex, int, int]]:
    """(pulse, length, pause) of the whole units of one episode, read from its steps alone."""
    f, found, t = force[:, 0] + 1j * force[:, 1], [], 0
    while t < len(f):
        pulse, length, pause = f[t], 0, 0
        while t < len(f) and f[t] == pulse:
            length, t = length + 1, t + 1
        assert pulse != 0
        back = f[t : t + length]
        assert (back == -pulse).all()  # at once, and of the same length, as far as the episode goes
        t += len(back)
        while t < len(f) and f[t] == 0:
            pause, t = pause + 1, t + 1
        if t < len(f):  # the last unit may be cut
            found.append((pulse, length, pause))
    return found


def test_forced_episodes_are_units_of_two_opposite_pulses_and_a_pause():
    n = 600
    _, force = forces("forced", n, 192)
    told = [units(episode) for episode in force]
    first = [episode[0] for episode in told]  # of one law; how many follow depends on their lengths
    pulses = np.array([pulse for pulse, *_ in first])
    amplitudes, counts = np.unique(np.abs(pulses).round(6), return_counts=True)
    np.testing.assert_allclose(amplitudes, np.array([0.25, 0.5, 0.75]) * 2 / 3, atol=1e-6)
    assert chisquare(counts).pvalue > 1e-4
    assert kstest(np.angle(pulses) / (2 * np.pi) % 1, "uniform").pvalue > 1e-4
    for column, legal in ((1, [2, 4, 8]), (2, [8, 16, 24])):
        values, counts = np.unique([unit[column] for unit in first], return_counts=True)
        assert values.tolist() == legal
        assert chisquare(counts).pvalue > 1e-4
    later = [unit for episode in told for unit in episode[1:]]
    assert {unit[1:] for unit in later} == {(length, pause) for length in (2, 4, 8) for pause in (8, 16, 24)}
    assert np.abs(force.sum(1)).max() <= 0.5 * 8 + 1e-6  # every whole unit has no net impulse


def test_mass_episodes_are_pushed_across_the_spring_and_back():
    start, force = forces("mass", 50, 96)
    spring = (start[:, 2:4] - start[:, :2]) / 0.35
    assert np.abs((force * spring[:, None]).sum(-1)).max() < 1e-8
    np.testing.assert_allclose(np.linalg.norm(force, axis=-1), 0.08, rtol=1e-6)
    assert (force[:, :48] == force[:, :1]).all()
    assert (force[:, 48:] == -force[:, :1]).all()


@pytest.mark.parametrize("kind", ["free", "glide", "static"])
def test_other_histories_are_not_pushed(kind: str):
    assert not forces(kind, 5, 192)[1].any()


def test_cold_queries_are_pushed_along_the_worlds_x_for_sixteen_steps():
    _, force = forces("cold", 12, 33)
    assert not force[..., 1].any()
    assert not force[:, 0].any()
    assert (force[:, 1:17, 0] == np.tile([0.5, 0.25, 0.0], 4)[:, None]).all()
    assert not force[:, 17:].any()


def test_moving_queries_are_pushed_beside_their_spring_for_sixteen_steps():
    start, force = forces("moving", 9, 127)
    spring = start[:, 2:4] - start[:, :2]
    turn = 0.8 + np.arctan2(spring[:, 1], spring[:, 0])
    wanted = 0.5 * np.stack([np.cos(turn), np.sin(turn)], axis=1)
    np.testing.assert_allclose(force[:, 95:111], np.broadcast_to(wanted[:, None], (9, 16, 2)), atol=1e-7)
    assert not force[:, :95].any()
    assert not force[:, 111:].any()


def test_another_kind_and_illegal_parameters_are_refused():
    with pytest.raises(ValueError, match="episode kind 'warm' is none of forced, mass"):
        SpringEpisodes().policy(np.random.default_rng(0), WORLD, np.ones((1, 3)), np.zeros((1, 8)), 5, "warm")
    wrong = {"push": 2.0, "templates": (2.0,), "lengths": (0,), "query_length": 0, "moving_turn": float("nan")}
    for name, value in wrong.items():
        with pytest.raises(ValueError, match=name):
            SpringEpisodes(**{name: value})
    for name in ("templates", "amplitudes", "lengths", "pauses"):
        with pytest.raises(ValueError, match=rf"{name} is \(\); legal: .* at least one"):
            SpringEpisodes(**{name: ()})
