"""FCRL: sizes, the mean over a set, InfoNCE by loops and by torch, and what is compared with what."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from state_windows import S, linear, random_windows, shift_scales

from sprii_train.learners import FCRL, FCRLConfig, JEPAConfig, TemporalFCRL, TemporalFCRLConfig
from sprii_train.learners.fcrl import info_nce
from sprii_train.learners.jepa import JEPA
from sprii_train.protocol import Objective, Windows, check_learner, each, encode, take, training_loss

SMALL = FCRLConfig(width=7, persistent=5, projection=6)


def learner_of(config: FCRLConfig = SMALL) -> FCRL:
    torch.manual_seed(1)
    learner = FCRL(config)
    shift_scales(learner)
    return learner


def nce_by_hand(a: np.ndarray, b: np.ndarray, temperature: float) -> list[float]:
    """Of every row of a, its own row of b among the rows of b."""
    found = []
    for i in range(len(a)):
        scores = [a[i] @ key / np.linalg.norm(a[i]) / np.linalg.norm(key) / temperature for key in b]
        found.append(-math.log(math.exp(scores[i]) / sum(math.exp(s) for s in scores)))
    return found


def test_the_sources_sizes():
    learner = FCRL(FCRLConfig())
    sizes = {name: sum(p.numel() for p in part.parameters()) for name, part in learner.named_children()}
    assert sizes == {
        "scales": 0,
        "encoder": linear(4 + 2 + 4, 50, 50, 50),
        "projector": linear(50, 50) + 2 * 50 + linear(50, 50),
    }
    assert (sizes["encoder"], sum(sizes.values())) == (5_650, 10_850)
    check_learner(learner, random_windows())


def test_the_code_is_a_mean_over_transitions_in_any_order():
    learner, windows = learner_of().eval(), random_windows()
    transitions = learner.prepare(windows).history
    x, u = learner.scales.states(windows.observations), learner.scales.actions(windows.actions)
    for t in (0, 22):
        torch.testing.assert_close(transitions[:, t], torch.cat([x[:, t], u[:, t], x[:, t + 1]], 1))
    layers = [m for m in learner.encoder.network if isinstance(m, torch.nn.Linear)]
    total = torch.zeros(6, 5)
    for t in range(23):
        h = transitions[:, t]
        for layer in layers[:-1]:
            h = (h @ layer.weight.T + layer.bias).clamp(min=0)
        total += (h @ layers[-1].weight.T + layers[-1].bias) / 23
    z = learner.encode_history(transitions)
    torch.testing.assert_close(z, total)
    torch.testing.assert_close(learner.encode_history(transitions[:, torch.randperm(23)]), z)


def test_info_nce_by_a_loop():
    torch.manual_seed(3)
    a, b = torch.randn(8, 5), torch.randn(8, 5)
    group = torch.arange(8) >= 4
    x, y = a.double().numpy(), b.double().numpy()
    expected = nce_by_hand(x[:4], y[:4], 0.3) + nce_by_hand(x[4:], y[4:], 0.3)
    np.testing.assert_allclose(info_nce(a, b, group, 0.3), expected, rtol=1e-5)


def test_the_native_loss_is_symmetric_over_the_halves():
    learner, windows = learner_of().eval(), random_windows(pairs=5)
    batch = learner.prepare(windows)
    codes = encode(learner, batch)
    loss, parts = learner.native_loss(batch, codes)
    p = F.normalize(learner.projector(codes.z_p), dim=1)
    scores = p[:5] @ p[5:].T / 0.07
    own = torch.arange(5)
    torch.testing.assert_close(loss, 0.5 * (F.cross_entropy(scores, own) + F.cross_entropy(scores.T, own)))
    assert parts["self"] is loss
    by_window = learner.task_loss(learner.predict(codes.z_s, codes.z_p, batch.u), batch.y)
    torch.testing.assert_close(by_window.mean(), loss)
    with pytest.raises(ValueError, match="FCRL's native loss is of pairs; legal: 'all'"):
        training_loss(learner, windows, Objective(native_on="recipients"))
    with pytest.raises(ValueError, match=r"lambda_x is 1\.0, but FCRL predicts nothing, .*; legal: 0"):
        training_loss(learner, windows, Objective(lambda_x=1.0))


def test_gradients_go_through_both_sides():
    """Those of the formula above, in training mode, where batch norm is of the whole batch."""
    learner = learner_of().train().double()
    windows = each(random_windows(pairs=5), lambda tensor: tensor.double())
    loss, _ = training_loss(learner, windows, Objective())
    loss.backward()
    found = [p.grad for p in learner.parameters()]
    learner.zero_grad(set_to_none=True)
    p = F.normalize(learner.projector(learner.encode_history(learner.prepare(windows).history)), dim=1)
    scores, own = p[:5] @ p[5:].T / 0.07, torch.arange(5)
    (0.5 * (F.cross_entropy(scores, own) + F.cross_entropy(scores.T, own))).backward()
    for a, parameter in zip(found, learner.parameters(), strict=True):
        torch.testing.assert_close(a, parameter.grad)


def test_present_and_refused():
    learner, windows = learner_of(), random_windows()
    assert torch.equal(learner.present(windows.observations[:, -1]), learner.prepare(windows).current)
    assert learner.prepare(windows).current.shape == (6, S)
    with pytest.raises(ValueError, match=r"FCRLConfig\.temperature is 0"):
        replace(SMALL, temperature=0.0)


# The temporal one

NARROW = JEPAConfig(
    history=6, embedding=12, persistent=5, current=4, action_feature=4, observation_width=8, width=8, layers=2, heads=2,
    head_width=8, predictor_width=8, dropout=0.0, sigreg_slices=4,
)  # fmt: skip
KINDS = {
    "states": TemporalFCRLConfig.like(NARROW),
    "frames": TemporalFCRLConfig.like(replace(NARROW, image=16, stem=(3, 4), norm="snapshot", frames="scaled")),
}


def temporal(kind: str) -> tuple[TemporalFCRL, Windows]:
    torch.manual_seed(2)
    learner = TemporalFCRL(KINDS[kind])
    windows = random_windows(pairs=4, history=6)
    if kind == "frames":
        seen, ahead = torch.randint(256, (8, 7, 16, 16)), torch.randint(256, (8, 3, 2, 16, 16))
        windows = windows._replace(observations=seen.to(torch.uint8), future_observations=ahead.to(torch.uint8))
    learner.prepare(windows)
    learner.after_step()
    return learner, windows


def test_the_temporal_sources_sizes():
    """The JEPA's stem and history encoder, and the projector, which is dropped; no predictor and no z_s."""
    paper = JEPAConfig(image=128, history=96, norm="snapshot")
    with torch.device("meta"):
        learner, jepa = TemporalFCRL(TemporalFCRLConfig.like(paper)), JEPA(paper)
    sizes = {name: sum(p.numel() for p in part.parameters()) for name, part in learner.named_children()}
    shared = {name: sum(p.numel() for p in getattr(jepa, name).parameters()) for name in ("encoder", "history")}
    assert shared == {"encoder": 2_485_664 - 256, "history": 1_862_912}
    projector = linear(64, 128) + 2 * 128 + linear(128, 64)
    assert sizes == shared | {"encoder_norm": 256, "current": 0, "projector": projector}
    assert sum(sizes.values()) == 4_365_408
    assert (learner.config.temperature, learner.config.projection) == (0.07, 128)


@pytest.mark.parametrize("kind", KINDS)
def test_the_temporal_loss_by_hand(kind: str):
    """Of the projected last token of each history, against the other half alone, in evaluation."""
    learner, windows = temporal(kind)
    learner.eval()
    check_learner(learner, windows)
    batch = learner.prepare(windows)
    codes = encode(learner, batch)
    loss, _ = learner.native_loss(batch, codes)
    layers: Any = learner.projector
    first, norm, _, last = layers
    h = (codes.z_p @ first.weight.T + first.bias - norm.running_mean) / (norm.running_var + norm.eps).sqrt()
    p = (h.clamp(min=0) @ last.weight.T + last.bias).detach().double().numpy()
    expected = nce_by_hand(p[:4], p[4:], 0.07) + nce_by_hand(p[4:], p[:4], 0.07)
    assert loss.item() == pytest.approx(np.mean(expected), rel=1e-4)
    alone = [learner.encode_history(learner.prepare(take(windows, slice(i, i + 1))).history) for i in range(8)]
    torch.testing.assert_close(codes.z_p, torch.cat(alone), atol=1e-5, rtol=1e-4)
    no_future = windows._replace(future_observations=windows.future_observations[:, :0])
    torch.testing.assert_close(learner.prepare(no_future).history[0], batch.history[0])
    present = windows.observations[:, -1] if kind == "states" else windows.observations[:, -2:]
    torch.testing.assert_close(learner.present(present), codes.z_s, atol=1e-5, rtol=1e-4)
    assert (learner.horizon_losses, learner.target) == (None, None)


@pytest.mark.parametrize("kind", KINDS)
def test_every_temporal_weight_learns_and_cross_is_refused(kind: str):
    learner, windows = temporal(kind)
    loss, parts = training_loss(learner.train(), windows, Objective(lambda_p=0.1))
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in learner.parameters())
    assert {"self", "align"} <= parts.keys()
    with pytest.raises(ValueError, match="but TemporalFCRL predicts nothing"):
        training_loss(learner, windows, Objective(lambda_x=0.1))
    with pytest.raises(ValueError, match=r"TemporalFCRLConfig\.context is 'monolithic'; legal: split"):
        replace(KINDS[kind], context="monolithic")
