"""Operations: one at a time, on a scheduler that is whole.

Several threads may use one engine: an operation is alone as long as it lasts. A change of the
scheduler that was cut short (Ctrl-C) leaves it torn: nothing in it can be trusted, and it is mended
before anything else is done with it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from types import TracebackType

from pellucid.core.errors import BadInput
from pellucid.engine.forks import after_fork


class Change:
    """A block in which the scheduler is changed. `torn` as long as one lasts or after it was cut
    short. `BadInput` is a refusal: nothing was changed."""

    __slots__ = ("_depth", "torn")

    def __init__(self) -> None:
        self.torn = False
        self._depth = 0

    def begin_anew(self) -> None:
        """Whatever lasted has ended; what comes next is to mend it."""
        self._depth = 0

    def __enter__(self) -> None:
        self.torn = True
        self._depth += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._depth -= 1
        if not self._depth and (kind is None or issubclass(kind, BadInput)):
            self.torn = False


class Operations:
    """`mend` is called where a change was cut short, `tidy` before and after each operation."""

    def __init__(self, mend: Callable[[], None], tidy: Callable[[], None]) -> None:
        self.changing = Change()
        self._mend = mend
        self._tidy = tidy
        self.lock = threading.RLock()
        self._inside = threading.Lock()  # held by an operation, by that which holds `lock`
        after_fork(self, Operations._mend_after_fork)

    @property
    def under_way(self) -> bool:
        """Whether there is one, of whatever thread."""
        return self._inside.locked()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """One operation of one thread."""
        # Of locks Python itself takes back, whatever line an interrupt falls on.
        with self.lock:
            if self._inside.locked():  # a part of a larger operation
                yield
                return
            with self._inside:
                try:
                    self._put_right()
                    yield
                finally:
                    self._put_right()

    def _put_right(self) -> None:
        if self.changing.torn:
            self.changing.begin_anew()
            with self.changing:
                self._mend()
        self._tidy()

    def _mend_after_fork(self) -> None:
        """In a child; what another thread was in the middle of, nobody ends there."""
        if self.lock.acquire(blocking=False):  # this thread's own, or nobody's
            self.lock.release()
            return
        self.lock, self._inside = threading.RLock(), threading.Lock()
        self.changing.torn = True
