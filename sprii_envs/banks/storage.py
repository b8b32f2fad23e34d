"""How a bank lies on disk: raw little-endian columns, an episode table and a manifest, all without pickling.

bank/
  states.f32 …   one header-less file per column, episode-major, shape and dtype in the manifest
  episodes.npz   the EpisodeTable
  bank.json      manifest: schema, protocol, columns, sizes and SHA-256 of every file, package versions
"""

import contextlib
import errno
import hashlib
import json
import math
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sprii_envs.banks.protocols import BankProtocol
from sprii_envs.properties import PersistentProperties, PersistentProperty

try:
    import fcntl
except ImportError:  # Windows has no flock: there, two builders of one bank are not kept apart.
    fcntl = None

FORMAT = "sprii-bank"
SCHEMA = 2
MANIFEST = "bank.json"
TABLE = "episodes.npz"


class BankError(ValueError):
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
        if not self.file or Path(self.file).name != self.file:
            raise ValueError(f"column {self.name!r}: file {self.file!r} must be a plain file name")
        if np.dtype(self.dtype).kind not in "biuf" or len(self.shape) < 2 or min(self.shape) < 1:
            raise ValueError(f"column {self.name!r}: illegal dtype {self.dtype!r} or shape {self.shape}")
        if self.per not in ("observation", "transition"):
            raise ValueError(f"column {self.name!r}: per must be 'observation' or 'transition'")

    @property
    def episode_bytes(self) -> int:
        """Bytes of one episode."""
        return int(np.prod(self.shape[1:], dtype=np.int64)) * np.dtype(self.dtype).itemsize

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

    @property
    def fingerprint(self) -> str:
        """SHA-256 over protocol, columns and file checksums: equal fingerprints mean equal data."""
        content = {key: value for key, value in self._content().items() if key != "packages"}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def _content(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "schema": SCHEMA,
            "protocol": self.protocol.to_dict(),
            "properties": [_finite(asdict(p)) for p in self.properties],
            "columns": [{**asdict(column), "shape": list(column.shape)} for column in self.columns],
            "files": {name: dict(self.files[name]) for name in sorted(self.files)},
            "packages": dict(self.packages),
        }

    def write(self, folder: Path) -> None:
        """Write `bank.json` into `folder`, atomically."""
        write_json(folder / MANIFEST, {**self._content(), "fingerprint": self.fingerprint})

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """Read and check `bank.json`; BankError for damage, another schema or edited contents."""
        path = folder / MANIFEST
        data = read_json(path)
        if data.get("format") != FORMAT:
            raise BankError(f"{path}: not a bank manifest (format {data.get('format')!r}, expected {FORMAT!r})")
        if data.get("schema") != SCHEMA:
            raise BankError(
                f"{path}: bank schema {data.get('schema')!r}, this version reads schema {SCHEMA}: build the bank again"
            )
        try:
            manifest = cls(
                protocol=BankProtocol.from_dict(data["protocol"]),
                properties=PersistentProperties(PersistentProperty(**_infinite(p)) for p in data["properties"]),
                columns=tuple(Column(**{**c, "shape": tuple(c["shape"])}) for c in data["columns"]),
                files={
                    name: {"bytes": int(f["bytes"]), "sha256": str(f["sha256"])} for name, f in data["files"].items()
                },
                packages=data["packages"],
            )
            recorded = data["fingerprint"]
            consistent = recorded == manifest.fingerprint
            sizes = {c.file: c.bytes for c in manifest.columns}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BankError(f"{path}: damaged manifest: {type(error).__name__}: {error}") from error
        if not consistent:
            raise BankError(f"{path}: damaged or edited manifest: its fingerprint does not match its contents")
        for name in (*sizes, TABLE):
            if name not in manifest.files:
                raise BankError(f"{path}: damaged manifest: no size and checksum for {name}")
            if name in sizes and manifest.files[name]["bytes"] != sizes[name]:
                raise BankError(f"{path}: damaged manifest: {name} does not have the size of its shape")
        return manifest


def _finite(declaration: dict[str, Any]) -> dict[str, Any]:
    """JSON has no infinity: an unbounded property has no `physical_high`."""
    return {key: value for key, value in declaration.items() if value != math.inf}


def _infinite(declaration: Mapping[str, Any]) -> dict[str, Any]:
    return {"physical_high": math.inf, **declaration}


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file; BankError when it is missing, unreadable or not an object."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BankError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise BankError(f"{path}: damaged JSON: {error}") from error
    if not isinstance(data, dict):
        raise BankError(f"{path}: damaged JSON: expected an object, got {type(data).__name__}")
    return data


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write JSON that is either wholly there or not at all after a crash."""
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(data, file, indent=2, ensure_ascii=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_folder(path.parent)


def sync_file(path: Path) -> None:
    """Force a file's contents to the disk."""
    with open(path, "r+b") as file:
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Force a folder's entries (new names, renames) to the disk."""
    if os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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


def checksum(path: Path) -> str:
    """SHA-256 of a file, read in pieces."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_size(path: Path, expected: int) -> None:
    """BankError when a bank's file is missing or does not have the recorded size."""
    try:
        actual = path.stat().st_size
    except OSError as error:
        raise BankError(f"{path}: missing from the bank: {error.strerror}") from error
    if actual != expected:
        kind = "truncated" if actual < expected else "too long"
        raise BankError(f"{path}: {kind}: {actual:,} bytes, expected {expected:,}")


def partial_path(path: Path) -> Path:
    """Where the bank at `path` is put together."""
    return path.with_name(path.name + ".partial")


def free_bytes(path: Path) -> int:
    """Free bytes of the file system that `path` will be written to."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


@contextlib.contextmanager
def lock(path: Path, wait: bool) -> Iterator[None]:
    """Hold the build lock of the bank at `path`; the kernel releases it however the process ends.

    Raises BankError when another process holds it and `wait` is false.
    """
    name = path.with_name(path.name + ".lock")
    if fcntl is None:
        yield
        return
    while True:
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            if not wait:
                raise BankError(f"{path}: another process (pid {holder}) is building this bank") from None
            time.sleep(0.1)
            continue
        # The former holder may have removed the name between our open and our lock: no lock at all.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.stat(name)):
                break
        os.close(descriptor)
    try:
        os.truncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        yield
    finally:
        name.unlink(missing_ok=True)
        os.close(descriptor)
