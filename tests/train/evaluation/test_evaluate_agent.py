"""Any agent against episodes played one by one, in single environments."""

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import VectorWrapper
from gymnasium.wrappers.vector import NormalizeObservation

from sprii_envs.envs.base import WorldVectorEnv
from sprii_envs.envs.d_clean import DClean
from sprii_envs.envs.pendulum import GROUPS, PROPERTIES
from sprii_envs.properties import SystemDistribution, SystemSet
from sprii_envs.world import Ending
from sprii_envs.wrappers import ContextObservation, VectorContextObservation
from sprii_train.evaluation import Evaluation, Published, RandomAgent, evaluate_agent

ENV_ID = "sprii/Pendulum-v0"
SHORT = {"max_episode_steps": 30}


def swing(observations):
    return np.clip(observations[:, 2:3] + 0.3 * observations[:, 1:2], -1, 1)


@dataclass(frozen=True)
class Leaving(DClean):
    """D-Clean whose episodes end, and succeed, where the puck leaves the middle to the right."""

    name: ClassVar[str] = "Leaving"

    def end(self, after, extras):
        out = np.abs(after[:, 0]) > 0.3
        told = np.full(len(out), None, object)
        told[out] = after[out, 0] > 0
        return Ending(terminated=out, info={"is_success": told})


class LeavingVectorEnv(WorldVectorEnv, world=Leaving):
    pass


@pytest.fixture
def leaving():
    gym.register("test/Leaving-v0", vector_entry_point=LeavingVectorEnv, entry_point="none:None", max_episode_steps=40)
    yield "test/Leaving-v0"
    del gym.registry["test/Leaving-v0"]


def alone(own: Any, policy: Any, env: gym.Env) -> list[np.ndarray]:
    """The rewards of each episode, in a single environment."""
    found = []
    for values, state in zip(own.values, own.states[:, 0], strict=True):
        names = env.unwrapped.persistent_properties  # type: ignore[attr-defined]
        observation, _ = env.reset(options={"system": names.mapping(values), "state": state})
        rewards, over = [], False
        while not over:
            observation, reward, terminated, truncated, _ = env.step(policy(observation[None])[0])
            rewards.append(reward)
            over = terminated or truncated
        found.append(np.array(rewards, np.float64))
    return found


def test_a_function_is_evaluated_as_in_single_environments_bit_for_bit():
    found = evaluate_agent(swing, ENV_ID, groups=["ID", "OOD_c1"], episodes=4, systems=2, seed=3, record=True)
    for own in found.groups.values():
        expected = alone(own, swing, gym.make(ENV_ID))
        assert own.returns.tolist() == [rewards.sum() for rewards in expected]
        assert own.lengths.tolist() == [200] * 4
        assert (own.ids[::2] == own.ids[1::2]).all()
        assert len(np.unique(own.states[:, 0], axis=0)) == 4  # type: ignore[index]


def test_wrappers_show_what_the_agent_sees_and_nothing_else_changes():
    def reads(observations):
        assert observations.shape[1] == 5
        return np.clip(observations[:, 3:4] + observations[:, 1:2], -1, 1)  # the mass too

    found = evaluate_agent(reads, ENV_ID, wrap=VectorContextObservation, groups=["ID"], episodes=3, record=True,
                           env_kwargs=SHORT)  # fmt: skip
    own = found.groups["ID"]
    expected = alone(own, reads, ContextObservation(gym.make(ENV_ID, max_episode_steps=30)))
    assert own.returns.tolist() == [rewards.sum() for rewards in expected]


def test_episodes_end_where_the_world_ends_them_and_say_whether_they_succeeded(leaving):
    def push(observations):
        return np.sign(observations[:, :2] + 1e-3)

    found = evaluate_agent(push, leaving, episodes=30, record=True)
    own = found.groups["all"]
    assert own.states is not None
    assert own.success is not None
    assert len(set(own.lengths.tolist())) > 3
    for states, length, succeeded in zip(own.states, own.lengths, own.success, strict=True):
        out = np.flatnonzero(np.abs(states[1:, 0]) > 0.3)
        assert length == (out[0] + 1 if len(out) else 40)
        assert (states[length:] == states[length]).all()
        assert succeeded == (states[length, 0] > 0)
    assert 0 < own.success.mean() < 1
    assert found.by_group()[0]["steps"] == own.lengths.mean()


def test_a_success_of_ones_own_reads_whole_episodes():
    found = evaluate_agent(swing, ENV_ID, episodes=2, env_kwargs=SHORT, success=lambda s: s[:, -1, 1] > 0, record=True)
    for own in found.groups.values():
        assert own.states is not None
        assert own.success is not None
        assert own.states.shape == (2, 31, 2)
        assert own.success.tolist() == (own.states[:, -1, 1] > 0).tolist()


class Counting:
    """Remembers how many steps each episode has had."""

    def __init__(self) -> None:
        self.began: list[int] = []

    def reset(self, episodes: int) -> None:
        self.began.append(episodes)
        self.steps = np.zeros(episodes)

    def act(self, observations):
        self.steps += 1
        return (self.steps[:, None] % 2) * 2 - 1


def test_agents_with_memory_begin_with_their_episodes():
    agent = Counting()
    found = evaluate_agent(agent, ENV_ID, groups={"ID": 3, "OOD_c3": 2}, env_kwargs=SHORT, record=True)
    assert agent.began == [5]
    assert agent.steps.tolist() == [30] * 5
    actions = found.groups["OOD_c3"].actions
    assert actions is not None
    assert actions[:, :, 0].tolist() == [[1.0, -1.0] * 15] * 2


def test_episodes_are_functions_of_the_seed_and_of_the_group_alone():
    few = evaluate_agent(swing, ENV_ID, groups=["OOD_c2"], env_kwargs=SHORT, seed=4)
    all_ = evaluate_agent(RandomAgent(), ENV_ID, env_kwargs=SHORT, seed=4)
    assert few.groups["OOD_c2"].starts == all_.groups["OOD_c2"].starts
    assert len({own.starts for own in all_.groups.values()}) == 5
    mine = {"mine": SystemDistribution(PROPERTIES, {"mass": [1.0]})}
    one = evaluate_agent(swing, ENV_ID, groups=mine, env_kwargs=SHORT).groups["mine"]
    two = evaluate_agent(swing, ENV_ID, groups={"ID": 2} | mine, env_kwargs=SHORT).groups["mine"]
    assert one.starts == two.starts
    assert set(one.values[:, 0]) == {1.0}
    assert len(set(one.values[:, 1])) == 10


def test_a_set_gives_all_of_its_systems_under_their_own_names():
    systems = SystemSet(PROPERTIES, [[0.5, 1.0], [1.0, 1.0], [2.0, 0.5]], ids=["light", "nominal", "heavy"])
    found = evaluate_agent(swing, ENV_ID, groups={"three": systems}, env_kwargs=SHORT)
    own = found.groups["three"]
    assert own.ids.tolist() == ["light"] * 4 + ["nominal"] * 4 + ["heavy"] * 4  # 10, and up to a multiple of 3
    assert [row["system"] for row in found.by_system()] == ["light", "nominal", "heavy"]
    assert found.by_system()[2]["values"] == {"mass": 2.0, "length": 0.5}


def test_references_meet_the_same_episodes():
    beside = evaluate_agent(RandomAgent(seed=1), ENV_ID, groups=["ID"], env_kwargs=SHORT)
    published = Published({"ID": {"return": -1.0}})
    found = evaluate_agent(
        swing, ENV_ID, groups=["ID"], env_kwargs=SHORT, wrap=lambda env: VectorContextObservation(env, "none"),
        references={"one": RandomAgent(seed=1), "two": beside, "paper": published},
    )  # fmt: skip
    one, two = found.references["one"], found.references["two"]
    assert isinstance(one, Evaluation)
    assert one.groups["ID"].returns.tolist() == beside.groups["ID"].returns.tolist()
    assert two is beside
    assert found.references["paper"] is published
    acted = []
    with pytest.raises(ValueError, match="RandomAgent met other systems or starts in ID"):
        evaluate_agent(
            lambda seen: acted.append(1) or swing(seen), ENV_ID, groups=["ID"], env_kwargs=SHORT, seed=1,
            references={"two": beside},
        )  # fmt: skip
    assert acted == []  # refused before anything runs


def test_bounds_that_were_not_given_are_of_the_environment_that_was_checked_last():
    narrow, wide = (gym.make_vec(ENV_ID, num_envs=1), gym.make_vec("sprii/D-Clean-v0", num_envs=1, obs_type="state"))
    assert (narrow.single_action_space.shape, wide.single_action_space.shape) == ((1,), (2,))
    agent, bound = RandomAgent(), RandomAgent(bounds=([-0.1], [0.1]))
    for env in (narrow, wide, narrow):
        agent.check(env)
        agent.reset(3)
        assert agent.act(np.zeros((3, 1))).shape == (3, *env.single_action_space.shape)  # type: ignore[operator]
        env.close()
    bound.check(narrow)
    bound.reset(500)
    assert np.abs(bound.act(np.zeros((500, 1)))).max() <= 0.1


def test_constants_are_those_of_the_world():
    moon = evaluate_agent(swing, ENV_ID, groups=["ID"], env_kwargs=SHORT | {"gravity": 1.6})
    assert moon.constants["gravity"] == 1.6
    assert moon.steps == 30
    earth = evaluate_agent(swing, ENV_ID, groups=["ID"], env_kwargs=SHORT)
    with pytest.raises(ValueError, match="constants"):
        moon.contrast(earth)


def test_a_bar_on_demand(monkeypatch):
    told: list[float] = []
    monkeypatch.setattr("rich.progress.Progress.update", lambda self, task, completed: told.append(completed))
    evaluate_agent(swing, ENV_ID, groups=["ID"], env_kwargs=SHORT)
    assert told == []
    evaluate_agent(swing, ENV_ID, groups=["ID"], env_kwargs=SHORT, progress=True)
    assert told == list(range(1, 31))


class Model:
    """Predicts, and does not act."""

    history = 1

    def context(self, history):
        return None

    def step(self, observation, action, context):
        return observation


def never(observations):
    raise AssertionError("nothing may be run")


OTHER = SystemDistribution(DClean.properties)


@pytest.mark.parametrize(
    ("agent", "change", "message"),
    [
        (never, {"groups": ["ID", "OOD_c9"]}, r"unknown group of systems of Pendulum 'OOD_c9'; did you mean 'OOD_c\d'"),
        (never, {"groups": []}, r"groups is \[\]; legal: a list of ID, "),
        (never, {"groups": "ID"}, "groups is 'ID'; legal: a list of ID, "),
        (never, {"groups": ["ID", "ID"]}, r"groups is \['ID', 'ID'\]; legal: each name once"),
        (never, {"groups": {"ID": 0}}, r"groups\['ID'\] is 0; legal: an integer >= 1"),
        (never, {"groups": {"mine": 3}}, "unknown group of systems of Pendulum 'mine'"),
        (never, {"groups": {"mine": OTHER}}, r"groups\['mine'\] has properties \('drag',\); legal: Pendulum's"),
        (never, {"groups": {"mine": SystemSet(PROPERTIES, np.zeros((0, 2)))}}, "is a set of no systems"),
        (never, {"episodes": 0}, "episodes is 0; legal: an integer >= 1"),
        (never, {"episodes": 10, "systems": 4}, "episodes is 10, and 'ID' is of 4 systems; legal: a multiple of 4"),
        (never, {"systems": True}, "systems is True; legal: an integer >= 1"),
        (never, {"seed": -1}, "seed is -1; legal: an integer >= 0"),
        (never, {"level": 1.0}, r"level is 1\.0"),
        (never, {"wrap": 3}, "wrap is 3; legal: a function"),
        (never, {"wrap": lambda env: None}, "wrap made None; legal: Gymnasium's vector environment"),
        (never, {"success": "yes"}, "success is 'yes'; legal: a function"),
        (never, {"env_id": "sprii/Pendulun-v0"}, "env_id is 'sprii/Pendulun-v0'"),
        (never, {"env_id": "CartPole-v1"}, "CartPole-v1 has no native vector environment"),
        (never, {"env_kwargs": {"mass": 3}}, "mass"),
        (never, {"env_kwargs": {"systems": "ID"}}, "env_kwargs names 'systems', which an evaluation chooses itself"),
        (never, {"env_kwargs": {"max_episode_steps": None}}, "no time limit; legal"),
        (never, {"references": {"other": 3}}, "agent is 3; legal: a function of observations"),
        (Model(), {}, r"Model predicts and does not act; legal: .*PlanningAgent\(model, controller, reward\)"),
        (RandomAgent, {}, "agent is <class .*RandomAgent'>; legal: a function of observations"),
        ("oracle", {}, "agent is 'oracle'; legal: a function of observations"),
        (lambda o: np.zeros(len(o)), {}, r"actions at step 0 have shape \(50,\); legal: \(50, 1\)"),
        (lambda o: None, {}, r"actions at step 0 are None; legal: an array \(50, 1\)"),
        (lambda o: np.where(o[:, :1] > 9, 0, np.nan), {}, r"action at step 0 of episode 0 is \[nan\]; legal: finite"),
        (lambda o: o[:, :1], {"success": lambda s: s[:, 0, 0]}, r"success returned float64 of shape \(50,\)"),
    ],
)
def test_what_does_not_fit_is_refused(agent, change, message):
    with pytest.raises(ValueError, match=message):
        evaluate_agent(agent, **({"env_id": ENV_ID, "env_kwargs": SHORT} | change))


def test_no_reference_replaces_the_agent():
    for agent, name in ((swing, "swing"), (lambda o: o[:, :1], "lambda"), (functools.partial(swing), "swing")):
        with pytest.raises(ValueError, match=f"references names '{name}', as the agent is called"):
            evaluate_agent(agent, ENV_ID, env_kwargs=SHORT, references={name: never})
    with pytest.raises(ValueError, match="references names 'x', as the agent is called"):
        evaluate_agent(never, ENV_ID, env_kwargs=SHORT, name="x", references={"x": never})


class Stuck(VectorWrapper):
    """Steps nothing."""

    def step(self, actions):
        return self.observed, np.zeros(self.num_envs), *np.zeros((2, self.num_envs), bool), {}

    def reset(self, **kwargs):
        self.observed, info = self.env.reset(**kwargs)
        return self.observed, info


class Again(VectorWrapper):
    """Begins anew at every step."""

    def step(self, actions):
        self.env.reset()
        return self.env.step(actions)


@pytest.mark.parametrize(
    ("wrap", "message"),
    [
        (lambda env: gym.make_vec(ENV_ID, num_envs=10), "legal: wrappers around the environment that it is given"),
        (lambda env: env.unwrapped, "legal: wrappers around the environment that it is given"),
        (ContextObservation, "wrap does not take the vector environment: .*not those of single environments"),
        (NormalizeObservation, "a NormalizeObservation that has seen nothing; legal: one with the obs_rms of training"),
        (Stuck, "after 30 steps, the time limit, 10 episodes still run; legal: wrappers that step"),
        (Again, "after 30 steps, the time limit, 10 episodes still run"),
    ],
)
def test_wraps_that_lose_the_episodes_are_refused(wrap, message):
    with pytest.raises(ValueError, match=message):
        evaluate_agent(swing, ENV_ID, groups=["ID"], env_kwargs=SHORT, wrap=wrap)


def test_statistics_of_observations_are_frozen():
    trained = NormalizeObservation(gym.make_vec(ENV_ID, num_envs=2))
    trained.reset(seed=0)
    for _ in range(20):
        trained.step(trained.action_space.sample() * 0)
    rms, seen = trained.obs_rms, []

    def normalised(env):
        made = NormalizeObservation(env)
        made.obs_rms = rms
        return made

    def looks(observations):
        seen.append(observations.copy())
        return swing(observations)

    before = rms.count, rms.mean.tolist(), rms.var.tolist()
    own = evaluate_agent(looks, ENV_ID, groups={"ID": 3}, env_kwargs=SHORT, wrap=normalised, record=True).groups["ID"]
    assert (rms.count, rms.mean.tolist(), rms.var.tolist()) == before
    assert own.states is not None
    angle = own.states[:, 0, 0]
    expected = (np.cos(angle) - rms.mean[0]) / np.sqrt(rms.var[0] + 1e-8)
    np.testing.assert_allclose(seen[0][:, 0], expected, rtol=1e-4, atol=1e-6)


class Unfit(RandomAgent):
    def check(self, env):
        return False


def overwrites(states):
    states[:] = 0.0
    return states[:, 0, 0] == 0


@pytest.mark.parametrize(
    ("agent", "change", "message"),
    [
        (Unfit(), {}, r"Unfit does not fit: its check\(env\) returned False"),
        (swing, {"success": overwrites}, "read-only"),
        (never, {"env_kwargs": {"gravty": 3}}, "in env_kwargs 'gravty'; did you mean 'gravity'"),
        (
            never,
            {"references": {"paper": Published({"IDD": {"return": 0.0}})}},
            "group of .*'IDD'; did you",
        ),
    ],
)
def test_more_that_does_not_fit_is_refused(agent, change, message):
    with pytest.raises(ValueError, match=message):
        evaluate_agent(agent, ENV_ID, **({"env_kwargs": SHORT} | change))


def test_legal_arguments_are_those_that_may_be_given():
    with pytest.raises(ValueError, match="legal names") as told:
        evaluate_agent(never, ENV_ID, env_kwargs={"zzz": 3})
    names = str(told.value).partition("legal names: ")[2].split(", ")
    assert {"gravity", "obs_type", "max_episode_steps"} < set(names)
    assert not {"system", "systems", "render_mode", "num_envs", "autoreset_mode"} & set(names)


def test_every_group_by_default():
    assert list(evaluate_agent(swing, ENV_ID, env_kwargs=SHORT, episodes=1).groups) == list(GROUPS)
    (row,) = evaluate_agent(
        lambda o: o[:, :2], "sprii/D-Clean-v0", episodes=1, env_kwargs={"obs_type": "state"}
    ).by_group()
    assert row["group"] == "all"
    assert row["return_low"] is row["success"] is row["success_low"] is None
