"""Reader cases of worlds whose histories are windows: a present, a window of another episode, a future.

A recipient shows its present observation alone (a frame comes with its difference). Its donor is a history of another
episode of its system. Both lie where training windows lie, drawn once for all sources and recipes of a bank.
"""

from typing import Any

import numpy as np

from sprii_envs.relations import SAME_SYSTEM, EpisodeTable
from sprii_envs.relations.index import build_index
from sprii_train.analysis.populations import Development
from sprii_train.analysis.value.cases import Cases, Standardiser
from sprii_train.cases.base import Drawn, P, SourceCases, Trained, cases_from, training_from
from sprii_train.cases.encoding import encode_windows, present_features

SEED = 20_264
SPLITS = ("train", "validation")


def cases_of(source: Trained) -> SourceCases:
    """The cases of a source's setting: its own, or windows."""
    setting = source.setting
    return setting.cases(source) if setting.cases else window_cases(source, setting.case_horizons, setting.case_count)


def window_cases(source: Trained, horizons: tuple[int, ...], per_system: int) -> SourceCases:
    """`per_system` cases of every training and validation system, with the frozen features of one source.

    Raises:
        ValueError: as `draw_windows`.
    """
    store, setting = source.store, source.setting
    tables = {split: setting.episodes(store, split) for split in SPLITS}
    last = source.learner.config.horizons[-1]
    drawn = {
        split: draw_windows(table, setting.history, horizons[-1], last, per_system, seed=SEED)
        for split, table in tables.items()
    }
    raw = {split: _raw(source, windows, horizons) for split, windows in drawn.items()}
    train, standardiser = training_from(store, raw["train"])
    development = cases_from(store, "validation", Development, raw["validation"], standardiser)
    return SourceCases(train, development, standardiser, drawn)


def windows_elsewhere(source: Trained, split: str, of: type[P], standardiser: Standardiser) -> tuple[Cases[P], Drawn]:
    """Cases of a source whose store is replaced by another bank, of one split, and which windows these are.

    Raises:
        ValueError: as `draw_windows`.
    """
    setting, horizons = source.setting, source.setting.case_horizons
    table = setting.episodes(source.store, split, unseal=True)
    last = source.learner.config.horizons[-1]
    drawn = draw_windows(table, setting.history, horizons[-1], last, setting.case_count, seed=SEED)
    return cases_from(source.store, split, of, _raw(source, drawn, horizons), standardiser), drawn


def draw_windows(
    table: EpisodeTable, history: int, horizon: int, donor_horizon: int, per_system: int, *, seed: int
) -> Drawn:
    """Distinct recipients, equally many of each episode, and a uniform donor window of another episode for each.

    Args:
        table: episodes of one split, equally many a system.
        history: observations; a recipient's present is the last one of a history.
        horizon: steps that follow a recipient.
        donor_horizon: steps that follow a donor's history: its start is that of a training window.
        per_system: cases of a system.

    Raises:
        ValueError: if the cases cannot be spread evenly over the episodes of every system, or an episode is too short.
    """
    counts = np.unique(table["system"], return_counts=True)[1]
    each = per_system // int(counts[0])
    if (counts != counts[0]).any() or each * counts[0] != per_system:
        raise ValueError(
            f"{per_system} cases a system must be spread evenly over its episodes; systems have "
            f"{counts.min()} to {counts.max()}"
        )
    room, donor_room = (table["length"] - history - h + 1 for h in (horizon, donor_horizon))
    if room.min() < each or donor_room.min() < 1:
        raise ValueError(
            f"an episode of {table['length'].min()} observations has no room for {each} histories of {history} with "
            f"{horizon} steps after them, or for a donor's with {donor_horizon}"
        )
    first, second, third = np.random.default_rng(seed).spawn(3)
    keys = first.random((len(table), int(room.max())))
    keys[np.arange(keys.shape[1]) >= room[:, None]] = 1.0
    anchors = np.argsort(keys, axis=1)[:, :each].ravel() + history - 1
    rows = np.repeat(np.arange(len(table)), each)
    donors = build_index(table, SAME_SYSTEM).draw(second, rows)
    starts = (third.random(len(rows)) * donor_room[donors]).astype(np.int64)
    return Drawn(table["episode"][rows], anchors, table["episode"][donors], starts)


def _raw(source: Trained, drawn: Drawn, horizons: tuple[int, ...]) -> dict[str, Any]:
    store, setting, learner, reader = source.store, source.setting, source.learner, source.reader
    table, order = store.table, store.table.by_episode()
    rows = order[np.searchsorted(table["episode"][order], drawn.episodes)]
    # Targets are what banks call states even where a learner sees frames; elsewhere what is observed.
    column = setting.observation if isinstance(setting.observation, str) else setting.observation[0]
    windows = store.windows(column, drawn.episodes, drawn.anchors, horizons[-1] + 1).astype(np.float64)
    states = windows.reshape(*windows.shape[:2], -1)
    if setting.action is None:
        actions = np.zeros((len(rows), horizons[-1], 0))
    else:
        actions = store.windows(setting.action, drawn.episodes, drawn.anchors, horizons[-1]).astype(np.float64)
    return {
        "systems": table["system"][rows],
        "query": present_features(learner, reader, drawn.episodes, drawn.anchors),
        "context": encode_windows(learner, reader, drawn.donors, drawn.starts),
        "factors": {name: table[name][rows].astype(np.float64) for name in setting.properties},
        "actions": actions,
        "targets": states[:, list(horizons)] - states[:, :1],
        "horizons": horizons,
    }
