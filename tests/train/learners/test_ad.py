"""The action learner: causal, its slot of the support alone, and its step-by-step form equal to the whole one."""

import numpy as np
import pytest
import torch
from torch import Tensor

from sprii_train.checkpoints import load, save
from sprii_train.learners import AD, ADConfig
from sprii_train.learners.ad import QUERY, SUPPORT, Play, PlayWindows, distinct
from sprii_train.protocol import Objective, check_learner, encode, training_loss

CONFIG = ADConfig(inputs=12, steps=7, width=16, layers=2, heads=2)


def windows(rows: int = 6, seed: int = 0) -> PlayWindows:
    generator = torch.Generator().manual_seed(seed)
    shape = (rows, SUPPORT + QUERY, CONFIG.steps)
    return PlayWindows(
        torch.randint(0, 4, (*shape, 2, 2, 3), generator=generator, dtype=torch.uint8),
        torch.randint(0, 6, shape, generator=generator).to(torch.uint8),
        torch.randn(shape, generator=generator) * 5.0,
    )


@pytest.fixture
def learner() -> AD:
    torch.manual_seed(0)
    return AD(CONFIG).eval()


def logits(learner: AD, given: PlayWindows) -> Tensor:
    batch = learner.prepare(given)
    codes = encode(learner, batch)
    return learner.predict(codes.z_s, codes.z_p, batch.u)


def test_it_is_a_learner(learner: AD):
    check_learner(learner, windows())  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["observations", "actions", "rewards"])
def test_an_action_is_predicted_from_what_came_before_it(learner: AD, field: str):
    given, time = windows(), 9  # step 2 of the query's second episode
    changed = PlayWindows(*(part.clone() for part in given))
    getattr(changed, field)[:, SUPPORT + 1, 2] += 1
    apart = (logits(learner, given) - logits(learner, changed)).abs().amax((0, 2))
    first = time if field == "observations" else time + 1  # one's own action and its reward come after it
    assert (apart[:first] == 0.0).all()
    assert (apart[first:] > 0.0).all()


def test_an_episode_s_first_step_follows_nothing(learner: AD):
    given = windows()
    changed = PlayWindows(*(part.clone() for part in given))
    changed.actions[:, SUPPORT, -1] += 1
    changed.rewards[:, SUPPORT, -1] += 1.0
    one, two = (learner.tokens(learner.prepare(w).current) for w in (given, changed))
    torch.testing.assert_close(one, two)


def test_the_slot_is_of_the_support_alone(learner: AD):
    given = windows()
    changed = PlayWindows(*(part.clone() for part in given))
    changed.observations[:, SUPPORT:] = 0
    changed.rewards[:, SUPPORT:] = 0.0
    slot = learner.encode_history(learner.prepare(given).history)
    assert slot.shape == (6, 32)
    assert torch.equal(slot, learner.encode_history(learner.prepare(changed).history))
    # Support episodes are encoded one by one, so that their order is nothing to the slot.
    support = learner.prepare(given).history
    torch.testing.assert_close(slot, learner.encode_history(Play(*(part.flip(1) for part in support))))
    assert not torch.allclose(logits(learner, given), logits(learner, windows(seed=1)))


def test_step_by_step_equals_the_whole(learner: AD):
    batch = learner.prepare(windows())
    codes = encode(learner, batch)
    whole = learner.predict(codes.z_s, codes.z_p, batch.u)
    query, past = batch.current, None
    for time in range(QUERY * CONFIG.steps):
        episode, step = divmod(time, CONFIG.steps)
        running = Play(*(part[:, : episode + 1] for part in query))
        told, past = learner.act(learner.token_at(running, step, time), codes.z_p, past)
        torch.testing.assert_close(told, whole[:, time], rtol=1e-4, atol=1e-5)
    # And from the middle on, after all that came before at once.
    begun = Play(*(part[:, :2] for part in query))
    _, past = learner.act(learner.tokens(begun), codes.z_p, None)
    told, _ = learner.act(learner.token_at(query, 0, 2 * CONFIG.steps), codes.z_p, past)
    torch.testing.assert_close(told, whole[:, 2 * CONFIG.steps], rtol=1e-4, atol=1e-5)


def test_the_losses_are_cross_entropy_and_the_two_regularisers(learner: AD):
    given = windows()
    values = torch.log_softmax(logits(learner, given), -1)
    truth = given.actions[:, SUPPORT:].flatten(1).long()
    by_hand = -values.gather(2, truth[..., None]).mean()
    h, parts = training_loss(learner, given, Objective())  # type: ignore[arg-type]
    torch.testing.assert_close(h, by_hand)
    assert set(parts) == {"cross_entropy"}
    slot = learner.encode_history(learner.prepare(given).history)
    a, b = slot.chunk(2)
    spread = sum((1.0 - (x.var(0) + 1e-4).sqrt()).clamp(min=0.0).mean() for x in (a, b)) / 2
    covariance = sum((torch.cov(x.T).fill_diagonal_(0.0) ** 2).sum() for x in (a, b)) / slot.shape[1]
    vc, _ = training_loss(learner, given, Objective(lambda_p=0.001, invariance=0.0))  # type: ignore[arg-type]
    torch.testing.assert_close(vc, h + 0.001 * (25.0 * spread + covariance))
    aligned, _ = training_loss(learner, given, Objective(lambda_p=0.001))  # type: ignore[arg-type]
    torch.testing.assert_close(aligned, vc + 0.001 * 25.0 * (a - b).square().mean())


def test_it_learns_from_its_slot():
    """The ego's action is the partner's number, which only the support shows."""
    torch.manual_seed(0)
    learner, rule = AD(CONFIG), torch.randint(0, 6, (1,))
    optimizer = torch.optim.Adam(learner.parameters(), lr=3e-3)
    for step in range(150):
        given = windows(16, seed=step)
        number = torch.arange(16) % 4
        given.observations[:, :SUPPORT] = number[:, None, None, None, None, None].to(torch.uint8)
        given.observations[:, SUPPORT:] = 0
        given.actions[:] = ((number + rule) % 6)[:, None, None].to(torch.uint8)
        given.actions[:, SUPPORT:, :-1] = 0  # but for the last of an episode, whose predecessors tell nothing
        given.rewards[:] = 0.0
        loss, _ = training_loss(learner, given, Objective())  # type: ignore[arg-type]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.05


def test_saved_and_loaded(learner: AD, tmp_path):
    save(learner, tmp_path / "model")
    again = load(tmp_path / "model")
    assert torch.equal(logits(learner, windows()), logits(again, windows()))  # type: ignore[arg-type]


@pytest.mark.parametrize("changes", [{"width": 0}, {"heads": 5}, {"inputs": -1}])
def test_illegal_sizes(changes: dict):
    with pytest.raises(ValueError, match=next(iter(changes))):
        ADConfig(**changes)


@pytest.mark.parametrize("width", [5, 8, 40])
def test_rows_that_are_alike_are_read_once(width: int):
    """By NumPy; rows that differ in the last byte of a word alone are told apart too."""
    draw = torch.Generator().manual_seed(0)
    rows = torch.randint(0, 2, (12, width), generator=draw, dtype=torch.uint8)
    rows = torch.cat([rows, rows[:1].repeat(200, 1)])
    rows[12:, -1] = torch.arange(200, dtype=torch.uint8)
    rows = rows[torch.randint(0, len(rows), (3000,), generator=draw)]
    found, place = distinct(rows)
    assert torch.equal(found[place], rows)
    assert len(found) == len(np.unique(rows.numpy(), axis=0))


def test_rows_that_a_hash_confuses_are_all_read(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch, "randint", lambda low, high, size, **_: torch.full(size, -1, dtype=torch.int64))
    rows = torch.zeros(3, 16, dtype=torch.uint8)
    rows[0, 0], rows[1, 8] = 1, 1  # of one sum where both words have one factor
    found, place = distinct(rows)
    assert torch.equal(found, rows)
    assert place.tolist() == [0, 1, 2]


def test_a_token_is_the_book_s_of_its_own_observation(learner: AD):
    """With its gradient: as if every observation were embedded by itself."""
    learner.double()
    given = learner.prepare(windows()).current._replace(rewards=torch.zeros(6, QUERY, CONFIG.steps).double())
    told = learner.tokens(given)
    weight = learner.observation.weight
    seen = (given.observations.flatten(3).double() @ weight.T + learner.observation.bias).relu()
    none = torch.full_like(given.actions[..., :1], CONFIG.actions).long()
    before = torch.cat([none, given.actions[..., :-1].long()], -1)
    by_hand = learner.token(torch.cat([learner.action(before), seen, torch.zeros_like(seen[..., :1])], -1))
    by_hand = by_hand.flatten(1, 2) + learner.position.weight[: told.shape[1]]
    torch.testing.assert_close(told, by_hand)
    one, two = (torch.autograd.grad(made.square().sum(), weight)[0] for made in (told, by_hand))
    torch.testing.assert_close(one, two)
