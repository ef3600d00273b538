"""Threads with room for deep recursion: a grammar's is bounded by what its trial ran on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from pellucid.sampling.grammar.limits import DEEP_STACK


def pool(n_threads: int) -> ThreadPoolExecutor:
    """All of its threads are there at once, since the stack's size is the process's to say."""
    threads = ThreadPoolExecutor(n_threads, thread_name_prefix="grammar")
    all_there = threading.Barrier(n_threads)
    before = threading.stack_size(DEEP_STACK)
    try:
        started: list[Future[int]] = [threads.submit(all_there.wait) for _ in range(n_threads)]
    finally:
        threading.stack_size(before)
    for future in started:
        future.result()
    return threads


def run_with_stack(size: int, work: Callable[[], None]) -> None:
    """Runs `work` on a thread of its own with a stack of `size` bytes, to its end."""
    thread = threading.Thread(target=work, name="grammar")
    before = threading.stack_size(size)
    try:
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
