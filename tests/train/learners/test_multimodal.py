"""The multimodal predictor against formulas by hand: losses, SIGReg, normalised pictures, contexts, routes."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sprii_train.learners.multimodal import MultimodalConfig, MultimodalPredictor
from sprii_train.objectives import sigreg, sigreg_directions
from sprii_train.protocol import Objective, Windows, check_learner, encode, evaluation_mode, training_loss

TINY = MultimodalConfig(
    image=16, stem=(4, 6), history=5, horizons=(1, 3), embedding=8, persistent=4, current=3, action_feature=3,
    horizon_feature=2, sensor_width=8, fusion_width=7, width=8, layers=2, heads=2, dropout=0.0, trunk_width=9,
    sigreg_slices=16,
)  # fmt: skip
N = 6


def windows(*, image: int = 16, joint: bool = False, count: int = 2 * N) -> Windows:
    rng = np.random.default_rng(3)

    def history(length: int) -> dict[str, Tensor]:
        found = {"sensors": torch.from_numpy(rng.normal(size=(count, length, 14)).astype(np.float32))}
        if image:
            found["frames"] = torch.from_numpy(rng.integers(0, 256, (count, 1 + length, image, image), np.uint8))
        return found

    def actions(length: int) -> Tensor:
        return torch.from_numpy(rng.normal(size=(count, length, 1)).astype(np.float32))

    seen: dict[str, Any] = history(5)
    future = {"sensors": torch.from_numpy(rng.normal(size=(count, 2, 14)).astype(np.float32))}
    if image:
        future["frames"] = torch.from_numpy(rng.integers(0, 256, (count, 2, 2, image, image), np.uint8))
    if joint:
        seen |= {"donor": history(5), "donor_actions": actions(4)}
    return Windows(seen, actions(4), future, actions(3))


@pytest.mark.parametrize("image", [0, 16])
@pytest.mark.parametrize("context", ["split", "monolithic", "joint"])
def test_the_operations_hold(context: Any, image: int):
    learner = MultimodalPredictor(replace(TINY, context=context, image=image))
    check_learner(learner, windows(image=image, joint=context == "joint"))
    sizes = {"split": (3, 4), "monolithic": (0, 7), "joint": (0, 7)}[context]
    codes = encode(learner, learner.prepare(windows(image=image, joint=context == "joint")))
    assert (codes.z_s.shape[1], codes.z_p.shape[1]) == sizes


def test_the_loss_is_what_its_formula_says():
    """Latent, force and position errors of queries alone, Cross from each donor, SIGReg of each entry by itself."""
    learner, given = MultimodalPredictor(TINY).eval(), windows()
    learner.at_step(7, 11)
    objective = Objective(lambda_x=0.1, native_on="recipients", cross_directions="one")
    loss, parts = training_loss(learner, given, objective)

    batch = learner.prepare(given)
    history, actions = batch.history
    latents = batch.y[..., :8]
    told = given.future_observations["sensors"]

    def error(contexts: Tensor) -> Tensor:
        total = torch.zeros(())
        z_s = learner.current(history[N:, -1])
        for i in range(N):
            for k, h in enumerate(TINY.horizons):
                ahead = torch.zeros(3, 2)
                ahead[:h, 0], ahead[:h, 1] = given.future_actions[N + i, :h, 0], 1.0
                x = torch.cat([z_s[i], contexts[i], ahead[:, 0], ahead[:, 1], learner.horizon.weight[k]])
                features = learner.trunk(x)
                targets = (latents[N + i, k], told[N + i, k, :6], told[N + i, k, 6:9])
                for head, target in zip(learner.heads, targets, strict=True):
                    total = total + (head(features) - target).square().sum() / len(target)
        return total / (N * len(TINY.horizons))

    own, donors = (learner.history.code(history[part], actions[part]) for part in (slice(N, None), slice(0, N)))
    e = torch.cat([history, latents], dim=1)[N:]
    directions = sigreg_directions(8, 16, seed=7, step=11)
    tested = torch.stack([sigreg(e[:, t], directions) for t in range(7)]).mean()
    torch.testing.assert_close(parts["self"], error(own))
    torch.testing.assert_close(parts["cross"], error(donors))
    torch.testing.assert_close(parts["sigreg"], tested)
    torch.testing.assert_close(loss, error(own) + 0.02 * tested + 0.1 * error(donors))


def test_pictures_are_grey_and_difference_in_fixed_units():
    learner, given = MultimodalPredictor(TINY).eval(), windows()
    mean, scale = torch.tensor([0.4, -0.1]), torch.tensor([0.5, 0.2])
    learner.standardise(mean, scale)
    seen, future = given.observations, given.future_observations
    frames = np.concatenate([seen["frames"][:, 1:], future["frames"][:, :, 1]], axis=1) / 255.0
    earlier = np.concatenate([seen["frames"][:, :-1], future["frames"][:, :, 0]], axis=1) / 255.0
    channels = np.stack([(frames - 0.4) / 0.5, (frames - earlier + 0.1) / 0.2], axis=2).astype(np.float32)
    picture = learner.picture_norm(learner.picture_encoder(torch.from_numpy(channels).flatten(0, 1)))
    sensors = torch.cat([seen["sensors"], future["sensors"]], dim=1).flatten(0, 1)
    fused = torch.cat([picture, learner.sensor_norm(learner.sensor_encoder(sensors))], dim=-1)
    expected = learner.fusion_norm(learner.fusion(fused)).unflatten(0, (2 * N, 7))
    torch.testing.assert_close(learner.embed(seen, future), expected, atol=1e-5, rtol=1e-4)
    assert {"picture_mean", "picture_scale"} <= learner.state_dict().keys()


def test_without_pictures_frames_change_nothing_and_there_is_no_stem():
    learner = MultimodalPredictor(replace(TINY, image=0))
    assert not any("picture" in name for name in learner.state_dict())
    given = windows(image=0)
    with evaluation_mode(learner):
        codes = encode(learner, learner.prepare(given))
        other = given._replace(observations={**given.observations, "frames": torch.zeros(1)})
        torch.testing.assert_close(encode(learner, learner.prepare(other)), codes)


def test_one_transformer_reads_the_donor_and_then_the_query():
    config = replace(TINY, context="joint", image=0, layers=1)
    learner, given = MultimodalPredictor(config).eval(), windows(image=0, joint=True)
    query, actions, donor, donor_actions = learner.prepare(given).history
    history: Any = learner.history
    tokens = []
    for segment, (e, a) in enumerate(((donor, donor_actions), (query, actions))):
        for t in range(5):
            led = torch.zeros(len(e), 1) if t == 0 else a[:, t - 1]
            token = history.token(torch.cat([e[:, t], history.action(led)], dim=-1))
            tokens.append(token + history.position[5 * segment + t] + history.segment[segment])
    x = torch.stack(tokens, dim=1)
    block: Any = history.blocks[0]
    h = block.norm1(x)
    q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in block.query_key_value(h).chunk(3, dim=-1))
    attended = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
    x = x + block.out(attended)
    x = x + block.down(F.gelu(block.up(block.norm2(x))))
    expected = history.head(x[:, -1])
    torch.testing.assert_close(learner.encode_history((query, actions, donor, donor_actions)), expected)
    changed = donor.clone()
    changed[:, 0] += 1.0
    assert not torch.allclose(learner.encode_history((query, actions, changed, donor_actions)), expected, atol=1e-4)


def test_the_papers_sizes():
    """Convolutions end in 6 × 6 × 256, the trunk begins at 192; the joint reader's parameters are 0.309 % fewer."""
    counts = {}
    for context in ("split", "joint"):
        learner = MultimodalPredictor(MultimodalConfig(context=context))
        counts[context] = sum(p.numel() for p in learner.parameters())
        assert learner.picture_encoder.project.in_features == 6 * 6 * 256
        assert [layer.in_features for layer in learner.trunk.modules() if hasattr(layer, "in_features")] == [192, 256]
        assert [head.out_features for head in learner.heads] == [128, 6, 3]
        assert [layer.in_features for layer in learner.fusion if hasattr(layer, "in_features")] == [256, 192]
    assert counts == {"split": 3_731_689, "joint": 3_720_169}
    assert round(100 * (1 - counts["joint"] / counts["split"]), 3) == 0.309  # per cent, the paper's


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"context": "supervised"}, r"MultimodalConfig\.context is 'supervised'; legal: split, monolithic, joint"),
        ({"sensors": 8}, r"MultimodalConfig\.sensors is 8; legal: an integer >= 9"),
        ({"horizons": (4, 1)}, r"horizons \(4, 1\) must be increasing"),
        ({"heads": 5}, r"width 192 must be a multiple of heads 5"),
        ({"image": 20}, r"image 20 must be a multiple of 16"),
    ],
)
def test_sizes_that_are_not_legal(changed: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        MultimodalConfig(**changed)
