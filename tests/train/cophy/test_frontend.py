"""The de-rendering network: what it is made of, that it learns to see, that it resumes, and what is measured of it."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from drawn_banks import FRAMES, SIZE, SLOTS, SMALL
from torch import nn

from sprii_envs.banks import RecordedBank
from sprii_train.checkpoints import CheckpointError
from sprii_train.cophy.frontend import (
    FEATURES,
    Frames,
    FrontEnd,
    FrontEndConfig,
    RandomFrames,
    iou,
    open_frontend,
    quality,
    scores,
    see,
    train_frontend,
    trunk,
)


def random_pictures(n: int, size: int) -> np.ndarray:
    return np.random.default_rng(0).integers(256, size=(n, size, size, 3), dtype=np.uint8)


@pytest.mark.parametrize(("kind", "size"), [("narrow", 28), ("narrow", 112), ("narrow", 224), ("resnet18", 112)])
@pytest.mark.parametrize("slots", [4, 9])
def test_every_trunk_sees_seven_by_seven_cells_of_every_slot(kind: str, size: int, slots: int) -> None:
    seen = see(FrontEnd(FrontEndConfig(trunk=kind, size=size, width=8), slots).eval(), random_pictures(2, size))
    assert [tuple(part.shape) for part in seen] == [(2, slots), (2, slots, 784), (2, slots, 3), (2, slots, 4)]
    assert (seen.features >= 0).all()
    assert seen.features.any()
    assert (seen.box[..., 2:] >= seen.box[..., :2]).all()


def test_the_published_trunk_is_resnet_18_without_its_classifier() -> None:
    """11,689,512 parameters, of which 513,000 classify ImageNet's 1,000 classes."""
    network, width = trunk(FrontEndConfig())
    assert sum(p.numel() for p in network.parameters()) == 11_689_512 - 513_000
    assert width == 512
    convolutions = [m for m in network.modules() if isinstance(m, nn.Conv2d)]
    assert len([m for m in convolutions if m.kernel_size != (1, 1)]) == 17
    assert sum(p.numel() for p in FrontEnd(FrontEndConfig(), 9).pose.parameters()) == 784 * 256 + 256 + 256 * 7 + 7


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"size": 100}, "size is 100; legal of resnet18: 112, 224"),
        ({"trunk": "vgg"}, "legal: narrow, resnet18"),
        ({"batch": 15}, "batch is 15; legal: an even number"),
        ({"learning_rate": 0.0}, "learning_rate"),
    ],
)
def test_a_wrong_config_is_refused(wrong: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FrontEndConfig(**wrong)


def test_pictures_of_another_size_are_refused(disc_frontend: FrontEnd) -> None:
    with pytest.raises(ValueError, match=r"legal: uint8 \(N, 28, 28, 3\)"):
        see(disc_frontend, random_pictures(1, 56))


def test_the_frozen_copy_sees_the_same(disc_frontend: FrontEnd) -> None:
    pictures = random_pictures(3, SIZE)
    for one, other in zip(see(disc_frontend, pictures), see(disc_frontend.frozen(), pictures), strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
    assert not any(isinstance(m, nn.BatchNorm2d) for m in disc_frontend.frozen().modules())


def test_training_frames_are_of_training_pairs_and_show_what_they_say(disc_bank: RecordedBank) -> None:
    frames = RandomFrames(disc_bank, disc_bank.split("train"), size=SIZE, batch=300, seed=1)
    rows, video, times = frames.drawn(3)
    assert set(disc_bank.table["split"][rows]) == {"train"}
    assert set(video) == {0, 1}
    assert set(times) == set(range(FRAMES))
    told = frames(3)
    for i in range(300):
        name, episode = ("ab", "cd")[video[i]], disc_bank.table["episode"][rows[i]]
        picture = disc_bank.windows(f"{name}_frames", [episode], [times[i]], 1)[0, 0]
        state = disc_bank.windows(f"{name}_states", [episode], [times[i]], 1)[0, 0]
        assert np.array_equal(told.images[i], picture)
        assert np.array_equal(told.position[i], state[:, :3])
        assert np.array_equal(told.present[i], state[:, 6] == 1)
    assert (told.present.sum(1) == 1).any()  # what an intervention has removed
    assert torch.equal(frames(3).images, told.images)
    assert not torch.equal(frames(4).images, told.images)


def test_the_loss_is_of_present_slots_only(disc_bank: RecordedBank) -> None:
    torch.manual_seed(0)
    frontend = FrontEnd(SMALL, SLOTS)
    frames = RandomFrames(disc_bank, disc_bank.split("train"), size=SIZE, batch=8, seed=0)(0)
    codes = frontend.encode_history(frames.images)
    loss, parts = frontend.native_loss(frontend.prepare(frames), (codes, codes))  # type: ignore[arg-type]
    seen, k = frontend(frames.images), frames.present
    p = torch.sigmoid(seen.presence)
    presence = -torch.where(k, p.log(), (1 - p).log()).sum() / k.numel()
    position = sum(((seen.position[i, j] - frames.position[i, j]) ** 2).sum() for i, j in k.nonzero()) / (3 * k.sum())
    box = sum(((seen.box[i, j] - frames.box[i, j]) ** 2).sum() for i, j in k.nonzero()) / (4 * k.sum())
    torch.testing.assert_close(loss, presence + position + box)
    torch.testing.assert_close(parts["position"], position)
    absent = frames._replace(position=torch.where(k[..., None], frames.position, torch.tensor(99.0)))
    torch.testing.assert_close(loss, frontend.native_loss(frontend.prepare(absent), (codes, codes))[0])  # type: ignore[arg-type]


def test_it_beats_the_constant_and_its_own_beginning_on_validation_pairs(disc_folder: Path) -> None:
    told = json.loads((disc_folder / "quality.json").read_text())
    trained, constant, untrained = told["trained"], told["constant"], told["untrained"]
    for other in (constant, untrained):
        assert trained["presence_accuracy"] > other["presence_accuracy"] + 0.15
        assert trained["position_rmse"] < 0.6 * other["position_rmse"]
        assert trained["box_iou"] > other["box_iou"] + 0.2
    # Coordinates are uniform over 4, 4 and 2: the mean's error is known
    assert constant["position_rmse"] == pytest.approx(np.sqrt((16 + 16 + 4) / 12 / 3), rel=0.1)


def test_training_on_other_pictures_is_worse(disc_bank: RecordedBank, disc_frontend: FrontEnd) -> None:
    """The scores are of what is seen: pictures of other frames are worth no more than the constant."""
    judged = RandomFrames(disc_bank, disc_bank.split("validation"), size=SIZE, batch=100, seed=0)(0)
    moved = judged._replace(images=judged.images.roll(1, 0))
    assert quality(disc_frontend, moved)["position_rmse"] > 1.2 > quality(disc_frontend, judged)["position_rmse"]


def test_scores_against_arithmetic() -> None:
    judged = Frames(
        torch.zeros(1, 1, 1, 3, dtype=torch.uint8), torch.tensor([[True, True, False]]),
        torch.tensor([[[0.0, 0, 0], [1, 1, 1], [9, 9, 9]]]),
        torch.tensor([[[0.0, 0, 0.5, 0.5], [0.2, 0.2, 0.2, 0.2], [0, 0, 1, 1]]]),
    )  # fmt: skip
    position = np.array([[[3.0, 0, 0], [1, 1, 1], [0, 0, 0]]])
    box = np.array([[[0.25, 0, 0.75, 0.5], [0, 0, 1, 1], [0, 0, 0, 0]]])
    assert scores(judged, np.array([[True, False, False]]), position, box) == {
        "presence_accuracy": pytest.approx(2 / 3),
        "position_rmse": pytest.approx(np.sqrt(9 / 6)),
        "box_iou": pytest.approx(1 / 3),  # the second box is out of sight
    }
    assert iou(np.array([[0.0, 0, 1, 1], [0, 0, 1, 1]]), np.array([[2.0, 2, 3, 3], [0, 0, 1, 1]])).tolist() == [0, 1]


class Killed(Exception):
    pass


def test_resumed_training_is_the_uninterrupted_one_to_the_bit(disc_bank: RecordedBank, tmp_path: Path) -> None:
    config = replace(SMALL, steps=12, checkpoint_every=5, judged=20)

    def kill(done: int, _: object) -> None:
        if done == 8:
            raise Killed

    with pytest.raises(Killed):
        train_frontend(disc_bank, config, tmp_path / "resumed", progress=kill)
    assert not (tmp_path / "resumed" / "quality.json").exists()
    steps: list[int] = []
    resumed = train_frontend(disc_bank, config, tmp_path / "resumed", progress=lambda done, _: steps.append(done))
    assert steps == list(range(6, 13))
    whole = train_frontend(disc_bank, config, tmp_path / "whole")
    assert resumed.digest == whole.digest
    files = [(tmp_path / name / "quality.json").read_bytes() for name in ("resumed", "whole")]
    assert files[0] == files[1]


def test_it_is_opened_as_it_was_trained(disc_folder: Path, disc_frontend: FrontEnd) -> None:
    found = open_frontend(disc_folder)
    assert found.digest == disc_frontend.digest
    assert found.config == SMALL
    assert not found.training
    assert not any(p.requires_grad for p in found.parameters())


def test_another_config_and_damage_are_refused(disc_bank: RecordedBank, tmp_path: Path) -> None:
    config = replace(SMALL, steps=2, judged=10)
    train_frontend(disc_bank, config, tmp_path / "f")
    with pytest.raises(CheckpointError, match=r"holds another run .*seed"):
        train_frontend(disc_bank, replace(config, seed=1), tmp_path / "f")
    weights = tmp_path / "f" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    with pytest.raises(CheckpointError, match=r"model.safetensors is damaged.*remove"):
        open_frontend(tmp_path / "f")
    (tmp_path / "f" / "frontend.json").write_text('{"slots": 4}')
    with pytest.raises(CheckpointError, match=r"frontend.json is damaged"):
        open_frontend(tmp_path / "f")


def test_features_are_sixteen_channels_of_every_cell() -> None:
    """A slot's features are its own channels: another slot's channels move nothing of them."""
    torch.manual_seed(0)
    frontend, pictures = FrontEnd(replace(SMALL), SLOTS).eval(), random_pictures(2, SIZE)
    before = see(frontend, pictures)
    with torch.no_grad():
        assert frontend.channels.bias is not None
        frontend.channels.bias[16:32] += 1.0
    after = see(frontend, pictures)
    changed = (before.features != after.features).any(-1).any(0)
    assert changed.tolist() == [False, True, False, False]
    assert FEATURES == 784
