"""The tactile encoder: the paper's sizes, causality, and its loss against one written by hand."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from sprii_train.learners import TactileConfig, TactileEncoder
from sprii_train.objectives import align, sigreg, sigreg_directions
from sprii_train.protocol import Windows, check_learner, take, training_loss
from sprii_train.recipes import GRASP_RECIPES

SMALL = TactileConfig(
    history=6, horizons=(1, 3), embedding=8, persistent=4, current=5, horizon_feature=3, observation_width=8, width=8,
    layers=2, heads=2, head_width=8, predictor_width=8, dropout=0.0, sigreg_slices=16,
)  # fmt: skip


def windows_of(config: TactileConfig, pairs: int = 4, seed: int = 0) -> Windows:
    draw = torch.Generator().manual_seed(seed)
    seen, ahead = (
        torch.randn(2 * pairs, t, config.taxels, generator=draw) for t in (config.history, len(config.horizons))
    )
    return Windows(seen, seen[:, 1:, :0], ahead, seen[:, : config.horizons[-1], :0])


def linear(*widths: int) -> int:
    return sum((a + 1) * b for a, b in pairwise(widths))


def test_the_papers_sizes():
    model = TactileEncoder(TactileConfig())
    sizes = {name: sum(p.numel() for p in part.parameters()) for name, part in model.named_children()}
    assert sizes["encoder"] == linear(16, 192, 192, 128)
    assert sizes["encoder_norm"] == 2 * 128
    assert sizes["token"] == linear(128, 192)
    block = 2 * 2 * 192 + linear(192, 3 * 192) + linear(192, 192) + linear(192, 768) + linear(768, 192)
    assert sizes["blocks"] == 4 * block
    assert sizes["head"] == 2 * 192 + linear(192, 128, 64)
    assert sizes["current"] == linear(128, 128, 64)
    assert sizes["horizon"] == 3 * 32
    assert sizes["predictor"] == linear(128 + 32, 256, 256, 128)
    assert tuple(model.position.shape) == (40, 192)
    check_learner(model, windows_of(TactileConfig()))


def test_a_code_is_of_the_history_and_the_current_features_of_its_last_sample():
    torch.manual_seed(0)
    model, windows = TactileEncoder(SMALL).eval(), windows_of(SMALL)
    batch = model.prepare(windows)
    z_p, z_s = model.encode_history(batch.history), model.encode_current(batch.current)
    assert (tuple(z_p.shape), tuple(z_s.shape)) == ((8, 4), (8, 5))
    early = windows.observations.clone()
    early[:, 0] += 1.0
    other = model.prepare(windows._replace(observations=early))
    torch.testing.assert_close(model.encode_current(other.current), z_s)
    assert (model.encode_history(other.history) - z_p).abs().amax(1).min() > 1e-4
    later = model.prepare(windows._replace(future_observations=windows.future_observations + 1.0))
    torch.testing.assert_close(model.encode_history(later.history), z_p)
    prediction = model.predict(z_s, z_p, batch.u)
    assert tuple(prediction.shape) == (8, 2, 8)
    assert not torch.allclose(prediction[:, 0], prediction[:, 1])
    expected = (prediction - batch.y).square().mean((1, 2))
    torch.testing.assert_close(model.task_loss(prediction, batch.y), expected)


def test_the_loss_is_of_the_queries_alone_and_donors_give_their_context():
    torch.manual_seed(0)
    model, windows = TactileEncoder(SMALL).train(), windows_of(SMALL)
    model.at_step(3, 7)
    objective = GRASP_RECIPES["baxter-hardness"].objective
    assert (objective.lambda_p, objective.lambda_x) == (1.0, 0.1)
    loss, parts = training_loss(model, windows, objective)
    batch, n = model.prepare(windows), 4
    z_p, z_s = model.encode_history(batch.history), model.encode_current(batch.current)

    def error(context: Tensor) -> Tensor:
        return (model.predict(z_s[n:], context, batch.u[n:]) - batch.y[n:]).square().mean()

    embedded = torch.cat([batch.history, batch.y], 1)[n:]
    directions = sigreg_directions(8, 16, seed=3, step=7)
    by_step = torch.stack([sigreg(embedded[:, t], directions) for t in range(6 + 2)]).mean()
    expected = error(z_p[n:]) + 0.02 * by_step + align(z_p[:n], z_p[n:]).total + 0.1 * error(z_p[:n])
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(parts["sigreg"], by_step)
    loss.backward()
    native, _ = model.native_loss(take(batch, slice(n, None)), take(_codes(z_s, z_p), slice(n, None)))
    torch.testing.assert_close(native, error(z_p[n:]) + 0.02 * by_step)


def _codes(z_s: Tensor, z_p: Tensor):
    from sprii_train.protocol import Codes

    return Codes(z_s, z_p)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"width": 9}, "TactileConfig.width 9 must be a multiple of heads 2"),
        ({"horizons": (3, 1)}, r"TactileConfig.horizons \(3, 1\) must be increasing"),
        ({"horizons": ()}, "horizons"),
        ({"taxels": 0}, "taxels"),
        ({"dropout": 1.0}, "dropout"),
    ],
)
def test_what_is_no_config_is_refused(changes: dict, message: str):
    with pytest.raises(ValueError, match=message):
        replace(SMALL, **changes)
