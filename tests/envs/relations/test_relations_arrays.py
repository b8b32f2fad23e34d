"""Files of tables, graphs and candidates: written whole, and every damage is a ValueError that names them."""

import errno
import os

import numpy as np
import pytest

from sprii_envs.relations import EpisodeTable
from sprii_envs.relations.kernels.candidates import Candidates, load_candidates, save_candidates
from sprii_envs.relations.kernels.graph import Graph, knn_graph

TABLE = EpisodeTable({"episode": [3, 1, 2], "system": ["a", "b", "a"], "rollout": [0, 0, 1], "length": [4, 4, 9]})
GRAPH = knn_graph(np.random.default_rng(0).random((4, 2)), 2)
LISTS = {"G1": Candidates(np.array([0, 1]), np.array([1, 0]), np.array([0, 1, 2]))}

KINDS = {
    "table": (TABLE.save, EpisodeTable.load, lambda table: table.fingerprint()),
    "graph": (GRAPH.save, Graph.load, repr),
    "candidates": (lambda path: save_candidates(path, LISTS), load_candidates, lambda lists: repr(vars(lists["G1"]))),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_byte_is_an_error_that_names_the_file_or_harmless(tmp_path, kind):
    save, load, content = KINDS[kind]
    path = tmp_path / "x.npz"
    save(path)
    whole, expected = path.read_bytes(), content(load(path))
    rng, errors = np.random.default_rng(0), 0
    for position, flip in zip(rng.integers(0, len(whole), 400), rng.integers(1, 256, 400), strict=True):
        damaged = bytearray(whole)
        damaged[position] ^= flip
        path.write_bytes(damaged)
        try:
            assert content(load(path)) == expected
        except ValueError as error:
            assert str(path) in str(error)  # noqa: PT017
            errors += 1
    assert errors > 200


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("content", [b"", b"PK", b"[" * 200_000, b"\x93NUMPY", None])
def test_half_and_foreign_files_are_named(tmp_path, kind, content):
    save, load, _ = KINDS[kind]
    path = tmp_path / "x.npz"
    save(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2] if content is None else content)
    with pytest.raises(ValueError, match=r"x\.npz is not an? .* or is damaged: ") as raised:
        load(path)
    assert "pickle" not in str(raised.value)


@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_opened_is_not_called_damaged(tmp_path, kind):
    load = KINDS[kind][1]
    with pytest.raises(FileNotFoundError, match=r"nothing\.npz"):
        load(tmp_path / "nothing.npz")
    with pytest.raises(IsADirectoryError):
        load(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_another_format_is_told_as_that(tmp_path, kind):
    path = tmp_path / "x.npz"
    np.savez(path, format=np.int64(99))
    with pytest.raises(ValueError, match=r"format 99; this version reads 1"):
        KINDS[kind][1](path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_disk_is_told_with_the_name_and_leaves_the_old_file(tmp_path, monkeypatch, kind):
    save, load, content = KINDS[kind]
    path = tmp_path / "x.npz"
    save(path)
    expected = content(load(path))

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("numpy.savez", full)
    with pytest.raises(OSError, match=r"No space left on device: .*x\.npz'"):
        save(path)
    assert content(load(path)) == expected
    assert os.listdir(tmp_path) == ["x.npz"]


@pytest.mark.parametrize("kind", KINDS)
def test_links_are_written_through_and_leftovers_collected(tmp_path, kind):
    save, load, _ = KINDS[kind]
    disk, link = tmp_path / "disk", tmp_path / "x.npz"
    disk.mkdir()
    link.symlink_to(disk / "y.npz")
    (disk / ".y.npz.0123456789ab.part").write_bytes(b"of a writer that was killed")
    save(link)
    assert load(link)
    assert link.is_symlink()
    assert os.listdir(disk) == ["y.npz"]


@pytest.mark.parametrize("kind", KINDS)
def test_objects_are_refused_without_the_advice_to_load_them(tmp_path, kind):
    save, load, _ = KINDS[kind]
    path = tmp_path / "x.npz"
    save(path)
    held = dict(np.load(path))
    name = next(name for name in held if name != "format")
    np.savez(path, **held | {name: np.array([{"a": 1}], object)})
    with pytest.raises(
        ValueError, match=r"x\.npz is not an? .* or is damaged: it holds Python objects, which are never read$"
    ):
        load(path)
