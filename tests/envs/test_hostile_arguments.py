"""Every public constructor with defaults, given what no caller means: one clear error, or it is legal.

pytest -m slow -s tests/envs/test_hostile_arguments.py     # prints the counts
"""

import importlib
import inspect
import os
import pkgutil
from collections import Counter
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import sprii_envs

pytestmark = pytest.mark.slow

HOSTILE: tuple[Any, ...] = (
    *(None, True, -1, 0, 10**30, 0.5, float("nan"), float("inf"), -1e308, 1j),
    *("", "no such", "\0", "x" * 5000, b"bytes", "\ud800"),
    *((), [], {}, {1: 2}, [[]], {"a": float("nan")}, object(), int, lambda: None),
    *(np.array([]), np.array([np.nan]), np.array("x"), np.zeros((2, 0)), np.array([1], object), np.float32("nan")),
)


def modules() -> list[str]:
    found = [m.name for m in pkgutil.walk_packages(sprii_envs.__path__, "sprii_envs.")]
    return [name for name in ("sprii_envs", *found) if not name.rsplit(".", 1)[-1].startswith("_")]


def constructors() -> dict[str, type]:
    """Classes of ours that anything can be made of without arguments: their defaults are what is varied."""
    found = {}
    for name in modules():
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        for attribute, kind in vars(module).items():
            ours = inspect.isclass(kind) and kind.__module__ == name and not attribute.startswith("_")
            if not ours or inspect.isabstract(kind) or issubclass(kind, BaseException):
                continue
            try:
                kind()
            except Exception:
                continue
            found[f"{name}.{attribute}"] = kind
    return found


def told(value: Any) -> str:
    try:
        return repr(value)[:60]
    except ValueError:
        return "?"


def attempts(make, names, counts: Counter[str]) -> list[str]:
    """What is not one clear line of a ValueError, or of a TypeError that names the argument."""
    wrong = []
    for name in names:
        for value in HOSTILE:
            counts["tried"] += 1
            try:
                make(**{name: value})
            except (ValueError, TypeError, OSError) as error:  # the last of names that no file can have
                if isinstance(error, TypeError) and not str(error).startswith(name):  # Python's own
                    wrong.append(f"{name}={told(value)}: TypeError: {error!s:.160}")
                counts["refused"] += 1
                if "\n" in str(error) or not str(error):
                    wrong.append(f"{name}={told(value)}: not one line: {str(error)!r:.200}")
            except Exception as error:
                wrong.append(f"{name}={told(value)}: {type(error).__name__}: {error!s:.160}")
            else:
                counts["legal"] += 1
    return wrong


def parameters(function: Any) -> list[str]:
    kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in inspect.signature(function).parameters.values() if p.kind in kinds and p.name != "self"]


def test_constructors_refuse_in_one_line_or_take_it(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    counts, wrong = Counter(), []
    for name, kind in constructors().items():
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
