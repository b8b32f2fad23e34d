"""Dropout's statistics, and the causal block against torch's own Transformer layer."""

import math

import pytest
import torch
from torch import nn

from sprii_train import modules
from sprii_train.modules import CausalBlock, dropout


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_rate_and_scale(p: float):
    """Dropped share within 5 binomial standard errors; what is kept is exactly x/(1 − p); the mean stays."""
    n = 200_003  # not a multiple of the four lanes of a draw
    x = torch.rand(n) + 0.5
    out = dropout(x, p, training=True)
    kept = out != 0
    assert float((~kept).double().mean()) == pytest.approx(p, abs=5 * math.sqrt(p * (1 - p) / n))
    assert torch.equal(out[kept], x[kept] * torch.tensor(1.0 / (1.0 - p)))
    deviation = float((x.double().square().mean() * p / (1 - p)).sqrt()) / math.sqrt(n)
    assert float(out.double().mean()) == pytest.approx(float(x.double().mean()), abs=5 * deviation)


def test_dropout_lanes_are_independent():
    """Elements that share a 64-bit draw are dropped independently (5 standard errors of a correlation)."""
    kept = (dropout(torch.ones(400_000), 0.3, training=True) != 0).double().view(-1, 4)
    off = torch.corrcoef(kept.T) - torch.eye(4)
    assert float(off.abs().max()) < 5 / math.sqrt(100_000)
    assert float((kept.mean(0) - 0.7).abs().max()) < 5 * math.sqrt(0.21 / 100_000)


def test_dropout_off():
    x = torch.randn(3, 5)
    state = torch.get_rng_state()
    assert dropout(x, 0.5, training=False) is x
    assert dropout(x, 0.0, training=True) is x
    assert torch.equal(torch.get_rng_state(), state)


def test_dropout_is_a_function_of_the_global_seed():
    x = torch.ones(1000)
    torch.manual_seed(5)
    a = dropout(x, 0.5, training=True)
    b = dropout(x, 0.5, training=True)
    torch.manual_seed(5)
    assert torch.equal(a, dropout(x, 0.5, training=True))
    assert not torch.equal(a, b)


def test_dropout_gradient_and_strides():
    x = torch.rand(6, 4, requires_grad=True)
    out = dropout(x.T, 0.5, training=True)
    out.sum().backward()
    assert out.shape == (4, 6)
    assert torch.equal(x.grad.T, torch.where(out == 0, 0.0, 2.0))
    assert dropout(torch.ones(8, dtype=torch.bfloat16), 0.5, training=True).dtype == torch.bfloat16


def reference(block: CausalBlock, width: int, heads: int) -> nn.TransformerEncoderLayer:
    """The layer of torch with the same weights, float64."""
    layer = nn.TransformerEncoderLayer(
        width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True, dtype=torch.float64
    )
    pairs = {
        "self_attn.in_proj_weight": "query_key_value.weight",
        "self_attn.in_proj_bias": "query_key_value.bias",
        "self_attn.out_proj.weight": "out.weight",
        "self_attn.out_proj.bias": "out.bias",
        "linear1.weight": "up.weight", "linear1.bias": "up.bias",
        "linear2.weight": "down.weight", "linear2.bias": "down.bias",
        "norm1.weight": "norm1.weight", "norm1.bias": "norm1.bias",
        "norm2.weight": "norm2.weight", "norm2.bias": "norm2.bias",
    }  # fmt: skip
    own = block.state_dict()
    assert set(pairs.values()) == set(own)
    layer.load_state_dict({theirs: own[ours] for theirs, ours in pairs.items()})
    return layer


@pytest.mark.parametrize(("width", "heads", "length"), [(8, 2, 7), (12, 3, 1), (6, 1, 5)])
def test_block_equals_torch(width: int, heads: int, length: int):
    block = CausalBlock(width, heads, dropout=0.0).double()
    for p in block.parameters():
        nn.init.normal_(p, std=0.5)
    layer = reference(block, width, heads)
    x = torch.randn(3, length, width, dtype=torch.float64)
    mask = nn.Transformer.generate_square_subsequent_mask(length, dtype=torch.float64)
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    a, b = block(ours), layer(theirs, src_mask=mask)
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)
    a.square().sum().backward()
    b.square().sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-9, atol=1e-10)


def test_block_is_causal():
    block = CausalBlock(8, 2, dropout=0.0)
    x = torch.randn(2, 6, 8)
    changed = x.clone()
    changed[:, 4, 0] += 1.0  # one feature: layer norm removes a common shift
    a, b = block(x), block(changed)
    assert torch.equal(a[:, :4], b[:, :4])
    assert ((a[:, 4:] - b[:, 4:]).abs().amax((0, 2)) > 1e-4).all()


def test_last_only_is_the_last_row():
    block = CausalBlock(8, 2, dropout=0.1).eval()
    x = torch.randn(4, 6, 8)
    last = block(x, at="last")
    assert last.shape == (4, 1, 8)
    torch.testing.assert_close(last, block(x)[:, -1:], rtol=1e-5, atol=1e-6)


def test_block_uses_dropout_in_training_only():
    block = CausalBlock(8, 2, dropout=0.5)
    x = torch.randn(4, 6, 8)
    assert not torch.equal(block(x), block(x))
    block.eval()
    assert torch.equal(block(x), block(x))


def test_chosen_tokens_are_rows_of_the_full_computation():
    """Another token in each row, the first and the last among them; gradients too, in float64."""
    torch.manual_seed(0)
    block = CausalBlock(8, 2, dropout=0.0).double()
    x, at = torch.randn(5, 6, 8, dtype=torch.float64), torch.tensor([0, 5, 2, 3, 2])
    whole, alone = x.clone().requires_grad_(), x.clone().requires_grad_()
    expected, got = block(whole)[torch.arange(5), at], block(alone, at)
    assert got.shape == (5, 1, 8)
    torch.testing.assert_close(got[:, 0], expected, rtol=1e-12, atol=1e-12)
    weight = torch.randn(5, 8, dtype=torch.float64)
    (expected * weight).sum().backward()
    (got[:, 0] * weight).sum().backward()
    torch.testing.assert_close(alone.grad, whole.grad, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(block(x, torch.full((5,), 5)), block(x, "last"), rtol=1e-12, atol=1e-12)


def test_a_chosen_token_sees_nothing_after_it():
    block = CausalBlock(8, 2, dropout=0.0)
    x, at = torch.randn(3, 6, 8), torch.tensor([1, 4, 5])
    changed = x.clone()
    for row, token in enumerate(at):
        changed[row, token + 1 :] = 50.0 * torch.randn(5 - token, 8)
    assert torch.equal(block(x, at), block(changed, at))
    changed[torch.arange(3), at - 1, 0] += 1.0
    assert ((block(x, at) - block(changed, at)).abs().amax((1, 2)) > 1e-4).all()


def test_the_fused_attention_of_long_sequences_is_the_plain_one_of_each_token():
    torch.manual_seed(0)
    block, x = modules.CausalBlock(16, 2, 0.0), torch.randn(2, modules.FUSED + 30, 16)
    fused = block(x)
    for token in range(x.shape[1]):
        alone = block(x, torch.full((2,), token))
        torch.testing.assert_close(fused[:, token : token + 1], alone, rtol=1e-4, atol=1e-5)
