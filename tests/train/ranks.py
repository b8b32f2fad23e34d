"""Two gloo ranks, each a process of its own: call them with a function, and get what it returned on each."""

import io
import multiprocessing as mp
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist


class Ranks:
    """`ranks(function, …)` is the list of the ranks' results; `function` is of a module. Started once, used often."""

    def __init__(self, folder: Path, world: int = 2) -> None:
        context: Any = mp.get_context("forkserver" if "forkserver" in mp.get_all_start_methods() else "spawn")
        if context.get_start_method() == "forkserver":
            context.set_forkserver_preload(["sprii_train.experiments.targets"])  # as the grid's own processes
        self.pipes, self.processes = [], []
        for rank in range(world):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(rank, world, str(folder / "store"), theirs), daemon=True)
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        for pipe in self.pipes:
            pipe.send_bytes(_packed((function, arguments)))
        outcomes = [_unpacked(pipe.recv_bytes()) for pipe in self.pipes]
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return outcomes

    def __enter__(self) -> "Ranks":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for pipe in self.pipes:
            pipe.close()
        for process in self.processes:
            process.join(2)
            process.kill()  # leaving takes torch a while


def _packed(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def _unpacked(data: bytes) -> Any:
    return torch.load(io.BytesIO(data), weights_only=False)


def _work(rank: int, world: int, store: str, pipe: Connection) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    while True:
        try:
            function, arguments = _unpacked(pipe.recv_bytes())
        except EOFError:
            break
        try:
            outcome = function(*arguments)
        except Exception as error:
            error.add_note(f"on rank {rank}")
            outcome = error
        pipe.send_bytes(_packed(outcome))
    dist.destroy_process_group()
