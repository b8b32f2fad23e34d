"""MuJoCo models of N systems: one for each, edited in place and stepped by every core.

A state row holds the positions `qpos`, the velocities `qvel`, the activations `act`, the solver's warm start
`qacc_warmstart` (the accelerations that its next solution starts from), and what a world reads of a step. That is all
a step depends on, so that it is a pure function of state, control and system, bit for bit `mujoco.mj_step` from the
same `MjData`. Many systems run on MuJoCo's threads where its `Batch` carries warm starts (MuJoCo 4) and
nothing is read; otherwise on Python's, as MuJoCo gives up the GIL in a step. The bits are the same.
"""

import copy
import dataclasses
import hashlib
import inspect
import os
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import load_env_creator
from numpy.typing import NDArray

from sprii_envs.arguments import shown
from sprii_envs.dependencies import needed
from sprii_envs.mujoco import edits
from sprii_envs.mujoco.edits import Computed, Edit, Target
from sprii_envs.mujoco.package import threads, workers
from sprii_envs.mujoco.pool import Pool
from sprii_envs.properties import PersistentProperties

Array = NDArray[np.float64]
Reader = Callable[[Any], Any]
"""What a world reads of an `MjData` after a step: numbers (R,)."""

DIVERGED = 1e6
"""m, rad, m/s or rad/s; below what makes MuJoCo give up on a trajectory."""


GYMNASIUM = Path(gym.__file__).parent / "envs" / "mujoco" / "assets"
"""The MJCF files that come with Gymnasium; its MuJoCo environments need more packages than the files do."""


@dataclass(frozen=True)
class GymnasiumModel:
    """The MJCF that a MuJoCo environment of Gymnasium is made from, by its id, as in `HalfCheetah-v5`."""

    id: str

    @property
    def path(self) -> Path:
        """The file; ValueError where the environment has none."""
        entry = gym.spec(self.id).entry_point
        with needed(f"the model of {self.id}", "'gymnasium[mujoco]'", "imageio", "mujoco"):
            kind = load_env_creator(entry) if isinstance(entry, str) else entry
        parameter = inspect.signature(kind).parameters.get("xml_file") if kind is not None else None
        if parameter is not None and isinstance(parameter.default, str):
            return (
                GYMNASIUM / parameter.default
            )  # its own files have no folder, and a path of one's own is kept as it is
        made: Any = gym.make(self.id).unwrapped
        if not hasattr(made, "fullpath"):
            raise ValueError(f"{self.id!r} is not made from an MJCF file: give the model as text or as a path")
        return Path(made.fullpath)


Source = str | Path | GymnasiumModel
"""MJCF text, the path of a file, or what an environment of Gymnasium is made from."""


def compile_source(mj: Any, world: str, source: Source) -> tuple[Any, str]:
    """The `MjModel` of MJCF text or a file, and the text's digest; ValueError with MuJoCo's message if it is none."""
    text = isinstance(source, str) and source.lstrip().startswith("<")
    path = Path() if text else source.path if isinstance(source, GymnasiumModel) else Path(source).expanduser()
    if not text and not path.is_file():
        raise ValueError(f"the model of {world} is neither MJCF text nor a file: {shown(source)}")
    try:
        with _warned(mj) as said:
            model = mj.MjModel.from_xml_string(source) if text else mj.MjModel.from_xml_path(str(path))
    except ValueError as error:
        raise ValueError(f"the model of {world} does not compile: {' '.join(str(error).split())}") from error
    if path.parent != GYMNASIUM:  # whose own files nobody here can mend
        for message in said:
            warnings.warn(f"the model of {world}: {message}", stacklevel=2)
    return model, hashlib.sha256(str(source).encode() if text else path.read_bytes()).hexdigest()


@contextmanager
def _warned(mj: Any) -> Iterator[list[str]]:
    """What MuJoCo warns of in the block, which it would print and write into a file of the working directory."""
    said: list[str] = []
    before = mj.get_mju_user_warning()
    mj.set_mju_user_warning(lambda message: said.append(" ".join(message.split())))
    try:
        yield said
    finally:
        mj.set_mju_user_warning(before)


@dataclass(eq=False)
class Compiled:
    """A world's model as compiled, which is never written to, and where its properties act."""

    mj: Any
    world: str
    model: Any
    digest: str
    """SHA-256 of the MJCF, without the files that it includes."""
    targets: list[Target]
    reader: Reader | None
    """What is read of each step; None where nothing is."""
    reading_names: tuple[str, ...]
    post_constraint: bool
    """Whether `mj_rnePostConstraint` runs after a step, for forces such as `cfrc_ext`."""
    origin: tuple[Any, ...]
    """The function that finds this again, and its arguments: what a copy or a pickle keeps."""
    computed: Computed = field(default_factory=dict)
    base: dict[str, Array] = field(default_factory=dict)
    ranges: tuple[Array, Array, NDArray[np.bool_]] = field(init=False)
    """Ends of each actuator's `ctrlrange`, and whether they are of equal size."""
    physical: int = 0
    """Numbers of a state that are positions, velocities and activations."""
    memory: int = 0
    """`physical`, and the warm start where the model has any."""
    native: bool = True
    """Whether MuJoCo's own threads are to be used where they can be."""
    _spec: int = 0
    _data: dict[tuple[int, int], Any] = field(default_factory=dict)
    _pools: dict[tuple[int, int, int], Pool] = field(default_factory=dict)
    _busy: Any = field(default_factory=Lock)

    def __post_init__(self) -> None:
        """Sizes of the state; ValueError for models whose state is larger than what is kept here."""
        mj, model = self.mj, self.model
        if model.nplugin or getattr(model, "nhistory", 0) or model.nmocap:
            raise ValueError(f"the model of {self.world} has plugins, delays or mocap bodies, whose state is not kept")
        flags = mj.mjtDisableBit
        model.opt.disableflags |= int(flags.mjDSBL_AUTORESET)  # a model that runs away is an error, not a new start
        self.base = {target.field: edits.read(model, target.field) for target in self.targets}
        self.derives = edits.derives([*self.base, *self.computed])
        low, high = np.array(model.actuator_ctrlrange, np.float64).reshape(-1, 2).T
        self.ranges = low, high, low == -high
        bits = mj.mjtState
        spec = int(bits.mjSTATE_QPOS) | int(bits.mjSTATE_QVEL) | int(bits.mjSTATE_ACT)
        self.physical = mj.mj_stateSize(model, spec)
        if not model.opt.disableflags & int(flags.mjDSBL_WARMSTART):
            spec |= int(bits.mjSTATE_WARMSTART)
        self.memory, self._spec = mj.mj_stateSize(model, spec), spec
        # Before MuJoCo 4, `mj_forward` sets the warm start; now only a step does.
        data = mj.MjData(model)
        data.qfrc_applied[:] = 1.0
        mj.mj_forward(model, data)
        self._warms = self.memory > self.physical and bool(np.any(data.qacc_warmstart))

    def __reduce__(self) -> tuple[Any, ...]:
        """Compiled once in every process."""
        return self.origin

    def adjusted(self, write: Callable[[Any], None], origin: tuple[Any, ...]) -> "Compiled":
        """The same with numbers that `write` puts into a copy of the model; threads and scratch are shared."""
        model = copy.copy(self.model)
        write(model)
        self.mj.mj_setConst(model, self.mj.MjData(model))
        return dataclasses.replace(self, model=model, origin=origin)

    @property
    def width(self) -> int:
        """Numbers of a state."""
        return self.memory + len(self.reading_names)

    @property
    def start(self) -> Array:
        """Positions, velocities and activations of the model as it is compiled, (P,)."""
        return np.concatenate([self.model.qpos0, np.zeros(self.physical - self.model.nq)])

    def completed(self, physical: Array) -> Array:
        """States (n, S), F-ordered, that begin in (n, P): the warm start and the readings that `mj_forward` leaves.

        Of the compiled model, so that a start is the same in every system.
        """
        full = np.zeros((len(physical), self.width), np.float64, order="F")
        full[:, : self.physical] = physical
        if self.reader is None and not self._warms:
            return full
        with self._busy:
            data = self._scratch(0)
            for row in range(len(full)):
                self.mj.mj_resetData(self.model, data)
                self._put(data, physical[row])
                self.mj.mj_forward(self.model, data)
                if self._warms:
                    full[row, self.physical : self.memory] = data.qacc_warmstart
                if self.reader is not None:
                    full[row, self.memory :] = self.reader(data)
        return full

    def poses(self, state: Array) -> tuple[Array, Array, Array]:
        """Places (n, G, 3) and axes (n, G, 3, 3) of the geoms, and places (n, B, 3) of the bodies, in states (n, S)."""
        n, model = len(state), self.model
        place, axes = np.empty((n, model.ngeom, 3)), np.empty((n, model.ngeom, 9))
        bodies = np.empty((n, model.nbody, 3))
        with self._busy:
            data = self._scratch(0)
            for row in range(n):
                data.qpos[:] = state[row, : model.nq]
                self.mj.mj_kinematics(model, data)
                place[row], axes[row], bodies[row] = data.geom_xpos, data.geom_xmat, data.xpos
        return place, axes.reshape(n, -1, 3, 3), bodies

    def derive(self, models: Sequence[Any]) -> None:
        """Compute anew what follows in edited models from the edited fields."""
        if self.derives:
            with self._busy:
                data = self._scratch(0)
                for model in models:
                    self.mj.mj_setConst(model, data)

    def run(self, models: Sequence[Any], revision: int, state: Array, control: Array, substeps: int) -> Array:
        """States (n, T, S) after each of T control steps from `state` (n, S), C-ordered, under controls (n, T, A).

        `revision` differs whenever one of `models` does.
        """
        after = np.empty((len(state), control.shape[1], self.width), np.float64)
        pool = self._pool(len(state)) if len(state) > 1 else None
        if pool is None:
            self._run_here(models, state, control, substeps, after)
        else:
            with self._busy:
                pool.run(models, revision, state, control, substeps, after)
        self._refuse_diverged(after)
        return after

    def let_go(self) -> None:
        """Hold no models of runs that are over; nothing while one is on, as the owner of some may end in its midst."""
        if self._busy.acquire(blocking=False):
            try:
                for (process, *_), pool in list(self._pools.items()):
                    if process == os.getpid():  # in a fork the threads are missing
                        pool.let_go()
            finally:
                self._busy.release()

    def _pool(self, n: int) -> Pool | None:
        """MuJoCo's threads for n systems, or None where they would not do; kept by powers of two, as they never end."""
        if self.reader is not None or self.post_constraint or not self.native:
            return None
        key = (os.getpid(), threads(), 1 << (n - 1).bit_length())
        if key not in self._pools:
            try:
                self._pools[key] = Pool(self.model, key[2], key[1])
            except ImportError:
                self.native = False
                return None
        return self._pools[key]

    def _run_here(self, models: Sequence[Any], state: Array, control: Array, substeps: int, after: Array) -> None:
        """`run` on Python's threads."""
        count = max(min(threads(), len(state)), 1)
        with self._busy:
            data = [self._scratch(i) for i in range(count)]
            pool = workers(os.getpid(), threads() - 1) if count > 1 else None
            shares = [
                pool.submit(self._share, i, count, data[i], models, state, control, substeps, after)
                for i in range(1, count)
                if pool is not None
            ]
            self._share(0, count, data[0], models, state, control, substeps, after)
            for share in shares:
                share.result()

    def _share(
        self, first: int, by: int, data: Any, models: Sequence[Any], state: Array, control: Array, k: int, after: Array
    ) -> None:
        """Every `by`-th system from number `first` on."""
        mj, spec, memory, reader = self.mj, self._spec, self.memory, self.reader
        put, step, get, ctrl = mj.mj_setState, mj.mj_step, mj.mj_getState, data.ctrl
        for row in range(first, len(state), by):
            model = models[row]
            put(model, data, state[row, :memory], spec)
            for t in range(control.shape[1]):
                ctrl[:] = control[row, t]
                step(model, data, k)
                if self.post_constraint:
                    mj.mj_rnePostConstraint(model, data)
                get(model, data, after[row, t, :memory], spec)
                if reader is not None:
                    after[row, t, memory:] = reader(data)

    def _put(self, data: Any, physical: Array) -> None:
        model = self.model
        data.qpos[:], data.qvel[:] = physical[: model.nq], physical[model.nq : model.nq + model.nv]
        if model.na:
            data.act[:] = physical[model.nq + model.nv :]

    def _scratch(self, thread: int) -> Any:
        """An `MjData` of one thread; nothing in it outlives a call."""
        key = (os.getpid(), thread)
        if key not in self._data:
            self._data[key] = self.mj.MjData(self.model)
        return self._data[key]

    def _refuse_diverged(self, after: Array) -> None:
        model = self.model
        good = np.abs(after[:, :, : model.nq + model.nv]) < DIVERGED
        if np.count_nonzero(good) < good.size:
            slot = int(np.argmin(good.all(axis=(1, 2))))
            raise FloatingPointError(
                f"the {self.world} of slot {slot} moves too fast for time steps of {model.opt.timestep:g} s: "
                "its state, properties or constants are too extreme"
            )


def compiled(
    mj: Any,
    world: str,
    source: Source,
    properties: PersistentProperties,
    mapping: Mapping[str, Sequence[Edit]],
    reader: Reader | None,
    reading_names: tuple[str, ...],
    post_constraint: bool,
    origin: tuple[Any, ...],
    computed: Computed,
) -> Compiled:
    """The model of a world, checked; ValueError that names what does not fit."""
    model, digest = compile_source(mj, world, source)
    targets = edits.resolve(mj, world, model, properties, mapping)
    if any(t.field == "geom_size" for t in targets) and int(mj.__version__.partition(".")[0]) < 4:
        raise ValueError(
            f"{world} edits geom_size, whose bounds MuJoCo follows from version 4 on, not {mj.__version__}"
        )
    edits.check_computed(world, model, properties, targets, computed)
    return Compiled(mj, world, model, digest, targets, reader, reading_names, post_constraint, origin, computed)


class Models:
    """The models of N systems, values (N, F). Equal systems share one until one of them changes."""

    def __init__(self, of: Compiled, values: Array) -> None:
        """A copy of the compiled model for each different system: the slow part, which `update` spares."""
        self._of, self._revision = of, 0
        unique, which = np.unique(values, axis=0, return_inverse=True)
        models = [copy.copy(of.model) for _ in unique]
        self._edit(models, unique)
        self.models = [models[i] for i in which.reshape(-1)]
        self._shared = len(unique) < len(values)
        weakref.finalize(self, of.let_go).atexit = False

    def update(self, rows: NDArray[np.intp], values: Array) -> None:
        """Give some systems other values (n, F), in place."""
        if self._shared:
            self.models = [copy.copy(model) for model in self.models]
            self._shared = False
        self._edit([self.models[row] for row in rows], values)

    def step(self, state: Array, control: Array, substeps: int) -> Array:
        """States (N, S), new and F-ordered, `substeps` time steps after `state` (N, S) under controls (N, A)."""
        rows = np.ascontiguousarray(state)
        return np.asfortranarray(self._of.run(self.models, self._revision, rows, control[:, None], substeps)[:, 0])

    def trajectory(self, state: Array, control: Array, substeps: int) -> Array:
        """`step` many times over: states (N, T+1, S), from `state` (N, S) on, under controls (N, T, A)."""
        rows = np.ascontiguousarray(state)
        return np.concatenate(
            [rows[:, None], self._of.run(self.models, self._revision, rows, control, substeps)], axis=1
        )

    def _edit(self, models: list[Any], values: Array) -> None:
        self._revision += 1
        fields = edits.values_of(self._of.base, self._of.targets, values, self._of.computed)
        for row, model in enumerate(models):
            for name, value in fields.items():
                edits.write(model, name, value[row])
        self._of.derive(models)
