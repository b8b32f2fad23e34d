"""Which episodes a world's protocol names, and codes of their histories against one at a time."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_worlds import IMAGE, POKE_LEARNER, POKE_SMALL, SPRING_LEARNER, SPRING_SMALL

import sprii_train.experiments.worlds as worlds
from sprii_envs.banks import D_CLEAN, POKE_FACTORIAL, POKE_ORIGINAL, SPRING, SPRING_SEALED, Bank, BankError
from sprii_train.analysis.populations import Confirmation, Development, Training
from sprii_train.experiments.sources import Source
from sprii_train.experiments.worlds import (
    MEASURED_SEED,
    POKE_WORLD,
    SPRING_WORLD,
    WORLDS,
    encode_histories,
    measured_windows,
    present_features,
    training_windows,
)
from sprii_train.learners import JEPA
from sprii_train.protocol import Windows
from sprii_train.recipes import EVERY_RECIPE


def test_the_worlds():
    expected = {
        "d-clean": (D_CLEAN, 24, None, None),
        "poke": (POKE_FACTORIAL, 24, None, None),
        **{f"poke-r{r}": (POKE_ORIGINAL.replace(rollouts=r), 24, None, None) for r in (2, 4, 8)},
        "spring": (SPRING, 96, "forced", 16),
    }
    assert set(WORLDS) == set(expected)
    for name, (protocol, history, kind, shortest) in expected.items():
        world = WORLDS[name]
        assert world.name == name
        assert world.protocol == protocol.replace(frames=None)  # drawn when they are read
        assert (world.history, world.kind, world.shortest) == (history, kind, shortest)
        assert set(world.factors) <= {"mass", "drag", "stiffness"}
        for anchor in world.anchors:
            assert world.starts(anchor) >= 0
            assert anchor < 96
    assert POKE_WORLD.anchors == (24, 32, 40, 47)  # the paper's atlas
    assert [POKE_WORLD.starts(a) for a in POKE_WORLD.anchors] == [1, 9, 17, 24]
    assert SPRING_WORLD.sealed == SPRING_SEALED


def test_episodes_of_a_split(poke_bank: Bank, spring_bank: Bank):
    everything = POKE_WORLD.episodes(poke_bank, "train")
    assert (everything["episode"] == np.arange(128)).all()
    forced = SPRING_WORLD.episodes(spring_bank, "validation")
    assert set(forced["kind"]) == {"forced"}
    assert np.unique(forced["system"], return_counts=True)[1].tolist() == [4] * 10
    chosen = POKE_WORLD.episodes(poke_bank, "train", systems=5)
    ids = np.random.default_rng(MEASURED_SEED).permutation(32)[:5]
    assert sorted(set(chosen["system"])) == sorted(ids)
    assert len(chosen) == 20
    assert len(POKE_WORLD.episodes(poke_bank, "train", systems=400)) == 128
    with pytest.raises(BankError, match="sealed"):
        POKE_WORLD.episodes(poke_bank, "confirmation")
    assert len(POKE_WORLD.episodes(poke_bank, "confirmation", unseal=True)) == 32


def frame(bank: Bank, episode: int, t: int) -> np.ndarray:
    return bank.world.draw(bank["states"][episode, t][None].astype(np.float64), IMAGE)[0]


def code_alone(learner: JEPA, bank: Bank, episode: int, start: int) -> np.ndarray:
    """The context of one history, read entry by entry."""
    length = learner.config.history
    seen = np.stack(
        [frame(bank, episode, max(start - 1, 0)), *(frame(bank, episode, start + i) for i in range(length))]
    )
    actions = torch.from_numpy(bank["actions"][episode, start : start + length - 1].copy())[None]
    empty = torch.empty(1, 0, 2, IMAGE, IMAGE, dtype=torch.uint8)
    with torch.no_grad():
        batch = learner.eval().prepare(Windows(torch.from_numpy(seen)[None], actions, empty, actions[:, :0]))
        return learner.encode_history(batch.history)[0].double().numpy()


def test_codes_of_histories(poke_source: Source, poke_bank: Bank, monkeypatch: pytest.MonkeyPatch):
    """One at a time, in blocks of any size; a learner left in training mode is not."""
    learner, table = poke_source.learner, POKE_WORLD.episodes(poke_bank, "validation")
    reader = POKE_WORLD.reader(poke_bank, learner.config)
    codes = encode_histories(learner.train(), reader, table, 9)
    assert not learner.training
    assert (codes.shape, codes.dtype) == ((48, 4), np.float64)
    for row in (0, 17, 47):
        np.testing.assert_allclose(codes[row], code_alone(learner, poke_bank, table["episode"][row], 9), atol=1e-5)
    monkeypatch.setattr(worlds, "ENCODED", 7)
    np.testing.assert_allclose(encode_histories(learner, reader, table, 9), codes, atol=1e-6)


def test_measured_windows_of_every_anchor(poke_source: Source, poke_bank: Bank):
    learner = poke_source.learner
    found = measured_windows(POKE_WORLD, learner, poke_bank, "validation")
    assert isinstance(found.population, Development)
    assert found.codes.shape == (48 * 4, 4)
    table = poke_bank.split("validation")
    assert (found.systems == np.repeat(table["system"], 4)).all()
    assert (found.factors["drag"] == np.repeat(table["drag"], 4)).all()
    assert found.rollouts is not None
    assert len(np.unique(np.stack([found.systems, found.rollouts]), axis=1).T) == 48
    for row in (0, 1, 90, 191):
        start = (1, 9, 17, 24)[row % 4]
        alone = code_alone(learner, poke_bank, table["episode"][row // 4], start)
        np.testing.assert_allclose(found.codes[row], alone, atol=1e-5)
    with pytest.raises(BankError, match="sealed"):
        measured_windows(POKE_WORLD, learner, poke_bank, "confirmation")
    held_back = measured_windows(POKE_WORLD, learner, poke_bank, "confirmation", unseal=True)
    assert isinstance(held_back.population, Confirmation)

    train = training_windows(POKE_WORLD, learner, poke_bank, 6)
    assert isinstance(train.population, Training)
    assert sorted(set(train.systems)) == sorted(np.random.default_rng(MEASURED_SEED).permutation(32)[:6])


def test_spring_histories_are_whole_forced_episodes(spring_source: Source, spring_bank: Bank):
    learner = spring_source.learner
    found = measured_windows(SPRING_WORLD, learner, spring_bank, "validation")
    table = spring_bank.split("validation")
    forced = table.select(table["kind"] == "forced")
    assert found.codes.shape == (40, 4)
    for row in (0, 39):
        alone = code_alone(learner, spring_bank, forced["episode"][row], 0)
        np.testing.assert_allclose(found.codes[row], alone, atol=1e-5)


@pytest.mark.parametrize("context", ["split", "monolithic"])
def test_features_of_the_present(poke_bank: Bank, context: str):
    """z_s, or the embedding where there is none, of a frame after the one before it, or without a difference."""
    torch.manual_seed(0)
    learner = JEPA(replace(POKE_LEARNER, context=context)).eval()
    pairs = poke_bank.frames(np.arange(6), np.full(6, 20), 2, IMAGE)

    def by_hand(before: np.ndarray, now: np.ndarray) -> np.ndarray:
        channels = np.stack([now / 255.0, now / 255.0 - before / 255.0])[None]
        with torch.no_grad():
            e = learner.encoder_norm(learner.encoder(torch.from_numpy(channels).float()))
            return (e if context == "monolithic" else learner.current(e))[0].numpy()

    moving, still = present_features(learner, pairs), present_features(learner, pairs[:, 1:])
    assert moving.shape == (6, 8 if context == "monolithic" else 3)
    for row in range(6):
        np.testing.assert_allclose(moving[row], by_hand(*pairs[row]), atol=1e-5)
        np.testing.assert_allclose(still[row], by_hand(pairs[row, 1], pairs[row, 1]), atol=1e-5)
    assert np.abs(moving - still).max() > 1e-6

    of_states = JEPA(replace(POKE_LEARNER, image=0, observation_dim=8, context=context)).eval()
    states = poke_bank["states"][:4, 20]
    with torch.no_grad():
        e = of_states.encoder_norm(of_states.encoder(torch.from_numpy(states.copy())))
        wanted = e if context == "monolithic" else of_states.current(e)
    np.testing.assert_allclose(present_features(of_states, states), wanted.numpy(), atol=1e-6)


def test_training_data_of_a_recipe(poke_bank: Bank, spring_bank: Bank):
    data = POKE_WORLD.data(poke_bank, POKE_LEARNER, EVERY_RECIPE["g1"], pairs=4, seed=7)
    windows = data(0)
    assert windows.observations.shape == (8, 25, IMAGE, IMAGE)
    assert (windows.anchors, windows.labels) == (None, None)
    assert (data.identity()["relation"], data.identity()["seed"]) == ("G1", 7)
    supervised = replace(POKE_LEARNER, context="supervised", label_dim=3)
    labels = POKE_WORLD.data(poke_bank, supervised, EVERY_RECIPE["supervised"], pairs=4, seed=7)(0).labels
    assert labels is not None
    assert labels.shape == (8, 3)
    anchored = SPRING_WORLD.data(spring_bank, SPRING_LEARNER, EVERY_RECIPE["align"], pairs=4, seed=7)
    assert set(anchored.table["kind"]) == {"forced"}
    assert set(anchored.table["split"]) == {"train"}
    windows = anchored(0)
    assert windows.observations.shape == (8, 97, IMAGE, IMAGE)
    assert windows.anchors is not None
    assert (windows.anchors >= 15).all()


def test_banks_are_built_once_and_verified(tmp_path: Path):
    for world, protocol, folder in (
        (POKE_WORLD, POKE_SMALL, "poke-factorial-32-12-8-r4"),
        (SPRING_WORLD, SPRING_SMALL, "spring-16-10-rkinds"),
    ):
        small = replace(world, protocol=protocol)
        first = small.open_bank(tmp_path)
        assert first.path == tmp_path / "banks" / folder
        stamps = {file: file.stat().st_mtime_ns for file in first.path.iterdir()}
        assert small.open_bank(tmp_path).fingerprint == first.fingerprint
        assert {file: file.stat().st_mtime_ns for file in first.path.iterdir()} == stamps
    states = tmp_path / "banks" / "spring-16-10-rkinds" / "states.f32"
    data = bytearray(states.read_bytes())
    data[100] ^= 1
    states.write_bytes(data)
    with pytest.raises(BankError, match=r"states\.f32 is damaged: its checksum is another"):
        replace(SPRING_WORLD, protocol=SPRING_SMALL).open_bank(tmp_path)


def test_sealed_banks(tmp_path: Path):
    sealed = SPRING_SEALED.replace(systems={"sealed": SPRING_SMALL.systems["train"]})
    bank = replace(SPRING_WORLD, sealed=sealed).open_sealed(tmp_path)
    assert bank.path.parent == tmp_path
    assert bank.protocol == sealed
    with pytest.raises(ValueError, match="the world 'poke' has no sealed bank"):
        POKE_WORLD.open_sealed(tmp_path)
