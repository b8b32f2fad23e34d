"""Training that keeps the epoch of the lowest selection loss and ends when that has not fallen for a while."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import CellType, FunctionType, MethodType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sprii_train import distributed
from sprii_train.checkpoints import CheckpointError, read_tensors, write_tensors
from sprii_train.fit import TrainConfig, fit
from sprii_train.identity import code_of, plain_attributes
from sprii_train.protocol import Objective, Windows, evaluation_mode, take
from sprii_train.records import Report, read_rows, training_seconds

_LOSSES = "selection|losses"


class Selected(NamedTuple):
    """The kept epoch, from 1, the losses of all, and the seconds that training took."""

    epoch: int
    losses: list[float]
    seconds: float


@dataclass(frozen=True)
class Selection:
    """A diagnostic of `fit`: a loss after every epoch, and the weights that had the least of it.

    It is a function of weights, so a run that is resumed from before the best epoch finds the same weights again.

    Attributes:
        loss: of a learner; NaN is the worst that there is.
        path: file of the weights.
        every: updates of an epoch.
        least, patience: epochs that are trained at least; and after the best one.
    """

    loss: Callable[[nn.Module], float]
    path: Path
    every: int
    least: int
    patience: int
    name: str = field(default="selection")

    def __call__(
        self, learner: nn.Module, windows: Windows, objective: Objective, seed: int, step: int
    ) -> dict[str, Any]:
        with evaluation_mode(learner), torch.no_grad():
            loss = self.loss(learner)
        distributed.first(lambda: self._keep(learner, loss, step // self.every))
        return {"loss": loss}

    def _keep(self, learner: nn.Module, loss: float, epoch: int) -> None:
        losses, weights = self.kept() if epoch > 1 and self.path.exists() else ([], {})
        losses = [*losses[: epoch - 1], math.inf if math.isnan(loss) else loss]
        if losses.index(min(losses)) == len(losses) - 1:
            weights = {name: value.detach().cpu() for name, value in learner.state_dict().items()}
        write_tensors(self.path, weights | {_LOSSES: torch.tensor(losses, dtype=torch.float64)})

    def kept(self) -> tuple[list[float], dict[str, Tensor]]:
        """Losses by epoch, and the best weights.

        Raises:
            CheckpointError: for a file that is missing or damaged.
        """
        remedy = f"remove the folder {self.path.parent}"
        held = read_tensors(self.path, remedy)
        if _LOSSES not in held:
            raise CheckpointError(f"{self.path} is damaged: it says no losses; {remedy}")
        return held.pop(_LOSSES).tolist(), held

    def over(self, step: int) -> bool:
        """Whether training ends after an update."""
        epoch, rest = divmod(step, self.every)
        if rest or epoch < self.least:
            return False
        losses = self.kept()[0][:epoch]
        return epoch - 1 - losses.index(min(losses)) >= self.patience


@dataclass(frozen=True)
class _Ending(Selection):
    """A selection that `fit` asks whether training ends."""

    def ends(self, step: int) -> bool:
        return self.over(step)


def fit_selected(
    learner: nn.Module,
    data: Callable[[int], Windows],
    config: TrainConfig,
    folder: Path,
    selection: Selection,
    *,
    identity: dict[str, Any] | None = None,
    progress: Report | None = None,
) -> Selected:
    """Train a learner by its own loss, and leave it with the weights of the best epoch; see `fit` for what is raised.

    A folder's run is of its selection too: epochs, and the code of the loss. What data the loss reads, `identity` says.

    Raises:
        ValueError: for a budget without an epoch.
    """
    if config.steps < selection.every:
        raise ValueError(f"a budget has {config.steps} updates; legal: an epoch at least, {selection.every}")
    criterion = {
        "selection": [selection.every, selection.least, selection.patience],
        "selection code": code_of(_without_data(selection.loss)),
        "selection held": plain_attributes(selection.loss)[:16],
    }
    if criterion.keys() & (identity := dict(identity or {})).keys():
        raise ValueError(f"fit_selected's identity has {', '.join(sorted(criterion))}, which it adds itself")
    fit(
        learner, data, Objective(), config, folder, identity=identity | criterion, progress=progress, tensorboard=False,
        diagnostics=[_Ending(**vars(selection))],
    )  # fmt: skip
    losses, weights = selection.kept()
    learner.load_state_dict(weights)
    learner.eval()
    last = read_rows(folder / "metrics.jsonl")[-1]["step"]
    return Selected(losses.index(min(losses)) + 1, losses, training_seconds(folder, last))


def _without_data(loss: Any) -> Any:
    """A loss without what it closes over but functions and numbers: data may lie elsewhere when the run goes on."""
    if not isinstance(loss, FunctionType):
        return loss.func if isinstance(loss, partial) else loss.__func__ if isinstance(loss, MethodType) else type(loss)
    held = (cell.cell_contents for cell in loss.__closure__ or ())
    cells = tuple(CellType(v) if isinstance(v, FunctionType | int | float | str) else CellType() for v in held)
    return FunctionType(loss.__code__, loss.__globals__, loss.__name__, loss.__defaults__, cells)


def mean_loss(learner: Any, windows: Windows, chunk: int = 8192) -> float:
    """Mean task loss of a learner over windows, some at a time."""
    total = 0.0
    for first in range(0, count := len(windows.future_observations), chunk):
        batch = learner.prepare(take(windows, slice(first, first + chunk)))
        prediction = learner.predict(
            learner.encode_current(batch.current), learner.encode_history(batch.history), batch.u
        )
        total += float(learner.task_loss(prediction, batch.y).double().sum())
    return total / count
