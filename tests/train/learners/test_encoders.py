"""Encoders of histories: causality, sizes by hand, plain loops, and what a short training leaves in a code."""

from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import nn

from sprii_train.learners import JEPA, TDS, JEPAConfig, TDSConfig
from sprii_train.learners.encoders import HistoryEncoder, Kind, Transformer, history_encoder, pooled
from sprii_train.modules import CausalBlock, perceptron
from sprii_train.protocol import Objective, Windows, check_learner, training_loss

KINDS = get_args(Kind)
SUMMARY = "summary"
EVERY = (*KINDS, SUMMARY)
TINY = JEPAConfig(width=8, layers=2, heads=2, persistent=3, current=2, history=6, horizons=(1, 3), embedding=5,
                  action_feature=3, horizon_feature=2, head_width=4, predictor_width=8, sigreg_slices=4)  # fmt: skip


def encoder(kind: Any, dim: int = 5, length: int = 9, out: int = 3, **changed: Any) -> HistoryEncoder:
    own: dict[str, Any] = {"summary": True} if kind == SUMMARY else {}
    sizes: dict[str, Any] = {"width": 8, "layers": 2, "heads": 2, "dropout": 0.0, "length": length, "out": out}
    chosen: Any = "transformer" if own else kind
    torch.manual_seed(0)
    return history_encoder(chosen, dim, **sizes | changed, **own)


@pytest.mark.parametrize("kind", EVERY)
def test_nothing_after_the_last_token_read_matters(kind: str) -> None:
    made, tokens = encoder(kind), torch.randn(4, 9, 5, generator=torch.Generator().manual_seed(1))
    at = torch.tensor([0, 3, 7, 8])
    codes = made(tokens, at)
    assert codes.shape == (4, 3)
    for row, last in enumerate(at.tolist()):
        torch.testing.assert_close(codes[row], made(tokens[row : row + 1, : last + 1])[0], atol=1e-5, rtol=1e-4)
        later = tokens.clone()
        later[row, last + 1 :] = 1e3
        torch.testing.assert_close(made(later, at)[row], codes[row], atol=0, rtol=0)
        earlier = tokens.clone()
        earlier[row, last] += 1.0
        assert not torch.allclose(made(earlier, at)[row], codes[row], atol=1e-4)
    torch.testing.assert_close(made(tokens), made(tokens, torch.full((4,), 8)), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", EVERY)
def test_which_kinds_read_an_order(kind: str) -> None:
    made, tokens = encoder(kind), torch.randn(2, 9, 5, generator=torch.Generator().manual_seed(1))
    same = torch.allclose(made(tokens), made(tokens.flip(1)), atol=1e-5)
    assert same == (kind == "deepsets")


def test_sizes_by_hand() -> None:
    w, d, out = 8, 5, 3
    block = 4 * w + (w * 3 * w + 3 * w) + (w * w + w) + (w * 4 * w + 4 * w) + (4 * w * w + w)
    by_hand = {
        "transformer": (d * w + w) + 9 * w + 2 * block + (w * out + out),
        SUMMARY: (d * w + w) + 9 * w + w + 2 * block + (w * out + out),
        "gru": 3 * (d * w + w * w + 2 * w) + 3 * (w * w + w * w + 2 * w) + (w * out + out),
        "tcn": (d * w + w) + 4 * (3 * w * w + w) + (2 * w * out + out),
        "deepsets": (d * 2 * w + 2 * w) + (2 * w * w + w) + (2 * w * out + out),
    }
    for kind, count in by_hand.items():
        assert sum(p.numel() for p in encoder(kind).parameters()) == count
        features = 2 * w if kind in ("tcn", "deepsets") else w
        hidden = sum(p.numel() for p in encoder(kind, hidden=7).parameters())
        assert hidden - count == (features * 7 + 7) + (7 * out + out) - (features * out + out)
    assert isinstance(encoder("gru", out=8).head, nn.Identity)


def test_convolutions_reach_back_as_far_as_their_dilation_says() -> None:
    """Two of kernel 3 in each block, dilation 1 and 2: 2·2·(1 + 2) = 12 tokens before."""
    made: Any = encoder("tcn", length=30)
    x = torch.randn(1, 30, 5, requires_grad=True)
    h, last = made.token(x).transpose(1, 2), 20
    for block, far in zip(made.blocks, (1, 2), strict=True):
        first, second = block
        conv = [torch.nn.functional.conv1d(torch.nn.functional.pad(h, (2 * far, 0)), first.weight, first.bias,
                                           dilation=far)]  # fmt: skip
        inner = torch.nn.functional.pad(torch.nn.functional.gelu(conv[0]), (2 * far, 0))
        h = torch.nn.functional.gelu(
            h + torch.nn.functional.conv1d(inner, second.weight, second.bias, dilation=far)
        )  # fmt: skip
    expected = made.head(torch.cat([h[..., : last + 1].mean(-1), h[..., : last + 1].amax(-1)], dim=-1))
    torch.testing.assert_close(made(x, torch.tensor([last])), expected)
    (gradient,) = torch.autograd.grad(h[0, :, last].sum(), x)
    touched = torch.nonzero(gradient[0].abs().sum(-1)).flatten()
    assert (touched.min().item(), touched.max().item()) == (last - 12, last)


def test_pooling_is_a_mean_and_a_maximum_of_what_is_read() -> None:
    h = torch.randn(3, 6, 4)
    found = pooled(h, torch.tensor([0, 2, 5]))
    for row, last in enumerate((0, 2, 5)):
        read = h[row, : last + 1].numpy()
        np.testing.assert_allclose(found[row].numpy(), np.concatenate([read.mean(0), read.max(0)]), rtol=1e-5)


def test_the_default_is_the_controlled_learners_transformer() -> None:
    """Names, order and first weights of the parts, made one after another with the same generator."""
    c = replace(TINY, embedding=4)
    torch.manual_seed(3)
    found = JEPA(c).history
    torch.manual_seed(3)
    perceptron(c.observation_dim, c.observation_width, c.observation_width, c.embedding)  # the observations' encoder
    parts: dict[str, Any] = {"action": perceptron(2, 3, 3), "token": nn.Linear(7, 8)}
    parts["blocks"] = nn.ModuleList(CausalBlock(8, 2, 0.1) for _ in range(2))
    parts["head"] = perceptron(8, 4, 3)
    expected = {f"{name}.{key}": value for name, part in parts.items() for key, value in part.state_dict().items()}
    assert isinstance(found, Transformer)
    held = found.state_dict()
    assert not held.pop("position").any()
    assert list(held) == list(expected)
    assert all(torch.equal(held[name], expected[name]) for name in held)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cls", [JEPA, TDS])
def test_learners_of_windows_take_any(kind: Kind, cls: Any) -> None:
    draw = torch.Generator().manual_seed(0)
    c = replace(TINY, encoder=kind)
    learner = cls(c if cls is JEPA else TDSConfig.like(c, 3, "embedding"))
    windows = Windows(*(torch.randn(8, *shape, generator=draw) for shape in ((6, 4), (5, 2), (2, 4), (3, 2))))
    check_learner(learner, windows)
    objective = Objective(lambda_p=1.0, lambda_x=0.1 if cls is JEPA else 0.0)  # TDS predicts with a pair's other window
    loss, _ = training_loss(learner.train(), windows, objective)
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in learner.history.parameters())


def test_an_unknown_encoder_is_refused() -> None:
    with pytest.raises(ValueError, match=r"JEPAConfig\.encoder.*'lstm'.*transformer, gru, tcn, deepsets"):
        replace(TINY, encoder="lstm")  # type: ignore[arg-type]


def planted(rng: np.random.Generator, n: int) -> tuple[torch.Tensor, ...]:
    """Tokens (n, 8, 2) of x and p·x + noise; p (n,); a query x' (n, 1) and what is to be predicted of it, p·x'."""
    p, x = rng.uniform(-1, 1, n), rng.normal(size=(n, 8))
    tokens = np.stack([x, p[:, None] * x + 0.05 * rng.normal(size=x.shape)], axis=-1)
    query = rng.normal(size=(n, 1))
    return tuple(torch.from_numpy(a.astype(np.float32)) for a in (tokens, p, query, p[:, None] * query))


@pytest.mark.parametrize("kind", EVERY)
def test_a_property_can_be_read_off_a_code_that_was_trained_to_predict(kind: str) -> None:
    rng, made = np.random.default_rng(0), encoder(kind, dim=2, out=4, width=16, length=8)
    head = perceptron(5, 32, 1)
    optimizer = torch.optim.AdamW([*made.parameters(), *head.parameters()], lr=5e-3)
    for _ in range(250):
        tokens, _, query, truth = planted(rng, 64)
        loss = (head(torch.cat([made(tokens), query], dim=-1)) - truth).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        (tokens, p, *_), (unseen, other, query, truth) = planted(rng, 256), planted(rng, 256)
        error = (head(torch.cat([made(unseen), query], dim=-1)) - truth).square().mean().item()
        train, test = (torch.cat([made(x), torch.ones(len(x), 1)], dim=1).numpy() for x in (tokens, unseen))
    assert error < 0.3 * truth.var().item()
    weights = np.linalg.lstsq(train, p.numpy(), rcond=None)[0]
    assert 1 - np.square(test @ weights - other.numpy()).mean() / other.numpy().var() > 0.7


def test_what_no_encoder_can_be() -> None:
    sizes: Any = {"width": 30, "layers": 1, "heads": 4, "dropout": 0.0, "length": 5, "out": 3}
    with pytest.raises(ValueError, match=r"kind is 'lstm'; legal: transformer, gru, tcn, deepsets"):
        history_encoder("lstm", 16, **sizes)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"width is 30; legal: a multiple of heads 4"):
        history_encoder("transformer", 16, **sizes)
    assert history_encoder("gru", 16, **sizes)(torch.zeros(2, 5, 16)).shape == (2, 3)
