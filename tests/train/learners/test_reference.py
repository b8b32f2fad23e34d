"""The supervised references: sizes by hand, the memory of several histories, horizons, withheld histories."""

from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
import torch

from sprii_train.learners.encoders import Kind
from sprii_train.learners.reference import ContextQueries, Reference, ReferenceConfig, nearest
from sprii_train.protocol import Objective, check_learner, encode, evaluation_mode, training_loss

KINDS = get_args(Kind)
TINY = ReferenceConfig(
    image=8, stem=(4,), history=6, horizons=(1, 2, 4), embedding=8, width=8, heads=2, query=6, future=4, hidden=(16,)
)


def queries(seed: int, n: int = 8, *, windows: int = 2, length: int = 6, shown: int = 2) -> Any:
    """Histories whose left is as bright as a property of their system, and their right as it lacks; increments are that
    times the sum of the actions."""
    rng = np.random.default_rng(seed)
    p = rng.uniform(0, 1, n).astype(np.float32)
    halves = np.repeat(np.stack([p, 1 - p], axis=1), 4, axis=1)
    frames = (halves[:, None, None, None] * 255 * np.ones((n, windows, 1 + length, 8, 1))).astype(np.uint8)
    led = rng.normal(size=(n, windows, length - 1, 2)).astype(np.float32)
    present = rng.integers(0, 256, (n, 1 + shown, 8, 8), np.uint8)
    u = rng.normal(size=(n, 4, 2)).astype(np.float32)
    summed = u.cumsum(1)[:, [0, 1, 3]].mean(-1, keepdims=True) * (p[:, None, None] * 4 - 2)
    targets = np.repeat(summed, 8, axis=-1).astype(np.float32)
    return ContextQueries(*map(torch.from_numpy, (frames, led, present, u, targets)))


def test_sizes_by_hand() -> None:
    """258 → 64 and a norm; 229-256-128-8; 16,384 → 128 under four convolutions."""
    stem = 608 + 18_496 + 73_856 + 295_168 + (16_384 * 128 + 128) + 2 * 128
    rest = 2 * 64 + 3 * (128 * 64 + 64 * 64 + 2 * 64) + 3 * (2 * 32 + 32 * 32 + 2 * 32)
    rest += (229 * 256 + 256) + (256 * 128 + 128) + (128 * 8 + 8)
    block = 4 * 64 + (64 * 192 + 192) + (64 * 64 + 64) + (64 * 256 + 256) + (256 * 64 + 64)
    encoders = {
        "gru": 3 * (258 * 64 + 64 * 64 + 128) + 3 * (64 * 64 + 64 * 64 + 128),
        "transformer": (258 * 64 + 64) + 95 * 64 + 64 + 2 * block,
        "tcn": (258 * 64 + 64) + 4 * (3 * 64 * 64 + 64) + (128 * 64 + 64),
        "deepsets": (258 * 128 + 128) + (128 * 64 + 64) + (128 * 64 + 64),
    }
    for kind, count in encoders.items():
        learner = Reference(ReferenceConfig(encoder=kind))  # type: ignore[arg-type]
        assert sum(p.numel() for p in learner.parameters()) == stem + rest + count
        assert learner.predictor[0].in_features == 229


@pytest.mark.parametrize("kind", KINDS)
def test_operations_hold(kind: Kind) -> None:
    torch.manual_seed(0)
    learner: Any = Reference(replace(TINY, encoder=kind))
    for given in (queries(0), queries(1, windows=1, length=3, shown=1)):
        check_learner(learner, given)
        loss, _ = training_loss(learner.train(), given, Objective(lambda_p=1.0))
        loss.backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in learner.parameters())


def test_a_memory_is_the_mean_and_maximum_of_histories() -> None:
    learner: Any = Reference(TINY).eval()
    given = queries(0)
    with torch.no_grad():
        found = encode(learner, learner.prepare(given))
        one = [
            learner.history_norm(learner.history(learner.tokens(given.histories[:, i], given.actions[:, i])))
            for i in range(2)
        ]
        torch.testing.assert_close(found.z_p, torch.cat([(one[0] + one[1]) / 2, torch.maximum(*one)], dim=-1))
        e = learner.embed(given.histories[:, 0])
        tokens = learner.tokens(given.histories[:, 0], given.actions[:, 0])
        torch.testing.assert_close(
            tokens[:, 2], torch.cat([e[:, 2], e[:, 3] - e[:, 2], given.actions[:, 0, 2]], dim=-1)
        )
        torch.testing.assert_close(learner.present(given.shown[:, 1:]), _alone(learner, given.shown))


def _alone(learner: Any, shown: torch.Tensor) -> torch.Tensor:
    """z_s of frames whose first difference is zero, by a GRU cell."""
    e, gru = learner.embed(torch.cat([shown[:, 1:2], shown[:, 1:]], dim=1)), learner.current
    h = torch.zeros(len(e), gru.hidden_size)
    for t in range(e.shape[1]):
        i, s = (torch.nn.functional.linear(x, w, b).chunk(3, -1) for x, w, b in (
            (e[:, t], gru.weight_ih_l0, gru.bias_ih_l0), (h, gru.weight_hh_l0, gru.bias_hh_l0)))  # fmt: skip
        reset, update = torch.sigmoid(i[0] + s[0]), torch.sigmoid(i[1] + s[1])
        h = (1 - update) * torch.tanh(i[2] + reset * s[2]) + update * h
    return h


def test_horizons_between_the_trained_ones() -> None:
    assert nearest(4, (1, 4, 16, 32)) == [0, 1, 0, 0]
    np.testing.assert_allclose(nearest(2, (1, 4, 16, 32)), [0.5, 0.5, 0, 0])
    np.testing.assert_allclose(nearest(8, (1, 4, 16, 32)), [0, 0.5, 0.5, 0])
    learner: Any = Reference(TINY).eval()
    batch = learner.prepare(queries(0))
    codes = encode(learner, batch)
    every = learner.answers(codes.z_s, codes.z_p, batch.u, (1, 2, 3, 4))
    torch.testing.assert_close(every[:, [0, 1, 3]], learner.predict(codes.z_s, codes.z_p, batch.u))
    later = batch.u.clone()
    later[:, 3:] += 1.0  # a prediction reads no action after its horizon
    changed = learner.answers(codes.z_s, codes.z_p, later, (1, 2, 3, 4))
    torch.testing.assert_close(changed[:, :3], every[:, :3])
    assert not torch.allclose(changed[:, 3], every[:, 3])
    for horizons in ((5,), (0, 1)):
        with pytest.raises(ValueError, match=r"horizons are .*; legal: 1 to 4"):
            learner.answers(codes.z_s, codes.z_p, batch.u, horizons)


def test_a_quarter_of_training_histories_is_withheld() -> None:
    learner: Any = Reference(TINY)
    batch = learner.prepare(queries(0, 2_000, windows=1, length=2, shown=1))
    codes = encode(learner, batch)
    seen = []
    learner.predict = lambda z_s, z_p, u: seen.append((z_p != 0).any(-1)) or Reference.predict(learner, z_s, z_p, u)
    torch.manual_seed(0)
    learner.train().native_loss(batch, codes)
    assert seen[0].float().mean().item() == pytest.approx(0.75, abs=0.03)
    kept = codes.z_p * seen[0][:, None]
    torch.testing.assert_close(kept[seen[0]], codes.z_p[seen[0]])
    with evaluation_mode(learner):
        learner.native_loss(batch, codes)
    assert seen[-1].all()


@pytest.mark.parametrize("kind", KINDS)
def test_histories_make_predictions_better_than_without(kind: Kind) -> None:
    torch.manual_seed(0)
    learner: Any = Reference(replace(TINY, embedding=16, width=16, hidden=(32,), encoder=kind))
    optimizer = torch.optim.AdamW(learner.parameters(), lr=3e-3)
    for step in range(400):
        loss, _ = training_loss(learner.train(), queries(step, 32), Objective())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    given = queries(10_000, 128)
    with evaluation_mode(learner), torch.no_grad():
        batch = learner.prepare(given)
        codes = encode(learner, batch)
        known, unknown = (
            learner.task_loss(learner.predict(codes.z_s, z_p, batch.u), batch.y).mean().item()
            for z_p in (codes.z_p, torch.zeros_like(codes.z_p))
        )
    trivial = given.targets.square().mean().item()
    assert known < 0.5 * trivial
    assert known < 0.6 * unknown


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("encoder", "lstm", "encoder"), ("image", 9, "image is 9; legal: multiples of 2"), ("unknown", 1.0, "unknown"),
        ("horizons", (4, 1), "horizons"), ("history", 1, "history"),
    ],
)  # fmt: skip
def test_what_is_refused(field: str, value: Any, said: str) -> None:
    with pytest.raises(ValueError, match=rf"ReferenceConfig\.{said}"):
        replace(TINY, **{field: value})
