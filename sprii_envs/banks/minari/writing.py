"""Writing a local Minari dataset so that it is wholly there or not at all.

It is put together in a hidden folder beside the datasets, which Minari neither lists nor loads, and renamed into its
place as the last act. Episodes go through Minari's own storage one by one, so memory does not grow with their number.
"""

import contextlib
import errno
import importlib.metadata
import itertools
import os
import shutil
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from sprii_envs.banks import storage
from sprii_envs.banks.minari.package import opened, package
from sprii_envs.files import absolute, lock, sync

ABOUT = ("author", "author_email", "code_permalink", "algorithm_name", "description", "requirements")
_OVERHEAD = 20_000
"""Bytes that HDF5 adds to an episode for its groups, attributes and partly filled chunks (measured: 15 kB)."""

_PIECE = 512
"""Episodes written before their metadata."""


def check_about(about: Mapping[str, Any]) -> dict[str, Any]:
    """What a dataset says about itself, as Minari wants it; ValueError for a field that it does not have."""
    for name in about:
        if name not in ABOUT:
            raise ValueError(f"a Minari dataset has no field {name!r}; legal: {', '.join(ABOUT)}")
    many = ("author", "author_email")
    return {k: {v} if k in many and isinstance(v, str) else set(v) if k in many else v for k, v in about.items()}


def place(dataset_id: str) -> Path:
    """Where a new dataset will lie; ValueError for an illegal or taken id."""
    package()
    from minari.dataset.minari_dataset import parse_dataset_id
    from minari.storage.datasets_root_dir import get_dataset_path

    try:
        parse_dataset_id(dataset_id)
    except (ValueError, TypeError):  # Minari's own answer to a missing version is a TypeError
        raise ValueError(
            f"dataset id {dataset_id!r} must be (namespace/)name-vN of letters, digits, '-' and '_', for instance "
            "'sprii/d-clean-v0'; a namespace has at least two letters"
        ) from None
    path = absolute(get_dataset_path(dataset_id))
    if os.path.lexists(path):
        raise ValueError(
            f"there is already a Minari dataset {dataset_id!r} at {path}: choose another name or version, or delete "
            f"it with minari.delete_dataset({dataset_id!r})"
        )
    return path


def write(
    dataset_id: str,
    episodes: Iterable[Any],
    metadata: Iterable[Mapping[str, Any]],
    *,
    spaces: tuple[gym.Space[Any], gym.Space[Any]],
    env_spec: EnvSpec | None,
    about: Mapping[str, Any],
    size: int,
) -> Any:
    """A new local dataset of EpisodeBuffers and one metadata mapping each; returns the loaded MinariDataset.

    `spaces` are those of observations and actions, `size` the bytes of all arrays. ValueError for an illegal or taken
    id, too little disk space, or another process that writes this dataset; whatever fails or stops this leaves none.
    """
    package()
    from minari.dataset.minari_storage import MinariStorage
    from minari.namespace import create_namespace, list_local_namespaces
    from minari.storage.datasets_root_dir import get_dataset_path

    root = absolute(get_dataset_path())
    home = storage.existing(place(dataset_id))
    if os.stat(home).st_dev == os.stat(root).st_dev:  # not a namespace that is a link to another disk
        home = root
    free = storage.free_bytes(home)
    if size > free:
        raise ValueError(f"{home}: no disk space for this dataset: about {size:,} bytes needed, {free:,} bytes free")
    name = f".{dataset_id.replace('/', '--')}.partial"
    partial = home / name
    busy = "is held: this dataset is being written"
    with lock(root / f"{name}.lock", wait=False, busy=busy, error=ValueError), _disk_errors(dataset_id):
        path = place(dataset_id)
        shutil.rmtree(partial, ignore_errors=True)  # of an export that was killed
        partial.mkdir()
        try:
            with warnings.catch_warnings():
                # Unbounded spaces are legal; Gymnasium warns of each when Minari reads them back.
                warnings.filterwarnings("ignore", category=UserWarning, module="gymnasium")
                data = MinariStorage.new(partial / "data", *spaces, env_spec, "hdf5", jpeg_encoding=False)
                version = importlib.metadata.version("minari")
                data.update_metadata({"dataset_id": dataset_id, "minari_version": version, **about})
                _fill(data, iter(episodes), iter(metadata))
            for file in (*(partial / "data").iterdir(), partial / "data", partial):
                sync(file)
            namespace = dataset_id.rpartition("/")[0]
            if namespace and namespace not in list_local_namespaces():
                create_namespace(namespace)
            os.rename(partial, path)
            sync(path.parent)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    return opened(dataset_id)


@contextlib.contextmanager
def _disk_errors(dataset_id: str) -> Iterator[None]:
    """Turn an error of the disk into a ValueError; HDF5 tells of one at length, and on closing as a RuntimeError."""
    try:
        yield
    except BrokenPipeError:  # of a progress callback that prints
        raise
    except (OSError, RuntimeError) as error:
        full = os.strerror(errno.ENOSPC)
        reason = f"no disk space ({full})" if full in str(error) else error
        raise ValueError(f"the Minari dataset {dataset_id!r} cannot be written: {reason}") from error


def _fill(data: Any, episodes: Iterator[Any], metadata: Iterator[Mapping[str, Any]]) -> None:
    """All episodes, in pieces: Minari adds metadata in a second pass, whose memory grows with its episodes."""
    begin = 0
    while True:
        data.update_episodes(itertools.islice(episodes, _PIECE))
        end = data.total_episodes
        data.update_episode_metadata(itertools.islice(metadata, end - begin), range(begin, end))
        if end - begin < _PIECE:
            return
        begin = end


def needed(arrays: int, episodes: int) -> int:
    """Bytes on the disk of a dataset whose arrays hold `arrays` bytes."""
    return arrays + episodes * _OVERHEAD
