"""Banks of fields: contents, the same bytes however they are built, and what is refused."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from sprii_envs.banks import StoreError, open_store, storage
from sprii_envs.fields import BurgersProtocol, FHNProtocol, build_fields, burgers, fhn

BURGERS = BurgersProtocol(
    cells=80, points=21, frames=6, train=3, validation=1, id_test=1, viscous_ood=2, inviscid_ood=3, duration=1.0
)
FHN = FHNProtocol(side=8, frames=4, duration=0.9, step=0.1, train_cases=(50, 51), test_cases=(15,))
BOTH = pytest.mark.parametrize("protocol", [BURGERS, FHN], ids=["burgers", "fhn"])


def test_burgers_splits_systems_and_fields(tmp_path):
    bank = build_fields(BURGERS, tmp_path / "bank")
    table = bank.table
    assert bank.splits == ("train", "validation", "id_test", "viscous_ood", "inviscid_ood")
    assert [len(bank.split(s)) for s in bank.splits] == [27, 9, 9, 10, 3]
    assert set(bank.split("train")["viscosity"]) == {1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2}
    assert not set(bank.split("viscous_ood")["viscosity"]) & set(bank.split("train")["viscosity"])
    assert set(bank.split("inviscid_ood")["system"]) == {"nu=0"}
    assert [sorted(set(bank.split(s)["case"].tolist())) for s in bank.splits[:3]] == [[0, 1, 2], [3], [4]]
    assert set(table["length"]) == {6}
    row = np.flatnonzero((table["system"] == "nu=0.002") & (table["case"] == 4))[0]
    field = bank.windows("field", [table["episode"][row]], [0], 6)[0]
    assert field.shape == (6, 21)
    assert field.dtype == np.float32
    start = burgers.field(*burgers.modes(0, 2e-3, [4]), burgers.grid(80))
    alone = burgers.stored(burgers.solve(start, 2e-3, frames=6, duration=1.0), 21)
    np.testing.assert_array_equal(field, alone[0])
    np.testing.assert_array_equal(field[:, 0], field[:, -1])
    assert bank.origin["kind"] == "generated"
    assert bank.origin["protocol"]["seed"] == 0
    assert "viscosities of viscous_ood" in bank.origin["ours"]


def test_fhn_splits_systems_and_fields(tmp_path):
    bank = build_fields(FHN, tmp_path / "bank")
    assert bank.splits == ("train", "validation", "id", "intra", "extra")
    assert [len(bank.split(s)) for s in bank.splits] == [18, 9, 9, 8, 24]
    assert [sorted(set(bank.split(s)["case"].tolist())) for s in bank.splits] == [[50, 51], [5], [15], [5, 15], [5, 15]]
    table = bank.table
    row = np.flatnonzero((table["system"] == "k=0.05 beta=0.10") & (table["case"] == 15))[0]
    assert (table["k"][row], table["beta"][row], table["split"][row]) == (0.05, 0.10, "extra")
    field = bank.windows("field", [table["episode"][row]], [1], 3)[0]
    alone = fhn.solve(fhn.initial(0, [15], 8), (0.05, 0.10), frames=4, duration=0.9, step=0.1)
    np.testing.assert_array_equal(field, alone[0, 1:].astype(np.float32))
    first = bank.windows("field", table["episode"][table["case"] == 5], [0], 1)
    assert (first == first[0]).all()  # a case begins alike in every system


@BOTH
def test_the_bytes_do_not_depend_on_the_workers_nor_on_what_is_solved_together(tmp_path, protocol, monkeypatch):
    seen = []
    one = build_fields(protocol, tmp_path / "one", progress=lambda *told: seen.append(told))
    total = len(protocol.plan())
    assert seen == [(done, total) for done in range(total + 1)]
    assert build_fields(protocol, tmp_path / "three", workers=3).fingerprint == one.fingerprint
    monkeypatch.setattr(type(protocol), "together", 5)
    assert build_fields(protocol, tmp_path / "five").fingerprint == one.fingerprint
    one.verify()
    assert open_store(tmp_path / "one").fingerprint == one.fingerprint


@BOTH
def test_an_interrupted_build_goes_on_where_it_was(tmp_path, protocol, monkeypatch):
    def stop(done, total):
        if done == 13:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_fields(protocol, tmp_path / "bank", progress=stop)
    solved, seen = [], []
    fields = type(protocol).fields

    def counted(self, labels):
        solved.extend(labels)
        return fields(self, labels)

    monkeypatch.setattr(type(protocol), "fields", counted)
    bank = build_fields(protocol, tmp_path / "bank", progress=lambda *told: seen.append(told))
    assert seen[0] == (13, len(protocol.plan()))
    assert solved == protocol.plan()[13:]
    assert bank.fingerprint == build_fields(protocol, tmp_path / "whole").fingerprint


def test_a_killed_build_ends_in_the_same_bytes(tmp_path):
    code = f"""
import os, signal
from sprii_envs.banks import recorded
from sprii_envs.fields import BurgersProtocol, build_fields
recorded.SYNC_SECONDS = 0.0
def kill(done, total):
    if done == 20:
        os.kill(os.getpid(), signal.SIGKILL)
if __name__ == "__main__":
    build_fields({BURGERS!r}, {str(tmp_path / "bank")!r}, workers=2, progress=kill)
"""
    script = tmp_path / "script.py"
    script.write_text(code)
    assert subprocess.run([sys.executable, script], capture_output=True).returncode == -9
    seen = []
    bank = build_fields(BURGERS, tmp_path / "bank", progress=lambda *told: seen.append(told))
    assert seen[0][0] == 20
    assert bank.fingerprint == build_fields(BURGERS, tmp_path / "whole").fingerprint


def test_a_bank_that_is_there_is_opened_and_another_refused(tmp_path, monkeypatch):
    bank = build_fields(BURGERS, tmp_path / "bank")
    monkeypatch.setattr(BurgersProtocol, "fields", None)
    seen = []
    assert build_fields(BURGERS, tmp_path / "bank", progress=lambda *t: seen.append(t)).fingerprint == bank.fingerprint
    assert seen == [(58, 58)]
    with pytest.raises(StoreError, match=r"holds another bank \(its frames is 6, not 7\); choose another folder"):
        build_fields(replace(BURGERS, frames=7), tmp_path / "bank")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    with pytest.raises(StoreError, match="exists; choose another folder"):
        build_fields(BURGERS, tmp_path / "full")


def test_a_disk_without_room_is_told_of_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "free_bytes", lambda path: BURGERS.bytes - 1)
    with pytest.raises(StoreError, match="no disk space for this bank: 29,232 bytes needed, 29,231 bytes free"):
        build_fields(BURGERS, tmp_path / "bank")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("protocol", "change", "said"),
    [
        (BURGERS, {"points": 20}, "points is 20; legal: one more than a divisor of the 80 cells"),
        (BURGERS, {"outer": (1e-3,)}, "hold nu=0.001 twice"),
        (BURGERS, {"viscosities": (1e-2, 1.00000001e-2)}, "named by six digits, hold nu=0.01 twice"),
        (BURGERS, {"viscosities": ()}, "viscosities is"),
        (BURGERS, {"viscosities": (0.0,)}, "viscosities"),
        (BURGERS, {"train": 0}, "train is 0"),
        (BURGERS, {"seed": -1}, "seed is -1"),
        (FHN, {"side": 9}, "side is 9; legal: even numbers"),
        (FHN, {"solver": "euler"}, "solver is 'euler'"),
        (FHN, {"step": 0.0}, "step is 0.0"),
        (FHN, {"step": 0.07}, "step is 0.07; legal: what divides the 0.3 between frames"),
        (FHN, {"step": 0.6}, "step is 0.6"),
        (FHN, {"outside": ((0.03, -0.10),)}, r"outside holds \(0.03, -0.1\); legal: .* beta >= 0"),
        (FHN, {"test_cases": (5,)}, "cases hold 5 twice"),
        (FHN, {"inside": ((0.03, 0.10),)}, "systems hold k=0.03 beta=0.10 twice"),
        (FHN, {"inside": ((0.03,),)}, "legal: pairs"),
    ],
)
def test_protocols_of_no_bank_are_refused(protocol, change, said):
    with pytest.raises(ValueError, match=said):
        replace(protocol, **change)


def test_the_banks_of_the_paper():
    assert (len(BurgersProtocol().plan()), len(FHNProtocol().plan())) == (9 * 50 + 500 + 100, 9 * 40 + 25 * 5)
    assert BurgersProtocol().shape == (401,)
    assert FHNProtocol().shape == (2, 128, 128)


def test_a_killed_worker_is_told_of(tmp_path):
    code = f"""
import os
from sprii_envs.banks import StoreError
from sprii_envs.fields import BurgersProtocol, build_fields
class Dying(BurgersProtocol):
    def fields(self, labels):
        if labels[0]["case"] == 3:
            os._exit(1)
        return super().fields(labels)
if __name__ == "__main__":
    protocol = Dying(cells=80, points=21, train=3, viscous_ood=0, inviscid_ood=0)
    try:
        build_fields(protocol, {str(tmp_path / "bank")!r}, workers=2)
    except StoreError as error:
        print(error)
"""
    script = tmp_path / "script.py"
    script.write_text(code)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert "a worker was killed or could not start" in done.stdout, done.stderr
    assert (tmp_path / "bank.partial").is_dir()
