"""`POST /v1/responses`: text and function calls, whole or as events. Nothing is stored."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from pellucid.core.params import SamplingParams
from pellucid.engine.conversation import Layout
from pellucid.server.choices import ChatAnswer, Said
from pellucid.server.conversation import Conversation, Tools
from pellucid.server.errors import ApiError
from pellucid.server.events import DONE, event
from pellucid.server.params import RESPONSES_NAMES, form_names, responses_params
from pellucid.server.reading import Read
from pellucid.server.routes.streaming import answered
from pellucid.server.service import Call, Service
from pellucid.server.tools.parser import CallArguments, CallBegins, Text
from pellucid.server.usage import responses_usage, timings
from pellucid.server.wire.responses import (
    FunctionCall,
    FunctionCallOutput,
    InputMessage,
    InputText,
    NamedFunctionTool,
    ResponsesRequest,
)


async def responses(request: Request) -> Response:
    return await answered(request, ResponsesRequest, Answering, _error_event)


class Answering:
    """One request on its way."""

    def __init__(self, service: Service, call: Call, asking: Read[ResponsesRequest]) -> None:
        asked = asking.asked
        self._asked = asked
        self._call = call
        self._extras = asking.extras
        self.conversation = Conversation(
            service,
            call,
            _messages(asked),
            responses_params(asked, service.defaults, service.limits),
            Layout(chat_template_kwargs=asked.chat_template_kwargs),
            _tools(asked),
            {**RESPONSES_NAMES, **form_names(asked)},
        )

    async def open(self) -> None:
        await self.conversation.open()

    async def whole(self) -> dict[str, Any]:
        [answer] = await self.conversation.whole()
        items = _Items(self._call.id)
        items.add(_as_said(answer))
        items.end(answer.finish_reason)
        return self._ended(items, answer.finish_reason)

    async def events(self) -> AsyncGenerator[bytes, None]:
        numbers = itertools.count()

        def numbered(kind: str, **fields: Any) -> bytes:
            return event({"type": kind, "sequence_number": next(numbers), **fields}, kind)

        begun = self._response("in_progress", [])
        yield numbered("response.created", response=begun)
        yield numbered("response.in_progress", response=begun)
        items = _Items(self._call.id)
        finish: str | None = None
        async for _, said in self.conversation.parts():
            finish = said.finish_reason or finish
            for kind, fields in items.add(said):
                yield numbered(kind, **fields)
        for kind, fields in items.end(finish):
            yield numbered(kind, **fields)
        ended = self._ended(items, finish)
        yield numbered(f"response.{ended['status']}", response=ended)
        yield DONE

    def _ended(self, items: _Items, finish: str | None) -> dict[str, Any]:
        status = "completed" if finish in ("stop", "tool_calls") else "incomplete"
        metrics = self.conversation.metrics
        details = {"reason": "max_output_tokens"} if finish == "length" else None
        return {
            **self._response(status, items.items),
            "incomplete_details": details,
            "usage": responses_usage(metrics),
            "timings": timings(metrics),
        }

    def _response(self, status: str, output: Sequence[dict[str, Any]]) -> dict[str, Any]:
        asked, params = self._asked, self.conversation.params
        return {
            "id": f"resp_{self._call.id}",
            "object": "response",
            "created_at": self._call.created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": asked.instructions,
            "max_output_tokens": asked.max_output_tokens,
            "metadata": asked.metadata or {},
            "model": self._call.model,
            "output": list(output),
            "parallel_tool_calls": asked.parallel_tool_calls is not False,
            "previous_response_id": None,
            "store": False,
            "temperature": params.temperature,
            "text": _text_of(asked),
            "tool_choice": _choice_of(asked),
            "tools": [tool.model_dump() for tool in asked.tools or ()],
            "top_logprobs": _count(params),
            "top_p": params.top_p,
            "truncation": "disabled",
            "user": asked.user,
            "usage": None,
            **self._extras,
        }


class _Items:
    """The output items of a response in the making. `add` and `end` return the events that tell of
    them, as (type, fields)."""

    def __init__(self, request_id: str) -> None:
        self._request_id = request_id
        self.items: list[dict[str, Any]] = []
        self._events: list[tuple[str, dict[str, Any]]] = []
        self._logprobs: list[dict[str, Any]] = []  # of text that the parser holds back yet

    def add(self, said: Said) -> Sequence[tuple[str, dict[str, Any]]]:
        self._logprobs += said.logprobs
        for part in said.parts:
            if isinstance(part, Text):
                logprobs, self._logprobs = self._logprobs, []
                self._add_text(part.text, logprobs)
            elif isinstance(part, CallBegins):
                self._close("completed")
                self._open_call(part)
            elif isinstance(part, CallArguments):
                self._add_arguments(part.text)
        if self._open and self.items[-1]["type"] == "function_call":
            self._logprobs = []  # a call has none
        return self._taken()

    def end(self, finish: str | None) -> Sequence[tuple[str, dict[str, Any]]]:
        """The last item ends as the answer did. An empty answer is an empty message."""
        if not self.items:
            self._add_text("", [])
        self._close("completed" if finish in ("stop", "tool_calls") else "incomplete")
        return self._taken()

    def _add_text(self, text: str, logprobs: list[dict[str, Any]]) -> None:
        if not self._open or self.items[-1]["type"] != "message":
            self._close("completed")
            self._open_message()
        part = self.items[-1]["content"][0]
        part["text"] += text
        part["logprobs"] += logprobs
        if text:
            self._tell("response.output_text.delta", content_index=0, delta=text, logprobs=logprobs)

    def _add_arguments(self, text: str) -> None:
        self.items[-1]["arguments"] += text
        self._tell("response.function_call_arguments.delta", delta=text)

    def _open_message(self) -> None:
        item: dict[str, Any] = {
            "type": "message",
            "id": f"msg_{self._request_id}_{len(self.items)}",
            "role": "assistant",
            "status": "in_progress",
            "content": [],
        }
        self._begin(item)
        part: dict[str, Any] = {
            "type": "output_text",
            "text": "",
            "annotations": [],
            "logprobs": [],
        }
        self._tell("response.content_part.added", content_index=0, part=_copied(part))
        item["content"] = [part]

    def _open_call(self, part: CallBegins) -> None:
        self._begin(
            {
                "type": "function_call",
                "id": f"fc_{self._request_id}_{len(self.items)}",
                "call_id": part.id,
                "name": part.name,
                "arguments": "",
                "status": "in_progress",
            }
        )

    def _begin(self, item: dict[str, Any]) -> None:
        self.items.append(item)
        place = len(self.items) - 1
        self._events.append(
            ("response.output_item.added", {"output_index": place, "item": _copied(item)})
        )

    def _close(self, status: str) -> None:
        """Ends the item that is open, if one is."""
        if not self._open:
            return
        item = self.items[-1]
        item["status"] = status
        if item["type"] == "message":
            part = item["content"][0]
            self._tell(
                "response.output_text.done",
                content_index=0,
                text=part["text"],
                logprobs=part["logprobs"],
            )
            self._tell("response.content_part.done", content_index=0, part=_copied(part))
        else:
            self._tell(
                "response.function_call_arguments.done",
                name=item["name"],
                arguments=item["arguments"],
            )
        self._events.append(
            (
                "response.output_item.done",
                {"output_index": len(self.items) - 1, "item": _copied(item)},
            )
        )

    @property
    def _open(self) -> bool:
        return bool(self.items) and self.items[-1]["status"] == "in_progress"

    def _tell(self, kind: str, **fields: Any) -> None:
        place = {"item_id": self.items[-1]["id"], "output_index": len(self.items) - 1}
        self._events.append((kind, {**place, **fields}))

    def _taken(self) -> Sequence[tuple[str, dict[str, Any]]]:
        taken, self._events = self._events, []
        return taken


def _copied(item: dict[str, Any]) -> dict[str, Any]:
    """As it is now: events are sent after the item has grown."""
    return {k: [dict(e) for e in v] if isinstance(v, list) else v for k, v in item.items()}


def _as_said(answer: ChatAnswer) -> Said:
    """A whole answer, its text first."""
    parts: list[Any] = [Text(answer.text)] if answer.text else []
    for place, call in enumerate(answer.calls):
        parts.append(CallBegins(place, call["id"], call["name"]))
        parts.append(CallArguments(place, call["arguments"]))
    return Said(parts, answer.logprobs, (), answer.finish_reason, answer.stop_reason)


def _error_event(error: ApiError) -> bytes:
    return event({"type": "error", **error.body()}, "error") + DONE


def _messages(asked: ResponsesRequest) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    if asked.instructions is not None:
        messages.append({"role": "system", "content": asked.instructions})
    if isinstance(asked.input, str):
        return [*messages, {"role": "user", "content": asked.input}]
    messages += _joined(asked.input)
    return messages


def _joined(items: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Items as messages: calls in a row belong to the assistant's message before them."""
    message: dict[str, Any] | None = None
    for item in items:
        if isinstance(item, FunctionCall):
            if message is None or message["role"] != "assistant":
                if message is not None:
                    yield message
                message = {"role": "assistant", "content": ""}
            message.setdefault("tool_calls", []).append(
                {
                    "id": item.call_id,
                    "type": "function",
                    "function": {"name": item.name, "arguments": item.arguments},
                }
            )
            continue
        if message is not None:
            yield message
        message = _message(item)
    if message is not None:
        yield message


def _message(item: InputMessage | FunctionCallOutput) -> dict[str, Any]:
    if isinstance(item, FunctionCallOutput):
        return {"role": "tool", "tool_call_id": item.call_id, "content": _plain(item.output)}
    role = "system" if item.role == "developer" else item.role
    return {"role": role, "content": _plain(item.content)}


def _plain(content: str | list[InputText]) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content)


def _tools(asked: ResponsesRequest) -> Tools:
    functions = [tool.model_dump(exclude_none=True, exclude={"type"}) for tool in asked.tools or ()]
    parallel = asked.parallel_tool_calls is not False
    if isinstance(asked.tool_choice, NamedFunctionTool):
        return Tools(functions, asked.tool_choice.name, named=True, parallel=parallel)
    return Tools(functions, asked.tool_choice or "auto", parallel=parallel)


def _choice_of(asked: ResponsesRequest) -> Any:
    choice = asked.tool_choice
    return choice.model_dump() if isinstance(choice, NamedFunctionTool) else choice or "auto"


def _text_of(asked: ResponsesRequest) -> dict[str, Any]:
    form = asked.text.format if asked.text is not None else None
    if form is None:
        return {"format": {"type": "text"}}
    return {"format": json.loads(form.model_dump_json(by_alias=True, exclude_none=True))}


def _count(params: SamplingParams) -> int:
    return params.logprobs or 0
