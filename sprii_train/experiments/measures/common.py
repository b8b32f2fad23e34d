"""What a common reader makes of a learner's codes, and of codes of no learner (`app:dclean-official`)."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sprii_envs.files import lock
from sprii_envs.relations import EpisodeTable
from sprii_train.analysis.formation import FIXED_PENALTY, Factor, fit_ridge, score
from sprii_train.analysis.populations import Population, Sample, Training, population_of
from sprii_train.analysis.value.common import (
    CommonConfig,
    Donors,
    Pairs,
    Panel,
    common_errors,
    fit_common,
    fit_scales,
    hash_halves,
    next_systems,
    report_pairs,
    slot_codes,
)
from sprii_train.analysis.value.readers import ReaderNetwork
from sprii_train.cases.encoding import encode_windows
from sprii_train.checkpoints import CheckpointError, read_tensors, write_tensors
from sprii_train.experiments.measures.untrained import first_weights
from sprii_train.experiments.sources import Source
from sprii_train.identity import cell_code, digest

Array = NDArray[np.float64]

FIRST_SEED = 2_026_091_600
"""Of the readers, which count on from it."""
SEED = 20_266  # of the report's anchors
ANCHORS = 9  # of an episode, from the first where a history can end
UPDATES = 2  # of the common reader, for one of a budget's readers: 20,000 for 10,000 in the paper
DRAG = Factor("drag", log=True)


def common_reader(source: Source, config: CommonConfig | None = None) -> dict[str, Any]:
    """Raw-state MSE by horizon of readers fitted on training systems, on the report half of the validation systems.

    `matched_h32` reads a donor of the recipient's system; `wrong` and `zero` are the same readers with a donor of the
    next system, and without one. Readers of their own: `null` without donors; `untrained` of the learner's first
    weights; `shuffled` of donors of other systems; `constant` and `oracle` of a constant and of log γ in place of a
    code. `probe_r2` is of a ridge of log γ on windows. `selection_matched_h32` is of the other half, by which a
    learner's endpoint may be chosen. Errors by system, (R, N, K), are kept beside the model.
    """
    first = source.setting.history - 1
    readers = source.cell.readers
    config = config or CommonConfig(anchors=tuple(range(first, first + ANCHORS)), updates=UPDATES * readers.updates)
    seeds = tuple(range(FIRST_SEED, FIRST_SEED + readers.count))
    shared = Comparison(source, config, seeds)
    codes, blank = (shared.codes(source, learner) for learner in (source.learner, first_weights(source)))
    fitted, slots = shared.fit(codes)
    errors = references(source, shared)
    errors["matched"] = shared.errors(fitted, slots, shared.pairs)
    errors["wrong"] = shared.errors(fitted, slots, shared.wrong)
    errors["zero"] = shared.errors(fitted, None, shared.pairs)
    errors["shuffled"] = shared.errors(*shared.fit(codes, "shuffled"), shared.wrong)
    errors["untrained"] = shared.errors(*shared.fit(blank), shared.pairs)
    source.keep(errors)
    row: dict[str, Any] = {
        f"{name}_h{h}": float(grid[..., k].mean())
        for name, grid in errors.items()
        for k, h in enumerate(config.horizons)
    }
    chosen = shared.selected(source, fitted, codes[0])
    row |= {f"selection_matched_h{h}": float(chosen[..., k].mean()) for k, h in enumerate(config.horizons)}
    last = config.horizons[-1]
    row[f"wrong_minus_matched_h{last}"] = row[f"wrong_h{last}"] - row[f"matched_h{last}"]
    row |= {"probe_r2": shared.probe(codes), "untrained_probe_r2": shared.probe(blank)}
    return row | {"code": codes[0].shape[-1], "systems": shared.report.panel.systems.tolist()}


class Windows(NamedTuple):
    """Of one population: the episodes, their ids (N, E), and the drag (N,) of the systems."""

    panel: Panel[Any]
    episodes: NDArray[np.int64]
    drag: Array


class Comparison:
    """What the readers of all learners share.

    Codes are pairs of arrays (N, E, W, d): of the training windows, and of the windows of the report.

    Attributes:
        train, report: training systems, and the half of the validation systems that nothing is selected on.
        selection: the other half.
        pairs, wrong: cases of the report; the same recipients with donors of the next system.
    """

    def __init__(self, source: Source, config: CommonConfig, seeds: Sequence[int]) -> None:
        self.config, self.seeds, (setting, store) = config, tuple(seeds), (source.setting, source.store)
        held_out = setting.episodes(store, "validation")
        systems = np.unique(held_out["system"])
        self.train = windows_of(source, Training("train"), setting.episodes(store, "train"), config)
        self.selection, self.report = (
            windows_of(
                source, population_of(store, "validation"), held_out.select(np.isin(held_out["system"], systems[half])),
                config,
            )
            for half in hash_halves(systems)
        )  # fmt: skip
        self.scales = fit_scales(self.train.panel)
        shape = self.report.panel.shape(config)
        self.pairs = report_pairs(shape, seed=SEED)
        self.wrong = self.pairs._replace(donors=next_systems(self.pairs.donors, shape))

    def codes(self, source: Source, learner: Any) -> tuple[Array, Array]:
        """A learner's codes of all windows."""
        return window_codes(source, learner, self.train, self.config), window_codes(
            source, learner, self.report, self.config
        )

    def known(self, train: Array, report: Array) -> tuple[Array, Array]:
        """A number (N,) of each system in place of codes."""
        of = ((train, self.train), (report, self.report))
        one, two = (
            np.broadcast_to(values[:, None, None, None], (*windows.panel.shape(self.config), 1))
            for values, windows in of
        )
        return one, two

    def fit(self, codes: tuple[Array, Array] | None, donors: Donors = "matched") -> tuple[ReaderNetwork, Tensor | None]:
        """Readers of codes, None being none, and what they get on the report's windows."""
        fitted, told = (None, None) if codes is None else slot_codes(codes[0], codes, self.config.slot)
        return fit_common(self.train.panel, fitted, self.scales, self.config, self.seeds, donors), told

    def errors(self, network: ReaderNetwork, codes: Tensor | None, pairs: Pairs) -> Array:
        """See `common_errors`."""
        return common_errors(network, self.report.panel, codes, self.scales, self.config, pairs)

    def selected(self, source: Source, network: ReaderNetwork, train: Array) -> Array:
        """Errors (R, N, K) of a learner's readers on the selection's windows, `train` its codes of training ones."""
        panel = self.selection.panel
        (told,) = slot_codes(
            train, [window_codes(source, source.learner, self.selection, self.config)], self.config.slot
        )
        pairs = report_pairs(panel.shape(self.config), seed=SEED)
        return common_errors(network, panel, told, self.scales, self.config, pairs)

    def probe(self, codes: tuple[Array, Array]) -> float:
        """R² of a ridge of the log drag, of penalty 1, on the windows of the report."""
        fitted, told = (sample(each, windows) for each, windows in zip(codes, (self.train, self.report), strict=True))
        return score(fit_ridge(fitted, DRAG, penalties=FIXED_PENALTY), told).r2


def windows_of(source: Source, population: Population, table: EpisodeTable, config: CommonConfig) -> Windows:
    """The windows of a population's episodes.

    Raises:
        ValueError: for systems of unequally many episodes, or episodes that are too short.
    """
    order = np.lexsort((table["episode"], table["system"]))
    systems, first, counts = np.unique(table["system"][order], return_index=True, return_counts=True)
    if (counts != counts[0]).any():
        raise ValueError(
            f"a common reader needs equally many episodes of every system; those of {population.name} have "
            f"{counts.min()} to {counts.max()}"
        )
    ids, setting, store = table["episode"][order], source.setting, source.store
    starts = np.zeros_like(ids)
    states = store.windows(str(setting.observation), ids, starts, config.observations)
    actions = store.windows(str(setting.action), ids, starts, config.observations - 1)
    grid = (len(systems), int(counts[0]))
    panel = Panel(population, systems, *(np.reshape(x, (*grid, *x.shape[1:])) for x in (states, actions)))
    return Windows(panel, ids.reshape(grid), table["drag"][order][first].astype(np.float64))


def window_codes(source: Source, learner: Any, windows: Windows, config: CommonConfig) -> Array:
    """Codes (N, E, W, d) of the histories that end at every anchor; an empty code is a constant one."""
    shape = windows.panel.shape(config)
    starts = np.broadcast_to([source.setting.starts(anchor) for anchor in config.anchors], shape).ravel()
    found = encode_windows(learner, source.reader, windows.episodes.ravel().repeat(shape[2]), starts)
    return (found if found.shape[1] else np.zeros((len(found), 1))).reshape(*shape, -1)


def sample(codes: Array, windows: Windows) -> Sample[Any]:
    """One row a window."""
    each = int(np.prod(codes.shape[1:3]))
    systems, drag = (column.repeat(each) for column in (windows.panel.systems, windows.drag))
    return Sample(windows.panel.population, codes.reshape(-1, codes.shape[-1]), systems, {DRAG.column: drag})


def references(source: Source, shared: Comparison) -> dict[str, Array]:
    """Errors of the readers that no learner has a part in: fitted once, and kept beside the cells, for all sources."""
    code = cell_code(references, Comparison, windows_of)
    told = [asdict(shared.config), shared.seeds, source.store.fingerprint, source.setting.name, code]
    path = source.folder.parent / f"common-reader-{digest(json.dumps(told, sort_keys=True))[:10]}.safetensors"
    with lock(path.with_suffix(".lock"), error=CheckpointError):
        if not path.exists():
            train, report = shared.train.drag, shared.report.drag
            given = {
                "null": None,
                "constant": shared.known(np.ones_like(train), np.ones_like(report)),
                "oracle": shared.known(np.log(train), np.log(report)),
            }
            found = {name: shared.errors(*shared.fit(codes), shared.pairs) for name, codes in given.items()}
            write_tensors(path, {name: torch.from_numpy(errors) for name, errors in found.items()})
    return {name: errors.numpy() for name, errors in read_tensors(path, f"remove {path.name}").items()}
