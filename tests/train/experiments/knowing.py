"""A source whose learner knows the answer: z_s is the present state, z_p what the test says."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tiny_sources import cell_of
from torch import Tensor, nn

from sprii_envs.banks import Bank
from sprii_train.experiments.sources import ReaderBudget, Source
from sprii_train.protocol import Batch, Windows
from sprii_train.settings import SETTINGS


class Knowing(nn.Module):
    """z_p is the system's true factors, standardised by training systems; without `knows` it is noise."""

    def __init__(self, config: Any, knows: bool = True) -> None:
        super().__init__()
        # Windows carry labels for the supervised context alone.
        self.config = replace(config, image=0, context="supervised")
        self.knows = knows

    def present(self, observations: Tensor) -> Tensor:
        return observations

    def target(self, observations: Tensor) -> Tensor:
        return observations

    def encode_current(self, current: Tensor) -> Tensor:
        return current

    def prepare(self, windows: Windows) -> Batch:
        assert windows.labels is not None
        history = windows.labels if self.knows else windows.observations.sum((1, 2))[:, None].sin()
        return Batch(history, windows.observations[:, -1], windows.future_actions, windows.future_observations)

    def encode_history(self, history: Tensor) -> Tensor:
        return history


def knowing_source(bank: Bank, world: str, folder: Path, *, knows: bool = True, readers: ReaderBudget) -> Source:
    """Such a source of a small bank; measures write into `folder`."""
    cell = cell_of(bank, world, readers=readers)
    folder.mkdir(parents=True, exist_ok=True)
    with torch.random.fork_rng():
        learner: Any = Knowing(cell.learner, knows)
    return Source(cell, SETTINGS[world], bank, learner, folder)
