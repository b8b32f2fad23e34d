"""Named arrays in one npz file, written atomically and read without pickle."""

import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from sprii_envs.files import written_file


def write_npz(
    path: str | os.PathLike[str], version: int, arrays: Mapping[str, NDArray[Any]], *, compress: bool = False
) -> None:
    """Write the arrays with a format version; a killed write leaves the old file or none, and no other for long."""
    with written_file(path) as temporary, open(temporary, "wb") as file:
        save = np.savez_compressed if compress else np.savez
        save(file, allow_pickle=False, format=np.int64(version), **arrays)


def read_npz(path: str | os.PathLike[str], version: int, what: str, needed: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """What `write_npz` wrote.

    ValueError naming the file if it is damaged, another version or not `what`, OSError if it cannot be read.
    """
    with naming(path, what), open(path, "rb") as file, _archive(file) as archive:
        held = int(archive["format"])
        arrays = {name: archive[name] for name in archive.files if name != "format"} if held == version else {}
    if held != version:
        name = what.split(maxsplit=1)[1].replace(" ", "-")
        raise ValueError(f"{os.fspath(path)} has {name} format {held}; this version reads {version}")
    with naming(path, what):
        for name in needed:
            _ = arrays[name]
    return arrays


def _archive(file: BinaryIO) -> np.lib.npyio.NpzFile:
    """Of an npz file; NumPy would take any other for a pickle, and advise to load it as one."""
    if not zipfile.is_zipfile(file):
        raise ValueError("it is no npz file")
    file.seek(0)
    return np.load(file, allow_pickle=False)


@contextmanager
def naming(path: str | os.PathLike[str], what: str) -> Iterator[None]:
    """Turn what the contents of a file give rise to into a ValueError that names it."""
    try:
        yield
    except Exception as error:  # a damaged zip raises nearly anything
        if isinstance(error, OSError) and error.filename is not None:  # it cannot be opened: not of the contents
            raise
        reason = f"it lacks {error}" if isinstance(error, KeyError) else error
        if "pickle" in str(error):  # NumPy's text advises to load it all the same
            reason = "it holds Python objects, which are never read"
        raise ValueError(f"{os.fspath(path)} is not {what} or is damaged: {reason}") from error
