"""Counterfactual pairs: what differs between the two videos of a row, how rows are drawn, and what happens in them."""

import dataclasses
import re

import gymnasium as gym
import numpy as np
import pytest

from sprii_envs.cophy import objects, simulation
from sprii_envs.cophy.blocktower import FALLEN, stable
from sprii_envs.cophy.objects import ABSENT, COLOURS, CYLINDER_DOWN, CYLINDER_UP, LEVELS, SPHERE, env_id
from sprii_envs.cophy.outcomes import outcomes
from sprii_envs.cophy.simulation import Pairs, rate, simulate

pytest.importorskip("mujoco")

EVERY = [("balls", 2), ("balls", 4), ("balls", 6), ("collision", 2), ("blocktower", 3), ("blocktower", 4)]
every_scene = pytest.mark.parametrize(("scene", "count"), EVERY)


@pytest.fixture(scope="module")
def some():
    """64 pairs of each scene."""
    return {(s, k): simulate(s, k, "normal", range(64), seed=1) for s, k in (("balls", 4), *EVERY[3:5])}


def rows_of(pairs: Pairs, rows):
    return [x[rows] for x in pairs[:-1]] + [tuple(pairs.explanations[i] for i in rows)]


def equal(one, two):
    return all(np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b for a, b in zip(one, two, strict=True))


@every_scene
def test_rows_have_the_published_shapes(scene, count):
    pairs = simulate(scene, count, rows=range(3))
    t, k = objects.FRAMES[scene], len(COLOURS[scene])
    assert pairs.ab.shape == pairs.cd.shape == (3, t, k, 13)
    assert pairs.ab.dtype == pairs.cd.dtype == np.float32
    assert pairs.kinds.dtype == np.int8
    there = pairs.kinds != ABSENT
    assert (there.sum(axis=1) == count).all()
    assert (pairs.ab[..., :3].any(axis=-1) == there[:, None]).all()  # as the published loader tells presence
    for name in ("mass", "friction", "restitution"):
        value = getattr(pairs, name)
        assert value.dtype == np.float64
        assert (value[~there] == 0.0).all()
        levels = LEVELS[scene].get(name, (0.0,))
        assert np.isin(value[there], levels).all()
    assert np.isin(pairs.gravity[:, :2], LEVELS[scene].get("gravity_x", (0.0,))).all()
    assert (pairs.gravity[:, 2] == -10.0).all()
    turn = np.linalg.norm(pairs.ab[..., 3:7], axis=-1)
    assert np.allclose(turn, there[:, None], atol=1e-6)


@every_scene
def test_a_row_is_the_same_in_any_company(scene, count, monkeypatch):
    wanted = [7, 2, 40]
    together = simulate(scene, count, rows=wanted, seed=5)
    alone = [simulate(scene, count, rows=[row], seed=5) for row in wanted]
    for i, one in enumerate(alone):
        assert equal(rows_of(together, [i]), rows_of(one, [0]))
    monkeypatch.setattr(simulation, "TOGETHER", 2)
    assert equal(together, simulate(scene, count, rows=wanted, seed=5))
    assert not np.array_equal(together.ab, simulate(scene, count, rows=wanted, seed=6).ab)


def test_a_variant_and_what_it_holds_out_draw_anew():
    one = simulate("collision", 2, "normal", range(2)).ab
    assert not np.array_equal(one, simulate("collision", 2, "moving_sphere", range(2)).ab)


@every_scene
def test_without_an_intervention_the_two_videos_are_the_same_bits(scene, count, monkeypatch):
    real = simulation._INTERVENTIONS[scene]

    def nothing(start, u):
        change = real(start, u)
        none = np.zeros(len(u), np.bool_)
        return change._replace(by=0.0 * change.by, velocity=np.full_like(change.by, np.nan), removed=none)

    true = simulate(scene, count, rows=range(3))
    monkeypatch.setitem(simulation._INTERVENTIONS, scene, nothing)
    pairs = simulate(scene, count, rows=range(3))
    assert np.array_equal(pairs.ab, pairs.cd)
    assert np.array_equal(pairs.ab, true.ab)
    assert not np.array_equal(true.ab, true.cd)


NUMBERS = re.compile(r"(move|velocity|remove) color=(\w+)(?: (?:by|to)=([-\d.]+),([-\d.]+),([-\d.]+))?")


@pytest.mark.parametrize(("scene", "count"), [("balls", 4), *EVERY[3:5]])
def test_starts_differ_in_what_the_explanation_says_and_in_nothing_else(scene, count, some):
    pairs, seen = some[scene, count], set()
    for row, text in enumerate(pairs.explanations):
        done, colour, *numbers = NUMBERS.fullmatch(text).groups()
        slot = COLOURS[scene].index(colour)
        assert pairs.kinds[row, slot] != ABSENT
        ab, cd = pairs.ab[row, 0].copy(), pairs.cd[row, 0]
        if done == "remove":
            assert scene == "blocktower"
            assert ab[slot, 2] == ab[:, 2].max()
            assert not pairs.cd[row, :, slot].any()
            ab[slot] = 0.0
        elif done == "move":
            by = np.array(numbers, float)
            length = np.linalg.norm(by)
            low, high = {"balls": (0.5, 2.0), "collision": (0.2, 1.0), "blocktower": (0.1, 2.0)}[scene]
            assert low - 1e-3 <= length <= high + 1e-3
            assert np.allclose(cd[slot, :3] - ab[slot, :3], by, atol=2e-4)
            ab[slot, :3] = cd[slot, :3]
        else:
            assert scene != "blocktower"
            assert np.allclose(cd[slot, 7:10], np.array(numbers, float), atol=1e-4)
            if scene == "collision":  # the same speed in another direction
                assert np.isclose(np.linalg.norm(cd[slot, 7:10]), np.linalg.norm(ab[slot, 7:10]))
            ab[slot, 7:10] = cd[slot, 7:10]
        assert np.array_equal(ab, cd)
        seen.add(done)
    assert (
        seen
        == {"balls": {"move", "velocity"}, "collision": {"move", "velocity"}, "blocktower": {"move", "remove"}}[scene]
    )


@pytest.mark.parametrize(("scene", "count"), [("balls", 6), ("collision", 2)])
def test_no_two_bodies_overlap_at_a_start(scene, count):
    pairs = simulate(scene, count, rows=range(128), seed=2)
    for video in (pairs.ab, pairs.cd):
        place = np.where((pairs.kinds != ABSENT)[..., None], video[:, 0, :, :2].astype(float), np.nan)
        apart = np.linalg.norm(place[:, :, None] - place[:, None], axis=-1)
        apart[:, np.eye(place.shape[1], dtype=bool)] = np.nan
        assert np.nanmin(apart) > (1.1 - 1e-6 if scene == "balls" else 1.2)
        assert np.nanmax(np.abs(place)) < objects.WALL - objects.RADIUS


def test_a_video_is_what_the_environment_shows():
    for scene, count in (("balls", 2), ("collision", 2), ("blocktower", 3)):
        pairs = simulate(scene, count, rows=[3], seed=9)
        env = gym.make(env_id(scene, count), obs_type="state").unwrapped
        there = np.flatnonzero(pairs.kinds[0] != ABSENT)
        slots = there[np.argsort(pairs.kinds[0, there], kind="stable")]  # a ball is Collision's object 0
        if scene == "blocktower":
            slots = there[np.argsort(pairs.ab[0, 0, there, 2])]  # and the lowest cube that of Blocktower
        start = pairs.ab[0, 0, slots].astype(float)
        columns = [pairs.mass, pairs.friction] + ([pairs.restitution] if scene != "blocktower" else [])
        values = np.concatenate([c[0, slots] for c in columns])
        if scene == "blocktower":
            values = np.concatenate([values, pairs.gravity[0, :2]])
        poses = start[:, [0, 1, 2, 6, 3, 4, 5]].ravel()
        state = np.concatenate([poses, start[:, 7:13].ravel()])
        env.reset(options={"system": values, "state": state})
        for t in range(1, 5):
            seen = env.step(np.zeros(env.action_space.shape, np.float32))[0].reshape(-1, 13)
            # The start is rounded to float32, and soft contacts multiply what is rounded off.
            assert np.allclose(seen[:, :3], pairs.ab[0, t, slots, :3], atol=2e-3)


def test_generalising_towers_keep_the_parity_of_heavy_cubes_and_every_level_of_each():
    world = simulation.world_for("blocktower", 3)
    u = np.random.default_rng(0).random((600, len(world.properties)))
    for held_out in (False, True):
        heavy = simulation.systems(world, "generalization", u, held_out)[:, :3] == 10.0
        assert (heavy.sum(axis=1) % 2 == int(held_out)).all()
        assert np.abs(heavy.mean(axis=0) - 0.5).max() < 0.08


def test_levels_of_rows_and_their_colours_are_uniform(some):
    pairs = some["balls", 4]
    there = pairs.kinds != ABSENT
    for name in ("mass", "friction", "restitution"):
        share = [(getattr(pairs, name)[there] == level).mean() for level in LEVELS["balls"][name]]
        assert np.abs(np.array(share) - 1.0 / 3.0).max() < 0.1  # 256 objects: deviation 0.03
    assert np.abs(there.mean(axis=0) - 4.0 / 9.0).max() < 0.25  # 64 rows: deviation 0.06


def test_variants_say_which_of_the_two_moves():
    def movers(*args, **kwargs):
        pairs = simulate("collision", 2, *args, rows=range(24), **kwargs)
        moving = pairs.ab[:, 0, :, 7:9].any(axis=-1)
        assert (moving.sum(axis=1) == 1).all()
        assert ((pairs.kinds == SPHERE).sum(axis=1) == 1).all()
        assert np.isin(pairs.kinds.max(axis=1), (CYLINDER_UP, CYLINDER_DOWN)).all()
        return set(pairs.kinds[moving].tolist())

    cylinders = {CYLINDER_UP, CYLINDER_DOWN}
    assert movers("normal") == cylinders | {SPHERE}
    assert movers("moving_cylinder") == movers("moving_sphere", held_out=True) == cylinders
    assert movers("moving_sphere") == movers("moving_cylinder", held_out=True) == {SPHERE}


def test_a_standing_cylinder_stands_and_a_lying_one_lies(some):
    pairs = some["collision", 2]
    x, y = pairs.ab[:, 0, :, 3], pairs.ab[:, 0, :, 4]
    upright = 1.0 - 2.0 * (x * x + y * y)
    assert np.allclose(upright[pairs.kinds == CYLINDER_UP], 1.0)
    assert np.allclose(upright[pairs.kinds == CYLINDER_DOWN], 0.0, atol=1e-6)


def test_outcomes_are_told_apart_and_none_is_rare(some):
    tower = outcomes(some["blocktower", 3])
    heights = some["blocktower", 3].ab[..., 2]
    assert tower["ab_falls"] == 1.0 - stable(heights).mean()
    assert 0.3 < tower["ab_falls"] < 0.8
    assert 0.15 < tower["other_outcome"] < 0.6
    assert 0.1 < tower["removed"] < 0.45
    hit = outcomes(some["collision", 2])
    assert 0.55 < hit["ab_hits"] < 0.95
    assert 0.1 < hit["other_outcome"] < 0.5
    ball = outcomes(some["balls", 4])
    assert 0.4 < ball["ab_touch"] < 0.85
    assert 0.6 < ball["ab_walls"] <= 1.0
    for told in (tower, hit, ball):
        assert told["moved_apart"] > 0.3


def test_outcomes_of_videos_made_by_hand():
    two = simulate("blocktower", 3, rows=[0, 0])
    still = np.repeat(two.ab[:, :1], 30, axis=1)
    fallen = still.copy()
    top = int(still[0, 0, :, 2].argmax())
    fallen[1, -1, top, 2] -= 2.0 * FALLEN
    told = outcomes(two._replace(ab=still, cd=fallen))
    assert told["ab_falls"] == 0.0
    assert told["cd_falls"] == told["other_outcome"] == 0.5


@pytest.mark.parametrize(
    ("args", "kwargs", "says"),
    [
        (("ball", 2), {}, "scene is 'ball'; legal: balls, collision, blocktower"),
        (("balls", 7), {}, "objects of balls is 7; legal: 2, 3, 4, 5, 6"),
        (("collision", True), {}, "objects of collision is True; legal: 2"),
        (("balls", 2, "moving_sphere"), {}, "variant of balls is 'moving_sphere'; legal: normal"),
        (("balls", 2), {"held_out": True}, "held_out of balls's variant 'normal' is True"),
        (("balls", 2), {"rows": [-1]}, r"rows is \[-1\]; legal"),
        (("balls", 2), {"rows": [0.5]}, r"rows is \[0.5\]; legal"),
        (("balls", 2), {"rows": []}, r"rows is \[\]; legal"),
        (("balls", 2), {"rows": 3}, "rows is 3; legal"),
        (("balls", 2), {"seed": -1}, "seed is -1"),
    ],
)
def test_what_is_no_scene_variant_row_or_seed_is_refused(args, kwargs, says):
    with pytest.raises(ValueError, match=says):
        simulate(*args, **kwargs)


def test_a_rate_is_a_positive_number():
    assert rate("collision", 2, rows=2) > 0.0


def test_every_number_of_objects_has_an_environment_of_as_many():
    for scene, counts in objects.OBJECTS.items():
        for count in counts:
            world = simulation.world_for(scene, count)
            assert (len(world.shapes), world.max_episode_steps) == (count, objects.FRAMES[scene] - 1)
            assert world.dt == objects.INTERVAL
            assert dataclasses.asdict(world)["impulse_limit"] == 2.0
