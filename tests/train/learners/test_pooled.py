"""Pooled dynamics: a context of votes in any order and number, shortened histories, and statistics."""

import pytest
import torch
import torch.nn.functional as F

from sprii_train.learners.histories import History, append, empty_history
from sprii_train.learners.pooled import PooledConfig, PooledDynamics, shortened
from sprii_train.protocol import Windows

SMALL = PooledConfig(observation_dim=3, action_dim=1, history=5, window=2, persistent=2, encoder=(6,), dynamics=(7,))


def windows(n: int = 40, seed: int = 0) -> Windows:
    draw = torch.Generator().manual_seed(seed)
    seen, ahead = (torch.randn(n, t, 3, generator=draw) * 2 + 1 for t in (6, 2))
    taken, later = (torch.randn(n, t, 1, generator=draw) for t in (5, 2))
    return Windows(seen, taken, ahead, later)


def learner(**changes) -> PooledDynamics:
    torch.manual_seed(0)
    return PooledDynamics(PooledConfig(**{**SMALL.__dict__, **changes}))


def test_a_context_is_the_precision_weighted_mean_of_its_transitions_with_a_standard_prior():
    model = learner()
    model.fit_statistics(windows())
    history = model.prepare(windows(3))
    history = model.eval().prepare(windows(3)).history
    found = model.context(history)
    by_hand = []
    for b in range(3):
        total, precision = torch.zeros(2), torch.ones(2)
        for i in range(5):
            o, a, after = history.observations[b, i], history.actions[b, i], history.after[b, i]
            scaled = [
                (x - by[0]) / by[1]
                for x, by in ((o, model.observation), (a, model.action), (after - o, model.difference))
            ]
            vote, weight = model.encoder(torch.cat(scaled)).chunk(2)
            total, precision = total + F.softplus(weight) * vote, precision + F.softplus(weight)
        by_hand.append(total / precision)
    assert torch.allclose(found, torch.stack(by_hand), atol=1e-6)
    order = torch.randperm(5, generator=torch.Generator().manual_seed(1))
    turned = History(*(x[:, order] for x in history[:3]), history.filled)
    assert torch.allclose(model.context(turned), found, atol=1e-6)


def test_an_episode_s_context_does_not_depend_on_the_slots_it_lies_in():
    model, short = learner(), empty_history(2, 3, 3, 1)
    long = empty_history(2, 9, 3, 1)
    assert model.context(short).tolist() == [[0.0, 0.0]] * 2  # nothing seen, the prior
    for t in range(3):
        step = [torch.randn(2, d, generator=torch.Generator().manual_seed(10 * t + d)) for d in (3, 1, 3)]
        short, long = append(short, *step), append(long, *step)
        assert torch.allclose(model.context(short), model.context(long), atol=1e-6)


def test_training_keeps_last_transitions_of_every_number():
    n = 4_000
    seen = torch.arange(1.0, 6.0).expand(n, 5)[..., None]
    history = History(seen, seen, seen, torch.full((n,), 5))
    torch.manual_seed(0)
    found = shortened(history)
    kept = {tuple(row[row > 0].tolist()) for row in found.actions[..., 0]}
    assert kept == {tuple(float(i) for i in range(6 - k, 6)) for k in range(6)}
    assert torch.equal((found.actions[..., 0] > 0).sum(1), found.filled)
    assert torch.equal(found.mask, found.actions[..., 0] > 0)  # in the first slots
    counts = torch.bincount(found.filled, minlength=6) / n
    assert counts.numpy() == pytest.approx([1 / 6] * 6, abs=0.03)


def test_steps_are_the_predictions_that_are_trained():
    model = learner()
    model.fit_statistics(windows())
    batch = model.eval().prepare(windows(4, seed=3))
    context = model.encode_history(batch.history)
    change = model.predict(batch.current, context, batch.u)
    raw = windows(4, seed=3)
    mean, sd = model.difference
    expected = raw.observations[:, -1] + change[:, 0] * sd + mean
    assert torch.allclose(model.step(raw.observations[:, -1], raw.future_actions[:, 0], context), expected, atol=1e-5)
    second = raw.future_observations[:, 0] + change[:, 1] * sd + mean
    assert torch.allclose(
        model.step(raw.future_observations[:, 0], raw.future_actions[:, 1], context), second, atol=1e-5
    )
    exact = (raw.future_observations[:, 1] - raw.future_observations[:, 0] - mean) / sd
    assert torch.allclose(batch.y[:, 1], exact, atol=1e-5)


def test_a_linear_system_is_learned_from_votes_that_tell_its_gain():
    """o' = o + g·a with g = ±1 by system: the context must say which, from any number of transitions but none."""

    def drawn(step: int) -> tuple[Windows, torch.Tensor]:
        draw = torch.Generator().manual_seed(step)
        gain = torch.randint(0, 2, (64, 1), generator=draw) * 2.0 - 1.0
        actions = torch.randn(64, 7, 1, generator=draw)
        course = torch.cat([torch.zeros(64, 1, 3), (gain[:, None] * actions).cumsum(1).expand(-1, -1, 3)], dim=1)
        return Windows(course[:, :6], actions[:, :5], course[:, 6:], actions[:, 5:]), gain

    model = learner(encoder=(16,), dynamics=(32,))
    model.fit_statistics(drawn(0)[0])
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for step in range(400):
        batch = model.train().prepare(drawn(step)[0])
        prediction = model.predict(batch.current, model.encode_history(batch.history), batch.u)
        loss = model.task_loss(prediction, batch.y).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    found, gain = drawn(1_000)
    batch = model.eval().prepare(found)
    context = model.encode_history(batch.history)
    own = model.task_loss(model.predict(batch.current, context, batch.u), batch.y).mean()
    wrong = context[gain[:, 0].argsort()].flip(0)[gain[:, 0].argsort().argsort()]
    other = model.task_loss(model.predict(batch.current, wrong, batch.u), batch.y).mean()
    assert own < 0.05
    assert other > 10 * own


def test_what_is_refused():
    with pytest.raises(ValueError, match=r"PooledConfig\.context is 'monolithic'; legal: split, supervised"):
        PooledConfig(context="monolithic")
    with pytest.raises(ValueError, match=r"PooledConfig.label_dim is 0; legal: an integer >= 1"):
        PooledConfig(context="supervised")
    with pytest.raises(ValueError, match="they need horizons 1 to 2, got 1 observations after 1 actions"):
        learner().prepare(
            windows()._replace(future_observations=torch.zeros(40, 1, 3), future_actions=torch.zeros(40, 1, 1))
        )
    with pytest.raises(ValueError, match="the supervised context needs labels"):
        learner(context="supervised", label_dim=2).prepare(windows())
