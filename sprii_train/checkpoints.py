"""Learners and training states on disk: safetensors and JSON, written whole or not at all, never unpickled."""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from sprii_train.learners import LEARNERS


class CheckpointError(ValueError):
    """A checkpoint that is damaged, or that belongs to another learner, recipe or bank."""


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A temporary folder that becomes `path` when the block succeeds and vanishes when it does not.

    What was at `path` stays until the new folder is whole, and is only set aside, not gone, until that is in place.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary, aside = (path.with_name(f".{path.name}-{uuid4().hex[:12]}") for _ in range(2))
    temporary.mkdir()
    try:
        yield temporary
        for file in temporary.iterdir():
            with open(file, "rb") as handle:
                os.fsync(handle.fileno())
        if path.exists():
            os.replace(path, aside)
        os.replace(temporary, path)
        shutil.rmtree(aside, ignore_errors=True)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if aside.exists() and not path.exists():
            os.replace(aside, path)
        if isinstance(error, SafetensorError):
            raise OSError(f"{path} could not be written: {error}") from None
        raise


def write_whole(path: Path, data: bytes) -> None:
    """Write beside `path` and rename into place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, data: Any) -> None:
    """Write JSON beside `path` and rename it into place."""
    write_whole(path, (json.dumps(data, indent=2, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """Read JSON, or raise `CheckpointError` naming the file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path} does not exist") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} is damaged: not JSON ({error})") from None


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file, or raise `CheckpointError` naming the file."""
    try:
        return load_file(path)
    except FileNotFoundError:
        raise CheckpointError(f"{path} does not exist") from None
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is damaged or truncated: {error}") from None


def load_weights(module: nn.Module, tensors: dict[str, Tensor], origin: Path) -> None:
    """Load weights after checking every name and shape; the module is untouched when they do not fit."""
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
    module.load_state_dict(tensors)


def save(learner: nn.Module, path: str | Path) -> None:
    """Save a learner as a folder of `model.safetensors` and `config.json`.

    Raises:
        ValueError: if its class is not in `sprii_train.learners.LEARNERS`.
    """
    kind = next((name for name, (cls, _) in LEARNERS.items() if type(learner) is cls), None)
    if kind is None:
        raise ValueError(f"{type(learner).__name__} is not a registered learner; legal: {', '.join(LEARNERS)}")
    with written_whole(Path(path)) as folder:
        save_file({k: v.contiguous() for k, v in learner.state_dict().items()}, folder / "model.safetensors")
        write_json(folder / "config.json", {"learner": kind, "config": asdict(learner.config)})  # type: ignore[arg-type]


def load(path: str | Path) -> nn.Module:
    """Rebuild a learner from the folder that `save` wrote, in evaluation mode.

    Raises:
        CheckpointError: naming the file that is missing or damaged, the unknown learner or field, or the tensor
            that does not fit.
    """
    folder = Path(path)
    described = read_json(folder / "config.json")
    if not isinstance(described, dict) or str(described.get("learner")) not in LEARNERS:
        raise CheckpointError(f"{folder / 'config.json'} names no known learner; legal: {', '.join(LEARNERS)}")
    cls, config_cls = LEARNERS[described["learner"]]
    known = {field.name for field in fields(config_cls)}
    if not isinstance(described.get("config"), dict):
        raise CheckpointError(f"{folder / 'config.json'} does not describe a learner: it has no config")
    if unknown := sorted(described["config"].keys() - known):
        raise CheckpointError(f"{folder / 'config.json'} has unknown fields {unknown}; legal: {sorted(known)}")
    try:
        values = {k: tuple(v) if isinstance(v, list) else v for k, v in described["config"].items()}
        learner = cls(config_cls(**values))
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{folder / 'config.json'} does not describe a learner: {error}") from None
    load_weights(learner, read_tensors(folder / "model.safetensors"), folder / "model.safetensors")
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
    with written_whole(root / f"step-{step:08d}") as folder:
        save_file({k: v.contiguous() for k, v in learner.state_dict().items()}, folder / "model.safetensors")
        save_file(moments, folder / "optimizer.safetensors")
        write_json(folder / "progress.json", {"step": step, "run": run})
    for old in training_states(root)[:-1]:
        shutil.rmtree(old, ignore_errors=True)


def training_states(root: Path) -> list[Path]:
    """Finished checkpoints under `root`, oldest first."""
    return sorted(root.glob("step-*"))


def load_training_state(root: Path, learner: nn.Module, optimizer: torch.optim.Optimizer, run: str = "") -> int:
    """Restore the newest checkpoint, if there is one, and return the number of steps already taken.

    Raises:
        CheckpointError: it is damaged, or belongs to another run than the one with digest `run`; nothing is changed.
    """
    states = training_states(root)
    if not states:
        return 0
    folder = states[-1]
    progress = read_json(folder / "progress.json")
    if not isinstance(progress, dict) or not isinstance(progress.get("step"), int):
        raise CheckpointError(
            f"{folder / 'progress.json'} is damaged: it has no step number; remove the folder {folder}"
        )
    if progress.get("run") != run:
        advice = f"choose another folder, or remove {root.parent}"
        raise CheckpointError(f"{folder} is a checkpoint of another run; {advice}")
    parameters = dict(learner.named_parameters())
    moments = {tuple(k.rsplit("|", 1)): v for k, v in read_tensors(folder / "optimizer.safetensors").items()}
    for (name, key), value in moments.items():
        if name not in parameters or (key != "step" and value.shape != parameters[name].shape):
            raise CheckpointError(
                f"{folder / 'optimizer.safetensors'} is of another architecture: {key} of {name!r} does not fit"
            )
    load_weights(learner, read_tensors(folder / "model.safetensors"), folder / "model.safetensors")
    optimizer.state.clear()
    for (name, key), value in moments.items():
        # The fused optimiser keeps its step counts on the device too.
        optimizer.state[parameters[name]][key] = value.to(parameters[name].device)
    return progress["step"]
