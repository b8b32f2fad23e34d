"""Named arrays in one npz file, written atomically and read without pickle."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def write_npz(path: str | os.PathLike[str], version: int, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write the arrays with a format version; a killed write leaves the old file or none."""
    path = Path(path)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, allow_pickle=False, format=np.int64(version), **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read_npz(path: str | os.PathLike[str], version: int, what: str, needed: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """What `write_npz` wrote; ValueError naming the file if it is damaged, another version or not `what`."""
    with naming(path, what), np.load(path, allow_pickle=False) as archive:
        found = int(archive["format"])
        arrays = {name: archive[name] for name in archive.files if name != "format"}
        for name in needed:
            _ = arrays[name]
    if found != version:
        name = what.split(maxsplit=1)[1].replace(" ", "-")
        raise ValueError(f"{os.fspath(path)} has {name} format {found}; this version reads {version}")
    return arrays


@contextmanager
def naming(path: str | os.PathLike[str], what: str) -> Iterator[None]:
    """Turn what the contents of a file give rise to into a ValueError that names it."""
    try:
        yield
    except (FileNotFoundError, PermissionError, IsADirectoryError):
        raise
    except Exception as error:  # a damaged zip raises nearly anything
        reason = f"it lacks {error}" if isinstance(error, KeyError) else error
        raise ValueError(f"{os.fspath(path)} is not {what} or is damaged: {reason}") from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
