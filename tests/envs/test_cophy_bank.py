"""Banks of CoPhy's pairs: published counts, contents against the simulator, the same bytes however they are built."""

import subprocess
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("mujoco")

from sprii_envs.banks import ArrayStore, StoreError, open_store
from sprii_envs.cophy import bank as cophy
from sprii_envs.cophy.bank import PROTOCOLS, CoPhyProtocol, build_cophy
from sprii_envs.cophy.objects import ABSENT, COLOURS, CUBE, LEVELS
from sprii_envs.cophy.outcomes import outcomes
from sprii_envs.cophy.pictures import boxes, pictures
from sprii_envs.cophy.protocols import COUNTS, kinds_of
from sprii_envs.cophy.simulation import simulate
from sprii_envs.relations import EpisodeTable

BALLS = CoPhyProtocol("balls", 3, train=3, validation=2, test=1, seed=4)
COLLISION = CoPhyProtocol("collision", 2, "moving_sphere", 4, 2, 4)
TOWER = CoPhyProtocol("blocktower", 3, "generalization", 5, 1, 2, seed=10)
PROTOCOL = {"balls": BALLS, "collision": COLLISION, "blocktower": TOWER}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Scene → bank, and what was told of its progress."""
    root, seen = tmp_path_factory.mktemp("cophy"), {scene: [] for scene in PROTOCOL}

    def told(scene):
        return lambda *counts: seen[scene].append(counts)

    return {s: (build_cophy(p, root / s, progress=told(s)), seen[s]) for s, p in PROTOCOL.items()}


def test_the_published_counts():
    counted = {
        (p.scene, p.objects, p.variant): tuple(Counter(each["split"] for each in p.plan()).values())
        for p in PROTOCOLS.values()
    }
    assert counted == dict(COUNTS)
    assert len(PROTOCOLS) == 5 + 3 + 4
    validation = [PROTOCOLS[f"cophy-{name}"].validation for name in ("balls4", "collision", "blocktower3")]
    assert validation == [2000, 4000, 8088]  # as the paper evaluates
    assert {PROTOCOLS[f"cophy-{name}"].length for name in ("balls4", "blocktower3")} == {27 + 3}
    assert PROTOCOLS["cophy-collision"].length == 12 + 3


@pytest.mark.parametrize("scene", PROTOCOL)
def test_a_bank_holds_what_is_simulated_row_by_row(built, scene):
    protocol, (bank, seen) = PROTOCOL[scene], built[scene]
    total = protocol.train + protocol.validation + protocol.test
    assert seen == [(done, total) for done in range(total + 1)]
    assert [len(bank.split(s)) for s in bank.splits] == [protocol.train, protocol.validation, protocol.test]
    assert bank.columns == ("ab_states", "ab_boxes", "cd_states", "cd_boxes")
    slots = cophy.slots(bank, range(total))
    for row in (total - 1, 0):
        held_out = protocol.variant != "normal" and bank.table["split"][row] == "test"
        alone = simulate(scene, protocol.objects, protocol.variant, [row], seed=protocol.seed, held_out=held_out)
        found = cophy.pairs(bank, [row])
        for name in alone._fields:
            np.testing.assert_array_equal(getattr(found, name), getattr(alone, name), err_msg=name)
        np.testing.assert_array_equal(slots.kind[row], alone.kinds[0])
        np.testing.assert_array_equal(slots.gravity[row], alone.gravity[0])
        kinds = np.where(alone.cd[0].any(axis=-1), alone.kinds[0], -1)
        np.testing.assert_array_equal(cophy.boxes(bank, [row], "cd")[0], boxes(scene, alone.cd[0], kinds))
    there = slots.kind >= 0
    assert (there.sum(1) == protocol.objects).all()
    assert set(slots.mass[there]) == set(LEVELS[scene]["mass"])
    assert not slots.mass[~there].any()
    persistent = np.unique(np.concatenate(slots, axis=1), axis=0)
    assert len(set(bank.table["system"])) == len(persistent)


def test_a_variant_holds_out_its_test_split(built):
    bank = built["collision"][0]
    kind, start = cophy.slots(bank, range(10)).kind, cophy.states(bank, range(10), "ab", [0])[:, 0]
    mover = kind[np.arange(10), np.abs(start[..., 7:9]).sum(-1).argmax(1)]
    assert (mover[bank.table["split"] != "test"] == 0).all()  # spheres
    assert (mover[bank.table["split"] == "test"] > 0).all()  # cylinders


def test_the_bytes_do_not_depend_on_the_workers_nor_on_what_is_made_together(built, tmp_path, monkeypatch):
    assert build_cophy(COLLISION, tmp_path / "two", workers=2).fingerprint == built["collision"][0].fingerprint
    monkeypatch.setattr(CoPhyProtocol, "together", 3)
    for scene, protocol in PROTOCOL.items():
        assert build_cophy(protocol, tmp_path / scene).fingerprint == built[scene][0].fingerprint
    assert open_store(tmp_path / "balls").fingerprint == built["balls"][0].fingerprint
    assert build_cophy(replace(COLLISION, seed=9), tmp_path / "x").fingerprint != built["collision"][0].fingerprint


def test_a_killed_build_ends_in_the_same_bytes(built, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(f"""
import os, signal
from sprii_envs.banks import recorded
from sprii_envs.cophy.bank import CoPhyProtocol, build_cophy
recorded.SYNC_SECONDS = 0.0
def kill(done, total):
    if done == 4:
        os.kill(os.getpid(), signal.SIGKILL)
if __name__ == "__main__":
    build_cophy({BALLS!r}, {str(tmp_path / "bank")!r}, progress=kill)
""")
    assert subprocess.run([sys.executable, script], capture_output=True).returncode == -9
    seen = []
    bank = build_cophy(BALLS, tmp_path / "bank", progress=lambda *told: seen.append(told))
    assert seen[0] == (4, 6)
    assert bank.fingerprint == built["balls"][0].fingerprint
    with pytest.raises(StoreError, match=r"holds another bank \(its seed is 4, not 5\)"):
        build_cophy(replace(BALLS, seed=5), tmp_path / "bank")


def test_frames_are_drawn_from_the_states_of_their_video(built):
    bank = built["blocktower"][0]
    times = np.array([[0, 29, 3], [5, 5, 1]])
    found = cophy.frames(bank, [7, 2], "ab", times, 32)
    assert found.shape == (2, 3, 32, 32, 3)
    assert found.dtype == np.uint8
    states, kinds = cophy.states(bank, [7, 2], "ab"), cophy.slots(bank, [7, 2]).kind
    for row in range(2):
        for column in range(3):
            alone = pictures("blocktower", states[row, times[row, column]][None], kinds[row][None], 32)
            np.testing.assert_array_equal(found[row, column], alone[0])
    np.testing.assert_array_equal(cophy.frames(bank, [7], "ab", [29], 32)[0, 0], found[0, 1])
    assert cophy.frames(bank, [7], "cd", None, 32).shape == (1, 30, 32, 32, 3)
    for wrong, said in (({"video": "ef"}, "video is 'ef'"), ({"size": 0}, "size is 0"), ({"times": [30]}, "30")):
        with pytest.raises(ValueError, match=said):
            cophy.frames(bank, **{"rows": [7], "video": "ab", "times": [0], "size": 32} | wrong)


def test_a_cube_that_was_taken_away_is_not_drawn(built):
    bank = built["blocktower"][0]
    row = next(i for i, text in enumerate(bank.table["explanation"]) if text.startswith("remove"))
    slot = COLOURS["blocktower"].index(bank.table["explanation"][row].removeprefix("remove color="))
    ab, cd = (cophy.boxes(bank, [row], video, [0])[0, 0] for video in ("ab", "cd"))
    assert ab[slot].any()
    assert not cd[slot].any()
    kinds = cophy.slots(bank, [row]).kind
    of = [kinds_of(cophy.states(bank, [row], video), kinds)[:, slot].tolist() for video in ("ab", "cd")]
    assert of == [[CUBE] * 30, [ABSENT] * 30]
    first = [cophy.frames(bank, [row], video, [0], 64)[0, 0] for video in ("ab", "cd")]
    assert (first[0] != first[1]).any()
    told = outcomes(cophy.pairs(bank, range(8)))
    share = np.mean([text.startswith("remove") for text in bank.table["explanation"]])
    assert told["removed"] == share > 0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"scene": "cubes"}, "CoPhyProtocol.scene is 'cubes'; legal: balls, collision, blocktower"),
        ({"objects": 7}, "CoPhyProtocol.objects is 7; legal: an integer >= 2, at most 6"),
        ({"scene": "collision", "objects": 3}, "CoPhyProtocol.objects is 3"),
        ({"variant": "moving_sphere"}, "CoPhyProtocol.variant is 'moving_sphere'; legal: normal"),
        ({"train": 0}, "CoPhyProtocol.train is 0"),
        ({"test": -2}, "CoPhyProtocol.test is -2"),
        ({"seed": 2.0}, "CoPhyProtocol.seed is 2.0"),
    ],
)
def test_protocols_of_no_bank_are_refused(changes, said):
    with pytest.raises(ValueError, match=said):
        replace(BALLS, **changes)


def test_without_mujoco_a_bank_is_opened_but_not_begun(built, tmp_path):
    code = f"""
import sys
class Blocked:
    def find_spec(self, name, *rest):
        if name.partition(".")[0] == "mujoco":
            raise ModuleNotFoundError(name=name)
sys.meta_path.insert(0, Blocked())
from sprii_envs.cophy.bank import *
bank = build_cophy({COLLISION!r}, {built["collision"][0].name!r})
print(frames(bank, [0], "cd", None, 16).shape)
build_cophy({COLLISION!r}, {str(tmp_path / "bank")!r})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "(1, 15, 16, 16, 3)\n"
    assert "PackageImportError" in done.stderr
    assert "needs MuJoCo" in done.stderr
    assert not list(tmp_path.iterdir())


def test_other_stores_are_refused():
    other = ArrayStore(EpisodeTable({"episode": [0], "system": [0], "length": [3]}), {"x": np.zeros((3, 2))})
    for read in (cophy.scene_of, lambda store: cophy.slots(store, [0])):
        with pytest.raises(StoreError, match="is no bank of one of CoPhy's scenes: balls, collision, blocktower"):
            read(other)
    with pytest.raises(ValueError, match="protocol is 'cophy-balls4'; legal: CoPhyProtocol"):
        build_cophy("cophy-balls4", "nowhere")


def test_rows_and_sizes_that_no_bank_has_are_refused(tmp_path):
    bank = build_cophy(CoPhyProtocol("collision", 2, train=2, validation=0, test=0), tmp_path / "bank")
    for rows in ([], [-1], [2], [0.5], 0):
        for read in (lambda: cophy.slots(bank, rows), lambda: cophy.frames(bank, rows, "ab", [0], 8)):  # noqa: B023
            with pytest.raises(ValueError, match=r"rows is .*; legal: some of 0 to 1, \(N,\), at least one"):
                read()
    with pytest.raises(ValueError, match=r"size is 7; legal: an integer >= 8"):
        cophy.frames(bank, [0], "ab", [0], 7)
    assert cophy.frames(bank, [1], "ab", [0], 8).shape == (1, 1, 8, 8, 3)
    with pytest.raises(ValueError, match=r"CoPhyProtocol.train is -1; legal: an integer >= 1"):
        CoPhyProtocol("balls", 3, train=-1)
    with pytest.raises(ValueError, match=r"pairs is 'x'; legal: "):
        outcomes("x")
