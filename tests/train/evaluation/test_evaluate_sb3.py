"""Models of Stable-Baselines3 return what its own `evaluate_policy` says, over the same starts."""

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("stable_baselines3")
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnvWrapper, VecFrameStack, VecMonitor, VecNormalize

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
    assert not np.allclose(own_of(loaded).returns, own.returns, rtol=1e-3)  # nothing tells it of the statistics


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


def test_pixels_are_transposed():
    made = {"obs_type": "pixels", "image_size": 36, "max_episode_steps": 8}
    model = PPO("CnnPolicy", NativeVecEnv(gym.make_vec(ENV_ID, num_envs=2, **made)), device="cpu", seed=0)
    found = evaluate_agent(model, ENV_ID, groups=["ID"], episodes=3, env_kwargs=made)
    assert found.agent == "PPO"
    assert found.groups["ID"].lengths.tolist() == [8] * 3


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
