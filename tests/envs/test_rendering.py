"""The batched rasteriser against a brute-force full-frame distance field."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sprii_envs import rendering


def brute_force(x, y, radius, grey, size):
    rows, columns = np.mgrid[: size[0], : size[1]] + 0.5
    coverage = np.clip(radius + 0.5 - np.hypot(columns - x, rows - y), 0.0, 1.0)
    return coverage * grey


@given(
    st.lists(st.tuples(st.floats(-40, 80), st.floats(-40, 80)), min_size=1, max_size=8),
    st.floats(0.3, 12.0),
    st.integers(1, 255),
    st.sampled_from([(32, 32), (24, 40), (8, 8)]),
)
@settings(max_examples=40, deadline=None)
def test_discs_match_a_full_frame_distance_field(centres, radius, grey, size):
    centres = np.array(centres)
    frames = rendering.draw([rendering.disc(centres, radius, grey, size)], len(centres), size)
    for frame, (x, y) in zip(frames, centres, strict=True):
        assert np.abs(frame - brute_force(x, y, radius, grey, size)).max() <= 0.51


def test_a_frame_does_not_depend_on_its_neighbours():
    centres = np.random.default_rng(0).uniform(-5, 37, (33, 2))
    together = rendering.draw([rendering.disc(centres, 3.3, 200, (32, 32))], 33, (32, 32))
    for i in range(33):
        one = rendering.draw([rendering.disc(centres[i : i + 1], 3.3, 200, (32, 32))], 1, (32, 32))
        assert np.array_equal(one[0], together[i])


def test_brighter_paints_over_darker_in_either_order():
    size, a, b = (16, 16), np.array([[7.0, 8.0]]), np.array([[9.0, 8.0]])
    dark, bright = rendering.disc(a, 3.0, 96, size), rendering.disc(b, 3.0, 224, size)
    one = rendering.draw([dark, bright], 1, size)
    assert np.array_equal(one, rendering.draw([bright, dark], 1, size))
    apart = np.maximum(rendering.draw([dark], 1, size), rendering.draw([bright], 1, size))
    assert np.array_equal(one, apart)


def test_channels_are_written_apart():
    size = (16, 16)
    a, b = (
        rendering.disc(np.array([[4.0, 4.0]]), 2.0, 224, size),
        rendering.disc(np.array([[9.0, 9.0]]), 2.0, 224, size),
    )
    pair = rendering.draw_pair([a], [b], 1, size)
    assert np.array_equal(pair[..., 0], rendering.draw([a], 1, size))
    assert np.array_equal(pair[..., 1], rendering.draw([b], 1, size))


def test_world_coordinates_have_y_up_and_the_origin_in_the_middle():
    pixels = rendering.to_pixels(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), 2.0, (64, 32))
    assert pixels.tolist() == [[16.0, 32.0], [32.0, 32.0], [16.0, 16.0]]


def test_far_away_and_huge_coordinates_draw_nothing():
    centres = np.array([[1e300, 0.0], [0.0, -1e300], [-1e9, 1e9]])
    assert not rendering.draw([rendering.disc(centres, 2.0, 255, (16, 16))], 3, (16, 16)).any()


@pytest.mark.parametrize("bad", [7, 0, -4, (64,), (64, 64, 2), (64, 2.5), 5000, 2.5, None, "64", True])
def test_bad_image_sizes_are_refused(bad):
    with pytest.raises(ValueError, match="image_size"):
        rendering.image_size(bad)


def brute_force_capsule(start, end, radius, grey, size):
    rows, columns = np.mgrid[: size[0], : size[1]] + 0.5
    d = end - start
    t = np.clip(((columns - start[0]) * d[0] + (rows - start[1]) * d[1]) / max(d @ d, 1e-30), 0.0, 1.0)
    distance = np.hypot(columns - start[0] - t * d[0], rows - start[1] - t * d[1])
    return np.clip(radius + 0.5 - distance, 0.0, 1.0) * grey


places = st.tuples(st.floats(-40, 80), st.floats(-40, 80))


@given(
    st.lists(st.tuples(places, places), min_size=1, max_size=8),
    st.sampled_from([1.0, 0.1, 0.0]),
    st.floats(0.3, 8.0),
    st.integers(1, 255),
    st.sampled_from([(32, 32), (24, 40), (40, 24), (8, 8)]),
)
@settings(max_examples=40, deadline=None)
def test_capsules_match_a_full_frame_distance_field(pairs, stretch, radius, grey, size):
    start, end = (np.array([pair[i] for pair in pairs]) for i in (0, 1))
    end = start + stretch * (end - start)  # down to points
    frames = rendering.draw(rendering.segment(start, end, radius, grey, size), len(pairs), size)
    for frame, p, q in zip(frames, start, end, strict=True):
        assert np.abs(frame - brute_force_capsule(p, q, radius, grey, size)).max() <= 0.52


def test_a_capsule_does_not_depend_on_its_neighbours():
    rng = np.random.default_rng(0)
    start, end = rng.uniform(-5, 37, (33, 2)), rng.uniform(-5, 37, (33, 2))
    together = rendering.draw(rendering.segment(start, end, 1.3, 200, (32, 32)), 33, (32, 32))
    for i in range(33):
        one = rendering.segment(start[i : i + 1], end[i : i + 1], 1.3, 200, (32, 32))
        assert np.array_equal(rendering.draw(one, 1, (32, 32))[0], together[i])


def test_discs_in_one_go_are_the_discs_one_by_one():
    rng = np.random.default_rng(1)
    a, b = rng.uniform(-5, 37, (9, 2)), rng.uniform(-5, 37, (9, 2))
    pair = rendering.discs((a, b), 2.7, (96, 224), (32, 40))
    for patch, centre, grey in zip(pair, (a, b), (96, 224), strict=True):
        one = rendering.draw([rendering.disc(centre, 2.7, grey, (32, 40))], 9, (32, 40))
        assert np.array_equal(rendering.draw([patch], 9, (32, 40)), one)


def test_layers_blend_in_their_colours_over_the_background():
    size = (16, 16)
    under = [rendering.disc(np.array([[8.0, 8.0]]), 4.0, 255, size)]
    over = rendering.segment(np.array([[2.0, 8.5]]), np.array([[14.0, 8.5]]), 0.2, 255, size)
    frame = rendering.compose([(under, (200, 0, 0)), (over, (0, 100, 0))], 1, size, background=(10, 20, 30))[0]
    assert frame[0, 0].tolist() == [10, 20, 30]
    assert frame[6, 8].tolist() == [200, 0, 0]
    assert frame[8, 8].tolist() == pytest.approx([60, 70, 0], abs=1)  # coverage 0.7 of the line over the disc
