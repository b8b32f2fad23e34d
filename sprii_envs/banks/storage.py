"""How a bank lies on disk: raw little-endian columns, an episode table and a manifest, all without pickling.

bank/
  states.f32 …   one header-less file per column, episode-major, shape and dtype in the manifest
  episodes.npz   the EpisodeTable
  bank.json      manifest: schema, protocol, columns, sizes and SHA-256 of every file, package versions, the world
"""

import contextlib
import errno
import hashlib
import json
import math
import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sprii_envs import files
from sprii_envs.arguments import choice
from sprii_envs.banks.protocols import BankProtocol
from sprii_envs.banks.store import PER, StoreError
from sprii_envs.properties import PersistentProperties, PersistentProperty

FORMAT = "sprii-bank"
SCHEMA = 2
MANIFEST = "bank.json"
TABLE = "episodes.npz"
REMEDY = "build the bank anew or copy it again"


class BankError(StoreError):
    """A bank that cannot be built, opened or read; the message names the file and the cause."""


@dataclass(frozen=True)
class Column:
    """One array of a bank: `shape` = (episodes, entries per episode, *item), `dtype` little-endian.

    `per` says what an entry belongs to: an episode of length L has L entries per "observation" and L − 1 per
    "transition".
    """

    name: str
    file: str
    dtype: str
    shape: tuple[int, ...]
    per: str

    def __post_init__(self) -> None:
        """ValueError for what no bank holds, above all object arrays and paths out of its folder."""
        if not re.fullmatch(r"\w[\w.-]*", self.file):
            raise ValueError(f"column {self.name!r}: file {self.file!r} must be a plain file name")
        if np.dtype(self.dtype).kind not in "biuf" or len(self.shape) < 2 or min(self.shape) < 1:
            raise ValueError(f"column {self.name!r}: illegal dtype {self.dtype!r} or shape {self.shape}")
        choice(f"column {self.name!r}: per", self.per, legal=PER)

    @property
    def episode_bytes(self) -> int:
        """Bytes of one episode."""
        return math.prod(self.shape[1:]) * np.dtype(self.dtype).itemsize

    @property
    def bytes(self) -> int:
        """Bytes of the whole file."""
        return self.shape[0] * self.episode_bytes


@dataclass(frozen=True)
class Manifest:
    """The contents of `bank.json`."""

    protocol: BankProtocol
    properties: PersistentProperties
    columns: tuple[Column, ...]
    files: Mapping[str, Mapping[str, Any]]  # file → {"bytes": int, "sha256": str}
    packages: Mapping[str, str]
    world: Mapping[str, Any] | None = None
    """What made it, as `worlds.recipe` tells; None in banks of before that was recorded."""

    @property
    def fingerprint(self) -> str:
        """SHA-256 over protocol, columns and file checksums: equal fingerprints mean equal data."""
        return _fingerprint(self._content())

    def _content(self) -> dict[str, Any]:
        content = {
            "format": FORMAT,
            "schema": SCHEMA,
            "protocol": self.protocol.to_dict(),
            "properties": [_finite(asdict(p)) for p in self.properties],
            "columns": [{**asdict(column), "shape": list(column.shape)} for column in self.columns],
            "files": {name: dict(self.files[name]) for name in sorted(self.files)},
            "packages": dict(self.packages),
        }
        return content if self.world is None else content | {"world": dict(self.world)}

    def write(self, folder: Path) -> None:
        """Write `bank.json` into `folder`, atomically."""
        files.write_json(folder / MANIFEST, {**self._content(), "fingerprint": self.fingerprint})

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """Read and check `bank.json`.

        Kinds that the protocol records and that are not registered here are no damage: such a bank can be read.
        BankError for damage, another schema, edited contents or contents that this version cannot use.
        """
        path = folder / MANIFEST
        data = files.read_json(path, BankError, REMEDY)
        if data.get("format") != FORMAT:
            raise BankError(f"{path} is not a bank manifest (format {data.get('format')!r}, expected {FORMAT!r})")
        if data.get("schema") != SCHEMA:
            raise BankError(
                f"{path}: bank schema {data.get('schema')!r}, this version reads schema {SCHEMA}: build the bank again"
            )
        recorded = data.pop("fingerprint", None)
        try:
            whole = recorded == _fingerprint(data)
        except RecursionError:
            whole = False
        if not whole:
            raise BankError(f"{path} is damaged or edited: its fingerprint does not match its contents; {REMEDY}")
        try:
            manifest = cls(
                protocol=BankProtocol.from_dict(data["protocol"], unknown=True),
                properties=PersistentProperties(PersistentProperty(**_infinite(p)) for p in data["properties"]),
                columns=tuple(Column(**{**c, "shape": tuple(c["shape"])}) for c in data["columns"]),
                files={
                    name: {"bytes": int(f["bytes"]), "sha256": str(f["sha256"])} for name, f in data["files"].items()
                },
                packages=dict(data["packages"]),
                world=dict(data["world"]) if "world" in data else None,
            )
            manifest._check_files()
            if manifest._content() != data:
                raise ValueError("it has fields that are unknown here")
        except Exception as error:  # what others wrote raises nearly anything
            reason = f"it lacks {error}" if isinstance(error, KeyError) else error
            raise BankError(f"{path} is as it was written, but this version cannot use it: {reason}") from error
        return manifest

    def _check_files(self) -> None:
        """ValueError unless the files are those of the columns and the table: no others may be read."""
        sizes: dict[str, int | None] = {column.file: column.bytes for column in self.columns}
        if len(sizes) < len(self.columns) or len({c.name for c in self.columns}) < len(self.columns):
            raise ValueError("two columns have one name or file")
        sizes[TABLE] = None
        if differing := sorted(set(sizes) ^ set(self.files)):
            raise ValueError(f"it must list the files {', '.join(sizes)}; not so for {differing[0]!r}")
        for name, size in sizes.items():
            if size not in (None, self.files[name]["bytes"]):
                raise ValueError(f"{name} does not have the size of its shape")


def _fingerprint(content: Mapping[str, Any]) -> str:
    """SHA-256 of a manifest's contents but the package versions and the world's description, which are not data."""
    counted = {key: value for key, value in content.items() if key not in ("packages", "world")}
    return hashlib.sha256(json.dumps(counted, sort_keys=True).encode()).hexdigest()


def _finite(declaration: dict[str, Any]) -> dict[str, Any]:
    """JSON has no infinity: an unbounded property has no `physical_high`."""
    return {key: value for key, value in declaration.items() if value != math.inf}


def _infinite(declaration: Mapping[str, Any]) -> dict[str, Any]:
    return {"physical_high": math.inf, **declaration}


def reserve(path: Path, size: int) -> None:
    """Give a file exactly `size` bytes, reserved on the disk where it can be; OSError(ENOSPC) if full."""
    path.touch()
    with open(path, "r+b") as file:
        file.truncate(size)
        if size and hasattr(os, "posix_fallocate"):
            try:
                os.posix_fallocate(file.fileno(), 0, size)
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                    raise


def partial_path(path: Path) -> Path:
    """Where the bank at `path` is put together: beside it, and where `path` is a link, beside its target."""
    target = Path(os.path.realpath(path))
    return target.with_name(target.name + ".partial")


def free_bytes(path: Path) -> int:
    """Free bytes of the file system that `path` will be written to."""
    return shutil.disk_usage(existing(path)).free


def free_files(path: Path) -> int:
    """How many more files the file system that `path` will be written to can hold (its free inodes)."""
    status = os.statvfs(existing(path)) if hasattr(os, "statvfs") else None
    return status.f_favail if status and status.f_files else sys.maxsize  # some file systems count none


def existing(path: Path) -> Path:
    """The nearest folder above `path` that is there, or `path` itself; links lead to their target's disk."""
    path = Path(os.path.realpath(path))
    while not path.exists():
        path = path.parent
    return path


def lock_path(path: Path) -> Path:
    """Where the build lock of the bank at `path` is, its links followed."""
    return path.with_name(path.name + ".lock")


def lock(path: Path, wait: bool) -> contextlib.AbstractContextManager[None]:
    """Hold the build lock of the bank at `path`; BankError when another process holds it and `wait` is false."""
    busy = "is held: this bank is being built"
    return files.lock(lock_path(path), wait=wait, busy=busy, error=BankError)
