"""Replica: an engine in a process of Ray Serve's, and what it is asked.

Serve makes it, asks after its health and ends it. It is written in terms of the engine alone: Ray
gives it its name.
"""

from __future__ import annotations

import asyncio
import functools
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import dataclass, field
from typing import Any, Final

from ray import serve
from ray.runtime_context import get_runtime_context
from ray.serve._private import replica as serving

from pellucid.core.errors import PellucidError
from pellucid.core.logs import LogForm, log_to_stderr
from pellucid.distributed.beats import with_beats
from pellucid.distributed.failures import Failures
from pellucid.distributed.progress import Progress
from pellucid.distributed.report import Report
from pellucid.engine.async_llm import AsyncLLM
from pellucid.engine.async_stream import AsyncStream
from pellucid.engine.client import LocalClient, ModelInfo
from pellucid.engine.process.letters import Failure, Fields, fields_of, told_of
from pellucid.engine.process.rest import at_rest
from pellucid.engine.request import Request
from pellucid.scheduling import Limits

# What `call` may ask of the client on its engine.
CALLS: Final = frozenset(
    {
        "about", "chances", "check_grammar", "embed", "funnel", "measure_machine", "page_map",
        "prompt_logprobs", "records",
    }
)  # fmt: skip

Letters = Sequence[Fields | Report] | Failure


@dataclass(frozen=True, slots=True)
class Opening:
    """What a replica of the application `name` loads, and how it logs. `hang_s`: a step that takes
    longer is one that hangs. `alone`: only this machine may reach it. `edition` tells the replicas
    of one update from those of another."""

    name: str
    path: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    log: LogForm | None = None
    hang_s: float = 300.0
    alone: bool = False
    edition: int = 0


class Replica:
    """`route` of every method is for the router beside the caller, and None here."""

    def __init__(self, opening: Opening) -> None:
        if opening.log is not None:
            log_to_stderr(opening.log)
        if opening.alone:
            _listen_here_alone()
        self.name = str(serve.get_replica_context().replica_id.unique_id)
        self._progress = Progress(opening.hang_s, time.monotonic())
        self._llm = _loaded(opening)
        self._client = LocalClient(self._llm)
        self._rest = ExitStack()
        self._rest.enter_context(at_rest())

    async def opened(self, route: None = None) -> tuple[ModelInfo, Limits]:
        """What the model is, and the engine's limits."""
        return self._client.model, self._llm.about().limits

    async def answer(
        self, request: Request, route: None = None
    ) -> AsyncGenerator[str | Letters | None, None]:
        """This replica's name, as soon as the request is taken; then increments as they come, those
        together that come while nobody takes them, or a beat; or why it ended."""
        yield self.name
        async with aclosing(with_beats(self._answer(request))) as letters:
            async for letter in letters:
                yield letter

    async def _answer(self, request: Request) -> AsyncGenerator[Letters, None]:
        try:
            if request.params.structured_outputs is not None:
                request = await asyncio.to_thread(self._llm.complete, request)
            stream = self._llm.start(request)
        except PellucidError as error:
            yield Failure.of(error)
            return
        try:  # leaving it, whatever the reason, ends the request within one step
            async for letters in _letters(stream):
                # One that is to go is asked no more: what it counts is told with the ends.
                yield [self._report(), *letters] if stream.finished else letters
        except PellucidError as error:
            yield Failure.of(error)
        finally:
            stream.close()

    async def abort(self, request_id: str, route: None = None) -> None:
        self._llm.abort(request_id)

    async def call(
        self, method: str, arguments: Mapping[str, Any], route: None = None
    ) -> AsyncGenerator[str | tuple[Any, Failure | None] | None, None]:
        """This replica's name, then, after beats, what a method of the engine's client returns, or
        why it failed."""
        yield self.name
        async with aclosing(with_beats(self._called(method, arguments))) as found:
            async for one in found:
                yield one

    async def _called(
        self, method: str, arguments: Mapping[str, Any]
    ) -> AsyncGenerator[tuple[Any, Failure | None], None]:
        assert method in CALLS
        asked = self._llm if method == "check_grammar" else self._client
        try:
            found = await getattr(asked, method)(**arguments)
        except PellucidError as error:
            yield None, Failure.of(error)
        else:
            yield (told_of(found) if method == "records" else found), None

    async def report(self, route: None = None) -> Report:
        """How it is doing."""
        return self._report()

    def _report(self) -> Report:
        node = get_runtime_context().get_node_id()
        return Report(self.name, node, os.getpid(), self._llm.stats())

    def check_health(self) -> None:
        """Asked by Serve again and again; what this raises ends the replica, and another comes."""
        self._llm.check_health()
        self._progress.check(self._llm.stats(), time.monotonic())


def _loaded(opening: Opening) -> AsyncLLM:
    """The engine. What fails again and again is raised later and later."""
    failures = Failures(opening.name, opening.edition)
    try:
        llm = AsyncLLM(opening.path, **opening.arguments)
    except Exception:
        time.sleep(failures.add())
        raise
    failures.none()
    return llm


def _listen_here_alone() -> None:
    """Serve has every replica listen for others on all addresses, and has no setting for it; it
    does so after the replica was made."""
    bind = getattr(serving, "add_port_to_grpc_server", None)
    if bind is not None:
        here = functools.partial(_bind_here, bind)
        serving.add_port_to_grpc_server = here  # type: ignore[attr-defined]


def _bind_here(bind: Callable[[Any, str], int], server: Any, address: str) -> int:
    return bind(server, address.replace("[::]", "127.0.0.1"))


async def _letters(stream: AsyncStream) -> AsyncIterator[list[Fields]]:
    """What came of a request, at each turn all that is there."""
    async for increment in stream:
        letters = [fields_of(increment)]
        while stream.unread and not stream.finished:
            letters.append(fields_of(await anext(stream)))
        yield letters
