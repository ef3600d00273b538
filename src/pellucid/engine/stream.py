"""Stream: an answer as it comes."""

from __future__ import annotations

import contextlib
from collections import deque
from types import TracebackType

from pellucid.core.errors import PellucidError
from pellucid.core.outputs import Increment
from pellucid.engine.engine import Engine
from pellucid.engine.gathered import Gathering
from pellucid.engine.request import Request


class _Pending:
    """Increments that nobody has looked at yet, and what went wrong."""

    def __init__(self) -> None:
        self.increments: deque[Increment] = deque()
        self.error: PellucidError | None = None

    def add(self, increment: Increment) -> None:
        self.increments.append(increment)

    def fail(self, error: PellucidError) -> None:
        self.error = error


class Stream(Gathering):
    """Iterates over the increments of a request, running the engine as it goes.

    Whoever leaves the loop, by `break` or by an exception, ends the request: its pages go back
    when the stream is closed, or when nothing refers to it any more. `output()` is what has come
    so far, with the metrics once it is finished.
    """

    def __init__(self, engine: Engine, request: Request) -> None:
        super().__init__(request)
        self._engine = engine
        self._pending = _Pending()
        self._generation = engine.prepare(request, self._pending)
        engine.enlist(self._generation)

    def close(self) -> None:
        """End the request if it has not ended; again does no harm."""
        self._engine.abort(self._generation)
        while self._pending.increments:
            self._gathered.add(self._pending.increments.popleft())

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Increment:
        try:
            self._engine.run_until(self._ready)
            if self._pending.error is not None:
                raise self._pending.error
            if not self._pending.increments:
                raise StopIteration
        except BaseException:
            self.close()
            raise
        increment = self._pending.increments.popleft()
        self._gathered.add(increment)
        return increment

    def _ready(self) -> bool:
        return bool(self._pending.increments) or self._generation.finished

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # at interpreter exit parts may be gone already
            self.close()
