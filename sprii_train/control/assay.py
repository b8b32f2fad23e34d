"""What a CaDM checkpoint holds and uses, apart from control: probes and logged-action donors (`app:pendulum-control`).

Pure functions of a learner, on the CPU, and banks of episodes. Actions are those of the log: nothing here says what a
planner would make of another context.
"""

from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sprii_envs.arguments import integer
from sprii_envs.relations import SAME_SYSTEM, PairSampler, WindowSampler
from sprii_train.analysis.formation import Factor, Scored, probe_factors
from sprii_train.analysis.populations import Development, Population, Sample, Training
from sprii_train.control.agent import DynamicsModel
from sprii_train.control.experience import Experience, Rows
from sprii_train.learners.histories import window_history

Array = NDArray[np.float64]
P = TypeVar("P", bound=Population)


class DonorErrors(NamedTuple):
    """Squared errors of recursive prediction along logged actions, in the observations' units, float64.

    Attributes:
        own: (H,), at each step, with the context of the recipient's own history; mean over pairs and coordinates.
        matched: (H,), with that of another episode of the recipient's system (the paper's own-donor error).
        wrong: (H,), with that of another system's episode.
        pairs: recipients measured.
    """

    own: Array
    matched: Array
    wrong: Array
    pairs: int

    @property
    def matched_last(self) -> float:
        """The own-donor MSE at the last step, H10 by default."""
        return float(self.matched[-1])

    @property
    def wrong_minus_matched(self) -> float:
        """Wrong minus matched at the last step: how much the model relies on the donor it is given."""
        return float(self.wrong[-1] - self.matched[-1])


@torch.inference_mode()
def donor_errors(
    learner: DynamicsModel, bank: Experience, *, horizon: int = 10, rounds: int = 16, seed: int = 0
) -> DonorErrors:
    """Predict logged futures of one system's episodes under contexts of other episodes.

    Every round draws a recipient of each system, a state of it with a full history before and `horizon` steps after it,
    and a full history of another episode of the system. The wrong donors of a round are its matched ones, each given to
    the next recipient: both have the same recipients and the same donors.

    Args:
        bank: episodes common to all learners compared.
        horizon: steps predicted recursively, from the true state on.
        rounds: draws; functions of (seed, round).

    Raises:
        ValueError: for episodes that are too short, fewer than two systems with two episodes, or numbers below 1.
    """
    horizon, rounds = integer("horizon", horizon, least=1), integer("rounds", rounds, least=1)
    table = bank.table()
    _, counts = np.unique(table["system"], return_counts=True)
    eligible = int((counts > 1).sum())
    if eligible < 2:
        raise ValueError(
            f"a donor assay needs 2 systems of 2 or more episodes; the bank has {eligible} of {len(counts)}"
        )
    sampler = PairSampler(table, SAME_SYSTEM, seed=seed, distinct="system", on_missing="drop")
    windows = WindowSampler(table, history=learner.history + 1, horizon=horizon, seed=seed)
    drawn = [windows.batch(r, sampler.batch(r, eligible)) for r in range(rounds)]
    contexts = [_contexts(learner, bank, w.donor, w.donor_start) for w in drawn]
    recipient, start = (np.concatenate([getattr(w, name) for w in drawn]) for name in ("recipient", "recipient_start"))
    own = _contexts(learner, bank, recipient, start)
    observations, actions = (torch.from_numpy(x) for x in bank.windows(recipient, start + learner.history, horizon + 1))
    found = (
        _course_errors(learner, observations, actions, context)
        for context in (own, torch.cat(contexts), torch.cat([c.roll(1, 0) for c in contexts]))
    )
    return DonorErrors(*found, pairs=len(recipient))


@torch.inference_mode()
def context_sample(learner: DynamicsModel, bank: Experience, population: P, *, windows: int = 8) -> Sample[P]:
    """Contexts of `windows` full histories of each episode, evenly spaced from its first to its last.

    Raises:
        ValueError: for an episode without a full history.
    """
    windows, episodes = integer("windows", windows, least=1), np.arange(len(bank))
    starts = WindowSampler(bank.table(), history=learner.history + 1, horizon=0).grid(episodes, windows)
    rows = np.repeat(episodes, windows)
    codes = _contexts(learner, bank, rows, starts.ravel()).double().numpy()
    factors = {name: values[rows] for name, values in zip(bank.property_names, bank.properties.T, strict=True)}
    return Sample(population, codes, bank.systems[rows], factors, rows)


def context_probes(
    learner: DynamicsModel, train: Experience, held_out: Experience, *, windows: int = 8
) -> dict[str, Scored]:
    """Ridge probes of every persistent property from contexts of single full histories.

    Args:
        train: episodes of the systems on which probes and their penalties are fitted.
        held_out: episodes of other systems, which are scored.
        windows: histories of each episode.

    Returns:
        Property → estimates and R², systems weighted equally.

    Raises:
        ValueError: for systems of both banks, an episode without a full history, or a property without variation.
    """
    if shared := sorted(set(train.systems) & set(held_out.systems)):
        raise ValueError(
            f"{len(shared)} systems are in both banks, such as {str(shared[0])!r}; legal: held-out systems only"
        )
    scored = probe_factors(
        context_sample(learner, train, Training("train"), windows=windows),
        context_sample(learner, held_out, Development("held out"), windows=windows),
        [Factor(name) for name in train.property_names],
        seed=0,  # of networks, and there are none
        kinds=("ridge",),
    )
    return {name: found for (_, name), found in scored.items()}


def _contexts(learner: DynamicsModel, bank: Experience, episodes: Rows, starts: Rows) -> Tensor:
    """Contexts (n, d) of the full histories that begin at observation `starts` of episodes."""
    observations, actions = (torch.from_numpy(x) for x in bank.windows(episodes, starts, learner.history + 1))
    return learner.context(window_history(observations, actions, learner.history))


def _course_errors(learner: DynamicsModel, observations: Tensor, actions: Tensor, context: Tensor) -> Array:
    """Mean squared error (H,) of recursive prediction from the first of observations (n, H + 1, S)."""
    state, found = observations[:, 0], []
    for action, truth in zip(actions.unbind(1), observations[:, 1:].unbind(1), strict=True):
        state = learner.step(state, action, context)
        found.append((state.double() - truth.double()).square().mean())
    return torch.stack(found).numpy()
