"""Models of Stable-Baselines3 return what its own `evaluate_policy` says, over the same starts."""

import re
import warnings

import gymnasium as gym
import numpy as np
import pytest
import torch

pytest.importorskip("stable_baselines3")
from gymnasium.wrappers import NormalizeObservation
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    SubprocVecEnv,
    VecEnvWrapper,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
)

import sprii_envs  # noqa: F401 (registers the environments)
from sprii_envs.wrappers import ContextObservation, VectorContextObservation
from sprii_train.evaluation import evaluate_agent
from sprii_train.evaluation.sb3 import SB3Agent
from sprii_train.plugins.sb3_envs import NativeVecEnv

ENV_ID = "sprii/Pendulum-v0"
SHORT = {"max_episode_steps": 40}


class Given(gym.Wrapper):
    """Episodes of given systems and starts, one after another."""

    def __init__(self, env, own):
        super().__init__(env)
        names = env.unwrapped.persistent_properties
        self.next = iter(zip([names.mapping(row) for row in own.values], own.states[:, 0], strict=True))

    def reset(self, *, seed=None, options=None):
        try:
            system, state = next(self.next)
        except StopIteration:  # of the autoreset after the last
            return self.env.reset()
        return self.env.reset(options={"system": system, "state": state})


def returned(model, own, wrap=lambda venv: venv, inner=lambda env: env) -> list[float]:
    """What `evaluate_policy` says of each episode."""
    env = DummyVecEnv([lambda: Monitor(Given(inner(gym.make(ENV_ID, **SHORT)), own))])
    returns, _ = evaluate_policy(model, wrap(env), len(own.returns), return_episode_rewards=True)
    return returns  # type: ignore[return-value]


def trained(wrap=lambda venv: venv, algorithm=PPO, inner=lambda env: env, **kwargs):
    venv = wrap(NativeVecEnv(inner(gym.make_vec(ENV_ID, num_envs=4, **SHORT))))
    sized = {"n_steps": 32, "batch_size": 64} if algorithm is PPO else {"learning_starts": 100}
    return algorithm("MlpPolicy", venv, seed=0, device="cpu", **sized, **kwargs).learn(256)


def own_of(agent, **kwargs):
    found = evaluate_agent(agent, ENV_ID, groups=["ID"], episodes=5, env_kwargs=SHORT, record=True, **kwargs)
    return found.groups["ID"]


@pytest.mark.parametrize("algorithm", [PPO, SAC])
def test_a_model_and_its_normalisation(algorithm, tmp_path):
    model = trained(lambda venv: VecNormalize(VecMonitor(venv)), algorithm)
    statistics = model.get_vec_normalize_env()
    assert statistics is not None
    before = statistics.obs_rms.mean.copy()

    def frozen(env):
        statistics.save(str(tmp_path / "statistics"))
        made = VecNormalize.load(str(tmp_path / "statistics"), env)
        made.training = made.norm_reward = False
        return made

    own = own_of(model)
    np.testing.assert_allclose(own.returns, returned(model, own, frozen), rtol=1e-5)
    assert (statistics.obs_rms.mean == before).all()
    assert statistics.training
    model.save(tmp_path / "model")
    loaded = algorithm.load(tmp_path / "model", device="cpu")
    fresh = SB3Agent(loaded, wrap=lambda env: VecNormalize.load(str(tmp_path / "statistics"), env))  # still learning
    assert own_of(fresh).returns.tolist() == own.returns.tolist()
    assert own_of(SB3Agent(loaded, wrap=frozen)).returns.tolist() == own.returns.tolist()
    with pytest.warns(UserWarning, match="the model was loaded, which does not tell whether .* VecNormalize"):
        alone = own_of(loaded).returns  # nothing tells it of the statistics
    assert not np.allclose(alone, own.returns, rtol=1e-3)
    bare = NativeVecEnv(gym.make_vec(ENV_ID, num_envs=4, **SHORT))
    with pytest.warns(UserWarning, match="the model was loaded"):
        own_of(algorithm.load(tmp_path / "model", device="cpu", env=bare))
    for lost in (
        SB3Agent(loaded, wrap=lambda env: VecNormalize(env)),
        algorithm.load(tmp_path / "model", device="cpu", env=VecNormalize(bare)),
    ):
        with pytest.raises(ValueError, match="VecNormalize has seen no observation, and the model was trained"):
            own_of(lost)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        own_of(SB3Agent(loaded, wrap=lambda env: env))
        own_of(model)


def test_frames_are_stacked_anew():
    model = trained(lambda venv: VecFrameStack(venv, 3))
    own = own_of(model)
    np.testing.assert_allclose(own.returns, returned(model, own, lambda venv: VecFrameStack(venv, 3)), rtol=1e-5)


def test_a_context_in_the_observation():
    model = trained(inner=VectorContextObservation)
    with pytest.raises(ValueError, match="has the wrappers VectorContextObservation, which cannot be taken over"):
        own_of(model)
    own = own_of(model, wrap=VectorContextObservation)
    np.testing.assert_allclose(own.returns, returned(model, own, inner=ContextObservation), rtol=1e-5)
    with pytest.raises(ValueError, match=r"the model's observation_space is .*, the environment's .*; give the wrapp"):
        own_of(model, wrap=lambda env: env)


def test_single_environments_of_a_model_tell_their_wrappers():
    model = PPO("MlpPolicy", ContextObservation(gym.make(ENV_ID)), device="cpu")
    with pytest.raises(ValueError, match="has the wrappers ContextObservation"):
        own_of(model)
    assert len(own_of(PPO("MlpPolicy", gym.make(ENV_ID), device="cpu")).returns) == 5


def test_wrappers_in_worker_processes_are_seen():
    """Gymnasium's and this project's, of which a worker can be asked; those that change nothing count for nothing."""
    venv = SubprocVecEnv(
        [lambda: Monitor(NormalizeObservation(gym.make(f"sprii_envs:{ENV_ID}", **SHORT)))], start_method="spawn"
    )
    try:
        with pytest.raises(ValueError, match="has the wrappers NormalizeObservation, which cannot be taken over"):
            own_of(PPO("MlpPolicy", venv, device="cpu"))
    finally:
        venv.close()
    plain = SubprocVecEnv([lambda: Monitor(gym.make(f"sprii_envs:{ENV_ID}", **SHORT))], start_method="spawn")
    try:
        assert len(own_of(PPO("MlpPolicy", plain, device="cpu")).returns) == 5
    finally:
        plain.close()


def test_pixels_are_transposed():
    made = {"obs_type": "pixels", "image_size": 36, "max_episode_steps": 8}
    model = PPO("CnnPolicy", NativeVecEnv(gym.make_vec(ENV_ID, num_envs=2, **made)), device="cpu", seed=0)
    found = evaluate_agent(model, ENV_ID, groups=["ID"], episodes=3, env_kwargs=made)
    assert found.agent == "PPO"
    assert found.groups["ID"].lengths.tolist() == [8] * 3
    with pytest.raises(ValueError, match="the model's wrappers do not take observations Box"):
        own_of(model)


def test_what_does_not_fit_is_refused():
    class Mine(VecEnvWrapper):
        def reset(self):
            return self.venv.reset()

        def step_wait(self):
            return self.venv.step_wait()

    with pytest.raises(ValueError, match=r"the wrapper Mine, which cannot be built anew; give SB3Agent\("):
        own_of(trained(Mine))
    model = trained()
    with pytest.raises(ValueError, match="observation_space"):
        evaluate_agent(model, "sprii/SpringWorld-v0", env_kwargs={"obs_type": "state"})
    wide = PPO("MlpPolicy", gym.make("Pendulum-v1"), device="cpu")  # ±2, and observations of the same shape
    with pytest.raises(ValueError, match=r"the model's action_space is Box\(-2"):
        own_of(wide)
    with pytest.raises(ValueError, match=r"wrap of SB3Agent made .*; legal: VecEnvs around the one that it is given"):
        own_of(SB3Agent(model, wrap=lambda env: NativeVecEnv(gym.make_vec(ENV_ID, num_envs=5))))
    with pytest.raises(ValueError, match="ActorCriticPolicy, which tells nothing of its wrappers; legal: the model"):
        own_of(model.policy)
    assert own_of(SB3Agent(model.policy, wrap=lambda env: env)).returns.tolist() == own_of(model).returns.tolist()
    with pytest.raises(ValueError, match="seed is -1"):
        SB3Agent(model, seed=-1)
    with pytest.raises(ValueError, match="model is 3; legal"):
        SB3Agent(3)
    with pytest.raises(ValueError, match="wrap is 3; legal"):
        SB3Agent(model, wrap=3)  # type: ignore[arg-type]


def test_sampled_actions_are_other_ones():
    model = trained()
    assert own_of(SB3Agent(model)).returns.tolist() == own_of(model).returns.tolist()
    found = evaluate_agent(SB3Agent(model, deterministic=False), ENV_ID, groups=["ID"], episodes=5, env_kwargs=SHORT)
    assert found.agent == "PPO, sampled"
    assert found.groups["ID"].returns.tolist() != own_of(model).returns.tolist()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    again = own_of(SB3Agent(model, deterministic=False))
    assert (torch.get_rng_state() == before).all()
    assert again.returns.tolist() == found.groups["ID"].returns.tolist()
    assert own_of(SB3Agent(model, deterministic=False, seed=1)).returns.tolist() != again.returns.tolist()


@pytest.mark.parametrize(
    ("wrapper", "form"),
    [
        (lambda env: gym.wrappers.RescaleAction(env, np.float32(-0.5), np.float32(0.5)),
         "gymnasium.wrappers.vector.RescaleAction"),
        (lambda env: gym.wrappers.FrameStackObservation(env, 2), "VecFrameStack for FrameStackObservation"),
        (ContextObservation, "sprii_envs.wrappers.VectorContextObservation"),
    ],
)  # fmt: skip
def test_what_is_to_be_given_is_named(wrapper, form):
    model = PPO("MlpPolicy", wrapper(gym.make(ENV_ID)), device="cpu")
    with pytest.raises(ValueError, match=re.escape(form)):
        own_of(model)


def test_wrappers_of_rewards_change_nothing():
    model = PPO("MlpPolicy", gym.wrappers.TransformReward(gym.make(ENV_ID), lambda r: r / 10), device="cpu")
    assert len(own_of(model).returns) == 5
