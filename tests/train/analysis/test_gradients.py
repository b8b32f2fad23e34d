"""The gradient diagnostic against autograd by hand, what it leaves alone, and its summaries."""

import json
import math
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ranks import Ranks
from tiny import HISTORY, HORIZONS, Plain, jepa_config
from torch import nn

from sprii_envs.banks import Bank
from sprii_train import distributed
from sprii_train.analysis.gradients import (
    GradientDiagnostic,
    GradientObservations,
    by_phase,
    by_source,
    gradient_relation,
    read_gradients,
    summarise,
)
from sprii_train.data import PairedWindows, WindowReader
from sprii_train.fit import Interrupted, TrainConfig, fit
from sprii_train.learners import JEPA
from sprii_train.objectives import align
from sprii_train.protocol import Objective, Windows, take

CONFIG = TrainConfig(steps=9, pairs=8, warmup=2, checkpoint_every=4, log_every=2, precision="fp32", learning_rate=1e-2)
JOINT = Objective(lambda_p=1.0, lambda_x=0.1)
FRAMES: dict[str, Any] = {"image": 16, "stem": (4, 8), "patch": 4, "frames": "scaled"}


def learner_of(**changes: Any) -> JEPA:
    torch.manual_seed(7)
    return JEPA(jepa_config(dropout=0.3, **changes))


def data_of(bank: Bank, image: int = 0) -> PairedWindows:
    return PairedWindows(WindowReader(bank, HISTORY, HORIZONS, image=image), pairs=CONFIG.pairs, seed=0)


@pytest.mark.parametrize("directions", ["both", "one"])
def test_norms_and_cosine_by_hand(windows: Windows, directions: str):
    learner = learner_of()
    learner.prepare(windows)  # moves the running statistics from their start
    relation = gradient_relation(learner, windows, Objective(cross_directions=directions))

    learner.eval()
    batch = learner.prepare(windows)
    z_p, z_s = learner.encode_history(batch.history), learner.encode_current(batch.current)
    rows = slice(0, 16) if directions == "both" else slice(8, 16)
    predicted = learner.predict(z_s[rows], z_p.roll(8, 0)[rows], batch.u[rows])
    losses = align(z_p[:8], z_p[8:]).total, (predicted - batch.y[rows]).square().mean()
    flat = []
    for loss in losses:
        learner.zero_grad()
        loss.backward(retain_graph=True)
        flat.append(np.concatenate([p.grad.double().numpy().ravel() for p in learner.history.parameters()]))  # type: ignore[union-attr]
    norms = [np.linalg.norm(g) for g in flat]
    assert relation.align_norm == pytest.approx(norms[0], rel=1e-5)
    assert relation.cross_norm == pytest.approx(norms[1], rel=1e-5)
    assert relation.cosine == pytest.approx(flat[0] @ flat[1] / (norms[0] * norms[1]), abs=1e-5)
    assert abs(relation.cosine) > 1e-3


def test_another_submodule_and_none(windows: Windows):
    learner = Plain()
    assert gradient_relation(learner, windows, JOINT).cosine is not None
    of_q = gradient_relation(learner, windows, JOINT, encoder="q")  # which Align does not reach
    assert (of_q.align_norm, of_q.cosine) == (0.0, None)
    assert of_q.cross_norm > 0
    with pytest.raises(ValueError, match=r"Plain has no submodule 'g_p'.*legal: history, current, q"):
        gradient_relation(learner, windows, JOINT, encoder="g_p")


def test_a_zero_gradient_has_no_cosine(windows: Windows):
    off = replace(JOINT, invariance=0.0, variance=0.0, covariance=0.0)
    assert gradient_relation(learner_of(), windows, off)[::2] == (0.0, None)
    supervised = gradient_relation(learner_of(context="supervised"), windows, JOINT)  # its predictor stops the gradient
    assert (supervised.cross_norm, supervised.cosine) == (0.0, None)


def test_everything_is_left_as_it_was(bank: Bank):
    learner = learner_of(**FRAMES).train()
    windows = data_of(bank, 16)(0)
    learner.prepare(windows)
    learner.encoder_norm.eval()  # a module in a mode of its own
    learner.current[0].weight.grad = torch.ones_like(learner.current[0].weight)
    seen = learner.observed.seen
    assert seen is not None
    modes = [m.training for m in learner.modules()]
    state = {k: v.clone() for k, v in learner.state_dict().items()}
    random = torch.get_rng_state()
    first = gradient_relation(learner, windows, JOINT, seed=3, step=4)
    assert torch.equal(torch.get_rng_state(), random)
    assert [m.training for m in learner.modules()] == modes
    assert all(torch.equal(v, state[k]) for k, v in learner.state_dict().items())
    assert learner.observed.seen is seen
    for name, p in learner.named_parameters():
        assert (p.grad is None) == (name != "current.0.weight")
    torch.manual_seed(99)
    assert gradient_relation(learner, windows, JOINT, seed=3, step=4) == first


def trained(bank: Bank, folder: Path, *, image: bool = False, stop_at: int = 0, **options: Any) -> dict:
    learner = learner_of(**(FRAMES if image else {}))

    def progress(step: int, _: dict[str, float]) -> None:
        if step == stop_at:
            os.kill(os.getpid(), signal.SIGTERM)

    fit(
        learner, data_of(bank, 16 if image else 0), JOINT, CONFIG, folder,
        progress=progress, tensorboard=False, **options,
    )  # fmt: skip
    return dict(learner.state_dict())


@pytest.mark.parametrize("image", [False, True])
def test_training_is_unmoved_and_the_record_resumes(bank: Bank, tmp_path: Path, image: bool):
    diagnostics = [GradientDiagnostic(every=2)]
    without = trained(bank, tmp_path / "without", image=image)
    weights = trained(bank, tmp_path / "with", image=image, diagnostics=diagnostics)
    assert all(torch.equal(v, without[k]) for k, v in weights.items())
    assert not (tmp_path / "without" / "gradients.jsonl").exists()
    written = (tmp_path / "with" / "gradients.jsonl").read_text()
    assert [json.loads(line)["step"] for line in written.splitlines()] == [2, 4, 6, 8]

    with pytest.raises(Interrupted):
        trained(bank, tmp_path / "resumed", image=image, diagnostics=diagnostics, stop_at=5)
    with open(tmp_path / "resumed" / "gradients.jsonl", "a") as file:
        file.write('{"step": 6, "align_norm": 1.0, "cross_norm": 1.0, "cosine": 0.0}\n{"st')  # beyond the checkpoint
    trained(bank, tmp_path / "resumed", image=image, diagnostics=diagnostics)
    assert (tmp_path / "resumed" / "gradients.jsonl").read_text() == written


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    with Ranks(tmp_path_factory.mktemp("ranks")) as ranks:
        yield ranks


def shared(windows: Windows) -> tuple[Any, ...]:
    rows = torch.arange(16).view(2, -1)[:, distributed.own_share(8)].flatten()
    return tuple(gradient_relation(learner_of(), take(windows, rows), JOINT))


def test_two_ranks_see_the_gradients_of_the_whole_batch(windows: Windows, bank: Bank, tmp_path: Path, ranks: Ranks):
    alone = shared(windows)
    for part in ranks(shared, windows):
        assert part == pytest.approx(alone, rel=1e-4)
    ranks(diagnosed, bank.path, tmp_path)
    assert list(read_gradients({4: tmp_path}).step) == [2, 4, 6, 8]


def diagnosed(path: Path, folder: Path) -> None:
    trained(Bank.open(path), folder, diagnostics=[GradientDiagnostic(every=2)])


# Summaries


def observations(cosine: np.ndarray, source: np.ndarray, step: np.ndarray) -> GradientObservations:
    norms = np.where(np.isnan(cosine), 0.0, 1.0 + np.arange(len(cosine)))
    return GradientObservations(source, step, norms, 2.0 * np.ones(len(cosine)), cosine)


def test_summary_by_hand():
    cosine = np.array([0.4, -0.2, np.nan, 0.1, -0.3, 0.5, 0.0, np.nan])
    found = summarise(observations(cosine, np.zeros(8, int), np.arange(8)))
    assert found.valid == 6
    assert found.mean == pytest.approx(0.5 / 6)
    # Sorted: −0.3, −0.2, 0, 0.1, 0.4, 0.5; quartiles lie at ranks 1.25, 2.5 and 3.75.
    assert (found.q1, found.median, found.q3) == pytest.approx((-0.15, 0.05, 0.325))
    assert (found.negative, found.zero_norm) == pytest.approx((100 / 3, 25.0))
    assert (found.align_norm, found.cross_norm) == (pytest.approx((2 + 4) / 2), 2.0)  # 0, 0, 1, 2, 4, 5, 6, 7


def test_sources_and_phases_of_the_paper():
    """100 observations of 10,000 updates: 33 in (0, 3333⅓], 33 in (3333⅓, 6666⅔], 34 after."""
    step = np.tile(np.arange(100, 10_001, 100), 3)
    source = np.repeat([0, 1, 2], 100)
    phase = np.digitize(step, [10_000 / 3, 20_000 / 3], right=True)
    seen = observations(0.1 * source + phase, source, step)
    assert {s: round(v.mean, 6) for s, v in by_source(seen).items()} == {0: 1.01, 1: 1.11, 2: 1.21}
    phases = by_phase(seen, 10_000)
    assert {name: v.valid for name, v in phases.items()} == {"early": 99, "middle": 99, "late": 102}
    assert [round(v.mean, 6) for v in phases.values()] == [0.1, 1.1, 2.1]
    exact = observations(np.ones(3), np.zeros(3, int), np.array([3, 6, 9]))  # the ends belong to the phase before
    assert [v.valid for v in by_phase(exact, 9).values()] == [1, 1, 1]
    assert list(by_phase(exact.select(exact.step < 4), 9)) == ["early"]


def test_nothing_valid_and_nothing_at_all():
    found = summarise(observations(np.full(2, np.nan), np.zeros(2, int), np.arange(2)))
    assert (found.valid, found.zero_norm) == (0, 100.0)
    assert all(math.isnan(v) for v in (found.mean, found.q1, found.median, found.q3, found.negative))
    with pytest.raises(ValueError, match="no gradient observation"):
        summarise(observations(np.empty(0), np.empty(0, int), np.empty(0, int)))


def test_records_are_read_by_source(tmp_path: Path):
    for source, cosine in ((3, 0.25), (5, None)):
        (tmp_path / str(source)).mkdir()
        row = {"step": 100, "align_norm": 2.0, "cross_norm": 0.0 if cosine is None else 0.5, "cosine": cosine}
        (tmp_path / str(source) / "gradients.jsonl").write_text(json.dumps(row) + "\n")
    found = read_gradients({s: tmp_path / str(s) for s in (3, 5)})
    assert (found.source.tolist(), found.step.tolist()) == ([3, 5], [100, 100])
    assert found.cosine[0] == 0.25
    assert np.isnan(found.cosine[1])
    assert summarise(found).zero_norm == 50.0
    with pytest.raises(FileNotFoundError):
        read_gradients({0: tmp_path})


class Recurrent(Plain):
    """A learner whose g_p is recurrent."""

    def __init__(self) -> None:
        super().__init__()
        self.history = nn.GRU(4, 3, batch_first=True)  # type: ignore[assignment]

    def encode_history(self, history: torch.Tensor) -> torch.Tensor:
        return self.history(history)[1][0]


def test_any_learner(windows: Windows):
    relation = gradient_relation(Recurrent(), windows, JOINT)
    assert relation.cosine is not None
    assert -1.0 <= relation.cosine <= 1.0


def test_what_cannot_be_observed_is_refused_before_training(bank: Bank, tmp_path: Path):
    def refused(message: str, *diagnostics: GradientDiagnostic, learner: JEPA | None = None) -> None:
        with pytest.raises(ValueError, match=message):
            fit(learner or learner_of(), data_of(bank), JOINT, CONFIG, tmp_path / "run", diagnostics=diagnostics)
        assert not (tmp_path / "run").exists()

    refused("no submodule 'memory'", GradientDiagnostic(encoder="memory"))
    refused("named 'metrics'", GradientDiagnostic(name="metrics"))
    refused("named 'a/b'", GradientDiagnostic(name="a/b"))
    refused("named 'gradients'", GradientDiagnostic(), GradientDiagnostic(every=3))
    frozen = learner_of()
    frozen.history.requires_grad_(False)
    refused("no parameter with a gradient", GradientDiagnostic(), learner=frozen)
    with pytest.raises(ValueError, match=r"every is 0; legal: an integer >= 1"):
        GradientDiagnostic(every=0)
    (tmp_path / "gradients.jsonl").write_text('{"step": 1, "ali', encoding="utf-8")
    with pytest.raises(ValueError, match="is damaged"):
        read_gradients({0: tmp_path})
