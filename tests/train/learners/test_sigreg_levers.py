"""`examples/sigreg_axis.py` at two updates: what its lines say of weights that are known."""

import importlib.util
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch

from sprii_envs.banks import D_CLEAN as PROTOCOL
from sprii_train.settings import D_CLEAN
from sprii_train.settings.base import Built

EXAMPLE = Path(__file__).parents[3] / "examples" / "sigreg_axis.py"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("sigreg_axis", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    small = PROTOCOL.replace(systems={"train": 48, "validation": 4, "test": 4}, rollouts=2, systems_per_chunk=48)
    monkeypatch.setattr(module, "D_CLEAN", replace(D_CLEAN, store=Built(small)))
    return module


def test_a_lever_goes_on_from_the_weights_of_another(example: ModuleType, tmp_path: Path):
    line = example.run("pooled-then-step", 2, tmp_path).split()
    assert line[0] == "pooled-then-step"
    first, then = (torch.load(tmp_path / f"{name}-2.pt") for name in ("pooled", "pooled-then-step"))
    moved = (first["current.0.weight"] - then["current.0.weight"]).abs().max()
    assert 0 < moved < 0.01  # two updates at a rate of 1e-3
    own, correct, other, rank, self_loss, sigreg, loss = map(float, line[1:])
    assert loss == pytest.approx(self_loss + 0.02 * sigreg, abs=2e-4)
    assert 1 <= rank <= 8  # of eight windows
    assert min(own, correct, other) > 0


def test_the_effective_rank_of_known_spectra(example: ModuleType):
    generator = torch.Generator().manual_seed(0)
    flat = torch.randn(20_000, 3, generator=generator) @ torch.eye(5)[:3]
    assert example.rank(flat) == pytest.approx(3.0, abs=0.01)
    assert example.rank(flat[:, :1] * torch.ones(4)) == pytest.approx(1.0, abs=1e-3)
