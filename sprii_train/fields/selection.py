"""The checkpoint of the lowest development loss, kept while a run goes on."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sprii_envs.banks import Store
from sprii_envs.relations import EpisodeTable
from sprii_train import distributed
from sprii_train.checkpoints import CheckpointError, read_tensors, write_tensors
from sprii_train.fields.errors import conditioned_error

_LOSS, _STEP = "development|loss", "development|step"


@dataclass(frozen=True)
class Development:
    """A diagnostic of `fit`: the released evaluation of a split, and the weights that had the least of it.

    It is a function of weights, so a run that is resumed from before the best step finds the same weights again.

    Attributes:
        store, table: the split.
        path: file of the weights.
        every: updates between evaluations.
    """

    store: Store
    table: EpisodeTable
    path: Path
    every: int
    name: str = "development"

    def __call__(self, learner: nn.Module, windows: Any, objective: Any, seed: int, step: int) -> dict[str, float]:
        loss = conditioned_error(learner, self.store, self.table)
        distributed.first(lambda: self._keep(learner, loss, step))
        return {"loss": loss}

    def _keep(self, learner: nn.Module, loss: float, step: int) -> None:
        best = self.best()
        if best is None or loss < best[0] or math.isnan(best[0]):
            told = {_LOSS: torch.tensor(loss, dtype=torch.float64), _STEP: torch.tensor(step)}
            write_tensors(self.path, {k: v.detach().cpu() for k, v in learner.state_dict().items()} | told)

    def best(self) -> tuple[float, int, dict[str, Tensor]] | None:
        """Loss, step and weights; None before the first evaluation.

        Raises:
            CheckpointError: for a damaged file.
        """
        if not self.path.exists():
            return None
        remedy = f"remove the folder {self.path.parent}"
        held = read_tensors(self.path, remedy)
        if _LOSS not in held or _STEP not in held:
            raise CheckpointError(f"{self.path} is damaged: it says no loss; {remedy}")
        return float(held.pop(_LOSS)), int(held.pop(_STEP)), held
