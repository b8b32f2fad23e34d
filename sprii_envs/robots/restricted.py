"""Pickles that hold arrays, numbers, text and containers; anything else in them is refused, and nothing of it is run.

Recordings are published as dicts that `numpy.save` pickled, and a pickle is a program. Three things keep it from doing
anything: its instructions are checked before any is followed, each name that it asks for is looked up in `ADMITTED`
only, and what stands there is ours: NumPy itself meets bytes that were compared with their shape, never a pickle.
"""

import io
import math
import pickle
import pickletools
import re
from collections.abc import Collection, Mapping
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from sprii_envs import files

MOST_BYTES = 2**29
"""Of a file."""
MOST_INSTRUCTIONS = 2 * 10**7
"""One may make an object of some two hundred bytes: 4 GB at worst; a minute of eight cameras at 100 Hz is a fifth."""
MOST_ENTRIES = 2 * 10**7
"""Of all containers together, and of one with all that stands in it, counted once for each place."""
DEPTH = 32
"""Of containers in each other."""

_NEEDED = (
    "MARK STOP POP POP_MARK DUP PROTO FRAME NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 LONG4 "
    "FLOAT BINFLOAT STRING BINSTRING SHORT_BINSTRING UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 BINBYTES "
    "SHORT_BINBYTES BINBYTES8 BYTEARRAY8 EMPTY_LIST LIST APPEND APPENDS EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 "
    "EMPTY_DICT DICT SETITEM SETITEMS EMPTY_SET ADDITEMS FROZENSET GET BINGET LONG_BINGET PUT BINPUT "
    "LONG_BINPUT MEMOIZE GLOBAL STACK_GLOBAL REDUCE BUILD "
)
_INSTRUCTIONS = frozenset(_NEEDED.split())
_CODE = re.compile(r"[iu][1248]|f[248]|c(8|16)|b1|[SU]\d{1,6}|O8?")
_ATOMS = (type(None), bool, int, float, complex, str, bytes, bytearray)


class RefusedPickleError(files.FileError):
    """A pickle that asks for more than arrays and containers; the message names the file and what it asks for."""


class _Dtype:
    """What stands for `numpy.dtype`."""

    __slots__ = ("code", "order")

    def __init__(self, code: Any, align: Any = False, copy: Any = True) -> None:
        code = code.decode("ascii") if isinstance(code, bytes) else code
        if not isinstance(code, str) or not _CODE.fullmatch(code):
            raise ValueError("an array of a dtype other than numbers, booleans, text and objects")
        self.code, self.order = code, "="

    def __setstate__(self, state: Any) -> None:
        order = state[1].decode("ascii") if isinstance(state[1], bytes) else state[1]
        if order not in ("<", ">", "|", "=") or any(part is not None for part in state[2:5]):
            raise ValueError("a dtype with fields or an unknown byte order")
        self.order = order

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.order + self.code)


class _Array:
    """What stands for an array until its bytes are known."""

    __slots__ = ("data", "dtype", "order", "shape")

    def __init__(self, kind: Any, shape: Any, code: Any) -> None:
        if kind is not _NDARRAY:
            raise ValueError("an array of a class other than numpy.ndarray")
        self.data: Any = None

    def __setstate__(self, state: Any) -> None:
        _, self.shape, dtype, fortran, self.data = state
        self._known(dtype, "F" if fortran else "C")

    def _known(self, dtype: Any, order: str) -> None:
        whole = isinstance(self.shape, tuple) and all(type(n) is int and n >= 0 for n in self.shape)
        if not isinstance(dtype, _Dtype) or not whole or len(self.shape) > DEPTH:
            raise ValueError("an array without a shape or dtype")
        self.dtype, self.order = dtype.dtype, order


class _Buffer(_Array):
    """What stands for `_frombuffer`, of the fifth protocol."""

    __slots__ = ()

    def __init__(self, data: Any, dtype: Any, shape: Any, order: Any) -> None:
        if order not in ("C", "F"):
            raise ValueError("an array of an unknown order")
        self.data, self.shape = data, shape
        self._known(dtype, order)


class _Scalar:
    """What stands for a NumPy number."""

    __slots__ = ("data", "dtype")

    def __init__(self, dtype: Any, data: Any) -> None:
        if not isinstance(dtype, _Dtype) or dtype.dtype.hasobject:
            raise ValueError("a number without a dtype")
        self.dtype, self.data = dtype.dtype, data


class _Text:
    """What stands for `_codecs.encode` and `bytes`, with which the second protocol writes bytes and no bytes."""

    __slots__ = ("data",)

    def __init__(self, text: Any = "", encoding: Any = "latin1") -> None:
        if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
            raise ValueError("bytes in an unknown encoding")
        self.data = text


class _Set:
    """What stands for `set`, which is made later: a pickle may ask for many of one long list."""

    __slots__ = ("entries",)
    kind: type = set

    def __init__(self, entries: Any = ()) -> None:
        if not isinstance(entries, list | tuple):
            raise ValueError("a set of no list")
        self.entries = entries


class _FrozenSet(_Set):
    """What stands for `frozenset`."""

    __slots__ = ()
    kind = frozenset


_NDARRAY = object()
"""What stands for the class `numpy.ndarray`; a plain object has nothing that a pickle could set."""

ADMITTED: Mapping[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): _Dtype,
    **{
        (f"numpy.{core}.{module}", name): admitted
        for core in ("core", "_core")  # before and since NumPy 2
        for module, name, admitted in (
            ("multiarray", "_reconstruct", _Array),
            ("multiarray", "scalar", _Scalar),
            ("numeric", "_frombuffer", _Buffer),
        )
    },
    **dict.fromkeys((("_codecs", "encode"), ("builtins", "bytes"), ("__builtin__", "bytes")), _Text),
    **{
        (module, name): admitted
        for module in ("builtins", "__builtin__")  # the latter before the third protocol
        for name, admitted in (("set", _Set), ("frozenset", _FrozenSet), ("complex", complex))
    },
}
"""(module, name) → what it means here; every other name is refused."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str, /) -> Any:
        try:
            return ADMITTED[module, name]
        except KeyError:
            raise RefusedPickleError(f"{module}.{name}") from None

    def persistent_load(self, pid: Any) -> NoReturn:
        raise RefusedPickleError("an object kept elsewhere")


def load(path: files.StrPath) -> Any:
    """What an `.npy` file holds: an array, or what was pickled into it, with arrays that may be read only.

    An array of one object, which is how `numpy.save` writes a dict, is that object.

    Raises:
        RefusedPickleError: naming the file and the name that its pickle asks for.
        FileError: naming the file, if it is missing, damaged, or beyond the limits above.
    """
    path = files.absolute(path)
    try:
        if path.stat().st_size > MOST_BYTES:
            raise files.FileError(f"{path} has {path.stat().st_size:,} bytes; legal: at most {MOST_BYTES:,}")
        data = path.read_bytes()
    except FileNotFoundError:
        raise files.FileError(f"{path} is missing") from None
    except OSError as error:
        raise files.FileError(f"{path} cannot be read: {error.strerror}") from error
    handle = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(handle)
        header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, _, dtype = header(handle)
        if not dtype.hasobject:
            if (wanted := math.prod(shape) * dtype.itemsize) != (there := len(data) - handle.tell()):
                raise ValueError(f"its header tells of {wanted:,} bytes, {there:,} are there")
            return np.load(io.BytesIO(data), allow_pickle=False)
    except Exception as error:  # NumPy raises nearly anything for a damaged file
        raise files.FileError(f"{path} cannot be read as an array: {error}") from error
    found = loads(data[handle.tell() :], path)
    if not isinstance(found, np.ndarray) or found.shape != shape:
        raise files.FileError(f"{path} is damaged: its pickle is not the array of shape {shape} that its header tells")
    return found.item() if found.shape == () else found


def loads(data: bytes, name: object = "the pickle") -> Any:
    """What a pickle holds; `name` is what errors call it.

    Raises:
        RefusedPickleError, FileError: as `load`.
    """
    try:
        _check(data)
        return _Plain()(_Unpickler(io.BytesIO(data), encoding="latin-1").load())[0]
    except RefusedPickleError as error:
        raise RefusedPickleError(
            f"{name} asks for {error}, no NumPy array, number or built-in container; it is refused, nothing was run"
        ) from None
    except MemoryError:
        raise files.FileError(f"{name} is refused: it asks for more memory than there is") from None
    except Exception as error:  # hostile instructions fail in any way
        raise files.FileError(f"{name} is damaged or refused: {type(error).__name__}: {error}") from error


def _check(data: bytes) -> None:
    """Refuse instructions that no array or container needs, and places of a memo that it could not have filled."""
    put, number = 0, 0
    for number, (code, argument, _) in enumerate(pickletools.genops(data), 1):
        if code.name not in _INSTRUCTIONS:
            raise RefusedPickleError(f"the instruction {code.name}")
        if code.name == "GLOBAL" and (asked := tuple(str(argument).split(" ", 1))) not in ADMITTED:
            raise RefusedPickleError(".".join(asked))
        if code.name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            put += 1
            if argument is not None and not 0 <= argument <= 2 * put + 256:  # room for a memo is taken up to there
                raise ValueError(f"place {argument} of a memo of {put}")
        if number > MOST_INSTRUCTIONS:
            raise ValueError(f"more than {MOST_INSTRUCTIONS:,} instructions")


class _Plain:
    """Arrays and containers in place of what stands for them; what is made is counted before it is made."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, int] | None] = {}
        self._spent = 0

    def __call__(self, value: Any, depth: int = 0) -> tuple[Any, int]:
        """(what it is, entries of it); ValueError for what holds itself, is too deep or too large."""
        if isinstance(value, _ATOMS):
            return value, 1
        if id(value) in self._known:
            if (known := self._known[id(value)]) is None:
                raise ValueError("a container that holds itself")
            return known
        if depth > DEPTH:
            raise ValueError(f"containers deeper than {DEPTH}")
        self._known[id(value)] = None
        made = self._known[id(value)] = self._made(value, depth + 1)
        if made[1] > MOST_ENTRIES:  # places where one container stands in many
            raise ValueError(f"more than {MOST_ENTRIES:,} entries")
        return made

    def _made(self, value: Any, depth: int) -> tuple[Any, int]:
        if isinstance(value, dict):
            keys, before = self._each(value, depth)
            values, size = self._each(value.values(), depth)
            return dict(zip(keys, values, strict=True)), before + size
        if isinstance(value, list | tuple | set | frozenset):
            entries, size = self._each(value, depth)
            return type(value)(entries), size
        if isinstance(value, _Set):
            entries, size = self._each(value.entries, depth)
            return value.kind(entries), size
        if isinstance(value, _Array):
            return self._array(value, depth)
        if isinstance(value, _Scalar):
            return self._filled(value.data, (), value.dtype, "C")[()], 1
        if isinstance(value, _Text):
            return self._bytes(value), 1
        raise ValueError("something that is no array, number, text or container")

    def _each(self, values: Collection[Any], depth: int) -> tuple[list[Any], int]:
        """What values are, and entries of them with their container."""
        self._spend(len(values))
        made = [self(each, depth) for each in values]
        return [each for each, _ in made], 1 + sum(size for _, size in made)

    def _spend(self, entries: int) -> None:
        self._spent += entries
        if self._spent > MOST_ENTRIES:
            raise ValueError(f"more than {MOST_ENTRIES:,} entries")

    def _array(self, array: _Array, depth: int) -> tuple[NDArray[Any], int]:
        if array.data is None:
            raise ValueError("an array without its bytes")
        if not array.dtype.hasobject:
            return self._filled(array.data, array.shape, array.dtype, array.order), 1
        if not isinstance(array.data, list):
            raise ValueError("an array of objects that are no list")
        entries, size = self._each(array.data, depth)
        flat = np.empty(len(entries), object)
        for i, each in enumerate(entries):
            flat[i] = each
        return flat.reshape(array.shape, order=array.order), size  # type: ignore[call-overload]

    def _bytes(self, data: Any) -> Any:
        """Bytes, of a text that stands for them."""
        text = data.data if isinstance(data, _Text) else data
        if not isinstance(text, str):
            return text
        self._spend(len(text))
        return text.encode("latin-1")

    def _filled(self, data: Any, shape: tuple[int, ...], dtype: np.dtype[Any], order: str) -> NDArray[Any]:
        """An array over bytes, which are as many as it needs."""
        data, count = self._bytes(data), math.prod(shape)
        if not isinstance(data, bytes | bytearray) or count * dtype.itemsize != len(data):
            raise ValueError(f"an array of shape {shape} whose bytes are not as many")
        return np.ndarray(shape, dtype, data, order=order) if count else np.zeros(shape, dtype)  # type: ignore[arg-type]
