"""Counterfactual rollouts against the bank's own bytes, against single rollouts, and against stepped environments."""

import gymnasium as gym
import numpy as np
import pytest

import sprii_envs  # noqa: F401  (registers the environments)
from sprii_envs.banks import Bank
from sprii_envs.world import rollout
from sprii_train.analysis.use.queries import first_episodes, pulse_queries
from sprii_train.analysis.use.simulated import (
    Counterfactuals,
    Queries,
    coverage,
    donor_histories,
    frames,
    increments,
    query_targets,
    training_levels,
)

BANKS = ("spring", "poke", "bank")  # `bank` is the tiny D-Clean one


def own_values(bank: Bank, episodes: np.ndarray, factor: str) -> np.ndarray:
    return bank.table[factor][episodes][:, None]


@pytest.mark.parametrize("name", BANKS)
def test_own_value_repeats_the_recorded_history_bit_for_bit(name: str, request: pytest.FixtureRequest):
    bank = request.getfixturevalue(name)
    episodes = np.arange(0, len(bank), 3)
    episodes = episodes[bank.table["length"][episodes] >= 20]
    starts = np.arange(len(episodes)) % 8
    for factor in bank.properties.names:
        found = donor_histories(bank, episodes, factor, own_values(bank, episodes, factor), length=12, starts=starts)
        assert (found.states[:, 0] == bank.windows("states", episodes, starts, 12)).all()
        assert (found.actions == bank.windows("actions", episodes, starts, 11)).all()
        assert (found.own == bank.table[factor][episodes]).all()
        assert found.complete.all()
        assert found.states.dtype == np.float32


@pytest.mark.parametrize("name", BANKS)
def test_own_value_repeats_the_recorded_future_bit_for_bit(name: str, request: pytest.FixtureRequest):
    """The state at a later anchor is not the bank's rounded one: rounding would change the last bits of the future."""
    bank = request.getfixturevalue(name)
    episodes = np.arange(0, len(bank), 3)
    episodes = episodes[bank.table["length"][episodes] >= 20]
    anchors = np.arange(len(episodes)) % 9
    for factor in bank.properties.names:
        found = query_targets(bank, Queries(episodes, anchors), factor, own_values(bank, episodes, factor), steps=10)
        recorded = bank.windows("states", episodes, anchors, 11)
        assert (found.states[:, 0] == recorded).all()
        assert (found.actions == bank.windows("actions", episodes, anchors, 10)).all()
        change = recorded[:, [1, 10]].astype(np.float64) - recorded[:, :1]
        assert (increments(found, (1, 10))[:, 0] == change).all()


def test_shared_levels_hit_the_system_of_that_level(spring: Bank):
    """On a bank of three levels the training levels are the systems' own, and exactly one cell a system matches."""
    queries = pulse_queries(spring, spring.split("train"))
    assert (queries.anchors == 1).all()
    for factor in spring.properties.names:
        levels = training_levels(spring.properties[factor], 3)
        found = query_targets(spring, queries, factor, levels)
        recorded = spring.windows("states", queries.episodes, queries.anchors, 17)
        same = (found.states == recorded[:, None]).all((2, 3))
        assert (same.sum(1) == 1).all()
        assert (levels[same.argmax(1)] == found.own).all()
        assert (found.levels == levels).all()
        assert found.levels.shape == (27, 3)
        # The recipient observes the same under every level.
        assert (found.states[:, :, 0] == recorded[:, None, 0]).all()


def test_every_cell_is_the_rollout_of_its_system(poke: Bank):
    """One call for 3 systems × 4 levels against 12 single rollouts from the unrounded state of the anchor."""
    episodes, anchors = np.array([5, 20, 33]), np.array([0, 7, 12])
    levels = [500.0, 1000.0, 3000.0, 6000.0]
    found = query_targets(poke, Queries(episodes, anchors), "stiffness", levels, steps=9)
    histories = donor_histories(poke, episodes, "stiffness", levels, length=10, starts=anchors)
    for i, (episode, anchor) in enumerate(zip(episodes, anchors, strict=True)):
        values = np.array([poke.table[name][episode] for name in poke.properties.names])
        start, actions = poke["states"][episode, 0].astype(np.float64), poke["actions"][episode]
        present = rollout(poke.world, values, start, actions[:anchor]).states[0, anchor]
        for j, level in enumerate(levels):
            system = np.array([values[0], values[1], level])
            future = rollout(poke.world, system, present, actions[anchor : anchor + 9]).states[0]
            assert (found.states[i, j] == future.astype(np.float32)).all()
            whole = rollout(poke.world, system, start, actions[: anchor + 9]).states[0]
            assert (histories.states[i, j] == whole[anchor:].astype(np.float32)).all()
    differ = (found.states[:, 1:] != found.states[:, :1]).any((1, 2, 3))
    assert differ.any()  # a contact, whose stiffness matters


def test_only_the_chosen_property_changes(spring: Bank):
    episodes = first_episodes(spring.split("validation"), "forced")
    per_system = spring.table["mass"][episodes][:, None] * np.array([1.0, 1.1])
    found = donor_histories(spring, episodes, "mass", per_system, length=48)
    assert (found.levels == per_system).all()
    for i, episode in enumerate(episodes):
        values = np.array([spring.table[name][episode] for name in ("mass", "drag", "stiffness")])
        values[0] *= 1.1
        start = spring["states"][episode, 0].astype(np.float64)
        states = rollout(spring.world, values, start, spring["actions"][episode, :47]).states[0]
        assert (found.states[i, 1] == states.astype(np.float32)).all()


def test_training_levels(spring: Bank, poke: Bank):
    mass = training_levels(spring.properties["mass"])
    np.testing.assert_allclose(mass, [0.5, 0.875, 1.25, 1.625, 2.0])
    stiffness = training_levels(poke.properties["stiffness"], 3)
    np.testing.assert_allclose(stiffness, [500.0, np.sqrt(500.0 * 6000.0), 6000.0])
    assert stiffness[0] == 500.0
    assert stiffness[-1] == 6000.0
    # The very floats of a bank's levels.
    assert set(training_levels(poke.properties["stiffness"], 6)) == set(poke.table["stiffness"])
    with pytest.raises(ValueError, match="the number of levels of 'mass' is 1; legal: an integer >= 2"):
        training_levels(spring.properties["mass"], 1)


def test_endings_are_reported_where_an_environment_ends(spring: Bank):
    """Light systems fly out of view: lengths against stepped environments, nothing replaced."""
    episodes = first_episodes(spring.split("validation"), "forced")
    levels = [0.02, 0.2, 1.0]
    found = donor_histories(spring, episodes, "mass", levels, length=48)
    env = gym.make("sprii/SpringWorld-v0", obs_type="state", max_episode_steps=1000)
    for i, episode in enumerate(episodes):
        for j, level in enumerate(levels):
            system = {name: float(spring.table[name][episode]) for name in ("drag", "stiffness")} | {"mass": level}
            env.reset(seed=0, options={"system": system, "state": spring["states"][episode, 0]})
            length, reason = 48, None
            for t in range(47):
                _, _, _, truncated, info = env.step(spring["actions"][episode, t])
                if truncated:
                    length, reason = t + 1, info["reason"]
                    break
            assert (found.lengths[i, j], found.reasons[i, j]) == (length, reason)
    told = coverage(found)
    assert told.cells == 15
    assert 0 < told.complete < 15
    assert told.complete == found.complete.sum() == 15 - sum(told.endings.values())
    assert "out of view" in told.endings
    assert set(told.systems) == set(np.flatnonzero(~found.complete.all(1)))
    assert told.extrapolated == 10  # two of three levels lie below 0.5 kg


def test_an_episode_that_ends_early_is_reported_as_the_bank_reports_it(tight: Bank):
    ended = np.flatnonzero((tight.table["ending"] != "") & (tight.table["kind"] == "forced"))
    assert len(ended) >= 5
    own = own_values(tight, ended, "drag")
    found = donor_histories(tight, ended, "drag", own, length=48)
    assert (found.lengths[:, 0] == tight.table["length"][ended]).all()
    assert (found.reasons[:, 0] == tight.table["ending"][ended]).all()
    # A query at or after the ending has no valid state left; one just before it has a single one.
    length = tight.table["length"][ended]
    rows = length + 3 < 48
    late = query_targets(tight, Queries(ended[rows], length[rows]), "drag", own[rows], steps=3)
    assert (late.lengths == 0).all()
    assert (late.reasons[:, 0] == tight.table["ending"][ended[rows]]).all()
    assert coverage(late).complete == 0
    last = query_targets(tight, Queries(ended[rows], length[rows] - 1), "drag", own[rows], steps=3)
    assert (last.lengths == 1).all()
    # Back in view does not make an episode go on.
    back = query_targets(tight, Queries(ended, np.full(len(ended), 44)), "drag", own, steps=3)
    assert (np.abs(back.states[:, 0, :, :4]) < 0.25).all((1, 2)).any()
    assert (back.lengths[length <= 44] == 0).all()
    # What happens after a window is no ending of it, although another episode's window asks for longer rollouts.
    two = donor_histories(tight, np.repeat(ended, 2), "drag", [1.0], length=3, starts=np.tile([0, 45], len(ended)))
    assert (two.reasons[1::2, 0] != None).any()  # noqa: E711
    early = two.complete[::2, 0]
    assert early.any()
    assert (two.reasons[::2, 0][early] == None).all()  # noqa: E711


def test_frames_are_the_banks(poke: Bank, spring: Bank):
    episodes = np.array([1, 17])
    found = donor_histories(poke, episodes, "mass", own_values(poke, episodes, "mass"), length=6, starts=4)
    drawn = frames(poke.world, found, 16)
    assert drawn.dtype == np.uint8
    assert (drawn[:, 0] == poke["frames"][episodes, 4:10]).all()
    episodes = first_episodes(spring.split("validation"), "forced")
    found = donor_histories(spring, episodes, "mass", [0.5, 2.0], length=48)
    drawn = frames(spring.world, found, (20, 24), rows=[3, 0])
    assert drawn.shape == (2, 2, 48, 20, 24)
    assert (drawn[1] == frames(spring.world, found, (20, 24))[0]).all()
    assert (drawn[0, 0] != drawn[0, 1]).any()


def test_increments_follow_the_physics(bank: Bank):
    """D-Clean without a force: v decays by exp(−γh·dt), and x moves v₀(1 − exp(−γh·dt))/γ."""
    episodes, levels = np.array([0, 9]), np.array([0.3, 1.0, 2.5])
    found = donor_histories(bank, episodes, "drag", levels, length=9)
    silent = Counterfactuals(**{**vars(found), "states": coast(bank, found, levels)})
    change = increments(silent, (4, 8))
    v0 = found.states[:, 0, 0, 2:].astype(np.float64)
    for k, h in enumerate((4, 8)):
        decay = np.exp(-levels * h * bank.world.dt)
        np.testing.assert_allclose(change[:, :, k, 2:], v0[:, None] * (decay - 1)[:, None], rtol=1e-4, atol=1e-6)
        moved = v0[:, None] * ((1 - decay) / levels)[:, None]
        np.testing.assert_allclose(change[:, :, k, :2], moved, rtol=1e-4, atol=1e-6)


def coast(bank: Bank, found: Counterfactuals, levels: np.ndarray) -> np.ndarray:
    """States (n, L, T, S) without a force."""
    n, count, length, size = found.states.shape
    start = np.repeat(found.states[:, 0, 0].astype(np.float64), count, axis=0)
    silent = np.zeros((length - 1, 2), np.float32)
    states = rollout(bank.world, np.tile(levels, n)[:, None], start, silent).states
    return states.astype(np.float32).reshape(n, count, length, size)


def test_refuses_what_it_cannot_simulate(spring: Bank):
    episodes = first_episodes(spring.split("validation"), "cold")
    with pytest.raises(ValueError, match=r"history of 25 from state 0 does not fit .* of 24 planned states"):
        donor_histories(spring, episodes, "mass", [1.0], length=25)
    with pytest.raises(ValueError, match=r"future of 16 steps from state 8 does not fit"):
        query_targets(spring, Queries(episodes, np.full(5, 8)), "mass", [1.0])
    with pytest.raises(ValueError, match=r"level -1.0 of 'mass' is not physical"):
        donor_histories(spring, episodes, "mass", [1.0, -1.0], length=10)
    with pytest.raises(ValueError, match=r"levels of 'mass' must be \(L,\), or \(5, L\)"):
        donor_histories(spring, episodes, "mass", np.ones((2, 3)), length=10)
    with pytest.raises(ValueError, match="mas"):
        donor_histories(spring, episodes, "mas", [1.0], length=10)
    with pytest.raises(ValueError, match="episode ids are 0 to"):
        donor_histories(spring, [len(spring)], "mass", [1.0], length=10)
    with pytest.raises(ValueError, match="starts and anchors are one integer"):
        donor_histories(spring, episodes, "mass", [1.0], length=10, starts=[0, 1])
    found = query_targets(spring, Queries(episodes, np.ones(5, int)), "mass", [1.0], steps=4)
    with pytest.raises(ValueError, match=r"horizons must lie in 1…4"):
        increments(found, (1, 8))
