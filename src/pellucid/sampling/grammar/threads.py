"""Threads with room for deep recursion: a grammar's is bounded by what its trial ran on."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from pellucid.sampling.grammar.limits import DEEP_STACK

_STARTING = threading.Lock()  # the size of stacks is the process's


@contextlib.contextmanager
def _stacks_of(size: int) -> Iterator[None]:
    """Threads that are started meanwhile have stacks of `size` bytes."""
    with _STARTING:
        before = threading.stack_size(size)
        try:
            yield
        finally:
            threading.stack_size(before)


def pool(n_threads: int) -> ThreadPoolExecutor:
    """All of its threads are there at once: those that came later would have other stacks."""
    threads = ThreadPoolExecutor(n_threads, thread_name_prefix="grammar")
    all_there = threading.Barrier(n_threads)
    with _stacks_of(DEEP_STACK):
        started: list[Future[int]] = [threads.submit(all_there.wait) for _ in range(n_threads)]
    for future in started:
        future.result()
    return threads


def run_with_stack(size: int, work: Callable[[], None]) -> None:
    """Runs `work` on a thread of its own with a stack of `size` bytes, to its end."""
    thread = threading.Thread(target=work, name="grammar")
    with _stacks_of(size):
        thread.start()
    thread.join()
