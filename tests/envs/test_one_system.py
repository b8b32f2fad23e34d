"""One system at a time: Python's numbers give the bits of the array functions, and pictures those among others."""

from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from own_worlds import Kite

from sprii_envs import rendering
from sprii_envs.core import SpriiEnv
from sprii_envs.envs.d_clean import DClean
from sprii_envs.envs.pendulum import Pendulum
from sprii_envs.envs.poke_world import PokeWorld
from sprii_envs.envs.spring_world import SpringWorld
from sprii_envs.vector import SpriiVectorEnv
from sprii_envs.world_checks import check_functions, moved_by_arrays

WORLDS = (
    *(DClean(), DClean(dt=0.3, mass=0.2, force_limit=1e6)),
    *(Pendulum(), Pendulum(gravity=0.0, torque_limit=1e4, speed_limit=1e9)),
    *(PokeWorld(), PokeWorld(restitution=1.0, finger_mass=3.0, damping_ratio=0.0)),
    *(SpringWorld(), SpringWorld(dt=0.9, force_limit=30.0)),
)
EXTREMES = (np.inf, -np.inf, 1.0, -1.0, 0.0, -0.0, 1e-30, 3e38)


def of_any_size(rng, shape, limit):
    """Numbers of every magnitude up to a limit, zeros among them."""
    x = rng.choice([-1.0, 1.0], shape) * 10.0 ** rng.uniform(-12, np.log10(limit), shape)
    return np.where(rng.random(shape) < 0.1, 0.0, x)


def legal_states(world, rng, n):
    """Starts, some of them moved anywhere, with bodies near each other, at a wall, or one upon the other."""
    values = np.array([[p.from_uniform(u) for p, u in zip(world.properties, row, strict=True)]
                       for row in rng.random((n, len(world.properties)))])  # fmt: skip
    values *= 2.0 ** rng.uniform(-2, 2, values.shape)
    low, high = (np.array([getattr(p, f"physical_{end}") for p in world.properties]) for end in ("low", "high"))
    values = np.maximum(np.clip(values, low, high), 1e-3)
    state = world.initial(rng.random((n, world.start_draws)), values, None)
    anywhere = of_any_size(rng, state.shape, 8.0 if isinstance(world, Pendulum) else 1e3)
    kind = rng.integers(0, 4, (n, 1))
    state = np.where(kind == 0, anywhere, np.where(kind == 1, state * 2.0, state))
    if state.shape[1] == 8:
        meeting = state.copy()
        place = (slice(4, 6), slice(0, 2)) if isinstance(world, PokeWorld) else (slice(2, 4), slice(0, 2))
        meeting[:, place[0]] = meeting[:, place[1]] + rng.choice([0.0, 0.1, 0.149], (n, 1)) * rng.normal(size=(n, 2))
        state = np.where(kind == 2, meeting, state)
    if isinstance(world, Pendulum):
        state[:, 1] = np.clip(state[:, 1], -world.speed_limit, world.speed_limit)
    return values, state


@pytest.mark.parametrize("world", WORLDS, ids=lambda w: w.name)
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=12, deadline=None)
def test_slots_of_a_vector_are_single_environments_bit_for_bit(world, seed):
    rng, n = np.random.default_rng(seed), 5
    values, state = legal_states(world, rng, n)
    many = SpriiVectorEnv(world, n, obs_type="state", autoreset_mode="Disabled")
    many.reset(seed=0, options={"system": values, "state": state})
    singles = [SpriiEnv(world) for _ in range(n)]
    for one, value, start in zip(singles, values, state, strict=True):
        one.reset(seed=0, options={"system": value, "state": start})
        assert one._steps_one
    for _ in range(6):
        action = rng.uniform(-1.3, 1.3, (n, world.action_size)).astype(np.float32)
        extreme = rng.random(action.shape) < 0.2
        action[extreme] = rng.choice(EXTREMES, extreme.sum())
        seen, rewards, terminated, truncated, infos = many.step(action)
        for i, one in enumerate(singles):
            slots = one._slots
            alone = moved_by_arrays(world, slots.state.copy(), action[i : i + 1], slots.prepared)
            observation, reward, end, cut, info = one.step(action[i])
            assert one.state.tobytes() == np.array(alone[0]).tobytes()
            assert (reward, end, cut, info) == alone[1:]
            # Where neighbours touch, PokeWorld's arrays add zero to what does not: −0 becomes 0.
            assert np.array_equal(observation, seen[i])
            assert observation.tobytes() == seen[i].tobytes() or isinstance(world, PokeWorld)
            assert np.array_equal(one.state, many._slots.state[i])
            assert reward == rewards[i]
            assert type(reward) is float
            assert (end, cut) == (terminated[i], truncated[i])
            told = {name: array[i] for name, array in infos.items() if infos.get(f"_{name}", [True] * n)[i]}
            assert info == {name: value for name, value in told.items() if not name.startswith("_")}
        if truncated.any():
            break


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_numpys_functions_of_a_number_are_those_of_an_array(name):
    function, rng = getattr(np, name), np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-50, 50, 200_000), of_any_size(rng, 200_000, 1e6)])
    assert [float(function(each)) for each in x.tolist()] == function(x).tolist()


@pytest.mark.slow
def test_numpys_functions_of_millions_of_numbers_are_those_of_an_array():
    rng = np.random.default_rng(1)
    for _ in range(10):
        x = rng.uniform(-(10.0 ** rng.uniform(0, 6)), 50.0, 1_000_000)
        for function in (np.sin, np.cos):
            assert [float(function(each)) for each in x.tolist()] == function(x).tolist()


sizes = st.tuples(st.integers(8, 130), st.integers(8, 130)) | st.integers(8, 130).map(lambda side: (side, side))


@given(sizes, st.floats(0.01, 12.0), st.integers(1, 255), st.integers(0, 2**32 - 1))
@settings(max_examples=150, deadline=None)
def test_one_frame_alone_has_the_bytes_it_has_among_others(size, radius, grey, seed):
    rng, n = np.random.default_rng(seed), 6
    start, end = (np.array(size[::-1]) * rng.uniform(-0.2, 1.2, (n, 2)) for _ in range(2))
    end[0], end[1, 0], end[2, 1] = start[0], start[1, 0], start[2, 1]
    start[3], end[4] = of_any_size(rng, 2, 1e300), of_any_size(rng, 2, 1e300)
    start[5] = np.round(start[5])
    many = rendering.draw(rendering.segment(start, end, radius, grey, size), n, size)
    discs = rendering.draw(rendering.discs((start, end), radius, (grey, 128), size), n, size)
    for i in range(n):
        a, b = start[i : i + 1], end[i : i + 1]
        assert (rendering.draw(rendering.segment(a, b, radius, grey, size), 1, size)[0] == many[i]).all()
        assert (rendering.draw(rendering.discs((a, b), radius, (grey, 128), size), 1, size)[0] == discs[i]).all()


@dataclass(frozen=True, kw_only=True)
class Heavier(DClean):
    """Changes what the arrays do, and says nothing of one system."""

    def reward(self, state, force, after):
        return 2.0 * super().reward(state, force, after)


@dataclass(frozen=True, kw_only=True)
class Turned(Pendulum):
    def observe(self, state):
        return -super().observe(state)


@dataclass(frozen=True, kw_only=True)
class Both(DClean):
    def reward(self, state, force, after):
        return 2.0 * super().reward(state, force, after)

    def step_one(self, state, action, constants):
        after, reward, end, cut, info = super().step_one(state, action, constants)
        return after, 2.0 * reward, end, cut, info


def test_a_class_that_changes_the_arrays_steps_by_them():
    steps = {kind: kind.steps_one() for kind in (DClean, Pendulum, Heavier, Turned, Both)}
    assert steps == {DClean: True, Pendulum: True, Heavier: False, Turned: False, Both: True}
    action, rewards = np.full(2, 0.5, np.float32), []
    for kind in (DClean, Heavier, Both):
        env = SpriiEnv(kind(), system={"drag": 1.0})
        env.reset(seed=1)
        rewards.append(env.step(action)[1])
    assert rewards == [rewards[0], 2.0 * rewards[0], 2.0 * rewards[0]]


def wrong(kind, name, function):
    return dataclass(frozen=True, kw_only=True)(type("Wrong", (kind,), {name: function}))


@pytest.mark.parametrize(
    ("kind", "name", "function", "message"),
    [
        (DClean, "step_one", lambda self, s, a, c: (s, 0.0, False, False, {}),
         r"step_one returned .*; legal: what force"),
        (DClean, "step_one", lambda self, s, a, c: 1 / 0, r"step_one fails: ZeroDivisionError"),
        (Pendulum, "observe_one", lambda self, s: (0.0, 0.0, 0.0),
         r"observe_one returned .*; legal: what observe gives"),
    ],
)  # fmt: skip
def test_the_checks_of_a_world_compare_one_system_with_the_arrays(kind, name, function, message):
    check_functions(kind())
    with pytest.raises(ValueError, match=message):
        check_functions(wrong(kind, name, function)())


def test_a_world_with_half_of_the_path_for_one_system_is_told_what_it_lacks():
    """A kite has neither half; one that moves alone and says not by which constants cannot."""
    legal = "legal: step_one and constants_of_one together, or neither"
    check_functions(Kite())
    half = wrong(Kite, "step_one", lambda self, state, action, constants: (state, 0.0, False, False, {}))
    with pytest.raises(ValueError, match=f"NotImplementedError: Wrong has no constants_of_one; {legal}$"):
        check_functions(half())
    env = SpriiEnv(half())
    env.reset(seed=0)
    with pytest.raises(NotImplementedError, match=f"^Wrong has no constants_of_one; {legal}$"):
        env.step(np.zeros(3, np.float32))
    other = wrong(Kite, "constants_of_one", lambda self, prepared: prepared)
    check_functions(other())  # the arrays move it, as they move a kite
    alone, kite = SpriiEnv(other()), SpriiEnv(Kite())
    for one in (alone, kite):
        one.reset(seed=0)
    assert str(alone.step(np.ones(3, np.float32))) == str(kite.step(np.ones(3, np.float32)))
    with pytest.raises(NotImplementedError, match=f"^Wrong has no step_one; {legal}$"):
        other().step_one([0.0], [0.0], None)


@pytest.mark.parametrize("id", ["sprii/Pendulum-v0", "sprii/D-Clean-v0", "sprii/PokeWorld-v0", "sprii/SpringWorld-v0"])
def test_actions_that_are_not_plain_arrays_move_alike_and_nan_changes_nothing(id):
    env = gym.make(id, obs_type="state")
    size = {"sprii/Pendulum-v0": 1}.get(id, 2)
    given = np.linspace(-0.7, 0.4, size).astype(np.float32)
    outcomes = []
    for action in (given, given.tolist(), given.astype(np.float64), given.astype(">f4"), np.repeat(given, 2)[::2]):
        env.reset(seed=5)
        with pytest.raises(ValueError, match=r"action component \d is nan: it must be a number in \[-1, 1\]"):
            env.unwrapped.step(np.array([0.5] * (size - 1) + [np.nan], np.float32))
        outcomes.append(env.unwrapped.step(action))
    first, *others = outcomes
    for other in others:
        assert first[0].tobytes() == other[0].tobytes()
        assert first[1:] == other[1:]
    with pytest.raises(ValueError, match="must have shape"):
        env.unwrapped.step(np.zeros(size + 1, np.float32))
