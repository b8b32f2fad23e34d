"""Stores in Lance: in a folder and in an object storage, the same windows as where they came from."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

lance = pytest.importorskip("lance")

from sprii_envs.banks import (  # noqa: E402
    ArrayStore,
    RecordedBank,
    Recording,
    StoreError,
    Stream,
    StreamSpec,
    open_store,
)
from sprii_envs.banks import lance as backend  # noqa: E402
from sprii_envs.banks.lance import LanceStore, write_lance  # noqa: E402
from sprii_envs.banks.store import origin_of  # noqa: E402
from sprii_envs.relations import SAME_SYSTEM, EpisodeTable, PairSampler, WindowSampler  # noqa: E402

LENGTHS = np.array([5, 9, 7, 4, 6, 8])


def source() -> ArrayStore:
    rng, total = np.random.default_rng(0), LENGTHS.sum()
    table = {
        "episode": [3, 1, 4, 10, 5, 9],
        "system": ["a", "a", "b", "b", "c", "c"],
        "length": LENGTHS,
        "split": ["train"] * 4 + ["test"] * 2,
        "mass": [0.5, 0.5, 1.0, 1.0, 2.0, 2.0],
    }
    columns = {
        "states": rng.random((total, 4), np.float32),
        "actions": rng.random((total - 6, 2)),
        "reward": rng.random(total),
        "ok": rng.random((total, 2)) > 0.5,
        "grid": rng.integers(0, 9, (total, 3, 2)),
        "infos/cam": rng.integers(0, 255, (total, 8, 10, 3), dtype=np.uint8),
        "imu": Stream(rng.random((2 * total, 3)), rate=2),  # type: ignore[arg-type]
    }
    return ArrayStore(EpisodeTable(table), columns, sealed=("test",))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> LanceStore:
    return write_lance(source(), tmp_path_factory.mktemp("lance") / "store", unseal=True)


def same(found: LanceStore) -> None:
    """Every entry of every episode, and what is told of them, is that of the source."""
    before = source()
    assert found.columns == before.columns
    assert (found.splits, found.sealed_splits) == (before.splits, before.sealed_splits)
    assert found.table.fingerprint() == before.table.fingerprint()
    assert found.table.rows_fingerprint() == before.table.rows_fingerprint()
    for column in before.columns:
        for episode, length in zip(before.table["episode"], LENGTHS - (column == "actions"), strict=True):
            kept = before.windows(column, [episode], [0], int(length))
            read = found.windows(column, [episode], [0], int(length))
            assert read.dtype == kept.dtype
            np.testing.assert_array_equal(read, kept)
    found.verify()


def test_a_folder_holds_the_same_entries(store: LanceStore) -> None:
    same(store)
    again = open_store(store.uri)
    assert isinstance(again, LanceStore)
    same(again)
    assert again.fingerprint == pickle.loads(pickle.dumps(store)).fingerprint == store.fingerprint


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_windows_are_those_of_the_source(store: LanceStore, data: st.DataObject) -> None:
    before = source()
    column = data.draw(st.sampled_from(before.columns))
    length = data.draw(st.integers(1, 3))
    rows = data.draw(st.lists(st.integers(0, 5), min_size=0, max_size=9))
    starts = [data.draw(st.integers(0, int(LENGTHS[row]) - 1 - length)) for row in rows]
    ids = before.table["episode"][np.array(rows, int)]
    found, kept = (each.windows(column, ids, np.array(starts, int), length) for each in (store, before))
    assert found.dtype == kept.dtype
    np.testing.assert_array_equal(found, kept)


def test_related_windows(store: LanceStore) -> None:
    pairs = PairSampler(store.split("train"), SAME_SYSTEM, seed=0, distinct="system").batch(0, 2)
    drawn = WindowSampler(store.split("train"), history=3, horizon=1, seed=0).batch(0, pairs)
    for found, kept in zip(store.read(drawn, "states", 3), source().read(drawn, "states", 3), strict=True):
        np.testing.assert_array_equal(found, kept)


def test_sealed_splits_and_columns_that_are_chosen(tmp_path: Path) -> None:
    part = write_lance(source(), tmp_path / "part", columns=("states",))
    assert (part.columns, part.splits, part.sealed_splits) == (("states",), ("train",), ())
    with pytest.raises(StoreError, match=r"part exists; choose another folder or remove it"):
        write_lance(source(), tmp_path / "part")
    with pytest.raises(StoreError, match="no column 'state'; columns: states"):
        write_lance(source(), tmp_path / "other", columns=("state",))
    with pytest.raises(StoreError, match="the split 'test' is sealed; copy it with unseal=True"):
        write_lance(source(), tmp_path / "other", table=source().table)
    assert [each.name for each in tmp_path.iterdir()] == ["part"]


def test_the_origin_goes_with_a_copy(tmp_path: Path) -> None:
    origin = {"kind": "stand-in", "benchmark": "toy"}
    with Recording(tmp_path / "bank", {"states": StreamSpec((2,))}, origin) as recording:
        recording.append({"states": np.zeros((3, 2))}, system=0)
    far = write_lance(RecordedBank(tmp_path / "bank"), tmp_path / "far")
    assert json.loads((tmp_path / "far/bank.json").read_text())["origin"] == far.origin == origin
    assert origin_of(open_store(tmp_path / "far")) == origin
    plain = write_lance(ArrayStore(far.table, {"states": np.zeros((3, 2), np.float32)}), tmp_path / "plain")
    assert plain.origin == {}
    assert plain.fingerprint != far.fingerprint  # the origin is part of it, as in a bank


def test_batches_are_written_a_few_megabytes_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "_BYTES", 100)
    told: list[tuple[int, int]] = []
    same(write_lance(source(), tmp_path / "store", unseal=True, progress=lambda *done: told.append(done)))
    assert told == [(i, 7 * 6) for i in range(1, 7 * 6 + 1)]


def test_who_appends_to_a_column_does_not_change_the_store(store: LanceStore, tmp_path: Path) -> None:
    shutil.copytree(store.uri, tmp_path / "store")
    place = tmp_path / "store" / "reward-2.lance"
    lance.write_dataset(lance.dataset(place).to_table().slice(0, 3), place, mode="append")
    same(LanceStore.open(tmp_path / "store"))


def test_what_is_no_store_is_named(store: LanceStore, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"nowhere/episodes.lance is missing or cannot be read"):
        LanceStore.open(tmp_path / "nowhere")
    lance.write_dataset(lance.dataset(f"{store.uri}/reward-2.lance").to_table(), tmp_path / "x" / "episodes.lance")
    with pytest.raises(StoreError, match=r"episodes.lance is no table of a store, or is damaged"):
        LanceStore.open(tmp_path / "x")
    shutil.copytree(store.uri, tmp_path / "lost")
    shutil.rmtree(tmp_path / "lost" / "states-0.lance")
    with pytest.raises(StoreError, match=r"states-0.lance is missing or cannot be read"):
        LanceStore.open(tmp_path / "lost").windows("states", [3], [0], 1)
    shutil.copytree(store.uri, tmp_path / "edited")
    table = lance.dataset(tmp_path / "edited" / "episodes.lance").to_table()
    metadata = {b"sprii": table.schema.metadata[b"sprii"].replace(b'"test"', b'"none"')}
    lance.write_dataset(
        table.replace_schema_metadata(metadata), tmp_path / "edited" / "episodes.lance", mode="overwrite"
    )
    with pytest.raises(StoreError, match="its fingerprint is not of its contents"):
        LanceStore.open(tmp_path / "edited")


def test_a_killed_writer_leaves_no_store(tmp_path: Path) -> None:
    code = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import test_lance as tests
from sprii_envs.banks.lance import write_lance
stop = lambda done, _: done == 15 and os.kill(os.getpid(), 9)
write_lance(tests.source(), {str(tmp_path / "store")!r}, progress=stop)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == -9
    assert not (tmp_path / "store").exists()
    write_lance(source(), tmp_path / "store")
    assert {each.name for each in tmp_path.iterdir()} == {"store"}  # what was left has been collected


# An object storage


@pytest.fixture(scope="module")
def bucket() -> Iterator[dict[str, str]]:
    """Options of a server with the bucket `stores`."""
    pytest.importorskip("flask")
    moto = pytest.importorskip("moto.server")
    import logging

    import boto3

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = moto.ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    url = "http://{}:{}".format(*server.get_host_and_port())
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    boto3.client("s3", endpoint_url=url, region_name="us-east-1", **keys).create_bucket(Bucket="stores")
    yield {"endpoint": url, "allow_http": "true", "region": "us-east-1", **keys}
    server.stop()


def test_an_object_storage_holds_the_same_entries(bucket, store: LanceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    found = write_lance(source(), "s3://stores/one/", unseal=True, options=bucket)
    same(found)
    assert found.fingerprint == store.fingerprint
    with pytest.raises(StoreError, match="s3://stores/one holds a store; choose another place"):
        write_lance(source(), "s3://stores/one", options=bucket)
    for name, value in bucket.items():  # as a user sets them
        monkeypatch.setenv(name.upper() if name.startswith("aws") else f"AWS_{name.upper()}", value)
    again = open_store("s3://stores/one")
    same(again)  # type: ignore[arg-type]
    with pytest.raises(StoreError, match=r"s3://stores/none/episodes.lance is missing or cannot be read"):
        open_store("s3://stores/none")


def test_an_object_storage_holds_no_store_before_its_table(bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    before = backend._put

    def stopped(data, uri, options):
        if uri.endswith("ok-3.lance"):
            raise KeyboardInterrupt
        return before(data, uri, options)

    monkeypatch.setattr(backend, "_put", stopped)
    with pytest.raises(KeyboardInterrupt):
        write_lance(source(), "s3://stores/two", unseal=True, options=bucket)
    monkeypatch.setattr(backend, "_put", before)
    with pytest.raises(StoreError, match=r"episodes.lance is missing"):
        LanceStore.open("s3://stores/two", bucket)
    same(write_lance(source(), "s3://stores/two", unseal=True, options=bucket))


def test_pylance_is_named_where_it_is_missing(tmp_path: Path) -> None:
    code = """
import sys
sys.modules["lance"] = None
from sprii_envs.banks.lance import LanceStore
LanceStore.open("x")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=dict(os.environ)
    )
    assert "stores in Lance needs pylance: pip install 'sprii[lance]'" in done.stderr.splitlines()[-1]
