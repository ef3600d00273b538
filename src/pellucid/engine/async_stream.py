"""AsyncStream: an answer as it comes, in an event loop.

The engine is elsewhere (another thread, another process). What it gives crosses over once a step:
`Outbox.put` there, `Arrivals.receive` in the event loop. The state of a stream is touched in its
event loop alone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from types import TracebackType

from pellucid.core.errors import BadInput, PellucidError
from pellucid.core.outputs import Increment
from pellucid.engine.gathered import Gathering
from pellucid.engine.request import Request

Letter = Increment | PellucidError


# Increments that may lie unread before they are joined.
_UNJOINED = 64


class Arrivals:
    """What has come of one request and was not looked at. Belongs to one event loop.

    Increments that nobody reads are joined, so that what lies here is bounded by the answer.
    """

    def __init__(self) -> None:
        self.letters: deque[Letter] = deque()
        self._waiter: asyncio.Future[None] | None = None

    @property
    def awaited(self) -> bool:
        """Whether somebody waits for a letter."""
        return self._waiter is not None

    def receive(self, letter: Letter) -> None:
        """In the event loop: an increment, or the error that ends the request."""
        if len(self.letters) < _UNJOINED or not self._joined(letter):
            self.letters.append(letter)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _joined(self, letter: Letter) -> bool:
        """Adds an increment to an earlier one of its answer; False where that would lose its place
        as the last."""
        if isinstance(letter, PellucidError) or letter.finish_reason is not None:
            return False
        for earlier in reversed(self.letters):
            if isinstance(earlier, Increment) and earlier.index == letter.index:
                earlier.text += letter.text
                earlier.token_ids += letter.token_ids
                if earlier.logprobs is not None and letter.logprobs is not None:
                    earlier.logprobs += letter.logprobs
                return True
        return False

    async def wait(self) -> None:
        """Until there is a letter. One task may."""
        try:
            while not self.letters:
                self._waiter = asyncio.get_running_loop().create_future()
                await self._waiter
        finally:
            self._waiter = None


class AsyncStream(Gathering):
    """Iterates over the increments of a request.

    Leaving the loop by an exception, cancelling the task that waits, `aclose`, the end of an `async
    with` block, and dropping the last reference all end the request; its pages go back within one
    step. `output()` is what was seen so far, with the metrics once it is finished.

    `abort` tells the engine that nobody listens any more; it is called once at most.
    """

    def __init__(self, request: Request, arrivals: Arrivals, abort: Callable[[], None]) -> None:
        super().__init__(request)
        self._arrivals = arrivals
        self._abort: Callable[[], None] | None = abort

    @property
    def unread(self) -> int:
        """Letters that have come and were not looked at."""
        return len(self._arrivals.letters)

    def close(self) -> None:
        """End the request if it has not ended, and listen no more; again does no harm."""
        abort, self._abort = self._abort, None
        if abort is not None and not self._gathered.finished:
            abort()

    async def aclose(self) -> None:
        self.close()

    def __aiter__(self) -> AsyncStream:
        return self

    async def __anext__(self) -> Increment:
        """The next increment. Raises the `PellucidError` that ended the request, and `BadInput` if
        another task is waiting for it: an increment goes to one of them."""
        if self._abort is None or self._gathered.finished:
            raise StopAsyncIteration
        arrivals = self._arrivals
        if arrivals.awaited:
            raise BadInput("another task waits for this stream: have one task read it")
        if not arrivals.letters:
            try:
                await arrivals.wait()
            except BaseException:
                self.close()
                raise
        letter = arrivals.letters.popleft()
        if isinstance(letter, PellucidError):
            self.close()
            raise letter
        self._gathered.add(letter)
        return letter

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # at interpreter exit parts may be gone already
            self.close()
