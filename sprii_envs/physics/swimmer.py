"""The swimmer as MuJoCo models: one for each system, edited in place, stepped by every core (`app:swimmer-profile`).

The state is MuJoCo's (qpos, qvel), 10 numbers; a step depends on nothing else, because the model switches warm starts
off. Every system is integrated by itself, so results depend neither on the other systems nor on the number of threads.
MuJoCo is imported by the first model that is made.
"""

import copy
import ctypes
import os
from functools import cache, lru_cache
from importlib import resources
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sprii_envs.mujoco import package
from sprii_envs.mujoco.package import threads

Array = NDArray[np.float64]

LENGTHS = (0.8, 0.7, 0.6)
"""m, between the middles of a link's round ends, from the front; the model's own."""
RADIUS = 0.08
"""m, of every link; the model's own."""
DENSITY = 900.0
"""kg/m³, of every link in the model file."""
TIMESTEP = 0.01
"""s, of MuJoCo's integrator; the model's own."""
_BATCH = 2**18
"""States of a batch of trajectories, substeps included: 23 MB."""
_DIVERGED = 1e6
"""m/s or rad/s; below what makes MuJoCo give up on a trajectory."""


class Constants(NamedTuple):
    """What may differ from the model file, SI units."""

    density: float
    joint_damping: float
    joint_limit: float
    torque_limit: float
    fluid_density: float
    fluid_viscosity: float


@cache
def mujoco() -> Any:
    """The package `mujoco`; PackageImportError, saying what is wrong, where it is missing or does not import."""
    return package.mujoco("Swimmer")


@cache
def _file() -> Any:
    """The model file, compiled; shared, so never written to."""
    text = resources.files("sprii_envs").joinpath("assets", "swimmer.xml").read_text(encoding="utf-8")
    return mujoco().MjModel.from_xml_string(text)


@lru_cache(maxsize=8)
def nominal(constants: Constants) -> Any:
    """The `MjModel` of the nominal system; shared, so never written to."""
    model = copy.copy(_file())
    scale = constants.density / DENSITY
    model.body_mass[:] *= scale
    model.body_inertia[:] *= scale
    model.dof_damping[3:] = constants.joint_damping
    model.jnt_range[3:] = -constants.joint_limit, constants.joint_limit
    model.actuator_ctrlrange[:] = -constants.torque_limit, constants.torque_limit
    model.opt.density = constants.fluid_density
    model.opt.viscosity = constants.fluid_viscosity
    mujoco().mj_setConst(model, mujoco().MjData(model))
    return model


def points(state: Array) -> list[Array]:
    """Front, first joint, second joint and tail as seen from the root, four of (N, 2) in m, of states (N, 10)."""
    angle, joint_1, joint_2 = state[:, 2], state[:, 3], state[:, 4]
    front = np.stack((0.5 * LENGTHS[0] * np.cos(angle), 0.5 * LENGTHS[0] * np.sin(angle)), axis=1)
    found = [front]
    for length, heading in zip(LENGTHS, (angle, angle + joint_1, angle + joint_1 + joint_2), strict=True):
        found.append(found[-1] - np.stack((length * np.cos(heading), length * np.sin(heading)), axis=1))
    return found


class Models:
    """The models of N systems, values (N, 5): scales of the three masses and of the two joint dampings.

    Equal systems share a model until one of them changes. Copies and pickles like any object.
    """

    def __init__(self, constants: Constants, values: Array) -> None:
        """A copy of the nominal model for each different system: the slow part, which `update` spares."""
        self._constants = constants
        self._data: Any = None
        unique, which = np.unique(values, axis=0, return_inverse=True)
        models = [copy.copy(nominal(constants)) for _ in unique]
        self._edit(models, unique)
        self.models = [models[i] for i in which.reshape(-1)]
        self._shared = len(unique) < len(values)

    def update(self, rows: NDArray[np.intp], values: Array) -> None:
        """Give some systems other values (n, 5), in place."""
        if self._shared:
            self.models = [copy.copy(model) for model in self.models]
            self._shared = False
        self._edit([self.models[row] for row in rows], values)

    def step(self, state: Array, torque: Array, substeps: int) -> Array:
        """States (N, 10), new and F-ordered, `substeps` time steps after `state` (N, 10) under torques (N, 2).

        FloatingPointError if a system is too extreme for MuJoCo's time step.
        """
        if len(state) > 1:
            return np.asfortranarray(self._run(state, torque[:, None], substeps, 0)[:, -1])
        data = self._scratch()
        data.qpos, data.qvel, data.ctrl = state[0, :5], state[0, 5:], torque[0]
        mujoco().mj_step(self.models[0], data, nstep=substeps)
        after = np.empty((1, 10), np.float64, order="F")
        after[0, :5], after[0, 5:] = data.qpos, data.qvel
        _refuse_diverged(after, 0)
        return after

    def trajectory(self, state: Array, torque: Array, substeps: int, held: int = _BATCH) -> Array:
        """`step` many times over: states (N, T+1, 10), from `state` (N, 10) on, under torques (N, T, 2).

        At most `held` states, or those of one system, are held at once beside the result.
        """
        n, steps = torque.shape[:2]
        states = np.empty((n, steps + 1, 10), np.float64)
        states[:, 0] = state
        size = max(held // max(steps * substeps, 1), 1)
        for first in range(0, n if steps else 0, size):
            rows = slice(first, min(first + size, n))
            states[rows, 1:] = self._run(state[rows], torque[rows], substeps, first)[:, substeps - 1 :: substeps]
        return states

    def _run(self, state: Array, torque: Array, substeps: int, first: int) -> Array:
        """States (n, T·substeps, 10) of the n systems from number `first` on, by all threads."""
        n, steps = len(state), torque.shape[1] * substeps
        start = np.zeros((n, 11), np.float64)  # MuJoCo's full state begins with the time
        start[:, 1:] = state
        after = np.empty((n, steps, 11), np.float64)
        control = np.repeat(torque, substeps, axis=1)
        _pool(os.getpid(), threads()).run(self.models[first : first + n], start, control, after)
        _refuse_diverged(after[:, -1, 1:], first)
        return after[..., 1:]

    def _edit(self, models: list[Any], values: Array) -> None:
        """Write mass, inertia and damping, always as scales of the nominal ones, and what MuJoCo derives from them."""
        base, data, finish = nominal(self._constants), self._scratch(), mujoco().mj_setConst
        mass, inertia, damping = base.body_mass[1:], base.body_inertia[1:], base.dof_damping[3:]
        for model, value in zip(models, values, strict=True):
            model.body_mass[1:] = mass * value[:3]
            model.body_inertia[1:] = inertia * value[:3, None]
            model.dof_damping[3:] = damping * value[3:]
            finish(model, data)

    def _scratch(self) -> Any:
        """An `MjData` for any of the models; nothing in it outlives a call."""
        if self._data is None:
            self._data = mujoco().MjData(nominal(self._constants))
        return self._data

    def __getstate__(self) -> dict[str, Any]:
        """A copy makes its own scratch."""
        return {**self.__dict__, "_data": None}


def _refuse_diverged(state: Array, first: int) -> None:
    good = np.abs(state[:, 5:]) < _DIVERGED
    if np.count_nonzero(good) < good.size:
        slot = first + int(np.argmin(good.all(axis=1)))
        raise FloatingPointError(
            f"the swimmer of slot {slot} moves too fast for time steps of {TIMESTEP} s: "
            "its state, properties or constants are too extreme"
        )


class _Pool:
    """MuJoCo's threads, each with its scratch; one caller at a time."""

    def __init__(self, count: int) -> None:
        mj = mujoco()
        self._threads = mj.rollout.Rollout(nthread=count)
        self._data = [mj.MjData(_file()) for _ in range(count)]
        self._spec = int(mj.mjtState.mjSTATE_CTRL)
        self._busy = Lock()
        # Never destroyed: in a fork, where the threads are missing, the destructor would wait for them for ever.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._threads))

    def run(self, models: list[Any], start: Array, control: Array, after: Array) -> None:
        """Fill `after` (n, T, 11) with what follows `start` (n, 11) under `control` (n, T, 2), all C-ordered."""
        with self._busy:
            self._threads.rollout(
                models,
                self._data,
                start,
                control,
                control_spec=self._spec,
                skip_checks=True,
                nstep=after.shape[1],
                state=after,
            )


@cache
def _pool(process: int, count: int) -> _Pool:
    """One pool a process: a fork leaves its parent's threads behind, so it gets its own."""
    return _Pool(count)
