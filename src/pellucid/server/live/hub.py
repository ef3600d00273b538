"""Hub: one look at the engine for all who watch."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final

from pellucid.core.errors import PellucidError
from pellucid.core.record import PageMap
from pellucid.costs.stages import Stage
from pellucid.engine.client import Teller
from pellucid.engine.records import BEGINNING, EngineAbout, Records
from pellucid.server.live.journeys import Journeys
from pellucid.server.live.window import SPANS_EVERY_S, Parts, Window

logger = logging.getLogger("pellucid.server")

_AFTER_FAILURE_S: Final = 0.5
# Of messages that a viewer has not taken yet.
_UNREAD: Final = 60
_UNREAD_BYTES: Final = 8 << 20


class Viewer:
    """What one viewer is to be sent. An asynchronous iterator of messages in JSON."""

    def __init__(self, window: Window, *, spans: bool = False) -> None:
        self.spans = spans
        self._window = window
        self._unread: deque[Parts] = deque([window.all()])
        self._bytes = self._unread[0].size
        self._dropped = 0
        self._missed = self._ended = False
        self._news = asyncio.Event()
        self._news.set()

    def put(self, parts: Parts, window: Window) -> None:
        """More for it; the oldest goes where there is too much."""
        self._window = window
        self._unread.append(parts)
        self._bytes += parts.size
        while len(self._unread) > 1 and (
            len(self._unread) > _UNREAD or self._bytes > _UNREAD_BYTES
        ):
            lost = self._unread.popleft()
            self._bytes -= lost.size
            self._dropped += lost.n
            self._missed = True
        self._news.set()

    def end(self) -> None:
        """Nothing more comes."""
        self._ended = True
        self._news.set()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        while not self._unread:
            if self._ended:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        parts = self._unread.popleft()
        self._bytes -= parts.size
        if self._missed:  # how a request ended may have been in what was lost
            parts, self._missed = self._window.with_all_requests(parts), False
        window = self._window
        dropped = window.dropped + self._dropped
        return parts.message(dropped, window.engine, spans=self.spans)


class Hub:
    """Looks at the engine while somebody watches, and hands on what it sees; ids of tokens, which
    are somebody's text, only with `ids`. `is_gone`: an engine that failed will not come back."""

    def __init__(
        self,
        client: Teller,
        journeys: Journeys,
        *,
        ids: bool = False,
        is_gone: Callable[[], bool] = lambda: False,
    ) -> None:
        self._client = client
        self._is_gone = is_gone
        self.journeys = journeys
        self.ids = ids
        self._window: Window | None = None
        self.known: EngineAbout | None = None
        """The engine that was looked at last."""
        self._listeners: list[Callable[[Records], None]] = []
        self._cursor = BEGINNING
        self._viewers: set[Viewer] = set()
        self._looking: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._closed = False

    @property
    def stages(self) -> tuple[Stage, ...] | None:
        """What the stamps of steps are of, once there are some."""
        return None if self._window is None else self._window.stages

    @contextlib.contextmanager
    def listener(self, take: Callable[[Records], None]) -> Iterator[None]:
        """`take` is given all that is read as long as this lasts, spans too."""
        self._listeners.append(take)
        self._begin()
        try:
            yield
        finally:
            self._listeners.remove(take)

    @property
    def looking(self) -> bool:
        """Whether the engine is asked again and again."""
        return self._looking is not None

    async def about(self) -> EngineAbout:
        """What the engine is, as of now."""
        return await self._client.about()

    async def snapshot(self) -> bytes:
        """The window of now, as one message."""
        _, window = await self.look()
        return window.all().message(window.dropped, window.engine, spans=True)

    async def page_map(self, with_tokens: bool = False) -> tuple[int, PageMap, Window]:
        """Who owns which page, the number of the next step, and who the owners are."""
        step, found = await self._client.page_map(with_tokens)
        _, window = await self.look()
        return step, found, window

    def close(self) -> None:
        """End what viewers are sent: the server is shutting down."""
        self._closed = True
        for viewer in self._viewers:
            viewer.end()

    @contextlib.asynccontextmanager
    async def viewer(self, *, spans: bool = False) -> AsyncIterator[Viewer]:
        """Somebody watches as long as this lasts; with `spans`, the parts of forward passes too.
        Raises `PellucidError` without an engine."""
        _, window = await self.look()
        viewer = Viewer(window, spans=spans)
        self._viewers.add(viewer)
        if self._closed:
            viewer.end()
        self._begin()
        try:
            yield viewer
        finally:
            self._viewers.discard(viewer)

    def _begin(self) -> None:
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._keep_looking())

    async def _keep_looking(self) -> None:
        """As long as there are viewers."""
        try:
            while (self._viewers or self._listeners) and not self._closed:
                try:
                    records = await self._client.news(self._cursor, self._stamps_every())
                    async with self._lock:
                        await self._take(records, watching=True)
                    continue
                except PellucidError:  # an engine that is started again comes back
                    if self._is_gone():
                        self.close()
                except Exception:
                    logger.exception("the records could not be read")
                await asyncio.sleep(_AFTER_FAILURE_S)
        finally:
            self._looking = None

    async def look(self) -> tuple[Parts, Window]:
        """What is new by now, told to all viewers."""
        async with self._lock:
            records = await self._client.records(self._cursor, self._stamps_every())
            return await self._take(records, watching=False)

    async def _take(self, records: Records, *, watching: bool) -> tuple[Parts, Window]:
        window = self._window
        if window is None or window.engine != records.cursor.epoch:
            window = await self._new_window()
        records = records.beyond(self._cursor)
        self._cursor = records.cursor.or_later(self._cursor)
        parts = window.take(records, watching=watching)
        for take in tuple(self._listeners):
            take(records)
        if parts.n:
            for viewer in self._viewers:
                viewer.put(parts, window)
        return parts, window

    def _stamps_every(self) -> float | None:
        if self._listeners:
            return 0.0
        return SPANS_EVERY_S if any(viewer.spans for viewer in self._viewers) else None

    async def _new_window(self) -> Window:
        """For an engine that was not seen before."""
        self.known = about = await self._client.about()
        self._window = Window(about, self.journeys, ids=self.ids)
        return self._window
