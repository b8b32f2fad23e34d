"""Pickles: what arrays and containers need is read as pickle reads it, and every other program is refused unrun."""

import builtins
import contextlib
import functools
import os
import pickle
import pickletools
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from sprii_envs.files import FileError
from sprii_envs.robots import restricted
from sprii_envs.robots.restricted import RefusedPickleError, load, loads

SAMPLES = {
    "a dict of lists": {"750612070851": [{"timestamp": 1630, "tcp": np.arange(7.0), "robot_ft": [0.5] * 6}]},
    "numbers": [np.int64(3), np.float32(0.5), np.bool_(True), 1 + 2j, 10**30, None, True, "text", b"bytes"],
    "containers": {"set": {1, 2}, "frozen": frozenset({3}), "tuple": (1, (2, 3)), "empty": [{}, (), set()]},
    "keys": {np.int64(1): 2, 3: np.zeros(0)},
    "arrays": [np.zeros((2, 0)), np.asfortranarray(np.eye(3)), np.array(["a", "bc"]), np.arange(3, dtype=">i4")],
    "objects": np.array([{"a": 1}, None], object),
    "shared": [shared := np.ones(3), shared],
}


def same(one, other):
    assert type(one) is type(other)
    if isinstance(one, np.ndarray):
        assert one.dtype.newbyteorder("=") == other.dtype.newbyteorder("=")  # NumPy turns bytes over
        if one.dtype == object:
            same(one.tolist(), other.tolist())
        else:
            np.testing.assert_array_equal(one, other)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for a, b in zip(one.values(), other.values(), strict=True):
            same(a, b)
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            same(a, b)
    else:
        assert one == other


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("name", SAMPLES)
def test_what_pickle_reads_is_read(name, protocol):
    if protocol < 2 and name in ("containers", "arrays", "numbers", "objects", "keys"):
        pytest.skip("copyreg, which NumPy's files never need")
    data = pickle.dumps(SAMPLES[name], protocol)
    same(loads(data), pickle.loads(data))


@pytest.mark.parametrize("old", [True, False])
def test_both_names_of_numpy_are_known(old):
    data = pickle.dumps([np.arange(3), np.float64(2.0)], 2)
    core, other = (b"numpy.core.", b"numpy._core.") if old else (b"numpy._core.", b"numpy.core.")
    data = data.replace(other, core)
    assert core in data
    same(loads(data), [np.arange(3), np.float64(2.0)])


def test_files_of_numpy_are_read(tmp_path):
    np.save(tmp_path / "dict.npy", {"a": np.arange(3)}, allow_pickle=True)  # type: ignore[arg-type]
    same(load(tmp_path / "dict.npy"), {"a": np.arange(3)})
    np.save(tmp_path / "list.npy", SAMPLES["objects"], allow_pickle=True)
    same(load(tmp_path / "list.npy"), SAMPLES["objects"])
    np.save(tmp_path / "plain.npy", np.eye(2))
    same(load(tmp_path / "plain.npy"), np.eye(2))


@settings(max_examples=30, deadline=None)
@given(
    st.recursive(
        st.none() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3)
        | arrays.arrays(st.sampled_from([np.float64, np.int16]), (2, 3), elements={"min_value": 0, "max_value": 9}),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
        max_leaves=10,
    )
)  # fmt: skip
def test_any_nesting_is_read_back(value):
    same(loads(pickle.dumps(value)), value)


WHOLE = [pickle.dumps(value, protocol) for value in SAMPLES.values() for protocol in (2, 3, 4)]


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(WHOLE), st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4))
def test_damaged_bytes_are_read_or_refused_with_the_one_error(data, changes):
    changed = bytearray(data)
    for at, byte in changes:
        changed[at % len(changed)] = byte
    with contextlib.suppress(FileError):
        loads(bytes(changed))


class Call:
    def __init__(self, function, *arguments):
        self.told = function, arguments

    def __reduce__(self):
        return self.told


def text(mark):
    return f"open({str(mark)!r}, 'w').close()"


def stack_global(module, name, *rest):
    """A pickle of protocol 4 that puts a global on the stack, then the bytes of `rest`."""
    return (
        b"\x80\x04"
        + b"".join(b"\x8c" + bytes([len(w)]) + w.encode() for w in (module, name))
        + b"\x93"
        + b"".join(rest)
    )


def hostile(mark: Path):
    """Name → (pickle, global it must be refused for); each would make the file `mark`, or read or wreck something."""
    run = ("V" + text(mark)).encode()
    return {
        "os.system": (pickle.dumps(Call(os.system, f"touch {mark}")), f"{os.system.__module__}.system"),
        "os.system by text": (b"cos\nsystem\n(V" + f"touch {mark}".encode() + b"\ntR.", "os.system"),
        "eval": (pickle.dumps(Call(eval, text(mark))), "builtins.eval"),
        "exec, of Python 2": (b"c__builtin__\neval\n(" + run + b"\ntR.", "__builtin__.eval"),
        "getattr": (pickle.dumps(Call(getattr, [], "append")), "builtins.getattr"),
        "a chain": (b"c__builtin__\ngetattr\n(c__builtin__\nset\nV__class__\ntR.", "__builtin__.getattr"),
        "an attribute of an admitted module": (b"cnumpy\nf2py.compile\n.", "numpy.f2py.compile"),
        "a dotted name": (stack_global("numpy", "ndarray.__class__", b"."), "numpy.ndarray.__class__"),
        "numpy's own": (b"cnumpy.f2py\ncompile\n.", "numpy.f2py.compile"),
        "numpy.load": (b"cnumpy\nload\n(V/etc/passwd\ntR.", "numpy.load"),
        "runstring": (b"cnumpy.testing._private.utils\nrunstring\n(" + run + b"\n}tR.", "utils.runstring"),
        "partial": (pickle.dumps(functools.partial(print, 1)), "functools.partial"),
        "a class of one's own": (pickle.dumps(Path("x")), "pathlib"),
        "bytearray": (b"c__builtin__\nbytearray\n(I1000000000000\ntR.", "bytearray"),
        "an instance": (b"(ios\nsystem\n.", "the instruction INST"),
        "an object": (b"(cos\nsystem\no.", "os.system"),
        "a new object": (stack_global("builtins", "set", b")\x81."), "the instruction NEWOBJ"),
        "an extension": (b"\x80\x02\x82\x01.", "the instruction EXT1"),
        "a persistent id": (b"Psome\n.", "the instruction PERSID"),
    }  # fmt: skip


@pytest.mark.parametrize("name", hostile(Path("mark")))
def test_a_hostile_pickle_is_refused_unrun(name, tmp_path):
    data, asked = hostile(tmp_path / "mark")[name]
    file = tmp_path / "tcp.npy"
    np.save(file, {}, allow_pickle=True)  # type: ignore[arg-type]
    head = file.read_bytes()
    file.write_bytes(head[: head.index(b"\x80")] + data)
    with pytest.raises(RefusedPickleError) as error:
        load(file)
    assert str(file) in str(error.value)
    assert asked in str(error.value)
    assert not (tmp_path / "mark").exists()


def array_of(dtype=b"f8", shape=(2,), data=b"\0" * 16, state=(3, "<", None, None, None, -1, -1, 0)):
    """A pickle of an array with any parts."""

    class Dtype:
        def __reduce__(self):
            return np.dtype, (dtype.decode(), False, True), state

    class Array:
        def __reduce__(self):
            return np.zeros(1).__reduce__()[0], (np.ndarray, (0,), b"b"), (1, shape, Dtype(), False, data)

    return pickle.dumps(Array(), 3)


def test_parts_of_an_array_that_fit_are_taken():
    same(loads(array_of()), np.zeros(2))


WRONG = {
    "bytes taken for objects": array_of(b"O8", (2,), b"\x41" * 16, (3, "|", None, None, None, -1, -1, 0)),
    "fewer bytes than its shape": array_of(shape=(10**12,)),
    "a negative side": array_of(shape=(-2, -1)),
    "fields": array_of(b"V16", state=(3, "|", None, ("a",), {}, 16, 1, 0)),
    "a flag": array_of(state=(3, "<", None, ("a",), {}, -1, -1, 63)),
    "no bytes at all": b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntVb\ntR.",
    "another class": b"cnumpy.core.multiarray\n_reconstruct\n(c__builtin__\nset\n(I0\ntVb\ntR.",
    "a class in place of a value": b"cnumpy\ndtype\n.",
    "the state of a class": b"cnumpy\ndtype\n(NVS\nd(V__setstate__\nc__builtin__\nset\ndtb.",
    "the state of a name": b"cnumpy\nndarray\n(N(Vx\nI1\ndtb.",
    "the state of a built-in": b"c__builtin__\nset\n(N(Vx\nI1\ndtb.",
    "a memo far beyond": b"\x80\x02Nr" + struct.pack("<I", 2**31 - 1) + b".",
    "a memo far beyond, in text": b"Np4000000000\n.",
    "a memo of nobody": b"\x80\x02h\x05.",
    "a long text that is not there": b"\x80\x04\x8d" + struct.pack("<Q", 2**40) + b"x.",
    "a list that holds itself": b"\x80\x02]q\0h\0a.",
    "laughs": b"\x80\x02]q\0" + b"".join(b"](" + b"h" + bytes([i]) + (b"h" + bytes([i])) * 9 + b"eq" + bytes([i + 1])
                                         for i in range(20)) + b".",
    "too deep": b"\x80\x02" + b"]" * 1000 + b"a" * 999 + b".",
    "cut": pickle.dumps({"a": np.arange(3)})[:-9],
    "nothing": b"",
    "a number too long": b"I" + b"9" * 10_000 + b"\n.",
}  # fmt: skip


LARGE = {
    "laughs": WRONG["laughs"],
    "sets of one list": b"\x80\x02(" + b"N" * 600 + b"lq\0(" + b"c__builtin__\nset\nh\0\x85R" * 20 + b"l.",
    "bytes of one text": b"(V" + b"a" * 600 + b"\np0\n" + b"c_codecs\nencode\n(g0\nVlatin1\ntR" * 20 + b"l.",
}


@pytest.mark.parametrize("name", LARGE)
def test_little_that_asks_for_much_is_refused(name, monkeypatch):
    monkeypatch.setattr(restricted, "MOST_ENTRIES", 10_000)
    with pytest.raises(FileError, match="more than 10,000 entries"):
        loads(LARGE[name])


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_array_is_refused(name):
    with pytest.raises(FileError, match=r"^some\.npy "):
        loads(WRONG[name], "some.npy")


def test_nothing_of_ours_can_be_set_by_a_pickle():
    before = {kind: dict(vars(kind)) for kind in (restricted._Array, restricted._Dtype, restricted._Scalar)}
    for name in ("the state of a class", "the state of a name", "the state of a built-in"):
        with pytest.raises(FileError):
            loads(WRONG[name])
    assert before == {kind: dict(vars(kind)) for kind in before}
    assert builtins.set is set


@pytest.mark.parametrize(
    ("limit", "value", "data"),
    [("MOST_ENTRIES", 5, [1, 2, 3, 4, 5, 6]), ("MOST_INSTRUCTIONS", 5, [1, 2, 3, 4]), ("DEPTH", 2, [[[[1]]]])],
)
def test_limits_hold(limit, value, data, monkeypatch):
    assert loads(pickle.dumps(data)) == data
    monkeypatch.setattr(restricted, limit, value)
    with pytest.raises(FileError, match=r"deeper than 2|more than 5"):
        loads(pickle.dumps(data))


def test_files_that_are_none(tmp_path, monkeypatch):
    with pytest.raises(FileError, match=r"gone\.npy is missing"):
        load(tmp_path / "gone.npy")
    (tmp_path / "text.npy").write_text("text")
    with pytest.raises(FileError, match=r"text\.npy cannot be read as an array"):
        load(tmp_path / "text.npy")
    np.save(tmp_path / "a.npy", {"a": 1}, allow_pickle=True)  # type: ignore[arg-type]
    monkeypatch.setattr(restricted, "MOST_BYTES", 9)
    with pytest.raises(FileError, match=r"a\.npy has .* legal: at most 9"):
        load(tmp_path / "a.npy")


def test_instructions_are_all_known_to_python():
    assert {code.name for code in pickletools.opcodes} > restricted._INSTRUCTIONS
