"""The native VecEnv gives, bit for bit, what Stable-Baselines3's own gives over single environments."""

import copy
import subprocess
import sys
import warnings
from dataclasses import dataclass
from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("stable_baselines3")
from stable_baselines3 import A2C, PPO, SAC
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    VecCheckNan,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
    VecTransposeImage,
    VecVideoRecorder,
)

import sprii_envs  # noqa: F401 (registers the environments)
from sprii_envs.core import SpriiEnv
from sprii_envs.envs.d_clean import DClean
from sprii_envs.properties import SystemSet
from sprii_envs.vector import SpriiVectorEnv
from sprii_envs.world import Ending
from sprii_envs.wrappers import ContextObservation, RepeatSystem, VectorContextObservation, VectorTemporalDifference
from sprii_train.plugins.sb3 import RelationReplayBuffer
from sprii_train.plugins.sb3_envs import NativeVecEnv

N = 5
TOLD = ("system_id", "persistent", "extrapolated", "rollout")
SYSTEMS = SystemSet(DClean.properties, [[0.25 * (i + 3)] for i in range(7)], ids=[f"d{i}" for i in range(7)])

WORLDS = {
    "pendulum": ("sprii/Pendulum-v0", {"max_episode_steps": 9}),
    "spring": ("sprii/SpringWorld-v0", {"image_size": 16}),  # episodes of many lengths
    "spring states": ("sprii/SpringWorld-v0", {"obs_type": "state"}),
    "poke": ("sprii/PokeWorld-v0", {"max_episode_steps": 20, "image_size": 16}),
    "d-clean": ("sprii/D-Clean-v0", {"systems": SYSTEMS, "max_episode_steps": 7}),
    "one system": ("sprii/D-Clean-v0", {"system": {"drag": 1.25}, "max_episode_steps": 7}),
}


def ours(name: str, episodes: int = 1, n: int = N, **kwargs) -> NativeVecEnv:
    id, made = WORLDS[name]
    return NativeVecEnv(gym.make_vec(id, num_envs=n, **made, **kwargs), episodes)


def theirs(name: str, episodes: int = 1, n: int = N, **kwargs) -> DummyVecEnv:
    id, made = WORLDS[name]
    make = lambda: gym.make(id, **made, **kwargs)  # noqa: E731
    return DummyVecEnv([(lambda: RepeatSystem(make(), episodes)) if episodes > 1 else make] * n)


def actions(env, seed: int, steps: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (steps, env.num_envs, *env.action_space.shape)).astype(np.float32)


def assert_same(mine, other) -> None:
    """Equal values, shapes and types, through lists, tuples and mappings."""
    if isinstance(other, dict):
        assert list(mine) == list(other) or sorted(mine) == sorted(other)
        for name in other:
            assert_same(mine[name], other[name])
    elif isinstance(other, list | tuple):
        assert len(mine) == len(other)
        for one, two in zip(mine, other, strict=True):
            assert_same(one, two)
    elif isinstance(other, np.ndarray):
        assert mine.dtype == other.dtype
        np.testing.assert_array_equal(mine, other, strict=True)
    else:
        assert type(mine) is type(other)
        assert mine == other


def without_told(infos: list[dict]) -> list[dict]:
    return [{name: value for name, value in info.items() if name not in TOLD} for info in infos]


def assert_runs_alike(mine, other, steps: int, seed: int = 0) -> int:
    """Steps both, compares all that they give; how many episodes ended."""
    ended = 0
    for action in actions(other, seed, steps):
        before = [dict(info) for info in mine.reset_infos]
        got, wanted = mine.step(action), other.step(action)
        assert_same(got[:3], wanted[:3])
        assert_same(without_told(got[3]), without_told(wanted[3]))
        for info, reset in zip(got[3], before, strict=True):
            assert_same({name: info[name] for name in TOLD if name in info}, reset)
        assert_same(mine.reset_infos, other.reset_infos)
        ended += int(got[2].sum())
    return ended


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("episodes", [1, 3])
def test_it_runs_as_single_environments_do(name: str, episodes: int):
    mine, other = ours(name, episodes), theirs(name, episodes)
    assert mine.observation_space == other.observation_space
    assert mine.action_space == other.action_space
    assert mine.seed(11) == other.seed(11)
    assert_same(mine.reset(), other.reset())
    assert_same(mine.reset_infos, other.reset_infos)
    assert assert_runs_alike(mine, other, 130) >= N
    assert_same(mine.reset(), other.reset())  # without a seed: the streams go on
    assert_same(mine.reset_infos, other.reset_infos)
    assert_runs_alike(mine, other, 20)


@pytest.mark.parametrize("mode", ["NextStep", "Disabled"])
@pytest.mark.parametrize("n", [1, 3])
def test_autoreset_mode_makes_no_difference(mode: str, n: int):
    mine, other = ours("d-clean", n=n, autoreset_mode=mode), theirs("d-clean", n=n)
    for env in (mine, other):
        env.seed(0)
    assert_same(mine.reset(), other.reset())
    assert assert_runs_alike(mine, other, 30) == 4 * n


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "system": st.sampled_from(["same", "d3", {"drag": 0.75}, SYSTEMS["d5"], [3.5], None]),
        "state": st.sampled_from([(0.5, 0.0, 0.0, 1.0), [[1.0, -1.0, 0.5, 0.0]], None]),
    },
)
RESETS = st.tuples(
    st.one_of(st.none(), st.integers(0, 2**31)),
    st.one_of(st.none(), OPTIONS, st.lists(OPTIONS, min_size=N, max_size=N)),
    st.integers(0, 12),
)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 3), st.lists(RESETS, min_size=1, max_size=5))
def test_any_resets_with_any_options_are_those_of_single_environments(seed, episodes, resets):
    mine, other = ours("d-clean", episodes), theirs("d-clean", episodes)
    for env in (mine, other):
        env.seed(seed)
    assert_same(mine.reset(), other.reset())
    for new_seed, options, steps in resets:
        for env in (mine, other):
            if new_seed is not None:
                env.seed(new_seed)
            env.set_options(options)
        assert_same(mine.reset(), other.reset())
        assert_same(mine.reset_infos, other.reset_infos)
        assert_runs_alike(mine, other, steps, seed)
        assert mine.get_attr("system") == other.get_attr("system")


def test_a_first_reset_takes_options_of_every_slot():
    """The vector's own first reset serves one kind of options only."""
    mine, other = ours("spring states"), theirs("spring states")
    options = [{}, {"system": {"mass": 1.0, "drag": 0.5, "stiffness": 9.0}}, {"query": "cold"}, {"query": "mass"}, {}]
    for env in (mine, other):
        env.seed(4)
        env.set_options(options)
    assert_same(mine.reset(), other.reset())
    assert_runs_alike(mine, other, 40)


def test_kinds_of_start_hold_for_one_reset():
    mine, other = ours("spring states"), theirs("spring states")
    for env in (mine, other):
        env.seed(4)
        env.reset()
        env.set_options([{"query": q} for q in ("free", None, "glide", "free", "static")])
    assert_same(mine.reset(), other.reset())
    assert_runs_alike(mine, other, 100)


@dataclass(frozen=True, kw_only=True)
class Fenced(DClean):
    """Terminates beyond |x| = 1.2, truncates beyond |y| = 1.2, both at once in a corner."""

    name: ClassVar[str] = "Fenced"

    def end(self, after, extras):
        x, y = np.abs(after[:, 0]) > 1.2, np.abs(after[:, 1]) > 1.2
        reason = np.full(len(after), None, object)
        reason[x | y] = "fence"
        return Ending(x, y, {"reason": reason, "speed": np.hypot(after[:, 2], after[:, 3])})


def test_truncation_is_told_from_termination():
    n = 24
    mine = NativeVecEnv(SpriiVectorEnv(Fenced(), n, max_episode_steps=15))
    other = DummyVecEnv([lambda: gym.wrappers.TimeLimit(SpriiEnv(Fenced()), 15)] * n)
    for env in (mine, other):
        env.seed(2)
    assert_same(mine.reset(), other.reset())
    assert assert_runs_alike(mine, other, 60) > 2 * n
    ends: set[tuple[bool, bool, bool]] = set()
    for action in np.sign(actions(mine, 1, 200)):
        _, _, dones, infos = mine.step(action)
        for info in (infos[i] for i in np.flatnonzero(dones)):
            x, y = np.abs(info["terminal_observation"][:2]) > np.float32(1.2)
            ends.add((bool(x), bool(y), "reason" in info))
            assert info["TimeLimit.truncated"] is not bool(x)
            assert ("reason" in info) == (x or y)
    assert {(True, False, True), (False, True, True), (False, False, False)} <= ends


def test_what_is_given_is_never_changed_later():
    env = ours("spring")
    env.seed(0)
    seen = [env.reset()]
    kept = [seen[0].copy()]
    for action in actions(env, 0, 90):
        observations, rewards, dones, infos = env.step(action)
        infos[0]["mine"] = 1
        seen += [
            observations,
            rewards,
            dones,
            *(i["terminal_observation"] for i in infos if "terminal_observation" in i),
        ]
        kept += [copy.deepcopy(x) for x in seen[len(kept) :]]
    assert_same(seen, kept)
    assert "mine" not in env.step(actions(env, 0, 1)[0])[3][0]
    with pytest.raises(ValueError, match="read-only"):
        infos[0]["persistent"][0] = 1.0


def test_contexts_and_dict_observations_are_those_of_the_wrappers():
    id, made = WORLDS["spring"]
    mine = NativeVecEnv(VectorContextObservation(gym.make_vec(id, num_envs=N, **made), ["mass"]))
    other = DummyVecEnv([lambda: ContextObservation(gym.make(id, **made), ["mass"])] * N)
    for env in (mine, other):
        env.seed(0)
    assert_same(mine.reset(), other.reset())
    assert assert_runs_alike(mine, other, 100) >= N
    assert mine.env_is_wrapped(VectorContextObservation) == [True] * N
    assert mine.env_is_wrapped(VectorTemporalDifference, 0) == [False]


def test_an_encoders_history_begins_anew_with_every_episode():
    id, made = WORLDS["pendulum"]
    encode = lambda seen, done: np.array([len(done), seen[..., 0].sum(-1)])  # noqa: E731
    batch = lambda seen, done: np.stack([np.full(len(done), done.shape[1]), seen[..., 0].sum(-1)], 1)  # noqa: E731
    mine = NativeVecEnv(VectorContextObservation(gym.make_vec(id, num_envs=N, **made), batch, size=2))
    other = DummyVecEnv([lambda: ContextObservation(gym.make(id, **made), encode, size=2)] * N)
    for env in (mine, other):
        env.seed(0)
    assert_same(mine.reset(), other.reset())
    assert assert_runs_alike(mine, other, 30) == 3 * N


def test_statistics_of_gymnasium_wrappers_reach_the_infos():
    made = gym.make_vec("sprii/Pendulum-v0", num_envs=N, max_episode_steps=9)
    env = NativeVecEnv(gym.wrappers.vector.RecordEpisodeStatistics(made))
    env.reset()
    total = np.zeros(N)
    for step, action in enumerate(actions(env, 0, 18)):
        _, rewards, dones, infos = env.step(action)
        total += rewards
        assert dones.all() == (step % 9 == 8)
        for i in np.flatnonzero(dones):
            assert infos[i]["episode"]["l"] == 9
            assert infos[i]["episode"]["r"] == pytest.approx(total[i], rel=1e-5)
            total[i] = 0.0


# --- the slots, one by one ---


def test_attributes_and_methods_are_those_of_the_slots():
    env = ours("d-clean")
    env.seed(0)
    env.reset()
    systems = env.get_attr("system")
    assert [s.id for s in systems] == [info["system_id"] for info in env.reset_infos]
    assert env.get_attr("system", [3, 1]) == [systems[3], systems[1]]
    assert env.get_attr("system", -1) == [systems[-1]]
    assert callable(env.get_attr("get_state", 0)[0])
    assert env.env_method("vary", "drag", [1.0, 2.0], indices=[2])[0].values.tolist() == [[1.0], [2.0]]
    after = env.env_method("counterfactual", [systems[0]], np.zeros((4, 2), np.float32), indices=0)[0]
    np.testing.assert_array_equal(env.step(np.zeros((N, 2), np.float32))[0][0], after.states[0, 1].astype(np.float32))
    assert env.has_attr("system")
    assert not env.has_attr("sytsem")
    env.set_attr("task", "a")
    env.set_attr("task", "b", indices=[1, -1])
    assert env.get_attr("task") == ["a", "b", "a", "a", "b"]
    env.set_attr("late", 3, indices=2)
    assert env.get_attr("late") == [None, None, 3, None, None]
    with pytest.raises(AttributeError, match="cannot be set"):
        env.set_attr("render_mode", None)
    for name in ("reset", "step", "set_state"):
        with pytest.raises(ValueError, match=f"env_method.'{name}'. cannot change slots"):
            env.env_method(name)


def test_pictures_are_those_of_single_environments():
    mine, other = (make("poke", n=4, render_mode="rgb_array") for make in (ours, theirs))
    for env in (mine, other):
        env.seed(0)
        env.reset()
    assert mine.render_mode == "rgb_array"
    assert_same(list(mine.get_images()), list(other.get_images()))
    assert_same(mine.render(), other.render())
    assert mine.metadata["render_fps"] == other.metadata["render_fps"]
    silent = ours("poke")
    silent.reset()
    with pytest.warns(UserWarning, match="rgb_array"):
        assert silent.get_images() == [None] * N
    for env in (mine, silent):
        env.close()
        env.close()


def test_videos_are_recorded(tmp_path):
    pytest.importorskip("moviepy")
    env = VecVideoRecorder(
        ours("poke", n=2, render_mode="rgb_array"), str(tmp_path), lambda step: step == 0, video_length=4
    )
    env.reset()
    for action in actions(env, 0, 8):
        env.step(action)
    env.close()
    assert [path.suffix for path in tmp_path.iterdir()] == [".mp4"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sytsem": None}, "unknown reset option 'sytsem'"),
        ({"reset_mask": np.ones(N, bool)}, "unknown reset option 'reset_mask'"),
        ([{}, {"system": "same"}, {}, {}, {}], "system 'same' of slot 1 needs a system"),
        ({"system": "d9"}, "d9"),
        ({"system": {"drag": -1.0}}, "drag"),
        ({"state": (0.0, 1.0)}, "shape"),
        ({"query": "cold"}, "query"),
        ([{}], "one mapping, or 5; got 1"),
    ],
)
def test_options_are_refused_as_single_environments_refuse_them(options, message):
    env = ours("d-clean")
    env.set_options(options)
    with pytest.raises(ValueError, match=message):
        env.reset()


def test_what_cannot_be_wrapped_is_refused():
    for env in (gym.make("sprii/D-Clean-v0"), gym.make_vec("CartPole-v1", num_envs=2), None):
        with pytest.raises(ValueError, match="needs a native vector environment"):
            NativeVecEnv(env)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="autoreset_mode must be NextStep or Disabled, got SameStep"):
        ours("d-clean", autoreset_mode="SameStep")
    with pytest.raises(ValueError, match="episodes"):
        ours("d-clean", 0)
    with pytest.raises(gym.error.ResetNeeded):
        ours("d-clean").step(np.zeros((N, 2), np.float32))


def test_without_stable_baselines3_it_says_what_to_install():
    code = "import sys; sys.modules['stable_baselines3'] = None; import sprii_train.plugins.sb3_envs"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "sb3_envs needs Stable-Baselines3: pip install stable-baselines3" in found.stderr


# --- Stable-Baselines3's own wrappers and learners ---


STACKS = {
    "monitor": lambda env: VecMonitor(env),
    "normalised": lambda env: VecNormalize(VecMonitor(env)),
    "stacked": lambda env: VecFrameStack(VecMonitor(env), 3),
    "checked": lambda env: VecCheckNan(VecMonitor(env), raise_exception=True),
}


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("name", ["spring states", "d-clean"])
def test_wrappers_see_what_they_see_over_single_environments(stack, name):
    mine, other = (STACKS[stack](make(name)) for make in (ours, theirs))
    for env in (mine, other):
        env.seed(5)
    assert_same(mine.reset(), other.reset())
    ended = 0
    for action in actions(mine, 3, 120):
        got, wanted = mine.step(action), other.step(action)
        assert_same(got[:3], wanted[:3])
        mine_infos, their_infos = without_told(got[3]), without_told(wanted[3])
        for info in (*mine_infos, *their_infos):
            ended += bool(info.get("episode", {}).pop("t", 0))
        assert_same(mine_infos, their_infos)
    assert ended >= 2 * N


def test_images_are_transposed_and_stacked():
    assert is_image_space(ours("poke").observation_space)
    for wrap in (VecTransposeImage, lambda env: VecTransposeImage(VecFrameStack(env, 4))):
        mine, other = wrap(ours("poke")), wrap(theirs("poke"))
        for env in (mine, other):
            env.seed(5)
        assert mine.observation_space == other.observation_space
        assert_same(mine.reset(), other.reset())
        for action in actions(mine, 3, 25):
            got, wanted = mine.step(action), other.step(action)
            assert_same(got[:3], wanted[:3])
            assert_same(without_told(got[3]), without_told(wanted[3]))


@pytest.mark.parametrize("learner", [PPO, A2C, SAC])
def test_learners_learn_alike_and_go_on_from_a_file(learner, tmp_path):
    kwargs = {PPO: {"n_steps": 16, "n_epochs": 2, "batch_size": 40}, A2C: {}, SAC: {"learning_starts": 50}}[learner]
    models = []
    for make in (ours, theirs):  # one after the other: torch's random numbers are everyone's
        env = VecMonitor(make("pendulum"))
        models.append(learner("MlpPolicy", env, seed=0, device="cpu", policy_kwargs={"net_arch": [8]}, **kwargs))
        models[-1].learn(160)
    for name, value in models[0].get_parameters()["policy"].items():
        assert value.equal(models[1].get_parameters()["policy"][name]), name
    returns = [[episode["r"] for episode in model.ep_info_buffer] for model in models]
    assert returns[0] == returns[1]
    assert len(returns[0]) >= 3 * N
    models[0].save(tmp_path / "model.zip")
    again = learner.load(tmp_path / "model.zip", env=ours("pendulum"), device="cpu")
    again.learn(80, reset_num_timesteps=False)
    assert again.num_timesteps >= 240


def test_policies_are_evaluated():
    model = PPO("MlpPolicy", ours("pendulum"), seed=0, device="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = []
        for make in (ours, theirs):
            env = VecMonitor(make("pendulum"))
            env.seed(1)
            found.append(evaluate_policy(model, env, n_eval_episodes=12, return_episode_rewards=True))
    assert found[0] == found[1]
    assert found[0][1] == [9] * 12  # type: ignore[index]
    assert ours("pendulum").env_is_wrapped(Monitor) == [False] * N


def test_pixels_and_contexts_have_their_policies():
    model = PPO(
        "CnnPolicy",
        NativeVecEnv(gym.make_vec("sprii/PokeWorld-v0", num_envs=2, image_size=36)),
        n_steps=8,
        batch_size=16,
        device="cpu",
    )
    assert isinstance(model.get_env(), VecTransposeImage)
    model.learn(16)
    env = VectorContextObservation(gym.make_vec("sprii/PokeWorld-v0", num_envs=2, image_size=36))
    PPO("MultiInputPolicy", NativeVecEnv(env), n_steps=8, batch_size=16, device="cpu").learn(16)


def test_a_buffer_pairs_the_episodes_of_a_system():
    found = []
    for make in (ours, theirs):
        model = SAC(
            "MlpPolicy",
            make("pendulum", episodes=4),
            replay_buffer_class=RelationReplayBuffer,
            replay_buffer_kwargs={"steps": 4, "seed": 0},
            buffer_size=1000,
            learning_starts=10_000,
            device="cpu",
            seed=0,
        )
        model.learn(9 * 7 * N)
        buffer = model.replay_buffer
        assert isinstance(buffer, RelationReplayBuffer)
        recipient, donor, correct = buffer.sample_pairs(64)
        assert correct.all()
        assert (recipient.system == donor.system).all()
        assert (recipient.episode != donor.episode).all()
        found.append([np.asarray(x) for x in (*recipient, *donor)])
    assert_same(*found)
