"""Rosters of partners: the shipped ones, folders that `sprii overcooked partners train` wrote, and scripted families.

A folder holds `partners.json` and a safetensors file for each neural partner; nothing in it is unpickled.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from sprii_envs.overcooked.game import Game
from sprii_envs.overcooked.partners.partner import NEURAL, Partner
from sprii_envs.properties import unknown_name

MANIFEST = "partners.json"
FORMAT = "sprii-partners"

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
        if isinstance(partner, bool) or not isinstance(partner, int | np.integer) or not 0 <= partner < len(self):
            raise ValueError(f"partner {partner!r} is neither a name nor an id; legal ids: 0 to {len(self) - 1}")
        return int(partner)

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
    folder = Path(folder)
    path = folder / MANIFEST
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path} is missing; legal: a folder that `sprii overcooked partners train` wrote") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    if not isinstance(told, dict) or told.get("format") != FORMAT:
        raise ValueError(f"{path} is not a manifest of partners; legal: format {FORMAT!r}")
    try:
        return Roster(_partner(folder, row) for row in told["partners"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged: {error!r}") from None


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
    if not isinstance(partners, Iterable):
        raise ValueError(f"partners are {partners!r}; legal: a roster, partners, or a folder of them")
    return partners if isinstance(partners, Roster) else Roster(partners)


def row(partner: Partner, **more: Any) -> dict[str, Any]:
    """A partner's line in `partners.json`, its weights apart; `more` are the command, seed and return that made it."""
    told = {name: value for name, value in asdict(partner).items() if name != "parameters"}
    return told | ({"file": f"{partner.name}.safetensors"} if partner.family == NEURAL else {}) | more


def _partner(folder: Path, told: dict[str, Any]) -> Partner:
    weights: dict[str, Any] = {}
    if told["family"] == NEURAL:
        path = folder / told["file"]
        if path.parent != folder:
            raise ValueError(f"{folder / MANIFEST}: file {told['file']!r} must be a plain file name")
        try:
            weights = {name: array.astype(np.float32) for name, array in load_file(path).items()}
        except (OSError, SafetensorError) as error:
            raise ValueError(f"{path} cannot be read: {error}") from None
    options = {name: tuple(v) if isinstance(v, list) else v for name, v in told["options"].items()}
    return Partner(told["name"], told["family"], options, weights, told["source"], told["checkpoint"], told["held_out"])
