"""A stand-in with the interface of CARL 1.1.1, which pins Gymnasium below 1.0: `CARLEnv` and its selectors.

As there: a wrapper around a classic environment; observations {"obs", "context"} with the context as Python floats, a
dictionary or a list; `contexts`, filled with defaults; a selector that chooses at every reset; `context_id`, the index
of the present context, settable and told in the infos; `unwrapped` is the bare environment.
"""

import gymnasium as gym
import numpy as np


class RoundRobin:
    """The next one at every reset; CARL's default."""

    def __init__(self, contexts):
        self.contexts, self.keys, self.context_id = contexts, list(contexts), None

    def select(self):
        self.context_id = self.following()
        return self.contexts[self.keys[self.context_id]]

    def following(self):
        return 0 if self.context_id is None else (self.context_id + 1) % len(self.keys)


class Static(RoundRobin):
    """The first one, or what was set."""

    def following(self):
        return self.context_id or 0


class Elsewhere(RoundRobin):
    """Goes its own way whatever was set, as CARL's random selector; the same way every time, for the test."""

    step = 0

    def following(self):
        self.step += 1
        return (self.step * self.step) % len(self.keys)


class CARLPendulum(gym.Wrapper):
    """Pendulum with context features mass, length and gravity; hyperparameters of the bare environment."""

    defaults = {"g": 10.0, "m": 1.0, "l": 1.0, "length": 1.0}  # noqa: RUF012

    def __init__(self, contexts=None, obs_context_features=None, obs_context_as_dict=True, context_selector=RoundRobin):
        super().__init__(gym.make("Pendulum-v1"))
        contexts = contexts or {0: {}}
        self.contexts = {key: {**self.defaults, **context} for key, context in contexts.items()}
        self.features = list(self.defaults) if obs_context_features is None else obs_context_features
        self.as_dict = obs_context_as_dict
        self.context = None
        self.context_selector = context_selector(self.contexts)
        boxes = {name: gym.spaces.Box(-np.inf, np.inf, (1,)) for name in self.features}
        space = gym.spaces.Dict(boxes) if self.as_dict else gym.spaces.Box(-np.inf, np.inf, (len(boxes),))
        self.observation_space = gym.spaces.Dict({"obs": self.env.observation_space, "context": space})

    @property
    def context_id(self):
        return self.context_selector.context_id

    @context_id.setter
    def context_id(self, new):
        assert new in range(len(self.contexts)), "Unknown ID, this context does not exist in the context set."
        self.context_selector.context_id = new
        self.context = list(self.contexts.values())[new]
        self.update()

    def update(self):
        for name, value in self.context.items():
            setattr(self.env.unwrapped, name, value)

    def with_context(self, state):
        values = {name: self.context[name] for name in self.features}
        return {"obs": state, "context": values if self.as_dict else list(values.values())}

    def reset(self, *, seed=None, options=None):
        last = self.context_id
        self.context = self.context_selector.select()
        if self.context_id != last:
            self.update()
        state, info = self.env.reset(seed=seed, options=options)
        return self.with_context(state), {**info, "context_id": self.context_id}

    def step(self, action):
        state, reward, terminated, truncated, info = self.env.step(action)
        return self.with_context(state), reward, terminated, truncated, {**info, "context_id": self.context_id}
