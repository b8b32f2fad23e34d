"""Contacts of CoPhy's bodies against the mechanics of rigid ones, in closed form."""

import itertools
import math

import numpy as np
import pytest

from sprii_envs.cophy import contacts, objects
from sprii_envs.cophy.balls import Balls, Balls2
from sprii_envs.cophy.blocktower import Blocktower
from sprii_envs.cophy.collision import Collision
from sprii_envs.cophy.contacts import bodies, damping_ratio, lying, state_of, yaw

pytest.importorskip("mujoco")
G = -objects.GRAVITY


def systems(world, n, **values):
    """Values (n, F), nominal but for those named by property (of all objects) or by property and object."""
    full = np.repeat(world.properties.nominal[None], n, axis=0)
    for name, value in values.items():
        for i, p in enumerate(world.properties.names):
            if name == p or p.rpartition("_")[0] == name:
                full[:, i] = value
    return full


def rolled(world, state, values, steps):
    """CoPhy's states (n, steps + 1, K, 13) of rows that nothing pushes."""
    still = [np.zeros((len(state), world.action_size))] * steps
    states = world.trajectory(state, still, world.prepare(values))
    return bodies(states.reshape(-1, states.shape[-1])).reshape(len(state), steps + 1, -1, objects.STATE)


def head_on(speed, gap):
    """Two balls on the ground, the first moving towards the second, `gap` away."""
    n = len(speed)
    place, velocity = np.full((n, 2, 3), objects.RADIUS), np.zeros((n, 2, 3))
    place[:, 0, 0], place[:, 1, 0], place[:, :, 1] = -1.0 - gap, 0.0, 0.0
    velocity[:, 0, 0] = speed
    return state_of(place, velocity)


LEVELS = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0)


def test_restitution_is_the_product_whatever_the_speed_and_the_mass_ratio():
    rows = np.array(list(itertools.product(LEVELS, (2.0, 4.0, 6.0, 8.0), ((1, 1), (1, 5), (5, 1)), range(3))), object)
    e, speed = rows[:, 0].astype(float), rows[:, 1].astype(float)
    mass = np.array(rows[:, 2].tolist(), float)
    gap = 0.1 + rows[:, 3].astype(float) / 3.0 * speed * contacts.STEP
    one = np.sqrt(e)  # the two balls' own
    values = systems(
        Balls2, len(e), friction=0.0, restitution_0=one, restitution_1=one, mass_0=mass[:, 0], mass_1=mass[:, 1]
    )
    seen = rolled(Balls2(), head_on(speed, gap), values, 1)[:, -1, :, 7]
    kept = (seen[:, 1] - seen[:, 0]) / speed
    assert np.abs(kept - e).max() < 0.025
    for level in LEVELS:
        assert abs(kept[e == level].mean() - level) < 0.01
    # Newton's law of impact, of each body.
    total, first, second = mass.sum(axis=1), *mass.T
    assert np.abs(seen[:, 0] - speed * (first - e * second) / total).max() < 0.025 * 8.0
    assert np.abs(seen[:, 1] - speed * first * (1.0 + e) / total).max() < 0.025 * 8.0
    # Momentum: what is missing is what MuJoCo's least friction with the ground takes in 0.2 s.
    momentum = (mass * seen).sum(axis=1)
    assert np.abs(momentum - first * speed).max() < contacts.SMOOTH * G * 6.0 * 0.2
    energy = 0.5 * (mass * seen * seen).sum(axis=1) / (0.5 * first * speed**2)
    assert energy.max() < 1.003


def test_momentum_is_exact_where_no_ground_is_near():
    state = head_on(np.array([3.0, 5.0, 8.0]), np.array([0.1, 0.1, 0.1]))
    state[:, [2, 9]] = 50.0
    state[:, 1] = 0.4  # off centre, so that friction turns them
    values = systems(Balls2, 3, friction=1.0, restitution=0.7, mass_0=5.0)
    seen = rolled(Balls2(), state, values, 1)[:, :, :, 7:10]
    momentum = (np.array([5.0, 1.0])[:, None] * seen).sum(axis=2)
    assert np.abs(seen[:, 1] - seen[:, 0]).max() > 1.0
    assert np.abs(momentum[:, 1, :2] - momentum[:, 0, :2]).max() < 1e-9
    assert np.allclose(momentum[:, 1, 2], momentum[:, 0, 2] - 6.0 * G * 0.2, rtol=0.0, atol=1e-9)


def test_the_table_of_restitutions_is_monotone_and_at_its_upper_end_the_closed_form():
    e = np.linspace(0.0, 1.0, 401)
    ratio = damping_ratio(e)
    assert (np.diff(ratio) <= 0.0).all()
    assert ratio[0] == contacts.DAMPING_RATIOS[-1]
    assert ratio[-1] == 0.0
    for zeta in (0.01, 0.05, 0.1, 0.2):  # a spring and a damper that let go when their force is zero
        w = math.sqrt(1.0 - zeta**2)
        exact = math.exp(-zeta / w * math.atan2(2.0 * zeta * w, 2.0 * zeta**2 - 1.0))
        assert abs(np.interp(zeta, contacts.DAMPING_RATIOS, contacts.RESTITUTIONS) - exact) < 0.003


@pytest.mark.parametrize("kind", [Balls, Collision, Blocktower])
def test_energy_never_rises(kind):
    world, n = kind(), 24
    k, rng = len(world.shapes), np.random.default_rng(1)
    values = world.groups["levels"].from_uniforms(rng.random((n, len(world.properties))))
    if world.rebounds:
        values[: n // 2, 2 * k : 3 * k] = 1.0
    seen = rolled(world, world.initial(rng.random((n, world.start_draws)), values, None), values, 14)
    mass, gravity = values[:, None, :k], np.full((n, 3), (0.0, 0.0, objects.GRAVITY))
    if not world.rebounds:
        gravity[:, :2] = values[:, 2 * k :]
    spin = seen[..., 10:]
    own = np.array([0.4 * 0.25 if s == "sphere" else 1.0 / 6.0 if s == "box" else 0.0 for s in world.shapes])
    turning = own * (spin * spin).sum(axis=-1)
    if kind is Collision:  # a cylinder: along its axis r²/2, across it (3 r² + h²) / 12
        x, y, z, w = np.moveaxis(seen[:, :, 1, 3:7], -1, 0)
        axis = np.stack([2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)], axis=-1)
        along = (axis * spin[:, :, 1]).sum(axis=-1)
        turning[:, :, 1] = 0.125 * along**2 + 1.75 / 12.0 * ((spin[:, :, 1] ** 2).sum(axis=-1) - along**2)
    speed = seen[..., 7:10]
    kinetic = 0.5 * mass * ((speed * speed).sum(axis=-1) + turning)
    height = -(seen[..., :3] * gravity[:, None, None]).sum(axis=-1)
    energy = (kinetic + mass * height).sum(axis=2)
    moving = np.maximum(kinetic.sum(axis=2).max(axis=1, keepdims=True), 1.0)
    if kind is Balls:  # while two are in touch, some of it is in the spring between them
        place = seen[..., :2]
        apart = np.linalg.norm(place[:, :, :, None] - place[:, :, None], axis=-1) + 9.0 * np.eye(k)
        touching = (apart.min(axis=(2, 3)) < 1.0) | (np.abs(place).max(axis=(2, 3)) > objects.WALL - objects.RADIUS)
        assert 0.05 < touching.mean() < 0.8
        energy[touching] = np.nan
    least = np.fmin.accumulate(energy, axis=1)
    # A collision at restitution 1 may leave 0.3 % too much, and a video has several; the ground's contacts are soft.
    assert np.nanmax((energy[:, 1:] - least[:, :-1]) / moving) < (0.01 if world.rebounds else 0.02)


@pytest.mark.parametrize(("friction", "speed"), [(0.1, 2.0), (0.5, 3.0), (0.5, 1.5), (0.25, 3.0)])
def test_a_cube_slides_as_far_as_friction_says(friction, speed):
    world = Blocktower()
    place = np.array([[[0.0, 0.0, 0.5], [0.0, 5.0, 0.5], [0.0, -5.0, 0.5]]])
    velocity = np.zeros((1, 3, 3))
    velocity[0, 0, 0] = speed
    seen = rolled(world, state_of(place, velocity), systems(world, 1, friction_0=friction), 29)[0, :, 0]
    exact = speed**2 / (2.0 * friction * G)
    assert abs(seen[-1, 0] - exact) < 0.02 * exact
    assert np.abs(seen[:, 2] - 0.5).max() < 0.02  # MuJoCo's friction cone lifts it a little when it begins to slide


def test_a_ball_that_slides_ends_rolling_at_five_sevenths_of_its_speed():
    place, velocity = np.full((2, 2, 3), 0.5), np.zeros((2, 2, 3))
    place[:, 0, :2], place[:, 1, :2], velocity[:, 0, 0] = (-3.5, 0.0), (0.0, 3.0), 2.0
    values = systems(Balls2, 2, friction=np.array([0.2, 1.0]))
    seen = rolled(Balls2(), state_of(place, velocity), values, 8)[:, -1, 0]
    assert np.allclose(seen[:, 7], 2.0 * 5.0 / 7.0, rtol=0.01)
    assert np.allclose(seen[:, 11] * objects.RADIUS, seen[:, 7], rtol=0.01)  # of the world: about y


def test_a_ball_rebounds_from_a_wall_with_its_own_restitution():
    e = np.array([0.1, 0.5, 1.0])
    place, velocity = np.full((3, 2, 3), 0.5), np.zeros((3, 2, 3))
    place[:, 0, :2], place[:, 1, :2], velocity[:, 0, 1] = (0.0, 3.5), (3.0, -3.0), 4.0
    seen = rolled(Balls2(), state_of(place, velocity), systems(Balls2, 3, friction=0.0, restitution=e), 1)[:, -1, 0]
    assert np.abs(-seen[:, 8] / 4.0 - e).max() < 0.03


def test_bodies_fall_freely_under_a_tilted_gravity():
    world = Blocktower()
    place = np.zeros((2, 3, 3))
    place[..., 2] = [300.0, 310.0, 320.0]
    values = systems(world, 2, gravity_x=np.array([0.5, -0.3]), gravity_y=-0.5)
    seen = rolled(world, state_of(place, np.zeros((2, 3, 3))), values, 10)
    t, h = np.arange(11) * objects.INTERVAL, world.time_step
    for row, pull in enumerate(([0.5, -0.5, -10.0], [-0.3, -0.5, -10.0])):
        g = np.array(pull)
        assert np.allclose(seen[row, :, :, 7:10], (g * t[:, None])[:, None], rtol=0.0, atol=1e-9)
        exact = place[row] + (0.5 * g * (t * t)[:, None])[:, None]
        # Semi-implicit Euler is ahead by h/2 of the speed.
        assert np.allclose(seen[row, :, :, :3] - exact, (0.5 * h * g * t[:, None])[:, None], rtol=0.0, atol=1e-9)


def test_towers_stand_where_every_part_of_them_is_supported_and_fall_where_none_could():
    world, turn = Blocktower(), yaw(np.zeros((4, 3)))
    place = np.zeros((4, 3, 3))
    place[..., 2] = [0.5, 1.5, 2.5]
    place[0, :, 0] = [0.0, 0.3, 0.1]
    place[1, :, 1] = [0.0, 0.2, 0.5]  # the two upper ones' centre at 0.35
    place[2, :, 0] = [0.0, 0.4, 0.8]  # at 0.6: beyond the edge
    place[3, :, 1] = [0.0, 0.1, 0.7]  # the highest beyond the edge of its own
    values = systems(world, 4, gravity_x=0.5, gravity_y=0.5)
    for heavy in (1.0, 10.0):
        values[:, 2] = values[:, 0] = heavy
        values[2:, 6:] = 0.0
        seen = rolled(world, state_of(place, np.zeros((4, 3, 3)), turn), values, 29)
        moved = np.abs(seen[:, -1, :, :3] - seen[:, 0, :, :3])
        if heavy == 10.0:
            moved = moved[[0, 2, 3]]  # a heavy top moves the centre of row 1 to 0.47
        assert moved[0].max() < 0.02
        assert (moved[-2:, :, 2].max(axis=1) > 0.5).all()


def test_states_in_cophys_order_say_what_mujoco_says():
    import mujoco

    world = Collision()
    model, rng = world.compiled.model, np.random.default_rng(0)
    data = mujoco.MjData(model)
    state = rng.normal(size=(5, 26))
    seen = bodies(state)
    for row, told in zip(state, seen, strict=True):
        data.qpos[:], data.qvel[:] = row[:14], row[14:]
        mujoco.mj_forward(model, data)
        for i, body in enumerate(told):
            speed = np.empty(6)
            mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_BODY, i + 1, speed, 0)
            assert np.allclose(body[:3], data.xpos[i + 1])
            assert np.allclose(body[[6, 3, 4, 5]], data.xquat[i + 1])
            assert np.allclose(body[7:10], speed[3:])
            assert np.allclose(body[10:], speed[:3])


def test_a_lying_cylinder_has_its_axis_level():
    import mujoco

    angle = np.linspace(0.0, 6.0, 7)
    for a, turn in zip(angle, lying(angle), strict=True):
        axis = np.empty(3)
        mujoco.mju_rotVecQuat(axis, np.array([0.0, 0.0, 1.0]), turn)
        assert np.allclose(axis, [math.cos(a), math.sin(a), 0.0])


@pytest.mark.parametrize("kind", [Balls, Collision, Blocktower])
def test_every_pair_that_may_touch_has_the_numbers_of_its_own_two_bodies(kind):
    world, k = kind(), len(kind.shapes)
    values = world.groups["range"].from_uniforms(np.random.default_rng(2).random((1, len(world.properties))))
    model = world.prepare(values).models[0]
    friction = {f"object_{i}": values[0, k + i] for i in range(k)} | {"ground": 1.0}
    own = values[0, 2 * k : 3 * k] if kind.rebounds else [None] * k
    restitution = {f"object_{i}": own[i] for i in range(k)} | {"ground": None}
    friction |= {f"wall_{i}": 0.0 for i in range(4)}
    restitution |= {f"wall_{i}": 1.0 for i in range(4)}
    assert model.npair == k * (k - 1) // 2 + k * len(kind.surfaces)
    for i in range(model.npair):
        a, b = (model.geom(int(g)).name for g in (model.pair_geom1[i], model.pair_geom2[i]))
        assert {a, b} == set(model.pair(i).name.split("-"))
        assert np.allclose(model.pair_friction[i, :2], max(friction[a] * friction[b], contacts.SMOOTH))
        if not kind.rebounds or None in (restitution[a], restitution[b]):
            assert model.pair_solref[i].tolist() == [0.02, 1.0]
        else:
            zeta = float(damping_ratio(np.array(restitution[a] * restitution[b])))
            assert np.allclose(model.pair_solref[i], [-contacts.STIFFNESS, -2 * contacts.STIFFNESS**0.5 * zeta])
