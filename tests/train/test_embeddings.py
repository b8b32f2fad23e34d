"""Kept embeddings against the stem itself: the same numbers, of whichever frames, whole or not at all."""

from pathlib import Path

import numpy as np
import pytest
import torch

from sprii_envs.banks import Bank
from sprii_train.checkpoints import CheckpointError
from sprii_train.data import WindowReader
from sprii_train.embeddings import EmbeddingReader, Embeddings
from sprii_train.learners.pretext import Pretext, PretextConfig


@pytest.fixture(scope="module")
def stem() -> Pretext:
    torch.manual_seed(0)
    return Pretext(PretextConfig(image=16, stem=(4,), patch=4, embedding=5, hidden=8)).eval()


@pytest.fixture(scope="module")
def folder(poke_bank: Bank, stem: Pretext, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("embeddings") / "some"
    Embeddings.write(path, stem, poke_bank, ["validation"], "fp32", {"bank": poke_bank.fingerprint})
    return path


def reader_of(bank: Bank, stem: Pretext, kept: Embeddings | None) -> EmbeddingReader:
    return EmbeddingReader(bank, 24, (1, 4, 16), stem=lambda: stem, embeddings=kept)


def test_every_frame_of_the_split_is_kept_in_half_precision(poke_bank: Bank, stem: Pretext, folder: Path):
    kept = Embeddings(folder)
    episodes = np.sort(poke_bank.split("validation")["episode"])
    assert kept.values.shape == (len(episodes), 64, 5)
    assert kept.values.dtype == np.float16
    assert not kept.values.flags.writeable
    assert np.array_equal(kept.episodes, episodes)
    # Against the frames of the learners of pixels, whose first one has no difference either.
    frames = WindowReader(poke_bank, 64, (1,), image=16).histories(episodes[:3], np.zeros(3, np.int64)).observations
    with torch.no_grad():
        torch.testing.assert_close(torch.from_numpy(kept.values[:3].astype(np.float32)), stem.embed(frames),
                                   rtol=2e-3, atol=2e-3)  # fmt: skip


def test_windows_are_slices_and_other_splits_are_seen_as_they_are_read(poke_bank: Bank, stem: Pretext, folder: Path):
    kept = Embeddings(folder)
    some = np.concatenate([poke_bank.split("validation")["episode"][:3], poke_bank.split("train")["episode"][:2]])
    starts = np.array([0, 3, 16, 0, 7])
    mixed = reader_of(poke_bank, stem, kept).read(some, starts)
    unkept = reader_of(poke_bank, stem, None).read(some, starts)
    torch.testing.assert_close(mixed.observations, unkept.observations)
    torch.testing.assert_close(mixed.future_observations, unkept.future_observations)
    assert mixed.observations.shape == (5, 24, 5)
    assert mixed.future_observations.shape == (5, 3, 5)
    rows = kept.rows(some)
    assert (rows >= 0).tolist() == [True] * 3 + [False] * 2
    assert np.array_equal(mixed.observations[1].numpy(), kept.values[rows[1], 3:27].astype(np.float32))
    states = WindowReader(poke_bank, 24, (1, 4, 16)).read(some, starts)
    assert torch.equal(mixed.actions, states.actions)
    assert torch.equal(mixed.future_actions, states.future_actions)


def test_a_window_beyond_an_episode_is_refused(poke_bank: Bank, stem: Pretext, folder: Path):
    one = poke_bank.split("validation")["episode"][:1]
    with pytest.raises(ValueError, match="a window of 24 observations begins at 50; legal: within an episode's 64"):
        reader_of(poke_bank, stem, Embeddings(folder)).columns(one, np.array([50]), 24)


def test_a_writer_that_fails_leaves_nothing(poke_bank: Bank, stem: Pretext, tmp_path: Path):
    def stop(done: int, count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Embeddings.write(tmp_path / "some", stem, poke_bank, ["validation"], "fp32", {}, stop)
    assert list(tmp_path.iterdir()) == []


def test_damage_is_named(poke_bank: Bank, stem: Pretext, tmp_path: Path):
    Embeddings.write(tmp_path / "some", stem, poke_bank, ["validation"], "fp32", {})
    file = tmp_path / "some" / "embeddings.npy"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=r"embeddings\.npy is damaged: truncated: .*; remove .*some and repeat"):
        Embeddings(tmp_path / "some")
    file.unlink()
    with pytest.raises(CheckpointError, match=r"embeddings\.npy is missing"):
        Embeddings(tmp_path / "some")
