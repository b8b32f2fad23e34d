"""Pictures, masks and boxes of CoPhy's scenes from the states of their objects, by our ray caster."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sprii_envs import raycasting
from sprii_envs.arguments import choice
from sprii_envs.checks import reals, whole
from sprii_envs.cophy import objects
from sprii_envs.raycasting import Camera, Solids
from sprii_envs.rendering import Frame

CAMERAS: Mapping[str, Camera] = {
    "balls": Camera((0.0, 0.01, 8.0), (0.0, 0.0, 0.0)),
    "collision": Camera((0.0, -6.0, 6.0), (0.0, 0.0, 0.0)),
    "blocktower": Camera((0.0, -7.0, 4.5), (0.0, 0.0, 1.5)),
}
"""Scene → camera. Blocktower's is the published one, Balls' eye that of FilteredCoPhy; the rest is ours.

Balls is seen from above with x to the left and y down; its walls are at the picture's edges and are not drawn.
"""

SIDE = 224
"""Pixels of the pictures that boxes are told in."""

_FORMS: Mapping[int, tuple[int, tuple[float, float, float]]] = {
    objects.ABSENT: (raycasting.NOTHING, (0.0, 0.0, 0.0)),
    objects.SPHERE: (raycasting.SPHERE, (objects.RADIUS, 0.0, 0.0)),
    objects.CYLINDER_UP: (raycasting.CYLINDER, (objects.RADIUS, objects.HALF_HEIGHT, 0.0)),
    objects.CYLINDER_DOWN: (raycasting.CYLINDER, (objects.RADIUS, objects.HALF_HEIGHT, 0.0)),
    objects.CUBE: (raycasting.BOX, (objects.HALF_SIDE, objects.HALF_SIDE, objects.HALF_SIDE)),
}


def pictures(scene: str, states: ArrayLike, kinds: ArrayLike, size: int | Sequence[int] = 112) -> Frame:
    """Pictures (N, size, size, 3) uint8 of states (N, K, 13) and kinds (N, K) in colour slots.

    A slot holds nothing where its kind is −1 or its state all zeros, as of an object that an intervention took away.
    Each pixel is the mean of 2 × 2 rays, as upstream's 448-pixel pictures made smaller. They depend on places,
    rotations, kinds and slots alone. ValueError for an unknown scene, a shape that does not fit, an unknown kind or a
    state that is not finite.
    """
    palette = [objects.PALETTE[colour] for colour in objects.COLOURS[choice("scene", scene, legal=objects.SCENES)]]
    return raycasting.render(_solids(scene, states, kinds), palette, CAMERAS[scene], size, samples=2)


def masks(scene: str, states: ArrayLike, kinds: ArrayLike, size: int | Sequence[int] = 112) -> NDArray[np.int8]:
    """The slot that each pixel's centre sees, (N, size, size), −1 where none; arguments and errors as of `pictures`."""
    return raycasting.cast(_solids(scene, states, kinds), CAMERAS[scene], size).solid


def boxes(scene: str, states: ArrayLike, kinds: ArrayLike, size: int | Sequence[int] = SIDE) -> NDArray[np.float32]:
    """Boxes (N, K, 4) of each slot's visible pixels: x1, y1, x2, y2 of their outer edges, in pixels of 224.

    Zeros for an object that is absent, out of the picture or hidden entirely; every other box has x1 < x2 and y1 < y2.
    `size` is that of the masks they are read from: smaller ones are faster and coarser. Else as `pictures`.
    """
    seen = masks(scene, states, kinds, size)
    slots = len(objects.COLOURS[scene])
    # One bit a slot, so that one reduction along each side serves all slots.
    bits = np.append(1 << np.arange(slots), 0).astype(np.uint16)[seen]
    found = np.zeros((len(seen), slots, 4), np.float32)
    for axis, side in ((1, seen.shape[2]), (2, seen.shape[1])):
        there = (np.bitwise_or.reduce(bits, axis=axis)[:, None] >> np.arange(slots, dtype=np.uint16)[:, None]) & 1
        scale = SIDE / side
        found[:, :, axis - 1] = there.argmax(axis=2) * scale
        found[:, :, axis + 1] = (side - there[:, :, ::-1].argmax(axis=2)) * scale
        found[~there.any(axis=2)] = 0.0
    return found


def _solids(scene: str, states: ArrayLike, kinds: ArrayLike) -> Solids:
    slots = len(objects.COLOURS[choice("scene", scene, legal=objects.SCENES)])
    told, kind = reals(states, np.float64), whole(kinds)
    if told.ndim != 3 or told.shape[1:] != (slots, objects.STATE) or kind.shape != told.shape[:2]:
        raise ValueError(
            f"states and kinds of {scene} are of shapes {told.shape} and {kind.shape}; "
            f"legal: (N, {slots}, {objects.STATE}) and (N, {slots})"
        )
    legal = sorted(_FORMS)
    if not np.isin(kind, legal).all():
        raise ValueError(f"kinds are {np.unique(kind).tolist()}; legal: {legal}")
    kind = np.where((told == 0.0).all(axis=2), objects.ABSENT, kind)
    form = np.array([_FORMS[k][0] for k in legal])[kind - legal[0]]
    extent = np.array([_FORMS[k][1] for k in legal])[kind - legal[0]]
    return Solids(form, told[:, :, :3], told[:, :, 3:7], extent)
