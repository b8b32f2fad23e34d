"""One reader for the codes of every learner, after D-Clean's comparison of learners (`app:dclean-official`).

    ŷ_h = x + SD · MLP([present x, code slot, actions up to h, their mask, horizon embedding])

Two hidden layers of 256. The present is standardised, actions are divided by their SD, and the loss is
((ŷ − y) / SD)². Codes are standardised by training windows and padded with zeros to the slot; wider ones are refused,
for a map into the slot would be a part that other learners' readers lack. The batches and the first weights of a seed
are the same for whatever codes, so that the readers of zeros are one Null reader of all learners.

A window is named by its row (system · E + rollout) · W + anchor: each of the E rollouts of a system has W of them.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sprii_envs.arguments import check, instance, integer, integers, number
from sprii_envs.standardiser import Standardiser
from sprii_train.analysis.populations import P_co, Training, check_fit
from sprii_train.analysis.value.cases import tensor
from sprii_train.analysis.value.fitting import check_seeds, clip_each
from sprii_train.analysis.value.readers import ReaderConfig, ReaderNetwork, Sizes
from sprii_train.analysis.value.stacked import generator, predict_stack

Array = NDArray[np.float64]
Donors = Literal["matched", "shuffled"]

PAIRS = 8
"""Pairs of a system in a report, each in both directions."""


@dataclass(frozen=True)
class CommonConfig:
    """The reader and its fit; the defaults are the paper's.

    Attributes:
        horizons: steps ahead, all of a case at once.
        anchors: last observations of histories, where a recipient's present and a donor's history lie.
        systems: of a batch, without replacement, a pair each in both directions; all, where there are fewer.
        slot, horizon, width: of the code slot, the horizon embedding and the hidden layers.
        updates, learning_rate, weight_decay, warmup, clip: AdamW; the rate rises from 0 in `warmup` updates, then a
            cosine to zero; largest gradient norm.
        device: a torch device.
    """

    horizons: tuple[int, ...] = (1, 4, 16, 32)
    anchors: tuple[int, ...] = tuple(range(23, 32))
    systems: int = 48
    slot: int = 64
    horizon: int = 32
    width: int = 256
    updates: int = 20_000
    learning_rate: float = 3e-4
    weight_decay: float = 0.05
    warmup: int = 500
    clip: float = 1.0
    device: str = "cpu"

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        check(self, integers, "horizons", "anchors", some=True)
        for name, steps, least in (("horizons", self.horizons, 1), ("anchors", self.anchors, 0)):
            if list(steps) != sorted(set(steps)) or steps[0] < least:
                raise ValueError(f"CommonConfig.{name} are {steps}; legal: increasing steps >= {least}")
        check(self, integer, "systems", least=2)
        check(self, integer, "slot", "horizon", "width", "updates", least=1)
        check(self, integer, "warmup")
        check(self, number, "learning_rate", "clip", above=0)
        check(self, number, "weight_decay", least=0)
        check(self, instance, "device", of=str)

    @property
    def observations(self) -> int:
        """That an episode must have."""
        return self.anchors[-1] + self.horizons[-1] + 1

    def rate(self, step: int) -> float:
        """Learning rate of update number `step`, from 0."""
        if step < self.warmup:
            return self.learning_rate * step / self.warmup
        progress = (step - self.warmup) / max(1, self.updates - self.warmup)
        return 0.5 * self.learning_rate * (1 + math.cos(math.pi * progress))


@dataclass(frozen=True, eq=False)
class Panel(Generic[P_co]):
    """Equally many rollouts of each system of one population.

    Attributes:
        population: whose they are.
        systems: (N,) ids.
        states: (N, E, T, D).
        actions: (N, E, T − 1, A), between them.

    Raises:
        ValueError: for arrays of other shapes, fewer than two systems, or a single rollout, which has no donor.
    """

    population: P_co
    systems: NDArray[Any]
    states: NDArray[np.floating]
    actions: NDArray[np.floating]

    def __post_init__(self) -> None:
        n, (s, a) = len(self.systems), (np.shape(self.states), np.shape(self.actions))
        if len(s) != 4 or len(a) != 4 or s[0] != n or a[:3] != (n, s[1], s[2] - 1):
            raise ValueError(
                f"a Panel of {n} systems has states {s} and actions {a}; legal: (N, E, T, D), (N, E, T − 1, A)"
            )
        if n < 2 or s[1] < 2:
            raise ValueError(f"a Panel has {n} systems of {s[1]} rollouts; legal: 2 or more of each")

    def shape(self, config: CommonConfig) -> tuple[int, int, int]:
        """N, E and W."""
        return *self.states.shape[:2], len(config.anchors)


class Scales(NamedTuple):
    """Of training states, (D,), and the SD of training actions, (A,)."""

    state: Standardiser
    action: Array


class Pairs(NamedTuple):
    """Rows of windows: recipients, and the donor of each."""

    recipients: Any
    donors: Any


def hash_halves(
    systems: NDArray[Any], salt: str = "d-clean common reader"
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Where (N,) systems are for selection, and where they are for the report: halves of a ranking by SHA-256.

    A function of the ids alone, so that all learners are selected on the same systems and told of by the others. The
    report has the odd one.

    Raises:
        ValueError: for fewer than two systems, or an id twice.
    """
    ids = np.asarray(systems)
    if ids.ndim != 1 or len(np.unique(ids)) != len(ids) or len(ids) < 2:
        raise ValueError(
            f"hash_halves needs two or more distinct systems, got {len(np.unique(ids))} in shape {ids.shape}"
        )
    keys = [hashlib.sha256(f"{salt}:{system}".encode()).hexdigest() for system in ids.tolist()]
    selection = np.zeros(len(ids), np.bool_)
    selection[np.argsort(keys)[: len(ids) // 2]] = True
    return selection, ~selection


def fit_scales(panel: Panel[Training]) -> Scales:
    """Scales of training episodes; PopulationError for others."""
    check_fit(panel.population, "scales of states and actions")
    states, actions = (np.asarray(x, np.float64).reshape(-1, x.shape[-1]) for x in (panel.states, panel.actions))
    return Scales(Standardiser.fit(states), Standardiser.fit(actions).scale)


def window_table(panel: Panel[Any], scales: Scales, config: CommonConfig) -> Tensor:
    """Presents, actions ahead and increments by horizon of every window, (N·E·W, D + H·A + K·D), all scaled.

    Raises:
        ValueError: for episodes that end before the last horizon of the last anchor.
    """
    if panel.states.shape[2] < config.observations:
        raise ValueError(
            f"episodes of {panel.states.shape[2]} observations; legal: at least {config.observations}, for horizon "
            f"{config.horizons[-1]} after anchor {config.anchors[-1]}"
        )
    anchors, horizons = np.array(config.anchors), np.array(config.horizons)
    states, actions = scales.state(panel.states), panel.actions / scales.action
    present = states[:, :, anchors]
    ahead = actions[:, :, anchors[:, None] + np.arange(horizons[-1])]
    increments = states[:, :, anchors[:, None] + horizons] - present[..., None, :]
    parts = (x.reshape(np.prod(panel.shape(config)), -1) for x in (present, ahead, increments))
    return tensor(np.concatenate(list(parts), axis=1))


def slot_codes(train: Array, codes: Sequence[Array], width: int) -> list[Tensor]:
    """Codes (…, d) of windows as a reader gets them, (n, width): standardised by training windows, padded with zeros.

    A constant code is zeros.

    Raises:
        ValueError: for codes wider than the slot.
    """
    d = train.shape[-1]
    if d > width:
        raise ValueError(f"codes of {d} numbers do not fit the common reader's slot; legal: at most {width}")
    standardise = Standardiser.fit(train.reshape(-1, d))
    flat = (standardise(each).reshape(-1, d) for each in codes)
    return [tensor(np.pad(each, ((0, 0), (0, width - d)))) for each in flat]


def draw_pairs(rng: torch.Generator, shape: tuple[int, int, int], systems: int, donors: Donors = "matched") -> Pairs:
    """A batch: a window in each of two rollouts of distinct systems, uniform, in both directions; (2 · systems,) each.

    Args:
        shape: N, E and W.
        systems: at most; all N where there are fewer.
        donors: `shuffled` gives those of the system before in the batch, which say nothing of the recipient's.
    """
    n, rollouts, windows = shape
    system = torch.randperm(n, generator=rng)[:systems]
    first = torch.randint(rollouts, system.shape, generator=rng)
    second = (first + torch.randint(1, rollouts, system.shape, generator=rng)) % rollouts
    anchors = torch.randint(windows, (2, len(system)), generator=rng)
    a, b = ((system * rollouts + rollout) * windows + at for rollout, at in zip((first, second), anchors, strict=True))
    given = (b, a) if donors == "matched" else (b.roll(1), a.roll(1))
    return Pairs(torch.cat([a, b]), torch.cat(given))


def report_pairs(shape: tuple[int, int, int], seed: int = 0) -> Pairs:
    """The cases of a report, (N, 2 · PAIRS) each: pair p of a system is of the rollouts p and p + 1, counted around.

    Args:
        shape: N, E and W.
        seed: of the anchors.
    """
    n, rollouts, windows = shape
    anchors = np.random.default_rng(integer("seed", seed)).integers(windows, size=(2, n, PAIRS))
    rollout = (np.arange(PAIRS) + np.arange(2)[:, None]) % rollouts
    a, b = (np.arange(n)[:, None] * rollouts + rollout[:, None]) * windows + anchors
    return Pairs(np.concatenate([a, b], axis=1), np.concatenate([b, a], axis=1))


def next_systems(rows: NDArray[np.int64], shape: tuple[int, int, int]) -> NDArray[np.int64]:
    """The windows of the next system, counted around, at the same rollout and anchor."""
    n, rollouts, windows = shape
    return (rows + rollouts * windows) % (n * rollouts * windows)


def fit_common(
    panel: Panel[Training],
    codes: Tensor | None,
    scales: Scales,
    config: CommonConfig,
    seeds: Sequence[int],
    donors: Donors = "matched",
) -> ReaderNetwork:
    """Readers of one learner's codes, a stack of one a seed; the weights of the last update stay.

    Args:
        panel: the training systems.
        codes: (N·E·W, slot) of `slot_codes`; None are zeros, the Null reader.
        donors: see `draw_pairs`.

    Raises:
        PopulationError: for other systems than training ones.
        ValueError: for seeds that are not distinct, codes of another shape, and as `window_table`.
        RuntimeError: if the fit diverges.
    """
    check_fit(panel.population, "a common reader")
    check_seeds(seeds)
    table, shape = window_table(panel, scales, config).to(config.device), panel.shape(config)
    codes = torch.zeros(len(table), config.slot) if codes is None else codes
    if codes.shape != (len(table), config.slot):
        raise ValueError(f"codes have shape {tuple(codes.shape)}; legal: {(len(table), config.slot)}")
    given = codes.to(config.device)
    network = common_network(_sizes(panel, config), config, seeds).to(config.device)
    parameters = list(network.parameters())
    optimizer = torch.optim.AdamW(parameters, weight_decay=config.weight_decay, fused=True)
    draws, given = [generator(seed, "batches") for seed in seeds], codes.to(config.device)
    for step in range(config.updates):
        batch = [draw_pairs(rng, shape, config.systems, donors) for rng in draws]
        recipients, chosen = (torch.stack(rows).to(config.device) for rows in zip(*batch, strict=True))
        present, actions, increments = _inputs(table[recipients], _sizes(panel, config))
        optimizer.zero_grad()
        errors = (network(present, given[chosen], actions) - increments).square()
        errors.mean((1, 2, 3)).sum().backward()
        clip_each(parameters, config.clip)
        optimizer.param_groups[0]["lr"] = config.rate(step)
        optimizer.step()
    if not all(p.isfinite().all() for p in parameters):
        raise RuntimeError(f"the common readers of seeds {list(seeds)} diverged; the rate is {config.learning_rate}")
    return network.requires_grad_(False)


def common_network(sizes: Sizes, config: CommonConfig, seeds: Sequence[int]) -> ReaderNetwork:
    """The network with its first weights, a stack of one a seed."""
    own = ReaderConfig(query=sizes.query, slot=config.slot, horizon=config.horizon, width=config.width)
    return ReaderNetwork(own, sizes, 0, seeds)


def common_errors(
    network: ReaderNetwork, panel: Panel[Any], codes: Tensor | None, scales: Scales, config: CommonConfig, pairs: Pairs
) -> Array:
    """Squared errors in the states' own units, mean over coordinates and cases of a system: (R, N, K).

    Args:
        codes: (N·E·W, slot); None are zeros.
        pairs: (N, P) rows of windows.
    """
    table, members = window_table(panel, scales, config), network.horizon.shape[0]
    codes = torch.zeros(len(table), config.slot) if codes is None else codes
    recipients, donors = (torch.from_numpy(rows.ravel()) for rows in pairs)
    present, actions, increments = _inputs(table[recipients], _sizes(panel, config))
    found = predict_stack(network, (present, codes[donors], actions), members, config.device)
    errors = ((found - increments).double() * torch.from_numpy(scales.state.scale)).square().mean(-1)
    return errors.unflatten(1, pairs.recipients.shape).mean(2).numpy()


def _sizes(panel: Panel[Any], config: CommonConfig) -> Sizes:
    d = panel.states.shape[-1]
    return Sizes(d, panel.actions.shape[-1], config.horizons, d)


def _inputs(rows: Tensor, sizes: Sizes) -> tuple[Tensor, Tensor, Tensor]:
    """Presents (n, D), actions (n, H, A) and increments (n, K, D) of rows of the table."""
    steps, k = sizes.horizons[-1], len(sizes.horizons)
    present, actions, increments = rows.split((sizes.query, steps * sizes.actions, k * sizes.outputs), dim=-1)
    return present, actions.unflatten(-1, (steps, sizes.actions)), increments.unflatten(-1, (k, sizes.outputs))
