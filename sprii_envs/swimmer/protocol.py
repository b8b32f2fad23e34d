"""A bank of segments: systems by scrambled Sobol, each from several draws of starts and noise, under every waveform."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sprii_envs import files
from sprii_envs.arguments import check, instance, integer, number
from sprii_envs.banks import RecordedBank, StreamSpec
from sprii_envs.banks.generated import Arrays, GeneratedProtocol, Labels, Progress, build_generated
from sprii_envs.dependencies import needed
from sprii_envs.mujoco.swimmer import Swimmer
from sprii_envs.swimmer.waves import HISTORIES, QUERIES, RMS, torques
from sprii_envs.world import rollout

SPLITS = ("train", "selection", "prospective")
OBSERVED, CLEAN, ACTED = "observed", "clean", "actions"
"""Columns: observations at the start and at four landmarks with noise and without, actions that led to landmarks."""
CANDIDATES = HISTORIES
"""What the second history of a pair is driven by: the waveforms of the first, from starts of its own."""
LANDMARKS = 4

WORLD: Mapping[str, Any] = {
    **{"fluid_density": 0.35, "fluid_viscosity": 0.08, "joint_damping": 0.18, "root_damping": 0.02},
    **{"torque_limit": 1.0, "integrator": "RK4", "dt": 0.01},
}
"""Constants of the world: the fluid of `fluid="bank"`; a gear of 1, so that an action of 1 is 1 N·m; no frame skip."""
_SPANS = np.array([0.25, 0.45, 0.45, *[0.20] * 5])
"""Starts are uniform in ±: root angle, joints (rad); five velocities (m/s, rad/s)."""


@dataclass(frozen=True)
class SegmentProtocol(GeneratedProtocol):
    """Segments of systems; an episode is a system under one draw, and each of its entries is one segment.

    Entries are the segments of `HISTORIES`, then `CANDIDATES`, then `QUERIES`. A segment is a function of (seed,
    split, system, draw) and its place; systems are a function of the split's seed, however many draws there are.

    Attributes:
        train, selection, prospective: systems of each split.
        draws: of starts and noise, of every system.
        steps: of 0.01 s in a segment, a multiple of 4.
        noise: SD of what is added to every observed number, rad, m/s and rad/s.
        rms: of the torques, see `torques`.
        train_seed, selection_seed, prospective_seed: of the scrambled Sobol sequences that systems are.
        seed: of starts and noise.

    Raises:
        ValueError: for a value that no bank has, naming it.
    """

    train: int = 2048
    selection: int = 256
    prospective: int = 512
    draws: int = 4
    steps: int = 40
    noise: float = 0.0125
    rms: float = RMS
    train_seed: int = 88101
    selection_seed: int = 88201
    prospective_seed: int = 89101

    name: ClassVar[str] = "swimmer-segments"
    together: ClassVar[int] = 32

    def __post_init__(self) -> None:
        """ValueError, see above."""
        check(self, integer, *SPLITS, least=2)
        check(self, integer, "draws", least=1)
        check(self, integer, "steps", least=LANDMARKS)
        check(self, integer, "seed", *(f"{split}_seed" for split in SPLITS), most=2**63 - 1)
        check(self, number, "noise", least=0)
        if self.steps % LANDMARKS:
            raise ValueError(f"SegmentProtocol.steps is {self.steps}; legal: multiples of {LANDMARKS}")
        seeds = [getattr(self, f"{split}_seed") for split in SPLITS]
        if len(set(seeds)) < len(seeds):
            raise ValueError(f"seeds of splits are {seeds}; legal: three that differ, or their systems would coincide")
        for name in (*HISTORIES, *CANDIDATES, *QUERIES):  # the highest peak is another's for few steps
            torques(name, steps=self.steps, rms=self.rms)

    @property
    def length(self) -> int:
        """Segments of a system under one draw."""
        return len(HISTORIES) + len(CANDIDATES) + len(QUERIES)

    @property
    def streams(self) -> Mapping[str, StreamSpec]:
        """See `OBSERVED`, `CLEAN` and `ACTED`."""
        seen = StreamSpec((1 + LANDMARKS, 8))
        return {OBSERVED: seen, CLEAN: seen, ACTED: StreamSpec((LANDMARKS, 2))}

    def check(self) -> None:
        """PackageImportError without MuJoCo or scipy."""
        Swimmer(**WORLD).load()
        scales(2, self.train_seed)

    def plan(self) -> list[Labels]:
        """Split, system, draw and scales of every episode."""
        found: list[Labels] = []
        first = 0
        for split in SPLITS:
            count = getattr(self, split)
            for i, values in enumerate(scales(count, getattr(self, f"{split}_seed"))):
                about = {"split": split, "system": first + i} | dict(
                    zip(Swimmer.properties.names, values.tolist(), strict=True)
                )
                found += [about | {"rollout": draw} for draw in range(self.draws)]
            first += count
        return found

    def episodes(self, rows: Sequence[Labels]) -> tuple[list[Labels], Arrays]:
        """Segments of some systems, every one rolled out at once."""
        world, kinds = Swimmer(**WORLD), (*HISTORIES, *CANDIDATES, *QUERIES)
        acted = np.stack([torques(kind, steps=self.steps, rms=self.rms) for kind in kinds])
        n, k = len(rows), len(kinds)
        starts, noise = np.zeros((n, k, 10)), np.empty((n, k, 1 + LANDMARKS, 8))
        for i, row in enumerate(rows):
            rng = np.random.default_rng([self.seed, row["system"], row["rollout"], SPLITS.index(row["split"])])
            # Rounded as it is recorded, so that the recorded start and torques give the recorded segment exactly.
            starts[i, :, 2:] = (_SPANS * rng.uniform(-1.0, 1.0, (k, 8))).astype(np.float32)
            noise[i] = self.noise * rng.standard_normal((k, 1 + LANDMARKS, 8))
        values = np.array([[row[name] for name in Swimmer.properties.names] for row in rows])
        done = rollout(world, np.repeat(values, k, axis=0), starts.reshape(n * k, 10), np.tile(acted, (n, 1, 1)))
        landmarks = np.linspace(0, self.steps, 1 + LANDMARKS).astype(int)
        clean = done.states.reshape(n, k, self.steps + 1, 10)[:, :, landmarks, 2:]
        at = np.broadcast_to(acted[:, landmarks[1:] - 1], (n, k, LANDMARKS, 2))
        arrays: dict[str, NDArray[Any]] = {OBSERVED: clean + noise, CLEAN: clean, ACTED: at}
        return list(rows), {name: array.astype(np.float32) for name, array in arrays.items()}

    @property
    def origin(self) -> dict[str, Any]:
        """Told in the manifest."""
        return {
            "kind": "generated",
            "benchmark": self.name,
            "protocol": asdict(self),
            "world": dict(WORLD),
            "histories": list(HISTORIES),
            "candidates": list(CANDIDATES),
            "queries": list(QUERIES),
            "simulator": "MuJoCo",
        }


def scales(count: int, seed: int) -> NDArray[np.float64]:
    """Five scales (count, 5) of systems, linear in the declared ranges, a scrambled Sobol sequence.

    Raises:
        PackageImportError: without scipy.
    """
    with needed("Swimmer's systems need scipy", "scipy", "scipy"):
        from scipy.stats import qmc
    properties = Swimmer.properties
    sequence = qmc.Sobol(len(properties), scramble=True, rng=seed)
    uniform = sequence.random_base2(max(1, (count - 1).bit_length()))[:count]
    return properties.low + (properties.high - properties.low) * uniform


def build_segments(
    protocol: SegmentProtocol, path: files.StrPath, *, workers: int = 1, progress: Progress | None = None
) -> RecordedBank:
    """Build the bank of `protocol` at `path`, or open it if it is there already; see `build_generated`.

    One worker has MuJoCo's threads on every core.

    Raises:
        ValueError: for another protocol, or no number of workers.
        StoreError: as `build_generated`.
    """
    return build_generated(instance("protocol", protocol, of=SegmentProtocol), path, workers=workers, progress=progress)
