"""The controlled JEPA: shapes, what may see what, the native loss by hand, and its size."""

from dataclasses import replace

import pytest
import torch
from tiny import HISTORY, HORIZONS, JEPA_CONFIG, jepa_config

from sprii_train.learners import JEPA, JEPAConfig
from sprii_train.learners.stems import causal_frames
from sprii_train.objectives import sigreg, sigreg_directions
from sprii_train.protocol import Objective, Windows, check_learner, encode, take, training_loss

N, E = 16, JEPA_CONFIG.embedding
Z_P = {"split": 4, "monolithic": 7, "supervised": 1}
Z_S = {"split": 3, "monolithic": 0, "supervised": 3}


@pytest.mark.parametrize("context", ["split", "monolithic", "supervised"])
def test_shapes(windows: Windows, context: str):
    learner = JEPA(jepa_config(context=context))
    batch = learner.prepare(windows)
    embeddings, actions = batch.history
    assert embeddings.shape == (N, HISTORY, E)
    assert torch.equal(actions, windows.actions)
    assert torch.equal(batch.current, embeddings[:, -1])
    assert batch.y.shape == (N, len(HORIZONS), E)
    codes = encode(learner, batch)
    assert codes.z_p.shape == (N, Z_P[context])
    assert codes.z_s.shape == (N, Z_S[context])
    prediction = learner.predict(codes.z_s, codes.z_p, batch.u)
    assert prediction.shape == (N, len(HORIZONS), E)
    assert learner.horizon_losses(prediction, batch.y).shape == (N, len(HORIZONS))
    assert learner.task_loss(prediction, batch.y).shape == (N,)


@pytest.mark.parametrize("samples", ["pooled", "step"])
def test_losses_by_hand(windows: Windows, samples: str):
    learner = JEPA(jepa_config(sigreg_samples=samples))
    learner.at_step(5, 9)
    batch = learner.prepare(windows)
    codes = encode(learner, batch)
    loss, parts = learner.native_loss(batch, codes)
    prediction = learner.predict(codes.z_s, codes.z_p, batch.u)
    by_hand = sum(((prediction[:, k] - batch.y[:, k]).norm(dim=1) ** 2 / E).mean() for k in range(len(HORIZONS))) / len(
        HORIZONS
    )
    torch.testing.assert_close(parts["self"], by_hand)
    # All history and target embeddings: one sample, or the windows of each time step in turn.
    times = [batch.history[0][:, t] for t in range(HISTORY)] + [batch.y[:, k] for k in range(len(HORIZONS))]
    directions = sigreg_directions(E, JEPA_CONFIG.sigreg_slices, seed=5, step=9)
    if samples == "pooled":
        times = [torch.cat(times)]
    regularizer = sum(sigreg(z, directions) for z in times) / len(times)
    torch.testing.assert_close(parts["sigreg"], regularizer)
    torch.testing.assert_close(loss, by_hand + 0.02 * regularizer)
    torch.testing.assert_close(parts["target_variance"], batch.y.var(0, correction=1).mean())
    learner.at_step(5, 10)
    assert learner.native_loss(batch, codes)[1]["sigreg"] != parts["sigreg"]


def test_rows_are_independent_in_evaluation(windows: Windows):
    learner = JEPA(JEPA_CONFIG).train()
    learner.prepare(windows)  # moves the running statistics away from their start
    learner.eval()
    changed = Windows(*(f if f is None else torch.cat([f[:1], 5.0 * f[1:].flip(0)]) for f in windows))
    a, b = learner.prepare(windows), learner.prepare(changed)
    for x, y in ((a.y, b.y), *zip(encode(learner, a)[:2], encode(learner, b)[:2], strict=True)):
        torch.testing.assert_close(x[0], y[0], rtol=1e-6, atol=1e-7)
    alone = learner.prepare(take(windows, slice(0, 1)))
    torch.testing.assert_close(encode(learner, alone).z_p, encode(learner, a).z_p[:1], rtol=1e-5, atol=1e-6)


def test_embedding_statistics_are_one_batch(windows: Windows):
    """Histories and targets are normalised together, in float64 by hand."""
    learner = JEPA(JEPA_CONFIG)
    batch = learner.prepare(windows)
    observed = torch.cat([windows.observations, windows.future_observations], dim=1)
    raw = learner.encoder(observed).double()
    expected = (raw - raw.mean((0, 1))) / (raw.var((0, 1), correction=0) + 1e-5).sqrt()
    got = torch.cat([batch.history[0], batch.y], dim=1).double()
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-4)


def test_actions_beyond_a_horizon_do_not_matter(windows: Windows):
    learner = JEPA(JEPA_CONFIG).eval()
    batch = learner.prepare(windows)
    codes = encode(learner, batch)
    base = learner.predict(codes.z_s, codes.z_p, batch.u)
    for first in range(HORIZONS[-1]):
        u = batch.u.clone()
        u[:, first:] += 3.0
        changed = (learner.predict(codes.z_s, codes.z_p, u) - base).abs().amax((0, 2)) > 1e-6
        assert changed.tolist() == [h > first for h in HORIZONS]


def test_history_pairs_an_observation_with_the_action_before_it(windows: Windows):
    """An encoder by hand: tokens [e_t, action_{t−1}], a zero action first, all blocks in full, last row."""
    learner = JEPA(JEPA_CONFIG).eval()
    (e, actions), h = learner.prepare(windows).history, learner.history
    x = []
    for t in range(HISTORY):
        before = actions[:, t - 1] if t else torch.zeros_like(actions[:, 0])
        x.append(h.token(torch.cat([e[:, t], h.action(before)], dim=-1)) + h.position[t])
    x = torch.stack(x, dim=1)
    for block in h.blocks:
        x = block(x)
    expected = h.head(x)[:, -1]
    torch.testing.assert_close(learner.encode_history((e, actions)), expected, rtol=1e-5, atol=1e-6)


def test_every_part_of_the_history_counts(windows: Windows):
    learner = JEPA(JEPA_CONFIG).eval()
    e, actions = (x.detach().clone().requires_grad_() for x in learner.prepare(windows).history)
    learner.encode_history((e, actions)).square().sum().backward()
    assert (e.grad.abs().sum((0, 2)) > 0).all()
    assert (actions.grad.abs().sum((0, 2)) > 0).all()


def test_supervised_context(windows: Windows):
    """z_p is the regression of the labels: the predictor's gradient stops there, the label's does not."""
    learner = JEPA(jepa_config(context="supervised", dropout=0.0, sigreg_weight=0.0))
    batch = learner.prepare(windows)
    codes = encode(learner, batch)
    loss, parts = learner.native_loss(batch, codes)
    assert windows.labels is not None
    mse = sum((codes.z_p[i, 0].item() - windows.labels[i, 0].item()) ** 2 for i in range(N)) / N
    assert parts["supervised"].item() == pytest.approx(mse, rel=1e-5)
    (through_q,) = torch.autograd.grad(
        parts["self"], learner.history.head[-1].weight, retain_graph=True, allow_unused=True
    )
    assert through_q is None
    (through_labels,) = torch.autograd.grad(loss, learner.history.head[-1].weight)
    assert through_labels.abs().max() > 0
    with pytest.raises(ValueError, match="needs labels"):
        training_loss(learner, windows._replace(labels=None), Objective())


def test_target_gradient_is_not_stopped(windows: Windows):
    learner = JEPA(JEPA_CONFIG)
    batch = learner.prepare(windows)
    codes = encode(learner, batch)
    (grad,) = torch.autograd.grad(learner.native_loss(batch, codes)[1]["self"], batch.y)
    assert (grad.abs().sum((0, 2)) > 0).all()


def parameters_by_hand(c: JEPAConfig) -> int:
    def linear(i: int, o: int) -> int:
        return i * o + o

    w, e = c.width, c.embedding
    z_p = {"split": c.persistent, "monolithic": c.persistent + c.current, "supervised": c.label_dim}[c.context]
    z_s = 0 if c.context == "monolithic" else c.current
    o, f = c.observation_width, c.action_feature
    encoder = linear(c.observation_dim, o) + linear(o, o) + linear(o, e) + 2 * e
    if c.image:
        side, blocks = c.image, zip((2, *c.stem), c.stem, strict=False)
        encoder = 2 * e
        for i, (before, after) in enumerate(blocks):
            kernel, shrink = (c.patch, c.patch) if c.patch and i == 0 else (3, 2)
            encoder, side = encoder + linear(before * kernel * kernel, after), side // shrink
        encoder += linear(c.stem[-1] * side * side, e)
    block = 2 * 2 * w + linear(w, 3 * w) + linear(w, w) + linear(w, 4 * w) + linear(4 * w, w)
    history = linear(c.action_dim, f) + linear(f, f) + linear(e + f, w) + c.history * w
    history += c.layers * block + linear(w, c.head_width) + linear(c.head_width, z_p)
    current = 0 if c.context == "monolithic" else linear(e, e) + linear(e, z_s)
    q_in = z_s + z_p + c.horizons[-1] * (c.action_dim + 1) + c.horizon_feature
    q = linear(q_in, c.predictor_width) + linear(c.predictor_width, c.predictor_width) + linear(c.predictor_width, e)
    return encoder + history + current + q + len(c.horizons) * c.horizon_feature


def size(config: JEPAConfig) -> int:
    return sum(p.numel() for p in JEPA(config).parameters())


SPRING_CONFIG, POKE_CONFIG = JEPAConfig(image=128, history=96), JEPAConfig(image=64)


@pytest.mark.parametrize(
    ("config", "split", "native"),
    [(SPRING_CONFIG, 4_525_632, 4_509_120), (POKE_CONFIG, 2_938_944, 2_922_432), (JEPAConfig(), 2_089_120, 2_072_608)],
    ids=["SpringWorld at 128 px", "PokeWorld at 64 px", "D-Clean"],
)
def test_size_of_the_papers_learners(config: JEPAConfig, split: int, native: int):
    """To the unit; Native has a head of 128 outputs and no transient branch."""
    assert size(config) == parameters_by_hand(config) == split
    assert size(replace(config, context="monolithic")) == native
    parts = {name: sum(p.numel() for p in part.parameters()) for name, part in JEPA(config).named_children()}
    stems = {128: 2_485_664, 64: 912_800, 0: 62_976}
    assert parts.pop("encoder") + parts.pop("encoder_norm") == stems[config.image]
    assert parts == {
        "history": 1_844_480 + 192 * config.history, "current": 24_768, "predictor": 152_192, "horizon": 96,
    }  # fmt: skip


def test_size_by_hand():
    for context in ("split", "monolithic", "supervised"):
        config = jepa_config(context=context, label_dim=2)
        assert size(config) == parameters_by_hand(config)
    for config in (JEPAConfig(image=64), jepa_config(image=32, patch=8, stem=(6,)), jepa_config(image=16, stem=(3, 5))):
        assert size(config) == parameters_by_hand(config)


def test_bfloat16_forward(windows: Windows):
    learner = JEPA(JEPA_CONFIG)
    exact, _ = training_loss(learner.eval(), windows, Objective(lambda_p=1.0, lambda_x=0.1))
    with torch.autocast("cpu", torch.bfloat16):
        loss, parts = training_loss(learner, windows, Objective(lambda_p=1.0, lambda_x=0.1))
    assert loss.dtype == torch.float32
    assert all(v.dtype == torch.float32 for v in parts.values())
    assert loss.item() == pytest.approx(exact.item(), rel=0.05)
    loss.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in learner.parameters())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"context": "both"}, "context is 'both'; legal: split, monolithic, supervised"),
        ({"frames": "white"}, "frames is 'white'; legal: raw, scaled"),
        ({"norm": "layer"}, "norm is 'layer'; legal: batch, snapshot"),
        ({"sigreg_samples": "all"}, "sigreg_samples is 'all'; legal: pooled, step"),
        ({"width": 10, "heads": 4}, "width 10 must be a multiple of heads 4"),
        ({"horizons": ()}, "horizons"),
        ({"horizons": (4, 1)}, "increasing"),
        ({"horizons": (0, 1)}, r"horizons\[0\] is 0; legal: an integer >= 1"),
        ({"horizons": (1, 1)}, "increasing"),
        ({"image": 24}, "image 24 must be a multiple of 16, by which the 4 blocks"),
        ({"image": 36, "patch": 8, "stem": (4,)}, "image 36 must be a multiple of 8"),
        ({"image": 40, "patch": 8, "stem": (4, 4)}, "image 40 must be a multiple of 16"),
        ({"image": 32, "stem": ()}, "image 32"),
    ],
)
def test_config_refuses(changes: dict, message: str):
    with pytest.raises(ValueError, match=message):
        jepa_config(**changes)


# Frames


def frames(n: int = N) -> Windows:
    """Windows of noise, the frame before the first in front."""
    g = torch.Generator().manual_seed(1)
    seen = torch.randint(0, 256, (n, 1 + HISTORY, 16, 16), dtype=torch.uint8, generator=g)
    future = torch.randint(0, 256, (n, len(HORIZONS), 2, 16, 16), dtype=torch.uint8, generator=g)
    actions, planned = torch.randn(n, HISTORY - 1, 2, generator=g), torch.randn(n, HORIZONS[-1], 2, generator=g)
    return Windows(seen, actions, future, planned)


PIXELS = {"image": 16, "stem": (3, 5), "frames": "scaled"}


@pytest.mark.parametrize("context", ["split", "monolithic"])
def test_a_learner_of_frames(context: str):
    """Frames are normalised, encoded and batch-normalised in one pass; everything else is as with states."""
    learner, windows = JEPA(jepa_config(context=context, **PIXELS)), frames()
    batch = learner.prepare(windows)
    embeddings, actions = batch.history
    assert embeddings.shape == (N, HISTORY, E)
    assert batch.y.shape == (N, len(HORIZONS), E)
    assert torch.equal(actions, windows.actions)
    assert torch.equal(batch.current, embeddings[:, -1])
    raw = causal_frames(windows.observations, windows.future_observations)  # the first snapshot changes nothing
    flat = learner.encoder(raw.flatten(0, 1)).double()
    expected = (flat - flat.mean(0)) / (flat.var(0, correction=0) + 1e-5).sqrt()
    got = torch.cat([embeddings, batch.y], dim=1).flatten(0, 1).double()
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-3)
    check_learner(learner, windows)
    assert learner.observed.steps == 0
    learner.after_step()
    assert learner.observed.steps == 1
