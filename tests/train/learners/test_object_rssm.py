"""The object RSSM: divergences against `torch.distributions`, who reads what, draws, statistics, parts of the loss."""

from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from tiny_objects import object_windows
from torch.distributions import Normal as Reference
from torch.distributions import kl_divergence

from sprii_train.checkpoints import CheckpointError
from sprii_train.fit import TrainConfig, fit
from sprii_train.learners import ObjectRSSM, ObjectRSSMConfig
from sprii_train.learners.object_rssm import FLOOR, LEAST, Normal, balanced_divergence, divergence
from sprii_train.protocol import Objective, encode, take

N = 4
CONFIG = ObjectRSSMConfig(features=6, projection=8, width=8, persistent=5, latent=3, decoder=7)


def made(context: str = "split") -> ObjectRSSM:
    torch.manual_seed(0)
    learner = ObjectRSSM(replace(CONFIG, context=context))  # type: ignore[arg-type]
    learner.fit_statistics(torch.randn(50, 6))
    return learner


def pair() -> tuple[Normal, Normal]:
    torch.manual_seed(2)
    return tuple(  # type: ignore[return-value]
        Normal(torch.randn(4, 5, 3, requires_grad=True), (torch.rand(4, 5, 3) + 0.1).requires_grad_()) for _ in "qp"
    )


def test_divergence():
    q, p = pair()
    torch.testing.assert_close(divergence(q, p), kl_divergence(Reference(*q), Reference(*p)).sum(-1))


def test_balance_and_free_nats():
    q, p = pair()
    exact = kl_divergence(Reference(*q), Reference(*p)).sum(-1)
    free = float(exact.detach().median()) + 1e-4
    minimised, nats = balanced_divergence(q, p, balance=0.8, free=free)
    torch.testing.assert_close(nats, exact.detach())
    torch.testing.assert_close(minimised, exact.clamp_min(free))
    whole = torch.autograd.grad(exact.sum(), [*q, *p], retain_graph=True)
    found = torch.autograd.grad(minimised.sum(), [*q, *p])
    above = (exact > free)[..., None]
    for i, (a, b) in enumerate(zip(found, whole, strict=True)):
        torch.testing.assert_close(a, (0.2 if i < 2 else 0.8) * b * above)


@pytest.mark.parametrize("context", ["split", "monolithic"])
def test_parts_of_the_loss(context: str):
    """Posterior filtering of CD[3:] from the codes, step by step with `nn.Module`s of the learner."""
    learner = made(context).eval()
    windows = take(object_windows(N, absent=True), slice(N, None))
    batch = learner.prepare(windows)
    codes = encode(cast(Any, learner), batch)
    loss, parts = learner.native_loss(batch, codes)
    dynamics, active = learner.dynamics, windows.active
    state = (codes.z_s if context == "split" else codes.z_p).unflatten(1, (3, -1))
    told = None
    if context == "split":
        told = dynamics.told(codes.z_p.unflatten(1, (3, -1)))
    h, s = state[..., :8], state[..., 8:]
    x = learner.projection((windows.query_features - learner.mean) / learner.sd)[:, 3:]
    if context == "monolithic":
        x = x + torch.sin(2.0 * torch.arange(1, 9)) / 8**0.5
    weights = torch.zeros(N, 3, 3)
    for i in range(N):
        for o in range(3):
            for j in range(3):
                weights[i, o, j] = float(j != o and bool(active[i, j])) / (int(active[i].sum()) - int(active[i, o]))
    errors, nats = [], []
    for t in range(5):
        h = dynamics.step(cast(Any, type(learner.state(state))(h, s)), told, weights)
        numbers = dynamics.posterior_out(
            torch.nn.functional.gelu(dynamics.posterior_hidden(h) + dynamics.seen(x[:, t]))
        )
        q = Reference(numbers[..., :3], torch.nn.functional.softplus(numbers[..., 3:]) + LEAST)
        s = q.mean
        hidden = dynamics.prior_hidden(h) + (0.0 if told is None else told.prior)
        numbers = dynamics.prior_out(torch.nn.functional.gelu(hidden))
        p = Reference(numbers[..., :3], torch.nn.functional.softplus(numbers[..., 3:]) + LEAST)
        nats.append(kl_divergence(q, p).sum(-1))
        context_of = codes.z_p.unflatten(1, (3, -1))[..., : 5 if context == "split" else 0]
        decoded = learner.decoder(torch.cat([context_of, h, s], dim=-1))
        target = (windows.query_features[:, 3 + t] - learner.mean) / learner.sd
        errors.append((decoded - target).square().mean(-1))

    def mean(values: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack([torch.stack(values).mean(0)[i][active[i]].mean() for i in range(N)]).mean()

    torch.testing.assert_close(parts["reconstruction"], mean(errors), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(parts["kl"], mean(nats), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(parts["free_nats"], mean([(n < 1.0).float() for n in nats]))
    expected = parts["self"] + parts["reconstruction"] + 0.01 * mean([n.clamp_min(1.0) for n in nats])
    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("context", ["split", "monolithic"])
def test_rollouts_read_no_posterior_of_the_future(context: str):
    """No gradient from predictions to the future, some from reconstructions; a rollout asks no posterior."""
    learner = made(context).train()
    windows = take(object_windows(N), slice(N, None))
    query = windows.query_features.clone().requires_grad_()
    batch = learner.prepare(windows._replace(query_features=query.detach()))
    x = learner.projected(query)
    batch = batch._replace(y=batch.y._replace(x=x[:, 3:]), history=batch.history._replace(given=x[:, :3]))
    if context == "split":
        batch = batch._replace(current=batch.current._replace(x=x[:, :3]))
    codes = encode(cast(Any, learner), batch)
    _, parts = learner.native_loss(batch, codes)
    (of_rollout,) = torch.autograd.grad(parts["self"], query, retain_graph=True)
    (of_reconstruction,) = torch.autograd.grad(parts["reconstruction"], query)
    assert of_rollout[:, :3].any()
    assert not of_rollout[:, 3:].any()
    assert of_reconstruction[:, 3:].any()

    def refused(*_: Any) -> None:
        raise AssertionError("a posterior was asked")

    learner.dynamics.posterior_out.register_forward_hook(refused)
    learner.predict(codes.z_s, codes.z_p, batch.u)
    with pytest.raises(AssertionError, match="a posterior was asked"):
        encode(cast(Any, learner), batch)


def test_the_querys_filter_knows_no_persistent_code():
    learner, windows = made().eval(), take(object_windows(N), slice(N, None))
    z_s = encode(cast(Any, learner), learner.prepare(windows)).z_s
    other = windows._replace(features=windows.features.flip(2))
    assert torch.equal(encode(cast(Any, learner), learner.prepare(other)).z_s, z_s)
    with torch.no_grad():
        assert learner.dynamics.context is not None
        learner.dynamics.context.weight.mul_(3.0)
    again = encode(cast(Any, learner), learner.prepare(windows))
    assert torch.equal(again.z_s, z_s)


def test_draws_are_of_training_alone_and_one_batchs_rollouts_share_them():
    learner, windows = made(), object_windows(N)
    for training in (True, False):
        learner.train(training)
        batch = learner.prepare(windows)
        codes = encode(cast(Any, learner), batch)
        assert bool(batch.u.noise.any()) == training
        first, second = (learner.predict(codes.z_s, codes.z_p, batch.u) for _ in range(2))
        assert torch.equal(first, second)
        again = learner.predict(codes.z_s, codes.z_p, learner.prepare(windows).u)
        assert torch.equal(again, first) != training


def test_statistics():
    learner = ObjectRSSM(CONFIG)
    windows = object_windows(N)
    with pytest.raises(ValueError, match=r"features are not z-scored yet; legal: to call fit_statistics before train"):
        learner.prepare(windows)
    features = torch.randn(7, 4, 3, 6) * torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 0.0]) + 2.0
    learner.fit_statistics(features.half())
    rows = features.half().double().flatten(0, 2).numpy()
    torch.testing.assert_close(learner.mean, torch.from_numpy(rows.mean(0)).float())
    torch.testing.assert_close(learner.sd[:5], torch.from_numpy(rows.std(0)).float()[:5])
    assert learner.sd[5] == pytest.approx(FLOOR)
    assert learner.state_dict().keys() >= {"mean", "sd", "fitted"}
    learner.prepare(windows)
    for wrong in (torch.zeros(5, 7), torch.zeros(1, 6), torch.full((3, 6), torch.nan)):
        with pytest.raises(ValueError, match=r"features have shape .*; legal: finite, \(…, 6\), two rows or more"):
            learner.fit_statistics(wrong)


class Batches:
    """Windows made by hand, the same at every step that is asked for again."""

    def identity(self) -> dict[str, Any]:
        return {"of": "tests"}

    def __call__(self, step: int) -> Any:
        return object_windows(N, seed=step)


def test_a_run_resumes_to_the_same_bits_and_is_one_of_its_statistics(tmp_path):
    config = TrainConfig(steps=4, pairs=N, warmup=1, checkpoint_every=2, log_every=1, precision="fp32")
    objective = Objective(lambda_x=1.0, native_on="recipients", cross_directions="one")

    def stopped(done: int, _: dict[str, float]) -> None:
        if done == 3:
            raise KeyboardInterrupt

    whole = made()
    fit(whole, Batches(), objective, config, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        fit(made(), Batches(), objective, config, tmp_path / "part", progress=stopped)
    other = made()
    other.fit_statistics(torch.randn(50, 6))
    with pytest.raises(CheckpointError, match=r"holds another run \(learner.weights"):
        fit(other, Batches(), objective, config, tmp_path / "part")
    resumed = made()
    fit(resumed, Batches(), objective, config, tmp_path / "part")
    assert all(torch.equal(value, resumed.state_dict()[key]) for key, value in whole.state_dict().items())
