"""The common head: sizes by hand, no order of objects, a law that matched histories alone teach, one result a seed."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from tiny_objects import object_windows
from tiny_scenes import drifting, noisy, objects_of
from torch import nn

from sprii_train.cophy.reader import (
    Encoded,
    Head,
    HeadConfig,
    Queries,
    contexts,
    encode,
    errors,
    fit_reader,
    recipient_errors,
    selected,
)
from sprii_train.cophy.supports import Supports
from sprii_train.learners import CoPhyNet, CoPhyNetConfig, ObjectJEPA, ObjectJEPAConfig
from sprii_train.protocol import MissingOperation

SMALL = HeadConfig(code=16, hidden=24, epochs=16, batch=32, learning_rate=4e-3, selection=40)


def size(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def layers(*sizes: int) -> int:
    return sum(a * b + b for a, b in pairwise(sizes))


def gru(inputs: int, hidden: int) -> int:
    return 3 * hidden * (inputs + hidden) + 2 * 3 * hidden


@pytest.mark.parametrize(("dims", "types", "delivery"), [(3, True, "initial"), (2, False, "every")])
def test_the_published_sizes_by_hand(dims: int, types: bool, delivery: Any):
    head = Head(HeadConfig(dims=dims, types=types, delivery=delivery), 224)
    expected = layers(224, 64, 64) + gru(3 + 3 + 1 + 4 * types, 64) + layers(129, 128, 128)
    expected += layers(256 + 2 * dims, 128, 128) + gru(128 + 64 * (delivery == "every"), 128) + layers(128, dims)
    assert size(head) == expected
    assert 0.0008 < head.move.weight.std() < 0.0012


def batch(*, n: int = 3, o: int = 4, length: int = 6) -> tuple[torch.Tensor, Queries]:
    g = torch.Generator().manual_seed(1)
    seen = torch.tensor([[True] * o, [True] * (o - 1) + [False], [True] + [False] * (o - 1)])
    given = Queries(
        torch.randn(n, 3, o, 3, generator=g), torch.randn(n, length, o, 3, generator=g), seen,
        torch.randint(0, 4, (n, o), generator=g).masked_fill(~seen, -1),
    )  # fmt: skip
    return torch.randn(n, o, 3, 10, generator=g), given


@pytest.mark.parametrize("delivery", ["initial", "every"])
def test_the_order_of_objects_and_of_supports_and_absent_objects_do_not_matter(delivery: Any):
    told, given = batch()
    head = Head(replace(SMALL, delivery=delivery), 10)
    nn.init.normal_(head.move.weight)
    known, order = torch.ones(3), torch.tensor([2, 0, 3, 1])
    found = head(head.memory(told), known, given)
    turned = Queries(given.poses[:, :, order], given.targets[:, :, order], given.seen[:, order], given.kind[:, order])
    torch.testing.assert_close(
        head(head.memory(told[:, order]), known, turned), found[:, :, order], rtol=1e-4, atol=1e-4
    )
    torch.testing.assert_close(head.memory(told[:, :, [2, 0, 1]]), head.memory(told))
    poses = given.poses.clone()
    poses[1, :, 3], poses[2, :, 1:] = 9.0, -9.0
    moved = head(head.memory(told), known, given._replace(poses=poses))
    seen = given.seen[:, None, :, None].expand_as(found)
    torch.testing.assert_close(moved[seen], found[seen])
    assert not torch.allclose(moved, found)


def test_a_head_that_does_not_move_objects_goes_on_at_their_speed():
    told, given = batch()
    head = Head(SMALL, 10)
    nn.init.zeros_(head.move.weight)
    head.pose_mean.copy_(torch.tensor([1.0, 2.0, 3.0]))
    head.pose_scale.copy_(torch.tensor([0.5, 2.0, 1.0]))
    speed = (given.poses[:, 2] - given.poses[:, 0]) / 2
    expected = torch.stack([given.poses[:, 2] + t * speed for t in range(1, 7)], dim=1)
    torch.testing.assert_close(head(head.memory(told), torch.ones(3), given), expected)
    loss = recipient_errors(expected, given)
    by_hand = [((expected - given.targets)[i][:, given.seen[i]] ** 2).mean() for i in range(3)]
    torch.testing.assert_close(loss, torch.stack(by_hand))


def test_what_happens_later_and_beside_the_others_messages_is_one_layer_of_both():
    """The message of a pair is the layers of its concatenation, by the head's own weights."""
    told, given = batch(length=1)
    head = Head(SMALL, 10)
    nn.init.normal_(head.move.weight)
    memory, known, c = head.memory(told), torch.ones(3), SMALL
    asked = []
    for i in range(4):
        poses = given.poses[0, :, i]
        change = torch.cat([torch.zeros(1, 3), poses[1:] - poses[:-1]])
        kind = nn.functional.one_hot(given.kind[0, i], 4).float().expand(3, 4)
        asked.append(head.query(torch.cat([poses, change, torch.ones(3, 1), kind], dim=1)[None])[1][0, 0])
    hidden = head.start(torch.cat([memory[0], torch.stack(asked), torch.ones(4, 1)], dim=1))
    x = given.poses[0, 2]
    state, moved = torch.cat([hidden, x], dim=1), []
    for i in range(4):
        pairs = torch.stack([torch.cat([state[i], state[j]]) for j in range(4) if j != i])
        message = torch.relu(head.message(torch.relu(head.pair(pairs)))).mean(0)
        moved.append(head.move(head.step(message[None], hidden[i : i + 1])[0]))
    expected = x + (x - given.poses[0, 0]) / 2 + torch.stack(moved)
    torch.testing.assert_close(head(memory, known, given)[0, 0], expected, rtol=1e-4, atol=1e-4)
    assert c.hidden == hidden.shape[1]


@pytest.fixture(scope="module")
def scene() -> tuple[Encoded, Queries, Supports]:
    objects = objects_of({"train": 160, "validation": 80}, slots=2, levels=2, absent=True)
    return noisy(objects), drifting(objects), Supports(objects)


def test_a_planted_law_is_learned_from_matched_histories_only(scene: tuple[Encoded, Queries, Supports]):
    encoded, asked, supports = scene
    reader = fit_reader(encoded, asked, supports, SMALL, seed=0)
    rows = supports.rows("validation")
    matched, wrong = supports.matched(3, seed=0), supports.wrong(3, seed=0, factor="restitution")
    both = rows[supports.eligible(wrong)[rows]]
    found = {name: errors(reader.head, encoded, asked, both, None if ids is None else torch.from_numpy(ids)).mean()
             for name, ids in {"matched": matched, "wrong": wrong, "null": None}.items()}  # fmt: skip
    assert found["matched"] < 0.5 * found["null"]
    assert found["null"] < found["wrong"]

    # The same head of supports whose histories are another object's: nothing to learn, so no better than none.
    order = torch.randperm(len(encoded.memory), generator=torch.Generator().manual_seed(0))
    blind = fit_reader(encoded._replace(memory=encoded.memory[order]), asked, supports, SMALL, seed=0)
    assert min(v for _, v in blind.curve) > 0.8 * found["null"]
    assert min(v for _, v in reader.curve) < 0.5 * min(v for _, v in blind.curve)


def test_a_fit_is_a_function_of_its_seed_and_keeps_its_best_epoch(scene: tuple[Encoded, Queries, Supports]):
    encoded, asked, supports = scene
    short = replace(SMALL, epochs=3)
    told: list[tuple[int, float, float]] = []
    first = fit_reader(encoded, asked, supports, short, seed=1, progress=lambda *row: told.append(row))
    torch.rand(7)
    again, other = (fit_reader(encoded, asked, supports, short, seed=seed) for seed in (1, 2))
    assert first.curve == again.curve != other.curve
    assert [tuple(row[1:]) for row in told] == list(first.curve)
    assert first.epoch == 1 + int(np.argmin([v for _, v in first.curve]))
    rows = selected(supports, short.selection)
    assert set(rows) <= set(supports.rows("validation"))
    kept = errors(first.head, encoded, asked, rows, torch.from_numpy(supports.matched(3, seed=1))).mean()
    assert kept == pytest.approx(first.curve[first.epoch - 1][1], rel=1e-6)


@pytest.mark.parametrize("initial", ["main", "alternative", "new"])
def test_initial_weights_follow_their_law(initial: Any):
    torch.manual_seed(0)
    head: Any = Head(replace(SMALL, initial=initial, code=64, hidden=128), 50)
    bound = head.start[0].weight.abs().max().item()
    recurrent = head.step.weight_hh[:128]
    orthogonal = torch.allclose(recurrent @ recurrent.T, torch.eye(128), atol=1e-4)
    fan_in, fan_out = 129, 128
    if initial == "main":
        assert not orthogonal
        assert bound == pytest.approx(fan_in**-0.5, rel=0.01)
    else:
        assert orthogonal
        assert not head.start[0].bias.any()
    if initial == "alternative":
        assert bound == pytest.approx((6 / (fan_in + fan_out)) ** 0.5, rel=0.01)
    if initial == "new":
        assert head.start[0].weight.std().item() == pytest.approx((2 / fan_in) ** 0.5, rel=0.03)
    assert head.move.weight.std().item() == pytest.approx(1e-3, rel=0.15)


def test_contexts_are_a_supports_memory_with_the_recipients_query_and_none_is_null():
    objects = objects_of({"train": 30}, slots=2, levels=1, absent=True)
    encoded, supports = noisy(objects), Supports(objects)
    ids = torch.from_numpy(supports.matched(3, seed=0))
    rows = torch.tensor([1, 3])
    told = contexts(encoded, rows, ids[rows])
    for n, e in enumerate(rows.tolist()):
        for o in range(2):
            for k in range(3):
                flat = int(ids[e, o, k])
                expected = torch.zeros(4) if flat < 0 else encoded.memory[flat // 2, flat % 2]
                assert torch.equal(told[n, o, k], torch.cat([expected, encoded.query[e, o]]))
    assert torch.equal(
        contexts(encoded, rows, None)[:, :, 0], torch.cat([torch.zeros(2, 2, 4), encoded.query[rows]], -1)
    )


@pytest.mark.parametrize("context", ["split", "monolithic"])
@pytest.mark.parametrize("family", ["jepa", "cophynet"])
def test_sources_are_encoded_in_parts_as_in_one(family: str, context: Any):
    windows = object_windows(6)
    if family == "jepa":
        learner: Any = ObjectJEPA(ObjectJEPAConfig(features=6, width=8, persistent=4, current=4, context=context))
    else:
        learner = CoPhyNet(CoPhyNetConfig(width=8, persistent=4, context=context))
    features = torch.stack([windows.features[:, 0], windows.query_features], 1).numpy()
    poses, seen = torch.stack([windows.poses[:, 0], windows.query_poses], 1).numpy(), windows.active.numpy()
    one, parts = (encode(learner, features, poses, seen, chunk=chunk) for chunk in (100, 5))
    for a, b in zip(one[:2], parts[:2], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    later = [x.copy() for x in (features, poses)]
    for x in later:
        x[:, 1, 3:] += 1.0  # of the query, frames after the third
    assert torch.equal(encode(learner, later[0], later[1], seen).query, one.query)
    fewer = seen.copy()
    fewer[::2, 0] = False  # removed before the query
    apart = encode(learner, features, poses, np.stack([seen, fewer], 1))
    assert torch.equal(apart.memory, one.memory)
    assert torch.equal(apart.query, encode(learner, features, poses, fewer).query)
    states = contexts(one, torch.arange(12), torch.arange(36).view(12, 3, 1))
    assert states.shape[:3] == (12, 3, 1)
    with pytest.raises(MissingOperation, match="the common head of CoPhy needs the operation 'object_memory'"):
        encode(nn.Identity(), features, poses, seen)


def test_what_cannot_be(scene: tuple[Encoded, Queries, Supports]):
    encoded, asked, supports = scene
    with pytest.raises(ValueError, match=r"are of \(239, 240, 240\) episodes; legal: the same ones"):
        fit_reader(encoded._replace(memory=encoded.memory[1:]), asked, supports, SMALL, seed=0)
    with pytest.raises(ValueError, match="the queries are of other objects than the supports"):
        fit_reader(encoded, asked._replace(seen=~asked.seen), supports, SMALL, seed=0)
    with pytest.raises(ValueError, match="no episode of the split 'test' has 3 supports"):
        fit_reader(encoded, asked, supports, SMALL, seed=0, selection="test")
    with pytest.raises(FloatingPointError, match="the head of seed 0 diverged"):
        fit_reader(
            encoded._replace(memory=encoded.memory * torch.nan), asked, supports, replace(SMALL, epochs=1), seed=0
        )
    for field, value, legal in (("dims", 4, "an integer >= 2, at most 3"), ("dropout", 1.0, "a number in")):
        with pytest.raises(ValueError, match=f"HeadConfig.{field} is {value}; legal: {legal}"):
            replace(SMALL, **{field: value})
