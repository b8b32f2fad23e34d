"""What every store offers, of every kind of store: its members, what it refuses, what identifies it, what it finds."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from test_bank_stores import record

from sprii_envs.banks import ArrayStore, Store, StoreError, build, open_store
from sprii_envs.banks.protocols import BankProtocol
from sprii_envs.relations import SAME_SYSTEM, EpisodeTable, PairSampler, WindowSampler


@dataclass(frozen=True)
class Case:
    """A store, how it is made or opened once more, and the file of its largest column."""

    store: Store
    again: Callable[[], Store]
    file: Path | None
    sealed: tuple[str, ...] = ("test",)


def folder_case(store: Store, file: Path, sealed: tuple[str, ...] = ("test",)) -> Case:
    return Case(store, lambda: open_store(store.name), file, sealed)


def simulated(folder: Path, protocol: BankProtocol) -> Case:
    bank = build(protocol.replace(sealed_splits=("test",)), folder / "bank")
    return folder_case(bank, bank.path / "states.f32")


def recorded(folder: Path, _: BankProtocol) -> Case:
    bank = record(folder / "bank")
    return folder_case(bank, bank.path / "tactile.f32")


def arrays(_: Path, __: BankProtocol) -> Case:
    split = np.repeat(["train", "test"], 4)
    table = EpisodeTable(
        {"episode": np.arange(8)[::-1], "system": np.arange(8) // 2, "length": np.full(8, 9), "split": split}
    )
    columns = {"x": np.random.default_rng(0).random((8, 9, 2)), "u": np.ones((8, 8))}
    made = lambda: ArrayStore(table, columns, sealed=("test",))  # noqa: E731
    return Case(made(), made, None)


def histories(folder: Path, _: BankProtocol) -> Case:
    pytest.importorskip("jaxmarl")
    from sprii_envs.overcooked.bank import HistoryProtocol, Run, write_histories
    from sprii_envs.overcooked.collect import Histories
    from sprii_envs.overcooked.game import Game
    from sprii_envs.overcooked.partners.partner import Partner
    from sprii_envs.overcooked.partners.roster import Roster

    protocol = HistoryProtocol(Game(max_steps=4), runs=1, histories=2, episodes=5, kitchens=2, iterations=5)
    roster = Roster([Partner(f"every-{n}", "signaller", {"every": n}) for n in (2, 3)])

    def played(run: Run) -> Histories:
        rng = np.random.default_rng(run.number)
        seen, acts = (rng.integers(0, 2, (2, 5, 4, *shape), dtype=np.uint8) for shape in (protocol.game.shape, ()))
        return Histories(seen, acts, acts, acts.astype(np.float32))

    bank = write_histories(folder / "bank", protocol, roster, "a test", played)
    return folder_case(bank, bank.path / "observations.u8", sealed=())


def minari(folder: Path, protocol: BankProtocol) -> Case:
    pytest.importorskip("minari")
    from sprii_envs.banks.minari import MinariWindows, to_minari

    bank = build(protocol.replace(sealed_splits=("test",)), folder / "bank")
    dataset = to_minari(bank, "tests/store-v0", unseal=True)
    return folder_case(MinariWindows(dataset).save(folder / "store"), dataset.storage.data_path / "main_data.hdf5")


def lerobot(folder: Path, protocol: BankProtocol) -> Case:
    pytest.importorskip("pyarrow")
    from sprii_envs.banks.lerobot import LeRobotStore, export_lerobot

    bank = build(protocol.replace(sealed_splits=("test",)), folder / "bank")
    export_lerobot(bank, folder / "data", unseal=True)
    store = LeRobotStore.open(folder / "data").save(folder / "store")
    return folder_case(store, folder / "data" / "meta" / "stats.json")


def lance(folder: Path, protocol: BankProtocol) -> Case:
    pytest.importorskip("lance")
    from sprii_envs.banks.lance import write_lance

    bank = build(protocol.replace(sealed_splits=("test",)), folder / "bank")
    store = write_lance(bank, folder / "store", unseal=True)
    return folder_case(store, next((folder / "store" / "states-0.lance" / "data").iterdir()))


KINDS = {f.__name__: f for f in (simulated, recorded, arrays, histories, minari, lerobot, lance)}


@pytest.fixture(params=KINDS)
def case(request: pytest.FixtureRequest, tmp_path: Path, protocol: BankProtocol, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return KINDS[request.param](tmp_path, protocol)


pytestmark = pytest.mark.filterwarnings("ignore:.*precision lowered:UserWarning")


def test_the_members(case: Case) -> None:
    store = case.store
    assert isinstance(store, Store)
    assert isinstance(store.name, str)
    assert store.sealed_splits == case.sealed
    assert set(store.splits) == set(store.table["split"].tolist())
    ids = store.table["episode"]
    for column in store.columns:
        found = store.windows(column, ids, 1, 2)
        assert found.shape[:2] == (len(ids), 2)
        assert np.array_equal(store.windows(column, [ids[3], ids[0]], [1, 0], 2)[0], found[3])
    train = store.split("train")
    windows = WindowSampler(train, 2, 1).batch(0, PairSampler(train, SAME_SYSTEM).batch(0, 7))
    for side, rows, starts in zip(
        store.read(windows, store.columns[0], 2),
        (windows.recipient, windows.donor),
        (windows.recipient_start, windows.donor_start),
        strict=True,
    ):
        episodes = train["episode"][np.asarray(rows)]
        assert np.array_equal(side, store.windows(store.columns[0], episodes, starts, 2))


def test_what_is_refused(case: Case) -> None:
    store, ids = case.store, case.store.table["episode"]
    for name in case.sealed:
        with pytest.raises(StoreError, match=f"'{name}' is sealed"):
            store.split(name)
        assert set(store.split(name, unseal=True)["split"]) == {name}
    with pytest.raises(StoreError, match="no split 'nights'; splits: train"):
        store.split("nights")
    column, longest = store.columns[0], int(store.table["length"].max())
    for arguments, message in (
        (("nothing", ids[:1], 0, 1), "column 'nothing'"),
        ((column, [10**6], 0, 1), "no episode 1000000"),
        ((column, ids[:1], longest, 1), "is not inside episode"),
        ((column, ids[:1], -1, 1), "is not inside episode"),
        ((column, ids[:1], 0, 0), "length is 0"),
    ):
        with pytest.raises(ValueError, match=message):
            store.windows(*arguments)


def test_what_identifies_it(case: Case) -> None:
    again = case.again()
    assert (again.fingerprint, again.name) == (case.store.fingerprint, case.store.name)
    assert again.table.fingerprint() == case.store.table.fingerprint()
    again.verify(checksums=False)
    again.verify()


def test_a_flipped_bit_is_found(case: Case) -> None:
    store = case.store
    assert len(store.fingerprint) == 64
    if case.file is None:
        assert isinstance(store, ArrayStore)
        store.stream("x").values[3] += 1.0
    else:
        times, data = case.file.stat(), bytearray(case.file.read_bytes())
        data[len(data) // 2] ^= 1
        case.file.write_bytes(data)
        os.utime(case.file, ns=(times.st_atime_ns, times.st_mtime_ns))
        store = case.again()
        store.verify(checksums=False)
    with pytest.raises(StoreError, match=r"checksum is another|have changed"):
        store.verify()
