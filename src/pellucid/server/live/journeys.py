"""Journeys: what the server saw of requests: when they came in, and when the last byte left."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pellucid.core.errors import PellucidError
from pellucid.core.outputs import Increment

if TYPE_CHECKING:
    from pellucid.server.guard import Watched

KEPT: Final = 1024


class Journey:
    """An HTTP request on its way. Times are seconds of `time.monotonic`; `sent` is None until the
    last byte of its response was handed to the system. `told_tokens` is how many tokens its
    response says that its answers have."""

    __slots__ = ("_on_sent", "received", "sent", "told_tokens")

    def __init__(self) -> None:
        self.received = time.monotonic()
        self.sent: float | None = None
        self.told_tokens: int | None = None
        self._on_sent: list[Callable[[], None]] = []

    def has_sent(self) -> None:
        """All of the response is out."""
        if self.sent is None:
            self.sent = time.monotonic()
            for told in self._on_sent:
                told()

    def when_sent(self, told: Callable[[], None]) -> None:
        """Have `told` called then."""
        self._on_sent.append(told)


class Journeys:
    """The last journeys, by the ids that the engine's requests have. In the event loop alone. A
    `Watcher` of the guard."""

    def __init__(self) -> None:
        self._by_request: OrderedDict[str, Journey] = OrderedDict()
        self._sent: OrderedDict[str, None] = OrderedDict()

    def begin(self, request_id: str, journey: Journey) -> None:
        """The engine is asked for `request_id` on behalf of `journey`."""
        self._by_request[request_id] = journey
        while len(self._by_request) > KEPT:
            self._by_request.popitem(last=False)
        journey.when_sent(lambda: self._ended(request_id))

    def of(self, request_id: str) -> Journey | None:
        """The journey of a request, if it came by HTTP and is remembered."""
        return self._by_request.get(request_id)

    def began(self, request: Watched) -> None:
        """It is on its way already."""

    def grew(self, request: Watched, increment: Increment, now: float) -> None:
        """Tokens are counted at the end."""

    def ended(self, request: Watched, error: PellucidError | None) -> None:
        journey = self._by_request.get(request.request_id)
        if journey is not None and request.metrics is not None:
            journey.told_tokens = request.metrics.generation_tokens

    def refused(self, reason: str) -> None:
        """It never was."""

    def take_sent(self) -> list[str]:
        """The requests whose responses were sent since this was last asked."""
        sent = list(self._sent)
        self._sent.clear()
        return sent

    def _ended(self, request_id: str) -> None:
        self._sent[request_id] = None
        if len(self._sent) > KEPT:
            self._sent.popitem(last=False)
