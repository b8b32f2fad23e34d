"""The law of PokeWorld's behaviour, and how often it makes contact."""

import numpy as np
import pytest
from scipy import stats

from sprii_envs.banks import behaviours
from sprii_envs.banks.behaviours.poke_modes import PokeModes
from sprii_envs.envs.poke_world import PokeWorld
from sprii_envs.properties import SystemDistribution
from sprii_envs.world import rollout

WORLD = PokeWorld()
ALPHA = 1e-4
STEPS = 63


def resting(n, gap=(0.3, 0.4)):
    """States with the finger at rest and the object `gap` away from it."""
    states = np.zeros((n, 8))
    states[:, 4:6] = gap
    return states


def actions(behaviour, states, seed=0):
    """Actions (n, STEPS, 2) if the state never changed."""
    n = len(states)
    act = behaviour.policy(np.random.default_rng(seed), WORLD, np.ones((n, 3)), states, STEPS, None)
    return np.stack([act(t, states) for t in range(STEPS)], axis=1)


def runs(row):
    """Lengths of the runs of equal values."""
    return np.diff(np.flatnonzero(np.concatenate([[True], row[1:] != row[:-1], [True]])))


def test_actions_are_pure_float32_within_bounds():
    states = resting(500)
    one, two = (actions(PokeModes(), states, seed=3) for _ in range(2))
    assert one.dtype == np.float32
    assert np.array_equal(one, two)
    assert not np.array_equal(one, actions(PokeModes(), states, seed=4))
    assert np.abs(one).max() <= 1.0


def test_modes_have_the_published_shares_and_lengths():
    n = 4000
    pull = actions(PokeModes(approach=0.25, blow=0.5, turbulence=0.0, noise=0.0), resting(n))
    along = pull @ np.array([0.6, 0.8])
    assert np.abs(pull - along[..., None] * np.array([0.6, 0.8])).max() < 1e-6  # towards the object or away from it
    kinds = np.round(along, 6)
    assert set(np.unique(kinds)) == {-0.5, 0.0, 0.25, 0.5}
    first = kinds[:, 0]
    counts = [int((first == value).sum()) for value in (0.25, 0.5, 0.0)]
    assert stats.chisquare(counts, [0.45 * n, 0.35 * n, 0.2 * n]).pvalue > ALPHA
    for row in kinds[first == 0.5]:
        towards, away = runs(row)[:2]  # a strike turns half-way
        assert row[towards] == -0.5
        assert towards - away in (0, 1)
        assert 4 <= towards + away <= 12


def test_mode_lengths_are_uniform():
    n = 6000
    row = np.round(actions(PokeModes(pursuit=0.0, strike=1.0, noise=0.0), resting(n))[:, :, 0], 6)
    lengths = np.array([sum(runs(r)[:2]) for r in row])
    assert stats.chisquare(np.bincount(lengths, minlength=13)[4:]).pvalue > ALPHA


def test_drift_is_the_published_process():
    drift = actions(PokeModes(pursuit=0.0, strike=0.0, turbulence=0.05, noise=0.0), resting(4000))
    assert np.std(drift[:, 0]) == pytest.approx(0.05 / np.sqrt(1 - 0.82**2), rel=0.03)
    assert np.std(drift[:, -1]) == pytest.approx(0.05 / np.sqrt(1 - 0.82**2), rel=0.03)
    fresh = drift[:, 1:] - 0.82 * drift[:, :-1]
    assert np.std(fresh) == pytest.approx(0.05, rel=0.01)
    assert abs(np.corrcoef(fresh[:, 1:].ravel(), fresh[:, :-1].ravel())[0, 1]) < 0.01


def test_noise_and_damping_are_added_in_every_mode():
    for kwargs in ({"pursuit": 1.0, "strike": 0.0}, {"pursuit": 0.0, "strike": 1.0}, {"pursuit": 0.0, "strike": 0.0}):
        quiet = PokeModes(turbulence=0.0, noise=0.0, **kwargs)
        still, moving = resting(300), resting(300)
        moving[:, 2:4] = (0.2, -0.1)
        difference = actions(quiet, moving) - actions(quiet, still)
        assert np.allclose(difference, [-0.16, 0.08], atol=1e-6)
        loud = actions(PokeModes(turbulence=0.0, **kwargs), still) - actions(quiet, still)
        assert np.std(loud) == pytest.approx(0.06, rel=0.02)


def test_concentric_discs_give_no_direction_and_no_nan():
    assert np.isfinite(actions(PokeModes(), resting(50, (0.0, 0.0)))).all()


def test_most_rollouts_have_contact_over_the_range_of_systems():
    rng = np.random.default_rng(0)
    values = np.repeat(SystemDistribution(WORLD.properties).sample(500, rng).values, 4, axis=0)
    start = WORLD.initial(rng.random((len(values), 7)), values, None)
    done = rollout(WORLD, values, start, PokeModes().policy(rng, WORLD, values, start, STEPS, None), steps=STEPS)
    contact = done.signals["contact"]
    assert 0.7 < contact.any(axis=1).mean() < 0.95
    assert 0.1 < contact.mean() < 0.3


def test_one_step_episode():
    act = PokeModes().policy(np.random.default_rng(0), WORLD, np.ones((2, 3)), resting(2), 1, None)
    assert act(0, resting(2)).shape == (2, 2)


def test_round_trip():
    behaviour = PokeModes(blow=0.7)
    assert behaviours.from_dict(behaviours.to_dict(behaviour)) == behaviour


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"shortest": 0}, "shortest"),
        ({"longest": 2}, "shortest"),
        ({"pursuit": 0.8}, "pursuit"),
        ({"strike": -0.1}, "strike"),
        ({"persistence": 1.0}, "persistence"),
        ({"noise": -1.0}, "noise"),
        ({"blow": float("nan")}, "blow"),
    ],
)
def test_illegal_parameters(wrong, message):
    with pytest.raises(ValueError, match=message):
        PokeModes(**wrong)
