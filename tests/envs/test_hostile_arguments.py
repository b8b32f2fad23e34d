"""Every public constructor with defaults, given what no caller means: one clear error, or it is legal.

pytest -m slow -s tests/envs/test_hostile_arguments.py     # prints the counts
"""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hostile import attempts, constructors, parameters

import sprii_envs

pytestmark = pytest.mark.slow


def test_constructors_refuse_in_one_line_or_take_it(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    counts, wrong = Counter(), []
    for name, kind in constructors(sprii_envs).items():
        counts["constructors"] += 1
        wrong += [f"{name}({each})" for each in attempts(kind, parameters(kind), counts)]
    print(f"\n{dict(counts)}")
    assert not wrong, "\n".join(wrong)
    assert counts["constructors"] > 25
    assert not os.listdir(tmp_path)


IDS = ["sprii/Pendulum-v0", "sprii/D-Clean-v0", "sprii/PokeWorld-v0", "sprii/SpringWorld-v0", "sprii/Swimmer-v0"]


@pytest.mark.parametrize("id", IDS)
def test_environments_refuse_in_one_line_and_go_on(id: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    counts, wrong = Counter(), []
    one: Any = gym.make(id, obs_type="state").unwrapped
    names = [name for name in parameters(type(one)) if name not in ("max_episode_steps", "world")]
    wrong += attempts(type(one), names, counts)
    one.reset(seed=1)
    before, action = one.get_state(), np.zeros(one.action_space.shape, np.float32)
    expected = one.step(action)
    for call, names in (
        (lambda **given: one.reset(options=given), ("system", "state", "query", "nonsense")),
        (lambda seed: one.reset(seed=seed), ("seed",)),
        (lambda action: one.step(action), ("action",)),
        (lambda saved: one.set_state(saved), ("saved",)),
        (lambda options: one.reset(options=options), ("options",)),
        (lambda name: one.vary(name, [1.0]), ("name",)),
        (lambda values: one.vary(one.persistent_properties.names[0], values), ("values",)),
        (lambda actions: one.counterfactual(one.system, actions), ("actions",)),
        (lambda systems: one.counterfactual(systems, action[None]), ("systems",)),
    ):
        wrong += attempts(call, names, counts)
        one.set_state(before)
        again = one.step(action)
        assert again[0].tobytes() == expected[0].tobytes()
        assert again[1:] == expected[1:]
    print(f"\n{id}: {dict(counts)}")
    assert not wrong, "\n".join(wrong)
    assert not os.listdir(tmp_path)
