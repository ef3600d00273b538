"""Contact: how replicas are reached, and which of them give a sign of life.

    unknown --a request is routed--> known --report--> present --no report--> absent
                                       `------silent in a call of its own----> mute, asked last

Every wait for a replica has an end. What may take long comes as a stream with beats, and ends once
these stay away (`Patience`); what is short has `_ANSWER_S`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing, suppress
from typing import Any, Final

from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException

from pellucid.core.errors import Unavailable
from pellucid.distributed.application import Application
from pellucid.distributed.patience import Patience, SilenceError
from pellucid.distributed.placement import Placement, Route
from pellucid.distributed.report import Report
from pellucid.distributed.totals import Totals
from pellucid.engine.stats import EngineStats

logger = logging.getLogger("pellucid.distributed")

GONE: Final = (RayError, RayServeException, SilenceError)
"""What is raised when whoever was asked has ended."""

TRIES: Final = 2
"""A request that two replicas ended under may be why they did."""

_LOOK_S: Final = 1.0
_GLANCE_S: Final = 0.5  # of somebody who waits for what is known then
_ANSWER_S: Final = 5.0


class Contact:
    """With the replicas of `application`. Belongs to one event loop.

    In seconds, `start_wait_s`: for a replica to take what it is asked; `silence_s`: without a sign
    of life from one that has.
    """

    def __init__(
        self,
        application: Application,
        placement: Placement,
        start_wait_s: float,
        silence_s: float,
    ) -> None:
        self.placement = placement
        self.silence_s = silence_s
        self.reports: dict[str, Report] = {}
        """Of those that are present."""
        self.seen: set[str] = set()
        self._application = application
        self._start_wait_s = start_wait_s
        self._totals = Totals()
        self._mute: set[str] = set()
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._finding: asyncio.Task[None] | None = None

    # Calls

    async def talk(self, route: Route, method: str, *arguments: Any) -> AsyncGenerator[Any, None]:
        """What a method with beats sends: first the replica's name, as soon as it has taken it,
        then the rest, None for a beat. Raises one of `GONE` if the replica ends, and `Unavailable`
        if none takes it in time. Whoever listens has patience."""
        handle = self._handle(method, stream=True)
        response = handle.remote(*arguments, route=route)
        try:
            yield await self._taken(anext(response), route)
            async for message in response:
                yield message
        finally:
            response.cancel()

    async def exchange(self, route: Route, method: str, *arguments: Any) -> Any:
        """What a method with beats gives in the end. Raises as `talk`."""
        try:
            async with (
                Patience(self.silence_s) as patience,
                aclosing(self.talk(route, method, *arguments)) as messages,
            ):
                await anext(messages)
                patience.heard()
                async for message in messages:
                    patience.heard()
                    if message is not None:
                        return message
            raise SilenceError("it ended without an answer")
        finally:
            self.placement.leave(route)

    async def any(self, method: str, *arguments: Any) -> Any:
        """What a method with beats of any replica gives; asked again where one ends meanwhile."""
        avoid: set[str] = set()
        for _ in range(TRIES):
            route = Route(self.placement, answers=1, avoid=avoid)
            try:
                return await self.exchange(route, method, *arguments)
            except GONE as error:
                logger.warning("a replica ended in a call: %s", in_short(error))
                if route.replica is not None:
                    avoid.add(route.replica)
        raise Unavailable("replicas end as they are asked: ask again")

    async def one(self, name: str, method: str, *arguments: Any) -> Any:
        """What a method with beats of that replica gives. Raises `GONE` or `Unavailable`."""
        missing = asyncio.get_running_loop().create_future()
        asked = asyncio.ensure_future(self.exchange(self._only(name, missing), method, *arguments))
        return await _first(asked, missing, name, None)

    async def short(self, name: str, method: str, *arguments: Any) -> Any:
        """What a short method of that replica returns. Raises `GONE` or `TimeoutError`."""
        missing = asyncio.get_running_loop().create_future()
        response = self._handle(method).remote(*arguments, route=self._only(name, missing))
        asked = asyncio.ensure_future(_of(response))
        try:
            return await _first(asked, missing, name, _ANSWER_S)
        finally:
            if not asked.done() or asked.cancelled():
                response.cancel()

    async def _taken(self, first: Any, route: Route) -> Any:
        """The first message of whoever takes a request."""
        coming = asyncio.ensure_future(first)
        loop = asyncio.get_running_loop()
        until = loop.time() + self._start_wait_s
        try:
            while (left := until - loop.time()) > 0:
                if (await asyncio.wait({coming}, timeout=min(left, _LOOK_S)))[0]:
                    return _result(coming)
                if route.replica in self._mute:
                    raise SilenceError("it does not take the request")
        finally:
            _drop(coming)
        raise Unavailable(f"no replica took the request in {self._start_wait_s:g} s: ask again")

    def _only(self, name: str, missing: asyncio.Future[None]) -> Route:
        """To that replica and no other; `missing` is set if there is none of that name."""
        loop = asyncio.get_running_loop()
        return Route(
            self.placement, to=name, missing=lambda: loop.call_soon_threadsafe(_settle, missing)
        )

    def _handle(self, method: str, *, stream: bool = False) -> Any:
        return self._application.handle.options(method_name=method, stream=stream)

    # Who is there

    @property
    def silent(self) -> list[str]:
        """Those that are there and do not say how they are."""
        return [name for name in self.placement.known if name not in self.reports]

    async def glance(self) -> None:
        """As `look`, for somebody who waits for it."""
        await self.look(_GLANCE_S)

    async def look(self, within_s: float = _LOOK_S) -> None:
        """Ask every replica how it is. One that is silent holds nobody up: it counts as present
        until it has not answered for `_ANSWER_S`, and then nobody waits for it any more."""
        if not self.placement.known:
            await self._find()
        known = self.placement.known
        for name in known:
            if name not in self._asking:
                self._asking[name] = asyncio.create_task(self._hear(name))
        for name in self.reports.keys() - set(known):
            self._absent(name)
        awaited = [task for name, task in self._asking.items() if name not in self._mute]
        if awaited:
            await asyncio.wait(awaited, timeout=within_s)
        self._totals.only(self.reports)

    async def keep_looking(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                await self.look()
            except Exception:
                logger.exception("the replicas could not be asked how they are")

    def stats(self) -> EngineStats:
        """Of all replicas that there were."""
        return self._totals.stats()

    def told(self, report: Report) -> None:
        """With the end of an answer; one that is to go is asked no more."""
        self._totals.see(report.name, report.stats)

    def forget(self, name: str) -> None:
        """It ended under a request."""
        self.placement.forget(name)
        self.reports.pop(name, None)

    async def close(self) -> None:
        """Ask nothing more."""
        tasks = list(self._asking.values())
        if self._finding is not None:
            tasks.append(self._finding)
        await ended(tasks)

    async def _find(self) -> None:
        """Have something routed, by which replicas become known; once for all who want it."""
        if self._finding is None or self._finding.done():
            self._finding = asyncio.create_task(self._routed())
        await asyncio.shield(self._finding)

    async def _routed(self) -> None:
        response = self._handle("report").remote(route=Route(self.placement))
        asked = asyncio.ensure_future(_of(response))
        with suppress(TimeoutError, *GONE):
            await _first(asked, None, "", _ANSWER_S)

    async def _hear(self, name: str) -> None:
        try:
            await self._report_of(name)
        finally:
            del self._asking[name]

    async def _report_of(self, name: str) -> None:
        try:
            report: Report = await self.short(name, "report")
        except TimeoutError:
            self._mute.add(name)
            self._absent(name)
        except GONE:
            self._absent(name)
        else:
            self._present(name, report)
        self._mute &= set(self.placement.known)
        self.placement.shun(self._mute)

    def _present(self, name: str, report: Report) -> None:
        self._mute.discard(name)
        self.reports[name] = report
        self._totals.see(name, report.stats)
        if name not in self.seen:
            self.seen.add(name)
            logger.info("a replica is ready", extra={"replica": name, "pid": report.process_id})

    def _absent(self, name: str) -> None:
        if self.reports.pop(name, None) is not None:
            logger.warning("a replica does not answer any more", extra={"replica": name})


async def _first(
    asked: asyncio.Future[Any],
    missing: asyncio.Future[None] | None,
    name: str,
    within_s: float | None,
) -> Any:
    """What was asked, unless its replica is missing or the time is over."""
    waited: set[asyncio.Future[Any]] = {asked} if missing is None else {asked, missing}
    try:
        done, _ = await asyncio.wait(waited, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        if asked in done:
            return _result(asked)
        if done:
            raise RayServeException(f"there is no replica {name}")
        raise TimeoutError
    finally:
        _drop(asked)


def _result(asked: asyncio.Future[Any]) -> Any:
    """Raises `SilenceError` for what nobody here cancelled, and for a stream without an item."""
    if asked.cancelled():
        raise SilenceError("cancelled")
    try:
        return asked.result()
    except StopAsyncIteration:
        raise SilenceError("it ended without a word") from None


def _drop(asked: asyncio.Future[Any]) -> None:
    """Nobody waits for it any more, whatever comes."""
    asked.add_done_callback(_heard)
    asked.cancel()


def _heard(asked: asyncio.Future[Any]) -> None:
    if not asked.cancelled():
        asked.exception()


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _of(response: Any) -> Any:
    return await response


async def ended(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel them, and wait for their ends."""
    cancelled = list(tasks)
    for task in cancelled:
        task.cancel()
    await asyncio.gather(*cancelled, return_exceptions=True)


def in_short(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
