"""The facts of CoPhy's scenes: what is in them, in which colours and shapes, with which levels, for how long."""

from collections.abc import Mapping

from sprii_envs.arguments import choice
from sprii_envs.checks import is_integer

SCENES: tuple[str, ...] = ("balls", "collision", "blocktower")
OBJECTS: Mapping[str, tuple[int, ...]] = {"balls": (2, 3, 4, 5, 6), "collision": (2,), "blocktower": (3, 4)}
"""Scene → how many objects it may have."""
VARIANTS: Mapping[str, tuple[str, ...]] = {
    "balls": ("normal",),
    "collision": ("normal", "moving_cylinder", "moving_sphere"),
    "blocktower": ("normal", "generalization"),
}
"""Scene → the published kinds of split."""

COLOURS: Mapping[str, tuple[str, ...]] = {
    "balls": ("red", "green", "blue", "yellow", "lime", "purple", "orange", "cyan", "magenta"),
    "collision": ("yellow", "green", "blue", "red"),
    "blocktower": ("red", "green", "blue", "yellow"),
}
"""Scene → its colours; an object's place in the list is its slot, in the published order."""
PALETTE: Mapping[str, tuple[int, int, int]] = {
    "red": (214, 39, 40),
    "green": (30, 130, 50),
    "blue": (40, 80, 220),
    "yellow": (240, 220, 50),
    "lime": (120, 230, 60),
    "purple": (120, 40, 160),
    "orange": (255, 140, 20),
    "cyan": (60, 210, 230),
    "magenta": (240, 60, 200),
}
"""Colour → red, green, blue, 0 … 255; the shades are ours."""

SPHERE, CYLINDER_UP, CYLINDER_DOWN, CUBE = range(4)
ABSENT = -1
KINDS: tuple[str, ...] = ("sphere", "cylinder_up", "cylinder_down", "cube")
"""Visible types, by number; both cylinders have their axis along the body's own z, which lies level in the second."""
RADIUS = 0.5
"""m, of spheres and cylinders; FilteredCoPhy's ball."""
HALF_HEIGHT = 0.5
"""m, from a cylinder's middle to its ends; ours."""
HALF_SIDE = 0.5
"""m, of cubes, which are of unit side."""
WALL = 4.3
"""m, from the middle of Balls' court to the inner faces of its four walls; FilteredCoPhy's."""

PROPERTIES: tuple[str, ...] = ("mass", "friction", "restitution")
"""Of every object, in the order of the published confounders."""
LEVELS: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    "balls": {"mass": (1.0, 2.0, 5.0), "friction": (0.1, 0.5, 1.0), "restitution": (0.1, 0.5, 1.0)},
    "collision": {"mass": (1.0, 2.0, 5.0), "friction": (0.1, 0.5, 1.0), "restitution": (0.1, 0.5, 1.0)},
    "blocktower": {
        "mass": (1.0, 10.0),
        "friction": (0.5, 1.0),
        "gravity_x": (-0.5, 0.0, 0.5),
        "gravity_y": (-0.5, 0.0, 0.5),
    },
}
"""Scene → property → its published levels; kg, 1, 1 and m/s². What is not there does not vary."""
GRAVITY = -10.0
"""m/s², along z, in every scene."""

INTERVAL = 0.2
"""s between frames."""
FRAMES: Mapping[str, int] = {"balls": 30, "collision": 15, "blocktower": 30}
"""Scene → frames of a video."""
QUERY = 3
"""Frames of the counterfactual video that are seen; the rest is to be predicted."""
STATE = 13
"""Numbers of an object's state: position 3, quaternion x, y, z, w, linear velocity 3, angular velocity 3, of the world.

Slots without an object are zero throughout.
"""


def env_id(scene: str, objects: int) -> str:
    """The registered environment of a scene with so many objects; ValueError for a scene or a number that is none."""
    choice("scene", scene, legal=SCENES)
    if not is_integer(objects) or objects not in OBJECTS[scene]:
        raise ValueError(f"objects of {scene} is {objects!r}; legal: {', '.join(map(str, OBJECTS[scene]))}")
    usual = {"balls": 4, "collision": 2, "blocktower": 3}[scene]
    return f"sprii/CoPhy{scene.capitalize()}{'' if objects == usual else objects}-v0"
