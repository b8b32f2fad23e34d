"""CoPhy's pictures, masks and boxes: where things are, what colours they have, and what boxes tell."""

import gymnasium as gym
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from sprii_envs.cophy import objects
from sprii_envs.cophy.pictures import CAMERAS, boxes, masks, pictures


def scene_of(scene, n=6, there=None, seed=0):
    """Random states (n, K, 13) and kinds (n, K): bodies that lie about, of the kinds a scene has."""
    rng = np.random.default_rng(seed)
    slots = len(objects.COLOURS[scene])
    legal = {
        "balls": [objects.SPHERE],
        "collision": [objects.SPHERE, objects.CYLINDER_UP, objects.CYLINDER_DOWN],
        "blocktower": [objects.CUBE],
    }[scene]
    states, kinds = np.zeros((n, slots, objects.STATE), np.float32), np.full((n, slots), objects.ABSENT, np.int8)
    for row in range(n):
        some = rng.permutation(slots)[: there or 3]
        kinds[row, some] = rng.choice(legal, len(some))
        states[row, some, :2] = rng.uniform(-2.0, 2.0, (len(some), 2))
        states[row, some, 2] = rng.uniform(0.5, 2.5, len(some))
        states[row, some, 3:7] = Rotation.random(len(some), rng=rng).as_quat()
        states[row, some, 7:] = rng.normal(size=(len(some), 6))
    return states, kinds


def project(points, scene, size=224):
    """World points (P, 3) → columns and rows, by hand."""
    camera = CAMERAS[scene]
    forward = np.subtract(camera.target, camera.eye)
    forward = forward / np.linalg.norm(forward)
    right = np.cross(forward, (0.0, 0.0, 1.0))
    right /= np.linalg.norm(right)
    away = points - np.array(camera.eye)
    focal = size / 2.0 / np.tan(np.radians(camera.fov) / 2.0)
    across, up, depth = away @ right, away @ np.cross(right, forward), away @ forward
    return np.stack([size / 2.0 + focal * across / depth, size / 2.0 - focal * up / depth], axis=1)


@pytest.mark.parametrize("scene", objects.SCENES)
def test_masks_name_slots_and_pictures_show_their_colours(scene):
    states, kinds = scene_of(scene)
    seen, picture = masks(scene, states, kinds, 224), pictures(scene, states, kinds, 224)
    assert seen.dtype == np.int8
    assert picture.shape == (6, 224, 224, 3)
    for row in range(6):
        for slot, colour in enumerate(objects.COLOURS[scene]):
            on = seen[row] == slot
            assert on.any() <= (kinds[row, slot] != objects.ABSENT)
            if on.sum() < 60:
                continue
            # Light makes a colour darker and leaves its hue. The median is untouched by mixed pixels at the edges.
            shown = np.median(picture[row][on], axis=0)
            palette = np.array(objects.PALETTE[colour], float)
            np.testing.assert_allclose(shown / shown.max(), palette / palette.max(), atol=0.03)
            assert 0.45 < shown.max() / palette.max() <= 1.01
    assert (seen >= 0).mean() > 0.01


@pytest.mark.parametrize("scene", objects.SCENES)
def test_pictures_tell_poses_and_kinds_only(scene):
    states, kinds = scene_of(scene)
    still = states.copy()
    still[..., 7:] = 0.0
    assert np.array_equal(pictures(scene, states, kinds), pictures(scene, still, kinds))
    moved = states.copy()
    moved[kinds != objects.ABSENT, 0] += 0.3
    assert (pictures(scene, moved, kinds) != pictures(scene, states, kinds)).any(axis=(1, 2, 3)).all()


@pytest.mark.parametrize("scene", objects.SCENES)
def test_boxes_bound_the_pixels_of_the_masks(scene):
    states, kinds = scene_of(scene, n=12, seed=1)
    seen, told = masks(scene, states, kinds, 224), boxes(scene, states, kinds)
    assert told.dtype == np.float32
    assert told.shape == (12, len(objects.COLOURS[scene]), 4)
    for row, slot in np.ndindex(told.shape[:2]):
        rows, columns = np.nonzero(seen[row] == slot)
        expected = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1) if len(rows) else (0, 0, 0, 0)
        assert np.array_equal(told[row, slot], expected)
    # Coarser masks tell the same boxes to within their pixels, in the same unit.
    coarse = boxes(scene, states, kinds, 112)
    both = (coarse[..., 2] > 0) & (told[..., 2] > 0)
    assert np.abs(coarse - told)[both].max() <= 2.0
    assert both.sum() > 20


def test_a_cubes_box_is_that_of_its_projected_corners():
    states, kinds = scene_of("blocktower", n=20, there=1, seed=2)
    told = boxes("blocktower", states, kinds)
    for row, slot in zip(*np.nonzero(kinds != objects.ABSENT), strict=True):
        signs = np.array(np.meshgrid(*[(-0.5, 0.5)] * 3)).reshape(3, -1).T
        corners = states[row, slot, :3] + Rotation.from_quat(states[row, slot, 3:7]).apply(signs)
        places = project(corners, "blocktower")
        exact = np.concatenate([places.min(axis=0), places.max(axis=0)])
        # A thin corner may lie between the centres of pixels.
        assert np.abs(told[row, slot] - exact).max() < 2.5
        assert np.abs(told[row, slot] - exact).mean() < 1.0


def test_a_ball_from_above_is_where_the_camera_says():
    states, kinds = np.zeros((1, 9, 13)), np.full((1, 9), objects.ABSENT)
    states[0, 2, :3], states[0, 2, 6], kinds[0, 2] = (3.0, 1.0, 0.5), 1.0, objects.SPHERE
    x1, y1, x2, y2 = boxes("balls", states, kinds)[0, 2]
    where = project(np.array([[3.0, 1.0, 0.5]]), "balls")[0]
    assert where[0] < 112.0 < where[1]  # x runs to the left and y down
    assert np.abs(np.array([(x1 + x2) / 2.0, (y1 + y2) / 2.0]) - where).max() < 1.5
    assert x2 - x1 == pytest.approx(2.0 * objects.RADIUS / 7.5 * 112.0 / np.tan(np.pi / 6.0), rel=0.12)


def test_a_cylinder_lies_or_stands_as_its_rotation_says():
    states, kinds = np.zeros((2, 4, 13)), np.full((2, 4), objects.ABSENT)
    states[:, 1, 2], states[0, 1, 6] = 0.5, 1.0
    states[1, 1, 3:7] = Rotation.from_euler("y", 90, degrees=True).as_quat()
    kinds[0, 1], kinds[1, 1] = objects.CYLINDER_UP, objects.CYLINDER_DOWN
    standing, lying = masks("collision", states, kinds, 224) == 1
    assert 400 < standing.sum() < 5000
    # The standing one shows a round cap at its top, the lying one straight sides: its topmost row is its whole length.
    width = [int(mask[mask.any(axis=1).argmax()].sum()) for mask in (standing, lying)]
    assert width[1] > 1.5 * width[0]
    # The axis is the body's z: turning about it changes nothing.
    turned = states.copy()
    for row in range(2):
        own = Rotation.from_quat(states[row, 1, 3:7]) * Rotation.from_euler("z", 33, degrees=True)
        turned[row, 1, 3:7] = own.as_quat()
    assert (masks("collision", turned, kinds) == masks("collision", states, kinds)).mean() > 0.9995


def test_what_is_hidden_absent_or_taken_away_has_a_box_of_zeros():
    states, kinds = np.zeros((1, 4, 13)), np.full((1, 4), objects.ABSENT)
    states[0, :2, :3], states[0, :2, 6], kinds[0, :3] = ((0.0, 2.0, 0.6), (0.0, -1.0, 1.5)), 1.0, objects.CUBE
    assert boxes("blocktower", states, kinds)[0, 0, 2] > 0.0
    eye = np.array(CAMERAS["blocktower"].eye)
    states[0, 1, :3] = eye + 0.4 * (states[0, 0, :3] - eye)  # on the line of sight
    told = boxes("blocktower", states, kinds)[0]
    assert not told[[0, 2, 3]].any()
    assert told[1, 2] - told[1, 0] > 40.0
    assert not (masks("blocktower", states, kinds) == 2).any()


@pytest.mark.parametrize("name", ["Balls", "Balls6", "Collision", "Blocktower", "Blocktower4"])
def test_environments_show_these_pictures(name):
    pytest.importorskip("mujoco")
    id_ = f"sprii/CoPhy{name}-v0"
    env = gym.make(id_, obs_type="pixels", render_mode="rgb_array", image_size=48).unwrapped
    state = gym.make(id_, obs_type="state").unwrapped
    frames, _ = env.reset(seed=3)
    told = state.reset(seed=3)[0].reshape(-1, objects.STATE)
    scene, k = env.world.scene, len(told)
    slots = len(objects.COLOURS[scene])
    states, kinds = np.zeros((1, slots, objects.STATE)), np.full((1, slots), objects.ABSENT)
    states[0, :k] = told
    shapes = {"sphere": objects.SPHERE, "cylinder": objects.CYLINDER_DOWN, "box": objects.CUBE}
    kinds[0, :k] = [shapes[shape] for shape in env.world.shapes]
    expected = pictures(scene, states, kinds, 48)[0].astype(float) @ (0.299, 0.587, 0.114)
    # States are told in float32, which may move an edge across the centre of a pixel.
    assert np.median(np.abs(frames[..., 0] - expected)) <= 0.5
    assert (np.abs(frames[..., 0] - expected) > 1.0).mean() < 0.005
    side = env.render().shape[0]
    shown = pictures(scene, states, kinds, side)[0]
    assert (np.abs(env.render().astype(int) - shown) > 1).mean() < 0.005
    # Another system in the same state looks the same.
    p = env.persistent_properties
    for values in (p.low, p.high):
        again, _ = env.reset(options={"system": dict(zip(p.names, values, strict=True)), "state": env.state})
        assert np.array_equal(again, frames)
    assert (env.reset(seed=4)[0] != frames).any()


def test_wrong_arguments_are_refused():
    states, kinds = scene_of("collision")
    for told, call in {
        "scene is 'towers'": lambda: pictures("towers", states, kinds),
        r"states and kinds of balls are of shapes \(6, 4, 13\)": lambda: masks("balls", states, kinds),
        "states and kinds of collision": lambda: boxes("collision", states, kinds[:2]),
        "kinds are": lambda: pictures("collision", states, np.full((6, 4), 9)),
        "position is not finite": lambda: pictures("collision", np.full_like(states, np.nan), np.zeros((6, 4), int)),
        "image_size": lambda: pictures("collision", states, kinds, 2),
    }.items():
        with pytest.raises(ValueError, match=rf"^{told}"):
            call()
