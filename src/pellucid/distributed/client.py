"""ReplicaClient: an `EngineClient` on the replicas of an application."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from functools import partial
from pathlib import Path
from typing import Any, Final, Unpack

from pellucid.core.errors import BadInput, PellucidError, Unavailable
from pellucid.core.params import SamplingParams
from pellucid.core.record import MachineRecord, PageMap
from pellucid.distributed.application import Application
from pellucid.distributed.contact import GONE, Contact, ended, in_short
from pellucid.distributed.looked import OneReplica
from pellucid.distributed.placement import Placement, Policy
from pellucid.distributed.report import Fleet
from pellucid.distributed.running import Running, Tally
from pellucid.distributed.stream import PlacedStream
from pellucid.engine.apart import front_of, open_text_of
from pellucid.engine.client import ModelInfo, Options, Prompt
from pellucid.engine.conversation import PLAIN, Layout
from pellucid.engine.frontend import Frontend
from pellucid.engine.records import Cursor, EngineAbout, Records
from pellucid.engine.remote import RemoteClient
from pellucid.engine.request import Request
from pellucid.engine.stats import EngineStats
from pellucid.scheduling import Limits

logger = logging.getLogger("pellucid.distributed")

_OPENED_S: Final = 60.0
_MISSING_S: Final = 5.0


class ReplicaClient(RemoteClient):
    """Answers by the replicas of `application`; see `pellucid.distributed`.

    Belongs to the event loop that `start` was called in. Errors are those of `EngineClient`;
    `Unavailable` while there is no replica, after a bounded wait.
    """

    def __init__(
        self, application: Application, front: Frontend, model: ModelInfo, contact: Contact
    ) -> None:
        super().__init__(front, model)
        self._application = application
        self._contact = contact
        self._machine: MachineRecord | None = None
        self._running: dict[str, Running] = {}
        self._tally = Tally()
        self._watched: str | None = None
        self._shown = OneReplica(self._watch, lambda: self._machine)
        self._trouble: str | None = None
        self._first = 0
        self._closed = False
        self._looking = [
            asyncio.create_task(contact.keep_looking()),
            asyncio.create_task(self._say_what_is_missing()),
        ]

    @classmethod
    async def start(
        cls,
        path: Path,
        application: Application,
        *,
        policy: Policy = "prefix",
        start_wait_s: float = 15.0,
        silence_s: float = 10.0,
    ) -> ReplicaClient:
        """The replicas of `application`, for the model at `path`, ready. Raises what `LLM` raises;
        the application has ended then."""
        text = asyncio.create_task(asyncio.to_thread(open_text_of, path))
        arguments = application.plan.opening.arguments
        try:
            tokenizer, templates = await text  # what is wrong with a file is said at once
            await application.deploy()
            model, limits = await _opened(application)
            front = front_of(
                model,
                tokenizer,
                templates,
                arguments.get("seed"),
                arguments.get("chat_template"),
            )
            slack = max(2, limits.max_num_seqs // 4)
            placement = Placement(limits.page_size, limits.n_pages, slack, policy)
            contact = Contact(application, placement, start_wait_s, silence_s)
            self = cls(application, front, model, contact)
            await contact.look()
            self._first = len(contact.seen)
        except BaseException:
            await application.end()
            raise
        return self

    @property
    def restarts(self) -> int:
        """Replicas that were started after the first ones."""
        return max(0, len(self._contact.seen) - self._first)

    async def fleet(self) -> Fleet:
        """The replicas, as of now."""
        contact = self._contact
        await contact.glance()
        scale = self._application.plan.scale
        return Fleet(
            scale.least,
            scale.most,
            tuple(contact.reports[name] for name in sorted(contact.reports)),
            contact.stats(),
            tuple(sorted(contact.silent)),
            self._trouble if len(contact.reports) < scale.least else None,
            {str(why): count for why, count in contact.placement.chosen.items()},
            self._tally.retried,
            self._tally.lost,
            self.restarts,
        )

    async def roll(self) -> None:
        """Have each replica replaced, a part of them at a time; no request ends by it. Raises what
        keeps new ones from starting; what is wrong with the model's file is said before any ends.
        """
        await asyncio.to_thread(open_text_of, Path(self._application.plan.opening.path))
        await self._application.roll()

    async def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        layout: Layout = PLAIN,
        **options: Unpack[Options],
    ) -> PlacedStream:
        request = await self._request(prompt, params, layout, **options)
        self._check_open()
        if request.params.structured_outputs is not None:  # compiled where it is used
            asked = request.params.structured_outputs
            await self._call("check_grammar", asked=asked)
        if request.id in self._running:
            raise BadInput(f"request_id {request.id!r} is taken by a request that is running")
        return self._start(request)

    async def abort(self, request_id: str) -> None:
        found = self._running.get(request_id)
        if found is not None:
            found.abort()

    async def stats(self) -> EngineStats:
        await self._contact.glance()
        if not self._contact.reports:
            raise Unavailable("no replica answers: ask again")
        return self._contact.stats()

    @property
    def replicas(self) -> tuple[str, ...]:
        """The names of those that answered last, in order."""
        return tuple(sorted(self._contact.reports))

    @property
    def shown(self) -> str | None:
        """That of which `records` and `about` are."""
        return self._watched

    def replica(self, name: str) -> OneReplica:
        """What that one says of what it does."""
        return OneReplica(partial(self._ask, name), lambda: self._machine)

    async def records(self, cursor: Cursor, stamps_every: float | None = None) -> Records:
        """Of one replica, the same as long as it is there."""
        return await self._shown.records(cursor, stamps_every)

    async def about(self) -> EngineAbout:
        return await self._shown.about()

    async def measure_machine(self) -> None:
        await self._watch("measure_machine")
        self._machine = (await self.about()).machine

    async def page_map(self, with_tokens: bool = False) -> tuple[int, PageMap]:
        return await self._shown.page_map(with_tokens)

    async def check_health(self) -> None:
        self._check_open()
        if not self._contact.reports:
            await self._contact.glance()
        if not self._contact.reports:
            raise Unavailable(
                "no replica answers" + (f": {self._trouble}" if self._trouble else "")
            )

    async def close(self) -> None:
        """End what runs, then the replicas."""
        if self._closed:
            return
        self._closed = True
        self.lanes.close()
        running = list(self._running.values())
        for one in running:
            one.end_with(PellucidError("the engine was closed"))
        await ended([*self._looking, *(one.task for one in running)])
        await self._contact.close()
        await self._application.end()

    async def _say_what_is_missing(self) -> None:
        """Into the log, once for each reason: elsewhere it is in Ray's files alone."""
        while True:
            await asyncio.sleep(_MISSING_S)
            trouble = None
            if len(self._contact.reports) < self._application.plan.scale.least:
                trouble = await self._application.trouble()
            if trouble is not None and trouble != self._trouble:
                logger.error("replicas are missing: %s", trouble)
            self._trouble = trouble

    def _check_open(self) -> None:
        if self._closed:
            raise BadInput("this engine is closed: make another one")

    def _start(self, request: Request) -> PlacedStream:
        running = Running(self._contact, self._tally, request)
        self._running[request.id] = running
        running.task.add_done_callback(
            lambda _: (
                self._running.pop(request.id, None)
                if self._running.get(request.id) is running
                else None
            )
        )
        return PlacedStream(running)

    async def _call(self, method: str, **arguments: Any) -> Any:
        self._check_open()
        return await _value(self._contact.any("call", method, arguments))

    async def _watch(self, method: str, **arguments: Any) -> Any:
        """What the client's method returns on the replica that is looked at."""
        contact = self._contact
        if self._watched not in contact.reports:
            if not contact.reports:
                await contact.look()
            self._watched = min(contact.reports, default=None)
        if self._watched is None:
            raise Unavailable("no replica answers: ask again")
        return await self._ask(self._watched, method, **arguments)

    async def _ask(self, name: str, method: str, **arguments: Any) -> Any:
        """The same of the replica of that name."""
        self._check_open()
        try:
            return await _value(self._contact.one(name, "call", method, arguments))
        except GONE as error:
            self._contact.reports.pop(name, None)
            raise Unavailable(
                f"the replica that is looked at is gone: {in_short(error)}"
            ) from error


async def _value(told: Awaitable[Any]) -> Any:
    value, failure = await told
    if failure is not None:
        raise failure.error()
    return value


async def _opened(application: Application) -> tuple[ModelInfo, Limits]:
    """What a replica says of its model."""
    response = application.handle.options(method_name="opened").remote()
    try:
        async with asyncio.timeout(_OPENED_S):
            opened: tuple[ModelInfo, Limits] = await response
    except (TimeoutError, *GONE) as error:
        raise PellucidError(f"the replicas started and do not answer: {in_short(error)}") from error
    return opened
