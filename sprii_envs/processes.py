"""Pools of spawned processes that know no interrupts and die with their parent, even one that was killed."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing.connection import wait as wait_for
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class InOrder(Protocol):
    """Runs `work(item)` for each item somewhere, and gives the results in their order.

    `work` can be pickled; BrokenProcessPool where a worker was lost.
    """

    def __call__(self, work: Callable[[T], R], items: Iterable[T]) -> Generator[R]: ...


__all__ = ["BrokenProcessPool", "InOrder", "in_order", "job", "pool", "without_interrupts"]

_JOB: tuple[Any, ...] = ()


@contextlib.contextmanager
def pool(workers: int, *kept: object) -> Iterator[ProcessPoolExecutor]:
    """Processes that keep `kept`, which each reads with `job()`; what was not begun when the block ends is cancelled.

    Spawned workers do not inherit locks, which a forked one would hold beyond a killed parent. Tasks are submitted
    `without_interrupts`, for a submission may start a worker. BrokenProcessPool where one was killed or cannot start.
    """
    context = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(workers, context, initializer=_start, initargs=kept)
    try:
        yield executor
    finally:
        with _uninterrupted():
            executor.shutdown(cancel_futures=True)


def in_order(work: Callable[[T], R], items: Iterable[T], workers: int) -> Generator[R]:
    """`work(item)` for each item, in their order; at most two results a worker wait to be taken.

    With one worker nothing is started. `work` must be importable where a worker is spawned; see `pool`.
    """
    if workers == 1:
        yield from map(work, items)
        return
    left = iter(items)
    with pool(workers) as executor:
        waiting: deque[Future[R]] = deque()
        while True:
            with without_interrupts():
                waiting.extend(executor.submit(work, item) for item in islice(left, 2 * workers - len(waiting)))
            if not waiting:
                return
            yield waiting.popleft().result()


@contextlib.contextmanager
def without_interrupts() -> Iterator[None]:
    """Ctrl-C is the parent's: a worker that it ends while it reads keeps a lock, for which the others wait for ever."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # which processes that are started inherit
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def job() -> tuple[Any, ...]:
    """What the pool of this worker keeps."""
    return _JOB


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """A second Ctrl-C does not stop the stopping."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _start(*kept: object) -> None:
    """Keep what every task needs, and die with the parent, which cannot say goodbye after `kill -9`."""
    global _JOB
    _JOB = kept
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=lambda: (wait_for([parent.sentinel]), os._exit(1)), daemon=True).start()
