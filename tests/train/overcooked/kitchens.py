"""A small kitchen, its partners and a bank of histories."""

from pathlib import Path

import numpy as np

from sprii_envs.overcooked.bank import HistoryBank, HistoryProtocol, Run, write_histories
from sprii_envs.overcooked.collect import Histories
from sprii_envs.overcooked.game import ACTIONS, Game
from sprii_envs.overcooked.partners.network import shapes
from sprii_envs.overcooked.partners.partner import Partner
from sprii_envs.overcooked.partners.roster import Roster
from sprii_train.overcooked.learning import made_with

GAME = Game(max_steps=10)


def neural(name: str, source: int, checkpoint: int, *, held_out: bool = False) -> Partner:
    """A random network of 8 units."""
    rng = np.random.default_rng([source, checkpoint])
    made = {k: rng.normal(0.0, 0.2, s).astype(np.float32) for k, s in shapes(1000, 8, len(ACTIONS)).items()}
    return Partner(name, "ippo", {}, made, source, checkpoint, held_out)


ROSTER = Roster(
    [
        neural("a-0", 0, 1),
        neural("a-1", 0, 2),
        Partner("often", "signaller", {"every": 3}),
        neural("b-0", 1, 1, held_out=True),
        neural("b-1", 1, 2, held_out=True),
    ]
)


PROTOCOL = HistoryProtocol(game=GAME, seat=1, runs=2, histories=3, episodes=8, kitchens=4, iterations=8)


def bank(folder: Path) -> HistoryBank:
    """Three familiar partners with 6 + 3 histories each, two held-out ones with 3, of random play."""
    return write_histories(folder / "bank", PROTOCOL, ROSTER, made_with(PROTOCOL), _random)


def _random(run: Run) -> Histories:
    rng = np.random.default_rng(run.number)
    shape = (PROTOCOL.histories, PROTOCOL.episodes, GAME.max_steps)
    mine, theirs = rng.integers(0, 6, (2, *shape), dtype=np.uint8)
    seen = rng.integers(0, 2, (*shape, *GAME.shape), dtype=np.uint8)
    return Histories(seen, mine, theirs, rng.choice([0.0, -5.0], shape).astype(np.float32))
