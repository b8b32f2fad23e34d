"""Stems against torch's own layers, causal frames against the environments' pixels, the snapshot norm by hand."""

from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tiny_worlds import IMAGE, POKE_LEARNER
from torch import nn

import sprii_envs  # noqa: F401  (registers the environments)
from sprii_envs.banks import Bank
from sprii_envs.wrappers import temporal_difference
from sprii_train.checkpoints import read_tensors
from sprii_train.data import PairedWindows, WindowReader
from sprii_train.fit import TrainConfig, fit
from sprii_train.learners import JEPA
from sprii_train.learners.stems import EVERY, FrameNorm, ImageStem, SnapshotNorm, causal_frames, tiles
from sprii_train.protocol import Objective, Windows, training_loss

HORIZONS = (1, 4, 16)


def test_image_stem_halves_at_every_convolution():
    torch.manual_seed(0)
    stem, frames = ImageStem(16, (3, 5), 7), torch.randn(4, 2, 16, 16)
    layers = [layer for layer in stem.modules() if isinstance(layer, nn.Conv2d)]
    assert [(c.in_channels, c.out_channels, c.kernel_size, c.stride, c.padding) for c in layers] == [
        (2, 3, (3, 3), (2, 2), (1, 1)), (3, 5, (3, 3), (2, 2), (1, 1)),
    ]  # fmt: skip
    expected = nn.Sequential(layers[0], nn.GELU(), layers[1], nn.GELU(), nn.Flatten(), stem.project)(frames)
    assert stem.project.in_features == 5 * 4 * 4
    torch.testing.assert_close(stem(frames), expected)


@pytest.mark.parametrize("channels", [(5,), (5, 3)])
def test_patches_are_a_convolution_whose_stride_is_its_kernel(channels: tuple[int, ...]):
    torch.manual_seed(1)
    stem, frames = ImageStem(16, channels, 7, patch=4), torch.randn(3, 2, 16, 16)
    convolution = nn.Conv2d(2, 5, kernel_size=4, stride=4)
    with torch.no_grad():
        convolution.weight.copy_(stem.patches.weight.view(5, 2, 4, 4))
        convolution.bias.copy_(stem.patches.bias)
    x = F.gelu(convolution(frames))
    for deeper in stem.convolutions:
        x = F.gelu(deeper(x))
    torch.testing.assert_close(stem(frames), stem.project(x.flatten(1)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "side"), [(torch.uint8, 8), (torch.uint8, 4), (torch.bfloat16, 4), (torch.float64, 2)]
)
def test_tiles_by_hand(dtype: torch.dtype, side: int):
    """Pixel (y, x) of a frame is pixel (y mod side, x mod side) of the patch that it lies in."""
    frames = torch.randint(0, 256, (3, 2, 16, 24)).to(dtype)
    got = tiles(frames, side)
    assert got.shape == (3, 2, 16 // side, 24 // side, side * side)
    for y in range(16):
        for x in range(24):
            assert torch.equal(got[..., y // side, x // side, y % side * side + x % side], frames[..., y, x])
    assert torch.equal(tiles(frames.mT, side), tiles(frames.mT.contiguous(), side))  # frames that are a view


def test_causal_frames_as_patches_are_those_frames():
    """Of the same pixels, normalised alike, and the stem makes of them what it makes of the frames."""
    seen = torch.randint(0, 256, (3, 6, 16, 16), dtype=torch.uint8)
    future = torch.randint(0, 256, (3, 2, 2, 16, 16), dtype=torch.uint8)
    whole, patches = causal_frames(seen, future), causal_frames(seen, future, 8)
    assert torch.equal(patches, tiles(whole, 8).movedim(2, 4))
    norms = FrameNorm(), FrameNorm()
    for norm, frames in zip(norms, (whole, patches), strict=True):
        norm(frames.clone(), 5)
        norm.after_step()
    torch.testing.assert_close(norms[0].mean, norms[1].mean)
    torch.testing.assert_close(norms[0].var, norms[1].var)
    whole, patches = norms[0](whole, 5), norms[0](patches, 5)
    assert torch.equal(patches, tiles(whole, 8).movedim(2, 4))
    stem = ImageStem(16, (6,), 7, patch=8)
    torch.testing.assert_close(stem(patches.flatten(0, 1)), stem(whole.flatten(0, 1)))


def observed(bank: Bank, env_id: str, episode: int, size: int) -> np.ndarray:
    """An episode as its environment shows it, (T, H, W, 2): the present frame and the one before."""
    env = gym.make(env_id, obs_type="pixels", image_size=size)
    table = bank.table
    system = {name: float(table[name][episode]) for name in bank.properties.names}
    seen = [env.reset(options={"system": system, "state": bank["states"][episode, 0].astype(float)})[0]]
    for action in bank["actions"][episode, : table["length"][episode] - 1]:
        seen.append(env.step(action)[0])
    env.close()
    return np.stack(seen)


@pytest.mark.parametrize(
    ("name", "env_id"), [("poke_bank", "sprii/PokeWorld-v0"), ("spring_bank", "sprii/SpringWorld-v0")]
)
def test_causal_frames_are_the_environments_observations(name: str, env_id: str, request: pytest.FixtureRequest):
    """A bank rounds states to float32, which moves few pixels by one grey level of 255."""
    bank: Bank = request.getfixturevalue(name)
    reader = WindowReader(bank, 24, HORIZONS, image=32)
    for episode, start in ((0, 0), (5, 1), (12, int(bank.table["length"][12]) - 24 - HORIZONS[-1])):  # its last window
        pixels = observed(bank, env_id, episode, 32)
        assert (pixels[0, ..., 0] == pixels[0, ..., 1]).all()  # no frame before the first one
        windows = reader.read(np.array([episode]), np.array([start]))
        got = causal_frames(windows.observations, windows.future_observations)[0]
        times = [*range(start, start + 24), *(start + 23 + h for h in HORIZONS)]
        wanted = torch.from_numpy(temporal_difference(pixels[times], channels_first=True))
        off = (got - wanted).abs() * 255.0
        assert float(off.max()) <= 2.001  # of a difference: one level at either end
        assert float((off > 0.001).float().mean()) < 0.002
        assert (got[:, 1].abs().amax((1, 2)) > 0).sum() > 3  # something moved
        if start == 0:
            assert (got[0, 1] == 0).all()


def test_causal_frames_by_hand():
    rng = torch.Generator().manual_seed(0)
    seen = torch.randint(0, 256, (3, 5, 4, 4), dtype=torch.uint8, generator=rng)
    future = torch.randint(0, 256, (3, 2, 2, 4, 4), dtype=torch.uint8, generator=rng)
    kept = seen.clone(), future.clone()
    got = causal_frames(seen, future)
    assert got.shape == (3, 6, 2, 4, 4)
    assert got.dtype == torch.float32
    assert torch.equal(seen, kept[0])
    assert torch.equal(future, kept[1])
    for b in range(3):
        for t in range(4):
            now, before = seen[b, t + 1].double() / 255, seen[b, t].double() / 255
            torch.testing.assert_close(got[b, t].double(), torch.stack([now, now - before]), rtol=0, atol=1e-7)
        for k in range(2):
            now, before = future[b, k, 1].double() / 255, future[b, k, 0].double() / 255
            torch.testing.assert_close(got[b, 4 + k].double(), torch.stack([now, now - before]), rtol=0, atol=1e-7)
    with torch.autocast("cpu", torch.bfloat16):
        assert causal_frames(seen, future).dtype == torch.bfloat16
    assert causal_frames(seen, future[:, :0]).shape == (3, 4, 2, 4, 4)


# FrameNorm


def normalised(frames: torch.Tensor, mean: torch.Tensor, var: torch.Tensor) -> torch.Tensor:
    return (frames.double() - mean.view(-1, 1, 1)) / (var.view(-1, 1, 1) + 1e-8).sqrt()


def test_statistics_of_a_constant_channel_have_scale_1():
    norm, still = FrameNorm(), torch.zeros(2, 4, 2, 3, 3)
    still[:, :, 0] = torch.rand(2, 4, 3, 3)
    norm(still.clone(), 4)
    norm.after_step()
    moved = norm.eval()(torch.full((1, 1, 2, 3, 3), 0.5), 1)
    torch.testing.assert_close(moved[:, :, 1], torch.full((1, 1, 3, 3), 0.5))


def test_an_update_is_normalised_by_the_snapshot_from_before_it():
    """Three updates by hand: raw frames, then the first batch's statistics, then a tenth of the way to the second's."""
    norm = FrameNorm()
    batches = [torch.rand(4, 10, 2, 6, 6, generator=torch.Generator().manual_seed(i)) * (i + 1) for i in range(3)]
    mean, var = torch.zeros(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64)
    for update, batch in enumerate(batches):
        out = norm(batch.clone(), 8)  # eight histories, two targets, which are normalised and not counted
        torch.testing.assert_close(out.double(), normalised(batch, mean, var), rtol=1e-4, atol=1e-5)
        assert (float(norm.steps), norm.mean.tolist()) == (update, pytest.approx(mean.tolist(), rel=1e-5))
        norm.after_step()
        counted = batch[:, [0, 4]].double().transpose(0, 2).flatten(1)
        rate = 1.0 if update == 0 else 0.1
        mean, var = mean + rate * (counted.mean(1) - mean), var + rate * (counted.var(1) - var)
        torch.testing.assert_close(norm.mean.double(), mean, rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(norm.var.double(), var, rtol=1e-5, atol=1e-7)
    assert EVERY == 4


def test_a_snapshot_moves_once_an_update_and_not_in_evaluation():
    norm, frames = FrameNorm(), torch.rand(2, 4, 2, 5, 5)
    norm.after_step()
    assert norm.steps == 0  # nothing was seen
    norm(frames.clone(), 4)
    norm.after_step()
    held = {name: value.clone() for name, value in norm.state_dict().items()}
    norm.after_step()
    norm.eval()
    norm(frames * 3.0, 4)
    norm.after_step()
    assert held.keys() == {"mean", "var", "steps"}
    for name, value in norm.state_dict().items():
        assert torch.equal(value, held[name]), name


def test_statistics_have_no_gradient():
    learner = JEPA(POKE_LEARNER).train()
    windows = frames_of(8)
    loss, _ = training_loss(learner, windows, Objective(lambda_p=1.0))
    assert all(seen.grad_fn is None for seen in learner.observed.seen or ())
    assert learner.observed.seen is not None
    assert not any(buffer.requires_grad for buffer in learner.observed.buffers())
    assert not list(learner.observed.parameters())
    loss.backward()
    learner.after_step()
    assert learner.observed.steps == 1


def frames_of(n: int) -> Windows:
    """Windows of noise, the frame before the first in front."""
    rng = torch.Generator().manual_seed(0)
    seen = torch.randint(0, 256, (n, 25, IMAGE, IMAGE), dtype=torch.uint8, generator=rng)
    future = torch.randint(0, 256, (n, 3, 2, IMAGE, IMAGE), dtype=torch.uint8, generator=rng)
    return Windows(seen, torch.rand(n, 23, 2, generator=rng), future, torch.rand(n, 16, 2, generator=rng))


def test_the_learner_does_not_mix_windows_but_in_its_batch_norm():
    """In evaluation a window's code is its own: the snapshot is fixed."""
    learner = JEPA(POKE_LEARNER).train()
    learner.prepare(frames_of(8))
    learner.after_step()
    learner.eval()
    windows = frames_of(8)
    other = Windows(*(None if f is None else torch.cat([f[:1], f[1:].flip(0)]) for f in windows))
    a, b = learner.prepare(windows), learner.prepare(other)
    torch.testing.assert_close(a.current[0], b.current[0], rtol=1e-5, atol=1e-6)


def test_a_snapshot_batch_norm_against_torchs_own():
    """Before an update's statistics are in, it is torch's norm in evaluation; after it, one that saw the histories."""
    torch.manual_seed(0)
    norm, torchs = SnapshotNorm(5), nn.BatchNorm1d(5)
    with torch.no_grad():
        for module in (norm, torchs):
            module.weight.copy_(torch.arange(1.0, 6.0))
            module.bias.copy_(torch.arange(5.0))
    for update in range(3):
        batch = 3.0 * torch.randn(6, 9, 5) + update
        out = norm(batch, 7)
        torch.testing.assert_close(out, torchs.eval()(batch.flatten(0, 1)).view(6, 9, 5), rtol=1e-5, atol=1e-5)
        assert torch.equal(norm(batch[:1], 7)[0], norm(batch, 7)[0])  # no row depends on another
        norm(batch, 7)
        norm.after_step()
        torchs.train()(batch[:, :7].flatten(0, 1))
        torch.testing.assert_close(norm.mean, torchs.running_mean)
        torch.testing.assert_close(norm.var, torchs.running_var)
    norm.eval()(batch, 7)
    norm.after_step()
    torch.testing.assert_close(norm.mean, torchs.running_mean)


def test_a_learner_of_snapshots_moves_after_the_update_by_its_histories():
    """SpringWorld's: two losses of one update are equal, gradients reach the affine part, targets count for nothing."""
    learner, windows = JEPA(replace(POKE_LEARNER, norm="snapshot", frames="raw")).train(), frames_of(8)
    loss, _ = training_loss(learner, windows, Objective(lambda_p=1.0))
    assert torch.equal(loss, training_loss(learner, windows, Objective(lambda_p=1.0))[0])
    loss.backward()
    norm = learner.encoder_norm
    assert isinstance(norm, SnapshotNorm)
    assert norm.weight.grad is not None
    assert norm.weight.grad.abs().min() > 0
    raw = learner.encoder(causal_frames(windows.observations, windows.future_observations)[:, :24].flatten(0, 1))
    learner.after_step()
    torch.testing.assert_close(norm.mean, 0.1 * raw.mean(0), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(norm.var, 0.9 + 0.1 * raw.var(0), rtol=1e-4, atol=1e-6)
    assert learner.observed is None
    assert not torch.equal(loss, training_loss(learner, windows, Objective(lambda_p=1.0))[0])


class Stopped(Exception):
    pass


def test_a_resumed_run_from_pixels_equals_the_uninterrupted_one(poke_bank: Bank, tmp_path: Path):
    """Bit for bit, the snapshot included; and the snapshot at the end is that of the last update but no later."""
    config = TrainConfig(steps=5, pairs=6, warmup=2, checkpoint_every=2, log_every=1, precision="fp32")
    data = PairedWindows(WindowReader(poke_bank, 24, HORIZONS, image=IMAGE), pairs=6, seed=3)

    def train(folder: Path, stop: int | None) -> dict[str, torch.Tensor]:
        def progress(step: int, values: dict[str, float]) -> None:
            if step == stop:
                raise Stopped

        torch.manual_seed(3)
        learner = JEPA(POKE_LEARNER)
        fit(learner, data, Objective(lambda_p=1.0), config, folder, progress=progress, tensorboard=False)
        return learner.state_dict()

    whole = train(tmp_path / "whole", None)
    with pytest.raises(Stopped):
        train(tmp_path / "cut", 3)
    saved = read_tensors(tmp_path / "cut" / "checkpoints" / "step-00000002" / "model.safetensors")
    assert saved["observed.steps"] == 2
    resumed = train(tmp_path / "cut", None)
    assert int(whole["observed.steps"]) == 5
    for name, value in whole.items():
        assert torch.equal(value, resumed[name]), name

    by_hand = FrameNorm()
    for step in range(5):
        windows = data(step)
        by_hand(causal_frames(windows.observations, windows.future_observations, POKE_LEARNER.patch), 24)
        by_hand.after_step()
    assert torch.equal(by_hand.mean, whole["observed.mean"])
    assert torch.equal(by_hand.var, whole["observed.var"])
