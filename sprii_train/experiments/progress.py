"""How far the cells of a grid are: bars on a terminal, lines elsewhere."""

import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sprii_train.experiments.cells import Cell
from sprii_train.terminal import console

_LINE, _BEAT = 10.0, 60.0  # seconds between lines while steps are taken, and while none are


@dataclass(frozen=True)
class Display:
    """What a grid tells of its cells.

    Attributes:
        told: of a cell's title, the steps that it has done, and its self loss at the last of them.
        running: called again and again with the titles of the cells that run: those that train no more, and those that
            do not yet, say nothing of themselves, and a measure may take an hour.
    """

    told: Callable[[str, int, float], None]
    running: Callable[[Collection[str]], None]


@contextmanager
def display(cells: Sequence[Cell], clock: Callable[[], float] = time.monotonic) -> Iterator[Display]:
    """Bars on a terminal; elsewhere a line every ten seconds, and every minute while no step is taken."""
    yield from _bars(cells, clock) if sys.stderr.isatty() else _lines(cells, clock)


def _bars(cells: Sequence[Cell], clock: Callable[[], float]) -> Iterator[Display]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description:<28}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[said]}", markup=False),
    )
    steps = _steps(cells)
    at, since = dict.fromkeys(steps, 0), dict[str, float]()
    with Progress(*columns, console=console(stderr=True)) as progress:
        overall = progress.add_task("all steps", total=sum(steps.values()), said="")
        bars = {title: progress.add_task(title, total=n, said="", visible=False) for title, n in steps.items()}

        def told(title: str, step: int, loss: float) -> None:
            if step == at[title]:  # said again, as by a launcher that reads a file
                return
            at[title], since[title] = step, clock()
            text = f"self {loss:.4f}" if loss == loss else ""
            progress.update(bars[title], completed=step, said=text, visible=True)
            progress.update(overall, completed=sum(at.values()))

        def running(titles: Collection[str]) -> None:
            for title, bar in bars.items():
                if 0 < at[title] < steps[title]:
                    continue
                if title in titles:
                    seconds = clock() - since.setdefault(title, clock())
                    doing = _without_steps(at[title], steps[title])
                    progress.update(bar, said=f"{doing}, {seconds:.0f} s", visible=True)
                else:
                    progress.update(bar, said="")

        yield Display(told, running)


def _lines(cells: Sequence[Cell], clock: Callable[[], float]) -> Iterator[Display]:
    steps = _steps(cells)
    at = dict.fromkeys(steps, 0)
    started = spoken = clock()
    busy: Collection[str] = ()

    def line() -> None:
        nonlocal spoken
        spoken, told = clock(), []
        for title in steps:
            if 0 < at[title] < steps[title]:
                told.append(f"{title} {at[title]}")
            elif title in busy:
                told.append(f"{title} {_without_steps(at[title], steps[title])}")
        done = f"{spoken - started:6.0f} s  {sum(at.values())}/{sum(steps.values())} steps"
        print(f"{done}  {', '.join(told)}", file=sys.stderr, flush=True)

    def told(title: str, step: int, loss: float) -> None:
        if step == at[title]:
            return
        at[title] = step
        if clock() - spoken > _LINE:
            line()

    def running(titles: Collection[str]) -> None:
        nonlocal busy
        busy = titles
        if clock() - spoken > _BEAT:
            line()

    yield Display(told, running)


def _without_steps(done: int, steps: int) -> str:
    """What a cell does that takes no step; one that was trained before and is measured anew has told of none."""
    return "measuring" if done == steps else "no step yet"


def _steps(cells: Sequence[Cell]) -> dict[str, int]:
    """Of each title, once: a source that is measured often is trained once."""
    return {cell.title: cell.steps for cell in cells}
