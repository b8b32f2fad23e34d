"""A CUDA device that has shapes and no numbers, so that what a GPU would be asked can be watched without one.

Tensors on it are torch's fake tensors, those on the CPU are real. An operation that mixes devices as CUDA refuses is an
error here too; what would make the host wait for the device is noted, by the line of this project that asks.
"""

import ctypes
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    unset_fake_temporarily,
)
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import sprii_train

CUDA = torch.device("cuda:0")
PROJECT = Path(sprii_train.__file__).parent
aten = torch.ops.aten
QUEUED = "_to_copy", "copy_", "empty", "zeros", "ones", "new_"
"""What operations begin with that take tensors of both devices and do not wait for that; of copies, see `_awaited`."""


class Wait(NamedTuple):
    """An operation that waits for the device, and the line of this project that asks for it."""

    operation: str
    file: str
    line: int
    function: str


def _cell(gates: Tensor, hidden: Tensor, state: Tensor, *_: Any) -> tuple[Tensor, ...]:
    return torch.empty_like(state), gates.new_empty(len(state), 5 * state.shape[1])


def _cell_backward(grad: Tensor, workspace: Tensor, bias: bool) -> tuple[Tensor, ...]:
    three = grad.new_empty(len(grad), 3 * grad.shape[1])
    return three, three.clone(), torch.empty_like(grad), three[0], three[0].clone()


RECURRENT = {"_thnn_fused_gru_cell": _cell, "_thnn_fused_gru_cell_backward": _cell_backward}


class Watch(TorchDispatchMode):
    """What of a block would wait for the device.

    Attributes:
        waits: → how often.
    """

    def __init__(self, fake: FakeTensorMode) -> None:
        super().__init__()
        self.fake, self.waits = fake, Counter[Wait]()

    def note(self, operation: str) -> None:
        frame: Any = sys._getframe(1)
        while frame and not Path(frame.f_code.co_filename).is_relative_to(PROJECT):
            frame = frame.f_back
        if frame is None:  # no line of this project
            self.waits[Wait(operation, "", 0, "")] += 1
        else:
            file = Path(frame.f_code.co_filename).relative_to(PROJECT)
            self.waits[Wait(operation, file.as_posix(), frame.f_lineno, frame.f_code.co_name)] += 1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        given = [each for each in pytree.arg_tree_leaves(*args, **kwargs) if isinstance(each, Tensor)]
        fakes = [each for each in given if isinstance(each, FakeTensor)]
        asked = kwargs.get("device")
        to = None if asked is None else torch.device(asked).type
        if not fakes and to != "cuda":
            with unset_fake_temporarily():  # a tensor of the CPU is real
                return args[0] if name == "_pin_memory" else func(*args, **kwargs)
        if fakes and (name == "_local_scalar_dense" or to == "cpu" or _copies_back(name, args)):
            self.note(name)
            return _ones(name, args, kwargs)
        if name in RECURRENT:  # torch has no shapes of theirs
            return RECURRENT[name](*args)
        if _awaited(name, args, kwargs, [each for each in given if not isinstance(each, FakeTensor)]):
            self.note(name)
        try:
            return func(*args, **kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException):  # what the host would ask for
            self.note(name)
            raise


def _copies_back(name: str, args: Any) -> bool:
    return name == "copy_" and not isinstance(args[0], FakeTensor)


def _awaited(name: str, args: Any, kwargs: Mapping[str, Any], real: list[Tensor]) -> bool:
    """Of an operation of the device, given some tensors of the CPU too."""
    if name in ("_to_copy", "copy_"):
        return bool(real) and not (kwargs.get("non_blocking") or (name == "copy_" and len(args) > 2 and args[2]))
    if "index_put" in name and any(each is not None and each.dtype == torch.bool for each in args[1]):
        return args[2].numel() > 1  # one number fills a mask; others are put in places, which are counted first
    # A number of the CPU is a kernel's argument; as an index, or as what is put at one, it is copied.
    mixed = not name.startswith(QUEUED) and any(each.ndim or "index" in name for each in real)
    return mixed or name == "_linalg_check_errors"


def _ones(name: str, args: Any, kwargs: Mapping[str, Any]) -> Any:
    """What the host gets to see: finite, true."""
    with unset_fake_temporarily():
        if name == "copy_":
            return args[0].fill_(1)
        like = torch.ones(args[0].shape, dtype=kwargs.get("dtype") or args[0].dtype)
        return like.item() if name == "_local_scalar_dense" else like


def backward(loss: Tensor) -> None:
    """`loss.backward()` in this thread: autograd's own engine asks the device for streams."""
    root: Any = loss.grad_fn
    order: list[Any] = []
    seen: set[Any] = set()
    stack: list[tuple[Any, bool]] = [(root, False)]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack += [(node, True), *((after, False) for after, _ in node.next_functions if after is not None)]
    due: dict[Any, list[Tensor | None]] = {root: [torch.ones_like(loss)]}
    with torch.no_grad():
        for node in reversed(order):
            if (given := due.pop(node, None)) is None:
                continue
            if hasattr(node, "variable"):  # a leaf
                held, (grad,) = node.variable, given
                held.grad = grad if held.grad is None else held.grad + grad
                continue
            edges = node.next_functions
            run: Any = node if callable(node) else cast(Any, node).apply  # of an `autograd.Function` in Python
            found = run(*given)
            found = found if isinstance(found, tuple) else (found,)
            assert all(grad is None for grad in found[len(edges) :])  # of what is no tensor
            for grad, (after, place) in zip(found, edges, strict=False):
                if after is None or grad is None:
                    continue
                like = after._input_metadata
                if grad.shape != like[place].shape:
                    grad = grad.sum_to_size(like[place].shape)
                slots = due.setdefault(after, [None] * len(like))
                grad, other = grad.to(like[place].dtype), slots[place]
                slots[place] = grad if other is None else other + grad


@contextmanager
def fake_cuda() -> Iterator[Watch]:
    """Watch a block in which the device exists."""
    lifted = torch._C._only_lift_cpu_tensors()
    with (
        _guard(),
        patch.object(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False),  # autocast asks it
        patch.object(torch.cuda, "is_bf16_supported", lambda: True),
        patch.object(Tensor, "backward", backward),
        torch.backends.cudnn.flags(enabled=False),
        FakeTensorMode(allow_non_fake_inputs=True) as fake,
        Watch(fake) as watch,
    ):
        torch._C._set_only_lift_cpu_tensors(True)  # else the copy of `torch.tensor(…, device=…)` is not seen
        try:
            yield watch
        finally:
            torch._C._set_only_lift_cpu_tensors(lifted)


def on_cuda(module: nn.Module) -> nn.Module:
    """The module with its tensors on the device; in place."""
    for part in module.modules():
        for held in cast(tuple[dict[str, Any], ...], (part._parameters, part._buffers)):
            for name, tensor in held.items():
                if tensor is not None:
                    moved = torch.empty(tensor.shape, dtype=tensor.dtype, device=CUDA)
                    held[name] = nn.Parameter(moved, tensor.requires_grad) if held is part._parameters else moved
    return module


@contextmanager
def _guard() -> Iterator[None]:
    """A build for CPUs alone has nothing that switches to a CUDA device; give it torch's own that does nothing.

    Torch puts that there in place of any that counts no devices, so one whose every function returns 0 goes first.
    """
    library = Path(torch.__file__).parent / "lib" / "libc10.so"
    try:
        registry = (ctypes.c_void_p * 24).in_dll(ctypes.CDLL(str(library)), "_ZN3c104impl26device_guard_impl_registryE")
    except (OSError, ValueError):
        pytest.skip("this build of torch has its registry of devices elsewhere")
    own = registry[1]
    if not own:
        registry[1] = ctypes.addressof(_NO_DEVICES)
        torch._C._ensureCUDADeviceGuardSet()
        if registry[1] == ctypes.addressof(_NO_DEVICES):
            registry[1] = None
            pytest.skip("this build of torch has no guard that does nothing")
    try:
        yield
    finally:
        registry[1] = own


_ZERO = ctypes.CFUNCTYPE(ctypes.c_int64)(lambda: 0)
_TABLE = (ctypes.c_void_p * 64)(*[ctypes.cast(_ZERO, ctypes.c_void_p).value] * 64)
_NO_DEVICES = ctypes.c_void_p(ctypes.addressof(_TABLE))
