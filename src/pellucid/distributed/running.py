"""Running: one request, asked of a replica, and of another as long as nothing has come."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from pellucid.core.errors import PellucidError, Unavailable
from pellucid.distributed.contact import GONE, TRIES, Contact, in_short
from pellucid.distributed.patience import Patience
from pellucid.distributed.placement import Route
from pellucid.distributed.report import Report
from pellucid.engine.apart import id_there
from pellucid.engine.async_stream import Arrivals
from pellucid.engine.process.letters import Failure, increment_of
from pellucid.engine.request import Request

logger = logging.getLogger("pellucid.distributed")

_ABORT_S: Final = 5.0


@dataclass(slots=True)
class Tally:
    """Of the requests of one client: `retried`, asked of another replica after theirs had ended;
    `lost`, ended with theirs; `numbered`, given a name of their own over there."""

    retried: int = 0
    lost: int = 0
    numbered: int = 0

    def name(self, request_id: str) -> str:
        """What a request is called over there."""
        self.numbered += 1
        return id_there(request_id, self.numbered)


class Running:
    """`arrivals` is what comes of the request, an error last if it ends by one."""

    def __init__(self, contact: Contact, tally: Tally, request: Request) -> None:
        self.arrivals = Arrivals()
        self.replica: str | None = None  # that has taken it last
        self._contact = contact
        self._tally = tally
        self.request = request
        self._where: tuple[str, str] | None = None  # the replica, and the request's name there
        self._answer: list[int] = []  # of one answer: a page holds what came of one sequence
        self._begun = self._aborted = self._over = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._settled = asyncio.Event()
        self._error: PellucidError | None = None
        self.task = asyncio.create_task(self._run())

    async def settled(self) -> None:
        """Until a replica has taken it. Raises why it ended if none did."""
        await self._settled.wait()
        if self.replica is None and self._error is not None:
            raise self._error

    def leave(self) -> None:
        """Nobody listens any more."""
        self._over = True
        self._settled.set()
        self.task.cancel()

    def abort(self) -> None:
        """Have it end with what it has."""
        self._aborted = True
        if self._where is not None:
            self._abort_there(*self._where)
        late = Unavailable("the replica does not answer: ask again")
        asyncio.get_running_loop().call_later(_ABORT_S, self.end_with, late)

    def end_with(self, error: PellucidError) -> None:
        """End it, if it has not ended."""
        if not self._over:
            self._tell(error)
            self.task.cancel()

    def _tell(self, error: PellucidError) -> None:
        self._over = True
        self._error = error
        self.arrivals.receive(error)
        self._settled.set()

    async def _run(self) -> None:
        try:
            await self._ask()
        except asyncio.CancelledError:
            raise
        except PellucidError as error:
            self.end_with(error)
        except Exception as error:
            logger.exception("request %s failed on its way", self.request.id)
            self.end_with(PellucidError(f"the request failed: {in_short(error)}"))

    async def _ask(self) -> None:
        avoid: set[str] = set()
        for _ in range(TRIES):
            name, reason = await self._ask_one(avoid)
            if self._over:
                return
            again = not self._begun and not self._aborted
            if name is not None:
                avoid.add(name)
                self._contact.forget(name)
            self._tally.retried += again
            self._tally.lost += not again
            logger.warning(
                "a replica ended under a request",
                extra={"replica": name, "request": self.request.id, "again": again, "why": reason},
            )
            if not again:
                self._tell(Unavailable(f"the replica {name} ended under the request: ask again"))
                return
        self._tell(Unavailable("two replicas ended under the request: ask again"))

    async def _ask_one(self, avoid: set[str]) -> tuple[str | None, str]:
        """Take what one replica sends. Its name, and why it ended before the request had, if so."""
        sent = replace(self.request, id=self._tally.name(self.request.id))
        with self._placed(avoid) as route:
            try:
                async with (
                    Patience(self._contact.silence_s) as patience,
                    aclosing(self._contact.talk(route, "answer", sent)) as messages,
                ):
                    self._taken(await anext(messages), sent.id)
                    patience.heard()
                    await self._take_all(messages, patience)
                reason = "ended"
            except GONE as error:
                reason = in_short(error)
            finally:
                self._where = None
            return route.replica, reason

    async def _take_all(self, messages: AsyncGenerator[Any, None], patience: Patience) -> None:
        async for message in messages:
            patience.heard()
            if message is not None:
                self._take(message)
            if self._over:
                return

    @contextmanager
    def _placed(self, avoid: set[str]) -> Iterator[Route]:
        request, placement = self.request, self._contact.placement
        route = Route(
            placement,
            tokens=request.prompt_token_ids,
            salt=request.salt,
            answers=request.params.n,
            avoid=avoid,
        )
        try:
            yield route
        finally:
            placement.leave(route, (*request.prompt_token_ids, *self._answer))

    def _taken(self, replica: str, name_there: str) -> None:
        self._where = replica, name_there
        self.replica = replica
        self._settled.set()
        if self._aborted:
            self._abort_there(replica, name_there)

    def _take(self, message: Failure | Sequence[Any]) -> None:
        if isinstance(message, Failure):
            self._tell(message.error())
            return
        self._begun = True
        for fields in message:
            if isinstance(fields, Report):
                self._contact.told(fields)
                continue
            increment = increment_of(fields)
            self._over |= increment.metrics is not None
            if increment.index == 0:
                self._answer += increment.token_ids
            self.arrivals.receive(increment)

    def _abort_there(self, replica: str, name_there: str) -> None:
        """Have a replica end the request. Nothing happens if it is gone."""
        task = asyncio.create_task(self._short_abort(replica, name_there))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _short_abort(self, replica: str, name_there: str) -> None:
        with suppress(*GONE, TimeoutError):
            await self._contact.short(replica, "abort", name_there)
