"""`MujocoWorld`: any MuJoCo model as a `World`, from MJCF and a mapping of properties to fields of the model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache, partial
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sprii_envs import rendering
from sprii_envs.arguments import check, choice
from sprii_envs.checks import reals
from sprii_envs.mujoco import edits, models, pictures
from sprii_envs.mujoco.edits import Computed, Edit
from sprii_envs.mujoco.models import Compiled, Models, Source
from sprii_envs.mujoco.package import mujoco
from sprii_envs.properties import unknown_name
from sprii_envs.world import Array, Extras, World, check_constants


class _Declared:
    """A declaration that only the compiled model can make, for instances and for the class alike."""

    def __init__(self, of: Callable[[Compiled], Any]) -> None:
        self._of = of

    def __get__(self, world: object, kind: "type[MujocoWorld]") -> Any:
        return self._of(compiled(kind))


@dataclass(frozen=True, kw_only=True)
class MujocoWorld(World):
    """The pure functions of one MuJoCo model; a subclass names the model, the properties, and what they act on.

    States are (qpos, qvel, act, warm start, readings), float64; the warm start is what the solver of the next step
    begins from, at a start what `mj_forward` leaves, and there is none where the model switches it off. A step is
    `mujoco.mj_step`, bit for bit. Actions in [−1, 1] span each actuator's `ctrlrange`. A state may be given by
    (qpos, qvel, act) alone.

    Raises, when an environment is built and before it is: PackageImportError without MuJoCo; ValueError for a model
    that does not compile, and for a property that names what the model has not or that changes nothing.
    """

    dt: float = 0.05
    start_noise: float = 0.0
    view_width: float = 4.0
    renderer: str = "shapes"

    model: ClassVar[Source]
    """MJCF text, the path of a file, or `GymnasiumModel("HalfCheetah-v5")`."""
    edits: ClassVar[Mapping[str, Edit | Sequence[Edit]]]
    """Property → what it does to the model: `scale(…)`, `assign(…)`, or several of them."""
    computed: ClassVar[Computed] = {}
    """Field of the model → a function from all property values (n, F) to it, (n, *its shape); for what no edit of one
    property can say, such as a product of two."""
    model_constants: ClassVar[tuple[str, ...]] = ()
    """Fields that `adjust` writes into the model."""
    normal_velocities: ClassVar[bool] = False
    """Whether velocities start normal with deviation `start_noise`, instead of uniform in ± it."""
    reading_names: ClassVar[tuple[str, ...]] = ()
    """What `read` reads of each step, as components of the state."""
    post_constraint: ClassVar[bool] = False
    """Whether `mj_rnePostConstraint` runs after each step, for a `read` of contact forces."""
    view_axes: ClassVar[Literal["xy", "xz", "yz"]] = "xz"
    """What runs to the right and up in a flat picture."""
    view_body: ClassVar[str | int] = 1
    """The body at the centre of a flat picture."""
    view_height: ClassVar[float | None] = None
    """What height, m, is at the centre of a flat picture, if it does not follow the body up and down."""
    camera: ClassVar[str | int] = -1
    """The camera of MuJoCo's renderer; −1 is the free one."""

    required: ClassVar[tuple[str, ...]] = ("properties", "model", "edits")
    packages: ClassVar[tuple[str, ...]] = ("mujoco",)
    max_episode_steps: ClassVar[int] = 1000
    state_limit: ClassVar[float] = 1e10  # of accelerations and forces; positions and velocities have a narrower one
    # Not annotated, so that the making of a dataclass does not ask for them, which would compile a model.
    state_names = _Declared(lambda of: _state_names(of))  # type: ignore[assignment]
    action_size = _Declared(lambda of: of.model.nu)  # type: ignore[assignment]
    start_draws = _Declared(lambda of: of.model.nq + 2 * of.model.nv)  # type: ignore[assignment]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Refuse a mapping that is not of the properties, before any model is made."""
        super().__init_subclass__(**kwargs)
        if cls.reading_names and cls.read is MujocoWorld.read:
            raise ValueError(
                f"{cls.__name__} has the readings {', '.join(cls.reading_names)}; it needs read(data) of them"
            )
        if not hasattr(cls, "properties") or not hasattr(cls, "edits"):
            return
        edits.declared(cls.__name__, cls.properties, cls.edits, cls.computed)

    @staticmethod
    def adjust(model: Any, constants: Mapping[str, Any]) -> None:
        """Write the fields named in `model_constants` into the model, an `MjModel` as compiled.

        MuJoCo's derived numbers are computed anew; properties act on what this leaves.
        """

    @staticmethod
    def read(data: Any) -> Any:
        """Numbers (R,), one for each of `reading_names`, of the `MjData` of a step that has just been taken."""
        return ()

    def __post_init__(self) -> None:
        """Refuse constants that are not physical."""
        check_constants(self, ("dt",), above=0.0, most=10.0)
        check_constants(self, ("view_width",), above=0.0)
        check_constants(self, ("start_noise",), least=0.0, most=10.0)
        check(self, choice, "renderer", legal=("shapes", "mujoco"))

    @cached_property
    def compiled(self) -> Compiled:
        """The model with this world's constants, compiled once in every process; never write to it."""
        constants = tuple((name, getattr(self, name)) for name in self.model_constants)
        return _adjusted(type(self), constants) if constants else compiled(type(self))

    @property
    def physical(self) -> int:
        """Positions, velocities and activations."""
        return self.compiled.physical

    @property
    def substeps(self) -> int:
        """MuJoCo's time steps in a control step."""
        return round(self.dt / self.compiled.model.opt.timestep)

    def load(self) -> None:
        """Compile and check the model, before anything is built; see the class for what is refused."""
        step, substeps = self.compiled.model.opt.timestep, self.substeps
        if substeps < 1 or abs(self.dt - substeps * step) > 1e-9:
            raise ValueError(f"dt = {self.dt!r}: it must be a whole multiple of {step:g}, the model's time step")
        if self.renderer == "mujoco":
            pictures.rendered(self.compiled, self.compiled.start[None], (8, 8), self.camera)

    @property
    def sources(self) -> Mapping[str, str]:
        """The digest of the MJCF, without what it includes."""
        return {"model": self.compiled.digest}

    def prepare(self, values: Array) -> Models:
        """The models of systems (N, F)."""
        return Models(self.compiled, values)

    def update(self, prepared: Models, rows: NDArray[np.intp], values: Array) -> Models:
        """Edit the models of some slots in place."""
        prepared.update(rows, values)
        return prepared

    def initial(self, u: Array, values: Array, query: str | None) -> Array:
        """The model's own pose at rest, with noise: positions uniform in ±`start_noise`, velocities as declared."""
        of = self.compiled
        nq, nv = of.model.nq, of.model.nv
        physical = np.repeat(of.start[None], len(u), axis=0)
        physical[:, :nq] += self.start_noise * (2.0 * u[:, :nq] - 1.0)
        a, b = u[:, nq : nq + nv], u[:, nq + nv : nq + 2 * nv]
        if self.normal_velocities:  # two uniforms give one normal (Box and Muller)
            noise = np.sqrt(-2.0 * np.log(1.0 - a)) * np.cos(2.0 * np.pi * b)
        else:
            noise = 2.0 * a - 1.0
        physical[:, nq : nq + nv] += self.start_noise * noise
        return of.completed(physical)

    def check_state(self, state: ArrayLike, n: int) -> Array:
        """As in `World`; (qpos, qvel, act) alone, (P,) or (n, P), begin as after `mj_forward`."""
        of = self.compiled
        try:
            given = reals(state)
        except TypeError:
            return super().check_state(state, n)  # which says what is wrong
        short = of.physical < of.width and given.shape in ((of.physical,), (n, of.physical))
        if short:
            given = np.concatenate([given, np.zeros((*given.shape[:-1], of.width - of.physical))], axis=-1)
        full = super().check_state(given, n)
        beyond = np.abs(full[:, : of.physical]) > models.DIVERGED
        if beyond.any():
            row, column = np.argwhere(beyond)[0]
            where = f" of slot {row}" if n > 1 else ""
            raise ValueError(
                f"state component {self.state_names[column]!r}{where} = {float(full[row, column])!r}: "
                f"it must be in [{-models.DIVERGED:g}, {models.DIVERGED:g}]"
            )
        return of.completed(np.ascontiguousarray(full[:, : of.physical])) if short else full

    def force(self, action: NDArray[np.float32]) -> Array:
        """The controls: each component clipped to ±1 and mapped to its actuator's `ctrlrange`."""
        low, high, even = self.compiled.ranges
        clipped = np.minimum(np.maximum(action.astype(np.float64), -1.0), 1.0)
        if even.all():
            return clipped * high
        return np.where(even, clipped * high, low + (clipped + 1.0) * (0.5 * (high - low)))

    def step(self, state: Array, force: Array, prepared: Models) -> tuple[Array, Extras]:
        """MuJoCo's steps; FloatingPointError if a system is too extreme for its time step."""
        return prepared.step(state, force, self.substeps), {}

    def trajectory(self, state: Array, forces: Sequence[Array], prepared: Models) -> Array | None:
        """All steps at once, each system in one thread."""
        return None if not forces else prepared.trajectory(state, np.stack(forces, axis=1), self.substeps)

    def reward(self, state: Array, force: Array, after: Array) -> Array:
        """0: a world without a task."""
        return np.zeros(len(state))

    def observe(self, state: Array) -> NDArray[np.float32]:
        """Positions, velocities and activations, float32."""
        return _single_precision(state[:, : self.compiled.physical])

    @property
    def observation_bounds(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The largest float32."""
        of = self.compiled
        width = self.observe(of.completed(of.start[None])).shape[1]
        high = np.full(width, np.finfo(np.float32).max, np.float32)
        return -high, high

    def patches(self, state: Array, size: rendering.Size) -> list[rendering.Patch]:
        """The geoms seen along one axis, and the ground; with `renderer="mujoco"`, MuJoCo's picture in grey."""
        of = self.compiled
        if self.renderer == "mujoco":
            return [rendering.whole(self._rendered(state, size))]
        view = self._view
        bars = [patch for shape in pictures.shapes(of, view, state, size) for patch in shape]
        return bars + pictures.ground(of, view, state, size)

    def picture(self, state: Array, values: Array, size: rendering.Size) -> rendering.Frame:
        """The same in colours."""
        if self.renderer == "mujoco":
            return self._rendered(state, size)
        of, view = self.compiled, self._view
        layers = [(pictures.ground(of, view, state, size, 255), (70, 78, 100))]
        bars = pictures.shapes(of, view, state, size, (255,))
        colours = ((250, 200, 90), (240, 150, 80), (215, 105, 90))
        layers += [(shape, colours[i % len(colours)]) for i, shape in enumerate(bars)]
        return rendering.compose(layers, len(state), size)

    def _rendered(self, state: Array, size: rendering.Size) -> rendering.Frame:
        return pictures.rendered(self.compiled, state, size, self.camera)

    @property
    def _view(self) -> pictures.View:
        axes = "xyz".index(self.view_axes[0]), "xyz".index(self.view_axes[1])
        return pictures.View(axes, self.view_width, _body(type(self)), self.view_height)


@cache
def compiled(kind: type[MujocoWorld]) -> Compiled:
    """The compiled and checked model of a kind of world."""
    mj = mujoco(kind.name)
    mapping = edits.declared(kind.name, kind.properties, kind.edits, kind.computed)
    reader = kind.read if kind.reading_names else None
    made = models.compiled(
        mj,
        kind.name,
        kind.model,
        kind.properties,
        mapping,
        reader,
        kind.reading_names,
        kind.post_constraint,
        (compiled, (kind,)),
        kind.computed,
    )
    limited = np.asarray(made.model.actuator_ctrllimited, bool)
    if not limited.all():
        number = int(np.argmin(limited))
        name = edits.names_of(mj, made.model, "mjOBJ_ACTUATOR", "nu")[number] or number
        raise ValueError(f"actuator {name!r} of {kind.name} has no ctrlrange: actions in [-1, 1] span it")
    return made


@lru_cache(maxsize=64)
def _adjusted(kind: type[MujocoWorld], constants: tuple[tuple[str, Any], ...]) -> Compiled:
    """The model of a kind of world with some of its constants."""
    return compiled(kind).adjusted(partial(kind.adjust, constants=dict(constants)), (_adjusted, (kind, constants)))


@cache
def _body(kind: type[MujocoWorld]) -> int:
    of = compiled(kind)
    if isinstance(kind.view_body, int):
        return kind.view_body
    names = edits.names_of(of.mj, of.model, "mjOBJ_BODY", "nbody")
    if kind.view_body not in names:
        raise unknown_name(f"view_body of {kind.name}", kind.view_body, [name for name in names if name])
    return names.index(kind.view_body)


def _state_names(of: Compiled) -> tuple[str, ...]:
    model = of.model
    joints = edits.names_of(of.mj, model, "mjOBJ_JOINT", "njnt")
    spots: list[str] = []
    speeds: list[str] = []
    for number, kind in enumerate(model.jnt_type):
        name = joints[number] or f"joint_{number}"
        turn = ["qw", "qx", "qy", "qz"]
        parts, rates = [
            (["x", "y", "z", *turn], ["x", "y", "z", "roll", "pitch", "yaw"]),
            (turn, ["roll", "pitch", "yaw"]),
            ([""], [""]),
            ([""], [""]),
        ][int(kind)]
        spots += [f"{name}_{part}".rstrip("_") for part in parts]
        speeds += [f"{name}_{rate}".rstrip("_") for rate in rates]
    actions = [f"activation_{i}" for i in range(model.na)]
    warm = [f"{name}_warm_start" for name in speeds] if of.memory > of.physical else []
    return (*spots, *(f"{name}_velocity" for name in speeds), *actions, *warm, *of.reading_names)


def _single_precision(observed: Array) -> NDArray[np.float32]:
    """As float32, C-ordered and new."""
    return observed.astype(np.float32, order="C")
