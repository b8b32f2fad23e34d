"""The checkpoint of the lowest development loss: kept while training goes on, found again by a run that resumes."""

from pathlib import Path

import pytest
import torch
from torch import nn

from sprii_envs.banks import Store
from sprii_train.checkpoints import CheckpointError, write_tensors
from sprii_train.fields import selection
from sprii_train.fields.selection import Development


def test_the_weights_of_the_least_loss_are_kept(field_bank: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    losses = {1: 3.0, 2: 1.0, 3: 2.0, 4: 1.0}
    step = 0
    monkeypatch.setattr(selection, "conditioned_error", lambda *_: losses[step])
    learner = nn.Linear(2, 1)
    development = Development(field_bank, field_bank.split("validation"), tmp_path / "best.safetensors", every=1)
    assert development.best() is None
    seen = {}
    for step in (1, 2, 3, 2, 3, 4):  # resumed from step 1
        nn.init.constant_(learner.weight, step)
        seen[step] = development(learner, None, None, 0, step)
    assert seen == {k: {"loss": v} for k, v in losses.items()}
    best = development.best()
    assert best is not None
    loss, at, weights = best
    assert (loss, at) == (1.0, 2)  # the first of two that are equal
    learner.load_state_dict(weights)
    assert (learner.weight == 2).all()


def test_a_file_that_says_no_loss_is_refused(field_bank: Store, tmp_path: Path):
    path = tmp_path / "best.safetensors"
    write_tensors(path, {"weight": torch.ones(1)})
    with pytest.raises(CheckpointError, match="is damaged: it says no loss; remove the folder"):
        Development(field_bank, field_bank.split("validation"), path, every=1).best()
