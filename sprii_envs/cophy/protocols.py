"""What banks of CoPhy hold: a scene, how many objects, which variant and how many pairs; it identifies its bank."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sprii_envs.arguments import check, choice, integer
from sprii_envs.banks import StreamSpec
from sprii_envs.banks.generated import Arrays, GeneratedProtocol, Labels
from sprii_envs.cophy.objects import ABSENT, COLOURS, FRAMES, OBJECTS, PROPERTIES, SCENES, STATE, VARIANTS

SPLITS = ("train", "validation", "test")
VIDEOS = ("ab", "cd")
"""The observed video, and the counterfactual one after an intervention."""

COUNTS: Mapping[tuple[str, int, str], tuple[int, int, int]] = {
    **{("balls", objects, "normal"): (7000, 2000, 1000) for objects in OBJECTS["balls"]},
    ("collision", 2, "normal"): (14000, 4000, 2000),
    ("collision", 2, "moving_cylinder"): (8000, 2120, 2000),
    ("collision", 2, "moving_sphere"): (8000, 1880, 2000),
    ("blocktower", 3, "normal"): (28310, 8088, 4044),
    ("blocktower", 3, "generalization"): (18167, 3206, 2000),
    ("blocktower", 4, "normal"): (23449, 6699, 3349),
    ("blocktower", 4, "generalization"): (14849, 2621, 2000),
}
"""(scene, objects, variant) → published pairs of train, validation and test."""


@dataclass(frozen=True)
class CoPhyProtocol(GeneratedProtocol):
    """Counterfactual pairs of a scene: two videos of the same objects, between them one intervention.

    A pair is a pure function of (seed, scene, objects, variant, its number, and whether it is of a test split that a
    variant holds out); numbers run through the splits. The test split of a variant other than `normal` has what its
    training and validation never had: see `simulation.simulate`.

    Attributes:
        scene: balls, collision or blocktower.
        objects: of each pair: 2 … 6, 2, and 3 or 4.
        variant: which published kind of split; see `objects.VARIANTS`.
        train, validation, test: pairs of each; by default as many as were published.
        seed: of all that is drawn.

    Raises:
        ValueError: for a value that no bank has, naming it.
    """

    scene: str = "balls"
    objects: int = 4
    variant: str = "normal"
    train: int = None  # type: ignore[assignment]  # as many as were published, see `__post_init__`
    validation: int = None  # type: ignore[assignment]
    test: int = None  # type: ignore[assignment]

    name: ClassVar[str] = "cophy"
    together: ClassVar[int] = 8

    def __post_init__(self) -> None:
        """ValueError, see above."""
        check(self, choice, "scene", legal=SCENES)
        legal = OBJECTS[self.scene]
        check(self, integer, "objects", least=legal[0], most=legal[-1])
        check(self, choice, "variant", legal=VARIANTS[self.scene])
        check(self, integer, "seed", most=2**63 - 1)
        for split, count in zip(SPLITS, COUNTS[self.scene, self.objects, self.variant], strict=True):
            if getattr(self, split) is None:
                object.__setattr__(self, split, count)
        check(self, integer, "train", least=1)
        check(self, integer, "validation", "test")

    @property
    def length(self) -> int:
        """Frames of a video."""
        return FRAMES[self.scene]

    @property
    def streams(self) -> Mapping[str, StreamSpec]:
        """States and boxes of both videos."""
        return streams(self.scene)

    def plan(self) -> list[Labels]:
        """Number, scene and split of every pair; what it shows is known when it has been simulated."""
        about = {"scene": self.scene, "objects": self.objects, "variant": self.variant}
        of = [split for split in SPLITS for _ in range(getattr(self, split))]
        return [{"example": str(number), **about, "split": split} for number, split in enumerate(of)]

    def check(self) -> None:
        """PackageImportError without MuJoCo."""
        from sprii_envs.cophy.simulation import world_for

        world_for(self.scene, self.objects).load()

    def episodes(self, rows: Sequence[Labels]) -> tuple[list[Labels], Arrays]:
        """Pairs, simulated, with the boxes of their objects."""
        from sprii_envs.cophy.pictures import boxes
        from sprii_envs.cophy.simulation import simulate

        labels: list[Labels] = []
        parts: list[Arrays] = []
        for held_out, some in groupby(rows, lambda row: self.variant != "normal" and row["split"] == "test"):
            part = list(some)
            numbers = [int(each["example"]) for each in part]
            pairs = simulate(self.scene, self.objects, self.variant, numbers, seed=self.seed, held_out=held_out)
            arrays: dict[str, NDArray[Any]] = {}
            for video, states in zip(VIDEOS, (pairs.ab, pairs.cd), strict=True):
                n, t, k, _ = states.shape
                seen = boxes(self.scene, states.reshape(n * t, k, STATE), kinds_of(states, pairs.kinds))
                arrays |= {f"{video}_states": states, f"{video}_boxes": seen.reshape(n, t, k, 4)}
            properties = np.stack([pairs.mass, pairs.friction, pairs.restitution], axis=-1)
            told = zip(pairs.kinds, properties, pairs.gravity[:, :2], pairs.explanations, strict=True)
            labels += [each | persistent(*values) for each, values in zip(part, told, strict=True)]
            parts.append(arrays)
        return labels, {name: np.concatenate([part[name] for part in parts]) for name in self.streams}

    @property
    def origin(self) -> dict[str, Any]:
        """Told in the manifest."""
        return {
            "kind": "generated",
            "benchmark": "cophy",
            "protocol": asdict(self),
            "simulator": "MuJoCo",
            "ours": ["starts and interventions of Balls and Collision", "contacts", "cameras", "shades"],
        }


def streams(scene: str, frames: int | None = None) -> dict[str, StreamSpec]:
    """Columns of a bank of a scene: `ab_states` (K, 13), `ab_boxes` (K, 4), and `cd_…`; with pictures of that size."""
    slots = len(COLOURS[scene])
    kinds = {"states": StreamSpec((slots, STATE)), "boxes": StreamSpec((slots, 4))}
    kinds |= {} if frames is None else {"frames": StreamSpec((frames, frames, 3), "uint8")}
    return {f"{video}_{name}": spec for video in VIDEOS for name, spec in kinds.items()}


def kinds_of(states: NDArray[np.float32], kinds: NDArray[np.int8]) -> NDArray[np.int8]:
    """Kinds (N·T, K) in the frames (N, T, K, 13) of videos of pairs with kinds (N, K): an object may be taken away."""
    there = (states[..., :3] != 0.0).any(axis=-1)
    return np.where(there, kinds[:, None], np.int8(ABSENT)).reshape(-1, kinds.shape[1])


def persistent(kinds: Any, properties: Any, gravity: Any, explanation: str) -> Labels:
    """Labels of all that persists in a pair, and of what was done between its videos.

    Args:
        kinds: (K,) kind of the object in each slot, -1 where there is none.
        properties: (K, 3) mass, friction and restitution, 0 where there is none.
        gravity: (2,) along x and y.
    """
    labels: Labels = {}
    for slot, (kind, values) in enumerate(zip(kinds, properties, strict=True)):
        labels[f"kind_{slot}"] = int(kind)
        for name, value in zip(PROPERTIES, values, strict=True):
            labels[f"{name}_{slot}"] = float(value)
    labels |= {"gravity_x": float(gravity[0]), "gravity_y": float(gravity[1])}
    there = [
        f"{slot}:{kind}:" + "/".join(f"{value:g}" for value in properties[slot])
        for slot, kind in enumerate(kinds)
        if kind >= 0
    ]
    system = f"{' '.join(there)} g={gravity[0]:g},{gravity[1]:g}"
    return {"system": system, **labels, "explanation": explanation}


def _named(scene: str, objects: int, variant: str) -> str:
    count = str(objects) if len(OBJECTS[scene]) > 1 else ""
    return f"cophy-{scene}{count}" + (f"-{variant.replace('_', '-')}" if variant != "normal" else "")


PROTOCOLS: dict[str, CoPhyProtocol] = {_named(*profile): CoPhyProtocol(*profile) for profile in COUNTS}
"""By the name of `sprii bank build`: cophy-balls2 … cophy-blocktower4-generalization, in the published counts."""
