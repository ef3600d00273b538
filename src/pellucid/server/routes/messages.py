"""`POST /v1/messages` and its `count_tokens`: Anthropic's form, whole or as events."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from pellucid.engine.conversation import Layout
from pellucid.server.choices import ChatAnswer
from pellucid.server.conversation import Conversation, Tools
from pellucid.server.errors import ApiError, bad_request
from pellucid.server.events import event, unless_gone
from pellucid.server.params import MESSAGES_NAMES, messages_params
from pellucid.server.reading import Read, read
from pellucid.server.routes.streaming import answered
from pellucid.server.service import Call, Service
from pellucid.server.tools.parser import CallArguments, CallBegins, Part, Text
from pellucid.server.usage import anthropic_usage, timings
from pellucid.server.wire.messages import (
    AnthropicMessage,
    CountTokensRequest,
    MessagesRequest,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)


async def messages(request: Request) -> Response:
    return await answered(request, MessagesRequest, Answering, _error_event)


async def count_tokens(request: Request) -> Response:
    service: Service = request.app.state.service
    asking = await read(request, CountTokensRequest)
    asked = asking.asked
    call = service.call(request, asked)
    conversation = Conversation(
        service,
        call,
        _as_messages(asked),
        service.defaults,
        _layout(asked),
        _tools(asked),
        _names(asked),
    )
    body = {"input_tokens": await unless_gone(request, conversation.count()), **asking.extras}
    return JSONResponse(body, headers=asking.headers)


class Answering:
    """One request on its way."""

    def __init__(self, service: Service, call: Call, asking: Read[MessagesRequest]) -> None:
        asked = asking.asked
        self._call = call
        self._extras = asking.extras
        self.conversation = Conversation(
            service,
            call,
            _as_messages(asked),
            messages_params(asked, service.defaults, service.limits),
            _layout(asked),
            _tools(asked),
            _names(asked),
        )

    async def open(self) -> None:
        await self.conversation.open()

    async def whole(self) -> dict[str, Any]:
        [answer] = await self.conversation.whole()
        metrics = self.conversation.metrics
        return {
            **self._message(_blocks(answer)),
            **_reason(answer.finish_reason, answer.stop_reason),
            "usage": anthropic_usage(metrics),
            "timings": timings(metrics),
        }

    async def events(self) -> AsyncGenerator[bytes, None]:
        begun = self._message([])
        n_prompt = len(self.conversation.prompt_token_ids)
        begun["usage"] = {
            "input_tokens": n_prompt,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 0,
        }
        yield _event("message_start", message=begun)
        blocks = _Blocks()
        finish: str | None = None
        stop: int | str | None = None
        async for _, said in self.conversation.parts():
            for part in said.parts:
                for sent in blocks.add(part):
                    yield sent
            if said.finish_reason is not None:
                finish, stop = said.finish_reason, said.stop_reason
        for sent in blocks.end():
            yield sent
        metrics = self.conversation.metrics
        yield _event(
            "message_delta",
            delta=_reason(finish, stop),
            usage=anthropic_usage(metrics),
            timings=timings(metrics),
        )
        yield _event("message_stop")

    def _message(self, content: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": f"msg_{self._call.id}",
            "type": "message",
            "role": "assistant",
            "model": self._call.model,
            "content": content,
            "stop_reason": None,
            "stop_sequence": None,
            **self._extras,
        }


class _Blocks:
    """The content blocks of a stream: each begins, grows and ends before the next."""

    def __init__(self) -> None:
        self._index = -1
        self._kind = ""

    def add(self, part: Part) -> Iterator[bytes]:
        if isinstance(part, Text):
            if self._kind != "text":
                yield from self._begin({"type": "text", "text": ""})
            yield self._delta({"type": "text_delta", "text": part.text})
        elif isinstance(part, CallBegins):
            yield from self._begin(
                {"type": "tool_use", "id": part.id, "name": part.name, "input": {}}
            )
        elif isinstance(part, CallArguments):
            yield self._delta({"type": "input_json_delta", "partial_json": part.text})

    def end(self) -> Iterator[bytes]:
        """An empty answer is an empty text."""
        if self._index < 0:
            yield from self._begin({"type": "text", "text": ""})
        yield _event("content_block_stop", index=self._index)

    def _begin(self, block: dict[str, Any]) -> Iterator[bytes]:
        if self._index >= 0:
            yield _event("content_block_stop", index=self._index)
        self._index += 1
        self._kind = block["type"]
        yield _event("content_block_start", index=self._index, content_block=block)

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return _event("content_block_delta", index=self._index, delta=delta)


def _event(kind: str, **fields: Any) -> bytes:
    return event({"type": kind, **fields}, kind)


def _error_event(error: ApiError) -> bytes:
    return event(error.body(anthropic=True), "error")


def _reason(finish: str | None, stop: int | str | None) -> dict[str, Any]:
    if finish == "tool_calls":
        return {"stop_reason": "tool_use", "stop_sequence": None}
    if finish == "length":
        return {"stop_reason": "max_tokens", "stop_sequence": None}
    if isinstance(stop, str):
        return {"stop_reason": "stop_sequence", "stop_sequence": stop}
    return {"stop_reason": "end_turn", "stop_sequence": None}


def _blocks(answer: ChatAnswer) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if answer.text or not answer.calls:
        blocks.append({"type": "text", "text": answer.text})
    for call in answer.calls:
        blocks.append(
            {
                "type": "tool_use",
                "id": call["id"],
                "name": call["name"],
                "input": _object(call["arguments"]),
            }
        )
    return blocks


def _object(text: str) -> dict[str, Any]:
    """A call's arguments as the object they write; what a model wrote wrongly, or not to its end,
    is handed on as it is."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"__invalid_json__": text}


def _names(asked: CountTokensRequest) -> dict[str, str]:
    """What is gone on with is the last message, and nobody asked for it by name."""
    return {**MESSAGES_NAMES, "continue_final_message": f"messages[{len(asked.messages) - 1}]"}


def _as_messages(asked: CountTokensRequest) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if asked.system is not None:
        found.append({"role": "system", "content": _text(asked.system)})
    for place, message in enumerate(asked.messages):
        found += _laid_out(message, f"messages[{place}]")
    return found


def _laid_out(message: AnthropicMessage, where: str) -> Iterator[dict[str, Any]]:
    """One message as the template's: results of tools are messages of their own."""
    if isinstance(message.content, str):
        yield {"role": message.role, "content": message.content}
        return
    texts, calls = [], []
    for place, block in enumerate(message.content):
        if isinstance(block, TextBlock):
            texts.append(block.text)
        elif isinstance(block, ToolUseBlock) and message.role == "assistant":
            calls.append(
                {
                    "id": block.id,
                    "type": "function",
                    "function": {"name": block.name, "arguments": block.input},
                }
            )
        elif isinstance(block, ToolResultBlock) and message.role == "user":
            yield {
                "role": "tool",
                "tool_call_id": block.tool_use_id,
                "content": _result(block),
            }
        else:
            param = f"{where}.content[{place}]"
            raise bad_request(f"{param}: a {message.role} has no {block.type}", param)
    if calls:
        yield {"role": message.role, "content": "".join(texts), "tool_calls": calls}
    elif texts or not message.content:
        yield {"role": message.role, "content": "".join(texts)}


def _result(block: ToolResultBlock) -> str:
    """What a tool gave back. Templates know no failures, so a failure is said in words."""
    text = _text(block.content or "")
    return f"Error: {text}" if block.is_error else text


def _text(content: str | Sequence[TextBlock]) -> str:
    return content if isinstance(content, str) else "".join(block.text for block in content)


def _layout(asked: CountTokensRequest) -> Layout:
    """An assistant's message at the end is the beginning of the answer."""
    prefilled = asked.messages[-1].role == "assistant"
    return Layout(add_generation_prompt=not prefilled, continue_final_message=prefilled)


def _tools(asked: CountTokensRequest) -> Tools:
    functions = []
    for tool in asked.tools or ():
        function: dict[str, Any] = {"name": tool.name, "parameters": tool.input_schema}
        if tool.description is not None:
            function["description"] = tool.description
        if tool.strict is not None:
            function["strict"] = tool.strict
        functions.append(function)
    choice = asked.tool_choice
    if choice is None:
        return Tools(functions)
    parallel = choice.disable_parallel_tool_use is not True
    if choice.type == "tool":
        if choice.name is None:
            raise bad_request("tool_choice: the type 'tool' needs a name", "tool_choice.name")
        return Tools(functions, choice.name, named=True, parallel=parallel)
    if choice.name is not None:
        raise bad_request("tool_choice.name is for the type 'tool' alone", "tool_choice.name")
    return Tools(functions, "required" if choice.type == "any" else choice.type, parallel=parallel)
