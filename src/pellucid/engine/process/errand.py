"""Errand: one request on its way to whichever child serves.

    waiting --a child serves--> sent --first letter--> begun --last letter, the child's end--> over
     ^ `-none comes in time--> over `--the child's end: asked again, once--.
     `---------------------------------------------------------------------'

Nothing of a request that has not begun was seen by anybody, so that another child may answer it as
if nothing had happened. It is asked again once: a request that a child died of twice may be why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pellucid.core.errors import BadInput, PellucidError, Unavailable
from pellucid.engine.async_stream import Arrivals, Letter
from pellucid.engine.process.connection import Connection
from pellucid.engine.process.supervisor import Supervisor
from pellucid.engine.request import Request

_TRIES = 2


class Errand:
    """`on_end` is called with the last letter. Belongs to one event loop."""

    def __init__(
        self, request: Request, supervisor: Supervisor, on_end: Callable[[], None]
    ) -> None:
        self.arrivals = Arrivals()
        self._request = request
        self._supervisor = supervisor
        self._on_end = on_end
        self._tries = 0
        self._begun = False
        self._sent: tuple[Connection, int] | None = None
        self._waiting: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Send it, or wait for a child to send it to."""
        try:
            connection = self._supervisor.present()
        except Unavailable:
            self._wait()
        else:
            self._send(connection)

    def receive(self, letter: Letter) -> None:
        """From the child."""
        self._begun = True
        self.arrivals.receive(letter)
        if isinstance(letter, PellucidError) or letter.metrics is not None:
            self._on_end()

    def lost(self, error: PellucidError) -> None:
        """The child is gone."""
        self._sent = None
        if self._begun or self._tries == _TRIES:
            self.receive(error)
        else:
            self._wait()

    def cut(self) -> None:
        """Nobody listens any more."""
        if self._waiting is not None:
            self._waiting.cancel()
        if self._sent is not None:
            connection, channel = self._sent
            connection.cut(channel)

    def abort(self, patience_s: float) -> None:
        """End it, and say so; if the child does not within `patience_s`, here."""
        if self._sent is None:
            self.cut()
            self.receive(Unavailable("it was ended while the engine was being started again"))
            return
        connection, channel = self._sent
        connection.cut(channel, listening=True)
        asyncio.get_running_loop().call_later(patience_s, connection.give_up, channel)

    def _wait(self) -> None:
        self._waiting = asyncio.get_running_loop().create_task(self._send_later())

    async def _send_later(self) -> None:
        try:
            connection = await self._supervisor.connection()
        except BadInput:
            self.receive(Unavailable("the engine was closed before it answered"))
        except PellucidError as error:
            self.receive(error)
        else:
            self._waiting = None
            self._send(connection)

    def _send(self, connection: Connection) -> None:
        self._tries += 1
        channel = connection.add(self._request, self)
        if channel is not None:
            self._sent = connection, channel
