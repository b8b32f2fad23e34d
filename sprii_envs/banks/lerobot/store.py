"""A LeRobot dataset as a store, with labels of one's own; and a bank of it.

A random window of Parquet costs the decoding of a whole row group, of up to 100 MB as lerobot writes them. So a column
of numbers is streamed once into a memory map when it is first read, and its windows cost what a bank's do. Pictures
stay where they are and are decoded when they are read: decoded they would be 100 times as large.
"""

import hashlib
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sprii_envs import files
from sprii_envs.arguments import flag, integer, shown
from sprii_envs.banks.arrow import numbers, spooled
from sprii_envs.banks.copying import chosen, copy_store, specs
from sprii_envs.banks.films import FilmReader, Frames, picture
from sprii_envs.banks.generated import Progress
from sprii_envs.banks.lerobot.layout import DATA_PLACE, INFO, LABEL, Feature, Meta, parquet, read_meta, rows
from sprii_envs.banks.recorded import RecordedBank
from sprii_envs.banks.referenced import Referenced
from sprii_envs.banks.store import COPY, StoreError, Stream
from sprii_envs.banks.tables import check_lengths, finite_labels, labels_of
from sprii_envs.relations import EpisodeTable
from sprii_envs.videos import smaller

_BATCH = 1 << 16
"""Rows of Parquet that are decoded at once."""

_GROUPS = 4
"""Row groups of encoded pictures that are kept for the next window."""


class LeRobotStore(Referenced):
    """A `Store` of the dataset in a folder; `open` makes its table.

    Columns are the dataset's features by their names, all but texts and the numbers of rows. Videos and images are
    (n, length, height, width, 3) uint8, as they were recorded: no normalisation.

    Attributes:
        fps: frames a second.
        robot: type of the robot, "" if it is not told.
        origin: of the store that was exported, {} of a dataset that was not.
    """

    FORMAT, DATA = "sprii-lerobot", "the LeRobot dataset"

    def __init__(
        self, root: files.StrPath, table: EpisodeTable, *, sealed: tuple[str, ...] = (), name: str | None = None
    ) -> None:
        """A store of episodes whose ids are `episode_index`; see `open`."""
        super().__init__(files.absolute(root), table, sealed=sealed, name=name)
        self._meta = read_meta(self.root)
        _check_episodes(self._meta, table, self.name)
        self.fps, self.robot, self.origin = self._meta.fps, self._meta.robot, dict(self._meta.origin)
        self._streams: dict[str, Stream] = {}
        self._films = FilmReader(self.fps) if any(f.kind != "number" for f in self._meta.features.values()) else None
        self._places: list[tuple[Path, int, int, int]] | None = None
        self._groups: OrderedDict[tuple[Path, int, str], Any] = OrderedDict()

    @classmethod
    def open(cls, root: files.StrPath, labels: Any = None, *, sealed: tuple[str, ...] | None = None) -> Self:
        """The dataset in a folder.

        The table has `episode` (the `episode_index`), `length`, `task` (its text), `system`, `split`, and the labels
        that a store which was exported had. `split` is that of `labels`, else of those labels, else of `info.json`
        where that tells of every episode, else `train`.

        Args:
            labels: columns by episode: a mapping, an `EpisodeTable` or a data frame. With a column `episode` (or
                `episode_index`) the store has these episodes only, else there is a row for each in order. `system`
                says what persists; by default an episode's system is its task, by its index.
            sealed: splits kept for one last evaluation; by default those that the exported store kept.

        Raises:
            StoreError: naming the file that is missing, damaged or of another version; for labels of no or of other
                episodes, for episodes of several tasks without a `system`, and without a `split` for ranges of
                `info.json` that overlap, leave the dataset, or are not those of the labels.
            PackageImportError: without pyarrow, and PyAV where there are pictures.
        """
        place = files.absolute(root)
        meta = read_meta(place)
        table = _table(meta, labels)
        kept = tuple(s for s in meta.sealed if s in table["split"].astype(str)) if sealed is None else sealed
        return cls(place, table, sealed=kept)

    @classmethod
    def of(cls, root: Path, table: EpisodeTable, sealed: tuple[str, ...], name: str) -> Self:
        """See `Referenced.load`."""
        return cls(root, table, sealed=sealed, name=name)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the features that can be read."""
        return tuple(self._meta.features)

    def windows(self, column: str, episodes: ArrayLike, starts: ArrayLike, length: int) -> NDArray[Any]:
        """Windows of a column: frames starts…starts+length−1 of episodes by their ids, (n, length, *item).

        The first window of a column of numbers streams all of it. StoreError as `ArrayStore.windows`, and naming a
        file that is missing or damaged, or whose size or time is another than when the store was opened.
        """
        feature = self._meta.features.get(column)
        fewer = feature is not None and feature.per == "transition"
        where = self._ranges(column, fewer, episodes, starts, length)
        assert feature is not None  # or _ranges had refused it
        index = self.table["episode"]
        if feature.kind == "number":
            return self._stream(feature).windows(where._replace(rows=index[where.rows]), self._begins)
        parts = [
            self._pictures(feature, int(index[row]), int(begin), where.length)
            for row, begin in zip(where.rows, where.begins, strict=True)
        ]
        frames = np.stack(parts) if parts else np.empty((0, where.length, *_sides(feature), 3), np.uint8)
        return frames[..., 0] if feature.gray else frames

    @property
    def _begins(self) -> NDArray[np.int64]:
        return self._meta.episodes["dataset_from_index"]

    def _stream(self, feature: Feature) -> Stream:
        """A column of numbers, streamed into a memory map when it is first asked for."""
        if feature.name not in self._streams:
            self._check_unchanged(self._data())
            if not self._streams:
                self._check_rows()
            values = spooled(self._blocks(feature), feature.name)
            self._check_unchanged(self._data())  # nor while it was read
            self._streams[feature.name] = Stream(values, per=feature.per)
        return self._streams[feature.name]

    def _blocks(self, feature: Feature) -> Iterator[NDArray[Any]]:
        for file in self._data():
            for batch in parquet(file).iter_batches(_BATCH, columns=[feature.name]):
                values = numbers(batch.column(0), f"{file}: {feature.name!r}")
                try:
                    yield values.reshape(-1, *feature.shape)
                except ValueError:
                    raise StoreError(
                        f"{file}: an entry of {feature.name!r} has shape {values.shape[1:]}; its info says "
                        f"{feature.shape}"
                    ) from None

    def _data(self) -> list[Path]:
        """Files of rows in their order."""
        columns = (self._meta.episodes[name].tolist() for name in DATA_PLACE)
        places = sorted(set(zip(*columns, strict=True)))
        return [self.root / self._meta.data.format(chunk_index=chunk, file_index=file) for chunk, file in places]

    def _check_rows(self) -> None:
        """StoreError unless the rows are those of the episodes, one after another."""
        told = np.repeat(np.arange(len(self._begins)), self._meta.length)
        count = 0
        for file in self._data():
            for batch in parquet(file).iter_batches(_BATCH, columns=["episode_index"]):
                found = numbers(batch.column(0), f"{file}: 'episode_index'")
                wanted = told[count : count + len(found)]
                if len(wanted) < len(found) or (found != wanted).any():
                    raise StoreError(f"{file} holds other episodes than meta/episodes tells from row {count:,} on")
                count += len(found)
        if count != len(told):
            raise StoreError(f"{self.root} has {count:,} rows of data; its episodes have {len(told):,}")

    def _pictures(self, feature: Feature, episode: int, begin: int, length: int) -> Frames:
        if feature.kind == "video":
            assert self._films is not None
            file, first = self._meta.film(feature.name, episode)
            self._check_unchanged([file])
            return self._films.frames(file, first + begin, length)
        first = int(self._begins[episode]) + begin
        return np.stack([self._image(feature.name, first + i) for i in range(length)])

    def _image(self, name: str, row: int) -> Frames:
        """A picture that is encoded in a row."""
        if self._places is None:
            self._places, count = [], 0
            for file in self._data():
                metadata = parquet(file).metadata
                for group in range(metadata.num_row_groups):
                    size = metadata.row_group(group).num_rows
                    self._places.append((file, group, count, count + size))
                    count += size
        file, group, begin, end = self._places[bisect_right(self._places, row, key=lambda place: place[2]) - 1]
        key = (file, group, name)
        if key not in self._groups:
            self._check_unchanged([file])
            self._groups[key] = rows(file, [name], group)[name].combine_chunks()
            if len(self._groups) > _GROUPS:
                self._groups.popitem(last=False)
        self._groups.move_to_end(key)
        encoded = self._groups[key][row - begin].as_py()
        what = f"{file}: {name!r} of row {row - begin} of {end - begin}"
        if not isinstance(encoded, Mapping) or not isinstance(encoded.get("bytes"), bytes):
            raise StoreError(f"{what} holds no encoded picture")
        return picture(encoded["bytes"], what)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as folder and table: windows are streamed anew where it is unpickled."""
        return _reopened, (type(self), self.root, self.table, self.sealed_splits, self.name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.table):,} episodes, {', '.join(self.columns)}, {self.name!r})"


def _reopened(
    kind: type[LeRobotStore], root: Path, table: EpisodeTable, sealed: tuple[str, ...], name: str
) -> LeRobotStore:
    return kind(root, table, sealed=sealed, name=name)


def _sides(feature: Feature) -> tuple[int, ...]:
    """Height and width of pictures, whose channels come first or last."""
    return feature.shape[1:] if feature.shape[0] in (1, 3) else feature.shape[:2]


def _table(meta: Meta, labels: Any) -> EpisodeTable:
    """The table of a dataset with labels of one's own."""
    count = len(meta.length)
    own = _columns(labels, count, str(meta.root))
    ids = own.pop("episode", np.arange(count))
    if ids.ndim != 1 or ids.dtype.kind not in "iu" or not len(ids):
        legal = f"integers (N,) of 0 to {count - 1}, each an episode_index"
        raise StoreError(f"{meta.root}: labels of the episodes {shown(ids.tolist())}; legal: {legal}")
    if ids.min() < 0 or ids.max() >= count:
        raise StoreError(f"{meta.root}: labels of episodes {ids.min()} to {ids.max()}; it has 0 to {count - 1}")
    finite_labels(own, ids, str(meta.root))
    told: dict[str, NDArray[Any]] = {"task": np.array(meta.tasks)[ids]}
    if "split" not in own and (split := _splits(meta)) is not None:
        told["split"] = split[ids]
    told |= {n.removeprefix(LABEL): values[ids] for n, values in meta.episodes.items() if n.startswith(LABEL)}
    check_lengths(own.pop("length", meta.length[ids]), meta.length[ids], ids, str(meta.root))
    told |= own
    if "system" not in told:
        several = meta.task[ids] < 0
        if several.any():
            raise StoreError(
                f"{meta.root}: episode {ids[several.argmax()]} has several tasks or none, so they are no system; give "
                "labels with a column 'system'"
            )
        told["system"] = meta.task[ids]
    try:
        table = EpisodeTable({"episode": ids, "system": told.pop("system"), "length": meta.length[ids], **told})
    except ValueError as error:
        raise StoreError(f"{meta.root}: {error}") from None
    return (
        table
        if "split" in table
        else EpisodeTable({c: table[c] for c in table.columns} | {"split": ["train"] * len(ids)})
    )


def _columns(labels: Any, count: int, name: str) -> dict[str, NDArray[Any]]:
    """Labels by name; StoreError where there are neither ids of episodes nor a row for each."""
    if labels is None:
        return {}
    found = labels_of(labels, name)
    if "episode_index" in found:
        found["episode"] = found.pop("episode_index")
    if "episode" not in found:
        for column, values in found.items():
            if values.shape != (count,):
                raise StoreError(
                    f"{name}: label {column!r} is of shape {values.shape}; legal: ({count},), one an episode, or any "
                    "with a column 'episode'"
                )
    return found


def _splits(meta: Meta) -> NDArray[np.str_] | None:
    """The split of every episode, where the dataset tells of each; StoreError where what it tells does not agree."""
    split, place = np.full(len(meta.length), "", dtype=object), f"{meta.root / INFO}: the split"
    for name, episodes in meta.splits.items():
        own = split[episodes.start : episodes.stop]
        if not 0 <= episodes.start <= episodes.stop <= len(split):
            raise StoreError(f"{place} {name!r} is {episodes.start}:{episodes.stop}; legal: within 0:{len(split)}")
        if (taken := own != "").any():
            at = episodes.start + int(taken.argmax())
            raise StoreError(f"{place} {name!r} has episode {at}, which is in {split[at]!r}, too; legal: one of them")
        own[:] = name
    kept = meta.episodes.get(f"{LABEL}split", split).astype(str)
    if set(meta.splits) == {"train"}:  # what earlier exports say of splits that are no ranges
        kept = split
    if (differ := (kept != split) & (split != "")).any():
        at = int(differ.argmax())
        labelled = f"its label {LABEL}split is {str(kept[at])!r}"
        raise StoreError(f"{place} of episode {at} is {split[at]!r}, {labelled}; give labels with a column 'split'")
    return split.astype(str) if (split != "").all() else None


def _check_episodes(meta: Meta, table: EpisodeTable, name: str) -> None:
    ids, lengths = table["episode"], meta.length
    if ids.min() < 0 or ids.max() >= len(lengths) or (lengths[ids] != table["length"]).any():
        raise StoreError(f"{name}: its table is of another dataset than {meta.root} of {len(lengths):,} episodes")


def import_lerobot(
    root: files.StrPath,
    path: files.StrPath,
    labels: Any = None,
    *,
    sealed: tuple[str, ...] | None = None,
    videos: bool = True,
    size: int | None = None,
    progress: Progress | None = None,
) -> RecordedBank:
    """Read a dataset into a bank at `path`, or open it if it is there already; after a kill the same call goes on.

    Args:
        root, labels, sealed: see `LeRobotStore.open`.
        videos: whether pictures are decoded; else the bank has numbers only.
        size: pixels along a side of the pictures, made by averaging areas; by default as they are.
        progress: (done, total) episodes.

    Raises:
        ValueError: for a size that no picture has.
        StoreError: see `LeRobotStore.open`; for a path that holds another bank, or too little room on its disk.
    """
    store = LeRobotStore.open(root, labels, sealed=sealed)
    pictures = {name for name, feature in store._meta.features.items() if feature.kind != "number"}
    videos = flag("videos", videos)
    if size is not None:
        size = integer("size", size, least=1)
        if not videos:
            raise ValueError("size and videos=False exclude each other")
    names = [name for name in store.columns if videos or name not in pictures]
    source: Any = store if size is None else _Smaller(store, pictures, size)
    origin = {"kind": "lerobot", "robot": store.robot, "fps": store.fps, "size": size, "meta": _identity(store)}
    origin |= {COPY: store.origin} if store.origin else {}
    table = chosen(store, None, unseal=True)
    bank = copy_store(
        source, path, origin, table=table, columns=specs(source, names), sealed=store.sealed_splits, progress=progress
    )
    if bool(pictures & set(bank.columns)) != bool(pictures & set(names)):  # it was finished by a call for others
        has = "has" if pictures & set(bank.columns) else "lacks"
        raise StoreError(
            f"{files.absolute(path)} holds another bank: it {has} the pictures; legal: videos={not videos}, with which "
            "it was made, or another path"
        )
    return bank


def _identity(store: LeRobotStore) -> str:
    """SHA-256 of `meta/`, the labels and the sealed splits: what a bank is recognised by when its import goes on."""
    meta = sorted(file for file in (store.root / "meta").rglob("*") if file.is_file())
    told = [f"{file.relative_to(store.root).as_posix()} {files.checksum(file)}" for file in meta]
    told += [store.table.fingerprint(), *store.sealed_splits]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()


class _Smaller:
    """A store whose pictures are made smaller when they are read."""

    def __init__(self, store: LeRobotStore, shown: set[str], size: int) -> None:
        self._store, self._shown, self._size = store, shown, size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def windows(self, column: str, episodes: ArrayLike, starts: ArrayLike, length: int) -> NDArray[Any]:
        found = self._store.windows(column, episodes, starts, length)
        if column not in self._shown:
            return found
        if found.ndim == 4:  # gray
            return smaller(np.repeat(found[..., None], 3, axis=-1), self._size)[..., 0]
        return smaller(found, self._size)
