"""FCRL: sizes, the mean over a set, InfoNCE by loops and by torch, and what is compared with what."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from state_windows import S, linear, random_windows, shift_scales

from sprii_train.learners import FCRL, FCRLConfig
from sprii_train.learners.fcrl import info_nce
from sprii_train.protocol import Objective, check_learner, each, encode, training_loss

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
    one, _ = training_loss(learner, windows, Objective(native_on="recipients"))
    torch.testing.assert_close(one, F.cross_entropy(scores.T, own))
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
    with pytest.raises(ValueError, match=r"FCRLConfig\.encoder is 'lstm'; legal: set"):
        replace(SMALL, encoder="lstm")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"FCRLConfig\.temperature is 0"):
        replace(SMALL, temperature=0.0)
