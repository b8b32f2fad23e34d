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
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from sprii_envs.banks.storage import BankError
from sprii_envs.fields import check, instance, integer
from sprii_envs.files import read_json, write_json
from sprii_envs.overcooked.collect import Histories
from sprii_envs.overcooked.game import Game
from sprii_envs.overcooked.partners.roster import Roster
from sprii_envs.relations import EpisodeTable

FORMAT, SCHEMA = "sprii-histories", 2
COLUMNS = ("observations", "actions", "partner_actions", "rewards")


@dataclass(frozen=True)
class HistoryProtocol:
    """What a bank holds.

    A history is `episodes` episodes with one partner of an ego that learns meanwhile: of a run of `iterations` episodes
    in each of several kitchens, every so many are kept, those of a kitchen in one history. Training and validation
    histories are of different runs, so that nothing can tell partners apart by what one ego got used to.

    Attributes:
        seat: of the ego.
        runs, validation: of each familiar partner, for training and for validation; `validation` of each held-out one.
        histories: kept of a run.
        kitchens, iterations: of a run.
        seed: of everything drawn.
    """

    game: Game = field(default_factory=Game)
    seat: int = 0
    runs: int = 2
    validation: int = 1
    histories: int = 8
    episodes: int = 15
    kitchens: int = 16
    iterations: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        """ValueError naming the field and what is legal."""
        check(self, instance, "game", of=Game)
        check(self, integer, "seat", most=1)
        check(self, integer, "histories", least=2)
        check(self, integer, "episodes", least=5)
        least = {"runs": 1, "validation": 1, "seed": 0, "kitchens": self.histories, "iterations": self.episodes}
        for name, lowest in least.items():
            check(self, integer, name, least=lowest)

    def kept(self) -> list[int]:
        """The iterations whose episodes a history holds, from the first to the last."""
        return np.linspace(0, self.iterations - 1, self.episodes).round().astype(int).tolist()


class Run(NamedTuple):
    """The histories of one learning run.

    Attributes:
        partner: id.
        split: `train`, `validation` or `held_out`.
        number: tells runs apart, and seeds them.
    """

    partner: int
    split: str
    number: int


def planned(protocol: HistoryProtocol, partners: Roster) -> list[Run]:
    """The runs of a bank, in the order of its rows."""
    found: list[Run] = []
    for i, partner in enumerate(partners):
        splits = ["held_out"] * protocol.validation
        if not partner.held_out:
            splits = ["train"] * protocol.runs + ["validation"] * protocol.validation
        found += [Run(i, split, len(found) + n) for n, split in enumerate(splits)]
    return found


class HistoryBank:
    """An open bank: arrays mapped from disk, and the table of histories.

    Attributes:
        protocol: as told at building.
        partners: names in the order of ids, with their files' identity.
        table: one row a history; columns episode, system (the partner's id), rollout (its place among the partner's),
            length (observations), split (`train`, `validation`, `held_out`), partner (name) and run (of the ego).
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        told = read_json(self.folder / "bank.json", BankError)
        if told.get("format") != FORMAT or told.get("schema") != SCHEMA:
            raise BankError(f"{self.folder / 'bank.json'}: not a bank of histories of schema {SCHEMA}")
        self.protocol = HistoryProtocol(**{**told["protocol"], "game": Game(**told["protocol"]["game"])})
        self.partners: list[str] = told["partners"]
        self.fingerprint: str = told["fingerprint"]
        try:
            self.table = EpisodeTable.load(self.folder / "histories.npz")
        except (OSError, ValueError) as error:
            raise BankError(f"{self.folder / 'histories.npz'} cannot be read: {error}") from None
        self.files: dict[str, Any] = told["files"]
        for name in COLUMNS:
            path = self.folder / f"{name}.npy"
            try:
                array = np.load(path, mmap_mode="r", allow_pickle=False)
            except (OSError, ValueError) as error:
                raise BankError(f"{path} cannot be read: {error}") from None
            if path.stat().st_size != self.files[path.name]["bytes"] or len(array) != len(self.table):
                raise BankError(f"{path} is damaged: it is not of the size that bank.json tells")
            setattr(self, name, array)

    observations: NDArray[np.uint8]
    actions: NDArray[np.uint8]
    partner_actions: NDArray[np.uint8]
    rewards: NDArray[np.float32]

    def verify(self) -> None:
        """BankError naming a file whose bytes are not those that were written."""
        if self.fingerprint != _fingerprint(self.files):
            raise BankError(f"{self.folder / 'bank.json'} is damaged: its checksums are not those it was written with")
        for name, told in self.files.items():
            if _digest(self.folder / name) != told["sha256"]:
                raise BankError(f"{self.folder / name} is damaged: its checksum is another; build the bank anew")

    def split(self, name: str) -> EpisodeTable:
        """The histories of a split; ValueError for one that is not there."""
        return self.table.select(name)


def open_histories(folder: Path | str, protocol: HistoryProtocol, partners: Roster, made: str) -> HistoryBank | None:
    """The bank in a folder, or None where there is none.

    Raises:
        BankError: if it is of another protocol, of other partners, or made otherwise.
    """
    if not (Path(folder) / "bank.json").exists():
        return None
    if read_json(Path(folder) / "bank.json", BankError).get("identity") != identity(protocol, partners, made):
        raise BankError(f"{folder} holds a bank of another protocol or of other partners; legal: another folder")
    return HistoryBank(folder)


def write_histories(
    folder: Path | str,
    protocol: HistoryProtocol,
    partners: Roster,
    made: str,
    read: Callable[[Run], Histories],
) -> HistoryBank:
    """Write a bank, whole or not at all.

    Args:
        made: what else the histories depend on, the ego's learning say.
        read: gives a run's histories, (protocol.histories, episodes, …), one run after another.

    Raises:
        ValueError: for a run of another shape.
    """
    folder, plan = Path(folder), planned(protocol, partners)
    each = (protocol.histories, protocol.episodes, protocol.game.max_steps)
    system, split, number = (np.repeat([run[k] for run in plan], protocol.histories) for k in range(3))
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
            "run": number,
        }
    )
    temporary = folder.with_name(f".{folder.name}-{uuid4().hex[:8]}")
    temporary.mkdir(parents=True)
    try:
        arrays: dict[str, Any] = {}
        for place, run in enumerate(plan):
            found = read(run)
            for name in COLUMNS:
                part = getattr(found, name)
                if part.shape[:3] != each:
                    raise ValueError(f"{name} of run {run.number} has shape {part.shape}, expected {each} and more")
                if place == 0:
                    whole = (len(plan) * each[0], *part.shape[1:])
                    arrays[name] = np.lib.format.open_memmap(
                        temporary / f"{name}.npy", mode="w+", dtype=part.dtype, shape=whole
                    )
                arrays[name][place * each[0] : (place + 1) * each[0]] = part
        for array in arrays.values():
            array.flush()
        table.save(temporary / "histories.npz")
        files = {path.name: {"bytes": path.stat().st_size, "sha256": _digest(path)} for path in temporary.iterdir()}
        described = {
            "format": FORMAT,
            "schema": SCHEMA,
            "protocol": asdict(protocol),
            "partners": partners.names,
            "identity": identity(protocol, partners, made),
            "files": files,
            "fingerprint": _fingerprint(files),
        }
        write_json(temporary / "bank.json", described)
        os.replace(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return HistoryBank(folder)


def identity(protocol: HistoryProtocol, partners: Roster, made: str) -> str:
    """A hash of all that the bytes of a bank depend on."""
    told = hashlib.sha256(json.dumps([asdict(protocol), made], sort_keys=True).encode())
    for partner in partners:
        told.update(repr((partner.name, partner.family, sorted(partner.options.items()), partner.held_out)).encode())
        for name in sorted(partner.parameters):
            told.update(np.ascontiguousarray(partner.parameters[name]).tobytes())
    return told.hexdigest()


def _fingerprint(files: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        whole = hashlib.sha256()
        for block in iter(functools.partial(file.read, 1 << 20), b""):
            whole.update(block)
    return whole.hexdigest()
