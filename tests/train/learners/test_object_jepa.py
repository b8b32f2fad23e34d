"""The object JEPA against loops over rows, objects and times, and what Cross teaches it of a planted property."""

from typing import Any, cast

import torch
import torch.nn.functional as F
from tiny_objects import object_windows
from torch import Tensor, nn

from sprii_train.cophy.towers import Interaction, JointTower, Projection, fixed_vector
from sprii_train.learners import ObjectJEPA, ObjectJEPAConfig
from sprii_train.objectives import sigreg, sigreg_directions
from sprii_train.protocol import encode, take

N = 4
CONFIG = ObjectJEPAConfig(features=6, projection=8, width=8, persistent=5, current=4, sigreg_slices=16)


def linear(layer: nn.Module, x: Tensor) -> Tensor:
    assert isinstance(layer, nn.Linear)
    return x @ layer.weight.T + (0.0 if layer.bias is None else layer.bias)


def interacted(layer: Interaction, own: Tensor, others: list[Tensor]) -> Tensor:
    """One object's, as the equations have it: a layer on the pair, the mean of its messages, a residual."""
    first = torch.cat([layer.target.weight, layer.source.weight], dim=1)
    messages = [linear(layer.edge, F.gelu(torch.cat([own, other]) @ first.T + layer.target.bias)) for other in others]
    mean = torch.stack(messages).mean(0)
    return own + layer.norm(layer.update(torch.cat([own, mean])))


def recurrent(gru: nn.GRU, course: Tensor) -> list[Tensor]:
    """The published equations of a gated recurrent unit, layer on layer: states of the last layer at all times."""
    for k in range(gru.num_layers):
        w, v, b, c = (getattr(gru, f"{name}_l{k}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
        h, states = torch.zeros(gru.hidden_size), []
        for x in course:
            inner, outer = (w @ x + b).chunk(3), (v @ h + c).chunk(3)
            reset, update = (inner[0] + outer[0]).sigmoid(), (inner[1] + outer[1]).sigmoid()
            h = (1 - update) * (inner[2] + reset * outer[2]).tanh() + update * h
            states.append(h)
        course = torch.stack(states)
    return list(course)


def projected(layer: Projection, features: Tensor) -> Tensor:
    change = torch.cat([torch.zeros_like(features[:1]), features[1:] - features[:-1]])
    return layer.out(layer.second(F.gelu(layer.first(layer.norm(torch.cat([features, change], dim=-1))))))


def test_codes_and_predictions_are_the_equations():
    torch.manual_seed(1)
    windows = object_windows(N, absent=True)
    learner = ObjectJEPA(CONFIG).eval()
    nn.init.normal_(learner.projection.norm.weight)
    nn.init.normal_(learner.projection.norm.bias)
    batch = learner.prepare(windows)
    codes = encode(cast(Any, learner), batch)
    prediction = learner.predict(codes.z_s, codes.z_p, batch.u)
    history, current, rollout = learner.history, learner.current, learner.rollout
    for row in (0, N, N + 1):
        there = windows.active[row].nonzero()[:, 0].tolist()
        codes_of: dict[int, tuple[Tensor, Tensor]] = {}
        given = projected(learner.projection, windows.query_features[row])
        for o in there:
            video, place = windows.video[row, o], int(windows.place[row, o])
            ab = projected(learner.projection, windows.features[row, video])
            beside = [j for j in range(3) if windows.seen[row, video, j] and j != place]
            course = [interacted(history.interaction, x[place], [x[j] for j in beside]) for x in ab]
            p = history.norm(linear(history.head, recurrent(history.gru, torch.stack(course))[-1]))  # type: ignore
            around = [j for j in there if j != o]
            course = [interacted(current.interaction, x[o], [x[j] for j in around]) for x in given[:3]]
            codes_of[o] = p, current.norm(recurrent(current.gru, torch.stack(course))[-1])
            for code, expected in zip((codes.z_p, codes.z_s), codes_of[o], strict=True):
                torch.testing.assert_close(code.unflatten(1, (3, -1))[row, o], expected, rtol=1e-4, atol=1e-5)
        states = {o: rollout.init(t) for o, (_, t) in codes_of.items()}
        for step in range(5):
            before = dict(states)
            for o in there:
                around = interacted(rollout.interaction, before[o], [before[j] for j in there if j != o])
                mixed = F.gelu(linear(rollout.mix, around) + linear(rollout.told, codes_of[o][0]))
                states[o] = rollout.cell(mixed, before[o])
                torch.testing.assert_close(
                    prediction[row, step, o], linear(rollout.out, states[o]), rtol=1e-4, atol=1e-5
                )
        errors = [(prediction[row, :, o] - given[3:, o]).square().mean() for o in there]
        torch.testing.assert_close(
            learner.task_loss(prediction, batch.y)[row], torch.stack(errors).mean(), rtol=1e-4, atol=1e-5
        )


def test_native_is_one_course_through_the_boundary():
    torch.manual_seed(1)
    windows = take(object_windows(N, absent=True), slice(N, None))
    learner = ObjectJEPA(ObjectJEPAConfig(**{**vars(CONFIG), "context": "monolithic"})).eval()
    tower = learner.history
    assert isinstance(tower, JointTower)
    code = encode(cast(Any, learner), learner.prepare(windows)).z_p.unflatten(1, (3, -1))
    dims = torch.arange(1, 9)
    for k in (1, 2, 3):
        torch.testing.assert_close(fixed_vector(k, 8), torch.sin(k * dims.float()) / 8**0.5)
    for row, o in ((0, 1), (1, 2)):
        there = windows.active[row].nonzero()[:, 0].tolist()
        course = []
        for video, k, count in ((windows.features[row, 0], 1, 8), (windows.query_features[row], 2, 3)):
            if k == 2:
                course.append(fixed_vector(3, 8))
            for x in projected(learner.projection, video)[:count]:
                around = [x[j] for j in there if j != o]
                course.append(interacted(tower.interaction, x[o], around) + fixed_vector(k, 8))
        expected = tower.norm(recurrent(tower.gru, torch.stack(course))[-1])
        torch.testing.assert_close(code[row, o], expected, rtol=1e-4, atol=1e-5)
    assert not code[0, 2].any()


def test_the_regularizer_is_of_slots_and_times():
    windows = take(object_windows(N, absent=True, seed=3), slice(N, None))
    learner = ObjectJEPA(CONFIG).eval()
    learner.at_step(5, 7)
    batch = learner.prepare(windows)
    _, parts = learner.native_loss(batch, encode(cast(Any, learner), batch))
    directions = sigreg_directions(8, 16, seed=5, step=7)
    tested = []
    for slot in range(4):
        where = [(i, o) for i in range(N) for o in range(3) if windows.active[i, o] and windows.slot[i, o] == slot]
        if len(where) < 2:
            continue
        for videos, times in ((windows.features[:, 0], (0, 3, 7)), (windows.query_features, (3, 5, 7))):
            for t in times:
                z = torch.stack([projected(learner.projection, videos[i])[t, o] for i, o in where])
                tested.append(sigreg(z, directions))
    torch.testing.assert_close(parts["sigreg"], torch.stack(tested).mean(), rtol=1e-4, atol=1e-5)
    learner.at_step(5, 8)
    assert learner.regularizer(batch) != parts["sigreg"]
    alone = take(windows, slice(0, 1))  # no slot has two objects
    assert learner.regularizer(learner.prepare(alone)) == 0
