"""The counter-based generator against the known answers of Random123, and its statistics."""

import numpy as np
import pytest
from scipy import stats

from sprii_envs.randomness import STATE, SYSTEM, philox, uniforms

# kat_vectors of Random123 1.14: philox4x32, 10 rounds: (counter, key, answer).
ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text):
    return tuple(np.array([int(w, 16)], np.uint64) for w in text.split())


@pytest.mark.parametrize(("counter", "key", "answer"), ANSWERS)
def test_philox_gives_the_known_answers(counter, key, answer):
    got = philox(words(counter), words(key))
    assert [f"{int(w):08x}" for w in got[:, 0]] == answer.split()


def test_philox_agrees_with_a_scalar_implementation():
    def scalar(c, k):
        for _ in range(10):
            a, b = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
            c = [(b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k[1], a & 0xFFFFFFFF]
            k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
        return c

    rng = np.random.default_rng(0)
    c, k = (
        rng.integers(2**32, size=(4, 50), dtype=np.uint64),
        rng.integers(2**32, size=(2, 50), dtype=np.uint64),
    )
    got = philox(tuple(c), tuple(k))
    for i in range(50):
        assert got[:, i].tolist() == scalar([int(x) for x in c[:, i]], [int(x) for x in k[:, i]])


def test_a_slot_does_not_depend_on_its_neighbours_or_on_how_many_are_drawn():
    rng = np.random.default_rng(1)
    key, episode = rng.integers(2**64, size=(2, 37), dtype=np.uint64)
    together = uniforms(key, episode, 5)
    for i in (0, 17, 36):
        assert np.array_equal(uniforms(key[i : i + 1], episode[i : i + 1], 5)[0], together[i])
    assert np.array_equal(uniforms(key, episode, 3), together[:, :3])
    assert uniforms(key, episode, 0).shape == (37, 0)


def test_key_episode_and_stream_all_matter_in_every_bit():
    one = np.ones(1, np.uint64)
    base = uniforms(one, one, 4)
    for bit in range(64):
        flip = one ^ np.uint64(1 << bit)
        assert not np.any(uniforms(flip, one, 4) == base)
        assert not np.any(uniforms(one, flip, 4) == base)
    assert not np.any(uniforms(one, one, 4, SYSTEM) == uniforms(one, one, 4, STATE))


def test_uniforms_are_uniform_independent_and_have_53_bits():
    n = 20_000
    u = uniforms(np.arange(n, dtype=np.uint64), np.zeros(n, np.uint64), 4)
    assert u.dtype == np.float64
    assert u.min() >= 0.0
    assert u.max() < 1.0
    for column in u.T:
        assert stats.kstest(column, "uniform").pvalue > 1e-4
    assert np.abs(np.corrcoef(u.T) - np.eye(4)).max() < 0.03
    scaled = u * 2.0**53
    assert np.array_equal(scaled, np.floor(scaled))
    assert (scaled % 2 == 1).mean() == pytest.approx(0.5, abs=0.01)
