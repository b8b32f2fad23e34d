"""The controlled JEPA: shapes, what may see what, the native loss by hand, and its size."""

import pytest
import torch
from tiny import HISTORY, HORIZONS, JEPA_CONFIG, jepa_config

from sprii_train.learners import JEPA, JEPAConfig
from sprii_train.objectives import sigreg, sigreg_directions
from sprii_train.protocol import Objective, Windows, encode, take, training_loss

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
    expected = h.head(h.norm(x))[:, -1]
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
    (through_q,) = torch.autograd.grad(parts["self"], learner.history.head.weight, retain_graph=True, allow_unused=True)
    assert through_q is None
    (through_labels,) = torch.autograd.grad(loss, learner.history.head.weight)
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
    encoder = linear(c.observation_dim, e) + 2 * linear(e, e) + 2 * e
    block = 2 * 2 * w + linear(w, 3 * w) + linear(w, w) + linear(w, 4 * w) + linear(4 * w, w)
    history = linear(c.action_dim, c.action_feature) + linear(e + c.action_feature, w) + c.history * w
    history += c.layers * block + 2 * w + linear(w, z_p)
    current = 0 if c.context == "monolithic" else linear(e, e) + linear(e, z_s)
    q_in = z_s + z_p + c.horizons[-1] * (c.action_dim + 1) + c.horizon_feature
    q = linear(q_in, c.predictor_width) + linear(c.predictor_width, c.predictor_width) + linear(c.predictor_width, e)
    return encoder + history + current + q + len(c.horizons) * c.horizon_feature


def test_size():
    """The paper's D-Clean learner has 2,038,784 parameters; small ones follow the same sum."""

    def size(config: JEPAConfig) -> int:
        return sum(p.numel() for p in JEPA(config).parameters())

    assert size(JEPAConfig()) == parameters_by_hand(JEPAConfig()) == 2_038_784
    for context in ("split", "monolithic", "supervised"):
        config = jepa_config(context=context, label_dim=2)
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
        ({"sigreg_samples": "all"}, "sigreg_samples is 'all'; legal: pooled, step"),
        ({"width": 10, "heads": 4}, "width 10 must be a multiple of heads 4"),
        ({"horizons": ()}, "horizons"),
        ({"horizons": (4, 1)}, "increasing"),
        ({"horizons": (0, 1)}, "positive"),
        ({"horizons": (1, 1)}, "increasing"),
    ],
)
def test_config_refuses(changes: dict, message: str):
    with pytest.raises(ValueError, match=message):
        jepa_config(**changes)
