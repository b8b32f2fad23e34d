"""Learning histories: an ego that gets better with its partner, what is kept of a run, and exact resume."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jaxmarl")

from kitchens import GAME, ROSTER
from kitchens import PROTOCOL as LONG

from sprii_envs.banks import StoreError
from sprii_envs.overcooked.bank import HistoryProtocol, identity
from sprii_envs.overcooked.game import ACTIONS, Game
from sprii_envs.overcooked.partners.partner import Partner
from sprii_envs.overcooked.partners.roster import Roster
from sprii_envs.relations.arrays import write_npz
from sprii_train.overcooked import learning
from sprii_train.overcooked.ippo import IPPO
from sprii_train.overcooked.learning import build_histories, learn_with, runs_at_once

PROTOCOL = replace(LONG, runs=1)
PAIR = Roster([ROSTER[0], ROSTER[3]])
"""One familiar partner and a held-out one."""


@pytest.mark.slow
def test_runs_keep_what_they_are_asked_for():
    config = IPPO(kitchens=4)
    arguments = {"iterations": 4, "seed": 3}
    whole = learn_with(GAME, config, 1, ROSTER[2], kept=range(4), **arguments)
    part = learn_with(GAME, config, 1, ROSTER[2], kept=[0, 3], **arguments)
    assert whole.observations is not None
    assert whole.observations.shape == (4, 4, 10, *GAME.shape)
    for name in ("observations", "actions", "partner_actions", "rewards"):
        np.testing.assert_array_equal(getattr(part, name), getattr(whole, name)[:, [0, 3]])
    presses = (whole.partner_actions == ACTIONS.index("interact")).sum(-1)
    assert (presses == 4).all()
    first = learn_with(GAME, config, 1, ROSTER[2], kept=range(4), histories=3, **arguments)
    for name in ("observations", "actions", "partner_actions", "rewards"):
        np.testing.assert_array_equal(getattr(first, name), getattr(whole, name)[:3])
    assert (whole.rewards.sum(-1) == -20.0).all()  # four presses of 5, and ten steps are too few for a dish
    other = learn_with(GAME, config, 1, ROSTER[2], kept=[0], iterations=4, seed=4)
    assert not np.array_equal(other.actions[:, 0], whole.actions[:, 0])


def test_runs_that_are_learnt_at_once_hold_less_than_a_gigabyte():
    """Sizes of `quick` take every core, those of `paper` four of any machine, and one run is always learnt."""
    paper = HistoryProtocol(runs=8, validation=2, histories=16, episodes=146, iterations=146)
    assert [runs_at_once(HistoryProtocol(), cores) for cores in (1, 16, 64)] == [1, 16, 64]
    assert [runs_at_once(paper, cores) for cores in (1, 2, 16, 64)] == [1, 2, 4, 4]
    assert runs_at_once(replace(paper, episodes=1_000, iterations=1_000), 16) == 1


def test_a_stopped_bank_goes_on_and_ends_the_same(tmp_path: Path):
    whole = build_histories(PROTOCOL, PAIR, tmp_path / "whole", workers=1)
    done: list[int] = []

    def stop(finished: int, of: int) -> None:
        done.append(of)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_histories(PROTOCOL, PAIR, tmp_path / "bank", progress=stop, workers=1)
    assert done == [3]
    assert not (tmp_path / "bank").exists()
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("run-*.npz")}
    assert kept
    learnt: list[int] = []

    def learn(finished: int, of: int) -> None:
        learnt.append(finished)

    resumed = build_histories(PROTOCOL, PAIR, tmp_path / "bank", progress=learn, workers=2)
    assert learnt == [*range(len(kept) + 1, 4)]
    assert resumed.fingerprint == whole.fingerprint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bank", "whole"]
    assert build_histories(PROTOCOL, PAIR, tmp_path / "bank", progress=learn).fingerprint == whole.fingerprint
    assert len(learnt) == 3 - len(kept)
    with pytest.raises(StoreError, match="of other partners"):
        build_histories(PROTOCOL, Roster(PAIR[:1]), tmp_path / "bank")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"[" * 200_000, None])
def test_a_damaged_part_is_told_of_before_anything_is_learnt(content: bytes | None, tmp_path: Path):
    place = tmp_path / f".bank-{identity(PROTOCOL, PAIR, learning.made_with(PROTOCOL))[:12]}"
    place.mkdir()
    part = place / "run-1.npz"
    shape = (PROTOCOL.histories, PROTOCOL.episodes, GAME.max_steps)
    arrays = {name: np.zeros(shape, np.uint8) for name in ("actions", "partner_actions", "rewards")}
    write_npz(part, learning.FORMAT, arrays | {"observations": np.zeros((*shape, *GAME.shape), np.uint8)})
    if content is not None:  # otherwise the rewards are of another type
        part.write_bytes(content)
    with pytest.raises(StoreError, match=r"run-1\.npz .*remove it to learn that run again"):
        build_histories(PROTOCOL, PAIR, tmp_path / "bank", workers=1)
    assert list(place.iterdir()) == [part]


@pytest.mark.parametrize(
    ("changes", "workers", "message"),
    [({"kitchens": 6}, None, "kitchens is 6; legal: a multiple of 4"), ({}, 0, "workers is 0; legal")],
)
def test_illegal_builds(changes: dict, workers: int | None, message: str, tmp_path: Path):
    with pytest.raises(ValueError, match=message):
        build_histories(replace(PROTOCOL, **changes), list(PAIR), tmp_path / "bank", workers=workers)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_an_ego_learns_to_tell_a_cook_what_it_needs_to_know():
    """The best reply to a cook that waits is one press, which earns 35; that to one that heeds nothing is none."""
    config, game = learning.EGO, Game()
    told = learn_with(game, config, 0, Partner("waits", "cook"), iterations=150, kept=[0, 149], seed=0)
    begun, ended = told.returns.mean(0)
    assert begun < 15.0
    assert ended > 30.0
    deaf = learn_with(
        game, config, 0, Partner("first", "cook", {"untold": 0, "heeds": False}), iterations=150, kept=[0, 149], seed=0
    )
    presses = (deaf.actions == ACTIONS.index("interact")).sum(-1).mean(0)
    assert presses[1] < 0.2 * presses[0]
