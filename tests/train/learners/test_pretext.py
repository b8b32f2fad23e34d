"""The pretext task: its terms by hand, embeddings of one frame whatever is around it, and what it teaches a stem."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from sprii_envs.banks import Bank
from sprii_train.data import WindowReader
from sprii_train.fit import TrainConfig, train_step
from sprii_train.learners.pretext import Pretext, PretextConfig
from sprii_train.protocol import Objective, Windows, encode, take, training_loss
from sprii_train.settings.frozen import SingleWindows

CONFIG = PretextConfig(image=16, stem=(8,), patch=4, embedding=6, hidden=16, history=10, ahead=4)


@pytest.fixture(scope="module")
def windows(poke_bank: Bank) -> Windows:
    return SingleWindows(WindowReader(poke_bank, CONFIG.history, (1,), image=CONFIG.image), 4, 0)(0)


def test_the_four_terms_by_hand(windows: Windows):
    torch.manual_seed(0)
    learner = Pretext(CONFIG).eval()
    with torch.no_grad():
        batch = learner.prepare(windows)
        loss, parts = learner.native_loss(batch, encode(learner, batch))
    e, a = batch.history.double().numpy(), windows.actions.double().numpy()

    def net(network: torch.nn.Module, *given: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return network(torch.from_numpy(np.concatenate(given).astype(np.float32))).double().numpy()

    inverse = np.mean([
        (net(learner.inverse, e[b, t], e[b, t + 1]) - a[b, t]) ** 2 for b in range(len(e)) for t in range(9)
    ]) / 0.3**2  # fmt: skip
    ahead = np.mean([
        (net(learner.ahead, e[b, t], *a[b, t : t + 4]) - e[b, t + 4]) ** 2 for b in range(len(e)) for t in range(6)
    ])  # fmt: skip
    halves = np.split(e.reshape(-1, 6), 2)
    covariances = [np.cov(half.T) for half in halves]
    variance = np.mean([np.maximum(0, 1 - np.sqrt(np.diag(c) + 1e-4)) for c in covariances])
    covariance = sum(np.sum(c**2) - np.sum(np.diag(c) ** 2) for c in covariances) / 6
    expected = {"inverse": inverse, "ahead": ahead, "variance": variance, "covariance": covariance}
    assert {name: float(value) for name, value in parts.items()} == pytest.approx(expected, rel=1e-4)
    assert float(loss) == pytest.approx(inverse + ahead + variance + covariance / 25, rel=1e-4)


def test_an_embedding_is_of_a_frame_and_the_one_before_it_alone(windows: Windows):
    learner = Pretext(CONFIG).eval()
    with torch.no_grad():
        whole = learner.embed(windows.observations)
        pair = learner.embed(windows.observations[:, 5:7])
    torch.testing.assert_close(whole[:, 5], pair[:, 0])
    assert not torch.allclose(whole[:, 5], whole[:, 6])


def test_no_term_depends_on_which_windows_are_stacked_on_which(windows: Windows):
    """No relation: the halves of a batch are no pairs, so that turning one of them changes nothing but sums' order."""
    learner = Pretext(CONFIG).eval()
    turned = torch.cat([torch.arange(4), 4 + torch.arange(4).roll(1)])
    other = take(windows, turned)
    with torch.no_grad():
        one, _ = training_loss(learner, windows, Objective())
        two, _ = training_loss(learner, other, Objective())
    torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-6)


def test_windows_are_of_the_training_episodes_and_of_the_step_alone(poke_bank: Bank):
    reader = WindowReader(poke_bank, 10, (1,), image=16)
    drawn = SingleWindows(reader, 4, 3)
    assert torch.equal(drawn(7).observations, SingleWindows(reader, 4, 3)(7).observations)
    assert not torch.equal(drawn(7).observations, drawn(8).observations)
    assert len(drawn(0).actions) == 8
    with pytest.raises(ValueError, match="the pretext's history is 65; legal: at most an episode's length"):
        SingleWindows(WindowReader(poke_bank, 65, (1,), image=16), 4, 0)


def test_the_task_teaches_a_stem_what_moved_the_finger(poke_bank: Bank):
    """Actions are told from embeddings better than by their mean, which an untrained stem and head cannot."""
    torch.manual_seed(0)
    config = replace(CONFIG, image=32, stem=(32,), embedding=32, hidden=64)
    learner, train = Pretext(config), TrainConfig(steps=200, pairs=8, learning_rate=4e-3, warmup=10, precision="fp32")
    data = SingleWindows(WindowReader(poke_bank, config.history, (1,), image=config.image), train.pairs, 0)
    optimizer = train.optimizer(learner)
    told = [train_step(learner, data(i), Objective(), optimizer, train, i, "fp32") for i in range(train.steps)]
    first, last = (np.mean([row["inverse"] for row in rows]) for rows in (told[:10], told[-20:]))
    assert last < 0.8 * first
    assert np.mean([row["ahead"] for row in told[-20:]]) < 0.8


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"history": 4}, r"PretextConfig\.history is 4; legal: an integer .*5"),
        ({"image": 18}, r"PretextConfig\.image is 18; legal: a multiple of 4"),
        ({"action_sd": 0.0}, r"PretextConfig\.action_sd is 0\.0"),
        ({"stem": ()}, r"PretextConfig\.stem is \(\)"),
    ],
)
def test_refused(changed: dict, message: str):
    with pytest.raises(ValueError, match=message):
        replace(CONFIG, **changed)
