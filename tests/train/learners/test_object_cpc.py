"""The object CPC's InfoNCE against a loop over anchors and their candidates."""

import math
from typing import Any, cast

import pytest
import torch
from tiny_objects import object_windows

from sprii_train.learners import ObjectCPC, ObjectCPCConfig
from sprii_train.protocol import encode

N = 6
CONFIG = ObjectCPCConfig(features=6, projection=8, width=8, persistent=5, current=4, sigreg_slices=16, temperature=0.2)


def cosine(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


@pytest.mark.parametrize("slots", [4, 9])
def test_info_nce_of_slots_and_types(slots: int):
    windows = object_windows(N, absent=True, slots=slots)
    learner = ObjectCPC(CONFIG).eval().requires_grad_(False)
    batch = learner.prepare(windows)
    codes = encode(cast(Any, learner), batch)
    prediction = learner.predict(codes.z_s, codes.z_p, batch.u)
    losses, counted = learner.object_losses(prediction, batch.y)
    there = [(i, o) for i in range(2 * N) for o in range(3) if windows.active[i, o]]
    tags = {at: (int(windows.slot[at]), int(windows.kind[at])) for at in there}
    expected: dict[tuple[int, int], list[float]] = {}
    for i, o in there:
        candidates = [at for at in there if tags[at] == tags[i, o]]
        assert bool(counted[i, o]) == (len(candidates) >= 2)
        if len(candidates) < 2:
            continue
        expected[i, o] = []
        for t in range(5):
            asked = prediction[i, t, o].tolist()
            scores = {at: cosine(asked, batch.y.x[at[0], t, at[1]].tolist()) / 0.2 for at in candidates}
            loss = math.log(sum(map(math.exp, scores.values()))) - scores[i, o]
            assert float(losses[i, t, o]) == pytest.approx(loss, abs=1e-5)
            expected[i, o].append(loss)
    assert not counted[~windows.active].any()
    rows = {i: [sum(v) / 5 for (j, _), v in expected.items() if j == i] for i in range(2 * N)}
    of_rows = [sum(values) / len(values) for values in rows.values() if values]
    assert float(learner.task_loss(prediction, batch.y).mean()) == pytest.approx(sum(of_rows) / len(of_rows), rel=1e-5)
    of_focal = [sum(v) / 5 for (i, o), v in expected.items() if o == int(windows.focal[i])]
    assert float(learner.cross_task_loss(prediction, batch.y).mean()) == pytest.approx(
        sum(of_focal) / len(of_focal), rel=1e-5
    )


def test_who_has_no_other_is_not_counted_and_leaves_no_gradient():
    windows = object_windows(2, slots=3)
    alone = windows._replace(kind=torch.arange(12).view(4, 3))
    learner = ObjectCPC(CONFIG).eval()
    batch = learner.prepare(alone)
    codes = encode(cast(Any, learner), batch)
    prediction = learner.predict(codes.z_s, codes.z_p, batch.u)
    loss = learner.task_loss(prediction, batch.y)
    assert not loss.any()
    (gradient,) = torch.autograd.grad(loss.sum(), prediction)
    assert not gradient.any()
