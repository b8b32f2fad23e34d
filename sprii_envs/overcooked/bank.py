"""Banks of multi-episode histories, in each of which one partner persists (`app:overcooked-profile`).

folder/
  observations.npy …  arrays (histories, episodes, steps, …), read by mapping
  histories.npz       the EpisodeTable: one row a history, whose system is the partner
  bank.json           configuration, partners, the SHA-256 of every file, and one of all that
"""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sprii_envs.banks.ranges import ranges
from sprii_envs.banks.storage import BankError
from sprii_envs.banks.store import WindowStore
from sprii_envs.fields import check, instance, integer
from sprii_envs.files import check_file, inventory, read_folder, read_json, recover, write_json, written_folder
from sprii_envs.overcooked.collect import Histories
from sprii_envs.overcooked.game import Game
from sprii_envs.overcooked.partners.roster import Roster
from sprii_envs.relations import EpisodeTable
from sprii_envs.relations.arrays import naming

FORMAT, SCHEMA = "sprii-histories", 3
COLUMNS = ("observations", "actions", "partner_actions", "rewards")
MANIFEST, TABLE = "bank.json", "histories.npz"
FILES = (*(f"{name}.npy" for name in COLUMNS), TABLE)
REMEDY = "remove the folder and build the bank anew"


@dataclass(frozen=True)
class HistoryProtocol:
    """What a bank holds.

    A history is `episodes` episodes with one partner of an ego that learns meanwhile: of a run of `iterations` episodes
    in each of several kitchens, every so many are kept, those of a kitchen in one history. Training and validation
    histories are of different runs, so that nothing fitted to the former reads partners of the latter by what one ego
    got used to. Within a split runs differ as partners do.

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


class HistoryBank(WindowStore):
    """An open bank: arrays mapped from disk, and the table of histories.

    Attributes:
        folder: from the root, links resolved.
        protocol: as told at building.
        partners: names in the order of ids.
        identity: of all that the bytes depend on.
        table: one row a history; columns episode, system (the partner's id), rollout (its place among the partner's),
            length (observations), split (`train`, `validation`, `held_out`), partner (name) and run (of the ego).

    Raises:
        BankError: naming the file that is missing or damaged.
    """

    observations: NDArray[np.uint8]
    actions: NDArray[np.uint8]
    partner_actions: NDArray[np.uint8]
    rewards: NDArray[np.float32]

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(os.path.realpath(folder))
        read_folder(self.folder, self._open, BankError)

    def _open(self) -> None:
        told = self._manifest()
        path = self.folder / MANIFEST
        try:
            self.protocol = HistoryProtocol(**{**told["protocol"], "game": Game(**told["protocol"]["game"])})
            self.partners: list[str] = told["partners"]
            self.fingerprint: str = told["fingerprint"]
            self.identity: str = told["identity"]
            self.files: dict[str, Any] = {name: told["files"][name] for name in FILES}
        except (KeyError, TypeError, ValueError) as error:
            raise BankError(f"{path} describes no bank of histories: {error}; {REMEDY}") from None
        self._check(checksums=False)
        try:
            self.table = EpisodeTable.load(self.folder / TABLE)
            for name in COLUMNS:
                path = self.folder / f"{name}.npy"
                with naming(path, "an array"):
                    array = np.load(path, mmap_mode="r", allow_pickle=False)
                if len(array) != len(self.table):
                    raise ValueError(f"{path} holds {len(array)} histories, the table {len(self.table)}")
                setattr(self, name, array)
        except (OSError, ValueError) as error:
            raise BankError(f"{error}; {REMEDY}") from None

    def _manifest(self) -> dict[str, Any]:
        path = self.folder / MANIFEST
        told = read_json(path, BankError, REMEDY)
        if told.get("format") != FORMAT or told.get("schema") != SCHEMA:
            raise BankError(f"{path} is not of a bank of histories of schema {SCHEMA}; {REMEDY}")
        if told.get("fingerprint") != _fingerprint(told):
            raise BankError(f"{path} is damaged or edited: its fingerprint is another; {REMEDY}")
        return told

    def verify(self) -> None:
        """BankError naming a file whose bytes are not those that were written."""
        if self._manifest()["fingerprint"] != self.fingerprint:
            raise BankError(f"{self.folder} holds another bank than when it was opened; open it again")
        self._check(checksums=True)

    def _check(self, checksums: bool) -> None:
        for name, entry in self.files.items():
            check_file(self.folder / name, entry, checksums=checksums, error=BankError, remedy=REMEDY)

    def windows(self, column: str, episodes: ArrayLike, starts: ArrayLike, length: int) -> NDArray[Any]:
        """`length` episodes (n, length, steps, …) from `starts` (n,) on of each history: rows of the bank, or drawn.

        Raises:
            ValueError: for an unknown column, a history or episodes that are not there, and rows of another bank.
        """
        if column not in COLUMNS:
            raise ValueError(f"no column {column!r} in a bank of histories; legal: {', '.join(COLUMNS)}")
        held = np.full(len(self.table), self.protocol.episodes)
        found = ranges(held, 0, self.table.locate(episodes), starts, length, column)
        return getattr(self, column)[found.rows[:, None], found.begins[:, None] + np.arange(found.length)]

    def split(self, name: str) -> EpisodeTable:
        """The histories of a split; ValueError for one that is not there."""
        return self.table.select(name)


def open_histories(folder: Path | str, protocol: HistoryProtocol, partners: Roster, made: str) -> HistoryBank | None:
    """The bank in a folder, or None where there is none.

    Raises:
        BankError: if it is of another protocol, of other partners, made otherwise, or damaged; or if something else
            is in the folder.
    """
    recover(folder)
    if not (Path(folder) / MANIFEST).exists():
        _check_empty(Path(folder))
        return None
    bank = HistoryBank(folder)
    if bank.identity != identity(protocol, partners, made):
        raise BankError(
            f"{folder} holds a bank of another protocol or of other partners, or of egos that learnt otherwise; "
            "legal: another folder"
        )
    return bank


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
        BankError: if the folder holds something else.
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
    if not (folder / MANIFEST).exists():
        _check_empty(folder)
    with written_folder(folder) as temporary:
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
        table.save(temporary / TABLE)
        described = {
            "format": FORMAT,
            "schema": SCHEMA,
            "protocol": asdict(protocol),
            "partners": partners.names,
            "identity": identity(protocol, partners, made),
            "files": inventory(temporary),
        }
        write_json(temporary / MANIFEST, described | {"fingerprint": _fingerprint(described)})
    return HistoryBank(folder)


def _check_empty(folder: Path) -> None:
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise BankError(f"{folder} is no bank of histories, but not empty; legal: a new or empty folder")


def identity(protocol: HistoryProtocol, partners: Roster, made: str) -> str:
    """A hash of all that the bytes of a bank depend on."""
    told = hashlib.sha256(json.dumps([asdict(protocol), made], sort_keys=True).encode())
    for partner in partners:
        told.update(repr((partner.name, partner.family, sorted(partner.options.items()), partner.held_out)).encode())
        for name in sorted(partner.parameters):
            told.update(np.ascontiguousarray(partner.parameters[name]).tobytes())
    return told.hexdigest()


def _fingerprint(described: Mapping[str, Any]) -> str:
    """Of everything in `bank.json` but itself: equal fingerprints mean equal banks."""
    content = {name: value for name, value in described.items() if name != "fingerprint"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
