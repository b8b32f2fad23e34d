"""Every kind of store and table: killed at every call of the system that its writer makes, and each file damaged.

pytest -m slow -s tests/envs/test_faults_of_stores.py     # prints the counts
"""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faults import Kept, contents, damaged_everywhere, killed_everywhere

from sprii_envs.banks import (
    PROTOCOLS,
    Bank,
    RecordedBank,
    Recording,
    StreamSpec,
    build,
    recorded,
)
from sprii_envs.fields import BurgersProtocol, FHNProtocol, build_fields
from sprii_envs.relations import EpisodeTable

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")]

BURGERS = BurgersProtocol(
    cells=40, points=11, frames=3, train=1, validation=1, id_test=1, viscous_ood=1, inviscid_ood=1, duration=0.2
)
FHN = FHNProtocol(side=8, frames=3, duration=0.2, step=0.1, train_cases=(50,), test_cases=(15,))


def bank(name: str, **changed):
    """A small bank of a protocol of the package."""

    def write(path: Path, seed: int) -> None:
        protocol = PROTOCOLS[name]
        splits = {split: 1 + (i == 0) for i, split in enumerate(protocol.systems)}
        small = dict(systems=splits, rollouts=1, steps=6, systems_per_chunk=1) | changed
        build(protocol.replace(seed=seed, **small), path, overwrite=True)

    return Kept(f"bank of {name}", write, lambda path: contents(Bank.open(path, "checksums")), over=True)


def record(path: Path, seed: int) -> None:
    """Streams of several rates, as a robot's: pictures, forces, a slow reading, actions."""
    streams = {
        "camera": StreamSpec((6, 8, 3), "uint8"),
        "force": StreamSpec((3,), "float64", "4"),
        "slow": StreamSpec((), "int32", "1/3"),
        "commands": StreamSpec((2,), per="transition"),
    }
    with Recording(path, streams, {"source": "a test"}, sealed=("test",)) as recording:
        for i in range(recording.done, 3):
            rng, length = np.random.default_rng([seed, i]), 9 + i
            arrays = {
                "camera": rng.integers(0, 256, (length, 6, 8, 3), dtype=np.uint8),
                "force": rng.random((4 * length, 3)),
                "slow": rng.integers(0, 9, (length + 2) // 3, dtype=np.int32),
                "commands": rng.random((length - 1, 2)).astype("f4"),
            }
            recording.append(arrays, episode=f"e{i}", system=f"s{i}", split="test" if i == 2 else "train")


def checked(path: Path) -> dict[str, Any]:
    return contents(RecordedBank(path, verify=True))


def cophy(path: Path, seed: int) -> None:
    pytest.importorskip("mujoco")
    from sprii_envs.cophy.bank import CoPhyProtocol, build_cophy

    build_cophy(CoPhyProtocol("balls", 2, train=1, validation=1, test=1, seed=seed), path)


def histories(path: Path, seed: int) -> None:
    pytest.importorskip("jaxmarl")
    from sprii_envs.overcooked.bank import HistoryProtocol, write_histories
    from sprii_envs.overcooked.collect import Histories
    from sprii_envs.overcooked.game import Game
    from sprii_envs.overcooked.partners.partner import Partner
    from sprii_envs.overcooked.partners.roster import Roster

    game = Game(max_steps=6)
    partners = Roster([Partner(f"every {n}", "signaller", {"every": n}) for n in (2, 3)])

    def played(run):
        rng, shape = np.random.default_rng([seed, run.number]), (2, 5, 6)
        seen = rng.integers(0, 2, (*shape, *game.shape), dtype=np.uint8)
        mine, theirs = rng.integers(0, 6, (2, *shape), dtype=np.uint8)
        return Histories(seen, mine, theirs, rng.choice([0.0, -5.0], shape).astype(np.float32))

    protocol = HistoryProtocol(game=game, seat=1, runs=1, histories=2, episodes=5, kitchens=2, iterations=5, seed=seed)
    write_histories(path, protocol, partners, "here", played)


def read_histories(path: Path) -> dict[str, Any]:
    pytest.importorskip("jaxmarl")
    from sprii_envs.overcooked.bank import HistoryBank

    found = HistoryBank(path)
    found.verify()
    table = {name: found.table[name] for name in found.table.columns}
    return table | {name: np.asarray(getattr(found, name)) for name in ("observations", "actions", "rewards")}


def partners(path: Path, seed: int) -> None:
    pytest.importorskip("jaxmarl")
    from sprii_envs.overcooked.game import Game
    from sprii_envs.overcooked.partners.roster import shipped, write_roster

    one, other, *_, last = shipped()
    kept = [replace(one, parameters=(one, other)[seed].parameters), replace(other, held_out=bool(seed)), last]
    write_roster(path, Game(), kept, {})


def read_partners(path: Path) -> dict[str, Any]:
    pytest.importorskip("jaxmarl")
    from sprii_envs.overcooked.partners.roster import game_of, load_roster

    return {"game": repr(game_of(path))} | {each.name: vars(each) for each in load_roster(path)}


def table(path: Path, seed: int) -> None:
    EpisodeTable({"episode": [4, 2], "system": ["a", "b"], "length": [3, 5], "mass": [0.5, 1.0 + seed]}).save(path)


def read_table(path: Path) -> dict[str, Any]:
    found = EpisodeTable.load(path)
    return {name: found[name] for name in found.columns}


EVERY = [
    bank("d-clean", frames=8),
    bank("poke-original", frames=8),
    bank("swimmer"),
    Kept("recorded streams", record, checked),
    Kept("burgers", lambda path, seed: build_fields(replace(BURGERS, seed=seed), path), checked),
    Kept("fhn", lambda path, seed: build_fields(replace(FHN, seed=seed), path), checked),
    Kept("cophy", cophy, checked),
    Kept("overcooked histories", histories, read_histories),
    Kept("overcooked partners", partners, read_partners, over=True),
    Kept("table of episodes", table, read_table, over=True),
]


@pytest.fixture(autouse=True)
def _synced(monkeypatch):
    monkeypatch.setattr(recorded, "SYNC_SECONDS", 0.0)  # a recording is made safe after every episode


@pytest.mark.parametrize("kept", EVERY, ids=str)
def test_killed_at_every_call_of_the_system(kept: Kept, tmp_path: Path) -> None:
    for over in (False, True)[: 1 + kept.over]:
        counts = killed_everywhere(kept, tmp_path / str(over), over=over)
        print(f"\n{kept}, {'over another' if over else 'fresh'}: {dict(counts)}")
        assert counts["kills"] > 8


@pytest.mark.parametrize("kept", EVERY, ids=str)
def test_damage_of_every_file(kept: Kept, tmp_path: Path) -> None:
    counts = damaged_everywhere(kept, tmp_path)
    print(f"\n{kept}: {dict(counts)}")
    assert counts["refused"] > counts["read"]
