"""NOD on states: sizes, Euler steps and exchanged codes by loops, the LSTM by its equations."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from state_windows import S, linear, random_windows, shift_scales

from sprii_train.learners import NODStates, NODStatesConfig
from sprii_train.protocol import Objective, check_learner, encode, training_loss

SMALL = NODStatesConfig(condition=5, width=6, persistent=3)


def learner_of(config: NODStatesConfig = SMALL) -> NODStates:
    torch.manual_seed(1)
    learner = NODStates(config)
    shift_scales(learner)
    return learner


def errors_by_hand(learner: NODStates, windows, codes: torch.Tensor) -> np.ndarray:
    """(B, K) squared errors of 16 Euler steps, window by window."""
    scales, found = learner.scales, []
    layers = [(m.weight.double(), m.bias.double()) for m in learner.rate if isinstance(m, torch.nn.Linear)]
    with torch.no_grad():
        y, u = scales.states(windows.future_observations).double(), scales.actions(windows.future_actions).double()
        for i, z in enumerate(codes.double()):
            x, row = scales.states(windows.observations[i, -1]).double(), []
            for step in range(16):
                h = torch.cat([x, u[i, step], z])
                for weight, bias in layers[:-1]:
                    h = torch.tanh(weight @ h + bias)
                x = x + 0.05 * (layers[-1][0] @ h + layers[-1][1])
                if step + 1 in (1, 4, 16):
                    row.append(float(((x - y[i, len(row)]) ** 2).sum()) / S)
            found.append(row)
    return np.array(found)


def test_sizes():
    learner = NODStates(NODStatesConfig())
    sizes = {name: sum(p.numel() for p in part.parameters()) for name, part in learner.named_children()}
    lstm = 4 * 32 * (6 + 32 + 2)
    assert sizes == {"scales": 0, "condition": lstm, "code": linear(32, 4), "rate": linear(6 + 4, 32, 32, 4)}
    assert sum(sizes.values()) == 6_792
    check_learner(learner, random_windows())


def test_predictions_by_a_loop():
    learner, windows = learner_of().eval(), random_windows()
    batch = learner.prepare(windows)
    codes = encode(learner, batch)
    found = learner.horizon_losses(learner.predict(codes.z_s, codes.z_p, batch.u), batch.y)
    np.testing.assert_allclose(found.detach(), errors_by_hand(learner, windows, codes.z_p.detach()), rtol=1e-4)


def test_the_native_loss_exchanges_codes_and_adds_noise_in_training_alone():
    learner, windows = learner_of().eval(), random_windows()
    batch = learner.prepare(windows)
    codes = encode(learner, batch)
    exchanged = torch.cat([codes.z_p[3:], codes.z_p[:3]]).detach()
    loss, _ = learner.native_loss(batch, codes)
    assert loss.item() == pytest.approx(errors_by_hand(learner, windows, exchanged).mean(), rel=1e-4)
    torch.manual_seed(7)
    noise = torch.randn(6 * 3).view(6, 3)
    torch.manual_seed(7)
    noisy, _ = learner.train().native_loss(batch, codes)
    assert noisy.item() == pytest.approx(errors_by_hand(learner, windows, exchanged + 0.1 * noise).mean(), rel=1e-4)
    assert noisy.item() != pytest.approx(loss.item(), rel=1e-4)


def test_the_code_is_the_last_state_of_the_recurrence():
    learner, windows = learner_of().eval(), random_windows()
    tokens = learner.prepare(windows).history.double()
    assert not tokens[:, -1, S:].any()  # the action at the last state is not taken yet
    cell = {name: value.double() for name, value in learner.condition.named_parameters()}
    h = c = torch.zeros(6, 5, dtype=torch.float64)
    for t in range(24):
        gates = tokens[:, t] @ cell["weight_ih_l0"].T + h @ cell["weight_hh_l0"].T
        i, f, g, o = (gates + cell["bias_ih_l0"] + cell["bias_hh_l0"]).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
    code = h @ learner.code.weight.double().T + learner.code.bias.double()
    torch.testing.assert_close(learner.encode_history(tokens.float()).double(), code, atol=1e-5, rtol=1e-4)


def test_refused():
    learner, windows = learner_of(), random_windows()
    with pytest.raises(ValueError, match="NODStates's native loss is of pairs; legal: 'all'"):
        training_loss(learner, windows, Objective(native_on="recipients"))
    with pytest.raises(ValueError, match="NODStates was made for histories of 24 states, got 5"):
        learner.prepare(random_windows(history=5))
    with pytest.raises(ValueError, match=r"NODStatesConfig\.horizons are \(4, 1\)"):
        replace(SMALL, horizons=(4, 1))
    with pytest.raises(ValueError, match=r"lambda_x is 0\.1, but NODStates predicts with .* already; legal: 0"):
        training_loss(learner, windows, Objective(lambda_x=0.1))
