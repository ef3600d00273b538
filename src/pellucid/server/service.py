"""Service: what every route needs of the engine and the settings.

The one place where a request meets the engine: names are checked, text becomes a stream of
increments, and what the engine refuses becomes an `ApiError` with a status, before any response has
begun.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from starlette.requests import Request

from pellucid.core.errors import BadInput, Overloaded, PellucidError, TimedOut, Unavailable
from pellucid.core.params import SamplingParams
from pellucid.engine.client import AnswerStream
from pellucid.engine.conversation import PLAIN, Layout
from pellucid.server.errors import ApiError
from pellucid.server.guard import Admission, Guard, Watched
from pellucid.server.live.journeys import Journey, Journeys
from pellucid.server.params import as_api_error
from pellucid.server.settings import Settings
from pellucid.server.tools.formats import ToolFormat, format_of
from pellucid.text import ChatTemplate

logger = logging.getLogger("pellucid.server")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: the request's id, and a digest of the key that it came with.

    `chance`, of at most 64 bytes, is what decides whatever would else be drawn at random for the
    request: the seeds that it does not give, and the ids of tool calls. Empty: drawn. `journey` is
    the request's way through the server, if it came by HTTP.
    """

    id: str
    tenant: bytes = b""
    chance: bytes = b""
    journey: Journey | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """One request, as the engine is to know it.

    `id` is the client's or ours; `salt` keeps its cached prefixes from those of other keys and
    other salts; `since` is when it came, by the event loop's clock; `chance`, `journey` and
    `tenant` are its caller's.
    """

    id: str
    model: str
    created: int
    salt: bytes
    since: float
    priority: int = 0
    user: str | None = None
    chance: bytes = b""
    journey: Journey | None = None
    tenant: bytes = b""

    def seeded(self, params: SamplingParams, number: int = 0) -> SamplingParams:
        """`params` for prompt `number` of the request, with a seed where nothing is drawn."""
        if not self.chance or params.seed is not None:
            return params
        return replace(params, seed=int.from_bytes(self._decided(f"seed {number}")[:8], "little"))

    def tool_call_id(self, choice: int, number: int) -> str:
        """An id for tool call `number` of a choice."""
        drawn = self._decided(f"tool call {choice} {number}") if self.chance else None
        return f"call_{drawn[:12].hex() if drawn else secrets.token_hex(12)}"

    def _decided(self, what: str) -> bytes:
        return hashlib.blake2b(what.encode(), key=self.chance, digest_size=16).digest()


_NAMED: Final = frozenset({"system", "developer", "user", "assistant", "tool"})


class Service:
    """An engine under the settings of one application."""

    def __init__(self, client: Guard, settings: Settings, journeys: Journeys | None = None) -> None:
        self.client = client
        self.settings = settings
        self.limits = settings.limits
        self.model = client.model
        self.tokenizer = client.tokenizer
        self.started = int(time.time())
        self.journeys = Journeys() if journeys is None else journeys
        self.large_bodies = asyncio.Lock()  # of requests, which are read one at a time
        self._numbers = itertools.count()

    @property
    def defaults(self) -> SamplingParams:
        return self.model.default_params

    @cached_property
    def unread_names(self) -> frozenset[str]:
        """The roles of whose messages the model's template does not read the `name`."""
        sources = {self.model.chat_template, self.model.tool_template}
        templates = [ChatTemplate(source) for source in sources if source]
        if not templates:
            return frozenset()  # what is refused is the conversation
        return frozenset(
            role for role in _NAMED if not any(_reads_names(each, role) for each in templates)
        )

    def call(self, request: Request, asked: Any) -> Call:
        """As `call_of`, for a request that came by HTTP."""
        tenant: bytes = getattr(request.state, "tenant", b"")
        state = request.state
        return self.call_of(Caller(state.request_id, tenant, journey=state.journey), asked)

    def call_of(self, caller: Caller, asked: Any) -> Call:
        """The request's own facts. Raises `ApiError` 404 for a model that is not served here."""
        salt = getattr(asked, "cache_salt", None) or ""
        call = Call(
            id=getattr(asked, "request_id", None) or caller.id,
            model=self.model_named(asked.model),
            created=int(time.time()),
            salt=_salted(caller.tenant, salt),
            since=time.monotonic() if caller.journey is None else caller.journey.received,
            priority=getattr(asked, "priority", None) or 0,
            user=_user(asked),
            chance=caller.chance,
            journey=caller.journey,
            tenant=caller.tenant,
        )
        if call.user is not None:
            logger.info("request %s is for user %r", call.id, call.user)
        return call

    def model_named(self, name: str | None) -> str:
        """`name`, or the model's own where none is given. Raises `ApiError` 404."""
        names = self.settings.served_model_names
        if name is None:
            return names[0]
        if name not in names:
            raise ApiError(
                404,
                f"model {name[:200]!r} is not served here: this server has "
                f"{', '.join(map(repr, names))}",
                param="model",
                code="model_not_found",
            )
        return name

    async def open(
        self,
        call: Call,
        prompt: Any,
        params: SamplingParams,
        layout: Layout = PLAIN,
        *,
        param: str = "prompt",
        names: Mapping[str, str] | None = None,
        parse_special: bool = False,
    ) -> AnswerStream:
        """The engine's answer to one prompt, as it comes.

        `param` is the field that the prompt came from, `names` what the request calls fields that
        `SamplingParams` calls otherwise. Raises `ApiError`.
        """
        with await self.admit(call, params.n) as admission:
            stream = await self._begun(
                call, prompt, params, layout, param, names, parse_special, admission
            )
        await self._taken(stream, param, names)
        return stream

    async def admit(self, call: Call, n: int) -> Admission:
        """Room for all of a request, which has `n` answers. Raises `ApiError`."""
        try:
            return self.client.admit(n, call.since)
        except PellucidError as error:
            raise await self.refusal(error) from error

    async def _begun(
        self,
        call: Call,
        prompt: Any,
        params: SamplingParams,
        layout: Layout,
        param: str,
        names: Mapping[str, str] | None,
        parse_special: bool,
        admission: Admission,
    ) -> Watched:
        request_id = f"{call.id}.{next(self._numbers)}"
        if call.journey is not None:
            self.journeys.begin(request_id, call.journey, call.salt, call.tenant)
        try:
            return await self.client.stream(
                prompt,
                call.seeded(params),
                layout,
                admission=admission,
                request_id=request_id,
                parse_special=parse_special,
                priority=call.priority,
                cache_salt=call.salt,
            )
        except PellucidError as error:
            raise await self.refusal(error, param, names) from error

    async def _taken(self, stream: Watched, param: str, names: Mapping[str, str] | None) -> None:
        """Until the engine has the request in hand: so that a response begins with a status that
        says whether, and names the replica that has it. Raises `ApiError`."""
        try:
            await stream.taken()
        except PellucidError as error:
            raise await self.refusal(error, param, names) from error
        self.journeys.taken(stream)

    async def open_all(
        self,
        call: Call,
        prompts: Sequence[Any],
        params: SamplingParams,
        names: Mapping[str, str] | None = None,
        parse_special: bool = False,
    ) -> list[AnswerStream]:
        """A stream for each prompt, or none at all. Raises `ApiError`."""
        streams: list[Watched] = []
        try:
            with await self.admit(call, params.n * len(prompts)) as admission:
                for place, prompt in enumerate(prompts):
                    param = f"prompt[{place}]" if len(prompts) > 1 else "prompt"
                    seeded = call.seeded(params, place)
                    stream = await self._begun(
                        call, prompt, seeded, PLAIN, param, names, parse_special, admission
                    )
                    streams.append(stream)
            for stream in streams:  # they are taken side by side
                await self._taken(stream, "prompt", names)
        except BaseException:
            for stream in streams:
                await stream.aclose()
            raise
        return list(streams)

    async def refusal(
        self, error: PellucidError, param: str = "prompt", names: Mapping[str, str] | None = None
    ) -> ApiError:
        """What a client is told of an engine's error: 503 if the engine is gone."""
        if not isinstance(error, BadInput | Overloaded | TimedOut | Unavailable):
            try:
                await self.client.check_health()
            except PellucidError as reason:
                return ApiError(503, f"the engine is not available: {reason}", retry_after=5)
        return as_api_error(error, {"prompt": param, **(names or {})})

    def tool_format(self) -> ToolFormat | None:
        """How this model writes tool calls, by its template; None: it was not made for tools."""
        return format_of(self.model.tool_template)


def _reads_names(template: ChatTemplate, role: str) -> bool:
    as_system = role == "developer" and "developer" not in template.source
    return template.reads_names("system" if as_system else role)


def _user(asked: Any) -> str | None:
    """Whom the client acts for, in OpenAI's field or Anthropic's."""
    metadata = getattr(asked, "metadata", None)
    user: str | None = getattr(asked, "user", None) or getattr(metadata, "user_id", None)
    return user


def _salted(tenant: bytes, salt: str) -> bytes:
    """Equal for equal salts of one key; nothing where there is neither."""
    if not tenant and not salt:
        return b""
    return hashlib.blake2b(salt.encode(), key=tenant[:64], digest_size=16).digest()
