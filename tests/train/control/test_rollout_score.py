"""A score against a plain loop over episodes, candidates and steps; which model calls it makes."""

from itertools import product

import pytest
import torch
from torch import Tensor

from sprii_train.control.planning import rollout_score


def step(observation: Tensor, action: Tensor, context: Tensor | None) -> Tensor:
    push = action.sum(1, keepdim=True) * (1.0 if context is None else context[:, :1])
    return torch.tanh(observation * 0.9 + push + (0.0 if context is None else context[:, 1:2]))


def reward(observation: Tensor, action: Tensor, after: Tensor) -> Tensor:
    return observation[:, 0] - action.square().sum(1) + 0.5 * after[:, 1]


def reward_before(observation: Tensor, action: Tensor, after: Tensor | None) -> Tensor:
    return observation[:, 0] - action.square().sum(1)


OBSERVATION = torch.randn(3, 2, generator=torch.Generator().manual_seed(0))
CONTEXT = torch.randn(3, 2, generator=torch.Generator().manual_seed(1))
ACTIONS = torch.randn(3, 5, 4, 2, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("rows", [None, 1, 4, 7, 15, 100])
@pytest.mark.parametrize("known", [True, False])
def test_returns_are_those_of_a_plain_loop(rows: int | None, known: bool):
    score = rollout_score(step, reward, OBSERVATION, CONTEXT if known else None, rows=rows)(ACTIONS)
    for episode, candidate in product(range(3), range(5)):
        rows_of = slice(episode, episode + 1)
        state, total = OBSERVATION[rows_of], 0.0
        for t in range(4):
            action = ACTIONS[rows_of, candidate, t]
            after = step(state, action, CONTEXT[rows_of] if known else None)
            total += float(reward(state, action, after))
            state = after
        assert float(score[episode, candidate]) == pytest.approx(total, abs=1e-5)


@pytest.mark.parametrize(("reads_next", "calls"), [(True, 4), (False, 3)])
def test_the_last_model_call_is_made_only_for_a_reward_that_reads_it(reads_next: bool, calls: int):
    sizes = []

    def counted(observation: Tensor, action: Tensor, context: Tensor | None) -> Tensor:
        sizes.append(len(observation))
        return step(observation, action, context)

    score = rollout_score(counted, reward_before, OBSERVATION, CONTEXT, reads_next=reads_next, rows=10)(ACTIONS)
    assert sizes == [10] * calls + [5] * calls
    assert torch.equal(score, rollout_score(step, reward_before, OBSERVATION, CONTEXT, rows=10)(ACTIONS))


def test_a_reward_that_does_read_it_is_found_out():
    with pytest.raises(TypeError, match="not subscriptable"):
        rollout_score(step, reward, OBSERVATION, reads_next=False)(ACTIONS)


def test_returns_are_ordinary_tensors_without_gradient():
    weight = torch.ones(1, requires_grad=True)
    score = rollout_score(lambda o, a, c: step(o, a, c) * weight, reward, OBSERVATION, CONTEXT)(ACTIONS)
    assert not score.requires_grad
    assert not score.is_inference()
    score += 1.0


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="context is of 2 episodes, observation of 3"):
        rollout_score(step, reward, OBSERVATION, CONTEXT[:2])
    with pytest.raises(ValueError, match="rows is 0"):
        rollout_score(step, reward, OBSERVATION, rows=0)
    with pytest.raises(ValueError, match=r"actions have shape \(2, 5, 4, 2\); legal: \(3, N, H, A\)"):
        rollout_score(step, reward, OBSERVATION)(ACTIONS[:2])


@pytest.mark.parametrize(
    ("step", "reward", "message"),
    [
        (lambda o, a, c: o, lambda o, a, n: -o.square().sum(), r"reward returned \(\) for 6 rows"),
        (lambda o, a, c: o, lambda o, a, n: 1.0, r"reward returned 1.0 for 6 rows"),
        (lambda o, a, c: o, lambda o, a, n: o[:, :1], r"reward returned \(6, 1\) for 6 rows"),
        (lambda o, a, c: o[:, :1], lambda o, a, n: o[:, 0], r"step returned shape \(6, 1\); legal: \(6, 2\)"),
    ],
)
def test_models_and_rewards_of_another_shape_are_refused(step, reward, message):
    score = rollout_score(step, reward, torch.zeros(2, 2))
    with pytest.raises(ValueError, match=message):
        score(torch.zeros(2, 3, 4, 1))
