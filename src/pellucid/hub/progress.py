"""How a fetch shows itself while it runs.

`Progress` is all the rest of this package knows of a screen. Everything a `Progress` writes goes to
standard error, so that an answer on standard output stays clean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

Report = Callable[[int], None]


class Progress(Protocol):
    def note(self, message: str) -> None:
        """One line about what happens next."""

    def bar(self, label: str, total: int) -> AbstractContextManager[Report]:
        """A bar of `total` bytes; the function it gives takes the bytes done so far."""


class SilentProgress:
    """Shows nothing."""

    def note(self, message: str) -> None:
        del message

    @contextmanager
    def bar(self, label: str, total: int) -> Iterator[Report]:
        del label, total
        yield lambda done: None


class TerminalProgress:
    """Bars on standard error; plain lines where that is not a terminal."""

    def note(self, message: str) -> None:
        from rich.console import Console

        Console(stderr=True).print(message, markup=False, highlight=False, soft_wrap=True)

    @contextmanager
    def bar(self, label: str, total: int) -> Iterator[Report]:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )
        from rich.progress import Progress as Bars

        console = Console(stderr=True)
        if not console.is_terminal:
            self.note(f"{label} ({total / 1e6:.1f} MB)")
            yield lambda done: None
            return
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
        )
        with Bars(*columns, console=console) as bars:
            task = bars.add_task(label, total=total)
            yield lambda done: bars.update(task, completed=done)
