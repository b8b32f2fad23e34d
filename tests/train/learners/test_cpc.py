"""CPC of windows: InfoNCE against a loop of cross entropies, sizes, and that discrimination is learned of the donor."""

import math
from dataclasses import replace

import pytest
import torch
from controlled_windows import Carts, windows_of
from tiny_worlds import D_CLEAN_LEARNER, POKE_LEARNER
from torch import nn

from sprii_train.learners import CPC, CPCConfig, JEPAConfig
from sprii_train.learners.cpc import info_nce
from sprii_train.objectives import sigreg, sigreg_directions
from sprii_train.protocol import Objective, check_learner, encode, training_loss

STATES, FRAMES = CPCConfig.like(D_CLEAN_LEARNER), CPCConfig.like(replace(POKE_LEARNER, history=6))


def learner_of(config: CPCConfig) -> CPC:
    torch.manual_seed(0)
    return CPC(config)


def test_info_nce_is_a_cross_entropy_over_cosines() -> None:
    torch.manual_seed(0)
    prediction, y = torch.randn(5, 3, 4), 7 * torch.randn(5, 3, 4)
    found = info_nce(prediction, y, temperature=0.2)
    for i in range(5):
        for k in range(3):
            scores = torch.stack([nn.functional.cosine_similarity(prediction[i, k], y[j, k], dim=0) for j in range(5)])
            torch.testing.assert_close(found[i, k], nn.functional.cross_entropy(scores / 0.2, torch.tensor(i)))


@pytest.mark.parametrize("context", ["split", "monolithic"])
@pytest.mark.parametrize("config", [STATES, FRAMES], ids=["states", "frames"])
def test_operations_with_align_and_cross(config: CPCConfig, context: str) -> None:
    config = replace(config, context=context)  # pyright: ignore[reportArgumentType]
    learner, windows = learner_of(config), windows_of(config)
    check_learner(learner, windows)
    loss, parts = training_loss(learner, windows, Objective(lambda_p=1.0, lambda_x=0.1, cross_directions="one"))
    loss.backward()
    assert all(p.grad is not None for p in learner.parameters())
    assert {"self", "sigreg", "align", "cross"} <= set(parts)


def test_parameters_are_the_controlled_learners() -> None:
    with torch.device("meta"):
        learner = CPC(CPCConfig.like(JEPAConfig(image=128, history=96)))
    assert sum(p.numel() for p in learner.parameters()) == 4_525_632


def test_the_loss_is_among_the_batch_and_crosss_among_recipients() -> None:
    learner, windows = learner_of(STATES).eval(), windows_of(STATES)
    learner.at_step(3, 5)
    batch = learner.prepare(windows)
    codes = encode(learner, batch)
    prediction = learner.predict(codes.z_s, codes.z_p, batch.u)
    loss, parts = learner.native_loss(batch, codes)
    times = torch.cat([batch.history[0], batch.y], dim=1).unbind(1)
    directions = sigreg_directions(8, STATES.sigreg_slices, seed=3, step=5)
    penalty = torch.stack([sigreg(e, directions) for e in times]).mean()  # of the windows of each time step
    torch.testing.assert_close(loss, info_nce(prediction, batch.y, temperature=0.1).mean() + 0.02 * penalty)
    crossed = learner.predict(codes.z_s[4:], codes.z_p[:4], batch.u[4:])
    expected = info_nce(crossed, batch.y[4:], temperature=0.1).mean()
    found = training_loss(learner, windows, Objective(lambda_x=1.0, cross_directions="one"))[1]["cross"]
    torch.testing.assert_close(found, expected.detach())
    assert parts["self"] > 0


def test_errors_by_horizon_are_of_directions_alone_and_of_single_rows() -> None:
    learner = learner_of(STATES)
    torch.manual_seed(1)
    prediction, y = torch.randn(6, 3, 8), torch.randn(6, 3, 8)
    errors = learner.horizon_losses(prediction, y)
    cosine = nn.functional.cosine_similarity(prediction, y, dim=-1)
    torch.testing.assert_close(errors, y.square().mean(-1) * (2 - 2 * cosine))
    torch.testing.assert_close(learner.horizon_losses(9 * prediction[:2], y[:2]), errors[:2])


def test_discrimination_is_learned_and_takes_the_donor() -> None:
    config = replace(
        STATES, observation_dim=1, action_dim=1, history=9, horizons=(1, 4), persistent=1, width=16, head_width=16,
        embedding=16, predictor_width=32,
    )  # fmt: skip
    learner, data = learner_of(config), Carts(0)
    optimizer, losses = torch.optim.AdamW(learner.parameters(), lr=5e-3), []
    for step in range(300):
        learner.at_step(0, step)
        loss, parts = training_loss(learner, data(step), Objective(lambda_x=1.0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(parts["self"]))
    learner.eval()
    found = []
    with torch.no_grad():
        for step in range(8):
            batch = learner.prepare(Carts(1)(step, 24))
            codes = encode(learner, batch)
            predictions = [learner.predict(codes.z_s, codes.z_p.roll(shift, 0), batch.u) for shift in (0, 24, 1)]
            found.append([info_nce(each, batch.y, temperature=0.1).mean(0).tolist() for each in predictions])
    own, matched, shuffled = torch.tensor(found).mean(0)
    assert losses[0] > 0.9 * math.log(48)
    assert max(*own, *matched) < 0.65 * math.log(48)  # what is drawn at random among the batch has log 48
    assert matched[1] + 0.05 < shuffled[1]


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match=r"CPCConfig\.temperature is 0"):
        replace(STATES, temperature=0)
