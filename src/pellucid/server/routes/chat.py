"""`POST /v1/chat/completions`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from pellucid.engine.conversation import Layout
from pellucid.server.choices import ChatAnswer, Said
from pellucid.server.conversation import Conversation, Tools
from pellucid.server.errors import IN_PLACE
from pellucid.server.events import DONE, Events, event, numbers, string
from pellucid.server.params import chat_params, form_names
from pellucid.server.reading import Read
from pellucid.server.routes.streaming import answered
from pellucid.server.service import Call, Service
from pellucid.server.tools.parser import CallArguments, CallBegins, Part, Text
from pellucid.server.usage import timings, usage
from pellucid.server.wire.chat import ChatRequest, Message, NamedTool

_NAMES: Final = {"logprobs": "top_logprobs", IN_PLACE: IN_PLACE}


async def chat_completions(request: Request) -> Response:
    return await answered(request, ChatRequest, Answering)


class Answering:
    """One request on its way."""

    def __init__(self, service: Service, call: Call, asking: Read[ChatRequest]) -> None:
        asked = asking.asked
        self._asked = asked
        self._call = call
        self._extras = asking.extras
        self.conversation = Conversation(
            service,
            call,
            as_messages(asked.messages, service),
            chat_params(asked, service.defaults, service.limits),
            layout_of(asked),
            _tools(asked),
            {**_NAMES, **form_names(asked)},
        )

    async def open(self) -> None:
        await self.conversation.open()

    async def whole(self) -> dict[str, Any]:
        answers = await self.conversation.whole()
        body = {
            **self._head("chat.completion"),
            "choices": [self._choice(index, answer) for index, answer in enumerate(answers)],
            **self._costs(),
        }
        if self._asked.return_token_ids:
            body["prompt_token_ids"] = self.conversation.prompt_token_ids
        return body

    async def events(self) -> AsyncGenerator[bytes, None]:
        """Chunks; the one that ends the last choice waits until what it cost is known."""
        options = self._asked.stream_options
        counted = bool(options is not None and options.include_usage)
        chunks = _Chunks(self._head("chat.completion.chunk"), counted)
        open_ = self.conversation.params.n
        last: tuple[int, Said] | None = None
        if self._asked.return_token_ids:
            chunks.with_ids(self.conversation.prompt_token_ids)
        async for index, said in self.conversation.parts():
            open_ -= said.finish_reason is not None
            if said.finish_reason is not None and not open_:
                last = index, said
                continue
            chunk = chunks.of(index, said)
            if chunk:
                yield chunk
        if last is not None:
            yield chunks.of(*last, costs=None if counted else self._costs())
        if counted:
            yield event({**chunks.head, "choices": [], **self._costs()})
        yield DONE

    def _choice(self, index: int, answer: ChatAnswer) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": index,
            "message": message_of(answer),
            "logprobs": {"content": answer.logprobs} if self._asked.logprobs else None,
            "finish_reason": answer.finish_reason,
            "stop_reason": answer.stop_reason,
        }
        if self._asked.return_token_ids:
            choice["token_ids"] = answer.token_ids
        return choice

    def _head(self, kind: str) -> dict[str, Any]:
        call = self._call
        return {
            "id": f"chatcmpl-{call.id}",
            "object": kind,
            "created": call.created,
            "model": call.model,
            **self._extras,
        }

    def _costs(self) -> dict[str, Any]:
        metrics = self.conversation.metrics
        return {"usage": usage(metrics), "timings": timings(metrics)}


class _Chunks:
    """Chunks of a stream."""

    def __init__(self, head: dict[str, Any], counted: bool) -> None:
        self.head = head
        self._ending: dict[str, Any] = {"usage": None} if counted else {}
        self._began: set[int] = set()
        self._prompt_ids: list[int] | None = None
        self._give_ids = False
        self._plain = Events(lambda i, text: self._framed(_plain(i, text), {}), 2)
        self._with_ids = Events(
            lambda i, text, ids: self._framed({**_plain(i, text), "token_ids": ids}, {}), 3
        )

    def with_ids(self, prompt_token_ids: list[int]) -> None:
        """Say token ids too; the prompt's in the first chunk."""
        self._prompt_ids, self._give_ids = prompt_token_ids, True

    def of(self, index: int, said: Said, costs: dict[str, Any] | None = None) -> bytes:
        """The events that say `said`; none if it says nothing. `costs` join the last one."""
        if not said.anything and not (self._give_ids and said.token_ids):
            return b""
        first = b""
        if index not in self._began:
            self._began.add(index)
            first = self._chunk(index, {"role": "assistant", "content": ""}, None, self._first())
        if costs is None and self._is_plain(said):
            return first + self._texts(index, said)
        deltas = list(_deltas(said.parts)) or [{}]
        parts = [self._chunk(index, delta, None, {}) for delta in deltas[:-1]]
        parts.append(self._chunk(index, deltas[-1], said, costs or {}))
        return first + b"".join(parts)

    def _first(self) -> dict[str, Any]:
        ids, self._prompt_ids = self._prompt_ids, None
        return {} if ids is None else {"prompt_token_ids": ids}

    def _is_plain(self, said: Said) -> bool:
        return (
            said.finish_reason is None
            and not said.logprobs
            and (not self._give_ids or len(said.parts) == 1)
            and all(isinstance(part, Text) for part in said.parts)
        )

    def _texts(self, index: int, said: Said) -> bytes:
        texts = [string(part.text) for part in said.parts if isinstance(part, Text)]
        place = b"%d" % index
        if self._give_ids:
            return self._with_ids.of(place, *texts, numbers(said.token_ids))
        return b"".join([self._plain.of(place, text) for text in texts])

    def _chunk(
        self, index: int, delta: dict[str, Any], said: Said | None, more: dict[str, Any]
    ) -> bytes:
        choice = _choice(index, delta)
        if said is not None:
            choice["logprobs"] = {"content": said.logprobs} if said.logprobs else None
            choice["finish_reason"] = said.finish_reason
            if said.finish_reason is not None:
                choice["stop_reason"] = said.stop_reason
            if self._give_ids:
                choice["token_ids"] = list(said.token_ids)
        return event(self._framed(choice, more))

    def _framed(self, choice: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
        return {**self.head, "choices": [choice], **self._ending, **more}


def _plain(index: Any, text: Any) -> dict[str, Any]:
    return _choice(index, {"content": text})


def _choice(index: int, delta: dict[str, Any]) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}


def message_of(answer: ChatAnswer) -> dict[str, Any]:
    """The assistant's message."""
    calls = [
        {
            "id": call["id"],
            "type": "function",
            "function": {"name": call["name"], "arguments": call["arguments"]},
        }
        for call in answer.calls
    ]
    message: dict[str, Any] = {
        "role": "assistant",
        "content": answer.text if answer.text or not calls else None,
        "refusal": None,
    }
    if calls:
        message["tool_calls"] = calls
    return message


def _deltas(parts: Any) -> Iterator[dict[str, Any]]:
    for part in parts:
        yield _delta(part)


def _delta(part: Part) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"content": part.text}
    if isinstance(part, CallBegins):
        call: dict[str, Any] = {
            "index": part.index,
            "id": part.id,
            "type": "function",
            "function": {"name": part.name, "arguments": ""},
        }
    else:
        assert isinstance(part, CallArguments)
        call = {"index": part.index, "function": {"arguments": part.text}}
    return {"tool_calls": [call]}


def as_messages(messages: list[Message], service: Service) -> list[dict[str, Any]]:
    """Messages as the template takes them. A developer's are a system's where the template knows no
    developer."""
    knows_developer = "developer" in (service.model.chat_template or "")
    laid_out = []
    for message in messages:
        plain = message.model_dump(exclude_none=True)
        if plain["role"] == "developer" and not knows_developer:
            plain["role"] = "system"
        for call in plain.get("tool_calls", ()):
            call.pop("index", None)
        laid_out.append(plain)
    return laid_out


def layout_of(asked: Any) -> Layout:
    """How a conversation is laid out, tools aside. To go on with the last message is not to begin
    another, unless that is said."""
    continued = bool(asked.continue_final_message)
    begin = asked.add_generation_prompt
    return Layout(
        None, not continued if begin is None else begin, continued, asked.chat_template_kwargs
    )


def _tools(asked: ChatRequest) -> Tools:
    functions = [tool.function.model_dump(exclude_none=True) for tool in asked.tools or ()]
    parallel = asked.parallel_tool_calls is not False
    if isinstance(asked.tool_choice, NamedTool):
        return Tools(functions, asked.tool_choice.function.name, named=True, parallel=parallel)
    return Tools(functions, asked.tool_choice or "auto", parallel=parallel)
