"""Tasks in training, validation and test: whole tasks, by a seeded permutation."""

import itertools
from collections.abc import Iterable, Mapping

import numpy as np

SPLITS = ("train", "validation", "test")
PUBLISHED = (74, 25, 25)
"""Tasks of each split in the published experiment, of 124."""


def counts(tasks: int) -> tuple[int, int, int]:
    """Tasks of each split where there are so many: 74, 25, 25 of 124, and in that proportion otherwise."""
    held = round(tasks * PUBLISHED[1] / sum(PUBLISHED))
    return tasks - 2 * held, held, held


def fewest() -> int:
    """Tasks that no split is empty of."""
    return next(tasks for tasks in itertools.count(1) if min(counts(tasks)))


def split_tasks(tasks: Iterable[str], seed: int) -> dict[str, str]:
    """Task → split: the sorted tasks in NumPy's permutation of a seed, cut in `counts`."""
    names = sorted(tasks)
    order = np.random.default_rng(seed).permutation(len(names))
    of = [split for split, count in zip(SPLITS, counts(len(names)), strict=True) for _ in range(count)]
    return {names[i]: split for i, split in zip(order, of, strict=True)}


def told(splits: Mapping[str, str]) -> str:
    """How many tasks each split has, in words, and whether that is the published number."""
    found = tuple(sum(split == name for split in splits.values()) for name in SPLITS)
    each = ", ".join(f"{count} {name}" for count, name in zip(found, SPLITS, strict=True))
    scaled = "" if found == PUBLISHED else "; scaled from 74, 25 and 25 of 124"
    return f"{len(splits)} tasks: {each}{scaled}"
