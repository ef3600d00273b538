"""Stream: an answer as it comes."""

from __future__ import annotations

import contextlib
from types import TracebackType

from pellucid.core.outputs import Increment, RequestOutput
from pellucid.engine.engine import Engine
from pellucid.engine.generation import Generation


class Stream:
    """Iterates over the increments of a request, running the engine as it goes.

    Whoever leaves the loop, by `break` or by an exception, ends the request: its pages go back
    when the stream is closed, or when nothing refers to it any more. `output()` is what has come
    so far, with the metrics once it is finished.
    """

    def __init__(self, engine: Engine, generation: Generation) -> None:
        self._engine = engine
        self._generation = generation

    @property
    def prompt_token_ids(self) -> list[int]:
        return list(self._generation.request.prompt_token_ids)

    @property
    def finished(self) -> bool:
        return self._generation.finished

    def output(self) -> RequestOutput:
        """Everything so far."""
        return self._generation.output()

    def close(self) -> None:
        """End the request if it has not ended; again does no harm."""
        self._engine.abort(self._generation)
        self._generation.increments.clear()

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Increment:
        try:
            if not self._engine.advance(self._generation):
                raise StopIteration
        except BaseException:
            self.close()
            raise
        return self._generation.increments.popleft()

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
