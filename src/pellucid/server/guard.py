"""Guard: an engine client that says no in time, and that is watched.

    route --> Guard --> EngineClient
                `--> watchers: metrics, traces, log

1. No more requests are inside than may run and wait; one more is refused at once (`Overloaded`).
   A request is let in whole, whatever its prompts and answers, or not at all (`Admission`); when
   nobody else is inside any is.
2. A request that takes longer than it is given ends (`TimedOut`), and its pages go back. Its time
   begins with its arrival: what is tokenised or compiled for it counts.
3. While the server shuts down nothing new comes in; at the end of the grace, what is left ends.
4. Whatever comes in goes out: watchers are told of each request's end exactly once.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, Unpack

from pellucid.core.errors import Overloaded, PellucidError, TimedOut, Unavailable
from pellucid.core.outputs import EmbeddingOutput, Increment, RequestMetrics, RequestOutput
from pellucid.core.params import SamplingParams
from pellucid.core.record import PageMap
from pellucid.distributed.report import Fleet
from pellucid.engine.client import (
    AnswerStream,
    EngineClient,
    Messages,
    ModelInfo,
    Options,
    Prompt,
    Teller,
)
from pellucid.engine.conversation import PLAIN, Layout
from pellucid.engine.lanes import Lanes
from pellucid.engine.likelihoods import Entries
from pellucid.engine.records import Cursor, EngineAbout, Records
from pellucid.engine.retold import Moment
from pellucid.engine.stats import EngineStats
from pellucid.sampling.funnel import Funnel
from pellucid.text import Tokenizer

_LONGEST_RETRY_S = 60

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class GuardLimits:
    """running: answers that the engine computes at once. queued: answers that may wait beside them.
    queued_tokens: of the prompts of all that are inside; 0: any number. timeout_s: a request's time
    in all; 0: any."""

    running: int = 32
    queued: int = 2048
    queued_tokens: int = 0
    timeout_s: float = 0.0


class Watcher(Protocol):
    """Is told what becomes of requests, in the event loop."""

    def began(self, request: Watched) -> None: ...

    def grew(self, request: Watched, increment: Increment, now: float) -> None: ...

    def ended(self, request: Watched, error: PellucidError | None) -> None:
        """`error` is what ended it, None at its own end or when nobody wanted it any more."""

    def refused(self, reason: str) -> None: ...


class Admission:
    """One request that was let in: room for its answers, of which `left` are still to be asked for,
    and `deadline`, when its time is up by the event loop's clock. Leaving it gives the rest
    back."""

    __slots__ = ("_give_back", "deadline", "left")

    def __init__(
        self, n: int, deadline: float | None, give_back: Callable[[Admission], None]
    ) -> None:
        self.left = n
        self.deadline = deadline
        self._give_back = give_back

    def __enter__(self) -> Admission:
        return self

    def __exit__(self, *_: object) -> None:
        self._give_back(self)


class Guard:
    """An `EngineClient` around another, for requests that were let in by `admit`; what is asked
    without counts as one."""

    def __init__(
        self, client: EngineClient, limits: GuardLimits, watchers: Sequence[Watcher] = ()
    ) -> None:
        self._client = client
        self._limits = limits
        self._watchers = list(watchers)
        self._inside: weakref.WeakSet[Watched] = weakref.WeakSet()
        self._answers = 0
        self._tokens = 0
        self._ends: deque[float] = deque(maxlen=64)  # when the last answers ended
        self._closing: str | None = None
        self._over = False  # the grace is
        self._limits_of_calls: set[asyncio.Timeout] = set()
        self.at_closing: list[Callable[[], None]] = []
        """Called when nothing more is let in, for what has no end of its own."""

    @property
    def model(self) -> ModelInfo:
        return self._client.model

    @property
    def tokenizer(self) -> Tokenizer:
        return self._client.tokenizer

    @property
    def lanes(self) -> Lanes:
        return self._client.lanes

    @property
    def restarts(self) -> int:
        """How often an engine process was started after the first."""
        return int(getattr(self._client, "restarts", 0))

    async def fleet(self) -> Fleet | None:
        """The replicas there are, None where there is one engine without Ray."""
        ask = getattr(self._client, "fleet", None)
        return None if ask is None else await ask()

    @property
    def replicas(self) -> tuple[str, ...]:
        """The names of the replicas that answer; none where there is one engine without Ray."""
        return tuple(getattr(self._client, "replicas", ()))

    @property
    def replica_shown(self) -> str | None:
        """That of which the records are that no name is given for."""
        shown: str | None = getattr(self._client, "shown", None)
        return shown

    def replica(self, name: str) -> Teller:
        """What the replica of that name tells of what it does."""
        found: Teller = getattr(self._client, "replica")(name)  # noqa: B009 - it may have none
        return found

    async def chat_token_ids(self, messages: Messages, layout: Layout = PLAIN) -> list[int]:
        return await self.in_time(self._client.chat_token_ids(messages, layout))

    def admit(self, n: int, since: float | None = None) -> Admission:
        """Let a request of `n` answers in, which came at `since` (the loop's clock; None: now).
        Raises `Overloaded`, and `Unavailable` at the server's end."""
        self._check_room(n)
        self._answers += n
        return Admission(n, self._deadline(since), self._give_back)

    def more(self, since: float) -> Admission:
        """For what else is asked for a request of `since` whose answers are inside: its time, and
        no room of its own."""
        return Admission(0, self._deadline(since), self._give_back)

    async def in_time(self, asked: Awaitable[Result], since: float | None = None) -> Result:
        """What `asked` gives, if a request that came at `since` has the time. Raises
        `TimedOut`."""
        return await self._before(self._deadline(since), asked)

    async def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        layout: Layout = PLAIN,
        *,
        admission: Admission | None = None,
        **options: Unpack[Options],
    ) -> Watched:
        """As `EngineClient.stream`; `admission` is that of the request it is for. Raises as `admit`
        without, and `TimedOut`."""
        params = params or self.model.default_params
        if admission is None:
            with self.admit(params.n) as admission:
                return await self._stream(admission, prompt, params, layout, **options)
        return await self._stream(admission, prompt, params, layout, **options)

    async def prompt_logprobs(
        self,
        token_ids: Sequence[int],
        count: int = 0,
        *,
        cache_salt: str | bytes | None = None,
        admission: Admission | None = None,
    ) -> list[Entries | None]:
        asked = functools.partial(
            self._client.prompt_logprobs, token_ids, count, cache_salt=cache_salt
        )
        return await self._admitted(asked, admission)

    async def embed(
        self, prompt: Prompt, *, admission: Admission | None = None, **options: Any
    ) -> EmbeddingOutput:
        asked = functools.partial(self._client.embed, prompt, **options)
        return await self._admitted(asked, admission)

    async def abort(self, request_id: str) -> None:
        await self._client.abort(request_id)

    async def stats(self) -> EngineStats:
        return await self._client.stats()

    async def records(self, cursor: Cursor, stamps_every: float | None = None) -> Records:
        return await self._client.records(cursor, stamps_every)

    async def news(self, cursor: Cursor, stamps_every: float | None = None) -> Records:
        return await self._client.news(cursor, stamps_every)

    async def chances(
        self, prompt: tuple[int, ...], answer: tuple[int, ...], top: int, salt: bytes
    ) -> list[Entries | None]:
        return await self._client.chances(prompt, answer, top, salt)

    async def funnel(self, moment: Moment) -> Funnel:
        return await self._client.funnel(moment)

    async def page_map(self, with_tokens: bool = False) -> tuple[int, PageMap]:
        return await self._client.page_map(with_tokens)

    async def about(self) -> EngineAbout:
        return await self._client.about()

    async def measure_machine(self) -> None:
        await self._client.measure_machine()

    async def check_health(self) -> None:
        if self._closing is not None:
            raise Unavailable(self._closing)
        await self._client.check_health()

    async def close(self) -> None:
        await self._client.close()

    def refuse_more(self) -> None:
        """Let nothing in any more; what is inside may go on."""
        self._closing = "the server is shutting down"
        for end in self.at_closing:
            end()

    def end_all(self) -> None:
        """End what is inside: its grace is over."""
        self.refuse_more()
        for request in list(self._inside):
            request.end_with(_shut_down())
        self._over = True
        for limit in self._limits_of_calls:
            if not limit.expired():
                limit.reschedule(asyncio.get_running_loop().time())

    async def _stream(
        self,
        admission: Admission,
        prompt: Prompt,
        params: SamplingParams,
        layout: Layout,
        **options: Unpack[Options],
    ) -> Watched:
        opening = self._client.stream(prompt, params, layout, **options)
        stream = await self._before(admission.deadline, opening)
        watched = Watched(self, stream, params, self._watchers)
        admission.left -= params.n  # counted by itself from here to its end
        self._enter(watched, admission.deadline)
        return watched

    async def _admitted(
        self, asked: Callable[[], Awaitable[Result]], admission: Admission | None
    ) -> Result:
        if admission is not None:
            return await self._before(admission.deadline, asked())
        with self.admit(1) as admission:
            return await self._before(admission.deadline, asked())

    def _give_back(self, admission: Admission) -> None:
        self._answers -= admission.left
        admission.left = 0

    def _deadline(self, since: float | None) -> float | None:
        if not self._limits.timeout_s:
            return None
        began = asyncio.get_running_loop().time() if since is None else since
        return began + self._limits.timeout_s

    def _check_room(self, n: int) -> None:
        limits = self._limits
        if self._closing is not None:
            raise Unavailable(self._closing)
        # A request with more answers than there is room for comes in when nobody else is inside.
        if self._answers and self._answers + n > limits.running + limits.queued:
            self._refuse(
                "queue_full",
                f"{self._answers} answers run or wait and at most {limits.running} + "
                f"{limits.queued} may",
            )
        if limits.queued_tokens and self._tokens >= limits.queued_tokens:
            self._refuse(
                "queue_tokens",
                f"the requests that run or wait have {self._tokens} tokens of prompt and "
                f"{limits.queued_tokens} may",
            )

    def _refuse(self, reason: str, words: str) -> None:
        for watcher in self._watchers:
            watcher.refused(reason)
        seconds = self._retry_after()
        raise Overloaded(f"the queue is full: {words}: ask again in {seconds} s", seconds)

    def _retry_after(self) -> int:
        """About when there is room again, by how fast answers ended lately."""
        if len(self._ends) < 2:
            return 1
        seconds = (time.monotonic() - self._ends[0]) / len(self._ends)
        return max(1, min(_LONGEST_RETRY_S, math.ceil(seconds)))

    async def _before(self, deadline: float | None, asked: Awaitable[Result]) -> Result:
        try:
            async with asyncio.timeout_at(deadline) as limit:
                self._limits_of_calls.add(limit)
                try:
                    return await asked
                finally:
                    self._limits_of_calls.discard(limit)
        except TimeoutError:
            if self._over:
                raise _shut_down() from None
            raise _timed_out(self._limits.timeout_s) from None

    def _enter(self, request: Watched, deadline: float | None) -> None:
        request.inside = True
        self._inside.add(request)
        self._tokens += len(request.prompt_token_ids)
        if deadline is not None:
            error = _timed_out(self._limits.timeout_s)
            loop = asyncio.get_running_loop()
            request.timer = loop.call_at(deadline, request.end_with, error)
        for watcher in self._watchers:
            watcher.began(request)

    def leave(self, request: Watched) -> None:
        """A request has ended."""
        if request.inside:
            request.inside = False
            self._inside.discard(request)
            self._answers -= request.params.n
            self._tokens -= len(request.prompt_token_ids)
            self._ends.append(time.monotonic())


class Watched:
    """A stream of the engine, on its way through the guard."""

    def __init__(
        self,
        guard: Guard,
        stream: AnswerStream,
        params: SamplingParams,
        watchers: Sequence[Watcher],
    ) -> None:
        self.params = params
        self.request_id = stream.request_id
        self.inside = False
        self.context: Any = None  # a watcher's own
        self.timer: asyncio.TimerHandle | None = None
        self.finish_reasons: list[str] = []
        self.metrics: RequestMetrics | None = None
        self.prompt_token_ids = stream.prompt_token_ids
        self.began_ns = time.time_ns()
        self._guard = guard
        self._stream = stream
        self._watchers = watchers
        self._end: PellucidError | None = None
        self._ended = False
        self._aborting: asyncio.Task[None] | None = None

    @property
    def finished(self) -> bool:
        return self._stream.finished

    @property
    def replica(self) -> str | None:
        """Which replica has taken it, where there are some."""
        found: str | None = getattr(self._stream, "replica", None)
        return found

    async def taken(self) -> None:
        """Until a replica has, where there are some. Raises why none does."""
        taken = getattr(self._stream, "taken", None)
        if taken is None:
            return
        try:
            await taken()
        except PellucidError as error:
            told = self._end or error
            self._leave(told)
            raise told from error
        except BaseException:
            self._leave()
            raise

    def output(self) -> RequestOutput:
        return self._stream.output()

    def __aiter__(self) -> Watched:
        return self

    async def __anext__(self) -> Increment:
        try:
            increment = await self._stream.__anext__()
        except StopAsyncIteration:
            self._leave()
            raise
        except PellucidError as error:
            told = self._end or error  # an engine that does not answer ends it in its own way
            self._leave(told)
            raise told from error
        except BaseException:
            self._leave()
            raise
        if self._end is not None:
            await self._stream.aclose()
            self._leave(self._end)
            raise self._end
        now = time.monotonic()
        for watcher in self._watchers:
            watcher.grew(self, increment, now)
        if increment.finish_reason is not None:
            self.finish_reasons.append(increment.finish_reason)
        if increment.metrics is not None:
            self.metrics = increment.metrics
            self._leave()
        return increment

    async def aclose(self) -> None:
        await self._stream.aclose()
        self._leave()

    def end_with(self, error: PellucidError) -> None:
        """Have it end soon, with `error`: the engine's last increment comes as the error."""
        if self._end is None and not self._ended:
            self._end = error
            self._aborting = asyncio.ensure_future(self._guard.abort(self.request_id))

    def _leave(self, error: PellucidError | None = None) -> None:
        if self._ended:
            return
        self._ended = True
        if self.timer is not None:
            self.timer.cancel()
        self._guard.leave(self)
        for watcher in self._watchers:
            watcher.ended(self, error)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # at interpreter exit parts may be gone already
            self._leave()


def _shut_down() -> Unavailable:
    return Unavailable("the server is shutting down: ask another or later")


def _timed_out(seconds: float) -> TimedOut:
    return TimedOut(f"the request took more than the {seconds:g} s that it may: ask for less")
