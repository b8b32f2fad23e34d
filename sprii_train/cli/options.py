"""What several commands have in common: names of presets, and options that are refused before any work is done."""

import os
import re
import shlex
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Literal

from sprii_envs.arguments import WORKERS, integer
from sprii_envs.files import plain

PresetName = Literal["smoke", "quick", "paper"]
LauncherName = Literal["local", "slurm", "ray"]


def without_detours(command: object) -> None:
    """Every path of a command as `sprii_envs.files.plain` reads it, so that what is written is found again there."""
    for field in fields(command):  # type: ignore[arg-type]
        value = getattr(command, field.name)
        if isinstance(value, Path):
            setattr(command, field.name, plain(value))
        elif is_dataclass(value):
            without_detours(value)


def check_folder(path: Path) -> None:
    """ValueError if a folder cannot be made there, before hours are spent on what it would hold."""
    check_text("--out", path)
    there = next(each for each in (path, *path.absolute().parents) if each.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise ValueError(f"--out is {path}, but {there} is not a folder that can be written to")


def check_workers(workers: int | None) -> None:
    """ValueError for no number of processes."""
    if workers is not None:
        integer("--workers", workers, least=1, most=WORKERS)


def check_text(option: str, path: Path | str) -> None:
    """ValueError for a path that is no UTF-8."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise ValueError(f"{option} is {str(path)!r}; legal: a path in UTF-8, for it is written into reports") from None


def check_file(option: str, path: Path | None) -> None:
    """ValueError, before any work is done, for a file that could not be written."""
    if path is not None:
        check_text(option, path)
    if path is not None and not path.parent.is_dir():
        raise ValueError(f"{option} {path}: there is no folder {path.parent}")
    if path is not None and path.is_dir():
        raise ValueError(f"{option} {path}: this is a folder; name a file")
    if path is not None and not os.access(path.parent, os.W_OK):
        raise ValueError(f"{option} {path}: {path.parent} cannot be written to")


def given(command: object, *options: str) -> list[str]:
    """`--option value` of those that were given, as a shell reads them."""
    values = {name: getattr(command, name) for name in options}
    return [f"--{name} {shlex.quote(str(value))}" for name, value in values.items() if value is not None]


@contextmanager
def as_options(config: str) -> Iterator[None]:
    """An error of a field of a config is told as one of the option of that name."""
    try:
        yield
    except ValueError as error:
        if (field := re.match(rf"{config}\.(\w+)", str(error))) is None:
            raise
        raise ValueError(f"--{field[1].replace('_', '-')}{str(error)[field.end() :]}") from None


def load_plugin(name: str) -> None:
    """Import a module that registers; ValueError naming it, for one that is not there or does not import."""
    import importlib

    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # the command, unlike python -m, does not search where it is called
    try:
        importlib.import_module(name)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise ValueError(f"--plugin {name}: {error}; legal: a module that can be imported from here") from error
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename}, line {last.lineno}"
        raise ValueError(f"--plugin {name} does not import: {type(error).__name__}: {error} ({where})") from error
