"""Experience as the standardised tensors from which batches are read by index."""

from typing import NamedTuple

import torch
from torch import Tensor

from sprii_train.control.anchors import Anchors
from sprii_train.control.experience import Experience
from sprii_train.learners.cadm import CaDM, statistics
from sprii_train.learners.histories import History, filled_slots


class Tables(NamedTuple):
    """W anchors and N transitions, standardised, float32 on the learner's device.

    Attributes:
        histories: (W, K·(S + A)), what the encoder reads at every anchor.
        transitions: (2, N, S + A + S), input and target of every transition, forward and backward.
    """

    histories: Tensor
    transitions: Tensor


def standardised(learner: CaDM, experience: Experience, at: Anchors) -> Tables:
    """Refit the learner's statistics to all transitions and anchors, validation included; standardise by them."""
    device = learner.observation.device
    before, action, after = (torch.from_numpy(x).to(device) for x in experience.transitions())
    time, transition = (torch.from_numpy(x).to(device) for x in (at.time, at.transition))
    slot, filled = filled_slots(time, learner.history)
    number = slot + (transition - time)[:, None]
    seen, actions, next_seen = (x[number] * filled[..., None] for x in (before, action, after))
    history = History(seen, actions, next_seen, filled.sum(1))
    learner.standardise_by(statistics(before, action, after - before, actions, floor=learner.config.sd_floor))
    change = learner.targets(before, after)
    inputs = learner.transition_inputs(before, action, after)
    return Tables(learner.history_inputs(history), torch.cat([inputs, torch.stack([change, -change])], dim=-1))
