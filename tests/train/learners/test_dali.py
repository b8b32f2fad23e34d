"""DALI's context part: sizes, prefixes and their padding by hand, attention by torch, the loss by a loop."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from state_windows import A, S, T, linear, random_windows, shift_scales

from sprii_train.learners import DALI, DALIConfig
from sprii_train.learners.dali import Block
from sprii_train.protocol import check_learner, encode

SMALL = DALIConfig(width=8, forward_width=6, persistent=3)


def learner_of(config: DALIConfig = SMALL) -> DALI:
    torch.manual_seed(1)
    learner = DALI(config)
    shift_scales(learner)
    return learner


def test_the_sources_sizes():
    learner = DALI(DALIConfig())
    sizes = {name: sum(p.numel() for p in part.parameters()) for name, part in learner.named_children()}
    assert sizes == {
        "scales": 0,
        "token": linear(6, 256) + 2 * 256,
        "block": linear(256, 3 * 256) + linear(256, 256) + linear(256, 256, 256),
        "head": linear(24 * 256, 8) + 2 * 8,
        "dynamics": linear(4 + 2 + 8, 128, 128, 4),
    }
    assert sum(sizes.values()) == 465_180
    check_learner(learner, random_windows(horizons=(1,)))


def test_the_block_is_torchs_attention_and_a_residual_feed_forward():
    torch.manual_seed(0)
    block, x = Block(8), torch.randn(5, 7, 8)
    project = block.query_key_value
    whole = torch.nn.MultiheadAttention(8, 1, batch_first=True)
    whole.load_state_dict(
        {"in_proj_weight": project.weight, "in_proj_bias": project.bias, "out_proj.weight": block.out.weight,
         "out_proj.bias": block.out.bias}
    )  # fmt: skip
    attended = whole(x, x, x, need_weights=False)[0]
    torch.testing.assert_close(block(x), x + attended + block.feed(x + attended))


def test_prefixes_by_hand():
    learner, windows = learner_of().train(), random_windows(pairs=40, horizons=(1,))
    learner.at_step(3, 14)
    batch = learner.prepare(windows)
    o, a, f, u = (part.double().numpy() for part in windows[:4])
    mean, sd = learner.scales.observation.double().numpy()
    moved, spread = learner.scales.action.double().numpy()
    found = []
    for i in range(len(o)):
        states, actions = (np.concatenate([o[i], f[i]]) - mean) / sd, (np.concatenate([a[i], u[i]]) - moved) / spread
        fits = []
        for end in range(1, T):
            tokens = [np.r_[states[t], actions[t] if t < end else np.zeros(A)] for t in range(end + 1)]
            read = np.stack([tokens[0]] * (T - len(tokens)) + tokens)
            if np.allclose(read, batch.history[i], atol=1e-5):
                fits.append(end)
        (end,) = fits
        np.testing.assert_allclose(batch.current[i], states[end], atol=1e-5)
        np.testing.assert_allclose(batch.u[i, 0], actions[end], atol=1e-5)
        np.testing.assert_allclose(batch.y[i, 0], states[end + 1], atol=1e-5)
        found.append(end)
    assert min(found) <= 4
    assert max(found) >= 20
    learner.at_step(3, 14)
    assert torch.equal(learner.prepare(windows).history, batch.history)
    learner.at_step(3, 15)
    assert not torch.equal(learner.prepare(windows).history, batch.history)


def test_evaluation_reads_whole_histories():
    learner, windows = learner_of().eval(), random_windows(horizons=(1,))
    batch = learner.prepare(windows)
    torch.testing.assert_close(batch.history[:, :, :S], learner.scales.states(windows.observations))
    assert not batch.history[:, -1, S:].any()
    torch.testing.assert_close(batch.y, learner.target(windows.future_observations))
    torch.testing.assert_close(batch.current, learner.present(windows.observations[:, -1]))
    donor = windows._replace(
        future_observations=windows.future_observations[:, :0], future_actions=windows.actions[:, :0]
    )
    assert torch.equal(learner.prepare(donor).history, batch.history)


def test_the_loss_by_a_loop():
    learner, windows = learner_of().eval(), random_windows(horizons=(1,))
    batch = learner.prepare(windows)
    codes = encode(learner, batch)
    loss, _ = learner.native_loss(batch, codes)
    first, second, third = (m for m in learner.dynamics if isinstance(m, torch.nn.Linear))
    total = 0.0
    for i in range(6):
        x = torch.cat([batch.current[i], batch.u[i, 0], codes.z_p[i]])
        for layer in (first, second):
            x = layer.weight @ x + layer.bias
            x = x / (1 + torch.exp(-x))
        total += ((third.weight @ x + third.bias - batch.y[i, 0]) ** 2).sum().item() / S / 6
    assert loss.item() == pytest.approx(total, rel=1e-5)
    flat = learner.block(learner.token(batch.history)).reshape(6, -1)
    z = F.layer_norm(flat @ learner.head[1].weight.T + learner.head[1].bias, (3,))
    torch.testing.assert_close(codes.z_p, z * torch.sigmoid(z))


def test_refused():
    with pytest.raises(ValueError, match="DALI was made for histories of 24 states, got 9"):
        DALI(SMALL).prepare(random_windows(horizons=(1,), history=9))
    with pytest.raises(ValueError, match=r"DALIConfig\.history is 1"):
        replace(SMALL, history=1)
