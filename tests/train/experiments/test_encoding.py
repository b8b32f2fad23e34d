"""Codes of a source's histories and presents against one at a time."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_worlds import IMAGE, POKE_LEARNER

from sprii_envs.banks import Bank, BankError
from sprii_train.analysis.populations import Confirmation, Development, Training
from sprii_train.cases.encoding import encode_histories, features, present_features
from sprii_train.experiments.measures.formation import measured_windows, training_windows
from sprii_train.experiments.sources import Source
from sprii_train.learners import JEPA
from sprii_train.protocol import Windows
from sprii_train.settings import POKE, SPRING
from sprii_train.settings.base import MEASURED_SEED


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


def test_codes_of_histories(poke_source: Source, poke_bank: Bank):
    """One at a time, in blocks of any size; a learner left in training mode is not."""
    learner, table = poke_source.learner, POKE.episodes(poke_bank, "validation")
    reader = POKE.reader(poke_bank, learner.config)
    codes = encode_histories(learner.train(), reader, table, 9)
    assert not learner.training
    assert (codes.shape, codes.dtype) == ((48, 4), np.float64)
    for row in (0, 17, 47):
        np.testing.assert_allclose(codes[row], code_alone(learner, poke_bank, table["episode"][row], 9), atol=1e-5)
    np.testing.assert_allclose(encode_histories(learner, reader, table, 9, chunk=7), codes, atol=1e-6)


def test_measured_windows_of_every_anchor(poke_source: Source, poke_bank: Bank):
    learner = poke_source.learner
    found = measured_windows(POKE, learner, poke_bank, "validation")
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
        measured_windows(POKE, learner, poke_bank, "confirmation")
    held_back = measured_windows(POKE, learner, poke_bank, "confirmation", unseal=True)
    assert isinstance(held_back.population, Confirmation)

    train = training_windows(POKE, learner, poke_bank, 6)
    assert isinstance(train.population, Training)
    assert sorted(set(train.systems)) == sorted(np.random.default_rng(MEASURED_SEED).permutation(32)[:6])


def test_spring_histories_are_whole_forced_episodes(spring_source: Source, spring_bank: Bank):
    learner = spring_source.learner
    found = measured_windows(SPRING, learner, spring_bank, "validation")
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
    pairs = torch.from_numpy(poke_bank.frames(np.arange(6), np.full(6, 20), 2, IMAGE))

    def by_hand(before: torch.Tensor, now: torch.Tensor) -> np.ndarray:
        channels = torch.stack([now / 255.0, now / 255.0 - before / 255.0])[None]
        with torch.no_grad():
            e = learner.encoder_norm(learner.encoder(channels.float()))
            return (e if context == "monolithic" else learner.current(e))[0].numpy()

    moving, still = features(learner, pairs), features(learner, pairs[:, 1:])
    assert moving.shape == (6, 8 if context == "monolithic" else 3)
    for row in range(6):
        np.testing.assert_allclose(moving[row], by_hand(*pairs[row]), atol=1e-5)
        np.testing.assert_allclose(still[row], by_hand(pairs[row, 1], pairs[row, 1]), atol=1e-5)
    assert np.abs(moving - still).max() > 1e-6
    reader = POKE.reader(poke_bank, learner.config)
    np.testing.assert_allclose(present_features(learner, reader, np.arange(6), np.full(6, 21)), moving, atol=1e-6)

    of_states = JEPA(replace(POKE_LEARNER, image=0, observation_dim=8, context=context)).eval()
    states = torch.from_numpy(poke_bank["states"][:4, 20].copy())
    with torch.no_grad():
        e = of_states.encoder_norm(of_states.encoder(states))
        wanted = e if context == "monolithic" else of_states.current(e)
    np.testing.assert_allclose(features(of_states, states), wanted.numpy(), atol=1e-6)
    reader = POKE.reader(poke_bank, of_states.config)
    of_bank = present_features(of_states, reader, np.arange(4), np.full(4, 20))
    np.testing.assert_allclose(of_bank, wanted.numpy(), atol=1e-6)
