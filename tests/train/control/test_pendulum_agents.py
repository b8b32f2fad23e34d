"""The pendulum's agents, against episodes played one by one and rollouts of the same policies."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from sprii_envs.envs.pendulum import GROUPS
from sprii_envs.physics.pendulum import wrap
from sprii_envs.world import rollout
from sprii_train.control import pendulum
from sprii_train.control.agent import PlanningAgent, on_states, planning_policy
from sprii_train.control.controllers import CEM, ICEM
from sprii_train.control.draws import EVALUATION, draw
from sprii_train.control.pendulum_agents import ENV_ID, KnownModel, known, learned, nominal, paper
from sprii_train.evaluation import GroupEpisodes, RandomAgent, evaluate_agent
from sprii_train.learners import JEPA, JEPAConfig
from sprii_train.learners.cadm import CaDM, CaDMConfig
from sprii_train.learners.histories import History

SMALL = CEM(candidates=6, elites=3, iterations=1, horizon=4)


def trial(agent: Any, *, seed: int, episodes: int, group: str = "ID") -> GroupEpisodes:
    return evaluate_agent(agent, ENV_ID, seed=seed, episodes=episodes, groups=[group], record=True).groups[group]


def test_groups_are_of_their_systems_and_every_policy_meets_the_same():
    one = evaluate_agent(RandomAgent(seed=1), ENV_ID, seed=5, episodes=3, record=True).groups
    two = evaluate_agent(known(SMALL, seed=9), ENV_ID, seed=5, episodes=3, record=True).groups
    assert list(one) == list(GROUPS)
    for group, own in one.items():
        drawn = draw(group, 3, (EVALUATION, 5, list(GROUPS).index(group)))
        assert (own.values == drawn.values).all()
        assert own.starts == two[group].starts == drawn.digest()
        assert own.states is not None
        assert (own.states[:, 0] == drawn.states).all()
        assert (own.actions != two[group].actions).any()
    assert trial(RandomAgent(seed=1), seed=6, episodes=3).starts != one["ID"].starts


@pytest.mark.parametrize("make", [known, nominal])
def test_rows_are_those_of_a_rollout_of_the_same_policy(make):
    """As `tab:pendulum-r7` was evaluated before: all groups in one rollout, states shown to nobody."""
    found = evaluate_agent(make(SMALL, seed=3), ENV_ID, seed=2, episodes=2, record=True).groups
    drawn = [draw(group, 2, (EVALUATION, 2, i)) for i, group in enumerate(GROUPS)]
    values, states = (np.concatenate([getattr(each, name) for each in drawn]) for name in ("values", "states"))
    believed = torch.tensor(values, dtype=torch.float32) if make is known else pendulum.nominal_context(10)
    policy = planning_policy(
        KnownModel(believed), pendulum.reward, pendulum.bounds(), SMALL, 10, seed=3, reads_next=False, rows=8_192
    )
    expected = rollout(pendulum.WORLD, values, states, on_states(policy, pendulum.WORLD), steps=200)
    for i, own in enumerate(found.values()):
        at = slice(2 * i, 2 * i + 2)
        np.testing.assert_array_equal(own.states, expected.states[at])
        np.testing.assert_array_equal(own.actions, expected.actions[at])
        np.testing.assert_array_equal(own.returns, expected.rewards.sum(1)[at])


def test_an_oracle_serves_twice():
    oracle = known(SMALL, seed=0)
    assert trial(oracle, seed=0, episodes=3).returns.tolist() == trial(oracle, seed=0, episodes=3).returns.tolist()
    assert len(trial(oracle, seed=0, episodes=2).returns) == 2


def test_return_and_success_by_hand():
    own = trial(RandomAgent(seed=2), seed=0, episodes=2, group="OOD_c0")
    assert own.states is not None
    assert own.actions is not None
    assert own.success is not None
    for e in range(2):
        total, upright = 0.0, True
        for t in range(200):
            angle, velocity = wrap(own.states[e, t : t + 1, 0])[0], own.states[e, t, 1]
            total -= angle**2 + 0.1 * velocity**2 + 0.001 * float(own.actions[e, t, 0]) ** 2
            if t >= 100:
                upright &= abs(wrap(own.states[e, t + 1 : t + 2, 0])[0]) <= np.pi / 3
        assert own.returns[e] == pytest.approx(total, rel=1e-6)
        assert own.success[e] == upright


def test_the_oracle_swings_up():
    own = trial(known(ICEM(horizon=20), seed=0), seed=0, episodes=6)
    assert own.success is not None
    assert own.success.all()
    assert own.returns.mean() > -500.0


def test_rows_of_the_paper():
    """Read off the table as it is printed."""
    rows = paper()
    assert list(rows) == ["paper: CaDM", "paper: Random relation", "paper: SPRII (R7)"]
    assert rows["paper: CaDM"].rows["OOD_c3"] == {"return": -1100.0, "sd": 273.5, "success": pytest.approx(0.2)}
    assert rows["paper: SPRII (R7)"].rows["ID"]["return"] == -323.9
    assert all(list(each.rows) == list(GROUPS) for each in rows.values())


def test_the_context_is_of_the_running_episode():
    """What the model was asked for at each step is the last K transitions of every episode, and nothing after."""
    seen: list[History] = []

    class Watched(KnownModel):
        def context(self, history: History) -> torch.Tensor:
            seen.append(history)
            return self.believed

    drawn = draw("ID", 2, (9,))
    model = Watched(torch.tensor(drawn.values, dtype=torch.float32), history=3)
    policy = planning_policy(model, pendulum.reward, pendulum.bounds(), SMALL, 2, seed=0, reads_next=False)
    found = rollout(pendulum.WORLD, drawn.values, drawn.states, on_states(policy, pendulum.WORLD), steps=6)
    observations = pendulum.WORLD.observe(found.states.reshape(-1, 2)).reshape(2, 7, 3)
    for t, history in enumerate(seen):
        first = max(0, t - 3)
        assert history.filled.tolist() == [min(t, 3)] * 2
        differences = np.diff(observations[:, first : t + 1], axis=1)
        np.testing.assert_allclose(history.differences[:, : t - first], differences, atol=1e-6)
        np.testing.assert_array_equal(history.actions[:, : t - first], found.actions[:, first:t])
        assert not history.differences[:, t - first :].any()


def test_a_model_is_planned_with_in_evaluation_mode():
    """Dropout is no part of a plan, and the model is in its own mode again afterwards."""

    class Dropped(torch.nn.Module):
        history = 2

        def __init__(self):
            super().__init__()
            self.own = KnownModel(torch.tensor([[1.0, 1.0]]), history=2)
            self.dropout = torch.nn.Dropout(0.9)

        def context(self, history: History) -> torch.Tensor:
            return self.own.context(history)

        def step(self, state, action, context):
            return self.dropout(self.own.step(state, action, context))

    model = Dropped().train()
    one, again, still = (
        trial(PlanningAgent(made, SMALL, pendulum.reward, seed=3), seed=0, episodes=1).actions
        for made in (model, model, Dropped().eval())
    )
    assert model.training
    assert model.dropout.training
    np.testing.assert_array_equal(one, again)
    np.testing.assert_array_equal(one, still)


def test_learned_policies_are_functions_of_their_seed():
    learner = CaDM(CaDMConfig(encoder=(8, 8, 8), dynamics=(8, 8, 8, 8)), seed=1).eval()
    one, again, other = (trial(learned(learner, SMALL, seed=seed), seed=0, episodes=2).actions for seed in (3, 3, 4))
    assert (one == again).all()  # type: ignore[union-attr]
    assert (one != other).any()  # type: ignore[union-attr]


def test_random_actions_fill_the_bounds():
    agent = RandomAgent(seed=0, bounds=([-2.0, 0.0], [1.0, 4.0]))
    agent.reset(500)
    actions = agent.act(np.zeros((500, 2)))
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


def test_a_learner_without_a_step_is_refused():
    learner = JEPA(JEPAConfig(image=16, stem=(4,), patch=4))
    with pytest.raises(ValueError, match=r"JEPA lacks .*step; legal for a planner: a model with history"):
        learned(learner, SMALL, seed=0)


def test_a_model_that_steps_to_another_shape_is_refused():
    class Wide(KnownModel):
        def step(self, observation: torch.Tensor, action: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
            return torch.cat([observation, action], dim=1)

    agent = PlanningAgent(Wide(torch.ones(1, 2)), SMALL, pendulum.reward)
    with pytest.raises(ValueError, match=r"Wide\.step gives tensor\(.*; legal: a \(1, 3\) tensor"):
        evaluate_agent(agent, ENV_ID)


def test_a_planner_with_a_model_of_ones_own_gets_its_bounds_from_the_environment():
    class Still:
        history = 1

        def context(self, history: History) -> None:
            return None

        def step(self, observation: torch.Tensor, action: torch.Tensor, context: None) -> torch.Tensor:
            return observation + action

    agent = PlanningAgent(Still(), SMALL, lambda o, a, after: -a[:, 0])
    found = evaluate_agent(agent, ENV_ID, groups=["ID"], episodes=2, record=True, env_kwargs={"max_episode_steps": 5})
    own = found.groups["ID"]
    assert own.actions is not None
    assert own.actions.mean() < -0.3  # lower actions score more
    assert own.success is None  # five steps cannot show it


# Unchecked arguments


def plan_on(device: str) -> object:
    bounds = pendulum.bounds()
    return planning_policy(KnownModel(torch.ones(1, 2)), pendulum.reward, bounds, SMALL, 1, seed=0, device=device)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: draw("ID", 0, (1,)), "episodes is 0; legal: an integer >= 1"),
        (lambda: draw("ID", 1, (1.5,)), r"key\[0\] is 1\.5; legal: an integer >= 0"),
        (lambda: draw(["ID"], 1, (1,)), r"group is \['ID'\]; legal: str"),  # type: ignore[arg-type]
        (lambda: RandomAgent(bounds=(-1.0, 1.0)), r"bounds is \(-1\.0, 1\.0\); legal: low and high, \(A,\) each"),
        (lambda: RandomAgent(bounds=([1.0], [-1.0])), r"bounds is \(\[1\.0\], \[-1\.0\]\); legal: .* low < high"),
        (lambda: RandomAgent(seed=-1), "seed is -1; legal: an integer >= 0"),
        (lambda: RandomAgent().act(None), r"bounds is None; legal without check\(env\)"),
        (lambda: plan_on("cuda:99"), "device is 'cuda:99', which cannot be used here; legal: cpu"),
        (lambda: learned("model", SMALL, seed=0), "str lacks history, context, step; legal for a planner"),
        (lambda: evaluate_agent(known("cem", seed=0), ENV_ID), "controller is 'cem'; legal: Shooting or CEM"),  # type: ignore[arg-type]
        (lambda: known(SMALL, seed=None), "seed is None; legal: an integer >= 0"),  # type: ignore[arg-type]
        (lambda: known(SMALL, seed=0).act(np.zeros((1, 3), np.float32)), r"act\(\) before reset\(episodes\)"),
    ],
)
def test_unchecked_arguments_of_policies_and_draws(call: Callable[[], object], message: str):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_planner_of_nan_is_refused_and_one_that_still_learns_is_not():
    class Lost(KnownModel):
        def step(self, observation, action, context):
            after = super().step(observation, action, context)
            return torch.where(torch.arange(len(after))[:, None] < SMALL.candidates, after, torch.nan)  # one episode

    def reads(observation, action, after):
        return after[:, 0]

    model = Lost(torch.ones(1, 2))
    with pytest.raises(ValueError, match="no plan of 2 of 3 episodes has a finite return; legal: a model and a reward"):
        trial(PlanningAgent(model, SMALL, reads), seed=0, episodes=3)
    with pytest.raises(ValueError, match="no plan of 3 of 3 episodes has a finite return"):
        trial(
            PlanningAgent(KnownModel(torch.ones(1, 2)), SMALL, lambda o, a, n: o[:, 0] * torch.nan), seed=0, episodes=3
        )
    learning = planning_policy(model, reads, pendulum.bounds(), SMALL, 3, seed=0)
    assert np.isfinite(learning(np.ones((3, 3), np.float32))).all()


def test_a_planner_without_history_is_refused():
    with pytest.raises(ValueError, match=r"KnownModel.history is 0; legal: an integer >= 1"):
        PlanningAgent(KnownModel(torch.ones(1, 2), history=0), SMALL, pendulum.reward)
