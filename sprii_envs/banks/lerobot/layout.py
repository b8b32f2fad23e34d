"""How a LeRobot dataset of version 3 lies on disk, and what its `meta/` says.

root/
  meta/info.json                          version, frames a second, features, patterns of the paths below
  meta/tasks.parquet                      task_index, and the text of the task as the index
  meta/episodes/chunk-000/file-000.parquet   an episode a row: length, tasks, where its rows and frames are
  meta/stats.json                         of every feature
  data/chunk-000/file-000.parquet         a frame a row, episodes end to end
  videos/KEY/chunk-000/file-000.mp4       frames of many episodes, end to end

What another store tells beyond that is kept where the format lets it be: labels of episodes as columns `labels/NAME`
of `meta/episodes`, and the rest under `sprii` in `info.json`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sprii_envs import files
from sprii_envs.banks.arrow import numbers
from sprii_envs.banks.store import StoreError
from sprii_envs.dependencies import require

VERSION = "v3.0"
INFO, TASKS, STATS = "meta/info.json", "meta/tasks.parquet", "meta/stats.json"
PLACE = "chunk-{chunk_index:03d}/file-{file_index:03d}"
EPISODES, DATA = f"meta/episodes/{PLACE}.parquet", f"data/{PLACE}.parquet"
VIDEO = f"videos/{{video_key}}/{PLACE}.mp4"
CHUNK = 1000
"""Files of a folder."""

DEFAULT: Mapping[str, str] = {
    "timestamp": "float32",
    "frame_index": "int64",
    "episode_index": "int64",
    "index": "int64",
    "task_index": "int64",
}
"""Features that every dataset has, one number a frame."""

COUNTED = ("frame_index", "episode_index", "index")
"""Those that only number the rows."""

DATA_PLACE = ("data/chunk_index", "data/file_index")
LABEL = "labels/"


@dataclass(frozen=True)
class Feature:
    """One column: `shape` of an entry, `kind` of "number", "video" or "image", and what an entry belongs to."""

    name: str
    shape: tuple[int, ...]
    kind: str
    per: str = "observation"
    gray: bool = False


@dataclass(frozen=True)
class Meta:
    """What `meta/` says.

    Attributes:
        features: columns that can be read, by name; texts are none.
        episodes: column → (E,) of `meta/episodes` in the order of `episode_index`, labels included.
        tasks: texts of all tasks of each episode, joined by "; ".
        task: (E,) index of the one task of each episode, −1 where there are several.
        data, video: patterns of paths.
        splits: name → its range of episodes.
        sealed: splits that the store which was exported kept sealed.
        origin: of that store; {} of none.
    """

    root: Path
    fps: float
    robot: str
    features: Mapping[str, Feature]
    episodes: Mapping[str, NDArray[Any]]
    tasks: list[str]
    task: NDArray[np.int64]
    data: str
    video: str
    splits: Mapping[str, range]
    sealed: tuple[str, ...]
    origin: Mapping[str, Any]

    @property
    def length(self) -> NDArray[np.int64]:
        """Frames of each episode."""
        return self.episodes["length"]

    def film(self, key: str, row: int) -> tuple[Path, int]:
        """File and first frame in it of an episode's video."""
        at = {part: int(self.episodes[f"videos/{key}/{part}"][row]) for part in ("chunk_index", "file_index")}
        begin = float(self.episodes[f"videos/{key}/from_timestamp"][row])
        return self.root / self.video.format(video_key=key, **at), round(begin * self.fps)


def read_meta(root: Path) -> Meta:
    """What `meta/` of a dataset says.

    Raises:
        StoreError: naming the file that is missing, damaged or of another version.
        PackageImportError: without pyarrow.
    """
    require("reading LeRobot datasets", "'sprii[lerobot]'", "pyarrow")
    place = root / INFO
    if not place.exists() and (root / "bank.json").exists():
        raise StoreError(f"{root} is the folder of a store, not a LeRobot dataset; open_store opens it")
    info = files.read_json(place, StoreError)
    version = str(info.get("codebase_version"))
    if not version.startswith("v3."):
        raise StoreError(f"{place} is of version {version!r}; legal: v3.x; lerobot converts older ones")
    try:
        sprii = dict(info.get("sprii", {}))
        per, scalars, gray = (sprii.get(name, []) for name in ("transitions", "scalars", "gray"))
        features = {
            name: _feature(name, told, name in per, name in scalars, name in gray)
            for name, told in info["features"].items()
            if name not in COUNTED and told["dtype"] != "string"
        }
        fps, sealed = float(info["fps"]), tuple(map(str, sprii.get("sealed", ())))
        data, video = _pattern(info["data_path"]), _pattern(info.get("video_path") or "")
        origin = dict(sprii.get("origin", {}))
        splits = {str(name): _range(text) for name, text in dict(info.get("splits", {})).items()}
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise StoreError(f"{place} is damaged: {type(error).__name__}: {error}") from error
    if not fps > 0:
        raise StoreError(f"{place} has {fps:g} frames a second; legal: a positive number")
    films = [name for name, feature in features.items() if feature.kind == "video"]
    episodes, tasks = _episodes(root, films)
    index = _tasks(root / TASKS)
    for i, texts in enumerate(tasks):
        if unknown := [text for text in texts if text not in index]:
            raise StoreError(f"{root / TASKS} has no task {unknown[0]!r}, of episode {i}")
    task = np.array([index[texts[0]] if len(texts) == 1 else -1 for texts in tasks], np.int64)
    joined = ["; ".join(texts) for texts in tasks]
    robot = str(info.get("robot_type") or "")
    return Meta(root, fps, robot, features, episodes, joined, task, data, video, splits, sealed, origin)


def _feature(name: str, told: Mapping[str, Any], transitions: bool, scalar: bool, gray: bool) -> Feature:
    kind = told["dtype"] if told["dtype"] in ("video", "image") else "number"
    shape = () if scalar or name in DEFAULT else tuple(int(side) for side in told["shape"])
    if kind == "number" and np.dtype(told["dtype"]).kind not in "biuf":
        raise ValueError(f"feature {name!r} is of {told['dtype']!r}")
    return Feature(name, shape, kind, "transition" if transitions else "observation", gray)


def _pattern(text: Any) -> str:
    """A pattern of paths in the dataset; ValueError for one that leads out of it, KeyError for an unknown part."""
    place = Path(text.format(video_key="key", chunk_index=0, file_index=0))
    if place.is_absolute() or ".." in place.parts:
        raise ValueError(f"the path {text!r} leads out of the dataset")
    return text


def _range(text: Any) -> range:
    begin, _, end = str(text).partition(":")
    return range(int(begin), int(end))


def _episodes(root: Path, films: list[str]) -> tuple[dict[str, NDArray[Any]], list[list[str]]]:
    """Columns of `meta/episodes` by name, and the tasks of each; StoreError for what is missing or out of order."""
    import pyarrow as pa

    found = sorted((root / "meta" / "episodes").glob("*/*.parquet"))
    if not found:
        raise StoreError(f"{root / 'meta' / 'episodes'} holds no Parquet file; expected one an episode a row")
    parts = []
    for file in found:
        names = [name for name in parquet(file).schema_arrow.names if not name.startswith("stats/")]
        parts.append(rows(file, names))
    table = pa.concat_tables(parts, promote_options="default")
    place = root / "meta" / "episodes"
    wanted = ["episode_index", "length", "tasks", "dataset_from_index", "dataset_to_index", *DATA_PLACE]
    wanted += [f"videos/{key}/{part}" for key in films for part in ("chunk_index", "file_index", "from_timestamp")]
    if missing := [name for name in wanted if name not in table.column_names]:
        raise StoreError(f"{place} lacks the column {missing[0]!r}")
    tasks = [[str(text) for text in each or ()] for each in table["tasks"].to_pylist()]
    episodes: dict[str, NDArray[Any]] = {}
    for name in table.column_names:
        if name in wanted and name != "tasks":
            episodes[name] = numbers(table[name], f"{place}: {name!r}")
        elif name.startswith(LABEL):
            episodes[name] = np.array(table[name].to_pylist())
    if not np.array_equal(episodes["episode_index"], np.arange(len(table))):
        raise StoreError(f"{place} does not hold episodes 0 to {len(table) - 1} in their order")
    begin, end = episodes["dataset_from_index"], episodes["dataset_to_index"]
    if (wrong := (end - begin != episodes["length"]) | (episodes["length"] < 1)).any():
        i = int(wrong.argmax())
        raise StoreError(f"{place}: episode {i} has length {episodes['length'][i]} and rows {begin[i]} to {end[i]}")
    return episodes, tasks


def _tasks(file: Path) -> dict[str, int]:
    """Text of a task → its index; the text is the data frame's index, which Parquet keeps as a column."""
    import pyarrow as pa

    table = rows(file, None)
    texts = [f.name for f in table.schema if pa.types.is_string(f.type) or pa.types.is_large_string(f.type)]
    if "task_index" not in table.column_names or not texts:
        raise StoreError(f"{file} has the columns {', '.join(table.column_names)}; expected task_index and a text")
    return dict(zip(table[texts[0]].to_pylist(), table["task_index"].to_pylist(), strict=True))


def parquet(file: Path) -> Any:
    """An open `pyarrow.parquet.ParquetFile`; StoreError for one that is missing or damaged."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(file)
    except FileNotFoundError:
        raise StoreError(f"{file} is missing") from None
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"{file} is damaged: {error}") from error


def rows(file: Path, columns: list[str] | None, group: int | None = None) -> Any:
    """A `pyarrow.Table` of a Parquet file, or of one of its row groups; StoreError as `parquet`."""
    import pyarrow as pa

    opened = parquet(file)
    try:
        return opened.read(columns) if group is None else opened.read_row_group(group, columns)
    except (OSError, pa.ArrowException, KeyError) as error:
        raise StoreError(f"{file} is damaged: {error}") from error
