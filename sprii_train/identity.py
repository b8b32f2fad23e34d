"""What a run depends on, as digests: the code that objects run, their constants and attributes, and tensors.

Code is taken as Python has compiled it, from the objects themselves: a module's file, a notebook's cell and `exec` are
alike, the values of globals, closures, defaults and partials count, comments, docstrings and formatting do not. It is
followed through everything of one's own that it refers to; the standard library, installed packages and environments
and banks (which have versions and fingerprints) count by name.
"""

import contextlib
import dis
import functools
import hashlib
import importlib
import importlib.util
import sys
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from types import (
    BuiltinFunctionType,
    CodeType,
    EllipsisType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    NoneType,
)
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_PLAIN = (NoneType, bool, int, float, complex, str, bytes, EllipsisType, range, slice)
_ACCESSORS = (FunctionType, staticmethod, classmethod, property)
_MODULE_STATE = frozenset(vars(nn.Module()))
_KEEPERS = (
    "sprii_train.checkpoints",
    "sprii_train.records",
    "sprii_train.experiments.cells",
    "sprii_train.experiments.grid",
    "sprii_train.learners",
    "sprii_envs.relations.arrays",
    "sprii_envs.relations.audit",
    "sprii_envs.relations.table",
    __name__,
)
"""Modules that keep what others compute, and the register of learners, of which a run depends on its own alone."""
_LAWS = ("sprii_envs.relations", "sprii_envs.standardiser")
"""What a bank's fingerprint does not cover of how its episodes become batches."""
_INDIRECT = frozenset({"getattr", "vars", "globals", "eval", "exec", "import_module", "__import__"})
"""Names by which code reaches what it does not name."""
_PLACED = ("__doc__", "__firstlineno__")  # that a class body stores, and that say nothing of what it does


def code_of(*objects: Any) -> dict[str, str]:
    """Digests, by module, of the code that functions, classes, instances or learners run.

    Of an instance that is no module the attributes count too. An installed package counts by name, except where one of
    `objects` is of it.
    """
    walk = _Walk(objects)
    for value in objects:
        walk.root(value)
    return walk.digests()


cell_code = functools.cache(code_of)
"""`code_of` as it was when first asked for: a grid, which looks at its cells all the time, begins with a new cache."""


def learner_state(learner: nn.Module) -> tuple[str, str]:
    """Digests of a module's tensors (parameters, all buffers, extra state) and of every other attribute of its tree."""
    walk = _Walk([learner])
    tensors = _tensors(learner)
    extra = {name: value for name, value in learner.state_dict().items() if name not in tensors}
    weights = "\n".join(f"{name} {walk.of(value)}" for name, value in sorted((tensors | extra).items()))
    walk.name_tensors(learner)
    return digest(weights), digest(walk.of(learner))


def plain_attributes(value: Any) -> str:
    """A digest of an object's public attributes that are numbers, text, arrays, or tuples of them."""
    held = getattr(value, "__dict__", {})
    return digest(repr([(k, _Walk(()).of(v)) for k, v in sorted(held.items()) if k[0] != "_" and _is_plain(v)]))


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return isinstance(value, (*_PLAIN, np.ndarray, np.generic, Tensor))


class _Walk:
    """Descriptions as text; functions and classes are referred to by name, and what they are is kept by module."""

    def __init__(self, objects: Any) -> None:
        classes = (value if isinstance(value, FunctionType | type) else type(value) for value in objects)
        self._own = {_top(value.__module__) for value in classes} - {
            "torch",
            "numpy",
            "builtins",
            "functools",
            "sprii_envs",
        }
        self._names: dict[int, str] = {}
        self._seen: dict[int, str] = {}  # of the description at hand, so that a change elsewhere does not renumber it
        self._kept: list[Any] = []  # so that no other object gets the id of one that is named
        self._counts: defaultdict[str, int] = defaultdict(int)
        self._waiting: deque[tuple[str, Any]] = deque()
        self._code: defaultdict[str, list[str]] = defaultdict(list)

    def root(self, value: Any) -> None:
        """Take in what a value refers to, and what it is unless it is a module, whose state is no code."""
        if isinstance(value, nn.Module):
            self.name_tensors(value)
            self.of(value)
        else:
            module = _module(value if isinstance(value, FunctionType | type) else type(value))
            told = self.of(value)
            if not self._foreign(module):
                self._code[module].append(told)

    def name_tensors(self, module: nn.Module) -> None:
        """Refer to a module's tensors by name, whatever they hold."""
        for name, value in _tensors(module).items():
            self.name(value, f"tensor {name}")

    def digests(self) -> dict[str, str]:
        """Of everything referred to so far, by module."""
        while self._waiting:
            module, value = self._waiting.popleft()
            self._seen.clear()
            told = self._class(value) if isinstance(value, type) else self._function(value)
            self._code[module].append(f"{self._names[id(value)]} {told}")
        return {module: digest("\n".join(parts))[:16] for module, parts in sorted(self._code.items())}

    def name(self, value: Any, name: str) -> str:
        """Refer to an object by that name from now on."""
        self._kept.append(value)
        return self._names.setdefault(id(value), name)

    def of(self, value: Any) -> str:
        """The description of any value."""
        if type(value) in _PLAIN:
            return repr(value)
        if known := self._names.get(id(value)) or self._seen.get(id(value)):
            return known
        if isinstance(value, Tensor):
            return _tensor(value) + "".join(map(self.of, (value._backward_hooks or {}).values()))
        if isinstance(value, np.ndarray | np.generic):
            array = np.asarray(value)
            return self.of(array.tolist()) if array.dtype.hasobject else _array(array)
        if isinstance(value, CodeType):
            return self._instructions(value)
        if isinstance(value, ModuleType):
            return self._whole_module(value)
        if (source := _uncompiled(value)) is not value:
            return f"compiled {self.of(source)}"
        if isinstance(value, FunctionType | type):
            return self._reference(value)
        if type(value) is tuple:
            return f"tuple({', '.join(map(self.of, value))})"
        if type(value) is frozenset:
            return f"frozenset({', '.join(self._unordered(value))})"
        self._kept.append(value)
        self._seen[id(value)] = f"#{len(self._seen)}"
        return f"{self._seen[id(value)]}={self._object(value)}"

    def _whole_module(self, module: ModuleType) -> str:
        """A module held as a value: of one's own all of its file counts, for nobody can tell what of it is used."""
        if (
            not self._foreign(module.__name__)
            and _top(module.__name__) != "sprii_train"
            and (file := getattr(module, "__file__", None))
        ):
            self._code[module.__name__].append(self._instructions(_file_code(file)))
        return self.name(module, f"module {module.__name__}")

    def _reference(self, value: Any) -> str:
        module = _module(value)
        label = f"{module}.{value.__qualname__}"
        if self._foreign(module):
            return self.name(value, label)
        self._counts[label] += 1
        self._waiting.append((module, value))
        return self.name(value, f"{label}#{self._counts[label]}")

    def _unordered(self, values: Iterable[Any]) -> list[str]:
        """Descriptions of a set's members, each by itself: their order is another in every process."""
        parts, seen = [], self._seen
        for item in values:
            self._seen = {}
            parts.append(self.of(item))
        self._seen = seen
        return sorted(parts)

    def _object(self, value: Any) -> str:
        kind = type(value)
        if kind is list:
            return f"list({', '.join(map(self.of, value))})"
        if kind is set:
            return f"set({', '.join(self._unordered(value))})"
        if kind is dict:
            return f"dict({', '.join(f'{self.of(k)}: {self.of(v)}' for k, v in value.items())})"
        if isinstance(value, Enum):
            return f"{self.of(kind)}.{value.name}"
        if isinstance(value, nn.Module):
            return self._nn_module(value)
        if isinstance(value, property):
            return f"property {self.of((value.fget, value.fset, value.fdel))}"
        if isinstance(value, MethodType | staticmethod | classmethod):
            return f"{kind.__name__} {self.of(value.__func__)} {self.of(getattr(value, '__self__', None))}"
        if isinstance(value, BuiltinFunctionType):
            return f"{value.__module__}.{value.__qualname__} {self.of(value.__self__)}"
        if (wrapped := getattr(value, "__wrapped__", None)) is not None:  # functools.cache and the like
            return f"{self.of(kind)} {self.of(wrapped)}"
        try:
            _, *state = value.__reduce_ex__(4)
        except Exception:  # locks, files, generators: what cannot be copied
            return f"{self.of(kind)} {self.of(_lasting(kind, getattr(value, '__dict__', None)))}"
        parts = (self.of(list(part) if hasattr(part, "__next__") else _lasting(kind, part)) for part in state)
        return f"{self.of(kind)} ({', '.join(parts)})"

    def _nn_module(self, module: nn.Module) -> str:
        held = vars(module)
        tensors = [
            f"{name} {self.of(value)} {value is not None and value.requires_grad}"
            for name, value in (held["_parameters"] | held["_buffers"]).items()
        ]
        children = [f"{name} {self.of(child)}" for name, child in held["_modules"].items()]
        lasting = _lasting(type(module), held)
        others = [f"{name} {self.of(value)}" for name, value in lasting.items() if name not in _MODULE_STATE]
        hooks = [
            f"{name} {self.of(hook)}"
            for name in sorted(_MODULE_STATE - {"_parameters", "_buffers", "_modules"})
            if name.endswith("hooks")
            for hook in (held.get(name) or {}).values()
        ]
        return f"{self.of(type(module))} ({', '.join([*tensors, *children, *others, *hooks])})"

    def _class(self, value: type) -> str:
        parts = [self.of(type(value)), *map(self.of, value.__mro__[1:])]
        for name, member in sorted(vars(value).items()):
            special = name[:2] == "__" or name == "_abc_impl"
            if isinstance(member, MemberDescriptorType | GetSetDescriptorType) or (
                special and not isinstance(member, _ACCESSORS)
            ):
                continue
            parts.append(f"{name} {self.of(member)}")
        return "\n".join(parts)

    def _function(self, value: FunctionType) -> str:
        if getattr(value, "hooked", False):  # torch wraps an optimiser's step when the first of its class is made
            value = getattr(value, "__wrapped__", value)
        code = _code(value)
        parts = [self.of(code), self.of(value.__defaults__), self.of(value.__kwdefaults__)]
        for cell in value.__closure__ or ():
            try:
                parts.append(self.of(cell.cell_contents))
            except ValueError:  # assigned later, or never
                parts.append("empty")
        names, attributes, imported = _references(code, value.__globals__)
        outer = value.__globals__
        modules = [m for m in map(self._own_module, imported) if m is not None]
        indirect = _INDIRECT & {*names, *attributes}
        for name in names:
            if name in outer:
                module = outer[name]
                if isinstance(module, ModuleType) and not indirect:  # what is used of it follows
                    parts.append(f"{name} module {module.__name__}")
                else:
                    parts.append(f"{name} {self.of(module)}")
                if isinstance(module, ModuleType) and not self._foreign(module.__name__):
                    modules.append(module)
        if indirect & {"globals", "eval", "exec"} and (own := self._own_module(value.__module__)) is not None:
            parts.append(self._whole_module(own))
        for module in modules:  # grows while it is walked, by modules in modules
            for name in attributes:
                if name in vars(module):
                    found = vars(module)[name]
                    parts.append(f"{module.__name__}.{name} {self.of(found)}")
                    if isinstance(found, ModuleType) and not self._foreign(found.__name__) and found not in modules:
                        modules.append(found)
        return "\n".join([*parts, self.of(vars(value))])

    def _own_module(self, name: str) -> ModuleType | None:
        """A module of one's own that a function imports when it runs."""
        if self._foreign(name):
            return None
        try:
            return importlib.import_module(name)
        except Exception:  # it may not be there, nor needed
            return None

    def _instructions(self, code: CodeType) -> str:
        listed = list(dis.get_instructions(code))
        stored = [i.argval if i.opname == "STORE_NAME" else None for i in listed[1:]] + [None]
        shown = [
            f"{instruction.opname} {self.of(instruction.argval)}"
            for instruction, name in zip(listed, stored, strict=True)
            if name not in _PLACED and instruction.argval not in _PLACED
        ]
        signature = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
        return f"code {signature} {code.co_exceptiontable!r} ({', '.join(shown)})"

    def _foreign(self, module: str) -> bool:
        top = _top(module)
        if module in _KEEPERS:
            return True
        if top in self._own or top in ("__main__", "sprii_train"):
            return False
        if top == "sprii_envs":
            return not module.startswith(_LAWS)
        if top in sys.stdlib_module_names or top.startswith("namedtuple_"):
            return True
        origin = _origin(top)
        return origin is not None and bool({"site-packages", "dist-packages"} & set(Path(origin).parts))


def _lasting(kind: type, state: Any) -> Any:
    """An object's attributes without those that a `cached_property` has kept, which follow from the others."""
    if type(state) is not dict:
        return state
    kept = {k for k in state if isinstance(k, str) and isinstance(getattr(kind, k, None), functools.cached_property)}
    return {k: v for k, v in state.items() if k not in kept}


def _code(function: FunctionType) -> CodeType:
    """A function's code; as its file has it where an import hook (of pytest, of a type checker) has rewritten it."""
    code = function.__code__
    loader = getattr(sys.modules.get(function.__module__), "__loader__", None)
    if loader is None or loader.__module__.startswith("_frozen_importlib"):
        return code
    place = code.co_qualname, code.co_firstlineno
    written = (
        each for each in _nested(_file_code(code.co_filename)) if (each.co_qualname, each.co_firstlineno) == place
    )
    return next(written, code)


@functools.cache
def _file_code(path: str) -> CodeType:
    try:
        return compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError):
        return compile("", path, "exec")


def _references(code: CodeType, outer: Mapping[str, Any]) -> tuple[list[str], list[str], list[str]]:
    """Names of globals, of attributes, and of modules imported on the way, that code and the code in it refer to."""
    names, attributes, imported = dict[str, None](), dict[str, None](), dict[str, None]()
    for part in _nested(code):
        before: list[Any] = []
        for instruction in dis.get_instructions(part):
            operation, argument = instruction.opname, instruction.argval
            if operation in ("LOAD_GLOBAL", "LOAD_NAME"):
                names[argument] = None
            elif operation == "IMPORT_NAME":
                with contextlib.suppress(ImportError, TypeError):  # the level and the names stand before it
                    imported[importlib.util.resolve_name("." * before[-2] + argument, outer.get("__package__"))] = None
            elif operation == "IMPORT_FROM" or operation.startswith(("LOAD_ATTR", "LOAD_METHOD")):
                attributes[argument] = None
            before.append(argument)
    return list(names), sorted(attributes), list(imported)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _origin(top: str) -> str | None:
    module = sys.modules.get(top)
    try:
        spec = importlib.util.find_spec(top) if module is None else None
    except (ImportError, ValueError):
        return None
    if module is not None:
        return getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), None)
    return spec.origin if spec is not None else None


def _module(value: Any) -> str:
    module = getattr(value, "__module__", None) or "builtins"
    return "__main__" if module == "__mp_main__" else module  # a spawned process's name of the same script


def _top(module: str | None) -> str:
    return (module or "builtins").partition(".")[0]


def _uncompiled(value: Any) -> Any:
    """What `torch.compile` has wrapped: its wrappers hold addresses, which are others in every process."""
    if isinstance(value, FunctionType):
        return vars(value).get("_torchdynamo_orig_callable", value)
    return value._orig_mod if type(value).__name__ == "OptimizedModule" else value


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    return dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers(remove_duplicate=False))


def _tensor(value: Tensor) -> str:
    data = value.detach().cpu().contiguous()
    content = hashlib.sha256(data.flatten().view(torch.uint8).numpy().tobytes()) if data.numel() else hashlib.sha256()
    return f"tensor {data.dtype} {tuple(data.shape)} {content.hexdigest()}"


def _array(value: np.ndarray) -> str:
    little = np.ascontiguousarray(value.astype(value.dtype.newbyteorder("<"), copy=False))
    return f"array {little.dtype.str} {value.shape} {hashlib.sha256(little.tobytes()).hexdigest()}"


def digest(text: str) -> str:
    """SHA-256 (hex) of a text."""
    return hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()
