"""Named arrays in one npz file, written atomically and read without pickle."""

import os
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, KeyError, ValueError, OSError, AttributeError)


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
    try:
        with np.load(path, allow_pickle=False) as archive:
            found = int(archive["format"])
            arrays = {name: archive[name] for name in archive.files if name != "format"}
            for name in needed:
                _ = arrays[name]
    except _ERRORS as error:
        if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError):
            raise
        raise ValueError(f"{os.fspath(path)} is not {what} or is damaged: {error}") from error
    if found != version:
        name = what.split(maxsplit=1)[1].replace(" ", "-")
        raise ValueError(f"{os.fspath(path)} has {name} format {found}; this version reads {version}")
    return arrays


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
