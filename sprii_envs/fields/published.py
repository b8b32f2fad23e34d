"""Published fields, read into the banks that `build_fields` makes: the same column, labels and splits.

Burgers lies in HDF5, a file a viscosity: `train/`, `train_add/` and `truth/`, with names such as
`viscous_nu_0.0010.h5`, `viscous_nu_1e-04.h5`, `inviscid_nu_0.0000.h5` and `inviscid.h5`; a data set `U_All` (time,
space, case) and its ν as attribute `nu`. FitzHugh–Nagumo lies in MAT, two files a trajectory: `U_0.03_0.20_15.mat` with
`U_record` (time, side, side), and `V_…` alike.
"""

import math
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sprii_envs import files
from sprii_envs.arguments import flag, instance
from sprii_envs.banks import RecordedBank, Recording, storage
from sprii_envs.banks.generated import Episodes, Labels, Progress, PublishedError, record_episodes
from sprii_envs.dependencies import require
from sprii_envs.fields.protocols import BURGERS, FHN, FIELD, BurgersProtocol, FHNProtocol, burgers_labels, fhn_labels

Fields = NDArray[np.float32]
Source = tuple[Labels, Callable[[], Fields]]
"""Labels of an episode, and what reads its field."""

_NUMBER = r"\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"
_HDF5 = re.compile(rf"(?:viscous_nu_({_NUMBER})|inviscid(?:_nu_0\.0000)?)\.h5")
_MAT = re.compile(r"[UV]_(\d\.\d\d)_(\d\.\d\d)_(\d+)\.mat")
_MAT_HDF5 = b"MATLAB 7.3"
_PIP = "'sprii[fields]'"


def import_burgers(
    source: files.StrPath,
    path: files.StrPath,
    *,
    layout: BurgersProtocol = BURGERS,
    additional: bool = False,
    progress: Progress | None = None,
) -> RecordedBank:
    """Read a published archive of Burgers' equation into a bank at `path`, or open it if it is there already.

    Every file of `train/` must hold a training viscosity and as many cases as the layout has. Files of `truth/` with
    other viscosities are `viscous_ood`, ν = 0 is `inviscid_ood`, with all of their cases; those with training
    viscosities are left out. Finer grids in time or space are thinned to the layout's by whole steps, ends included.

    Args:
        source: the folder that holds `train/` and `truth/`.
        layout: viscosities, cases, frames and points that are expected; the paper's by default.
        additional: whether `train_add/` is read, too: its cases go to `train`, numbered behind those of `train/`.
        progress: (done, total) episodes.

    Raises:
        PublishedError: naming what is missing or odd; nothing is left at `path` then.
        StoreError: for a path that holds another bank.
        PackageImportError: without h5py.
    """
    require("reading published Burgers fields", _PIP, "h5py")
    instance("layout", layout, of=BurgersProtocol)
    flag("additional", additional)
    root = _folder(source)
    train = {_known(shard, layout): shard for shard in _shards(root / "train", layout)}
    if missing := [nu for nu in layout.viscosities if nu not in train]:
        raise PublishedError(f"{root / 'train'} lacks the viscosities {', '.join(f'{nu:g}' for nu in missing)}")
    if odd := [shard for nu, shard in train.items() if nu not in layout.viscosities]:
        raise PublishedError(f"{odd[0].path}: its viscosity {odd[0].viscosity:g} is none of training")
    wanted = layout.train + layout.validation + layout.id_test
    for shard in train.values():
        if shard.cases != wanted:
            raise PublishedError(f"{shard.path} holds {shard.cases} cases, expected {wanted}")
    parts: list[tuple[float, _Shard, range, int, str]] = []
    first = 0
    for split in ("train", "validation", "id_test"):
        cases = range(first, first + getattr(layout, split))
        parts += [(nu, train[nu], cases, 0, split) for nu in layout.viscosities]
        first = cases.stop
    if additional:
        more = sorted((_known(shard, layout), shard) for shard in _shards(root / "train_add", layout))
        parts += [(nu, shard, range(shard.cases), wanted, "train") for nu, shard in more]
    truth = sorted((_known(shard, layout), shard) for shard in _shards(root / "truth", layout))
    parts += [(nu, s, range(s.cases), 0, "viscous_ood") for nu, s in truth if nu not in (0.0, *layout.viscosities)]
    parts += [(nu, s, range(s.cases), 0, "inviscid_ood") for nu, s in truth if nu == 0.0]
    held = _Held()
    episodes: list[Source] = [
        (burgers_labels(nu, case + behind, split), lambda shard=shard, case=case: held.read(shard)[case])
        for nu, shard, cases, behind, split in parts
        for case in cases
    ]
    used = dict.fromkeys(shard.path for _, shard, *_ in parts)
    origin = _origin("burgers", root, used, layout) | {
        "left_out": sorted(s.path.name for nu, s in truth if s.path not in used)
    }
    return _record(path, layout, origin, episodes, progress)


def import_fhn(
    source: files.StrPath,
    path: files.StrPath,
    *,
    layout: FHNProtocol = FHN,
    progress: Progress | None = None,
) -> RecordedBank:
    """Read a published archive of FitzHugh–Nagumo's equations into a bank at `path`, or open it if it is there already.

    Files may lie anywhere below `source`; those that the layout does not ask for are not read.

    Args:
        source: a folder.
        layout: systems, cases, frames and side that are expected; the paper's by default.
        progress: (done, total) episodes.

    Raises:
        PublishedError: naming what is missing or odd; nothing is left at `path` then.
        StoreError: for a path that holds another bank.
        PackageImportError: without scipy, or h5py where a file is one of MATLAB 7.3.
    """
    require("reading published FitzHugh–Nagumo fields", _PIP, "scipy")
    instance("layout", layout, of=FHNProtocol)
    root, found = _folder(source), {}
    for file in sorted(root.rglob("[UV]_*.mat")):
        if not (match := _MAT.fullmatch(file.name)):
            raise PublishedError(f"{file} is named otherwise than U_<k>_<beta>_<case>.mat, as U_0.03_0.20_15.mat")
        key = (file.name[0], float(match[1]), float(match[2]), int(match[3]))
        if key in found:
            raise PublishedError(f"{file} and {found[key]} are of one trajectory; keep one of them")
        found[key] = file
    plan = layout.plan()
    keys = [[(w, round(e["k"], 2), round(e["beta"], 2), e["case"]) for w in "UV"] for e in plan]
    if missing := [key for pair in keys for key in pair if key not in found]:
        names = ", ".join(f"{w}_{k:.2f}_{beta:.2f}_{case}.mat" for w, k, beta, case in missing[:3])
        raise PublishedError(
            f"{root} lacks {len(missing)} of {2 * len(plan)} files: {names}{' …'[: 2 * len(missing) - 6]}"
        )
    pairs = [[found[key] for key in pair] for pair in keys]
    shape = (layout.frames, layout.side, layout.side)
    episodes: list[Source] = [
        (fhn_labels(e["k"], e["beta"], e["case"], e["split"]), lambda pair=pair: _pair(pair, shape))
        for e, pair in zip(plan, pairs, strict=True)
    ]
    origin = _origin("fhn", root, [file for pair in pairs for file in pair], layout)
    return _record(path, layout, origin, episodes, progress)


def _folder(source: files.StrPath) -> Path:
    root = files.absolute(source)
    if not root.is_dir():
        raise PublishedError(f"{root} is no folder; legal: that of a published archive")
    return root


def _origin(
    equation: str, root: Path, used: Sequence[Path] | Mapping[Path, Any], layout: BurgersProtocol | FHNProtocol
) -> dict[str, Any]:
    sums = {file.relative_to(root).as_posix(): files.checksum(file) for file in used}
    return {"kind": "published", "equation": equation, "layout": asdict(layout), "files": sums}


def _record(
    path: files.StrPath,
    layout: BurgersProtocol | FHNProtocol,
    origin: dict[str, Any],
    episodes: Sequence[Source],
    progress: Progress | None,
) -> RecordedBank:
    def left(recording: Recording) -> Episodes:
        for labels, read in episodes[recording.done :]:
            yield labels, {FIELD: read()}

    size = len(episodes) * layout.length * sum(spec.entry_bytes for spec in layout.streams.values())
    try:
        return record_episodes(path, layout.streams, origin, len(episodes), size, left, progress)
    except PublishedError:  # mended files are another origin, which could not go on behind these
        shutil.rmtree(storage.partial_path(files.absolute(path)), ignore_errors=True)
        raise


@dataclass(frozen=True)
class _Shard:
    """An HDF5 file: its ν, cases, and the entries in time and space that are kept."""

    path: Path
    viscosity: float
    cases: int
    frames: range
    points: range


def _shards(folder: Path, layout: BurgersProtocol) -> Iterator[_Shard]:
    """The files of a folder in the order of their names; PublishedError for an odd one, two of one ν, or none."""
    if not folder.is_dir():
        raise PublishedError(f"{folder} is missing; it holds files such as viscous_nu_0.0010.h5")
    seen: dict[float, Path] = {}
    for file in sorted(folder.glob("[!.]*.h5")):
        if not (match := _HDF5.fullmatch(file.name)):
            raise PublishedError(
                f"{file} is named otherwise than viscous_nu_0.0010.h5, viscous_nu_1e-04.h5, inviscid.h5"
            )
        shard = _shard(file, match[1] or "0.0000", layout)
        if other := seen.get(_known(shard, layout)):
            raise PublishedError(f"{file} and {other} are of one viscosity, {shard.viscosity:g}; keep one of them")
        seen[_known(shard, layout)] = file
        yield shard
    if not seen:
        raise PublishedError(f"{folder} holds no file such as viscous_nu_0.0010.h5")


def _known(shard: _Shard, layout: BurgersProtocol) -> float:
    """ν, as the layout writes it where it is one of training: files may hold float32."""
    same = (nu for nu in layout.viscosities if math.isclose(nu, shard.viscosity, rel_tol=1e-4))
    return next(same, float(f"{shard.viscosity:.5g}"))


def _shard(file: Path, named: str, layout: BurgersProtocol) -> _Shard:
    with _hdf5(file) as data:
        u = data.get("U_All")
        if not hasattr(u, "shape"):
            raise PublishedError(f"{file} holds no data set 'U_All', but: {', '.join(sorted(data)) or 'nothing'}")
        if u.ndim != 3 or u.dtype.kind != "f" or 0 in u.shape:
            raise PublishedError(f"{file}: U_All is {u.dtype} of shape {u.shape}, expected floats (time, space, case)")
        told, (frames, points, cases) = {**data.attrs, **u.attrs}.get("nu", float(named)), u.shape
    try:
        nu = float(np.asarray(told).item())
    except (TypeError, ValueError):
        raise PublishedError(f"{file}: its attribute nu is {told!r}, expected a number") from None
    half = 0.5 * 10.0 ** int(Decimal(named).as_tuple().exponent)  # a name tells ν to its last digit
    if not abs(nu - float(named)) <= 1.001 * half or (nu == 0.0) != file.name.startswith("inviscid"):
        raise PublishedError(f"{file}: its attribute nu is {nu:g}, which contradicts its name")
    kept = (_kept(file, "time", frames, layout.frames), _kept(file, "space", points, layout.points))
    return _Shard(file, nu, cases, *kept)


def _kept(file: Path, axis: str, found: int, wanted: int) -> range:
    """Entries of an axis: every so many, the ends included."""
    step, rest = divmod(found - 1, wanted - 1)
    if rest or step < 1:
        raise PublishedError(
            f"{file}: U_All has {found} entries in {axis}, expected {wanted}, or 1 more than a multiple of {wanted - 1}"
        )
    return range(0, found, step)


class _Held:
    """The fields of the file that was read last: its cases follow one another."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._fields = np.empty((0, 0, 0), np.float32)

    def read(self, shard: _Shard) -> Fields:
        """(cases, frames, points)."""
        if self._path != shard.path:
            with _hdf5(shard.path) as data:
                u = data["U_All"]  # a frame at a time: h5py is slow where it strides
                frames = [u[i][:: shard.points.step] for i in shard.frames]
            with np.errstate(over="ignore"):  # told of below
                self._fields = np.stack(frames).transpose(2, 0, 1).astype(np.float32)
            for case in np.flatnonzero(~np.isfinite(self._fields).all(axis=(1, 2)))[:1]:
                raise PublishedError(f"{shard.path}: case {case} of U_All holds NaN or infinity")
            self._path = shard.path
        return self._fields


@contextmanager
def _hdf5(file: Path) -> Iterator[Any]:
    """An open HDF5 file; PublishedError for what h5py cannot read of it."""
    import h5py

    try:
        with h5py.File(file, "r") as data:
            yield data
    except (OSError, RuntimeError, KeyError) as error:
        raise PublishedError(f"{file} cannot be read as HDF5: {error}") from error


def _pair(pair: Sequence[Path], shape: tuple[int, int, int]) -> Fields:
    """u and v of a trajectory, (frames, 2, side, side)."""
    return np.stack([_record_of(file, shape) for file in pair], axis=1)


def _record_of(file: Path, shape: tuple[int, int, int]) -> Fields:
    name = f"{file.name[0]}_record"
    with open(file, "rb") as handle:
        hdf5 = handle.read(len(_MAT_HDF5)) == _MAT_HDF5
    array = _mat_hdf5(file, name) if hdf5 else _mat(file, name)
    if array is None:
        raise PublishedError(f"{file} holds no array {name!r}")
    if array.shape != shape or array.dtype.kind != "f":
        raise PublishedError(f"{file}: {name} is {array.dtype} of shape {array.shape}, expected floats {shape}")
    with np.errstate(over="ignore"):  # told of below
        array = array.astype(np.float32)
    if not np.isfinite(array).all():
        raise PublishedError(f"{file}: {name} holds NaN or infinity")
    return array


def _mat(file: Path, name: str) -> NDArray[Any] | None:
    from scipy.io import loadmat

    try:
        array = loadmat(file, variable_names=[name]).get(name)
    except Exception as error:  # scipy raises nearly anything for a damaged file
        raise PublishedError(f"{file} cannot be read as MAT: {type(error).__name__}: {error}") from error
    return array if isinstance(array, np.ndarray) else None


def _mat_hdf5(file: Path, name: str) -> NDArray[Any] | None:
    """An array of a file of MATLAB 7.3, which has the axes the other way round."""
    require("reading files of MATLAB 7.3", _PIP, "h5py")
    with _hdf5(file) as data:
        array = data.get(name)
        return array[()].T if hasattr(array, "shape") else None
