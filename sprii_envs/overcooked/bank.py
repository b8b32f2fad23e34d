"""Banks of multi-episode histories, in each of which one partner persists (`app:overcooked-profile`)."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sprii_envs.arguments import check, instance, integer
from sprii_envs.banks import RecordedBank, Recording, StoreError, StreamSpec
from sprii_envs.banks.recorded import MANIFEST
from sprii_envs.banks.store import ranges_in
from sprii_envs.files import StrPath, absolute, revision
from sprii_envs.overcooked.collect import Histories
from sprii_envs.overcooked.game import Game
from sprii_envs.overcooked.partners.roster import Roster

COLUMNS = ("observations", "actions", "partner_actions", "rewards")
_OBSERVATIONS = "observations.u8"


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


class HistoryBank(RecordedBank):
    """A recorded bank whose episodes are histories: an entry of a column, and a step of the clock, is an episode.

    Attributes:
        protocol: as told at building.
        partners: names in the order of ids.
        identity: of all that the bytes depend on.
        table: one row a history; columns episode, system (the partner's id), rollout (its place among the partner's),
            length (episodes), split (`train`, `validation`, `held_out`), partner (name) and run (of the ego).
    """

    FORMAT, SCHEMA, REMEDY = "sprii-histories", 4, "remove the folder and build the bank anew"

    def __init__(self, path: StrPath, *, verify: bool = False) -> None:
        """Open the bank in a folder; StoreError naming the file that is missing, damaged or of another format."""
        super().__init__(path, verify=verify)

    def _open(self, verify: bool) -> None:
        super()._open(verify)
        self._observed = revision(self.path / _OBSERVATIONS)
        try:
            told = self.origin["protocol"]
            self.protocol = HistoryProtocol(**{**told, "game": Game(**told["game"])})
            self.partners: list[str] = self.origin["partners"]
            self.identity: str = self.origin["identity"]
        except (KeyError, TypeError, ValueError) as error:
            raise StoreError(f"{self.path / MANIFEST} describes no bank of histories: {error}; {self.REMEDY}") from None

    @property
    def folder(self) -> Path:
        """Its folder, absolute."""
        return self.path

    @property
    def observations(self) -> NDArray[np.uint8]:
        """(histories, episodes, steps, H, W, C)."""
        return self._whole("observations")

    @property
    def actions(self) -> NDArray[np.uint8]:
        """(histories, episodes, steps)."""
        return self._whole("actions")

    @property
    def partner_actions(self) -> NDArray[np.uint8]:
        """(histories, episodes, steps)."""
        return self._whole("partner_actions")

    @property
    def rewards(self) -> NDArray[np.float32]:
        """(histories, episodes, steps)."""
        return self._whole("rewards")

    def windows(self, column: str, episodes: ArrayLike, starts: ArrayLike, length: int) -> NDArray[Any]:
        """As of any store; observations are read from their file, so that memory holds these windows and no more."""
        if column != "observations":
            return super().windows(column, episodes, starts, length)
        values = self.stream(column).values
        offsets = self._offsets[column]
        where = ranges_in(self.name, self.table, self._order, column, 0, episodes, starts, length)
        found = np.empty((len(where.rows), length, *values.shape[1:]), values.dtype)
        with self._observations_file() as file:
            for window, entry in zip(found, offsets[where.rows] + where.begins, strict=True):
                file.seek(int(entry) * values[0].nbytes)
                if file.readinto(window.reshape(-1).data) != window.nbytes:
                    raise StoreError(f"{file.name} is damaged: shorter than its manifest says; {self.REMEDY}")
        return found

    @contextmanager
    def _observations_file(self) -> Iterator[FileIO]:
        """That of the bank that was opened; StoreError if another has taken its place."""
        place = self.path / _OBSERVATIONS
        try:
            with open(place, "rb", buffering=0) as file:
                if revision(file.fileno()) != self._observed:
                    raise StoreError(f"{self.path} holds another bank than when it was opened; open it again")
                yield file
        except OSError as error:
            raise StoreError(f"{place} cannot be read: {error.strerror}; {self.REMEDY}") from error

    def _whole(self, name: str) -> NDArray[Any]:
        entries = self.stream(name).values
        return entries.reshape(len(self.table), self.protocol.episodes, *entries.shape[1:])


def open_histories(folder: StrPath, protocol: HistoryProtocol, partners: Roster, made: str) -> HistoryBank | None:
    """The bank in a folder, or None where there is none.

    Raises:
        StoreError: if it is of another protocol, of other partners, made otherwise, or damaged; or if something else
            is in the folder.
    """
    place = absolute(folder)
    if not (place / MANIFEST).exists():
        if place.exists() and not (place.is_dir() and not any(place.iterdir())):
            raise StoreError(f"{place} is no bank of histories, but not empty; legal: a new or empty folder")
        return None
    bank = HistoryBank(folder)
    if bank.identity != identity(protocol, partners, made):
        raise StoreError(
            f"{folder} holds a bank of another protocol or of other partners, or of egos that learnt otherwise; "
            "legal: another folder"
        )
    return bank


def write_histories(
    folder: StrPath,
    protocol: HistoryProtocol,
    partners: Roster,
    made: str,
    read: Callable[[Run], Histories],
) -> HistoryBank:
    """Write a bank; after a kill, the same call goes on behind the last history that was written.

    Args:
        made: what else the histories depend on, the ego's learning say.
        read: gives a run's histories, (protocol.histories, episodes, …), one run after another.

    Raises:
        StoreError: for a run of another shape, or if the folder holds something or the writing of another bank.
    """
    count, steps = protocol.histories, protocol.game.max_steps
    streams = {
        "observations": StreamSpec((steps, *protocol.game.shape), "uint8"),
        "actions": StreamSpec((steps,), "uint8"),
        "partner_actions": StreamSpec((steps,), "uint8"),
        "rewards": StreamSpec((steps,)),
    }
    origin = {
        "protocol": asdict(protocol),
        "partners": partners.names,
        "identity": identity(protocol, partners, made),
    }
    with Recording(folder, streams, origin, bank=HistoryBank) as recording:
        plan = planned(protocol, partners)
        while recording.done < count * len(plan):
            run, first = plan[recording.done // count], recording.done % count
            found = read(run)
            if len(found.actions) != count:
                raise StoreError(f"run {run.number} has {len(found.actions)} histories, expected {count}")
            for i in range(first, count):
                recording.append(
                    {name: getattr(found, name)[i] for name in COLUMNS}, length=protocol.episodes, system=run.partner,
                    split=run.split, partner=partners[run.partner].name, run=run.number,
                )  # fmt: skip
    return HistoryBank(folder)


def identity(protocol: HistoryProtocol, partners: Roster, made: str) -> str:
    """A hash of all that the bytes of a bank depend on."""
    told = hashlib.sha256(json.dumps([asdict(protocol), made], sort_keys=True).encode())
    for partner in partners:
        told.update(repr((partner.name, partner.family, sorted(partner.options.items()), partner.held_out)).encode())
        for name in sorted(partner.parameters):
            told.update(np.ascontiguousarray(partner.parameters[name]).tobytes())
    return told.hexdigest()
