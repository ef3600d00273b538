"""Work that takes a while: bars on standard error, and how it ends when it is told to."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """One bar; the function it gives takes how much is done, and of how much."""
    with bars() as show:
        yield lambda done, total: show(label, done, total)


@contextmanager
def bars() -> Iterator[Callable[[str, int, int], None]]:
    """A bar for each label that the function it gives is called with, below one another; it takes
    the label, how much is done, and of how much."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskID,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    tasks: dict[str, TaskID] = {}
    shown = Progress(*columns, console=Console(stderr=True), refresh_per_second=4)

    def show(label: str, done: int, total: int) -> None:
        if not tasks:  # what fails before there is a bar says one line and no more
            shown.start()
        if label not in tasks:
            tasks[label] = shown.add_task(label, total=None)
        shown.update(tasks[label], completed=done, total=total)

    try:
        yield show
    finally:
        if tasks:
            shown.stop()


@contextmanager
def ending_on_signals() -> Iterator[None]:
    """While the block runs, SIGTERM and the terminal's going (SIGHUP, but under nohup) end the
    process as Ctrl-C does, what was begun cleared away; its exit code is that of the signal. For
    the main thread."""
    ends = [signal.SIGTERM, signal.SIGHUP]
    before = {each: signal.getsignal(each) for each in ends}
    for number, known in before.items():
        if known is not signal.SIG_IGN:
            signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        for number, known in before.items():
            signal.signal(number, known)
