"""Evaluation and agents against episodes played one by one."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from sprii_envs.envs.pendulum import GROUPS
from sprii_envs.physics.pendulum import wrap
from sprii_envs.world import rollout
from sprii_train.control import pendulum
from sprii_train.control.agent import Policy, planning_policy, random_policy
from sprii_train.control.controllers import CEM, ICEM
from sprii_train.control.draws import EVALUATION, Drawn, draw
from sprii_train.control.evaluation import KnownModel, evaluate, known, learned, random
from sprii_train.learners.cadm import CaDM, CaDMConfig
from sprii_train.learners.histories import History

SMALL = CEM(candidates=6, elites=3, iterations=1, horizon=4)


def test_groups_are_of_their_systems_and_every_policy_meets_the_same():
    one = evaluate(random(seed=1), seed=5, episodes=3)
    two = evaluate(known(SMALL, seed=9), seed=5, episodes=3)
    assert list(one) == list(GROUPS)
    for group, trial in one.items():
        own = draw(group, 3, (EVALUATION, 5, list(GROUPS).index(group)))
        assert (trial.values == own.values).all()
        assert trial.starts == two[group].starts == own.digest()
        assert (trial.states[:, 0] == two[group].states[:, 0]).all()
        assert (trial.actions != two[group].actions).any()
    assert evaluate(random(seed=1), seed=6, episodes=3)["ID"].starts != one["ID"].starts


def test_return_and_success_by_hand():
    trial = evaluate(random(seed=2), seed=0, episodes=2, groups=("OOD_c0",))["OOD_c0"]
    for e in range(2):
        total, upright = 0.0, True
        for t in range(200):
            angle, velocity = wrap(trial.states[e, t : t + 1, 0])[0], trial.states[e, t, 1]
            total -= angle**2 + 0.1 * velocity**2 + 0.001 * float(trial.actions[e, t, 0]) ** 2
            if t >= 100:
                upright &= abs(wrap(trial.states[e, t + 1 : t + 2, 0])[0]) <= np.pi / 3
        assert trial.returns[e] == pytest.approx(total, rel=1e-6)
        assert trial.success[e] == upright
    assert trial.row()["return"] == pytest.approx(trial.returns.mean())


def test_the_oracle_swings_up():
    trial = evaluate(known(ICEM(horizon=20), seed=0), seed=0, episodes=6, groups=("ID",))["ID"]
    assert trial.success.all()
    assert trial.returns.mean() > -500.0


def test_the_context_is_of_the_running_episode():
    """What the model was asked for at each step is the last K transitions of every episode, and nothing after."""
    seen: list[History] = []

    class Watched(KnownModel):
        def context(self, history: History) -> torch.Tensor:
            seen.append(history)
            return self.believed

    drawn = draw("ID", 2, (9,))
    model = Watched(torch.tensor(drawn.values, dtype=torch.float32), history=3)
    policy = planning_policy(
        model, pendulum.reward, pendulum.WORLD.observe, pendulum.bounds(), SMALL, 2, seed=0, reads_next=False
    )
    found = rollout(pendulum.WORLD, drawn.values, drawn.states, policy, steps=6)
    observations = pendulum.WORLD.observe(found.states.reshape(-1, 2)).reshape(2, 7, 3)
    for t, history in enumerate(seen):
        first = max(0, t - 3)
        assert history.filled.tolist() == [min(t, 3)] * 2
        differences = np.diff(observations[:, first : t + 1], axis=1)
        np.testing.assert_allclose(history.differences[:, : t - first], differences, atol=1e-6)
        np.testing.assert_array_equal(history.actions[:, : t - first], found.actions[:, first:t])
        assert not history.differences[:, t - first :].any()


def test_learned_policies_are_functions_of_their_seed():
    learner = CaDM(CaDMConfig(encoder=(8, 8, 8), dynamics=(8, 8, 8, 8)), seed=1).eval()
    one, again, other = (
        evaluate(learned(learner, SMALL, seed=seed), seed=0, episodes=2, groups=("ID",))["ID"] for seed in (3, 3, 4)
    )
    assert (one.actions == again.actions).all()
    assert (one.actions != other.actions).any()


def test_random_actions_fill_the_bounds():
    policy = random_policy(500, (torch.tensor([-2.0, 0.0]), torch.tensor([1.0, 4.0])), seed=0)
    actions = policy(0, np.zeros((500, 2)))
    assert actions.dtype == np.float32
    assert (actions >= [-2, 0]).all()
    assert (actions <= [1, 4]).all()
    np.testing.assert_allclose(actions.mean(0), [-0.5, 2.0], atol=0.2)
    np.testing.assert_allclose(actions.std(0), [3 / 12**0.5, 4 / 12**0.5], atol=0.1)


def test_a_model_of_another_world_is_refused():
    learner = CaDM(
        CaDMConfig(
            observation_dim=4,
            action_dim=2,
            encoder=(8,),
            dynamics=(8,),
            encoder_decay=(0.0, 0.0),
            dynamics_decay=(0.0, 0.0),
        ),
        seed=0,
    )
    with pytest.raises(ValueError, match="of 4 observations and 2 actions; legal: 3 and 1"):
        learned(learner, SMALL, seed=0)


# Unchecked arguments


def no_array(drawn: Drawn) -> Policy:
    return lambda t, states: torch.zeros(len(states), 1)  # type: ignore[return-value]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"groups": ("ID", "OOD_c9")}, r"groups is 'OOD_c9'; legal: ID, OOD_c0, "),
        ({"groups": ()}, r"groups is \(\); legal: at least one of ID, "),
        ({"groups": ("ID", "ID")}, r"groups is \('ID', 'ID'\); legal: .*, each once"),
        ({"groups": "ID"}, "groups is 'ID'; legal: tuple or list"),
        ({"groups": (1,)}, "groups is 1; legal: ID, "),
        ({"episodes": 0}, "episodes is 0; legal: an integer >= 1"),
        ({"episodes": 2.0}, r"episodes is 2\.0; legal: an integer >= 1"),
        ({"episodes": True}, "episodes is True; legal: an integer >= 1"),
        ({"seed": -1}, "seed is -1; legal: an integer >= 0"),
        ({"seed": "0"}, "seed is '0'; legal: an integer >= 0"),
        ({"policy_of": None}, "policy_of is None; legal: a function of the episodes to come"),
        ({"policy_of": no_array}, r"the policy's action is tensor\(.*; legal: ndarray"),
    ],
)
def test_unchecked_arguments_of_an_evaluation(change: dict[str, Any], message: str):
    given = {"policy_of": random(seed=0), "seed": 0, "episodes": 1, "groups": ("ID",)} | change
    with pytest.raises(ValueError, match=message):
        evaluate(given.pop("policy_of"), **given)


def plan_on(device: str) -> Policy:
    bounds = pendulum.bounds()
    return planning_policy(
        KnownModel(torch.ones(1, 2)), pendulum.reward, pendulum.WORLD.observe, bounds, SMALL, 1, seed=0, device=device
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: draw("ID", 0, (1,)), "episodes is 0; legal: an integer >= 1"),
        (lambda: draw("ID", 1, (1.5,)), r"key\[0\] is 1\.5; legal: an integer >= 0"),
        (lambda: draw(["ID"], 1, (1,)), r"group is \['ID'\]; legal: str"),  # type: ignore[arg-type]
        (lambda: random_policy(1, (-1.0, 1.0), seed=0), r"bounds is \(-1\.0, 1\.0\); legal: two \(A,\) tensors"),  # type: ignore[arg-type]
        (lambda: random_policy(0, pendulum.bounds(), seed=0), "episodes is 0; legal: an integer >= 1"),
        (lambda: random_policy(1, pendulum.bounds(), seed=-1), "seed is -1; legal: an integer >= 0"),
        (lambda: plan_on("cuda:99"), "device is 'cuda:99', which cannot be used here; legal: cpu"),
        (lambda: learned("model", SMALL, seed=0), "learner is 'model'; legal: CaDM"),  # type: ignore[arg-type]
        (lambda: evaluate(known("cem", seed=0), seed=0, episodes=1), "controller is 'cem'; legal: Shooting or CEM"),  # type: ignore[arg-type]
        (lambda: evaluate(known(SMALL, seed=None), seed=0, episodes=1), "seed is None; legal: an integer >= 0"),  # type: ignore[arg-type]
    ],
)
def test_unchecked_arguments_of_policies_and_draws(call: Callable[[], object], message: str):
    with pytest.raises(ValueError, match=message):
        call()
