"""What a learner of true increments predicts itself, at once and step by step (`tab:dclean-native-rollout`)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from sprii_train.analysis.formation import group_means
from sprii_train.analysis.value.cases import other_system_rows
from sprii_train.cases.encoding import encode_windows
from sprii_train.cases.windows import draw_windows
from sprii_train.experiments.measures.selection import halves
from sprii_train.experiments.measures.untrained import first_weights
from sprii_train.experiments.sources import Source

SEED = 20_268
STEPS = 32
CASES = 16  # of a system
STRIDES = {"rollout": 1, "jumps": 16}
"""Name → steps of a prediction that the next one begins at."""


def native_decoder(source: Source) -> dict[str, Any]:
    """Raw-state MSE on the reported half of validation systems, by the donor of the code.

    `direct_h16` and so for every horizon: from the true present. `rollout_h32` and `jumps_h32`: from predicted ones, 32
    predictions of one step and two of sixteen. They are of a same-system donor; `wrong_…` of another system's,
    `untrained_…` of the first weights, and `still_…` of no motion. Errors by system, (N,), are kept beside the model.
    """
    setting, store, learner = source.setting, source.store, source.learner
    table = halves(setting.episodes(store, "validation"))[1]
    drawn = draw_windows(table, setting.history, STEPS, learner.config.horizons[-1], CASES, seed=SEED)
    states, actions = (
        torch.from_numpy(store.windows(name, drawn.episodes, drawn.anchors, length).astype(np.float32))
        for name, length in (("states", STEPS + 1), ("actions", STEPS))
    )
    order = table.by_episode()
    systems = table["system"][order[np.searchsorted(table["episode"][order], drawn.episodes)]]
    blank = first_weights(source)
    of_donors, of_blank = (encode_windows(each, source.reader, drawn.donors, drawn.starts) for each in (learner, blank))
    codes = {
        "": (learner, of_donors),
        "wrong_": (learner, of_donors[other_system_rows(systems, SEED)]),
        "untrained_": (blank, of_blank),
    }
    predicted: dict[str, Mapping[int, Tensor]] = {}
    for donor, (of, given) in codes.items():
        z_p = torch.from_numpy(given.astype(np.float32))
        predicted[f"{donor}direct"] = direct(of, states[:, 0], z_p, actions)
        predicted |= {
            f"{donor}{name}": {STEPS: rolled(of, states[:, 0], z_p, actions, stride)}
            for name, stride in STRIDES.items()
        }
    predicted["still"] = {h: states[:, 0] for h in (*learner.config.horizons, STEPS)}
    errors = {
        f"{name}_h{h}": _by_system(found, states[:, h], systems)
        for name, of in predicted.items()
        for h, found in of.items()
    }
    source.keep(errors)
    return {name: float(each.mean()) for name, each in errors.items()}


@torch.no_grad()
def direct(learner: Any, states: Tensor, z_p: Tensor, actions: Tensor) -> dict[int, Tensor]:
    """Horizon → states (B, S) predicted from true ones."""
    horizons = learner.config.horizons
    found = learner.forecast(states, z_p, actions[:, : horizons[-1]])
    return {h: found[:, k] for k, h in enumerate(horizons)}


@torch.no_grad()
def rolled(learner: Any, states: Tensor, z_p: Tensor, actions: Tensor, stride: int) -> Tensor:
    """States (B, S) after all actions (B, T, A), each `stride` steps predicted from the prediction before.

    Raises:
        ValueError: for a stride that is no horizon of the learner, or that does not divide T.
    """
    horizons, steps = learner.config.horizons, actions.shape[1]
    if stride not in horizons or steps % stride:
        raise ValueError(f"the stride is {stride}; legal: horizons of {horizons} that divide {steps} steps")
    k, ahead = horizons.index(stride), horizons[-1]
    for first in range(0, steps, stride):
        window = actions[:, first : first + ahead]
        states = learner.forecast(states, z_p, F.pad(window, (0, 0, 0, ahead - window.shape[1])))[:, k]
    return states


def _by_system(predicted: Tensor, truth: Tensor, systems: NDArray[Any]) -> NDArray[np.float64]:
    squared = (predicted.double() - truth.double()).square().mean(1)
    return group_means(squared.numpy()[:, None], systems)[0][:, 0]
