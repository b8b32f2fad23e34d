"""Banks of multi-episode histories, in each of which one partner persists (`app:overcooked-profile`).

folder/
  observations.npy …  arrays (histories, episodes, steps, …), read by mapping
  histories.npz       the EpisodeTable: one row a history, whose system is the partner
  bank.json           configuration, partners, and the SHA-256 of every file
"""

import functools
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from sprii_envs.banks.storage import BankError, read_json, write_json
from sprii_envs.overcooked.collect import Histories, collect
from sprii_envs.overcooked.game import Game
from sprii_envs.overcooked.partners.partner import NEURAL, Partner
from sprii_envs.overcooked.partners.roster import Roster
from sprii_envs.relations import EpisodeTable

FORMAT, SCHEMA = "sprii-histories", 1
COLUMNS = ("observations", "actions", "partner_actions", "rewards")


@dataclass(frozen=True)
class HistoryProtocol:
    """What a bank holds.

    A history is `episodes` episodes of one partner with an ego that improves: the early checkpoint of one training
    source plays the first third, its last one the rest. Sources of egos are those of familiar partners.

    Attributes:
        seat: of the ego.
        histories: of each familiar partner, for training.
        validation: further ones of each familiar partner, and those of each held-out one.
        seed: of everything drawn.
    """

    game: Game = field(default_factory=Game)
    seat: int = 1
    histories: int = 16
    validation: int = 8
    episodes: int = 15
    seed: int = 0

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        for name, least in (("histories", 2), ("validation", 2), ("episodes", 5), ("seed", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}; legal: an integer >= {least}")
        if self.seat not in (0, 1):
            raise ValueError(f"seat is {self.seat}; legal: 0 or 1")


class HistoryBank:
    """An open bank: arrays mapped from disk, and the table of histories.

    Attributes:
        protocol: as told at building.
        partners: names in the order of ids, with their files' identity.
        table: one row a history; columns episode, system (the partner's id), rollout (its place among the partner's),
            length (observations), split (`train`, `validation`, `held_out`), partner (name) and ego (its source).
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        told = read_json(self.folder / "bank.json")
        if told.get("format") != FORMAT or told.get("schema") != SCHEMA:
            raise BankError(f"{self.folder / 'bank.json'}: not a bank of histories of schema {SCHEMA}")
        self.protocol = HistoryProtocol(**{**told["protocol"], "game": Game(**told["protocol"]["game"])})
        self.partners: list[str] = told["partners"]
        self.fingerprint: str = told["fingerprint"]
        self.table = EpisodeTable.load(self.folder / "histories.npz")
        for name in COLUMNS:
            path = self.folder / f"{name}.npy"
            try:
                array = np.load(path, mmap_mode="r", allow_pickle=False)
            except (OSError, ValueError) as error:
                raise BankError(f"{path} cannot be read: {error}") from None
            if path.stat().st_size != told["files"][path.name]["bytes"] or len(array) != len(self.table):
                raise BankError(f"{path} is damaged: it is not of the size that bank.json tells")
            setattr(self, name, array)

    observations: NDArray[np.uint8]
    actions: NDArray[np.uint8]
    partner_actions: NDArray[np.uint8]
    rewards: NDArray[np.float32]

    def split(self, name: str) -> EpisodeTable:
        """The histories of a split; ValueError for one that is not there."""
        return self.table.select(name)


def build_histories(
    protocol: HistoryProtocol,
    partners: Roster,
    folder: Path | str,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> HistoryBank:
    """Play and write a bank, whole or not at all; a bank of the same protocol and partners is opened as it is.

    Raises:
        ValueError: for a roster without two checkpoints of a familiar source, of which egos are made.
        BankError: if the folder holds another bank.
    """
    folder, told = Path(folder), _identity(protocol, partners)
    if (folder / "bank.json").exists():
        if read_json(folder / "bank.json").get("identity") != told:
            raise BankError(f"{folder} holds a bank of another protocol or of other partners; legal: another folder")
        return HistoryBank(folder)
    egos = _egos(partners)
    plan = [
        (i, source, split, count)
        for i, partner in enumerate(partners)
        for split, whole in (("train", 0 if partner.held_out else protocol.histories),
                             ("held_out" if partner.held_out else "validation", protocol.validation))
        for source, count in zip(egos, _shares(whole, len(egos)), strict=True)
        if count
    ]  # fmt: skip
    parts: list[Histories] = []
    for n, (i, source, _, count) in enumerate(plan):
        early, late = egos[source]
        first = protocol.episodes // 3
        schedule = [early] * first + [late] * (protocol.episodes - first)
        seed = int(np.random.SeedSequence([protocol.seed, n]).generate_state(1)[0])
        parts.append(
            collect(protocol.game, protocol.seat, schedule, partners[i], histories=count, episodes=protocol.episodes,
                    seed=seed)
        )  # fmt: skip
        if progress is not None:
            progress(n + 1, len(plan))
    _write(folder, protocol, partners, plan, parts, told)
    return HistoryBank(folder)


def _write(
    folder: Path, protocol: HistoryProtocol, partners: Roster, plan: list[Any], parts: list[Histories], told: str
) -> None:
    columns = [np.repeat([row[k] for row in plan], [row[3] for row in plan]) for k in range(3)]
    system, source, split = columns
    rollout = np.zeros(len(system), np.int64)
    for i in range(len(partners)):
        rollout[system == i] = np.arange((system == i).sum())
    table = EpisodeTable(
        {
            "episode": np.arange(len(system)),
            "system": system,
            "rollout": rollout,
            "length": np.full(len(system), protocol.episodes * protocol.game.max_steps),
            "split": split,
            "partner": np.array(partners.names)[system],
            "ego": source,
        }
    )
    temporary = folder.with_name(f".{folder.name}-{uuid4().hex[:8]}")
    temporary.mkdir(parents=True)
    try:
        for name in COLUMNS:
            np.save(temporary / f"{name}.npy", np.concatenate([getattr(part, name) for part in parts]))
        table.save(temporary / "histories.npz")
        files = {path.name: {"bytes": path.stat().st_size, "sha256": _digest(path)} for path in temporary.iterdir()}
        described = {
            "format": FORMAT,
            "schema": SCHEMA,
            "protocol": asdict(protocol),
            "partners": partners.names,
            "identity": told,
            "files": files,
            "fingerprint": hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest(),
        }
        write_json(temporary / "bank.json", described)
        os.replace(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _egos(partners: Roster) -> dict[int, tuple[Partner, Partner]]:
    """The first and the last checkpoint of every familiar source."""
    found: dict[int, list[Partner]] = {}
    for partner in partners:
        if partner.family == NEURAL and not partner.held_out:
            found.setdefault(partner.source, []).append(partner)
    ordered = {source: sorted(own, key=lambda p: p.checkpoint) for source, own in sorted(found.items())}
    if not ordered or any(len(own) < 2 for own in ordered.values()):
        raise ValueError("egos are made of two checkpoints of each familiar source; legal: a roster that has them")
    return {source: (own[0], own[-1]) for source, own in ordered.items()}


def _shares(whole: int, parts: int) -> list[int]:
    return [whole // parts + (i < whole % parts) for i in range(parts)]


def _identity(protocol: HistoryProtocol, partners: Roster) -> str:
    told = hashlib.sha256(json.dumps(asdict(protocol), sort_keys=True).encode())
    for partner in partners:
        told.update(repr((partner.name, partner.kind, partner.held_out)).encode())
        for name in sorted(partner.parameters):
            told.update(np.ascontiguousarray(partner.parameters[name]).tobytes())
    return told.hexdigest()


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        whole = hashlib.sha256()
        for block in iter(functools.partial(file.read, 1 << 20), b""):
            whole.update(block)
    return whole.hexdigest()
