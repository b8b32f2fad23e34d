"""The RSSM of windows: sizes, chains against a loop, KL against `torch.distributions`, what is decoded and learned."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from controlled_windows import Carts, windows_of
from tiny_worlds import D_CLEAN_LEARNER, POKE_LEARNER
from torch.distributions import Normal, kl_divergence
from torch.nn.functional import gelu

from sprii_train.learners import RSSM, JEPAConfig, RSSMConfig
from sprii_train.learners.rssm import Future
from sprii_train.protocol import MissingOperation, Objective, check_learner, encode, optional_operation, training_loss

STATES = replace(RSSMConfig.like(D_CLEAN_LEARNER), state=8, latent=3, decoder=8, horizons=(1, 3))
FRAMES = replace(RSSMConfig.like(replace(POKE_LEARNER, history=6)), state=8, latent=3, decoder=8, side=4)
# Start 64-128, transition 32 + 2 + 64-128 and GRUCell(128, 128), prior 128 + 64-128-64, posterior 128 + 128-128-64, and
# the decoder's 64 + 128 + 32-256, before its last layer.
OWN = 65 * 128 + 99 * 128 + (2 * 128 * 384 + 2 * 384) + (193 * 128 + 129 * 64) + (257 * 128 + 129 * 64) + 225 * 256
PREDICTOR = 152_192 + 96  # of the JEPA, and its table of horizons


def learner_of(config: RSSMConfig) -> RSSM:
    torch.manual_seed(0)
    learner = RSSM(config)
    learner.fit_statistics(windows_of(config, 30, seed=1))
    return learner


@pytest.mark.parametrize(
    ("jepa", "count"),
    [
        (JEPAConfig(), 2_089_120 - PREDICTOR + OWN + 257 * 4),
        (JEPAConfig(image=128, history=96), 4_525_632 - PREDICTOR + OWN + 257 * 1024),
    ],
)
def test_parameters(jepa: JEPAConfig, count: int) -> None:
    with torch.device("meta"):
        assert sum(p.numel() for p in RSSM(RSSMConfig.like(jepa)).parameters()) == count


@pytest.mark.parametrize("config", [STATES, FRAMES], ids=["states", "frames"])
def test_operations_with_align_and_cross(config: RSSMConfig) -> None:
    learner, windows = learner_of(config), windows_of(config)
    check_learner(learner, windows)
    loss, parts = training_loss(learner, windows, Objective(lambda_p=1.0, lambda_x=0.1, cross_directions="one"))
    loss.backward()
    assert all(p.grad is not None for p in learner.parameters())
    assert {"self", "reconstruction", "kl", "free_nats", "align", "cross"} <= set(parts)
    presents = windows.future_observations[:, 0] if config.image else windows.observations[:, -1]
    assert learner.present(presents).shape == (8, config.embedding)
    with pytest.raises(MissingOperation, match="needs the operation 'target', which RSSM lacks"):
        optional_operation(learner, "target", "a measure")


@torch.no_grad()
def test_the_rollout_and_the_filter_against_a_loop() -> None:
    learner, windows = learner_of(STATES), windows_of(STATES)
    batch = learner.prepare(windows)
    codes, d, c = encode(learner, batch), learner.predictor, STATES
    noise = torch.randn(8, 4, 3)
    for x in (None, batch.y.x):
        chain = d(codes.z_s, codes.z_p, Future(batch.u.actions, noise), c.horizons, x)
        for i in range(8):
            z_p, h = codes.z_p[i], torch.tanh(d.start(codes.z_s[i]))
            for t in range(4):
                p = q = law(d.prior(torch.cat([h, z_p])))
                if x is not None and t in c.horizons:
                    q = law(d.posterior(torch.cat([h, x[i, c.horizons.index(t)]])))
                s = q.mean + q.stddev * noise[i, t]
                if t in c.horizons:
                    k = c.horizons.index(t)
                    torch.testing.assert_close(chain.states.h[i, k], h)
                    torch.testing.assert_close(chain.states.s[i, k], s)
                    for found, told in ((chain.prior, p), (chain.found, q)):
                        torch.testing.assert_close(found.mean[i, k], told.mean)
                        torch.testing.assert_close(found.sd[i, k], told.stddev)
                    decoded = d.decoder(torch.cat([z_p, h, s]))
                    torch.testing.assert_close(d.decode(chain.states, codes.z_p)[i, k], decoded)
                if t < 3:
                    mixed = gelu(d.mix(torch.cat([s, batch.u.actions[i, t], z_p])))
                    h = d.cell(mixed[None], h[None])[0]


def law(numbers: torch.Tensor) -> Normal:
    mean, raw = numbers.chunk(2)
    return Normal(mean, torch.nn.functional.softplus(raw) + 0.1)


@torch.no_grad()
@pytest.mark.parametrize("free", [0.0, 1.0, 1e6])
def test_the_parts_of_the_loss(free: float) -> None:
    learner, windows = learner_of(replace(STATES, free_nats=free)).eval(), windows_of(STATES)
    batch = learner.prepare(windows)
    codes = encode(learner, batch)
    loss, parts = learner.native_loss(batch, codes)
    told = Future(batch.u.actions, torch.zeros(8, 4, 3))
    chain = learner.predictor(codes.z_s, codes.z_p, told, STATES.horizons, batch.y.x)
    nats = kl_divergence(Normal(*chain.found), Normal(*chain.prior)).sum(-1)
    rolled = learner.predict(codes.z_s, codes.z_p, told)
    filtered = learner.predictor.decode(chain.states, codes.z_p)
    errors = [(x - batch.y.features).square().mean() for x in (rolled, filtered)]
    torch.testing.assert_close(parts["self"], errors[0])
    torch.testing.assert_close(parts["reconstruction"], errors[1])
    torch.testing.assert_close(parts["kl"], nats.mean())
    torch.testing.assert_close(loss, sum(errors) + 0.01 * nats.clamp_min(free).mean())


def test_self_and_cross_meet_the_same_noise_and_evaluation_none() -> None:
    learner, windows = learner_of(STATES), windows_of(STATES)
    batch = learner.prepare(windows)
    codes = encode(learner, batch)
    assert torch.equal(learner.predict(*codes[:2], batch.u), learner.predict(*codes[:2], batch.u))
    assert not torch.equal(batch.u.noise, learner.prepare(windows).u.noise)
    assert not learner.eval().prepare(windows).u.noise.any()


def test_what_is_decoded_is_standardised_by_training_windows() -> None:
    learner, windows = learner_of(STATES), windows_of(STATES, 30, seed=1)
    states = torch.cat([windows.observations, windows.future_observations], dim=1).double().numpy()
    np.testing.assert_allclose(learner.mean, states.mean((0, 1)), atol=1e-6)
    np.testing.assert_allclose(learner.sd, states.std((0, 1)), rtol=1e-5)

    learner, windows = learner_of(FRAMES), windows_of(FRAMES, 30, seed=1)
    frames, tile = windows.future_observations[:, :, 1].double().numpy() / 255, FRAMES.image // 4
    areas = frames.reshape(*frames.shape[:2], 4, tile, 4, tile).mean((3, 5)).reshape(*frames.shape[:2], 16)
    np.testing.assert_allclose(learner.mean, areas.mean((0, 1)), atol=1e-6)
    np.testing.assert_allclose(learner.sd, np.sqrt(areas.var((0, 1)).mean()), rtol=1e-5)
    features = learner.eval().prepare(windows).y.features
    assert float(features.square().mean()) == pytest.approx(1.0, rel=1e-4)  # the mean frame's error
    np.testing.assert_allclose(features, (areas - areas.mean((0, 1))) / np.sqrt(areas.var((0, 1)).mean()), atol=1e-4)


def test_it_is_learned_and_takes_the_donor() -> None:
    config = replace(
        STATES, observation_dim=1, action_dim=1, history=9, horizons=(1, 4), persistent=1, width=16, head_width=16,
        embedding=16, state=32, decoder=32,
    )  # fmt: skip
    learner, data = RSSM(config), Carts(0)
    learner.fit_statistics(data(0, 200))
    optimizer, losses = torch.optim.AdamW(learner.parameters(), lr=5e-3), []
    for step in range(300):
        loss, _ = training_loss(learner, data(step), Objective(lambda_x=1.0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    learner.eval()
    with torch.no_grad():
        batch = learner.prepare(Carts(1)(0, 500))
        codes = encode(learner, batch)
        own, matched, shuffled = (
            float(learner.task_loss(learner.predict(codes.z_s, codes.z_p.roll(shift, 0), batch.u), batch.y).mean())
            for shift in (0, 500, 1)
        )
        parts = learner.native_loss(batch, codes)[1]
    assert np.mean(losses[-20:]) < 0.4 * np.mean(losses[:5])
    assert max(own, matched, float(parts["reconstruction"])) < 0.3  # the mean state scores 1
    assert matched < 0.9 * shuffled


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"context": "monolithic"}, r"RSSMConfig\.context is 'monolithic'; legal: split"),
        ({"latent": 0}, r"RSSMConfig\.latent is 0"),
        ({"kl_balance": 1.5}, r"RSSMConfig\.kl_balance is 1.5"),
        ({"side": 5}, r"RSSMConfig\.side is 5; legal: a divisor of the frames' side 16"),
    ],
)
def test_what_is_refused(change: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        replace(FRAMES, **change)


def test_training_without_statistics_is_refused() -> None:
    with pytest.raises(ValueError, match="observations are not standardised yet; legal: to call fit_statistics before"):
        RSSM(STATES).prepare(windows_of(STATES))
