"""A progress bar over many requests, on standard error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Protocol

from pellucid.core.record import StepRecord
from pellucid.hub import Progress
from pellucid.quant.mixes import Mix


class Stepping(Protocol):
    """What tells of its steps: an engine, or an `AsyncLLM` in an event loop."""

    def subscribe(self, subscriber: Callable[[StepRecord], object], /) -> Callable[[], None]: ...


@contextmanager
def quantising_bar(progress: Progress, mix: Mix | None) -> Iterator[Callable[[int, int], None]]:
    """Bytes of a model's file that are quantised, where any are; the function it gives takes how
    many are done, and of how many."""
    with ExitStack() as stack:
        report: Callable[[int], None] | None = None

        def advance(done: int, total: int) -> None:
            nonlocal report
            if mix is None:
                return
            if report is None:
                report = stack.enter_context(progress.bar(f"quantising to {mix.name}", total))
            report(done)

        yield advance


@contextmanager
def no_bar() -> Iterator[Callable[[], None]]:
    """Shows nothing."""
    yield lambda: None


@contextmanager
def counting_bar(n_requests: int, n_ended: int = 0) -> Iterator[Callable[[int], None]]:
    """How many of `n_requests` have ended, `n_ended` of them before, computed wherever; the
    function it gives is told how many more."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("answers"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bars(*columns, console=Console(stderr=True), refresh_per_second=4) as shown:
        task = shown.add_task("", total=n_requests, completed=n_ended)
        yield lambda n: shown.advance(task, n)


@contextmanager
def progress_bar(
    engine: Stepping, n_requests: int, n_ended: int = 0
) -> Iterator[Callable[[], None]]:
    """How many of `n_requests` have ended, `n_ended` of them before, and tokens a second: read of
    prompts, and written.

    The function it gives is called when a request ends.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("answers"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("read {task.fields[read]:.0f} tok/s, wrote {task.fields[written]:.0f} tok/s"),
    )
    with Bars(*columns, console=Console(stderr=True), refresh_per_second=4) as shown:
        task = shown.add_task("", total=n_requests, completed=n_ended, read=0.0, written=0.0)
        begin = time.monotonic()
        read = written = 0

        def count(record: StepRecord) -> None:
            nonlocal read, written
            written += sum(map(len, record.tokens.values()))
            read += sum(span.n_tokens for span in record.spans if span.n_tokens > span.n_logits)
            seconds = time.monotonic() - begin
            shown.update(task, read=read / seconds, written=written / seconds)

        unsubscribe = engine.subscribe(count)
        try:
            yield lambda: shown.advance(task)
        finally:
            unsubscribe()
