"""ReplicaClient: an `EngineClient` on the replicas of an application."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Unpack

from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException

from pellucid.core.errors import BadInput, PellucidError, Unavailable
from pellucid.core.params import SamplingParams
from pellucid.core.record import MachineRecord, PageMap
from pellucid.distributed.application import Application
from pellucid.distributed.placement import Placement, Policy, Route
from pellucid.distributed.report import Fleet, Report
from pellucid.distributed.totals import Totals
from pellucid.engine.apart import front_of, id_there, open_text_of, own_id
from pellucid.engine.async_stream import Arrivals, AsyncStream
from pellucid.engine.client import ModelInfo, Options, Prompt
from pellucid.engine.conversation import PLAIN, Layout
from pellucid.engine.frontend import Frontend
from pellucid.engine.process.letters import Failure, increment_of, records_of
from pellucid.engine.records import Cursor, EngineAbout, Records
from pellucid.engine.remote import RemoteClient
from pellucid.engine.request import Request
from pellucid.engine.stats import EngineStats

logger = logging.getLogger("pellucid.distributed")

GONE: Final = (RayError, RayServeException)
"""What is raised when whoever was asked has ended."""

_LOOK_S: Final = 1.0
_ANSWER_S: Final = 10.0
_ABORT_S: Final = 5.0
_TRIES: Final = 2
"""A request that two replicas ended under may be why they did."""


class ReplicaClient(RemoteClient):
    """Answers by the replicas of `application`; see `pellucid.distributed`.

    Belongs to the event loop that `start` was called in. Errors are those of `EngineClient`;
    `Unavailable` while there is no replica, after a bounded wait.
    """

    def __init__(
        self,
        application: Application,
        front: Frontend,
        model: ModelInfo,
        placement: Placement,
        start_wait_s: float,
    ) -> None:
        super().__init__(front, model)
        self._application = application
        self._placement = placement
        self._start_wait_s = start_wait_s
        self._answer = application.handle.options(method_name="answer", stream=True)
        self._machine: MachineRecord | None = None
        self._running: dict[str, _Running] = {}
        self._numbers = itertools.count(1)
        self._totals = Totals()
        self._reports: dict[str, Report] = {}
        self._watched: str | None = None
        self._retried = self._lost = 0
        self._seen: set[str] = set()
        self._first = 0
        self._closed = False
        self._look_now: asyncio.Task[None] | None = None
        self._looking = asyncio.create_task(self._keep_looking())

    @classmethod
    async def start(
        cls,
        path: Path,
        application: Application,
        *,
        policy: Policy = "prefix",
        start_wait_s: float = 15.0,
    ) -> ReplicaClient:
        """The replicas of `application`, for the model at `path`, ready. Raises what `LLM` raises;
        the application has ended then."""
        text = asyncio.create_task(asyncio.to_thread(open_text_of, path))
        arguments = application.plan.opening.arguments
        try:
            tokenizer, templates = await text  # what is wrong with a file is said at once
            await application.deploy()
            opened = application.handle.options(method_name="opened").remote()
            model, limits = await opened
            front = front_of(
                model,
                tokenizer,
                templates,
                arguments.get("seed"),
                arguments.get("chat_template"),
            )
            slack = max(2, limits.max_num_seqs // 4)
            placement = Placement(limits.page_size, limits.n_pages, slack, policy)
            self = cls(application, front, model, placement, start_wait_s)
            await self._look()
            self._first = len(self._seen)
        except BaseException:
            await application.end()
            raise
        return self

    @property
    def restarts(self) -> int:
        """Replicas that were started after the first ones."""
        return max(0, len(self._seen) - self._first)

    async def fleet(self) -> Fleet:
        """The replicas, as of now."""
        await self._look()
        scale = self._application.plan.scale
        return Fleet(
            scale.least,
            scale.most,
            tuple(self._reports[name] for name in sorted(self._reports)),
            {str(why): count for why, count in self._placement.chosen.items()},
            self._retried,
            self._lost,
            self.restarts,
        )

    async def roll(self) -> None:
        """Have each replica replaced, a part of them at a time; no request ends by it."""
        await self._application.roll()

    async def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        layout: Layout = PLAIN,
        **options: Unpack[Options],
    ) -> AsyncStream:
        request = await self._request(prompt, params, layout, **options)
        self._check_open()
        if request.params.structured_outputs is not None:  # compiled where it is used
            asked = request.params.structured_outputs
            failure = await self._any("check_grammar", asked)
            if failure is not None:
                raise failure.error()
        if request.id in self._running:
            raise BadInput(f"request_id {request.id!r} is taken by a request that is running")
        return self._start(request)

    async def abort(self, request_id: str) -> None:
        found = self._running.get(request_id)
        if found is not None:
            found.abort()

    async def stats(self) -> EngineStats:
        await self._look()
        if not self._reports:
            raise Unavailable("no replica answers: ask again")
        return self._totals.stats()

    async def records(self, cursor: Cursor, stamps_every: float | None = None) -> Records:
        """Of one replica, the same as long as it is there."""
        told = await self._watch("records", cursor=cursor, stamps_every=stamps_every)
        return records_of(told, own_id)

    async def about(self) -> EngineAbout:
        about: EngineAbout = await self._watch("about")
        return about if about.machine is not None else replace(about, machine=self._machine)

    async def measure_machine(self) -> None:
        await self._watch("measure_machine")
        self._machine = (await self.about()).machine

    async def page_map(self, with_tokens: bool = False) -> tuple[int, PageMap]:
        found: tuple[int, PageMap] = await self._watch("page_map", with_tokens=with_tokens)
        return found

    async def check_health(self) -> None:
        self._check_open()
        if not self._reports:
            await self._look()
        if not self._reports:
            raise Unavailable("no replica answers")

    async def close(self) -> None:
        """End what runs, then the replicas."""
        if self._closed:
            return
        self._closed = True
        self._looking.cancel()
        if self._look_now is not None:
            self._look_now.cancel()
        running = list(self._running.values())
        for one in running:
            one.end_with(PellucidError("the engine was closed"))
        await asyncio.gather(self._looking, *(one.task for one in running), return_exceptions=True)
        await self._application.end()

    def _check_open(self) -> None:
        if self._closed:
            raise BadInput("this engine is closed: make another one")

    def _start(self, request: Request) -> AsyncStream:
        running = _Running(self, request)
        self._running[request.id] = running
        running.task.add_done_callback(
            lambda _: (
                self._running.pop(request.id, None)
                if self._running.get(request.id) is running
                else None
            )
        )
        return AsyncStream(request, running.arrivals, running.leave)

    # What one request needs of its client

    async def ask(
        self, request: Request, avoid: set[str], answer: Sequence[int]
    ) -> AsyncIterator[Any]:
        """What a replica sends of `request`: first its name and what the request is called there,
        then letters, which whoever asks adds to `answer`. None of `avoid` is asked. Raises one of
        `GONE` if the replica ends in the middle, `Unavailable` if there is none in time."""
        sent = replace(request, id=id_there(request.id, next(self._numbers)))
        with self._placed(request, avoid, answer) as route:
            response = self._answer.remote(sent, route=route)
            try:
                try:
                    name = await asyncio.wait_for(anext(response), self._start_wait_s)
                except TimeoutError:
                    raise Unavailable(
                        f"no replica took the request in {self._start_wait_s:g} s: ask again"
                    ) from None
                yield name, sent.id
                async for letters in response:
                    yield letters
            finally:
                response.cancel()

    @contextmanager
    def _placed(self, request: Request, avoid: set[str], answer: Sequence[int]) -> Iterator[Route]:
        route = Route(
            self._placement,
            tokens=request.prompt_token_ids,
            salt=request.salt,
            answers=request.params.n,
            avoid=avoid,
        )
        try:
            yield route
        finally:
            self._placement.leave(route, (*request.prompt_token_ids, *answer))

    def lost(self, name: str | None, *, again: bool) -> None:
        """The replica `name` ended under a request, which is asked `again` or ends with it."""
        if name is not None:
            self._placement.forget(name)
            self._reports.pop(name, None)
        if again:
            self._retried += 1
        else:
            self._lost += 1

    async def abort_there(self, name: str, id_there: str) -> None:
        """Have a replica end a request. Nothing happens if it is gone."""
        with suppress(*GONE, TimeoutError):
            await self._to(name, "abort", id_there)

    # Calls

    async def _any(self, method: str, *arguments: Any) -> Any:
        """What a method of any replica returns; asked again where one ends meanwhile."""
        self._check_open()
        avoid: set[str] = set()
        for _ in range(_TRIES):
            route = Route(self._placement, answers=1, avoid=avoid)
            try:
                return await self._handle(method).remote(*arguments, route=route)
            except GONE as error:
                logger.warning("a replica ended in a call: %s", _in_short(error))
                if route.replica is not None:
                    avoid.add(route.replica)
            finally:
                self._placement.leave(route)
        raise Unavailable("replicas end as they are asked: ask again")

    async def _call(self, method: str, **arguments: Any) -> Any:
        value, failure = await self._any("call", method, arguments)
        if failure is not None:
            raise failure.error()
        return value

    async def _to(self, name: str, method: str, *arguments: Any) -> Any:
        """What a method of that replica returns. Raises `GONE` or `TimeoutError`."""
        loop = asyncio.get_running_loop()
        missing = loop.create_future()
        route = Route(
            self._placement,
            to=name,
            missing=lambda: loop.call_soon_threadsafe(_settle, missing),
        )
        response = self._handle(method).remote(*arguments, route=route)
        asked = asyncio.ensure_future(_of(response))
        asked.add_done_callback(_heard)
        try:
            done, _ = await asyncio.wait(
                {asked, missing}, timeout=_ANSWER_S, return_when=asyncio.FIRST_COMPLETED
            )
            if asked in done:
                return asked.result()
            raise TimeoutError if not done else RayServeException(f"there is no replica {name}")
        finally:
            if not asked.done():
                asked.cancel()
                response.cancel()

    async def _watch(self, method: str, **arguments: Any) -> Any:
        """What the client's method returns on the replica that is looked at."""
        self._check_open()
        if self._watched not in self._reports:
            if not self._reports:
                await self._look()
            self._watched = min(self._reports, default=None)
        if self._watched is None:
            raise Unavailable("no replica answers: ask again")
        try:
            value, failure = await self._to(self._watched, "call", method, arguments)
        except (*GONE, TimeoutError) as error:
            self._reports.pop(self._watched, None)
            raise Unavailable(
                f"the replica that is looked at is gone: {_in_short(error)}"
            ) from error
        if failure is not None:
            raise failure.error()
        return value

    def _handle(self, method: str) -> Any:
        return self._application.handle.options(method_name=method)

    # Who is there

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                await self._look()
            except Exception:
                logger.exception("the replicas could not be asked how they are")

    async def _look(self) -> None:
        """Ask every replica how it is; once for all who want to know at the moment."""
        if self._look_now is None or self._look_now.done():
            self._look_now = asyncio.create_task(self._ask_all())
        await asyncio.shield(self._look_now)

    async def _ask_all(self) -> None:
        if not self._placement.known:
            with suppress(TimeoutError, *GONE):
                route = Route(self._placement)
                response = self._handle("report").remote(route=route)
                await asyncio.wait_for(_of(response), _ANSWER_S)
        names = self._placement.known
        found = await asyncio.gather(*map(self._report, names))
        reports = {report.name: report for report in found if report is not None}
        for name, report in reports.items():
            self._totals.see(name, report.stats)
            if name not in self._seen:
                self._seen.add(name)
                logger.info("a replica is ready", extra={"replica": name, "pid": report.process_id})
        for name in self._reports.keys() - reports.keys():
            logger.warning("a replica does not answer any more", extra={"replica": name})
        self._totals.only(reports)
        self._reports = reports

    async def _report(self, name: str) -> Report | None:
        with suppress(TimeoutError, *GONE):
            report: Report = await self._to(name, "report")
            return report
        return None


class _Running:
    """One request: asked of a replica, and of another as long as nothing has come."""

    def __init__(self, client: ReplicaClient, request: Request) -> None:
        self.arrivals = Arrivals()
        self._client = client
        self._request = request
        self._where: tuple[str, str] | None = None  # the replica, and the request's name there
        self._answer: list[int] = []  # of one answer: a page holds what came of one sequence
        self._begun = self._aborted = self._over = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.task = asyncio.create_task(self._run())

    def leave(self) -> None:
        """Nobody listens any more."""
        self._over = True
        self.task.cancel()

    def abort(self) -> None:
        """Have it end with what it has."""
        self._aborted = True
        if self._where is not None:
            self._spawn(self._client.abort_there(*self._where))
        late = Unavailable("the replica does not answer: ask again")
        asyncio.get_running_loop().call_later(_ABORT_S, self.end_with, late)

    def end_with(self, error: PellucidError) -> None:
        """End it, if it has not ended."""
        if not self._over:
            self._tell(error)
            self.task.cancel()

    def _tell(self, error: PellucidError) -> None:
        self._over = True
        self.arrivals.receive(error)

    async def _run(self) -> None:
        try:
            await self._ask()
        except asyncio.CancelledError:
            raise
        except PellucidError as error:
            self.end_with(error)
        except Exception as error:
            logger.exception("request %s failed on its way", self._request.id)
            self.end_with(PellucidError(f"the request failed: {_in_short(error)}"))

    async def _ask(self) -> None:
        avoid: set[str] = set()
        for _ in range(_TRIES):
            try:
                async for message in self._client.ask(self._request, avoid, self._answer):
                    self._take(message)
                    if self._over:
                        return
                reason = "ended"
            except GONE as error:
                reason = _in_short(error)
            name = None if self._where is None else self._where[0]
            self._where = None
            again = not self._begun and not self._aborted
            self._client.lost(name, again=again)
            logger.warning(
                "a replica ended under a request",
                extra={"replica": name, "request": self._request.id, "again": again, "why": reason},
            )
            if not again:
                self._tell(Unavailable(f"the replica {name} ended under the request: ask again"))
                return
            if name is not None:
                avoid.add(name)
        self._tell(Unavailable("two replicas ended under the request: ask again"))

    def _take(self, message: Any) -> None:
        if isinstance(message, tuple):
            self._where = message
            if self._aborted:
                self._spawn(self._client.abort_there(*message))
        elif isinstance(message, Failure):
            self._tell(message.error())
        else:
            self._begun = True
            for fields in message:
                increment = increment_of(fields)
                self._over |= increment.metrics is not None
                if increment.index == 0:
                    self._answer += increment.token_ids
                self.arrivals.receive(increment)

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _heard(task: asyncio.Task[Any]) -> None:
    """Nobody waits for it any more, whatever comes."""
    if not task.cancelled():
        task.exception()


async def _of(response: Any) -> Any:
    return await response


def _in_short(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
