"""The ray caster beside closed forms, SciPy's geometry, and MuJoCo's renderer where OpenGL is."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial import ConvexHull
from scipy.spatial.transform import Rotation

from sprii_envs import raycasting
from sprii_envs.raycasting import BOX, CYLINDER, NOTHING, SPHERE, Camera, Ground, Light, Solids, cast, render

CAMERA = Camera((0.5, -7.0, 4.5), (0.0, 0.0, 1.2), fov=55.0)
STILL = (0.0, 0.0, 0.0, 1.0)


def scenes(n, objects=4, seed=0):
    rng = np.random.default_rng(seed)
    position = rng.uniform((-2.0, -2.0, 0.2), (2.0, 2.0, 2.5), (n, objects, 3))
    kind = rng.integers(-1, 3, (n, objects))
    return Solids(kind, position, rng.normal(size=(n, objects, 4)), rng.uniform(0.2, 0.7, (n, objects, 3)))


def one(kind, position, rotation=STILL, extent=(0.5, 0.5, 0.5)):
    return Solids(np.array([[kind]]), position, rotation, extent)


def frame_of(camera):
    """Rows right, up, forward, by Gram–Schmidt."""
    eye, target, up = (np.array(part) for part in camera[:3])
    forward = (target - eye) / np.linalg.norm(target - eye)
    high = up - (up @ forward) * forward
    high /= np.linalg.norm(high)
    return np.stack([np.cross(forward, high), high, forward])


def project(points, camera, size):
    """World points (…, 3) → columns and rows (…, 2), in pixels."""
    seen = (np.asarray(points) - camera.eye) @ frame_of(camera).T
    focal = size[0] / 2.0 / np.tan(np.radians(camera.fov) / 2.0)
    flat = seen[..., :2] / seen[..., 2:] * focal
    return np.stack([size[1] / 2.0 + flat[..., 0], size[0] / 2.0 - flat[..., 1]], axis=-1)


def unproject(depth, camera):
    """Depths (…, H, W) → the world points that the centres of the pixels see."""
    height, width = depth.shape[-2:]
    focal = height / 2.0 / np.tan(np.radians(camera.fov) / 2.0)
    rows, columns = np.mgrid[:height, :width] + 0.5
    way = np.stack([(columns - width / 2.0) / focal, (height / 2.0 - rows) / focal, np.ones((height, width))], axis=-1)
    return camera.eye + depth[..., None].astype(np.float64) * (way @ frame_of(camera))


def centres(size):
    rows, columns = np.mgrid[: size[0], : size[1]] + 0.5
    return np.stack([columns, rows], axis=-1)


def outside(points, hull):
    """How far points (…, 2) are outside a convex hull, negative inside."""
    return (points @ hull.equations[:, :2].T + hull.equations[:, 2]).max(axis=-1)


def corners(position, rotation, extent):
    signs = np.array(np.meshgrid(*[(-1.0, 1.0)] * 3)).reshape(3, -1).T
    return position + Rotation.from_quat(rotation).apply(signs * extent)


@pytest.mark.parametrize("radius", [0.3, 1.0])
@pytest.mark.parametrize("size", [112, 224])
def test_a_sphere_on_the_axis_is_a_circle_of_the_projected_radius(radius, size):
    distance, camera = 5.0, Camera((0.0, 5.0, 2.0), (0.0, 0.0, 2.0))
    hits = cast(one(SPHERE, (0.0, 0.0, 2.0), extent=(radius, 0.0, 0.0)), camera, size)
    projected = size / 2.0 / np.tan(np.pi / 6.0) * radius / np.sqrt(distance**2 - radius**2)
    away = np.linalg.norm(centres((size, size)) - size / 2.0, axis=-1)
    sure = np.abs(away - projected) > 1e-3
    assert sure.mean() > 0.999
    assert np.array_equal((hits.solid[0] == 0)[sure], (away < projected)[sure])
    # The four pixels in the middle see it just behind its nearest point.
    slope = 0.5 / (size / 2.0 / np.tan(np.pi / 6.0)) * np.sqrt(2.0)
    a = 1.0 + slope**2
    nearest = (distance - np.sqrt(distance**2 - a * (distance**2 - radius**2))) / a
    assert hits.depth[0, size // 2, size // 2] == pytest.approx(nearest, abs=1e-5)


unit = st.floats(-1.0, 1.0)
turned = st.tuples(unit, unit, unit, unit).filter(lambda q: np.linalg.norm(q) > 0.1)
near = st.tuples(st.floats(-2.5, 2.5), st.floats(-2.5, 2.5), st.floats(0.9, 3.0))
thick = st.floats(0.05, 0.5)


@settings(max_examples=30, deadline=None)
@given(position=near, rotation=turned, extent=st.tuples(thick, thick, thick))
def test_a_box_is_the_convex_hull_of_its_projected_corners(position, rotation, extent):
    size = (60, 80)
    solid = cast(one(BOX, position, rotation, extent), CAMERA, size).solid[0]
    hull = ConvexHull(project(corners(position, rotation, np.array(extent)), CAMERA, size))
    far = outside(centres(size), hull)
    assert np.array_equal((solid == 0)[np.abs(far) > 2e-3], (far < 0.0)[np.abs(far) > 2e-3])


@settings(max_examples=30, deadline=None)
@given(position=near, rotation=turned, radius=thick, half=thick)
def test_a_cylinder_is_the_convex_hull_of_its_projected_rims(position, rotation, radius, half):
    size, turn = (60, 80), np.linspace(0.0, 2.0 * np.pi, 721)
    solid = cast(one(CYLINDER, position, rotation, (radius, half, 0.0)), CAMERA, size).solid[0]
    rims = [np.stack([radius * np.cos(turn), radius * np.sin(turn), np.full(721, z)], axis=1) for z in (-half, half)]
    points = position + Rotation.from_quat(rotation).apply(np.concatenate(rims))
    far = outside(centres(size), ConvexHull(project(points, CAMERA, size)))
    assert np.array_equal((solid == 0)[np.abs(far) > 5e-3], (far < 0.0)[np.abs(far) > 5e-3])


def implicit(kind, local, extent):
    """1 on the surface of a solid, less inside, of points (P, 3) along its own axes."""
    if kind == SPHERE:
        return np.linalg.norm(local, axis=-1) / extent[0]
    if kind == CYLINDER:
        return np.maximum(np.linalg.norm(local[:, :2], axis=-1) / extent[0], np.abs(local[:, 2]) / extent[1])
    return np.abs(local / extent).max(axis=-1)


def test_every_hit_lies_on_the_surface_that_it_names_and_nothing_is_before_it():
    given = scenes(40)
    hits = cast(given, CAMERA, 64)
    points = unproject(hits.depth, CAMERA)
    eye, counted = np.array(CAMERA.eye), 0
    for n in range(40):
        for o in range(4):
            if given.kind[n, o] == NOTHING:
                assert not (hits.solid[n] == o).any()
                continue
            turn, extent = Rotation.from_quat(given.rotation[n, o]), given.extent[n, o]
            on = points[n][hits.solid[n] == o]
            counted += len(on)
            values = implicit(given.kind[n, o], turn.inv().apply(on - given.position[n, o]), extent) if len(on) else 1.0
            np.testing.assert_allclose(values, 1.0, atol=2e-4)
            seen = points[n][np.isfinite(hits.depth[n])]
            for share in (0.5, 0.8, 0.9, 0.95, 0.98, 0.995):  # of the way to what is seen, all is air
                before = turn.inv().apply(eye + share * (seen - eye) - given.position[n, o])
                assert implicit(given.kind[n, o], before, extent).min() > 1.0 - 2e-4
    assert counted > 5_000
    ground = (hits.solid == NOTHING) & np.isfinite(hits.depth)
    assert 0.3 < ground.mean() < 0.95
    np.testing.assert_allclose(points[ground][:, 2], 0.0, atol=2e-4)


def test_the_nearer_solid_wins_in_any_order():
    given = scenes(30, objects=5, seed=1)
    together = cast(given, CAMERA, 64)
    order = np.array([3, 0, 4, 2, 1])
    mixed = cast(Solids(*(part[:, order] for part in given)), CAMERA, 64)
    found = np.where(mixed.solid >= 0, order[mixed.solid], NOTHING)
    assert np.array_equal(found, together.solid)
    assert np.array_equal(mixed.depth, together.depth)
    alone = [cast(Solids(*(part[:, o : o + 1] for part in given)), CAMERA, 64).depth for o in range(5)]
    assert np.array_equal(np.min(alone, axis=0), together.depth)
    assert len(np.unique(together.solid)) == 6


def test_what_is_below_the_ground_behind_the_camera_or_around_it_is_not_seen():
    below, behind = one(SPHERE, (0.0, 0.0, -2.0)), one(BOX, (0.5, -14.0, 4.5))
    around = one(BOX, CAMERA.eye, extent=(1.0, 1.0, 1.0))
    assert all((cast(given, CAMERA, 32).solid == NOTHING).all() for given in (below, behind, around))
    assert (cast(below, CAMERA, 32, ground=None).solid == 0).any()
    # A long bar that begins behind the eye and passes beneath it.
    bar = cast(one(BOX, (0.5, -5.0, 3.0), extent=(0.2, 4.0, 0.2)), CAMERA, 64)
    assert (bar.solid[0, -1] == 0).any()
    assert not (bar.solid[0, 0] == 0).any()
    points = unproject(bar.depth, CAMERA)[bar.solid == 0] - (0.5, -5.0, 3.0)
    np.testing.assert_allclose(np.abs(points / (0.2, 4.0, 0.2)).max(axis=-1), 1.0, atol=1e-4)


def test_light_is_lamberts_cosine_beside_the_ambient_share():
    given, light = scenes(20, seed=2), Light((0.3, -0.8, 1.0), ambient=0.3)
    colour = np.random.default_rng(3).uniform(100.0, 255.0, (20, 4, 3))
    hits, picture = cast(given, CAMERA, 64), render(given, colour, CAMERA, 64, light=light)
    points, towards = unproject(hits.depth, CAMERA), np.array(light.direction) / np.linalg.norm(light.direction)
    counted = 0
    for n, o in zip(*np.nonzero(given.kind != NOTHING), strict=True):
        on = hits.solid[n] == o
        turn, extent, kind = Rotation.from_quat(given.rotation[n, o]), given.extent[n, o], given.kind[n, o]
        if not on.any():
            continue
        local = turn.inv().apply(points[n][on] - given.position[n, o])
        if kind == BOX:
            face = np.abs(local / extent)
            normal = np.where(face == face.max(axis=1, keepdims=True), np.sign(local), 0.0)
            edge = np.sort(face, axis=1)[:, 1] > 0.99
        elif kind == SPHERE:
            normal, edge = local / extent[0], np.zeros(len(local), bool)
        else:
            side, cap = np.linalg.norm(local[:, :2], axis=1) / extent[0], np.abs(local[:, 2]) / extent[1]
            normal = np.where(
                (side > cap)[:, None], local * (1.0, 1.0, 0.0) / extent[0], np.sign(local) * (0.0, 0.0, 1.0)
            )
            edge = np.minimum(side, cap) > 0.99
        cosine = np.maximum(turn.apply(normal) @ towards, 0.0)
        expected = colour[n, o] * (0.3 + 0.7 * cosine)[:, None]
        counted += int((~edge).sum())
        assert np.abs(picture[n][on].astype(float) - expected)[~edge].max() < 1.0
    assert counted > 2_000


@pytest.mark.parametrize("kind", [SPHERE, CYLINDER, BOX])
def test_a_shadow_is_where_the_solid_is_between_the_ground_and_the_light(kind):
    light, size, extent = Light((-0.5, 0.4, 1.0)), (96, 96), np.array([0.4, 0.6, 0.5])
    rotation, position = np.array([0.3, -0.2, 0.5, 0.8]), np.array([0.2, 0.1, 1.4])
    given = one(kind, position, rotation, extent)
    hits = cast(given, CAMERA, size)
    plain = Ground(colours=((200.0, 200.0, 200.0), (200.0, 200.0, 200.0)))
    picture = render(given, np.full((1, 3), 255.0), CAMERA, size, light=light, ground=plain)[0]
    ground = (hits.solid[0] == NOTHING) & np.isfinite(hits.depth[0])
    start = unproject(hits.depth, CAMERA)[0][ground]
    steps = np.linspace(0.0, 3.0, 601)[:, None, None]
    way = np.array(light.direction) / np.linalg.norm(light.direction)
    turn = Rotation.from_quat(rotation).inv()
    local = turn.apply((start - position + steps * way).reshape(-1, 3))
    least = implicit(kind, local, extent).reshape(601, -1).min(axis=0)
    sure = np.abs(least - 1.0) > 2e-2
    dark = picture[ground][:, 0] == 100  # the ambient half of 200
    assert np.array_equal(dark[sure], (least < 1.0)[sure])
    assert 40 < dark.sum() < 1000
    bare = render(given, np.full((1, 3), 255.0), CAMERA, size, light=light, ground=plain, shadows=False)[0]
    lit = round(200.0 * (0.5 + 0.5 * way[2]))
    assert (np.abs(bare[ground].astype(int) - lit) <= 1).mean() > 0.97  # pixels at the horizon are in part of the sky


def test_a_frame_depends_on_nothing_but_its_own_row(monkeypatch):
    given, colour = scenes(24, seed=4), np.random.default_rng(5).uniform(0.0, 255.0, (24, 4, 3))
    pictures, hits = render(given, colour, CAMERA, (40, 56)), cast(given, CAMERA, (40, 56))
    for name, value in (("_RAYS", 700), ("_PIXELS", 5000)):  # fewer rays at once, then fewer frames too
        monkeypatch.setattr(raycasting, name, value)
        assert np.array_equal(render(given, colour, CAMERA, (40, 56)), pictures)
        assert np.array_equal(cast(given, CAMERA, (40, 56)).solid, hits.solid)
    for n in (0, 7, 23):
        row = Solids(*(np.asarray(part)[n : n + 1] for part in given))
        assert np.array_equal(render(row, colour[n : n + 1], CAMERA, (40, 56))[0], pictures[n])
        assert np.array_equal(cast(row, CAMERA, (40, 56)).depth[0], hits.depth[n])
    assert render(Solids(*(part[:0] for part in given)), colour[:0], CAMERA, 16).shape == (0, 16, 16, 3)


def test_more_rays_a_pixel_are_the_mean_of_a_larger_picture():
    given, colour = scenes(3, seed=6), np.random.default_rng(7).uniform(0.0, 255.0, (4, 3))
    large = render(given, colour, CAMERA, (96, 120)).astype(np.float64)
    mean = large.reshape(3, 48, 2, 60, 2, 3).mean(axis=(2, 4))
    assert np.abs(render(given, colour, CAMERA, (48, 60), samples=2) - mean).max() <= 0.5
    assert render(given, colour, CAMERA, (8, 4096), samples=2).shape == (3, 8, 4096, 3)  # as large as any picture


def test_a_camera_may_look_straight_down_a_cylinder():
    camera = Camera((0.0, 0.0, 8.0), (0.0, 0.0, 0.0), up=(0.0, 1.0, 0.0))
    hits = cast(one(CYLINDER, (0.0, 0.0, 0.5), extent=(0.5, 0.5, 0.0)), camera, 101)  # the middle ray is along the axis
    focal = 101 / 2.0 / np.tan(np.pi / 6.0)
    away = np.linalg.norm(centres((101, 101)) - 50.5, axis=-1)
    assert np.array_equal(hits.solid[0] == 0, away < 0.5 * focal / 7.0)
    np.testing.assert_allclose(hits.depth[hits.solid == 0], 7.0, atol=1e-5)
    across = render(
        one(CYLINDER, (0.0, 0.0, 0.5), extent=(0.5, 0.5, 0.0)), [[200.0] * 3], camera, 101, light=Light((0.0, 0.0, 1.0))
    )
    assert (across[0][away < 5.0] == 200).all()


WRONG = {
    "kind is ": {"kind": [[7]]},
    "kind is float64": {"kind": [[0.0]]},
    "position is of shape": {"position": (0.0, 0.0)},
    "position is not finite": {"position": (np.nan, 0.0, 0.0)},
    "position is 'here'": {"position": "here"},
    "extent is not positive": {"extent": (0.0, 0.5, 0.5)},
    "rotation is of length 0": {"rotation": (0.0,) * 4},
}


@pytest.mark.parametrize("told", WRONG)
def test_wrong_solids_are_refused(told):
    with pytest.raises(ValueError, match=rf"^{told}"):
        cast(one(BOX, (0.0, 0.0, 1.0))._replace(**WRONG[told]), CAMERA, 32)


def test_wrong_views_are_refused():
    solids = one(SPHERE, (0.0, 0.0, 1.0))
    for camera, told in (
        (CAMERA._replace(target=CAMERA.eye), "camera looks from"),
        (Camera((0.0, 0.0, 5.0), (0.0, 0.0, 0.0)), "camera looks from"),
        (CAMERA._replace(fov=180.0), "camera.fov is 180"),
        (CAMERA._replace(eye=(0.0, np.inf, 1.0)), "camera.eye"),
        (CAMERA._replace(up=(0.0, 1.0)), "camera.up is"),
    ):
        with pytest.raises(ValueError, match=rf"^{told}"):
            cast(solids, camera, 32)
    white = [[255.0] * 3]
    for told, call in {
        "image_size": lambda: cast(solids, CAMERA, 4),
        "light.direction": lambda: render(solids, white, CAMERA, 32, light=Light((1.0, 0.0, 0.0))),
        "light.ambient": lambda: render(solids, white, CAMERA, 32, light=Light(ambient=1.5)),
        "ground.height": lambda: cast(solids, CAMERA, 32, ground=Ground(height=np.nan)),
        "ground.tile": lambda: cast(solids, CAMERA, 32, ground=Ground(tile=0.0)),
        "colour is outside": lambda: render(solids, [[256.0] * 3], CAMERA, 32),
        "colour is of shape": lambda: render(solids, [1.0] * 4, CAMERA, 32),
        "samples is 0": lambda: render(solids, white, CAMERA, 32, samples=0),
        "kind is of 128 solids": lambda: cast(Solids(np.zeros((1, 128), int), (0, 0, 1), STILL, (1, 1, 1)), CAMERA, 32),
    }.items():
        with pytest.raises(ValueError, match=rf"^{told}"):
            call()


BESIDE = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("beside", sys.argv[1])
beside = sys.modules["beside"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(beside)
for camera in beside.CAMERAS.values():
    try:
        beside.Reference(1, camera, 16)
    except Exception as error:
        print("none", error)
        break
    print(*beside.agreement(beside.scenes(12, 4, seed=8), camera, 112))
"""


def test_masks_and_depths_agree_with_mujocos_renderer():
    pytest.importorskip("mujoco")
    script = Path(__file__).parents[2] / "benchmarks" / "raycasting.py"
    graphics = {**os.environ, "MUJOCO_GL": os.environ.get("MUJOCO_GL", "egl")}
    done = subprocess.run([sys.executable, "-c", BESIDE, script], capture_output=True, text=True, env=graphics)
    assert done.returncode == 0, done.stderr
    if done.stdout.startswith("none"):
        pytest.skip(f"no OpenGL: {done.stdout}")
    rows = [[float(word) for word in line.split()] for line in done.stdout.splitlines()]
    assert len(rows) == 3
    for everywhere, solids, depth in rows:
        assert everywhere > 0.999
        assert solids > 0.99
        assert depth < 1e-3
