"""CoPhyNet: sizes by hand, what it may read, what Align and Cross act on, its gate, its loss, and that it learns."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from tiny_objects import object_windows
from torch import nn

from sprii_train.cophy.windows import ObjectWindows
from sprii_train.fit import TrainConfig, build_optimizer, learning_rate, train_step
from sprii_train.learners.cophynet import CoPhyNet, CoPhyNetConfig, Query
from sprii_train.objectives import align
from sprii_train.protocol import Objective, check_learner, encode, training_loss

SMALL = CoPhyNetConfig(width=8, persistent=3)
ADAM = TrainConfig(steps=150, pairs=8, rates=((0, 1e-2),), weight_decay=0.0, clip=1e30, precision="fp32")
NATIVE = Objective(native_on="all")
SPRII = Objective(lambda_p=1.0, lambda_x=0.1, native_on="recipients", cross_directions="one")


def net(config: CoPhyNetConfig = SMALL) -> Any:
    torch.manual_seed(3)
    return CoPhyNet(config)


def size(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def test_the_release_sizes_by_hand():
    def layers(*sizes: int) -> int:
        return sum(a * b + b for a, b in pairwise(sizes))

    gru = 3 * (32 * 32 + 32 * 32) + 2 * 3 * 32
    learner = net(CoPhyNetConfig())
    assert size(learner.history) == layers(6, 32, 32, 32) + layers(3 + 32 + 32, 32, 32) + gru
    moves = layers(70, 32, 32, 32) + layers(99, 32, 32)
    assert size(learner.moves_graph) == size(learner.rests_graph) == moves
    assert size(learner) == size(learner.history) + 2 * moves + layers(32, 1) + gru + layers(32, 3)


@pytest.mark.parametrize("context", ["split", "monolithic"])
@pytest.mark.parametrize("given", [1, 3])
def test_its_operations_hold(context: Any, given: int):
    learner = net(replace(SMALL, context=context, given=given))
    windows = object_windows(absent=True)
    check_learner(learner, windows)  # type: ignore[arg-type]
    codes = encode(learner, learner.prepare(windows))
    numbers = {"split": (3 * 5, 3 * 3), "monolithic": (0, 3 * 8)}[context]
    assert (codes.z_s.shape[1], codes.z_p.shape[1]) == numbers


def test_nothing_of_a_query_but_its_given_frames_is_read_and_no_features():
    learner, windows = net().eval(), object_windows()
    late = windows.query_poses.clone()
    late[:, SMALL.given :] += 1.0
    other = windows._replace(
        query_poses=late, features=windows.features + 1.0, query_features=windows.query_features - 1.0
    )
    predictions = []
    for w in (windows, other, windows._replace(query_poses=windows.query_poses + 1.0)):
        batch = learner.prepare(w)
        codes = encode(learner, batch)
        predictions.append(learner.predict(codes.z_s, codes.z_p, batch.u))
    assert torch.equal(predictions[0], predictions[1])
    assert not torch.allclose(predictions[0], predictions[2])
    assert predictions[0].shape == (8, 7, 3, 4)


def test_the_order_of_objects_and_those_that_are_absent_do_not_matter():
    learner = net().train()
    poses, seen = torch.randn(2, 6, 4, 3), torch.tensor([[True] * 4, [True, True, False, True]])
    order = torch.tensor([2, 0, 3, 1])
    codes = learner.object_memory(None, poses, seen)
    torch.testing.assert_close(learner.object_memory(None, poses[:, :, order], seen[:, order]), codes[:, order])
    moved = poses.clone()
    moved[1, :, 2] = 50.0
    assert torch.equal(learner.object_memory(None, moved, seen), codes)
    assert not codes[1, 2].any()
    assert codes[1, 0].any()

    def predicted(p: torch.Tensor, s: torch.Tensor, code: torch.Tensor) -> torch.Tensor:
        return learner.predict(code[..., 3:].flatten(1), code[..., :3].flatten(1), Query(p, s))

    found = predicted(poses, seen, codes)
    torch.testing.assert_close(
        predicted(poses[:, :, order], seen[:, order], codes[:, order]), found[:, :, order], rtol=1e-4, atol=1e-5
    )
    there = [0, 1, 3]
    torch.testing.assert_close(predicted(moved, seen, codes)[1][:, there], found[1][:, there])


def test_cross_replaces_p_of_all_objects_and_is_of_the_focal_one():
    learner, windows = net(), object_windows(absent=True)  # type: ignore[arg-type]
    _, parts = training_loss(learner, windows, SPRII)  # type: ignore[arg-type]
    loss, n = [], 4
    for i in range(n):
        donor, own = windows_row(windows, i), windows_row(windows, n + i)
        codes = []
        for o in range(3):
            v, k = int(donor.video[0, o]), int(donor.place[0, o])
            p = learner.object_memory(None, donor.poses[:, v], donor.seen[:, v])[0, k, :3]
            t = learner.object_memory(None, own.poses[:, 0], own.seen[:, 0])[0, o, 3:]
            codes.append(torch.cat([p, t]) * own.active[0, o])
        code = torch.stack(codes)[None]
        batch = learner.prepare(own)
        prediction = learner.predict(code[..., 3:].flatten(1), code[..., :3].flatten(1), batch.u)[0, :, own.focal[0]]
        pose = (prediction[:, :3] - own.positions[0, 1:, own.focal[0]]).square().mean()
        probability = torch.sigmoid(prediction[:, 3])
        moving = ~own.still[0, 1:, own.focal[0]]
        entropy = -torch.where(moving, probability, 1 - probability).log().mean()
        loss.append(10 * pose + entropy)
    torch.testing.assert_close(parts["cross"], torch.stack(loss).mean().detach())


def test_align_is_of_p_of_the_focal_objects():
    learner, windows = net(), object_windows(absent=True)
    _, parts = training_loss(learner, windows, SPRII)  # type: ignore[arg-type]
    codes = encode(learner, learner.prepare(windows)).z_p.view(8, 3, 3)
    focal = codes[torch.arange(8), windows.focal]
    torch.testing.assert_close(parts["align"], align(focal[:4], focal[4:]).total.detach())


def test_native_is_the_mean_over_the_objects_that_are_there():
    learner, windows = net().eval(), windows_row(object_windows(absent=True), 4)
    assert not windows.active.all()
    batch = learner.prepare(windows)
    codes = encode(learner, batch)
    prediction = learner.predict(codes.z_s, codes.z_p, batch.u).detach().double().numpy()[0]
    there = windows.active[0].numpy()
    pose = np.mean((prediction[..., :3] - windows.positions[0, 1:].numpy())[:, there] ** 2)
    moving, logit = ~windows.still[0, 1:].numpy()[:, there], prediction[:, there, 3]
    entropy = np.mean(np.log1p(np.exp(np.where(moving, -logit, logit))))
    loss, _ = learner.native_loss(batch, codes)
    assert loss.item() == pytest.approx(10 * pose + entropy, rel=1e-5)


def test_the_gate_is_hard_in_evaluation_and_soft_in_training():
    learner = net()
    nn.init.zeros_(learner.rests[1].weight)
    start = torch.randn(2, 5, 3, 3)
    query, code = Query(start, torch.ones(2, 3, dtype=torch.bool)), torch.randn(2, 3, 8)

    def moved(bias: float) -> torch.Tensor:
        nn.init.constant_(learner.rests[1].bias, bias)
        end = learner.predict(code[..., 3:].flatten(1), code[..., :3].flatten(1), query)[..., :3]
        return (end - start[:, :1]).detach()

    learner.eval()
    assert not moved(-1e-4).any()
    whole = moved(1e-4)
    assert whole.abs().max() > 0.01
    torch.testing.assert_close(moved(1.0), whole)
    learner.train()
    torch.testing.assert_close(moved(0.0)[:, 0], 0.5 * whole[:, 0])
    torch.testing.assert_close(moved(0.01)[:, 0], whole[:, 0] / (1 + np.exp(-1.0)))


def test_readers_get_the_code_of_ab_and_its_persistent_part():
    learner, windows = net(), object_windows()
    memory = learner.object_memory(windows.features[:, 0], windows.poses[:, 0], windows.seen[:, 0])
    batch = learner.prepare(windows)
    torch.testing.assert_close(memory[4:], batch.history[4:])
    torch.testing.assert_close(
        learner.object_persistent(memory).flatten(1)[4:], learner.encode_history(batch.history)[4:]
    )
    query = learner.object_query(windows.query_features[:, :3], windows.query_poses[:, :3], windows.active)
    assert query.shape == (8, 3, 0)
    assert torch.equal(learner.object_state(memory, query), memory)


def test_adamw_without_decay_at_a_constant_rate_is_the_release_adam():
    ours, theirs = net(), net()
    optimizers = build_optimizer(ours, ADAM), torch.optim.Adam(theirs.parameters(), lr=1e-2)
    windows = object_windows()
    for step in range(5):
        values = train_step(ours, windows, NATIVE, optimizers[0], ADAM, step, "fp32")  # type: ignore[arg-type]
        assert values["learning_rate"] == learning_rate(ADAM, step) == 1e-2
        optimizers[1].zero_grad()
        training_loss(theirs, windows, NATIVE)[0].backward()  # type: ignore[arg-type]
        optimizers[1].step()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_what_persists_is_learned_from_the_other_video():
    """Every object has a speed of its own that only AB shows; without it the future has an error that no net beats."""
    learner = net(CoPhyNetConfig(width=16, persistent=8)).train()
    optimizer = build_optimizer(learner, ADAM)
    for step in range(ADAM.steps):
        train_step(learner, drifting(step), NATIVE, optimizer, ADAM, step, "fp32")  # type: ignore[arg-type]
    windows = drifting(10_000, rows=64)
    with torch.no_grad():
        learner.eval()
        batch = learner.prepare(windows)
        codes = encode(learner, batch)
        errors = [
            (learner.predict(z, p, batch.u)[..., :3] - batch.y.positions).square().mean().item()
            for z, p in ((codes.z_s, codes.z_p), (codes.z_s.roll(1, 0), codes.z_p.roll(1, 0)))
        ]
    unknown = np.mean([(0.5 * t) ** 2 for t in range(1, 5)])  # the variance of speed · t
    assert errors[0] < 0.2 * unknown
    assert errors[1] > unknown


def drifting(seed: int, rows: int = 16) -> ObjectWindows:
    """Recipients alone, whose objects move along x, y and z at speeds of SD 0.5, the same in AB and CD."""
    windows = object_windows(rows // 2, objects=2, frames=5, videos=1)
    g = torch.Generator().manual_seed(seed)
    speed = 0.5 * torch.randn(rows, 1, 2, 3, generator=g)
    ab, cd = (torch.randn(rows, 1, 2, 3, generator=g) + torch.arange(5).view(1, 5, 1, 1) * speed for _ in range(2))
    own = torch.arange(2).expand(rows, 2)
    return windows._replace(
        poses=ab[:, None], query_poses=cd, positions=cd, still=torch.zeros(rows, 5, 2, dtype=torch.bool),
        video=torch.zeros_like(own), place=own,
    )  # fmt: skip


def windows_row(windows: ObjectWindows, row: int) -> ObjectWindows:
    """One row."""
    return ObjectWindows(*(field[row : row + 1] for field in windows))


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("persistent", 8, "CoPhyNetConfig.persistent is 8; legal: less than the width 8"),
        ("given", 0, "CoPhyNetConfig.given is 0; legal: an integer >= 1"),
        ("context", "joint", "CoPhyNetConfig.context is 'joint'; legal: split, monolithic"),
    ],
)
def test_sizes_that_cannot_be(field: str, value: Any, said: str):
    with pytest.raises(ValueError, match=said):
        replace(SMALL, **{field: value})


def test_a_query_of_no_frames_to_predict():
    with pytest.raises(ValueError, match="a query has 8 frames; legal: more than the 8 given"):
        net(replace(SMALL, given=8)).prepare(object_windows())
