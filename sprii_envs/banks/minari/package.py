"""Minari itself, imported when it is needed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sprii_envs.dependencies import PackageImportError, needed
from sprii_envs.files import absolute

_NEEDS, _PIP = "Minari datasets need Minari 0.5.4 or newer with HDF5 and Pillow", '"minari[hdf5]" pillow'
# Minari before this version always stored images as JPEG. Each release lists the older versions it reads.
_LOSSLESS = "0.5.4"


def package() -> Any:
    """The module `minari`; PackageImportError where it, h5py or Pillow is missing, broken or too old."""
    with needed(_NEEDS, _PIP, "minari", "h5py", "PIL"):
        import h5py
        import minari
        import PIL
    del h5py, PIL
    if _LOSSLESS not in minari.supported_dataset_versions:
        raise PackageImportError(f"{_NEEDS}, and {minari.__version__} is installed: pip install --upgrade {_PIP}")
    return minari


def opened(dataset: Any) -> Any:
    """A MinariDataset as it is, the local one of an id, or the one whose data is in a folder (a Path).

    Raises:
        ValueError: where there is none, or it is damaged.
    """
    if not isinstance(dataset, str | Path):
        return dataset
    minari = package()
    from minari.storage.datasets_root_dir import get_dataset_path

    path = dataset if isinstance(dataset, Path) else absolute(get_dataset_path(dataset) / "data")
    if not path.exists():
        raise ValueError(f"no local Minari dataset {str(dataset)!r}: download it with `minari download {dataset}`")
    with reading(dataset):
        try:
            return minari.MinariDataset(path)
        except ValueError as error:  # of its metadata.json
            raise RuntimeError(f"{path}: {error}") from error


def episode_buffer(**fields: Any) -> Any:
    """An EpisodeBuffer of whole arrays, which Minari's storages write though it declares lists."""
    from minari.data_collector.episode_buffer import EpisodeBuffer

    return EpisodeBuffer(**fields)


@contextmanager
def reading(dataset: Any) -> Iterator[None]:
    """Errors of a damaged file, of which h5py raises nearly anything without a name, as ValueErrors of the dataset."""
    try:
        yield
    except (ValueError, ImportError):
        raise
    except Exception as error:
        name = str(dataset) if isinstance(dataset, str | Path) else dataset.id
        raise ValueError(f"the file of the Minari dataset {name!r} is damaged or cannot be read: {error}") from error
