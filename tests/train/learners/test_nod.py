"""NOD: the released sizes, the prediction by hand, its queries, and training without alignment as a plain loop."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.utils import clip_grad_norm_

from sprii_envs.banks import Store
from sprii_train.fields.windows import FieldWindows, PairedFields
from sprii_train.fit import TrainConfig, fit
from sprii_train.learners.nod import NOD, NODConfig
from sprii_train.protocol import Objective, check_learner, training_loss
from sprii_train.randomness import torch_seed

SMALL = NODConfig(points=17, frames=9, widths=(4, 8), head=8, branch=16, trunk=16, rank=8, waves=2, tones=1, queries=32)


def new_learner(config: NODConfig = SMALL) -> NOD:
    torch.manual_seed(5)
    return NOD(config)


@pytest.fixture(scope="module")
def data(field_bank: Store) -> PairedFields:
    return PairedFields(field_bank, field_bank.split("train"), pairs=4, seed=1)


def size(module: torch.nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def test_the_released_network_has_as_many_parameters():
    learner = NOD(NODConfig())
    assert [size(part) for part in (learner.condition, learner.branch, learner.trunk)] == [
        5_051_911,
        2_014_112,
        3_015_612,
    ]
    assert size(learner) == 10_081_637
    groups = [m.num_groups for m in learner.condition.modules() if isinstance(m, torch.nn.GroupNorm)]
    assert groups == [2, 2, 4, 4, 8, 8, 16, 16, 16, 16]  # the largest of 16, 8, 4, 2, 1 that divides
    strides = [m.stride[0] for m in learner.condition.modules() if isinstance(m, torch.nn.Conv2d)]
    assert strides == [1, 1, 2, 1, 2, 1, 2, 1, 2, 1]


def test_a_prediction_is_the_first_frame_and_an_inner_product(data: PairedFields):
    learner = new_learner().eval()
    batch = learner.prepare(data(0))
    assert batch.u is None
    z_p = learner.encode_history(batch.history)
    found = learner.predict(batch.current, z_p, None).view(8, 9, 17)
    for case, frame, place in ((0, 0, 0), (3, 4, 16), (7, 8, 5)):
        t, x = frame / 8, -1 + 2 * place / 16
        features = [t, x]
        for angle in (np.pi * x, 2 * np.pi * x, np.pi * t):
            features += [np.sin(angle), np.cos(angle)]
        b = learner.branch(torch.cat([batch.current[case], z_p[case]]))
        inner = b @ learner.trunk(torch.tensor(features, dtype=torch.float32))
        expected = batch.current[case, place] + learner.scale * (inner + learner.offset)
        torch.testing.assert_close(found[case, frame, place], expected, rtol=1e-4, atol=1e-5)
    losses = learner.task_loss(found.flatten(1), batch.y)
    torch.testing.assert_close(losses[2], (found[2] - data(0).fields[2]).square().mean())


def test_queries_are_places_of_the_field_drawn_from_seed_and_step(data: PairedFields):
    learner, windows = new_learner(), data(0)
    learner.at_step(1, 0)
    batch = learner.prepare(windows)
    assert batch.u is not None
    assert batch.u.shape == batch.y.shape == (8, 32)
    for case, query in ((0, 0), (5, 31)):
        frame, place = divmod(int(batch.u[case, query]), 17)
        assert batch.y[case, query] == windows.fields[case, frame, place]
    assert torch.equal(learner.prepare(windows).u, batch.u)  # of a resumed run too
    learner.at_step(1, 1)
    assert not torch.equal(learner.prepare(windows).u, batch.u)
    learner.at_step(1, 0)
    z_p = learner.encode_history(windows.conditions)
    whole = learner.predict(batch.current, z_p, None)
    assert torch.equal(learner.predict(batch.current, z_p, batch.u), whole.gather(1, batch.u))


def test_the_operations_are_those_of_a_learner(data: PairedFields):
    check_learner(new_learner(), data(0))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"made for trajectories of shape \(9, 17\), got \(8, 17\)"):
        new_learner().prepare(FieldWindows(*(x[:, 1:] for x in data(0))))


def test_training_without_alignment_is_the_plain_path_to_the_bit(data: PairedFields, tmp_path: Path):
    """NOD's own loop by hand, over the same batches and places: squared errors, AdamW, a clipped gradient, one rate."""
    steps, rate, decay, clip = 12, 1e-3, 1e-4, 1.0
    plain = new_learner()
    optimizer = torch.optim.AdamW(plain.parameters(), lr=rate, weight_decay=decay, fused=True)
    for step in range(steps):
        conditions, fields = data(step)
        generator = torch.Generator().manual_seed(torch_seed(1, step))
        places = torch.randint(9 * 17, (8, 32), generator=generator)
        code = plain.condition(conditions)
        branch = plain.branch(torch.cat([fields[:, 0], code], dim=1))
        change = plain.scale * (branch @ plain.trunk(plain.places).T + plain.offset)
        predicted = (fields[:, 0].repeat(1, 9) + change).gather(1, places)
        loss = (predicted - fields.flatten(1).gather(1, places)).square().mean(1).mean()
        optimizer.zero_grad()
        loss.backward()
        clip_grad_norm_(plain.parameters(), clip)
        optimizer.step()
    config = TrainConfig(
        steps=steps, pairs=4, weight_decay=decay, clip=clip, rates=((0, rate),), precision="fp32", seed=1
    )

    def weights(objective: Objective, name: str) -> dict[str, torch.Tensor]:
        return fit(new_learner(), data, objective, config, tmp_path / name, tensorboard=False).state_dict()  # type: ignore[arg-type]

    zero, aligned = weights(Objective(lambda_p=0.0), "zero"), weights(Objective(lambda_p=0.03), "aligned")
    for name, value in plain.state_dict().items():
        assert torch.equal(zero[name], value), name
    assert not torch.equal(aligned["condition.head.2.weight"], zero["condition.head.2.weight"])


def test_alignment_is_of_the_conditions_codes_alone(data: PairedFields):
    """Align reaches the condition network; the operator's weights feel nothing of it."""
    learner = new_learner()
    both, parts = training_loss(learner, data(0), Objective(lambda_p=1.0))  # type: ignore[arg-type]
    native, _ = training_loss(learner, data(0), Objective())  # type: ignore[arg-type]
    torch.testing.assert_close(both - native, parts["align"])
    assert parts["covariance"] == 0.0  # of one dimension
    (both - native).backward()
    gradients = {name: p.grad.abs().max() for name, p in learner.named_parameters() if p.grad is not None}
    assert gradients["condition.head.2.weight"] > 0
    assert gradients["trunk.0.weight"] < 1e-7


@pytest.mark.parametrize(
    ("changed", "message"),
    [({"points": 1}, "NODConfig.points is 1; legal"), ({"widths": ()}, r"NODConfig.widths is \(\)"),
     ({"code": 0}, "NODConfig.code is 0"), ({"queries": 2.5}, "NODConfig.queries is 2.5")],
)  # fmt: skip
def test_refused(changed: dict, message: str):
    with pytest.raises(ValueError, match=message):
        NODConfig(**changed)
