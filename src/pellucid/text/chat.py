"""Chat templates: from messages to the text a model was trained to answer.

A template is a Jinja2 program that comes with the weights, from anyone: it runs in
`pellucid.text.sandbox`. Its variables are Hugging Face's: `messages`, `tools`, `documents`,
`add_generation_prompt`, `bos_token`, `eos_token`, and whatever else the caller gives.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Literal

from jinja2.exceptions import TemplateError, TemplateSyntaxError
from jinja2.meta import find_undeclared_variables

from pellucid.core.errors import BadInput
from pellucid.text.characters import as_text
from pellucid.text.sandbox import Budget, LimitError, TemplateEnvironment, render_within

MAX_SOURCE_CHARS: Final = 256 << 10
MAX_DEPTH: Final = 64

Message = Mapping[str, Any]
Place = Literal["text", "key", "role"]
Protect = Callable[[str, Place], str]
"""Makes a string of the caller's safe to render, given where it stands."""

_PROBE: Final = "pellucid-probe"
_CALLING: Final[Message] = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": "a", "type": "function", "function": {"name": "a", "arguments": "{}"}}],
}


class ChatTemplate:
    """One template, compiled. `bos_token` and `eos_token` are what the template may write."""

    def __init__(self, source: str, bos_token: str | None = None, eos_token: str | None = None):
        """Raises `BadInput` at a template that is too long or does not parse."""
        if not isinstance(source, str):
            raise BadInput(f"a chat template must be text, not {type(source).__name__}")
        if len(source) > MAX_SOURCE_CHARS:
            raise BadInput(
                f"the chat template is too long: {len(source)} characters, and at most "
                f"{MAX_SOURCE_CHARS} are read"
            )
        self.source = source
        self.bos_token = bos_token or ""
        self.eos_token = eos_token or ""
        self._template = _compiled(source)
        self._takes_parts: bool | None = None

    @cached_property
    def variables(self) -> frozenset[str]:
        """The names that it reads of whoever lays a conversation out."""
        return frozenset(find_undeclared_variables(TemplateEnvironment().parse(self.source)))

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        **template_kwargs: Any,
    ) -> str:
        """The text of a conversation.

        A message's `content` is a string or a list of parts such as `{"type": "text", "text":
        ...}`, which are joined for a template that only knows strings. Tool calls' `arguments`
        given as JSON text are handed to the template as the object they write.
        `continue_final_message` ends the text where the last message's content ends.

        Raises `BadInput` at messages that are none, with the template's own message where it
        refuses them, and when it goes past a limit of time, steps or size.
        """
        return self.render_protected(
            messages,
            tools,
            documents,
            add_generation_prompt,
            continue_final_message,
            template_kwargs,
            lambda text, place: text,
        )

    def render_protected(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None,
        documents: Sequence[Mapping[str, Any]] | None,
        add_generation_prompt: bool,
        continue_final_message: bool,
        template_kwargs: Mapping[str, Any],
        protect: Protect,
    ) -> str:
        """`render`, with every string of the caller's passed through `protect` first."""
        prepared = self.prepare(messages)
        if continue_final_message:
            if add_generation_prompt:
                raise BadInput(
                    "continue_final_message goes on with the last message and "
                    "add_generation_prompt begins a new one: ask for one of them"
                )
            mark = _unused_mark(self.source, prepared)
            _mark_end(prepared, mark)
        variables = {
            **plain(template_kwargs, "template argument"),
            "messages": prepared,
            "tools": plain(tools, "tools") if tools else None,
            "documents": plain(documents, "documents") if documents else None,
        }
        roles = [message.pop("role") for message in prepared]
        variables = {name: _protected(value, protect) for name, value in variables.items()}
        for message, role in zip(variables["messages"], roles, strict=True):
            message["role"] = protect(role, "role")
        variables["add_generation_prompt"] = add_generation_prompt
        for name, token in (("bos_token", self.bos_token), ("eos_token", self.eos_token)):
            variables.setdefault(name, token)
        text = self._render(variables)
        return _cut_at(text, mark) if continue_final_message else text

    def prepare(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        """The messages as plain data the template understands. Raises `BadInput`."""
        if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
            raise BadInput("messages must be a list of {'role': ..., 'content': ...}")
        if not messages:
            raise BadInput("messages is empty: give at least one")
        prepared = [_message(message, index) for index, message in enumerate(messages)]
        if any(isinstance(message.get("content"), list) for message in prepared):
            if self._takes_parts is None:
                self._takes_parts = self._probe_parts()
            if not self._takes_parts:
                for index, message in enumerate(prepared):
                    if isinstance(message.get("content"), list):
                        message["content"] = _joined(message["content"], index)
        return prepared

    def reads_names(self, role: str) -> bool:
        """Whether the text of a conversation depends on the `name` of a message of `role`; True
        where the template refuses what it would be told by."""
        before: dict[str, list[Message]] = {
            "system": [],
            "user": [],
            "assistant": [{"role": "user", "content": "a"}],
            "tool": [{"role": "user", "content": "a"}, _CALLING],
        }
        message = {"role": role, "content": "a", "name": _PROBE, "tool_call_id": "a"}
        after = [{"role": "user", "content": "a"}] if role == "system" else []
        try:
            return _PROBE in self.render([*before.get(role, []), message, *after])
        except BadInput:
            return True

    def _probe_parts(self) -> bool:
        """Whether the template takes a list of parts: it writes their text, not the list."""
        part = {"type": "text", "text": _PROBE}
        variables = {
            "messages": [{"role": "user", "content": [part]}],
            "add_generation_prompt": False,
            "bos_token": self.bos_token,
            "eos_token": self.eos_token,
        }
        try:
            text = self._render(variables)
        except BadInput:
            return False
        before = text.partition(_PROBE)[0]
        return _PROBE in text and not before.rstrip().endswith(("'text': '", '"text": "'))

    def _render(self, variables: Mapping[str, Any]) -> str:
        budget = Budget()
        for value in variables.values():
            budget.admit(value)
        try:
            return render_within(budget, self._template, variables)
        except LimitError as error:
            raise BadInput(
                f"the chat template was stopped: {error}; use a template that ends, or send less"
            ) from error
        except TemplateError as error:
            raise BadInput(f"the chat template refuses: {error.message or error}") from error
        except RecursionError as error:
            raise BadInput("the chat template was stopped: it nests too deeply") from error
        except Exception as error:  # whatever a template's own code runs into
            raise BadInput(
                f"the chat template failed: {type(error).__name__}: {str(error)[:500]}"
            ) from error


def _compiled(source: str) -> Any:
    try:
        return TemplateEnvironment().from_string(source)
    except TemplateSyntaxError as error:
        raise BadInput(
            f"the chat template does not parse: line {error.lineno}: {error.message}"
        ) from error
    except (TemplateError, SyntaxError, RecursionError, MemoryError, ValueError) as error:
        raise BadInput(f"the chat template does not parse: {str(error)[:500]}") from error


def plain(value: Any, where: str, depth: int = 0) -> Any:
    """A copy made of plain JSON types. Raises `BadInput` at anything else, and at depth."""
    if depth > MAX_DEPTH:
        raise BadInput(f"{where} is nested more than {MAX_DEPTH} deep")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(as_text(value))
    if isinstance(value, int | float):
        return int(value) if isinstance(value, int) else float(value)
    if isinstance(value, Mapping):
        return {
            plain(key, where, depth + 1): plain(item, where, depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return [plain(item, where, depth + 1) for item in value]
    raise BadInput(f"{where} holds a {type(value).__name__}, which is no JSON value")


def _message(message: Message, index: int) -> dict[str, Any]:
    where = f"messages[{index}]"
    if not isinstance(message, Mapping):
        raise BadInput(f"{where} must be an object with role and content")
    copy: dict[str, Any] = {
        key: value for key, value in plain(message, where).items() if value is not None
    }
    role = copy.get("role")
    if not isinstance(role, str) or not role:
        raise BadInput(f"{where}.role must be a string such as 'user'")
    content = copy.get("content", "")
    if not isinstance(content, str | list):
        raise BadInput(f"{where}.content must be a string or a list of parts")
    if isinstance(content, list):
        copy["content"] = [
            {"type": "text", "text": part} if isinstance(part, str) else part for part in content
        ]
    for call in copy.get("tool_calls") or ():
        _parse_arguments(call, where)
    return copy


def _parse_arguments(call: Any, where: str) -> None:
    """Arguments written as JSON text, as the OpenAI API has them, become the object."""
    function = call.get("function", call) if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return
    try:
        arguments = json.loads(function["arguments"])
    except (ValueError, RecursionError):
        return
    if isinstance(arguments, dict):
        function["arguments"] = plain(arguments, f"{where}.tool_calls")


def _joined(parts: list[Any], index: int) -> str:
    texts = []
    for part in parts:
        text = part.get("text") if isinstance(part, dict) else None
        if not isinstance(text, str):
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            raise BadInput(
                f"messages[{index}].content has a part of type {kind!r}: this model reads text only"
            )
        texts.append(text)
    return "".join(texts)


def _protected(value: Any, protect: Protect) -> Any:
    if isinstance(value, str):
        return protect(value, "text")
    if isinstance(value, list):
        return [_protected(item, protect) for item in value]
    if isinstance(value, dict):
        return {
            protect(key, "key") if isinstance(key, str) else key: _protected(item, protect)
            for key, item in value.items()
        }
    return value


def _unused_mark(source: str, messages: list[dict[str, Any]]) -> str:
    """A mark for the end of the last message. Its space tells whether the template trims."""
    text = source + repr(messages)
    number = next(n for n in range(len(text) + 1) if f"pellucid-end-{n}-" not in text)
    return f"pellucid-end-{number}- "


def _mark_end(messages: list[dict[str, Any]], mark: str) -> None:
    content = messages[-1].get("content")
    if isinstance(content, str):
        messages[-1]["content"] = content + mark
        return
    last = content[-1] if content else None
    if not isinstance(last, dict) or not isinstance(last.get("text"), str):
        raise BadInput("continue_final_message needs a last message that ends in text")
    last["text"] += mark


def _cut_at(text: str, mark: str) -> str:
    place = text.rfind(mark.rstrip())
    if place < 0:
        raise BadInput(
            "continue_final_message: the chat template leaves the last message's content out"
        )
    return text[:place] if text.startswith(mark, place) else text[:place].rstrip()
