"""How far the cells of a grid are: bars on a terminal, lines elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from sprii_train.experiments.cells import Cell
from sprii_train.terminal import console

Show = Callable[[str, int, float], None]
"""Called with a cell's title, the steps that it has done, and its self loss at the last of them."""


@contextmanager
def display(cells: Sequence[Cell], clock: Callable[[], float] = time.monotonic) -> Iterator[Show]:
    """Bars on a terminal, a line every ten seconds elsewhere."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    total = sum({c.title: c.steps for c in cells}.values())  # a source that is measured often is trained once
    at = {c.title: 0 for c in cells}
    if sys.stderr.isatty():
        columns = (
            TextColumn("{task.description:<28}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[loss]}", markup=False),
        )
        with Progress(*columns, console=console(stderr=True)) as progress:
            overall = progress.add_task("all steps", total=total, loss="")
            bars = {c.title: progress.add_task(c.title, total=c.steps, loss="", visible=False) for c in cells}

            def show(title: str, step: int, loss: float) -> None:
                at[title] = step
                text = f"self {loss:.4f}" if loss == loss else ""
                progress.update(bars[title], completed=step, loss=text, visible=True)
                progress.update(overall, completed=sum(at.values()))

            yield show
        return
    started = spoken = clock()

    def line(title: str, step: int, loss: float) -> None:
        nonlocal spoken
        at[title] = step
        if clock() - spoken > 10:
            spoken = clock()
            done = sum(at.values())
            running = ", ".join(
                f"{t} {s}" for t, s in at.items() if 0 < s < next(c.steps for c in cells if c.title == t)
            )
            print(f"{spoken - started:6.0f} s  {done}/{total} steps  {running}", file=sys.stderr, flush=True)

    yield line
