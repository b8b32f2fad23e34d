"""`UniformSegments`: the law of the actions, their shape in worlds of any size, what is refused."""

import numpy as np
import pytest
from scipy import stats

from sprii_envs.banks import UniformSegments, behaviours
from sprii_envs.envs.d_clean import DClean
from sprii_envs.envs.pendulum import Pendulum

N = 4000


def actions(behaviour, world, n=N, steps=40, seed=0):
    start = np.zeros((n, len(world.state_names)))
    return behaviour.policy(np.random.default_rng(seed), world, np.ones((n, 1)), start, steps, None)


def test_components_are_uniform_early_and_late_and_independent():
    given = actions(UniformSegments(largest=0.5), DClean())
    assert given.shape == (N, 40, 2)
    assert given.dtype == np.float32
    for t in (0, 30):
        for component in (0, 1):
            assert stats.kstest(given[:, t, component], stats.uniform(-0.5, 1.0).cdf).pvalue > 1e-3
        assert abs(np.corrcoef(given[:, t].T)[0, 1]) < 0.06


def test_segments_last_as_long_as_they_may():
    given = actions(UniformSegments(shortest=3, longest=5), Pendulum(), n=50)[..., 0]
    lengths = [np.diff(np.flatnonzero(np.diff(row, prepend=np.nan) != 0)) for row in given]
    assert set(np.concatenate(lengths).tolist()) == {3, 4, 5}
    assert actions(UniformSegments(shortest=9, longest=9), Pendulum(), n=2, steps=1).shape == (2, 1, 1)


def test_the_same_generator_gives_the_same_actions_and_json_the_same_behaviour():
    kept = UniformSegments(longest=4)
    assert np.array_equal(actions(kept, DClean(), 5), actions(kept, DClean(), 5))
    assert not np.array_equal(actions(kept, DClean(), 5), actions(kept, DClean(), 5, seed=1))
    assert behaviours.from_dict(behaviours.to_dict(kept)) == kept


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"shortest": 0}, "shortest"),
        ({"shortest": 9}, "shortest ≤ longest, got 9 and 8"),
        ({"largest": 1.5}, "largest"),
    ],
)
def test_what_is_no_segment_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        UniformSegments(**wrong)
