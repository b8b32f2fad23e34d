"""Fixed query rules against a loop over the table."""

import numpy as np
import pytest

from sprii_envs.banks import Bank
from sprii_train.analysis.use.queries import first_episodes, pulse_queries


def test_first_episode_of_each_system(spring: Bank):
    table = spring.split("validation").select(np.random.default_rng(0).permutation(30))
    for kind in (None, "forced", "cold"):
        expected = []
        for system in np.unique(table["system"]):
            rows = [i for i in range(len(table)) if table["system"][i] == system and kind in (None, table["kind"][i])]
            expected.append(table["episode"][min(rows, key=lambda i: table["rollout"][i])])
        assert first_episodes(table, kind).tolist() == expected
    with pytest.raises(ValueError, match=r"1 systems have no episode of kind 'cold': \d+"):
        first_episodes(table.select((table["kind"] != "cold") | (table["system"] != table["system"][0])), "cold")


@pytest.mark.parametrize("pulse", [0.5, 0.25, 0.0])
def test_pulse_query_of_each_system(spring: Bank, pulse: float):
    """Of four cold episodes the first with a pulse comes later in some systems: templates run on over systems."""
    table = spring.split("train")
    found = pulse_queries(spring, table, pulse=pulse)
    force = np.linalg.norm(spring["actions"][:, 1], axis=-1)
    expected = []
    for system in range(27):
        rows = [
            i
            for i in range(len(table))
            if table["system"][i] == system and table["kind"][i] == "cold" and abs(force[i] - pulse) < 1e-5
        ]
        expected.append(table["episode"][rows[0]])
    assert found.episodes.tolist() == expected
    assert len({int(r) for r in table["rollout"][found.episodes]}) == 3
    # At the anchor nothing has moved, and the pulse is still to come.
    states = spring["states"][found.episodes]
    assert np.abs(states[:, 1] - states[:, 0]).max() < 1e-6
    assert (np.linalg.norm(spring["actions"][found.episodes, 0], axis=-1) == 0).all()


def test_refuses_other_queries(spring: Bank, poke: Bank):
    with pytest.raises(ValueError, match=r"no query of kind 'cold' with a pulse of 0.3; .*pulses: 0.5, 0.25, 0.0"):
        pulse_queries(spring, spring.split("train"), pulse=0.3)
    with pytest.raises(ValueError, match=r"legal kinds: cold, moving"):
        pulse_queries(spring, spring.split("train"), kind="forced")
    with pytest.raises(ValueError, match=r"'poke-factorial' has no pulses"):
        pulse_queries(poke, poke.split("train"))
