"""Published tactile recordings of Baxter's gripper, read into a bank (Amin et al., CC BY 4.0; `app:baxter-profile`).

Dataset/{Cubes,Cylinders}/80_Samples/{0,1,2}/*<id>.csv   80 rows × 16 columns without a header, a grasp's peak

The folders of 40 samples hold other windows of the same grasps and are never read.
"""

import hashlib
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sprii_envs import files
from sprii_envs.arguments import choice, integer, integers
from sprii_envs.banks import RecordedBank, Recording, StreamSpec, storage
from sprii_envs.banks.generated import Episodes, Labels, Progress, PublishedError, record_episodes

TACTILE = "tactile"
"""The column: an entry a sample."""
SAMPLES, TAXELS = 80, 16
GRASPS = 170
"""Of each configuration."""
HARDNESS: Mapping[str, tuple[float, float, float]] = {"cube": (4.13, 8.52, 12.21), "cylinder": (4.62, 8.22, 12.07)}
"""Shape → measured hardness of the levels 0, 1 and 2."""
CONFIGURATIONS = tuple((shape, level) for shape, levels in HARDNESS.items() for level in range(len(levels)))
SPLITS = ("train", "validation", "confirmation")
COUNTS = (110, 30, 30)
"""Grasps of the splits, the same ones in every configuration."""
SPLIT_SEED = 20_260_822

FOLDERS = {"cube": "Cubes", "cylinder": "Cylinders"}
LAYOUT = "grasps lie in Dataset/{Cubes,Cylinders}/80_Samples/{0,1,2}/*<id>.csv"
_ID = re.compile(r"(\d+)\.csv$", re.IGNORECASE)
_LARGEST = 1 << 20  # bytes: a grasp has a few ten thousand


def streams() -> dict[str, StreamSpec]:
    """The columns of a bank of grasps."""
    return {TACTILE: StreamSpec((TAXELS,))}


def grasp_labels(shape: str, level: int, grasp: int, split: str) -> Labels:
    """Of an episode: its system is the configuration."""
    told = {"system": f"{shape}-{level}", "shape": shape, "level": level, "hardness": HARDNESS[shape][level]}
    return {**told, "grasp": grasp, "split": split}


def split_grasps(ids: Iterable[int], counts: tuple[int, ...] = COUNTS, seed: int = SPLIT_SEED) -> dict[int, str]:
    """Grasp → split: one permutation of the sorted ids, which every configuration shares.

    Raises:
        ValueError: for ids that are not as many as `counts` says.
    """
    counts = integers("counts", counts, least=1)
    known = sorted(set(ids))
    if len(counts) != len(SPLITS) or sum(counts) != len(known):
        raise ValueError(f"counts is {counts}; legal: grasps of {', '.join(SPLITS)}, {len(known)} in all")
    drawn = np.random.default_rng(integer("seed", seed)).permutation(known)
    names = np.repeat(SPLITS, counts)
    return {int(grasp): str(name) for grasp, name in zip(drawn, names, strict=True)}


def import_baxter(
    root: files.StrPath,
    path: files.StrPath,
    *,
    counts: tuple[int, ...] = COUNTS,
    damaged: str = "error",
    progress: Progress | None = None,
) -> RecordedBank:
    """Read the published grasps into a bank at `path`, or open it if it is there already.

    A file is read at a time, and after a kill the same call goes on. The split is of all ids that the names of the
    files tell, so that a damaged file moves no other grasp. A CSV file whose name tells no id is no grasp; it is listed
    in `notes["dropped"]`.

    Args:
        root: the folder that holds `Dataset/`, or that folder itself.
        counts: grasps of training, validation and confirmation.
        damaged: "error", or "drop": leave such grasps out, and list them with reasons in `notes["dropped"]`.
        progress: (done, total) grasps.

    Raises:
        ValueError: for arguments that are not legal.
        PublishedError: naming the file or folder that is missing or damaged, or how many grasps there are where
            `counts` says another number; nothing is left at `path` then.
        StoreError: for a path that holds another bank.
    """
    drop = choice("damaged", damaged, legal=("error", "drop")) == "drop"
    counts = integers("counts", counts, least=1)
    if len(counts) != len(SPLITS):
        raise ValueError(f"counts is {counts}; legal: grasps of {', '.join(SPLITS)}")
    base = files.absolute(root)
    base = base / "Dataset" if (base / "Dataset").is_dir() else base
    found = _Found.under(base)
    ids = sorted({grasp for by_id in found.grasps.values() for grasp in by_id})
    if len(ids) != sum(counts):
        told = f"{ids[0]} to {ids[-1]}" if ids else "none"
        raise PublishedError(f"{base} holds grasps of {len(ids)} ids ({told}), expected {sum(counts)}")
    split = split_grasps(ids, counts)
    wanted = [(*configuration, grasp) for configuration in CONFIGURATIONS for grasp in ids]

    def episodes(recording: Recording) -> Episodes:
        dropped = dict(found.odd)
        done = {(row["shape"], row["level"], row["grasp"]) for row in recording.rows}
        for shape, level, grasp in wanted:
            if (shape, level, grasp) not in done:
                try:
                    samples = found.read(shape, level, grasp)
                except PublishedError as error:
                    if not drop:
                        raise PublishedError(f"{error}; damaged='drop' (--drop) leaves such grasps out") from error
                    dropped[f"{shape}-{level}, grasp {grasp}"] = str(error)
                    continue
                yield grasp_labels(shape, level, grasp, split[grasp]), {TACTILE: samples}
        recording.notes |= {"dropped": dropped} if dropped else {}

    origin = {
        "kind": "published",
        "benchmark": "baxter",
        "samples": SAMPLES,
        "counts": list(counts),
        "split_seed": SPLIT_SEED,
        "damaged": damaged,
        "files": found.digest(),
    }
    columns = streams()
    size = len(wanted) * SAMPLES * sum(spec.entry_bytes for spec in columns.values())
    try:
        return record_episodes(path, columns, origin, len(wanted), size, episodes, progress)
    except PublishedError:  # mended files are another origin, which could not go on behind these
        shutil.rmtree(storage.partial_path(files.absolute(path)), ignore_errors=True)
        raise


@dataclass(frozen=True)
class _Found:
    """Files by configuration and grasp, and those whose names tell no grasp, with the reason."""

    base: Path
    grasps: Mapping[tuple[str, int], Mapping[int, list[Path]]]
    odd: Mapping[str, str]

    @classmethod
    def under(cls, base: Path) -> "_Found":
        """PublishedError for a configuration without a folder or without files."""
        grasps: dict[tuple[str, int], dict[int, list[Path]]] = {}
        odd: dict[str, str] = {}
        for shape, level in CONFIGURATIONS:
            folder = _folder(base, shape, level)
            by_id = grasps.setdefault((shape, level), {})
            try:
                names = sorted(folder.glob("[!.]*.[cC][sS][vV]"))
            except OSError as error:
                raise PublishedError(f"{folder} cannot be read: {error.strerror}") from error
            for file in names:
                if match := _ID.search(file.name):
                    by_id.setdefault(int(match[1]), []).append(file)
                else:
                    odd[file.relative_to(base).as_posix()] = f"{file} has no number of a grasp at the end of its name"
            if not by_id:
                raise PublishedError(f"{folder} {'holds no grasp' if folder.is_dir() else 'is missing'}; {LAYOUT}")
        return cls(base, grasps, odd)

    def digest(self) -> str:
        """SHA-256 of names and contents."""
        whole = hashlib.sha256()
        for file in sorted(file for by_id in self.grasps.values() for each in by_id.values() for file in each):
            try:
                told = files.checksum(file)
            except OSError:  # told of when it is read
                told = "unreadable"
            whole.update(f"{file.relative_to(self.base).as_posix()} {told}\n".encode())
        return whole.hexdigest()

    def read(self, shape: str, level: int, grasp: int) -> NDArray[np.float32]:
        """Samples (80, 16) of a grasp; PublishedError for none, two files of it, or a damaged one."""
        there = self.grasps[shape, level].get(grasp, [])
        if not there:
            raise PublishedError(f"{_folder(self.base, shape, level)} holds no file of the grasp {grasp}")
        if len(there) > 1:
            raise PublishedError(f"{there[0]} and {there[1].name} are both of the grasp {grasp}; keep one of them")
        return read_grasp(there[0])


def _folder(base: Path, shape: str, level: int) -> Path:
    return base / FOLDERS[shape] / f"{SAMPLES}_Samples" / str(level)


def read_grasp(file: Path) -> NDArray[np.float32]:
    """Samples (80, 16), float32, of one file, UTF-8 or UTF-16, with lines of any system.

    Raises:
        PublishedError: naming the file, and the row and column of what is no finite number.
    """
    try:
        with open(file, "rb") as handle:
            data = handle.read(_LARGEST + 1)
        text = data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise PublishedError(f"{file} cannot be read as text: {error}") from error
    if len(data) > _LARGEST:
        raise PublishedError(f"{file} is larger than {_LARGEST:,} bytes, which no grasp is")
    rows = [line.split(",") for line in text.rstrip().splitlines()]
    if len(rows) != SAMPLES:
        raise PublishedError(f"{file} has {len(rows)} rows, expected {SAMPLES}")
    samples = np.empty((SAMPLES, TAXELS))
    for i, row in enumerate(rows):
        if len(row) != TAXELS:
            raise PublishedError(f"{file}, row {i + 1} has {len(row)} columns, expected {TAXELS}")
        for j, cell in enumerate(row):
            try:
                if "_" in cell or not cell.strip().isascii():  # Python's numbers, no file's
                    raise ValueError
                samples[i, j] = float(cell)
            except ValueError:
                told = f"{file}, row {i + 1}, column {j + 1} is {cell.strip()[:40]!r}, expected a number"
                raise PublishedError(told) from None
    with np.errstate(over="ignore"):  # told of below
        kept = samples.astype(np.float32)
    for i, j in np.argwhere(~np.isfinite(kept))[:1]:
        legal = "a number that float32 holds" if np.isfinite(samples[i, j]) else "a finite number"
        raise PublishedError(f"{file}, row {i + 1}, column {j + 1} is {samples[i, j]:g}, expected {legal}")
    return kept
