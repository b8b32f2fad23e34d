"""Published data of CoPhy, read into the banks that `build_cophy` makes; `exporting` writes the same layout.

ballsCF/<K>/<id>/, blocktowerCF/<K>/<id>/, collisionCF/<id>/
  ab/, cd/          states.npy, bboxes.npy, colors.txt, rgb.mp4, segm.mp4
  confounders.npy   mass, friction and, but in Blocktower, restitution
  gravity.txt       of Blocktower
  explanations.txt  of Balls and Collision, all of whose examples have one; of Blocktower, if it is there
splits/             lists of ids, as ballsCF_4_train.txt

The pickle of predicted properties that was published beside it is not read: nothing from a disk is unpickled.
"""

import functools
import math
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sprii_envs import files
from sprii_envs.arguments import WORKERS, choice, flag, integer
from sprii_envs.banks import RecordedBank, Recording
from sprii_envs.banks.generated import Arrays, Episodes, Labels, Progress, PublishedError, record_episodes
from sprii_envs.cophy.objects import (
    COLOURS,
    CUBE,
    FRAMES,
    KINDS,
    LEVELS,
    OBJECTS,
    PROPERTIES,
    SCENES,
    SPHERE,
    STATE,
    VARIANTS,
)
from sprii_envs.cophy.protocols import SPLITS, VIDEOS, persistent, streams
from sprii_envs.dependencies import require
from sprii_envs.processes import in_order
from sprii_envs.videos import read_video, smaller

PICTURES = 224
"""Pixels along a side of the published videos, of which boxes are told."""
FOLDERS: Mapping[str, str] = {"balls": "ballsCF", "collision": "collisionCF", "blocktower": "blocktowerCF"}
NAMED: Mapping[str, tuple[str, ...]] = {"train": ("train",), "validation": ("val", "validation"), "test": ("test",)}
"""Split → what published lists may call it."""

_GRAVITY = re.compile(r"\s*gravity_x=(\S+)\s+gravity_y=(\S+)\s*")
_ID = re.compile(r"\w[\w.-]*")
FARTHEST = 1e6
"""m, m/s or rad/s; a state with more is damaged."""
UNIT = 1e-2
"""How far a quaternion's length may be from 1; published ones are of single precision."""
TOGETHER = 4
"""Examples that a worker reads or writes at once."""


@dataclass(frozen=True)
class Layout:
    """Where examples lie, and what of them is wanted; `size` is of pictures, None where there are none."""

    root: Path
    scene: str
    objects: int
    variant: str
    size: int | None

    @property
    def folder(self) -> Path:
        """Of the examples."""
        folder = self.root / FOLDERS[self.scene]
        return folder if self.scene == "collision" else folder / str(self.objects)


def import_cophy(
    root: files.StrPath,
    path: files.StrPath,
    scene: str,
    objects: int,
    *,
    variant: str = "normal",
    splits: files.StrPath | Mapping[str, files.StrPath] | None = None,
    size: int = 112,
    videos: bool = True,
    damaged: str = "error",
    workers: int = 1,
    progress: Progress | None = None,
) -> RecordedBank:
    """Read published examples into a bank at `path`, or open it if it is there already.

    The bank has the columns and labels of a generated one, and with `videos` the columns `ab_frames` and `cd_frames`
    (T, size, size, 3) uint8, as they were published but for their size: pixels, not normalised. Labels hold the raw
    confounders, rounded to one decimal. Examples are read one after another, and after a kill the same call goes on.

    States and boxes may be padded to the scene's colours, or have the objects of that video's `colors.txt` only, in
    its order; those of four blocks, where both look alike, are taken as padded. Blocktower's confounders are by object
    in the order of `ab/colors.txt`. Gravity out of its published levels is kept, warned of once, and listed in the
    bank's `notes["gravity"]`: the published generator could write frictions into that file.

    Args:
        root: the folder that holds `ballsCF/`, …, or one that holds it as `CoPhy_224/`.
        scene, objects, variant: which examples.
        splits: the folder of the lists of ids, by default `splits/` in the root or the root; or split → list.
        size: of the pictures that are kept, made by averaging areas.
        videos: whether `rgb.mp4` is read; else pictures are drawn from the states.
        damaged: "error", or "drop": leave such examples out, and list them with reasons in `notes["dropped"]`.
        workers: processes that decode.
        progress: (done, total) examples.

    Raises:
        ValueError: for arguments that no layout has.
        PublishedError: naming the file that is missing or damaged; episodes that were written are kept.
        StoreError: for a path that holds another bank.
        PackageImportError: with `videos`, without imageio-ffmpeg.
    """
    legal = OBJECTS[choice("scene", scene, legal=SCENES)]
    objects = integer("objects", objects, least=legal[0], most=legal[-1])
    choice("variant", variant, legal=VARIANTS[scene])
    workers = integer("workers", workers, least=1, most=WORKERS)
    drop = choice("damaged", damaged, legal=("error", "drop")) == "drop"
    kept = integer("size", size, least=8, most=PICTURES) if flag("videos", videos) else None
    if videos:
        require("reading CoPhy's videos", "'sprii[cophy]'", "imageio_ffmpeg")
    base = files.absolute(root)
    base = base / "CoPhy_224" if (base / "CoPhy_224").is_dir() else base
    layout = Layout(base, scene, objects, variant, kept)
    if not layout.folder.is_dir():
        raise PublishedError(f"{layout.folder} is missing; it holds an example a folder")
    lists = _lists(layout, splits)
    sources = _sources(lists)

    def episodes(recording: Recording) -> Episodes:
        done = {(row["split"], row["example"]) for row in recording.rows}
        left = [source for source in sources if source not in done]
        chunks = [left[i : i + TOGETHER] for i in range(0, len(left), TOGETHER)]
        dropped: dict[str, str] = {}
        odd = [row["example"] for row in recording.rows if _odd(scene, row)]
        with closing(
            in_order(functools.partial(_read_some, layout), chunks, min(workers, max(1, len(chunks))))
        ) as read:
            for source, found in (each for some in read for each in some):
                if isinstance(found, str):
                    if not drop:
                        raise PublishedError(f"{found}; damaged='drop' (--drop) leaves such examples out")
                    dropped[source[1]] = found
                    continue
                if _odd(scene, found[0]):
                    if not odd:
                        warnings.warn(_told_odd(layout, *found), stacklevel=2)
                    odd.append(source[1])
                yield found
        recording.notes |= {"dropped": dropped} if dropped else {}
        recording.notes |= {"gravity": odd} if odd else {}

    columns = streams(scene, kept)
    origin = {
        "kind": "published",
        "benchmark": "cophy",
        "scene": scene,
        "objects": objects,
        "variant": variant,
        "size": kept,
        "splits": {split: files.checksum(file) for split, file in lists.items()},
    }
    size = len(sources) * FRAMES[scene] * sum(spec.entry_bytes for spec in columns.values())
    bank = record_episodes(path, columns, origin, len(sources), size, episodes, progress)
    if not drop and (dropped := bank.notes.get("dropped")):  # it was finished by a call that drops
        name, why = next(iter(dropped.items()))
        raise PublishedError(
            f"{files.absolute(path)} lacks {len(dropped)} examples, such as {name}: {why}; legal: damaged='drop' "
            "(--drop), with which it was made, or another path"
        )
    return bank


def _lists(layout: Layout, splits: files.StrPath | Mapping[str, files.StrPath] | None) -> dict[str, Path]:
    """Split → its list; PublishedError for a list that is not there, or one of which there are two."""
    if isinstance(splits, Mapping):
        if not splits or not set(splits) <= set(SPLITS):
            raise ValueError(f"splits has {', '.join(map(str, splits)) or 'none'}; legal: some of {', '.join(SPLITS)}")
        return {split: files.absolute(splits[split]) for split in SPLITS if split in splits}
    given = layout.root / "splits" if splits is None else files.absolute(splits)
    folder = layout.root if splits is None and not given.is_dir() else given
    found: dict[str, Path] = {}
    for split, names in NAMED.items():
        there = [folder / name for name in list_names(layout, names) if (folder / name).is_file()]
        if len(there) != 1:
            told = f"{there[0]} and {there[1]} are both lists of it" if there else f"{folder} holds no list of it"
            legal = " or ".join(list_names(layout, names[:1])[:2])
            place = "" if splits is None else f"splits is {os.fspath(splits)!r}: "
            raise PublishedError(
                f"{place}split {split!r}: {told}; expected one, such as {legal}, or splits={{split: file}}"
            )
        found[split] = there[0]
    return found


def list_names(layout: Layout, split: Sequence[str]) -> list[str]:
    """Names that a list of ids may have: the scene, then what tells its examples apart, in any order."""
    told = {"balls": [str(layout.objects)], "collision": [layout.variant]}
    parts = told.get(layout.scene, [str(layout.objects), layout.variant])
    return [f"{'_'.join([FOLDERS[layout.scene], *order])}.txt" for s in split for order in permutations([*parts, s])]


def _sources(lists: Mapping[str, Path]) -> list[tuple[str, str]]:
    """(split, id) of every example; PublishedError for a line that is no id, and for one that is listed twice."""
    of: dict[str, str] = {}
    for split, file in lists.items():
        for number, line in enumerate(_text(file).splitlines(), 1):
            if not line.strip():
                continue
            example = line.strip().rstrip("/").rpartition("/")[2]
            if not _ID.fullmatch(example):
                raise PublishedError(f"{file}, line {number} is {line[:80]!r}, expected an id")
            if example in of:
                raise PublishedError(f"{file}, line {number}: {example} is in the list of {of[example]} already")
            of[example] = split
    return [(split, example) for example, split in of.items()]


def _read_some(
    layout: Layout, sources: Sequence[tuple[str, str]]
) -> list[tuple[tuple[str, str], tuple[Labels, Arrays] | str]]:
    """Examples, or what is damaged of them."""
    read: list[tuple[tuple[str, str], tuple[Labels, Arrays] | str]] = []
    for split, example in sources:
        try:
            labels, arrays = _read(layout, layout.folder / example)
            about = {"scene": layout.scene, "objects": layout.objects, "variant": layout.variant, "split": split}
            read.append(((split, example), ({"example": example, **about, **labels}, arrays)))
        except PublishedError as error:
            read.append(((split, example), str(error)))
    return read


def _read(layout: Layout, folder: Path) -> tuple[Labels, Arrays]:
    """What persists in an example, and its arrays by column; PublishedError for damage."""
    if not folder.is_dir():
        raise PublishedError(f"{folder} is missing")
    scene, count, length = layout.scene, len(COLOURS[layout.scene]), FRAMES[layout.scene]
    arrays: dict[str, NDArray[Any]] = {}
    order: dict[str, dict[int, int]] = {}  # video → slot → kind, in the order of its colours
    for video in VIDEOS:
        there = order[video] = _colours(folder / video / "colors.txt", scene)
        for name, file, width in (("states", "states.npy", STATE), ("boxes", "bboxes.npy", 4)):
            found = _array(folder / video / file, [(length, k, width) for k in sorted({len(there), count})])
            arrays[f"{video}_{name}"] = _padded(found, list(there), count)
        seen = np.flatnonzero((arrays[f"{video}_states"][0, :, :3] != 0.0).any(axis=-1)).tolist()
        if seen != sorted(there):
            raise PublishedError(
                f"{folder / video / 'states.npy'} has the objects {_names(scene, seen)} in its first frame; "
                f"colors.txt tells of {_names(scene, sorted(there))}"
            )
        _check_states(folder / video / "states.npy", arrays[f"{video}_states"][:, seen])
        _check_boxes(folder / video / "bboxes.npy", arrays[f"{video}_boxes"][:, seen])
    ab, cd = order["ab"], order["cd"]
    if len(ab) != layout.objects:
        raise PublishedError(f"{folder / 'ab' / 'colors.txt'} tells of {len(ab)} objects, expected {layout.objects}")
    if new := [slot for slot, kind in cd.items() if ab.get(slot) != kind]:
        raise PublishedError(f"{folder / 'cd' / 'colors.txt'} tells of {_names(scene, new)} otherwise than that of ab")
    kinds = np.full(count, -1, np.int8)
    kinds[list(ab)] = list(ab.values())
    properties = _properties(folder / "confounders.npy", scene, list(ab))
    gravity = _gravity(folder / "gravity.txt") if scene == "blocktower" else (0.0, 0.0)
    file = folder / "explanations.txt"
    explanation = " ".join(_text(file).split()) if scene != "blocktower" or file.is_file() else ""
    if layout.size is not None:
        for video in VIDEOS:
            try:
                arrays[f"{video}_frames"] = smaller(read_video(folder / video / "rgb.mp4", length), layout.size)
            except files.FileError as error:  # which names it
                raise PublishedError(str(error)) from error
            except ValueError as error:
                raise PublishedError(f"{folder / video / 'rgb.mp4'}: {error}") from error
    return persistent(kinds, properties, gravity, explanation), arrays


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise PublishedError(f"{file} is missing") from None
    except (OSError, UnicodeDecodeError) as error:
        raise PublishedError(f"{file} cannot be read: {error}") from error


def _array(file: Path, shapes: Sequence[tuple[int, ...]]) -> NDArray[np.float32]:
    """An array of one of some shapes; it is mapped, so that a header cannot ask for memory, and never unpickled."""
    try:
        found = np.load(file, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise PublishedError(f"{file} is missing") from None
    except Exception as error:  # NumPy raises nearly anything for a damaged file, and takes what is none for a pickle
        odd = isinstance(error, ValueError) and "pickle" in str(error)
        reason = "it is no array of numbers; Python objects are never read" if odd else error
        raise PublishedError(f"{file} cannot be read as an array: {reason}") from error
    if not isinstance(found, np.ndarray) or found.shape not in shapes or found.dtype.kind not in "fiu":
        told = f"{found.dtype} of shape {found.shape}" if isinstance(found, np.ndarray) else "an archive"
        raise PublishedError(f"{file} is {told}, expected numbers of shape {' or '.join(map(str, shapes))}")
    with np.errstate(over="ignore"):  # told of below
        array = np.array(found, np.float32)
    if not np.isfinite(array).all():
        raise PublishedError(f"{file} holds NaN or infinity")
    return array


def _check_states(file: Path, values: NDArray[np.float32]) -> None:
    """PublishedError for states (T, O, 13) of objects that are there, but cannot be so."""
    if (far := np.abs(values) > FARTHEST).any():
        t, o, entry = np.argwhere(far)[0]
        raise PublishedError(f"{file} holds {values[t, o, entry]:g} in frame {t}, expected at most {FARTHEST:g}")
    length = np.linalg.norm(values[..., 3:7].astype(np.float64), axis=-1)
    if (odd := abs(length - 1.0) > UNIT).any():
        t, o = np.argwhere(odd)[0]
        raise PublishedError(f"{file} has a quaternion of length {length[t, o]:.3g} in frame {t}, expected 1")


def _check_boxes(file: Path, values: NDArray[np.float32]) -> None:
    """PublishedError for boxes (T, O, 4) whose corners are the wrong way round."""
    if (back := values[..., :2] > values[..., 2:]).any():
        t, o, axis = np.argwhere(back)[0]
        name, low, high = "xy"[axis], values[t, o, axis], values[t, o, axis + 2]
        told = f"{name}1 is {low:g} and {name}2 {high:g} in frame {t}, expected {name}1 ≤ {name}2"
        raise PublishedError(f"{file}: {told}")


def _padded(array: NDArray[np.float32], there: list[int], count: int) -> NDArray[np.float32]:
    """(T, slots, …) of an array that has the slots already, or the objects in their order only."""
    if array.shape[1] == count:
        return array
    padded = np.zeros((len(array), count, *array.shape[2:]), np.float32)
    padded[:, there] = array
    return padded


def _colours(file: Path, scene: str) -> dict[int, int]:
    """Slot → kind of the objects of a video, in the order of its lines; PublishedError for what is no colour."""
    there: dict[int, int] = {}
    for line in filter(None, map(str.strip, _text(file).splitlines())):
        told = dict(re.findall(r"\b(type|color)=(\w+)", line))
        kind = told.get("type", "") if scene == "collision" else KINDS[SPHERE if scene == "balls" else CUBE]
        names = [told["color"]] if "color" in told else re.split(r"[\s,]+", line)
        for name in names:
            if name not in COLOURS[scene] or kind not in KINDS[:CUBE] + KINDS[CUBE:] * (scene == "blocktower"):
                raise PublishedError(f"{file} holds {line[:80]!r}, expected {_line(scene)}")
            if (slot := COLOURS[scene].index(name)) in there:
                raise PublishedError(f"{file} holds {name} twice, expected each colour once")
            there[slot] = KINDS.index(kind)
    if not there:
        raise PublishedError(f"{file} is empty, expected {_line(scene)}")
    return there


def _line(scene: str) -> str:
    colours = ", ".join(COLOURS[scene])
    if scene != "collision":
        return f"colours of {colours}"
    return f"type={'|'.join(KINDS[:CUBE])} … color=<one of {colours}>"


def _names(scene: str, there: Sequence[int]) -> str:
    return ", ".join(COLOURS[scene][slot] for slot in there) or "none"


def _properties(file: Path, scene: str, there: list[int]) -> NDArray[np.float64]:
    """Mass, friction and restitution (K, 3) by slot, rounded; PublishedError for what is none of their levels."""
    names = [name for name in PROPERTIES if name in LEVELS[scene]]
    count = len(COLOURS[scene])
    found = _array(file, [(k, len(names)) for k in sorted({len(there), count})])
    by_slot = scene != "blocktower" and len(found) == count
    rows = found[there] if by_slot else found[: len(there)]
    properties = np.zeros((count, len(PROPERTIES)))
    properties[there, : len(names)] = np.round(rows.astype(np.float64), 1)
    for slot in there:
        for name, value in zip(names, properties[slot], strict=False):
            if value not in LEVELS[scene][name]:
                levels = ", ".join(f"{level:g}" for level in LEVELS[scene][name])
                raise PublishedError(f"{file}: {name} of {COLOURS[scene][slot]} is {value:g}, expected one of {levels}")
    return properties


def _gravity(file: Path) -> tuple[float, float]:
    told = _GRAVITY.fullmatch(text := _text(file))
    try:
        x, y = (float(told[1]), float(told[2])) if told else (math.nan, math.nan)
    except ValueError:
        x = y = math.nan
    if not (math.isfinite(x) and math.isfinite(y)):
        raise PublishedError(f"{file} holds {text[:80]!r}, expected 'gravity_x=<number> gravity_y=<number>'")
    return x, y


def _odd(scene: str, labels: Mapping[str, Any]) -> bool:
    """Whether gravity is out of its levels, as where a generator wrote frictions."""
    return any(labels[name] not in LEVELS[scene].get(name, (0.0,)) for name in ("gravity_x", "gravity_y"))


def _told_odd(layout: Layout, labels: Labels, _: Arrays) -> str:
    return (
        f"{layout.folder / labels['example'] / 'gravity.txt'} holds {labels['gravity_x']:g}, {labels['gravity_y']:g}, "
        "out of -0.5, 0, 0.5: the published generator could write frictions there. Gravity is kept as it is told, and "
        "relates no episodes; the bank's notes list all such examples"
    )
