"""Any store as a LeRobot dataset: numbers in Parquet, pictures in videos, tasks and statistics as lerobot has them."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sprii_envs import files
from sprii_envs.arguments import flag, integer
from sprii_envs.banks.arrow import column_of
from sprii_envs.banks.copying import chosen, episodes, specs
from sprii_envs.banks.films import FilmWriter
from sprii_envs.banks.generated import Progress
from sprii_envs.banks.lerobot.layout import (
    CHUNK,
    DATA,
    DEFAULT,
    EPISODES,
    INFO,
    LABEL,
    STATS,
    TASKS,
    VERSION,
    VIDEO,
)
from sprii_envs.banks.lerobot.store import LeRobotStore
from sprii_envs.banks.recorded import StreamSpec
from sprii_envs.banks.store import Store, StoreError, new_folder
from sprii_envs.dependencies import require
from sprii_envs.relations import EpisodeTable

_NAMES: Mapping[str, str] = {"states": "observation.state", "actions": "action", "action": "action"}
_DATA_BYTES, _VIDEO_BYTES = 100 << 20, 200 << 20
"""Of a file, about: the next one begins with the next episode. lerobot's own numbers."""

_ROWS = 1 << 14
"""Frames of a row group, about."""

_EPISODES = 1 << 10
"""Episodes of a row group of `meta/episodes`."""

_QUANTILES = (0.01, 0.1, 0.5, 0.9, 0.99)
_SAMPLED = 16
"""Pictures an episode, at most, that statistics are made of."""

_CHANNELS = 3


def export_lerobot(
    store: Store,
    root: files.StrPath,
    *,
    fps: int | None = None,
    task: str | None = None,
    names: Mapping[str, str] | None = None,
    robot: str | None = None,
    table: EpisodeTable | None = None,
    exact: bool = False,
    unseal: bool = False,
    progress: Progress | None = None,
) -> dict[str, str]:
    """Write a store as a LeRobot dataset of version 3 in a new folder, and return column → feature.

    Episodes are numbered from 0 by split, in the order of the table within one, for the format tells of a split as a
    range; their labels are kept, and `LeRobotStore.open` finds them.
    A column of an entry a transition gets zeros as its last entry, for the format has one a frame. Columns of pictures,
    uint8 of shape (H, W), (H, W, 1) or (H, W, 3), become videos; gray ones in three equal channels. The folder appears
    when it is whole; an export that is killed leaves none.

    Args:
        fps: frames a second that the dataset tells; by default those of a LeRobot dataset or its import, otherwise 30.
        task: label that is the text of the task; by default `task` where there is one, else "system N".
        names: column → feature, for other names than `states` → `observation.state`, `actions` → `action`, pictures
            → `observation.images.NAME`, others → `observation.NAME`; names with a dot stay.
        robot: type of the robot; by default that of a LeRobot dataset or its import.
        table: the episodes, with labels and splits of their own; by default all of splits that are not sealed.
        exact: keep every pixel of pictures, in larger files that fewer players show.
        unseal: write sealed splits, too.
        progress: (done, total) episodes.

    Raises:
        ValueError: for an illegal number, and names of unknown columns or for two columns.
        StoreError: if something is at `root`, or it cannot be written; for what is no store, a store that has nothing
            to write, numbers that are not finite, or pictures of odd sides that are not written exactly.
        PackageImportError: without pyarrow, and PyAV where there are pictures.
    """
    require("writing LeRobot datasets", "'sprii[lerobot]'", "pyarrow")
    fps, exact = fps if fps is None else integer("fps", fps, least=1, most=1000), flag("exact", exact)
    dataset = isinstance(store, LeRobotStore)
    made = {"fps": store.fps, "robot": store.robot} if dataset else getattr(store, "origin", {})
    of_format = dataset or made.get("kind") == "lerobot"
    fps = (int(made.get("fps", 30)) if of_format else 30) if fps is None else fps
    robot = (str(made.get("robot", "")) if of_format else "") if robot is None else robot
    table = chosen(store, table, unseal)
    table = _by_split(table, list(dict.fromkeys([*store.splits, *table["split"].astype(str).tolist()])))
    if not of_format and (taken := [name for name in store.columns if name in DEFAULT]):
        raise StoreError(f"{store.name}: {taken[0]!r} is a feature that the format makes itself; rename the column")
    columns = {name: spec for name, spec in specs(store).items() if name not in DEFAULT}
    if not columns:
        raise StoreError(f"{store.name} has no column to write but {', '.join(store.columns)}")
    features = _named(columns, names or {}, store.name)
    pictures = {name: spec for name, spec in columns.items() if _is_picture(spec)}
    if pictures:
        require("writing videos", "'sprii[lerobot]'", "av")
    for name, spec in pictures.items():
        if not exact and (spec.shape[0] % 2 or spec.shape[1] % 2):
            raise StoreError(
                f"{store.name}: {name!r} is {spec.shape[1]}×{spec.shape[0]}; legal: even sides, or exact=True"
            )
    texts = _texts(table, task, store.name)
    distinct = list(dict.fromkeys(texts))
    index = {text: i for i, text in enumerate(distinct)}
    with new_folder(files.absolute(root)) as temporary, ExitStack() as stack:
        (temporary / "meta").mkdir()
        data = stack.enter_context(_Rows(temporary, {f: columns[n] for n, f in features.items() if n not in pictures}))
        told = stack.enter_context(_Table(temporary, EPISODES))
        films = {n: stack.enter_context(_Films(temporary, features[n], s, fps, exact)) for n, s in pictures.items()}
        summary: dict[str, _Statistics] = {}
        for row, arrays in enumerate(episodes(store, table, columns)):
            length = int(table["length"][row])
            for name, array in arrays.items():  # the format's statistics have no word for it
                if array.dtype.kind == "f" and not np.isfinite(array).all():
                    told = f"{name!r} holds NaN or infinity in episode {table['episode'][row]}"
                    raise StoreError(f"{store.name}: {told}; legal: finite numbers")
            frames = {features[name]: _padded(array, length) for name, array in arrays.items()}
            counted = _counted(row, length, data.count, index[texts[row]], fps)
            place = data.append({f: v for n, f in features.items() if n not in pictures for v in [frames[f]]} | counted)
            entry: dict[str, Any] = {"episode_index": row, "tasks": [texts[row]], "length": length, **place}
            for name, film in films.items():
                entry |= film.append(_coloured(frames[features[name]]))
            for feature, array in (frames | counted).items():
                shown = any(features[name] == feature for name in pictures)
                found = _picture_statistics(_coloured(array)) if shown else _statistics(array)
                summary.setdefault(feature, _Statistics()).add(found)
                entry |= {f"stats/{feature}/{key}": value.tolist() for key, value in found.items()}
            entry |= {f"{LABEL}{_label(name)}": table[name][row].item() for name in table.columns if name != "length"}
            told.append(entry)
            if progress:
                progress(row + 1, len(table))
        _write_tasks(temporary / TASKS, distinct)
        files.write_json(temporary / STATS, {feature: each.told() for feature, each in summary.items()})
        sealed = [split for split in store.sealed_splits if split in table["split"].astype(str)]
        described = {features[n]: _described(features[n], s, n in pictures, fps, exact) for n, s in columns.items()}
        described |= {name: {"dtype": kind, "shape": [1], "names": None} for name, kind in DEFAULT.items()}
        info = {
            "codebase_version": VERSION,
            "robot_type": robot or None,
            "total_episodes": len(table),
            "total_frames": int(table["length"].sum()),
            "total_tasks": len(distinct),
            "chunks_size": CHUNK,
            "data_files_size_in_mb": _DATA_BYTES >> 20,
            "video_files_size_in_mb": _VIDEO_BYTES >> 20,
            "fps": fps,
            "splits": _splits(table["split"].astype(str)),
            "data_path": DATA,
            "video_path": VIDEO if pictures else None,
            "features": described,
            "sprii": {
                "sealed": sealed,
                "transitions": [features[n] for n, spec in columns.items() if spec.per == "transition"],
                "scalars": [features[n] for n, spec in columns.items() if spec.shape == ()],
                "gray": [features[n] for n, spec in pictures.items() if len(spec.shape) == 2],
            }
            | ({"origin": origin} if (origin := getattr(store, "origin", {})) else {}),
        }
        files.write_json(temporary / INFO, info)
    return features


def _label(name: str) -> str:
    """Ids of episodes are numbered anew; those of the store are kept beside."""
    return "source_episode" if name == "episode" else name


def _is_picture(spec: StreamSpec) -> bool:
    shape = spec.shape
    return (
        spec.dtype == "|u1"
        and (len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, _CHANNELS)))
        and min(shape[:2]) >= 16
    )


def _named(columns: Mapping[str, StreamSpec], names: Mapping[str, str], store: str) -> dict[str, str]:
    """Column → feature; ValueError for names of unknown columns, illegal ones, and one for two columns."""
    if unknown := set(names) - set(columns):
        raise ValueError(f"names has {sorted(unknown)[0]!r}; columns of {store}: {', '.join(columns)}")
    features: dict[str, str] = {}
    for name, spec in columns.items():
        usual = name if "." in name else f"observation.images.{name}" if _is_picture(spec) else f"observation.{name}"
        feature = names.get(name, _NAMES.get(name, usual))
        if not isinstance(feature, str) or not feature or "/" in feature or feature in DEFAULT:
            raise ValueError(
                f"the feature of {name!r} is {feature!r}; legal: text without '/', none of {', '.join(DEFAULT)}"
            )
        if feature in features.values():
            raise ValueError(f"two columns are {feature!r}: {name!r} and another; give names={{column: feature}}")
        features[name] = feature
    return features


def _texts(table: EpisodeTable, task: str | None, store: str) -> list[str]:
    """The text of each episode's task; StoreError for a label that the table does not have."""
    if task is not None and task not in table:
        raise StoreError(f"{store}: no label {task!r}; labels: {', '.join(table.columns)}")
    if task is None and "task" not in table:
        return [f"system {system}" for system in table["system"].tolist()]
    return [str(text) for text in table[task or "task"].tolist()]


def _padded(array: NDArray[Any], length: int) -> NDArray[Any]:
    """Entries of all frames: zeros where a transition's last is lacking."""
    return array if len(array) == length else np.concatenate([array, np.zeros((1, *array.shape[1:]), array.dtype)])


def _coloured(frames: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Pictures (T, H, W, 3)."""
    frames = frames[..., None] if frames.ndim == 3 else frames
    return np.broadcast_to(frames, (*frames.shape[:3], _CHANNELS))


def _counted(row: int, length: int, begin: int, task: int, fps: int) -> dict[str, NDArray[Any]]:
    steps = np.arange(length)
    return {
        "timestamp": (steps / fps).astype(np.float32),
        "frame_index": steps,
        "episode_index": np.full(length, row),
        "index": begin + steps,
        "task_index": np.full(length, task),
    }


class _Table:
    """Rows that are written to a Parquet file in groups."""

    def __init__(self, root: Path, pattern: str) -> None:
        self.root, self.pattern, self.file = root, pattern, 0
        self._rows: list[dict[str, Any]] = []
        self._writer: Any = None

    def append(self, row: dict[str, Any]) -> None:
        """A row; its own place is told in it, as lerobot does."""
        self._rows.append(row | {"meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0})
        if len(self._rows) == _EPISODES:
            self._write()

    def _write(self) -> None:
        import pyarrow as pa

        schema = None if self._writer is None else self._writer.schema
        self._put(pa.Table.from_pylist(self._rows, schema=schema))
        self._rows = []

    def _put(self, table: Any) -> None:
        import pyarrow.parquet as pq

        if self._writer is None:
            path = self.root / self.pattern.format(chunk_index=self.file // CHUNK, file_index=self.file % CHUNK)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(path, table.schema, compression="snappy")
            self.path = path
        self._writer.write_table(table)

    def __enter__(self) -> "_Table":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None and self._rows:
            self._write()
        if self._writer is not None:
            self._writer.close()


class _Rows:
    """Frames of all features but videos, in files of about 100 MB."""

    def __init__(self, root: Path, columns: Mapping[str, StreamSpec]) -> None:
        self.columns, self.count = columns, 0
        self._table, self._held, self._size = _Table(root, DATA), [], 0
        self._pending: list[dict[str, NDArray[Any]]] = []

    def append(self, arrays: dict[str, NDArray[Any]]) -> dict[str, int]:
        """An episode; where its rows are."""
        length = len(arrays["index"])
        file = self._table.file
        self._pending.append(arrays)
        self.count += length
        if sum(len(each["index"]) for each in self._pending) >= _ROWS:
            self._write()
            if self._table.path.stat().st_size >= _DATA_BYTES:
                self._next()
        return {
            "data/chunk_index": file // CHUNK,
            "data/file_index": file % CHUNK,
            "dataset_from_index": self.count - length,
            "dataset_to_index": self.count,
        }

    def _write(self) -> None:
        import pyarrow as pa

        columns = {}
        for name in self._pending[0]:
            values = np.concatenate([each[name] for each in self._pending])
            columns[name] = _nested(values) if name in self.columns else column_of(values)
        self._table._put(pa.table(columns))
        self._pending = []

    def _next(self) -> None:
        self._table._writer.close()
        self._table._writer, self._table.file = None, self._table.file + 1

    def __enter__(self) -> "_Rows":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None and self._pending:
            self._write()
        self._table.__exit__(kind)


def _nested(values: NDArray[Any]) -> Any:
    """Entries of one axis as fixed lists, of more as lists of lists, of one number as it is: what lerobot reads."""
    import pyarrow as pa

    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim <= 2:
        return column_of(values)
    array = pa.array(np.ascontiguousarray(values).reshape(-1))
    for width in values.shape[:0:-1]:
        array = pa.ListArray.from_arrays(pa.array(np.arange(0, len(array) + 1, width), pa.int32()), array)
    return array


class _Films:
    """Videos of one feature, in files of about 200 MB."""

    def __init__(self, root: Path, feature: str, spec: StreamSpec, fps: int, exact: bool) -> None:
        self.root, self.feature, self.size, self.fps, self.exact = root, feature, spec.shape[:2], fps, exact
        self.file = 0
        self._writer: FilmWriter | None = None

    def append(self, frames: NDArray[np.uint8]) -> dict[str, Any]:
        """An episode; where its frames are."""
        at = {"chunk_index": self.file // CHUNK, "file_index": self.file % CHUNK}
        if self._writer is None:
            path = self.root / VIDEO.format(video_key=self.feature, **at)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = FilmWriter(path, (self.size[0], self.size[1]), self.fps, exact=self.exact)
        begin = self._writer.count / self.fps
        self._writer.append(frames)
        times = {"from_timestamp": begin, "to_timestamp": self._writer.count / self.fps}
        if self._writer.bytes >= _VIDEO_BYTES:
            self._end()
            self.file += 1
        return {f"videos/{self.feature}/{name}": value for name, value in (at | times).items()}

    def _end(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer = None

    def __enter__(self) -> "_Films":
        return self

    def __exit__(self, *_: object) -> None:
        self._end()


def _statistics(values: NDArray[Any], axes: tuple[int, ...] = (0,)) -> dict[str, NDArray[Any]]:
    """Of an episode's entries over `axes`, as lerobot has them; a single number is (1,)."""
    numbers = values.astype(np.float64)
    found = {name: np.atleast_1d(getattr(numbers, name)(axis=axes)) for name in ("min", "max", "mean", "std")}
    found["count"] = np.array([len(values)])
    quantiles = np.quantile(numbers, _QUANTILES, axis=axes)
    return found | {
        f"q{round(100 * q):02d}": np.atleast_1d(each) for q, each in zip(_QUANTILES, quantiles, strict=True)
    }


def _picture_statistics(frames: NDArray[np.uint8]) -> dict[str, NDArray[Any]]:
    """Of some pictures, by channel (3, 1, 1), in 0 … 1."""
    some = frames[np.unique(np.linspace(0, len(frames) - 1, _SAMPLED).astype(int))]
    found = _statistics(some, (0, 1, 2))
    return {n: each if n == "count" else each.reshape(_CHANNELS, 1, 1) / 255.0 for n, each in found.items()}


class _Statistics:
    """Statistics of episodes together: lerobot's own sums, quantiles as means of those of the episodes."""

    def __init__(self) -> None:
        self.count = 0
        self.low = self.high = self.first = self.second = np.zeros(1)
        self.quantiles: dict[str, NDArray[Any]] = {}

    def add(self, found: Mapping[str, NDArray[Any]]) -> None:
        """Those of one more episode."""
        count = int(found["count"][0])
        self.low = np.minimum(self.low, found["min"]) if self.count else found["min"]
        self.high = np.maximum(self.high, found["max"]) if self.count else found["max"]
        total = self.count + count
        delta = found["mean"] - self.first
        self.second = self.second + found["std"] ** 2 * count + delta**2 * self.count * count / total
        self.first = self.first + delta * count / total
        for name in found:
            if name.startswith("q"):
                before = self.quantiles.get(name, 0.0)
                self.quantiles[name] = before + (found[name] - before) * count / total
        self.count = total

    def told(self) -> dict[str, Any]:
        """JSON."""
        found = {"min": self.low, "max": self.high, "mean": self.first, "std": np.sqrt(self.second / self.count)}
        return {n: v.tolist() for n, v in (found | self.quantiles).items()} | {"count": [self.count]}


def _write_tasks(file: Path, texts: list[str]) -> None:
    """Text → index, as pandas writes a frame whose index is the text."""
    import json

    import pyarrow as pa
    import pyarrow.parquet as pq

    index = "__index_level_0__"
    table = pa.table({"task_index": pa.array(range(len(texts)), pa.int64()), index: pa.array(texts, pa.string())})
    told = {
        "index_columns": [index],
        "column_indexes": [],
        "columns": [
            {
                "name": "task_index",
                "field_name": "task_index",
                "pandas_type": "int64",
                "numpy_type": "int64",
                "metadata": None,
            },
            {"name": None, "field_name": index, "pandas_type": "unicode", "numpy_type": "object", "metadata": None},
        ],
    }
    pq.write_table(table.replace_schema_metadata({"pandas": json.dumps(told)}), file)


def _described(name: str, spec: StreamSpec, picture: bool, fps: int, exact: bool) -> dict[str, Any]:
    if not picture:
        return {"dtype": np.dtype(spec.dtype).name, "shape": list(spec.shape) or [1], "names": None}
    height, width = spec.shape[:2]
    info = {
        "video.height": height,
        "video.width": width,
        "video.codec": "h264",
        "video.pix_fmt": "gbrp" if exact else "yuv420p",
        "video.is_depth_map": False,
        "video.fps": fps,
        "video.channels": _CHANNELS,
        "has_audio": False,
    }
    return {
        "dtype": "video",
        "shape": [height, width, _CHANNELS],
        "names": ["height", "width", "channels"],
        "info": info,
    }


def _by_split(table: EpisodeTable, splits: Sequence[str]) -> EpisodeTable:
    """A table whose splits are ranges of rows, in their order; episodes of one stay in theirs."""
    place = {name: i for i, name in enumerate(splits)}
    return table.select(np.argsort([place[name] for name in table["split"].astype(str).tolist()], kind="stable"))


def _splits(split: NDArray[np.str_]) -> dict[str, str]:
    """Split → its range of episodes, of a table `_by_split`."""
    begins = np.flatnonzero(np.concatenate([[True], split[1:] != split[:-1]])).tolist()
    return {str(split[a]): f"{a}:{b}" for a, b in zip(begins, [*begins[1:], len(split)], strict=True)}
