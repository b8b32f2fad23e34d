"""Sensitivities against the simulator one case at a time, and in closed form for D-Clean."""

import numpy as np
import pytest

from sprii_envs.envs.d_clean import DClean
from sprii_envs.envs.spring_world import SpringWorld
from sprii_envs.world import sensitivity
from sprii_train.analysis.populations import Development, PopulationError, Training
from sprii_train.analysis.value import (
    dominance,
    factor_sensitivity,
    output_weights,
    sensitivities,
)

RNG = np.random.default_rng(0)


def spring_cases(n: int = 5, steps: int = 8):
    world = SpringWorld()
    low, high = (np.array([getattr(p, side) for p in world.properties]) for side in ("low", "high"))
    values = low + (high - low) * RNG.random((n, 3))
    states = world.initial(RNG.random((n, world.start_draws)), values, "cold")
    return world, values, states, RNG.uniform(-0.5, 0.5, (n, steps, 2)).astype(np.float32)


@pytest.mark.parametrize("chunk", [2, 1024])
def test_sensitivities_equal_the_simulators_case_by_case(chunk):
    world, values, states, actions = spring_cases()
    found = sensitivities(world, values, states, actions, (1, 4, 8), chunk=chunk)
    assert found.shape == (5, 3, 8, 3)
    for i in range(5):
        for f, name in enumerate(world.properties.names):
            expected = sensitivity(world, values[i], name, states[i], actions[i])[[1, 4, 8]]
            np.testing.assert_allclose(found[i, ..., f], expected, rtol=1e-9, atol=1e-12)


def test_a_coasting_body_is_as_sensitive_to_drag_as_calculus_says():
    """Without force v(t) = v₀e^{−γt} and x(t) = x₀ + v₀(1 − e^{−γt})/γ."""
    world, gamma, v0 = DClean(), np.array([0.3, 1.1]), np.array([[0.5, -0.2], [0.1, 0.4]])
    states = np.concatenate([np.zeros((2, 2)), v0], 1)
    found = sensitivities(world, gamma[:, None], states, np.zeros((2, 20, 2)), (10, 20), relative=1e-3)[..., 0]
    t = world.dt * np.array([10, 20])
    decay = np.exp(-gamma[:, None] * t)
    velocity = -gamma[:, None] * t * decay
    position = t * decay - (1 - decay) / gamma[:, None]
    np.testing.assert_allclose(found[..., 2:], velocity[..., None] * v0[:, None], rtol=1e-4)
    np.testing.assert_allclose(found[..., :2], position[..., None] * v0[:, None], rtol=1e-4)


def test_output_weights_are_mean_standardised_sensitivities():
    s, scale = RNG.standard_normal((6, 2, 3, 4)), np.array([1.0, 2.0, 0.5])
    found = output_weights(s, scale)
    raw = np.array([np.mean([abs(x) / scale[d] for x in s[:, :, d].ravel()]) for d in range(3)])
    np.testing.assert_allclose(found, 3 * raw / raw.sum())
    assert np.isclose(found.mean(), 1.0)
    s[:, :, 1] = 0.0
    assert output_weights(s, scale)[1] == 0.0
    with pytest.raises(ValueError, match="no output coordinate"):
        output_weights(np.zeros_like(s), scale)
    with pytest.raises(ValueError, match="scales"):
        output_weights(s, scale[:2])


def test_factor_sensitivity_and_dominance():
    s, scale, sd = RNG.standard_normal((40, 2, 3, 2)), np.array([1.0, 2.0, 0.5]), np.array([0.4, 0.3])
    found = factor_sensitivity(s, scale, sd)
    expected = np.sqrt(np.mean([(s[7, 1, d, 0] / scale[d] * 0.4) ** 2 for d in range(3)]))
    assert found.shape == (40, 2, 2)
    np.testing.assert_allclose(found[7, 1, 0], expected)

    train, cases = found[:30, 1], found[30:, 1]
    d = dominance(Training("train"), train, cases)
    z = [(cases[:, j] - train[:, j].mean()) / train[:, j].std() for j in (0, 1)]
    np.testing.assert_allclose(d, z[0] - z[1])
    with pytest.raises(PopulationError, match="training systems only"):
        dominance(Development("x"), train, cases)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must vary"):
        dominance(Training("train"), np.ones((3, 2)), cases)


def test_what_cannot_be_simulated_is_refused():
    world, values, states, actions = spring_cases()
    with pytest.raises(ValueError, match="values must be"):
        sensitivities(world, values[:4], states, actions, (1,))
    with pytest.raises(ValueError, match=r"horizons must lie in 1…8"):
        sensitivities(world, values, states, actions, (9,))
    with pytest.raises(ValueError, match="relative"):
        sensitivities(world, values, states, actions, (1,), relative=0.0)
