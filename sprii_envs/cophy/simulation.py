"""Counterfactual pairs: two videos of the same objects and properties, whose starts are one intervention apart.

Row by row a pure function of (seed, scene, objects, variant, row): rows simulate in any order and number, in threads.
"""

import hashlib
import math
import time
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sprii_envs.arguments import choice, flag, integer, shown
from sprii_envs.checks import whole
from sprii_envs.cophy import balls, collision
from sprii_envs.cophy import objects as facts
from sprii_envs.cophy.contacts import Bodies, bodies
from sprii_envs.cophy.objects import (
    ABSENT,
    CUBE,
    CYLINDER_DOWN,
    CYLINDER_UP,
    FRAMES,
    GRAVITY,
    HALF_SIDE,
    RADIUS,
    SPHERE,
    STATE,
    env_id,
)
from sprii_envs.randomness import uniforms
from sprii_envs.registration import world_of
from sprii_envs.world import Array

SYSTEM, START, COLOUR, INTERVENTION = range(4)
"""Streams of a row's uniforms, independent of each other."""
TOGETHER = 128
"""Rows simulated at once; nothing depends on it but memory and time."""
NEARBY = (0.5, 2.0)
"""m; how far a ball is displaced; ours."""
SIDEWAYS = (0.2, 1.0)
"""m; how far Collision's mover is displaced across its path, or its target anywhere; ours."""
CLEAR = 1.25
"""m, between ball and cylinder, at least: a lying cylinder reaches 0.71 m from its middle, a ball 0.5 m."""
TURN = (math.radians(10.0), math.radians(40.0))
"""How far a mover's direction is turned; ours."""
MOVED = (0.1, 2.0)
"""m; how far a cube is moved; as published."""
AWAY = 1000.0
"""m; where a removed cube rests, out of everything's way, to be left out of the states."""


class Pairs(NamedTuple):
    """N counterfactual pairs; K slots, the scene's colours."""

    ab: NDArray[np.float32]
    """(N, T, K, 13): the first video; absent slots are zero."""
    cd: NDArray[np.float32]
    """(N, T, K, 13): the second video; a cube that was removed is zero too."""
    kinds: NDArray[np.int8]
    """(N, K): visible type of each slot, −1 where it is absent."""
    mass: Array
    """(N, K) kg, 0 where absent, as the next two."""
    friction: Array
    restitution: Array
    """(N, K); 0 throughout in Blocktower."""
    gravity: Array
    """(N, 3) m/s²."""
    explanations: tuple[str, ...]
    """What was done between the two, in words: `move color=red by=0.7100,-0.2000,0.0000`, `velocity color=red to=…` or
    `remove color=red`."""


def simulate(
    scene: str, objects: int, variant: str = "normal", rows: ArrayLike = (0,), *, seed: int = 0, held_out: bool = False
) -> Pairs:
    """Pairs of the given rows, each a pure function of (seed, scene, objects, variant, held_out, row).

    Levels are uniform and independent. Slots are distinct, uniform, in no relation to an object's part. `held_out`
    draws what a generalising variant keeps from training: the other mover, the other masses.

    Variants: Collision's `moving_cylinder` and `moving_sphere` say which of the two moves; `normal` has both.
    Blocktower's `generalization` has towers with an even number of heavy cubes, and held out those with an odd one, so
    that every level of every cube is seen and half of the combinations; which ones, nobody published: this is ours.

    Raises ValueError for a scene, a number of objects, a variant, rows or a seed that is none, and for `held_out` of a
    variant that holds nothing out; PackageImportError without MuJoCo.
    """
    world, row = _checked(scene, objects, variant, rows, seed, held_out)
    parts = [_simulated(world, variant, row[i : i + TOGETHER], seed, held_out) for i in range(0, len(row), TOGETHER)]
    arrays = [np.concatenate(column) for column in list(zip(*parts, strict=True))[:-1]]
    return Pairs(*arrays, tuple(text for part in parts for text in part.explanations))  # type: ignore[arg-type]


def rate(scene: str, objects: int, variant: str = "normal", *, rows: int = TOGETHER) -> float:
    """Pairs simulated a second on this machine, the first of seed 0."""
    simulate(scene, objects, variant, range(2))
    begun = time.perf_counter()
    simulate(scene, objects, variant, range(integer("rows", rows, least=1)))
    return rows / (time.perf_counter() - begun)


def systems(world: Bodies, variant: str, u: Array, held_out: bool = False) -> Array:
    """Property values (n, F) of a variant at the published levels, from uniforms (n, F)."""
    values = world.groups["levels"].from_uniforms(u)
    if variant == "generalization":
        # The parity of heavy cubes decides; the last cube's mass follows from the others', so nothing is rejected.
        k = len(world.shapes)
        light, heavy = facts.LEVELS["blocktower"]["mass"]
        odd = (values[:, : k - 1] == heavy).sum(axis=1) % 2 == 1
        values[:, k - 1] = np.where(odd != held_out, heavy, light)
    return values


def world_for(scene: str, objects: int) -> Bodies:
    """The world of a scene with so many objects; ValueError as of `env_id`."""
    kind = world_of(env_id(scene, objects))
    assert kind is not None
    assert issubclass(kind, Bodies)
    return kind()


def _checked(
    scene: str, objects: int, variant: str, rows: ArrayLike, seed: int, held_out: bool
) -> tuple[Bodies, NDArray[np.uint64]]:
    world = world_for(scene, objects)
    choice(f"variant of {scene}", variant, legal=facts.VARIANTS[scene])
    if flag("held_out", held_out) and variant == "normal":
        raise ValueError(f"held_out of {scene}'s variant 'normal' is True; legal: False, as it holds nothing out")
    integer("seed", seed, most=2**63 - 1)
    legal = "legal: whole numbers from 0 on, (N,), at least one"
    try:
        given = whole(rows)
    except TypeError as error:
        raise ValueError(f"rows is {shown(rows)}; {legal}") from error
    if given.ndim != 1 or not given.size or (given < 0).any():
        raise ValueError(f"rows is {shown(rows)}; {legal}")
    world.load()
    return world, given.astype(np.uint64)


def _simulated(world: Bodies, variant: str, rows: NDArray[np.uint64], seed: int, held_out: bool) -> Pairs:
    scene, k, n = world.scene, len(world.shapes), len(rows)
    colours = facts.COLOURS[scene]
    named = f"{seed} {scene} {k} {variant} {held_out}".encode()
    key = np.full(n, int.from_bytes(hashlib.sha256(named).digest()[:8], "little"), np.uint64)

    def draw(count: int, stream: int) -> Array:
        return uniforms(key, rows, count, stream)

    values = systems(world, variant, draw(len(world.properties), SYSTEM), held_out)
    query = None
    if scene == "collision" and variant != "normal":
        query = next(v for v in world.queries if (v == variant) != held_out)
    begun = world.initial(draw(world.start_draws, START), values, query)
    slots = np.argsort(draw(len(colours), COLOUR), axis=1, kind="stable")[:, :k]
    change = _INTERVENTIONS[scene](bodies(begun), draw(_DRAWS, INTERVENTION))
    other = _changed(begun, change)

    still = [np.zeros((2 * n, world.action_size))] * (FRAMES[scene] - 1)
    states = world.trajectory(np.concatenate([begun, other]), still, world.prepare(np.concatenate([values, values])))
    assert states is not None
    frames = bodies(states.reshape(-1, states.shape[-1])).reshape(2, n, FRAMES[scene], k, STATE)
    gone = change.removed[:, None] & (np.arange(k) == change.object[:, None])
    frames[1] *= ~gone[:, None, :, None]

    def spread(of: Array, fill: float = 0.0) -> Array:
        """What objects have, (n, ..., K, ...), in slots: axis 1 of (n, K)."""
        out = np.full((n, len(colours)), fill)
        np.put_along_axis(out, slots, of, axis=1)
        return out

    videos = np.zeros((2, n, FRAMES[scene], len(colours), STATE), np.float32)
    for i in range(k):
        videos[:, np.arange(n), :, slots[:, i]] = frames[:, :, :, i].transpose(1, 0, 2, 3)
    gravity = np.full((n, 3), (0.0, 0.0, GRAVITY))
    if scene == "blocktower":
        gravity[:, :2] = values[:, 2 * k :]
    restitution = values[:, 2 * k : 3 * k] if world.rebounds else np.zeros((n, k))
    return Pairs(
        ab=videos[0],
        cd=videos[1],
        kinds=spread(_kinds(world, frames[0, :, 0]), ABSENT).astype(np.int8),
        mass=spread(values[:, :k]),
        friction=spread(values[:, k : 2 * k]),
        restitution=spread(restitution),
        gravity=gravity,
        explanations=tuple(
            change.told(row, colours[slots[row, which]]) for row, which in enumerate(change.object.tolist())
        ),
    )


def _kinds(world: Bodies, start: Array) -> Array:
    """Visible types (n, K) of bodies that start so, (n, K, 13)."""
    up = 1.0 - 2.0 * (start[..., 3] ** 2 + start[..., 4] ** 2) > 0.5  # the own z axis along the world's
    of = {"sphere": (SPHERE, SPHERE), "cylinder": (CYLINDER_DOWN, CYLINDER_UP), "box": (CUBE, CUBE)}
    down, upright = np.array([of[shape] for shape in world.shapes], np.float64).T
    return np.where(up, upright, down)


class _Change(NamedTuple):
    """One intervention a row."""

    object: NDArray[np.intp]
    by: Array
    """(n, 3) m, of the place."""
    velocity: Array
    """(n, 3) m/s, from now on; NaN where it stays."""
    removed: NDArray[np.bool_]

    def told(self, row: int, colour: str) -> str:
        """In words."""
        if self.removed[row]:
            return f"remove color={colour}"
        moves = np.isnan(self.velocity[row, 0])
        numbers = ",".join(f"{x:.4f}" for x in (self.by if moves else self.velocity)[row] + 0.0)
        return f"move color={colour} by={numbers}" if moves else f"velocity color={colour} to={numbers}"


def _changed(begun: Array, change: _Change) -> Array:
    """The starts (n, 13 K) after the intervention."""
    state = begun.copy(order="F")
    k, row = state.shape[1] // STATE, np.arange(len(state))
    for axis in range(3):
        place, speed = 7 * change.object + axis, 7 * k + 6 * change.object + axis
        state[row, place] += change.by[:, axis]
        new = change.velocity[:, axis]
        state[row, speed] = np.where(np.isnan(new), state[row, speed], new)
    state[row, 7 * change.object] += AWAY * change.removed
    state[row, 7 * change.object + 2] = np.where(change.removed, HALF_SIDE, state[row, 7 * change.object + 2])
    return state


_DRAWS = 2 + 2 * balls.TRIES + 2
"""Uniforms of an intervention: its kind, its object, ways of displacing it, a new velocity."""


def _ways(u: Array, least: float, most: float) -> Array:
    """Displacements (n, tries, 2) in any direction, of lengths in [least, most], from uniforms (n, 2 tries)."""
    pairs = u.reshape(len(u), -1, 2)
    angle, length = 2.0 * math.pi * pairs[..., 0], least + (most - least) * pairs[..., 1]
    return length[..., None] * np.stack([np.cos(angle), np.sin(angle)], axis=-1)


def _level(by: Array) -> Array:
    """(n, 2) as (n, 3)."""
    return np.concatenate([by, np.zeros((len(by), 1))], axis=1)


def _balls(start: Array, u: Array) -> _Change:
    """Displace one ball to a free place, or give it another velocity."""
    n, k = start.shape[:2]
    row, which = np.arange(n), np.minimum((u[:, 1] * k).astype(np.intp), k - 1)
    place = start[row, which, :2]
    ways = _ways(u[:, 2:-2], *NEARBY)
    spots = place[:, None] + ways
    apart = spots[:, :, None] - start[:, None, :, :2]
    distance = np.sqrt((apart * apart).sum(axis=-1))
    distance[row, :, which] = np.inf
    good = (np.abs(spots) <= balls.REACH).all(axis=-1) & (distance.min(axis=-1) >= 2.0 * RADIUS + balls.GAP)
    moves = (u[:, 0] < 0.5) & good.any(axis=1)
    by = ways[row, good.argmax(axis=1)] * moves[:, None]
    velocity = _level(balls.SPEED * (2.0 * u[:, -2:] - 1.0))
    velocity[moves] = np.nan
    return _Change(which, _level(by), velocity, np.zeros(n, np.bool_))


def _collision(start: Array, u: Array) -> _Change:
    """Displace the mover across its path, turn its direction, or displace the target."""
    n, row = len(start), np.arange(len(start))
    mover = np.where((start[:, collision.CYLINDER, 7:9] != 0.0).any(axis=1), collision.CYLINDER, collision.BALL)
    velocity = start[row, mover, 7:9]
    what = np.minimum((3.0 * u[:, 0]).astype(np.intp), 2)
    side = np.where(u[:, 1] < 0.5, -1.0, 1.0)
    least, most = SIDEWAYS
    across = np.stack([-velocity[:, 1], velocity[:, 0]], axis=1) / np.sqrt((velocity**2).sum(axis=1))[:, None]
    across = across * (side * (least + (most - least) * u[:, -2]))[:, None]
    angle = side * (TURN[0] + (TURN[1] - TURN[0]) * u[:, -1])
    c, s = np.cos(angle), np.sin(angle)
    turned = np.stack([c * velocity[:, 0] - s * velocity[:, 1], s * velocity[:, 0] + c * velocity[:, 1]], axis=1)
    ways = _ways(u[:, 2:-2], *SIDEWAYS)
    apart = start[row, 1 - mover, None, :2] + ways - start[row, mover, None, :2]
    distance = np.sqrt((apart * apart).sum(axis=-1))
    away = ways[row, np.where((clear := distance >= CLEAR).any(axis=1), clear.argmax(axis=1), distance.argmax(axis=1))]
    by = np.where(what[:, None] == 0, across, np.where(what[:, None] == 2, away, 0.0))
    new = _level(turned)
    new[what != 1] = np.nan
    return _Change(np.where(what == 2, 1 - mover, mover), _level(by), new, np.zeros(n, np.bool_))


def _blocktower(start: Array, u: Array) -> _Change:
    """Move any cube sideways, or remove the top one: all K + 1 as likely."""
    n, k = start.shape[:2]
    which = np.minimum((u[:, 0] * (k + 1)).astype(np.intp), k)
    removed = which == k
    by = _ways(u[:, 2:4], *MOVED)[:, 0] * ~removed[:, None]
    return _Change(np.minimum(which, k - 1), _level(by), np.full((n, 3), np.nan), removed)


_INTERVENTIONS = {"balls": _balls, "collision": _collision, "blocktower": _blocktower}
"""Scene → the intervention of rows that start so, (n, K, 13), from uniforms (n, `_DRAWS`)."""
