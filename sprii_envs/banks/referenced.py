"""Stores of data that stay where they are: a folder keeps the table of episodes, and what the data's bytes were.

folder/
  episodes.npz   the EpisodeTable
  bank.json      where the data lie, sealed splits, sizes and SHA-256 of their files
"""

import hashlib
import json
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from numpy.typing import ArrayLike

from sprii_envs import files
from sprii_envs.banks.ranges import Ranges
from sprii_envs.banks.store import (
    StoreError,
    WindowStore,
    new_folder,
    ranges_in,
    sealed_names,
    split_of,
    with_splits,
)
from sprii_envs.relations import EpisodeTable

_MANIFEST, _TABLE = "bank.json", "episodes.npz"
_REMEDY = "remove the folder and save it again"


class Referenced(WindowStore):
    """What such stores share; a subclass has a `FORMAT`, and is made of the data's folder and a table.

    Attributes:
        root: folder of the data.
        name: of the store: the root, or the folder that it was loaded from.
        table, splits, sealed_splits: see `Store`.
    """

    FORMAT: ClassVar[str]
    SCHEMA: ClassVar[int] = 1
    DATA: ClassVar[str]
    """What the data are, for messages."""

    def __init__(
        self, root: Path, table: EpisodeTable, *, sealed: tuple[str, ...] = (), name: str | None = None
    ) -> None:
        """StoreError for an unknown sealed split."""
        self.root, self.name, self.sealed_splits = root, str(root) if name is None else name, sealed_names(sealed)
        self.table, self.splits = with_splits(table, self.sealed_splits, self.name)
        self._order = self.table.by_episode()
        self._files: dict[str, Any] | None = None
        self._seen = {file: files.revision(file) for file in _within(root)}

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""

    @classmethod
    @abstractmethod
    def of(cls, root: Path, table: EpisodeTable, sealed: tuple[str, ...], name: str) -> Self:
        """The store of data in a folder, of a table that `save` kept."""

    @classmethod
    def load(cls, path: files.StrPath) -> Self:
        """What `save` wrote, with the data where they lay then; their files' sizes are checked.

        Raises:
            StoreError: naming the file that is missing, damaged or of another format.
        """
        folder = files.absolute(path)
        place = folder / _MANIFEST
        manifest = files.read_json(place, StoreError, _REMEDY)
        if (manifest.get("format"), manifest.get("schema")) != (cls.FORMAT, cls.SCHEMA):
            raise StoreError(
                f"{place} is of format {manifest.get('format')!r}, schema {manifest.get('schema')!r}; this reads "
                f"{cls.FORMAT!r}, schema {cls.SCHEMA}"
            )
        try:
            root, sealed = Path(manifest["data"]), tuple(manifest["sealed"])
            kept, fingerprint = dict(manifest["files"]), manifest["fingerprint"]
        except (KeyError, TypeError, ValueError) as error:
            raise StoreError(f"{place} is damaged: {type(error).__name__}: {error}; {_REMEDY}") from error
        if not root.is_dir():
            raise StoreError(f"{place} is of {cls.DATA} in {root}, which is not there; {_REMEDY}")
        try:
            table = EpisodeTable.load(folder / _TABLE)
        except (OSError, ValueError) as error:
            raise StoreError(f"{folder / _TABLE} is damaged: {error}; {_REMEDY}") from error
        if fingerprint != _fingerprint(table, sealed, kept):
            raise StoreError(f"{folder} is damaged or edited: its fingerprint is not of its contents; {_REMEDY}")
        _check(root, kept, checksums=False)
        store = cls.of(root, table, sealed, str(folder))
        store._files = kept
        return store

    def save(self, path: files.StrPath) -> Self:
        """Keep the table, and what the data's bytes are, in a new folder; the store that `open_store` opens there.

        Raises:
            StoreError: if something is there, or it cannot be written.
        """
        folder = files.absolute(path)
        _ = self._kept  # before there is a folder, which may be within the data's
        with new_folder(folder) as temporary:
            self.table.save(temporary / _TABLE)
            told = {"format": self.FORMAT, "schema": self.SCHEMA, "data": str(self.root), "sealed": self.sealed_splits}
            files.write_json(temporary / _MANIFEST, {**told, "files": self._kept, "fingerprint": self.fingerprint})
        return self.load(folder)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the table, the sealed splits and the files of the data, wherever they lie."""
        return _fingerprint(self.table, self.sealed_splits, self._kept)

    @property
    def _kept(self) -> dict[str, Any]:
        """Size and SHA-256 of the data's files, as they were when the store was opened."""
        if self._files is None:
            found = {
                file.relative_to(self.root).as_posix(): {"bytes": file.stat().st_size, "sha256": files.checksum(file)}
                for file in _within(self.root)
            }
            self._check_unchanged({*self._seen, *(self.root / name for name in found)})
            self._files = found
        return self._files

    def _check_unchanged(self, of: Iterable[Path]) -> None:
        """StoreError naming a file of the data that is gone, or of another size or time than when this was opened."""
        for file in of:
            if (now := files.revision(file)) != self._seen.get(file):
                told = "is missing" if now is None else "has changed since the store was opened; open it again"
                raise StoreError(f"{file} {told}")

    def split(self, name: str, *, unseal: bool = False) -> EpisodeTable:
        """The episodes of one split; StoreError for an unknown one and for a sealed one without `unseal`."""
        return split_of(self, name, unseal)

    def verify(self, *, checksums: bool = True) -> None:
        """StoreError naming the first file of the data whose size, or with `checksums` a byte, is another.

        Another than when the store was saved, or its fingerprint first asked for. Of a store without either there is
        no checksum to compare with: sizes and times are compared with those of when it was opened.
        """
        if self._files is None:
            self._check_unchanged(self._seen)
        else:
            _check(self.root, self._files, checksums=checksums)

    def _ranges(self, column: str, fewer: int, episodes: ArrayLike, starts: ArrayLike, length: int) -> Ranges:
        """Rows of the table and steps of windows; StoreError as `ArrayStore.windows`."""
        if column not in self.columns:
            raise StoreError(f"{self.name}: no column {column!r}; columns: {', '.join(self.columns)}")
        return ranges_in(self.name, self.table, self._order, column, fewer, episodes, starts, length)


def _fingerprint(table: EpisodeTable, sealed: tuple[str, ...], kept: Mapping[str, Any]) -> str:
    told = [table.fingerprint(), table.rows_fingerprint(), sorted(sealed), kept]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _within(root: Path) -> list[Path]:
    return sorted(file for file in root.rglob("*") if file.is_file())


def _check(root: Path, kept: Mapping[str, Any], *, checksums: bool) -> None:
    for name, entry in kept.items():
        files.check_file(root / name, entry, checksums=checksums, error=StoreError, ours=False)
