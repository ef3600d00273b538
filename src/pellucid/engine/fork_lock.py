"""A lock for what a forked child inherits.

A child has none of its parent's other threads. A lock that one of them held would stay locked for
ever, around something half done: in the child there is a new one instead, and its owner is told.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable


class ForkLock:
    """A reentrant lock. `lost` is called, with the new lock held, by the first who enters it in a
    child that was forked while another thread held it."""

    def __init__(self, lost: Callable[[], None]) -> None:
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._lost = lost

    def __enter__(self) -> None:
        if self._process != os.getpid():
            self._inherit()
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def _inherit(self) -> None:
        # A child has one thread until it makes others, which find this done if it entered before.
        held_by_another = not self._lock.acquire(blocking=False)
        if not held_by_another:
            self._lock.release()
            self._process = os.getpid()
            return
        self._lock = threading.RLock()
        self._process = os.getpid()
        with self._lock:
            self._lost()
