"""Evaluate an agent: the one function."""

import dataclasses
import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import load_env_creator
from gymnasium.vector import VectorEnv
from gymnasium.wrappers.vector import NormalizeObservation
from numpy.typing import ArrayLike, NDArray

import sprii_envs  # noqa: F401 (registers the environments)
from sprii_envs.arguments import flag, instance, integer, shown
from sprii_envs.properties import unknown_name
from sprii_envs.vector import SpriiVectorEnv
from sprii_envs.world import Array, World
from sprii_train.analysis.statistics import check_level
from sprii_train.evaluation.agents import Wrap, player, tells
from sprii_train.evaluation.draws import Drawn, draw, plans
from sprii_train.evaluation.episodes import Episodes, success_told, wrappers_of
from sprii_train.evaluation.result import Evaluation, GroupEpisodes, Met, Published
from sprii_train.identity import code_of, digest
from sprii_train.terminal import console

Success = Callable[[Array], ArrayLike]
"""States (E, T + 1, S) → whether each episode succeeded, (E,) bool."""

_CHOSEN = {"num_envs", "systems", "system", "autoreset_mode", "render_mode"}
"""Arguments of environments that an evaluation chooses."""


def evaluate_agent(
    agent: Any,
    env_id: str,
    *,
    groups: Sequence[str] | Mapping[str, Any] | None = None,
    episodes: int | None = None,
    systems: int | None = None,
    seed: int = 0,
    wrap: Wrap | None = None,
    success: Success | None = None,
    references: Mapping[str, Any] | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    name: str | None = None,
    level: float = 0.95,
    record: bool = False,
    progress: bool | None = None,
) -> Evaluation:
    """Return and success of an agent in groups of systems, all episodes at once.

    Systems and starts are a function of the seed, a group's name, and the numbers of episodes and systems: every
    agent meets the same.

    Args:
        agent: a function of observations (N, …) to actions (N, A); an object with `reset(n)` and `act(observations)`
            (`evaluation.agents.Agent`); a model of Stable-Baselines3 (`evaluation.sb3.SB3Agent`); or a dynamics
            model with a controller (`control.agent.PlanningAgent`).
        env_id: of a registered environment with a native vector environment.
        groups: names of the world's groups, by default all (a world without any has one, "all", of its declared
            ranges); or a mapping of names to a `SystemDistribution`, a `SystemSet`, or, for a group of the world, its
            number of episodes.
        episodes: of a group: by default 10, or the next multiple of the systems.
        systems: drawn for a group, each for as many episodes; by default a new one for every episode. A `SystemSet`
            always gives all of its own.
        seed: of systems and starts.
        wrap: the agent's wrappers: a function of the native vector environment to a wrapped one.
        success: of states, read-only; after its end an episode's last state is repeated. By default the world's own
            (`World.success`), or "is_success" of the last step's info.
        references: name → another agent, which acts on the same episodes without `wrap`; an `Evaluation` of the same
            episodes; or `Published` numbers.
        env_kwargs: of the environment's constructor, such as physical constants.
        name: of the agent, in tables; no reference may have it.
        level: of the intervals.
        record: whether to keep states and actions.
        progress: whether stderr shows a bar; by default where it is a terminal.

    Raises:
        ValueError: before anything runs, for arguments, groups and spaces that do not fit; at the step, for actions
            of another shape or not finite, or episodes that a wrapper keeps from ending within the time limit; at the
            end, for returns that are not finite.
    """
    instance("env_id", env_id, of=str)
    seed, record = integer("seed", seed), flag("record", record)
    check_level(level)
    for what, given in (("wrap", wrap), ("success", success)):
        if given is not None and not callable(given):
            raise ValueError(f"{what} is {shown(given)}; legal: a function")
    named = "world" if success is None else _named(success)
    kwargs = {} if env_kwargs is None else dict(instance("env_kwargs", env_kwargs, of=Mapping))
    beside = {} if references is None else dict(instance("references", references, of=Mapping))
    if reserved := _CHOSEN & kwargs.keys():
        raise ValueError(f"env_kwargs names {min(reserved)!r}, which an evaluation chooses itself")
    acting = player(agent)
    label = acting.describe() if name is None else instance("name", name, of=str)
    if label in beside:
        raise ValueError(f"references names {label!r}, as the agent is called; legal: another name, here or by name=")
    others = {key: player(each) for key, each in beside.items() if not isinstance(each, Evaluation | Published)}
    one = _made(env_id, 1, kwargs)
    world, steps = one.world, one.max_episode_steps
    if steps is None:
        raise ValueError(f"{env_id} has no time limit; legal: env_kwargs={{'max_episode_steps': ...}}")
    wanted = plans(world, groups, episodes, systems, seed)
    for key, each in beside.items():
        for group in each.rows if isinstance(each, Published) else ():
            if group not in wanted and group not in world.groups:
                raise unknown_name(f"group of references[{key!r}]", group, dict.fromkeys([*wanted, *world.groups]))
    drawn = {key: draw(world, plan.source, plan.episodes, plan.key, each=plan.each) for key, plan in wanted.items()}
    acting.check(_wrapped(wrap, _fresh(one, drawn, steps)))
    for each in others.values():
        each.check(_fresh(one, drawn, steps))
    constants, starts = _constants(one), {key: own.digest() for key, own in drawn.items()}
    one.close()
    met = Met(env_id, constants, steps, tuple(world.properties.names), starts)
    for each in beside.values():
        if isinstance(each, Evaluation):
            met.check(label, each.met, each.agent)

    def played(act: Any, label: str, over: Wrap | None) -> Evaluation:
        together = Drawn.together(drawn.values())
        env = _made(env_id, len(together.values), kwargs)
        keep = record or success is not None or type(world).success is not World.success
        with _bar(label, steps, progress) as report:
            recorder = Episodes(env, together, steps, seed=seed, keep=keep, report=report)
            wrapped = _wrapped(over, recorder)
            try:
                act.play(wrapped, recorder, together.values)
            finally:
                wrapped.close()
        done, criterion = _judged(success, named, recorder, keep)
        returns, found, at = recorder.rewards.sum(1), {}, 0
        if not np.isfinite(returns).all():
            raise ValueError(f"the return of {label} in episode {int(np.argmin(np.isfinite(returns)))} is not finite")
        for key, plan in wanted.items():
            own, some = drawn[key], slice(at, at := at + plan.episodes)
            found[key] = GroupEpisodes(
                own.ids, own.values, plan.each, starts[key], returns[some], recorder.lengths[some],
                None if done is None else done[some],
                recorder.states[some] if record else None, recorder.actions[some] if record else None,
            )  # fmt: skip
        return Evaluation(
            label, env_id, constants, steps, seed, tells(getattr(act, "agent", act)),
            met.properties, found, level=level, criterion=criterion,
        )  # fmt: skip

    main = played(acting, label, wrap)
    evaluated = {key: played(others[key], key, None) if key in others else each for key, each in beside.items()}
    return dataclasses.replace(main, references=evaluated)


def _made(env_id: str, n: int, kwargs: Mapping[str, Any]) -> SpriiVectorEnv:
    try:
        legal = _arguments(env_id)
        if legal is not None and (unknown := [key for key in kwargs if key not in legal]):
            raise unknown_name(f"argument of {env_id} in env_kwargs", unknown[0], legal)
        env = gym.make_vec(env_id, num_envs=n, **kwargs)
    except (gym.error.Error, TypeError) as error:
        raise ValueError(f"env_id is {env_id!r}: {error}") from error
    if not isinstance(env, SpriiVectorEnv):
        env.close()
        raise ValueError(f"{env_id} has no native vector environment; legal: an id whose vector_entry_point is one")
    return env


def _arguments(env_id: str) -> list[str] | None:
    """What `env_kwargs` may name; None where the constructor does not tell."""
    entry = gym.spec(env_id).vector_entry_point
    if entry is None:
        return None
    parameters = inspect.signature(load_env_creator(entry) if isinstance(entry, str) else entry).parameters.values()
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return None
    return [each.name for each in parameters if each.name not in _CHOSEN]


def _fresh(env: SpriiVectorEnv, drawn: Mapping[str, Drawn], steps: int) -> Episodes:
    """What an agent's `check` sees: one slot, in the first system."""
    first = next(iter(drawn.values())).take(slice(1))
    return Episodes(env, first, steps, seed=0, keep=False)


def _wrapped(wrap: Wrap | None, env: Episodes) -> VectorEnv[Any, Any, Any]:
    env.wraps = wrap is not None
    if wrap is None:
        return env
    try:
        made = wrap(env)
    except (TypeError, AssertionError) as error:
        raise ValueError(
            f"wrap does not take the vector environment: {error}; legal: vector wrappers, as of "
            "gymnasium.wrappers.vector, not those of single environments"
        ) from error
    if not isinstance(made, VectorEnv):
        raise ValueError(f"wrap made {shown(made)}; legal: Gymnasium's vector environment")
    if (layers := wrappers_of(env, made)) is None:
        raise ValueError(f"wrap made {shown(made)}; legal: wrappers around the environment that it is given")
    for layer in layers:
        if isinstance(layer, NormalizeObservation):
            if layer.obs_rms.count < 1:
                raise ValueError(
                    "wrap made a NormalizeObservation that has seen nothing; legal: one with the obs_rms of training"
                )
            layer.update_running_mean = False
    return made


def _judged(
    success: Success | None, named: str, recorder: Episodes, kept: bool
) -> tuple[NDArray[np.bool_] | None, str | None]:
    """Which episodes succeeded, and by what: `named`, if that says so, or "is_success"."""
    if kept:
        states = recorder.states.view()
        states.flags.writeable = False
        found = (success or recorder.native.world.success)(states)
        if found is not None:
            return _succeeded(found, len(states)), named
    told = success_told(recorder)
    return told, None if told is None else "is_success"


def _named(function: Any) -> str:
    """A function's name, and a digest of the code that it runs."""
    kind = function if hasattr(function, "__qualname__") else type(function)
    code = digest(json.dumps(code_of(function), sort_keys=True))
    return f"{kind.__module__}.{kind.__qualname__} {code[:16]}"


def _succeeded(found: ArrayLike, n: int) -> NDArray[np.bool_]:
    array = np.asarray(found)
    if array.shape != (n,) or array.dtype != np.bool_:
        raise ValueError(f"success returned {array.dtype} of shape {array.shape}; legal: bool ({n},)")
    return array


def _constants(env: SpriiVectorEnv) -> dict[str, Any]:
    """The world's constants and what is observed, as JSON has them."""
    made = dataclasses.asdict(env.world) | dict(env.world.sources) | {"obs_type": env.obs_type}  # type: ignore[call-overload]
    return json.loads(json.dumps(made, default=repr))


@contextmanager
def _bar(label: str, steps: int, progress: bool | None) -> Iterator[Callable[[int], None] | None]:
    if not (sys.stderr.isatty() if progress is None else flag("progress", progress)):
        yield None
        return
    from rich.progress import Progress

    with Progress(console=console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=steps)
        yield lambda done: bar.update(task, completed=done)
