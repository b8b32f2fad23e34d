"""Learners and training states on disk: safetensors and JSON, with checksums, whole or absent, never unpickled."""

import hashlib
import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as safetensors_of
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from sprii_envs.arguments import instance
from sprii_envs.files import (
    FileError,
    check_file,
    collect,
    inventory,
    read_folder,
    read_json,
    recover,
    write_json,
    written_file,
    written_folder,
)
from sprii_train.identity import digest
from sprii_train.learners import LEARNERS


class CheckpointError(FileError):
    """A checkpoint that is damaged, or that belongs to another learner, recipe or bank."""


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file, whole or not at all.

    Raises:
        OSError: naming the file, if it cannot be written.
    """
    with written_file(path) as temporary:
        _save(tensors, temporary, path)


def _save(tensors: Mapping[str, Tensor], path: Path, shown: Path) -> None:
    try:
        save_file({name: value.contiguous() for name, value in tensors.items()}, path)
    except SafetensorError as error:
        raise OSError(f"{shown} could not be written: {error}") from None


def read_tensors(path: Path, remedy: str = "", entry: Mapping[str, Any] | None = None) -> dict[str, Tensor]:
    """Read a safetensors file.

    Args:
        remedy: what to do about one that cannot be read, appended to the message.
        entry: of an `inventory`, that its bytes must have, for a file that another process may replace.

    Raises:
        CheckpointError: naming the file, if it is missing, damaged, or of other bytes than the entry's.
    """
    advice = f"; {remedy}" if remedy else ""
    try:
        if entry is None:
            return load_file(path)
        if hashlib.sha256(data := path.read_bytes()).hexdigest() == entry["sha256"]:
            return safetensors_of(data)
        raise CheckpointError(f"{path} has been replaced since the row that it belongs to was read{advice}")
    except FileNotFoundError:
        raise CheckpointError(f"{path} does not exist{advice}") from None
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is damaged or truncated: {error}{advice}") from None


def _check_weights(module: nn.Module, tensors: Mapping[str, Tensor], origin: Path, remedy: str) -> None:
    """CheckpointError unless names, shapes and types are the module's, and what is finite there is finite here."""
    own = module.state_dict()
    missing, extra = sorted(own.keys() - tensors.keys()), sorted(tensors.keys() - own.keys())
    wrong = [k for k in own.keys() & tensors.keys() if own[k].shape != tensors[k].shape]
    if missing or extra or wrong:
        first = next(iter(sorted(wrong) or missing or extra))
        have = tuple(tensors[first].shape) if first in tensors else "absent"
        want = tuple(own[first].shape) if first in own else "absent"
        raise CheckpointError(
            f"{origin} is of another architecture: tensor {first!r} is {have} there and {want} in this "
            f"{type(module).__name__} ({len(missing)} missing, {len(extra)} unexpected, {len(wrong)} of another shape)"
        )
    for name, value in own.items():
        if tensors[name].dtype != value.dtype:
            reason = f"tensor {name!r} is {tensors[name].dtype}, not {value.dtype}"
            raise CheckpointError(f"{origin} is damaged: {reason}; {remedy}")
        if not torch.isfinite(tensors[name]).all() and torch.isfinite(value).all():
            raise CheckpointError(f"{origin} is damaged: tensor {name!r} is not finite; {remedy}")


def _check_files(folder: Path, described: Mapping[str, Any], names: tuple[str, ...], remedy: str) -> None:
    files = described.get("files")
    for name in names:
        entry = files.get(name) if isinstance(files, Mapping) else None
        check_file(folder / name, entry, error=CheckpointError, remedy=remedy)


Kinds = Mapping[str, tuple[type[nn.Module], type[Any]]]
"""Name in a checkpoint → (class, config class)."""


def save(learner: nn.Module, path: str | Path, *, also: Kinds = MappingProxyType({})) -> None:
    """Save a learner as a folder of `model.safetensors` and `config.json`.

    Args:
        also: kinds of models beside `sprii_train.learners.LEARNERS`.

    Raises:
        ValueError: if its class is of neither.
    """
    kinds = LEARNERS | dict(instance("also", also, of=Mapping))
    kind = next((name for name, (cls, _) in kinds.items() if type(learner) is cls), None)
    if kind is None:
        raise ValueError(f"{type(learner).__name__} is not a registered learner; legal: {', '.join(kinds)}")
    with written_folder(path) as folder:
        _save(learner.state_dict(), folder / "model.safetensors", Path(path) / "model.safetensors")
        described = {"learner": kind, "config": asdict(learner.config)}  # type: ignore[arg-type]
        kept = {"sha256": _description(described), "files": inventory(folder)}
        write_json(folder / "config.json", described | kept)


def _description(described: Mapping[str, Any]) -> str:
    return digest(json.dumps([described["learner"], described["config"]], sort_keys=True))


def load(path: str | Path, *, also: Kinds = MappingProxyType({})) -> nn.Module:
    """Rebuild a learner from the folder that `save` wrote, in evaluation mode.

    Args:
        also: see `save`.

    Raises:
        CheckpointError: naming the file that is missing or damaged, the unknown learner or field, or the tensor
            that does not fit.
    """
    recover(path)
    return read_folder(path, lambda: _read_learner(Path(path), also), CheckpointError)


def _read_learner(folder: Path, also: Kinds) -> nn.Module:
    config = folder / "config.json"
    remedy = f"remove {folder}, and let what wrote it write it again"
    kinds = LEARNERS | dict(instance("also", also, of=Mapping))
    described = read_json(config, CheckpointError, remedy)
    if str(described.get("learner")) not in kinds:
        raise CheckpointError(f"{config} names no known learner; legal: {', '.join(kinds)}")
    cls, config_cls = kinds[described["learner"]]
    known = {field.name for field in fields(config_cls)}
    if not isinstance(described.get("config"), dict):
        raise CheckpointError(f"{config} does not describe a learner: it has no config; {remedy}")
    if unknown := sorted(described["config"].keys() - known):
        raise CheckpointError(f"{config} has unknown fields {unknown}; legal: {sorted(known)}")
    try:
        values = {k: tuple(v) if isinstance(v, list) else v for k, v in described["config"].items()}
        learner = cls(config_cls(**values))
    except Exception as error:  # whatever a constructor makes of numbers that nobody meant
        raise CheckpointError(f"{config} does not describe a learner: {error}; {remedy}") from error
    tensors = read_tensors(folder / "model.safetensors", remedy)
    _check_weights(learner, tensors, folder / "model.safetensors", remedy)
    _check_files(folder, described, ("model.safetensors",), remedy)
    if described.get("sha256") != _description(described):
        raise CheckpointError(f"{config} is damaged: the checksum of learner and config is another; {remedy}")
    learner.load_state_dict(tensors)
    return learner.eval()


def save_training_state(
    root: Path, learner: nn.Module, optimizer: torch.optim.Optimizer, step: int, run: str = ""
) -> None:
    """Write `root/step-N` whole, then drop older ones. Data and noise are functions of (seed, step): no RNG to keep.

    Args:
        run: digest of the run's identity, which a later load must repeat.

    Raises:
        OSError: the disk is full or the folder cannot be written; older checkpoints stay.
    """
    names = {id(p): name for name, p in learner.named_parameters()}
    moments = {
        f"{names[id(p)]}|{key}": torch.as_tensor(value)
        for p, state in optimizer.state.items()
        for key, value in state.items()
    }
    collect(root)
    path = root / f"step-{step:08d}"
    with written_folder(path) as folder:
        _save(learner.state_dict(), folder / "model.safetensors", path / "model.safetensors")
        _save(moments, folder / "optimizer.safetensors", path / "optimizer.safetensors")
        told = {"step": step, "run": run, "groups": _groups(optimizer)}
        write_json(folder / "progress.json", told | {"files": inventory(folder)})
    _drop(training_states(root)[:-1])


def _groups(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """The numbers of an optimiser's groups, in which some keep what they have learnt of the run; not its switches."""
    return [
        {name: value for name, value in group.items() if type(value) in (int, float)}
        for group in optimizer.param_groups
    ]


def _drop(states: list[Path]) -> None:
    for state in states:
        shutil.rmtree(state, ignore_errors=True)


def training_states(root: Path) -> list[Path]:
    """Finished checkpoints under `root`, oldest first."""
    states = [path for path in root.glob("step-*") if re.fullmatch(r"step-\d{8,18}", path.name)]
    return sorted(states, key=_step)


def _step(state: Path) -> int:
    return int(state.name.removeprefix("step-"))


def load_training_state(
    root: Path, learner: nn.Module, optimizer: torch.optim.Optimizer, run: str = "", steps: int | None = None
) -> int:
    """Restore the newest checkpoint, if there is one, and return the number of steps already taken.

    Args:
        steps: of the whole run.

    Raises:
        CheckpointError: it is damaged, or belongs to another run than the one with digest `run`; nothing is changed.
    """
    collect(root)
    states = training_states(root)
    if not states:
        return 0
    folder = states[-1]
    remedy = f"remove the folder {folder}, and the run goes on from {states[-2] if len(states) > 1 else 'its start'}"
    progress, path = read_json(folder / "progress.json", CheckpointError, remedy), folder / "progress.json"
    step = progress.get("step")
    if not isinstance(step, int) or isinstance(step, bool):
        raise CheckpointError(f"{path} is damaged: it has no step number; {remedy}")
    if progress.get("run") != run:
        advice = f"choose another folder, or remove {root.parent}"
        raise CheckpointError(f"{folder} is a checkpoint of another run; {advice}")
    if step != _step(folder) or (steps is not None and step > steps):
        reason = f"step {step:,} in the folder {folder.name}" + (f" of a run of {steps:,}" if steps is not None else "")
        raise CheckpointError(f"{path} is damaged: {reason}; {remedy}")
    moments = _read_moments(folder / "optimizer.safetensors", learner, remedy)
    weights = read_tensors(folder / "model.safetensors", remedy)
    _check_weights(learner, weights, folder / "model.safetensors", remedy)
    _check_files(folder, progress, ("model.safetensors", "optimizer.safetensors"), remedy)
    learner.load_state_dict(weights)
    for group, held in zip(optimizer.param_groups, progress.get("groups", []), strict=False):
        group.update(held)
    optimizer.state.clear()
    parameters = dict(learner.named_parameters())
    for (name, key), value in moments.items():
        # The fused optimiser keeps its step counts on the device too.
        optimizer.state[parameters[name]][key] = value.to(parameters[name].device)
    _drop(states[:-1])  # of a writer that was killed before it did
    return step


def _broadcasts(value: Tensor, own: Tensor) -> bool:
    """Whether a moment is of a parameter, or of its rows or columns."""
    return value.ndim == own.ndim and all(n in (m, 1) for n, m in zip(value.shape, own.shape, strict=True))


def _read_moments(path: Path, learner: nn.Module, remedy: str) -> dict[tuple[str, str], Tensor]:
    """The optimiser's state by parameter and kind, the same kinds for every parameter of as many axes that has any."""
    parameters = dict(learner.named_parameters())
    moments = {(name, key): value for label, value in read_tensors(path, remedy).items()
               for name, _, key in [label.rpartition("|")]}  # fmt: skip
    kinds: dict[int, set[str]] = {}
    for name, key in moments:
        if name in parameters:
            kinds.setdefault(parameters[name].ndim, set()).add(key)
    for (name, key), value in moments.items():
        own = parameters.get(name)
        # An optimiser may have counts and products of one entry, and moments by row or column.
        alike = own is not None and key != "step" and value.numel() > 1
        if own is None or (alike and not _broadcasts(value, own)):
            raise CheckpointError(f"{path} is of another architecture: {key} of {name!r} does not fit")
        if alike and value.dtype != own.dtype:
            raise CheckpointError(f"{path} is damaged: {key} of {name!r} is {value.dtype}, not {own.dtype}; {remedy}")
        if not torch.isfinite(value).all():
            raise CheckpointError(f"{path} is damaged: {key} of {name!r} is not finite; {remedy}")
        if missing := sorted(kind for kind in kinds[own.ndim] if (name, kind) not in moments):
            raise CheckpointError(f"{path} is damaged: it lacks {missing[0]} of {name!r}; {remedy}")
    return moments
