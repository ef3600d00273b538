"""PlacedStream: an answer as it comes from a replica."""

from __future__ import annotations

from pellucid.distributed.running import Running
from pellucid.engine.async_stream import AsyncStream


class PlacedStream(AsyncStream):
    """As `AsyncStream`, and says whose answer it is."""

    def __init__(self, running: Running) -> None:
        super().__init__(running.request, running.arrivals, running.leave)
        self._running = running

    @property
    def replica(self) -> str | None:
        """Who has taken the request last."""
        return self._running.replica

    async def taken(self) -> None:
        """Until a replica has taken the request, which has a bound. Raises why none does."""
        try:
            await self._running.settled()
        except BaseException:
            self.close()
            raise
