"""The example of a user's own learner, at a size for tests."""

import ast
import importlib.util
import math
from pathlib import Path
from types import ModuleType

import pytest
from torch import nn

from sprii_envs.banks import D_CLEAN

PATH = Path(__file__).parents[2] / "examples" / "gru_learner.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gru_learner", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_wrapper_is_short(example: ModuleType):
    """Code lines of the wrapper class without its docstring: fewer than 30."""
    tree = ast.parse(PATH.read_text())
    (wrapper,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "SpriiGRU")
    assert len(ast.unparse(wrapper.body[1:]).splitlines()) < 30
    assert ast.get_docstring(wrapper)
    assert not hasattr(example.Forecaster, "encode_history")
    assert issubclass(example.Forecaster, nn.Module)


def test_runs_at_a_tiny_size(example: ModuleType, tmp_path: Path):
    tiny = D_CLEAN.replace(systems={"train": 10, "validation": 5}, rollouts=3)
    results = example.run(tmp_path, tiny, steps=3, pairs=4)
    assert list(results) == ["untrained", "native loss alone", "Align + Cross"]
    assert all(math.isfinite(r2) and r2 <= 1.0 for r2 in results.values())
    assert len(set(results.values())) == 3
    assert example.run(tmp_path, tiny, steps=3, pairs=4) == results  # resumed from its checkpoints: nothing trained


@pytest.mark.slow
def test_learns_the_drag(example: ModuleType, tmp_path: Path):
    """Measured: 0.02 untrained, 0.95 with Align + Cross. Asserted with room for other rounding."""
    results = example.run(tmp_path)
    assert results["untrained"] < 0.3
    assert results["Align + Cross"] > 0.75
