"""Kills and damage of anything that is kept on disk: what a reader then gets is the old, the new, or a clear error."""

import hashlib
import os
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from kills import kills

NAME = "it"
"""What is written into a folder of its own."""


@dataclass(frozen=True)
class Kept:
    """Something on disk: `write(path, seed)` writes it whole, `read(path)` tells all it holds, checked."""

    name: str
    write: Callable[[Path, int], Any]
    read: Callable[[Path], Any]
    over: bool = False
    """Whether it may be written over another."""

    def __str__(self) -> str:
        return self.name


def told(value: Any) -> str:
    """A digest of arrays, texts, numbers, and what holds them."""
    seen = hashlib.sha256()

    def add(x: Any) -> None:
        if isinstance(x, dict):
            for key in sorted(x, key=str):
                add(str(key))
                add(x[key])
        elif isinstance(x, tuple | list):
            for each in x:
                add(each)
        elif isinstance(x, np.ndarray) and x.dtype != object:
            seen.update(f"{x.dtype}{x.shape}".encode() + np.ascontiguousarray(x).tobytes())
        else:
            seen.update(repr(x.tolist() if isinstance(x, np.ndarray) else x).encode())

    add(value)
    return seen.hexdigest()[:12]


def contents(store: Any) -> dict[str, Any]:
    """Every label and every entry of a store."""
    table, found = store.table, {}
    for episode, length in zip(table["episode"].tolist(), table["length"].tolist(), strict=True):
        for name in store.columns:
            try:
                entries = store.windows(name, [episode], [0], length)
            except ValueError:  # one of every transition
                entries = store.windows(name, [episode], [0], length - 1)
            found[name, episode] = entries
    return found | {f"table {name}": table[name] for name in table.columns}


def outcome(kept: Kept, path: Path, legal: set[str]) -> str:
    """What reading gives: "read", or the kind of a clear error; AssertionError for wrong data or an unclear error."""
    try:
        found = told(kept.read(path))
    except (ValueError, OSError) as error:  # the project's errors are ValueErrors
        said = str(error)
        assert str(path.parent) in said or path.name in said, f"{kept}: the error names no file: {said}"
        assert "\n" not in said, f"{kept}: more than one line: {said}"
        return "refused"
    assert found in legal, f"{kept}: wrong data were read from {path}"
    return "read"


def killed_everywhere(kept: Kept, root: Path, *, over: bool = False, every: int = 1) -> Counter[str]:
    """Kill a writer at every call of the system, read, write again, read: counts of the outcomes."""
    whole = {}
    for seed in (0, 1):
        kept.write(root / f"whole-{seed}" / NAME, seed)
        whole[seed] = told(kept.read(root / f"whole-{seed}" / NAME))
    assert whole[0] != whole[1]
    counts: Counter[str] = Counter()

    def prepare(folder: Path) -> None:
        folder.mkdir(parents=True)
        if over:
            kept.write(folder / NAME, 0)

    for folder in kills(prepare, lambda folder: kept.write(folder / NAME, 1), root / "killed", every):
        path = folder / NAME
        counts["kills"] += 1
        counts[outcome(kept, path, set(whole.values()) if over else {whole[1]}) if path.exists() else "absent"] += 1
        if kept.over or not _is_whole(kept, path):
            kept.write(path, 1)
        assert told(kept.read(path)) == whole[1]
        left = [name for name in os.listdir(folder) if name not in (NAME, f"{NAME}.lock", f".{NAME}.lock")]
        assert not left, f"{kept}: {left}"
        shutil.rmtree(folder)
    return counts


def _is_whole(kept: Kept, path: Path) -> bool:
    try:
        return path.exists() and kept.read(path) is not None
    except (ValueError, OSError):
        return False


def damaged_everywhere(kept: Kept, root: Path, *, seed: int = 0, flips: int = 12) -> Counter[str]:
    """Flip a bit, cut, lengthen, empty, delete and exchange every file, one at a time: counts of the outcomes."""
    path, rng = root / NAME, np.random.default_rng(seed)
    kept.write(path, 0)
    kept.write(root / "other", 1)
    legal, counts = {told(kept.read(path))}, Counter()
    every = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())

    def attempt(kind: str) -> None:
        counts[kind] += 1
        counts[outcome(kept, path, legal)] += 1

    for file in every:
        whole = file.read_bytes()
        for _ in range(flips if whole else 0):
            changed = bytearray(whole)
            changed[rng.integers(len(whole))] ^= 1 << int(rng.integers(8))
            file.write_bytes(changed)
            attempt("flip")
        for content in {whole[: int(rng.integers(len(whole) + 1))], whole[:-1], b"", whole + b"\0"} - {whole}:
            file.write_bytes(content)
            attempt("length")
        file.unlink()
        attempt("deleted")
        others = [other for other in every if other != file]
        if path.is_dir():
            others.append(root / "other" / file.relative_to(path))
        for other in (o for o in others if o.exists() and o.read_bytes() != whole):
            file.write_bytes(other.read_bytes())
            attempt("exchanged")
        file.write_bytes(whole)
    assert told(kept.read(path)) in legal
    return counts
