"""Rosters of partners: the shipped ones, folders that `sprii overcooked partners train` wrote, and scripted families.

A folder holds `partners.json` and a safetensors file for each neural partner, whose size and checksum the former
keeps; nothing in it is unpickled.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from sprii_envs.arguments import integer
from sprii_envs.files import absolute, check_file, read_folder, read_json, write_json, write_whole
from sprii_envs.overcooked.game import Game
from sprii_envs.overcooked.partners.partner import NEURAL, Partner
from sprii_envs.properties import unknown_name

MANIFEST = "partners.json"
FORMAT = "sprii-partners"
REMEDY = "train the partners again, or copy the folder again"

ANYWHERE = (Partner("still", "still"), Partner("walker", "walker"))
"""Scripted partners of every layout."""

GROUPS = ("familiar", "held_out", "all")
"""Named parts of a roster."""


class Roster(Sequence[Partner]):
    """Partners in a fixed order; a partner's id is its place.

    Raises:
        ValueError: for two partners of one name, or none.
    """

    def __init__(self, partners: Iterable[Partner]) -> None:
        self.partners = tuple(partners)
        for each in self.partners:
            if not isinstance(each, Partner):
                raise ValueError(f"a roster holds {each!r}; legal: partners, such as Partner('still', 'still')")
        names = [partner.name for partner in self.partners]
        if not names:
            raise ValueError("a roster needs at least one partner")
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"partners' names must be unique; twice: {', '.join(twice)}")

    def __len__(self) -> int:
        return len(self.partners)

    def __getitem__(self, place: Any) -> Any:
        return self.partners[place]

    def __repr__(self) -> str:
        return f"Roster({', '.join(self.names)})"

    @property
    def names(self) -> list[str]:
        """In the order of ids."""
        return [partner.name for partner in self.partners]

    def id(self, partner: str | int) -> int:
        """The id of a partner by name or id; ValueError naming what is legal."""
        if isinstance(partner, str):
            if partner not in self.names:
                raise unknown_name("partner", partner, self.names)
            return self.names.index(partner)
        return integer("partner", partner, most=len(self) - 1)

    def group(self, name: str) -> list[int]:
        """Ids of the familiar partners, of the held-out ones, or of all."""
        if name not in GROUPS:
            raise unknown_name("group of partners", name, GROUPS)
        return [i for i, p in enumerate(self.partners) if name == "all" or p.held_out == (name == "held_out")]


def load_roster(folder: Path | str) -> Roster:
    """The partners of a folder.

    Raises:
        ValueError: naming the file, for a missing or damaged one.
    """
    folder = absolute(folder)
    return read_folder(
        folder, lambda: Roster(_partner(folder, row) for row in manifest(folder)["partners"]), ValueError
    )


def manifest(folder: Path | str) -> dict[str, Any]:
    """What `partners.json` says: format, game, and a row for each partner; ValueError naming a damaged file."""
    path = absolute(folder) / MANIFEST
    if not path.exists():
        raise ValueError(f"{path} is missing; legal: a folder that `sprii overcooked partners train` wrote")
    described = read_json(path, ValueError, REMEDY)
    if described.get("format") != FORMAT:
        raise ValueError(f"{path} is not a manifest of partners; legal: format {FORMAT!r}")
    rows = described.get("partners")
    if not isinstance(rows, list) or not all(isinstance(each, dict) for each in rows):
        raise ValueError(f"{path} is damaged: it has no rows of partners; {REMEDY}")
    if described.get("sha256") not in (None, _digest(described)):  # None: of before that was kept
        raise ValueError(f"{path} is damaged or edited: its checksum is not of its contents; {REMEDY}")
    return described


def _digest(described: Mapping[str, Any]) -> str:
    told = {name: value for name, value in described.items() if name != "sha256"}
    return sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def game_of(folder: Path | str) -> Game:
    """The kitchen that a folder's partners were trained in; ValueError naming the file if it does not say."""
    try:
        return Game(**manifest(folder)["game"])
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"{Path(folder) / MANIFEST} is damaged: its game is missing or wrong: {error}; {REMEDY}"
        ) from None


def shipped_folder() -> Path:
    """Where the partners lie that come with the package."""
    return Path(str(resources.files("sprii_envs") / "assets" / "overcooked"))


def shipped(game: Game | None = None) -> Roster:
    """The partners that come with the package; for another layout or view than theirs, the scripted ones of any."""
    roster = load_roster(shipped_folder())
    if game is not None and (game.layout, game.view) != (Game().layout, Game().view):
        return Roster(ANYWHERE)
    return roster


def roster_of(partners: Iterable[Partner] | str | Path | None, game: Game | None = None) -> Roster:
    """Partners as a roster, one from its folder, or the shipped one of a kitchen; ValueError for anything else."""
    if partners is None:
        return shipped(game)
    if isinstance(partners, str | Path):
        return load_roster(partners)
    try:
        each = iter(partners)
    except TypeError:
        raise ValueError(f"partners are {partners!r}; legal: a roster, partners, or a folder of them") from None
    return partners if isinstance(partners, Roster) else Roster(each)


def write_roster(folder: Path | str, game: Game, partners: Iterable[Partner], more: Mapping[str, Any]) -> None:
    """Write partners for `load_roster`; the manifest comes last, so that a stopped write leaves no roster or the old.

    Args:
        more: name → what else its row says: command, seed, return.
    """
    partners = list(partners)
    for partner in partners:
        if partner.family == NEURAL:
            write_whole(Path(folder) / _file(partner), weights_of(partner))
    rows = [row(partner, **more.get(partner.name, {})) for partner in partners]
    described = {"format": FORMAT, "game": asdict(game), "partners": rows}
    write_json(Path(folder) / MANIFEST, described | {"sha256": _digest(described)})


def row(partner: Partner, **more: Any) -> dict[str, Any]:
    """A partner's line in `partners.json`, its weights as name, size and checksum of their file; `more` as it is."""
    described = {name: value for name, value in asdict(partner).items() if name != "parameters"}
    if partner.family == NEURAL:
        data = weights_of(partner)
        described |= {"file": _file(partner), "bytes": len(data), "sha256": sha256(data).hexdigest()}
    return described | more


def _file(partner: Partner) -> str:
    """Whatever is in its name, a slash say, it is a name in the folder."""
    return f"{quote(partner.name, safe='')}.safetensors"


def weights_of(partner: Partner) -> bytes:
    """The safetensors file of a neural partner."""
    return save(dict(partner.parameters))


def _partner(folder: Path, described: Mapping[str, Any]) -> Partner:
    try:
        weights = _weights(folder, described) if described["family"] == NEURAL else {}
        options = {name: tuple(v) if isinstance(v, list) else v for name, v in described["options"].items()}
        names = ("source", "checkpoint", "held_out")
        return Partner(described["name"], described["family"], options, weights, *(described[name] for name in names))
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"{folder / MANIFEST} is damaged: {error!r}; {REMEDY}") from None


def _weights(folder: Path, described: Mapping[str, Any]) -> dict[str, NDArray[np.float32]]:
    name = described["file"]
    if not isinstance(name, str) or Path(name).name != name:
        raise ValueError(f"{folder / MANIFEST}: file {name!r} must be a plain file name")
    check_file(folder / name, described, error=ValueError, remedy=REMEDY)
    try:
        return {name: array.astype(np.float32) for name, array in load_file(folder / name).items()}
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{folder / name} cannot be read: {error}; {REMEDY}") from None
