"""Trajectory-decoupled prediction: sizes, losses against loops, empty codes, and that it is learned from the donor."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from controlled_windows import Carts, windows_of
from tiny_worlds import D_CLEAN_LEARNER, POKE_LEARNER

from sprii_train.learners import TDS, JEPAConfig, TDSConfig
from sprii_train.objectives import sigreg, sigreg_directions
from sprii_train.protocol import MissingOperation, Objective, Windows, check_learner, encode, training_loss

STATES = TDSConfig.like(D_CLEAN_LEARNER, 3, "increments")
FRAMES = TDSConfig.like(replace(POKE_LEARNER, history=6), 3, "embedding")


def learner_of(config: TDSConfig) -> TDS:
    torch.manual_seed(0)
    return TDS(config)


@pytest.mark.parametrize(
    ("config", "count"),
    [
        # As the controlled JEPA: stem 2,485,664, history 1,862,912, z_s 24,768, predictor 152,192, table 96.
        (TDSConfig.like(JEPAConfig(image=128, history=96), 64, "embedding"), 4_525_632),
        # Without a history network, and 64 columns of the predictor's first layer fewer.
        (TDSConfig.like(JEPAConfig(image=128, history=96), 0, "embedding"), 4_525_632 - 1_862_912 - 64 * 256),
        # States 4-192-192-128 and norm, history with a head 192-128-4, predictor 4 + 4 + 48 + 32-256-256-4, table.
        (
            TDSConfig(),
            (5 * 192 + 193 * 192 + 193 * 128 + 256)
            + (1_849_088 - 129 * 64 + 129 * 4)
            + (89 * 256 + 257 * 256 + 257 * 4)
            + 3 * 32,
        ),
        # The predictor and the table alone.
        (TDSConfig(persistent=0), (85 * 256 + 257 * 256 + 257 * 4) + 3 * 32),
    ],
)
def test_parameters(config: TDSConfig, count: int) -> None:
    with torch.device("meta"):
        assert sum(p.numel() for p in TDS(config).parameters()) == count


@pytest.mark.parametrize("d", [0, 1, 3])
@pytest.mark.parametrize("config", [STATES, FRAMES], ids=["states", "frames"])
def test_operations_with_codes_of_any_size(config: TDSConfig, d: int) -> None:
    config = replace(config, persistent=d)
    learner, windows = learner_of(config), windows_of(config)
    if learner.fit_statistics is not None:
        learner.fit_statistics(windows)
    check_learner(learner, windows)
    learner.eval()
    batch = learner.prepare(windows)
    codes = encode(learner, batch)
    assert codes.z_p.shape == (8, d)
    rolled = learner.predict(codes.z_s, codes.z_p.roll(1, 0), batch.u)
    assert torch.equal(rolled, learner.predict(codes.z_s, codes.z_p, batch.u)) == (d == 0)
    with pytest.raises(ValueError, match=r"lambda_x is 0\.1, but TDS predicts with the code of a pair's other window"):
        training_loss(learner, windows, Objective(lambda_x=0.1))
    loss, _ = training_loss(learner.train(), windows, Objective())
    loss.backward()
    assert all(p.grad is not None for p in learner.parameters())


def test_the_loss_of_states_is_of_the_other_trajectorys_code() -> None:
    learner, windows = learner_of(STATES), windows_of(STATES)
    assert learner.fit_statistics is not None
    learner.fit_statistics(windows_of(STATES, 40, seed=1))
    learner.eval()
    batch = learner.prepare(windows)
    codes = encode(learner, batch)
    loss, parts = learner.native_loss(batch, codes)
    other, expected = [4, 5, 6, 7, 0, 1, 2, 3], []
    for i, j in enumerate(other):
        found = learner.predict(codes.z_s[i : i + 1], codes.z_p[j : j + 1], batch.u[i : i + 1])[0]
        for k in range(len(STATES.horizons)):
            moved = (windows.future_observations[i, k] - windows.observations[i, -1]).double().numpy()
            shift, spread = (x[k].double().numpy() for x in (learner.shift, learner.spread))
            expected.append(np.mean((found[k].detach().double().numpy() - (moved - shift) / spread) ** 2))
    assert loss.item() == pytest.approx(np.mean(expected), rel=1e-5)
    assert set(parts) == {"decoupled", "target_variance"}


def test_the_loss_of_frames_has_sigreg_and_no_self_term() -> None:
    learner, windows = learner_of(FRAMES), windows_of(FRAMES)
    learner.eval()
    learner.at_step(3, 5)
    batch = learner.prepare(windows)
    codes = encode(learner, batch)
    loss, parts = learner.native_loss(batch, codes)
    swapped = torch.cat([codes.z_p[4:], codes.z_p[:4]])
    errors = (learner.predict(codes.z_s, swapped, batch.u) - batch.y).square().mean()
    times = torch.cat([batch.history[0], batch.y], dim=1).unbind(1)
    directions = sigreg_directions(8, FRAMES.sigreg_slices, seed=3, step=5)
    penalty = torch.stack([sigreg(e, directions) for e in times]).mean()  # of the windows of each time step
    torch.testing.assert_close(loss, errors + 0.02 * penalty)
    torch.testing.assert_close(parts["decoupled"], errors)


def test_a_trajectorys_own_past_says_nothing_of_its_future() -> None:
    learner, windows = learner_of(STATES).eval(), windows_of(STATES)
    changed = windows.observations.clone()
    changed[4:, :-1] += 1.0  # the recipients' past, but not their present
    other = windows._replace(observations=changed)

    def errors(of: Windows) -> torch.Tensor:
        batch = learner.prepare(of)
        codes = encode(learner, batch)
        return learner.task_loss(learner.predict(codes.z_s[4:], codes.z_p[:4], batch.u[4:]), batch.y[4:])

    assert torch.equal(errors(windows), errors(other))
    batch, moved = learner.prepare(windows), learner.prepare(other)
    assert not torch.allclose(encode(learner, batch).z_p[4:], encode(learner, moved).z_p[4:])


def test_statistics_are_of_states_and_of_increments_by_horizon() -> None:
    learner, windows = learner_of(STATES), windows_of(STATES, 20)
    fit_statistics = learner.fit_statistics
    assert fit_statistics is not None
    assert learner_of(FRAMES).fit_statistics is None
    fit_statistics(windows)
    states, ahead = windows.observations.double().numpy(), windows.future_observations.double().numpy()
    np.testing.assert_allclose(learner.centre, states.mean((0, 1)), atol=1e-6)
    np.testing.assert_allclose(learner.scale, states.std((0, 1)), rtol=1e-5)
    np.testing.assert_allclose(learner.shift, (ahead - states[:, -1:]).mean(0), atol=1e-6)
    np.testing.assert_allclose(learner.spread, (ahead - states[:, -1:]).std(0), rtol=1e-5)


def test_a_forecast_is_the_present_and_the_predicted_increment() -> None:
    learner, windows = learner_of(STATES).eval(), windows_of(STATES)
    fit_statistics = learner.fit_statistics
    assert fit_statistics is not None
    fit_statistics(windows)
    for parameter in learner.predictor.parameters():
        torch.nn.init.zeros_(parameter)
    present = windows.observations[:, -1]
    found = learner.forecast(present, torch.zeros(8, 3), windows.future_actions)
    mean = (windows.future_observations - windows.observations[:, -1:]).mean(0)
    torch.testing.assert_close(found, present[:, None] + mean)


def test_its_own_prediction_is_learned_and_takes_the_donor() -> None:
    config = replace(
        STATES, observation_dim=1, action_dim=1, history=9, horizons=(1, 4), persistent=1, width=16, head_width=16,
        embedding=16, predictor_width=32,
    )  # fmt: skip
    learner, data = learner_of(config), Carts(0)
    assert learner.fit_statistics is not None
    learner.fit_statistics(data(0, 200))
    optimizer = torch.optim.AdamW(learner.parameters(), lr=5e-3)
    losses = []
    for step in range(300):
        loss, _ = training_loss(learner, data(step), Objective())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    learner.eval()
    with torch.no_grad():
        batch = learner.prepare(Carts(1)(0, 500))
        codes = encode(learner, batch)

        def error(shift: int) -> float:
            given = codes.z_p[:500].roll(shift, 0)
            return float(
                learner.task_loss(learner.predict(codes.z_s[500:], given, batch.u[500:]), batch.y[500:]).mean()
            )

        matched, shuffled = error(0), error(1)
    assert np.mean(losses[-20:]) < 0.3 * np.mean(losses[:5])
    assert matched < 0.2  # the mean increment scores 1
    assert matched < 0.7 * shuffled


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: replace(STATES, target="state"), r"TDSConfig\.target is 'state'; legal: increments, embedding"),
        (lambda: replace(STATES, context="monolithic"), r"TDSConfig\.context is 'monolithic'; legal: split"),
        (lambda: replace(FRAMES, target="increments"), r"'increments' with frames of side 16; legal: image 0"),
        (lambda: replace(STATES, persistent=-1), r"TDSConfig\.persistent is -1"),
        (
            lambda: training_loss(learner_of(STATES), windows_of(STATES), Objective(native_on="recipients")),
            r"native_on is 'recipients', but TDS's native loss is of pairs; legal: 'all'",
        ),
    ],
)
def test_what_is_refused(make: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()


def test_operations_that_a_target_does_not_have() -> None:
    with pytest.raises(MissingOperation, match="no 'target' of a single observation"):
        learner_of(STATES).target(torch.zeros(2, 4))
    with pytest.raises(MissingOperation, match="this one predicts embeddings"):
        learner_of(FRAMES).forecast(torch.zeros(2, 4), torch.zeros(2, 3), torch.zeros(2, 16, 2))
