"""CoPhy's worlds as environments, and their page."""

import math
import re
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from sprii_envs.cophy import contacts, objects
from sprii_envs.cophy.balls import Balls2
from sprii_envs.cophy.simulation import world_for
from sprii_envs.effects import without_effect
from sprii_envs.world import sensitivity
from sprii_envs.world_checks import check_functions

pytest.importorskip("mujoco")

PAGE = (Path(__file__).parents[2] / "docs" / "envs" / "cophy.md").read_text(encoding="utf-8")
EVERY = [(scene, count) for scene, counts in objects.OBJECTS.items() for count in counts]
every_scene = pytest.mark.parametrize(("scene", "count"), EVERY)


@every_scene
@pytest.mark.filterwarnings("error")
def test_every_number_of_objects_makes_an_environment_that_gymnasium_accepts(scene, count):
    from stable_baselines3.common.env_checker import check_env as sb3_check_env

    id = objects.env_id(scene, count)
    env = gym.make(id, obs_type="state").unwrapped
    check_env(env, skip_render_check=True)
    sb3_check_env(env, skip_render_check=True)
    assert env.observation_space.shape == (13 * count,)
    assert env.action_space.shape == (2 * count,)
    check_functions(env.world, steps=2)
    vector = gym.make_vec(id, num_envs=3, obs_type="state")
    seen, _ = vector.reset(seed=4)
    after = vector.step(np.zeros((3, 2 * count), np.float32))[0]
    for i in range(3):
        first, _ = env.reset(seed=4 + i)
        assert np.array_equal(first, seen[i])
        assert np.array_equal(env.step(np.zeros(2 * count, np.float32))[0], after[i])


@pytest.mark.parametrize(("scene", "count"), [("balls", 4), ("collision", 2), ("blocktower", 3)])
def test_every_property_moves_the_future(scene, count):
    assert without_effect(world_for(scene, count), change=None, steps=24, starts=2) == ()


def test_an_impulse_changes_momentum_by_itself_and_nothing_without_one():
    world = Balls2()
    place = np.array([[[-2.0, 0.0, 50.0], [2.0, 0.0, 50.0]]])
    values = world.properties.batch(world.properties.system(mass_0=2.0, mass_1=5.0).vector(), 1)
    action = np.array([[1.0, -0.5, 0.0, 0.25]], np.float32)
    after, _ = world.step(contacts.state_of(place, np.zeros((1, 2, 3))), world.force(action), world.prepare(values))
    speed = contacts.bodies(after)[0, :, 7:9]
    assert np.allclose(speed, [[2.0 / 2.0, -1.0 / 2.0], [0.0, 0.5 / 5.0]], rtol=0.0, atol=1e-12)


def test_the_sensitivity_of_a_rebound_is_told_at_the_end_of_the_domain_too():
    world, place, velocity = Balls2(), np.full((1, 2, 3), 0.5), np.zeros((1, 2, 3))
    place[:, 0, :2], place[:, 1, :2], velocity[:, 0, 1] = (0.0, 3.5), (3.0, -3.0), 4.0
    still = np.zeros((1, 4), np.float32)
    for e in (0.8, 1.0):
        values = world.properties.system(restitution_0=e, friction_0=0.0).vector()
        told = sensitivity(world, values, "restitution_0", contacts.state_of(place, velocity)[0], still, relative=0.1)
        speed = told[-1, world.state_names.index("object_0_y_velocity")]
        assert math.isclose(speed, -4.0 * e, rel_tol=0.08)


def test_starts_that_are_random_as_they_are_take_no_noise():
    with pytest.raises(ValueError, match=r"start_noise is 0\.1"):
        Balls2(start_noise=0.1)
    with pytest.raises(ValueError, match="impulse_limit"):
        Balls2(impulse_limit=0.0)


def test_a_query_says_which_of_the_two_moves():
    env = gym.make("sprii/CoPhyCollision-v0", obs_type="state").unwrapped
    for query, mover in (("moving_sphere", 0), ("moving_cylinder", 1)):
        for seed in range(4):
            observation, _ = env.reset(seed=seed, options={"query": query})
            speed = np.linalg.norm(observation.reshape(2, 13)[:, 7:10], axis=1)
            assert 3.0 <= speed[mover] <= 5.0
            assert speed[1 - mover] == 0.0


def test_the_page_runs_and_its_table_names_the_levels(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(block, "cophy.md", "exec"), names)
    assert names["observation"].shape == (52,)
    assert names["pairs"].ab.shape == (4, 15, 4, 13)
    for scene, column in (("balls", 3), ("collision", 3), ("blocktower", 4)):
        for name, levels in objects.LEVELS[scene].items():
            (row,) = re.findall(rf"^\|[^|]*`{name}[_\d]*`.*$", PAGE, re.MULTILINE)
            told = [float(each.replace("−", "-")) for each in row.split("|")[column].split(",")]
            assert tuple(told) == levels
    for scene, count in EVERY:
        tail = objects.env_id(scene, count).removeprefix("sprii/CoPhy").removesuffix("-v0")
        assert tail in PAGE or f"`…{count}`" in PAGE
