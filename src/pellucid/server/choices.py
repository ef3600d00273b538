"""One choice of a response in the making: from increments to what is said of them.

A whole answer is one large increment, so that what is streamed, joined, is what is not.
"""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pellucid.core.outputs import CompletionOutput, Increment
from pellucid.core.params import SamplingParams
from pellucid.server.clusters import held_back
from pellucid.server.logprobs import ChatLogprobs, CompletionLogprobs, Ruler
from pellucid.server.tools.parser import CallArguments, CallBegins, Part, Text, ToolParser
from pellucid.text import Tokenizer

_LONGEST_TAIL: Final = 8  # tokens that one unfinished character may be spread over


def as_increment(output: CompletionOutput) -> Increment:
    """A whole answer as the one increment that it is made of."""
    return Increment(
        output.index,
        output.text,
        output.token_ids,
        output.logprobs,
        output.finish_reason,
        output.stop_reason,
    )


class Tail:
    """The end of an answer's text: what belongs to a character is not said before the rest of it,
    and half a character at the answer's end is not said at all."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._last: deque[int] = deque(maxlen=_LONGEST_TAIL)
        self._held = ""

    def whole(self, increment: Increment) -> str:
        """The text that the increment lets be said."""
        self._last.extend(increment.token_ids)
        text = increment.text
        if self._held:
            text, self._held = self._held + text, ""
        if increment.finish_reason is not None:
            return text[:-1] if text.endswith("\ufffd") and self._unfinished() else text
        n_held = held_back(text)
        if n_held == 0:
            return text
        self._held = text[-n_held:]
        return text[:-n_held]

    def _unfinished(self) -> bool:
        """Whether the last tokens end within a character."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for token in self._last:
            if not self._tokenizer.vocabulary.is_special(token):
                decoder.decode(self._tokenizer.token_bytes(token))
        return bool(decoder.getstate()[0])


@dataclass(frozen=True, slots=True)
class Echo:
    """A prompt to be said before its answer. `logprobs` has what is said of its tokens."""

    text: str
    logprobs: dict[str, Any] | None = None


class CompletionChoice:
    """Choice `index` of a completion."""

    def __init__(
        self,
        index: int,
        tokenizer: Tokenizer,
        params: SamplingParams,
        *,
        echo: Echo | None = None,
        token_ids: bool = False,
        prompt_token_ids: Sequence[int] = (),
    ) -> None:
        self.index = index
        self._tail = Tail(tokenizer)
        self._echo = echo
        self.gives_ids = token_ids
        self._prompt_token_ids: Sequence[int] | None = prompt_token_ids
        self._logprobs: CompletionLogprobs | None = None
        if params.logprobs is not None:
            self._logprobs = CompletionLogprobs(tokenizer, params.logprobs)
            start = len(echo.text) if echo is not None else 0
            self._ruler = Ruler(tokenizer, params.skip_special_tokens, start)

    def push(self, increment: Increment) -> dict[str, Any] | None:
        """What the increment adds, as a choice of a response; None if that is nothing yet."""
        return self._choice(increment, self._tail.whole(increment))

    def text_alone(self, increment: Increment) -> str | None:
        """The text that the increment adds, if nothing else is said of it but its tokens' ids; None
        if there is more: it is for `push` then."""
        if self._logprobs is not None or self._echo is not None or self._ids_of_prompt_are_due:
            return None
        return None if increment.finish_reason is not None else self._tail.whole(increment)

    @property
    def _ids_of_prompt_are_due(self) -> bool:
        return self.gives_ids and self._prompt_token_ids is not None

    def _choice(self, increment: Increment, text: str) -> dict[str, Any] | None:
        logprobs = self._said_of(increment)
        if self._echo is not None:
            text = self._echo.text + text
            logprobs = _joined(self._echo.logprobs, logprobs)
            self._echo = None
        elif not (text or logprobs or self.gives_ids or increment.finish_reason):
            return None
        choice: dict[str, Any] = {
            "index": self.index,
            "text": text,
            "logprobs": logprobs,
            "finish_reason": increment.finish_reason,
        }
        if increment.finish_reason is not None:
            choice["stop_reason"] = increment.stop_reason
        if self.gives_ids:
            choice["token_ids"] = list(increment.token_ids)
            if self._prompt_token_ids is not None:
                choice["prompt_token_ids"] = list(self._prompt_token_ids)
                self._prompt_token_ids = None
        return choice

    def _said_of(self, increment: Increment) -> dict[str, Any] | None:
        if self._logprobs is None:
            return None
        for token, entries in zip(increment.token_ids, increment.logprobs or (), strict=False):
            self._logprobs.add(token, entries, self._ruler.place(token))
        return self._logprobs.take() if len(self._logprobs) else None


def _joined(first: dict[str, Any] | None, second: dict[str, Any] | None) -> dict[str, Any] | None:
    if first is None or second is None:
        return first or second
    return {name: [*first[name], *second[name]] for name in first}


@dataclass(slots=True)
class Said:
    """What an increment adds to a choice of a conversation."""

    parts: Sequence[Part] = ()
    logprobs: list[dict[str, Any]] = field(default_factory=list)
    token_ids: Sequence[int] = ()
    finish_reason: str | None = None
    stop_reason: int | str | None = None

    @property
    def anything(self) -> bool:
        return bool(self.parts or self.logprobs or self.finish_reason is not None)


class ChatChoice:
    """Choice `index` of a conversation's answer. `parser` looks for tool calls."""

    def __init__(
        self,
        index: int,
        tokenizer: Tokenizer,
        params: SamplingParams,
        parser: ToolParser | None = None,
    ) -> None:
        self.index = index
        self.finished = False
        self._tail = Tail(tokenizer)
        self._parser = parser
        self._logprobs: ChatLogprobs | None = None
        if params.logprobs is not None:
            self._logprobs = ChatLogprobs(tokenizer, params.logprobs, params.skip_special_tokens)

    def push(self, increment: Increment) -> Said:
        if self.finished:
            return Said()
        text = self._tail.whole(increment)
        finish: str | None = increment.finish_reason
        parts: list[Part] = [Text(text)] if text else []
        if self._parser is not None:
            parts = self._parser.push(text)
            if finish is not None:
                parts += self._parser.finish()
            if self._parser.complete or (finish == "stop" and self._parser.n_calls):
                finish = "tool_calls"
        self.finished = finish is not None
        return Said(
            parts,
            self._said_of(increment, text),
            increment.token_ids,
            finish,
            increment.stop_reason,
        )

    def _said_of(self, increment: Increment, text: str) -> list[dict[str, Any]]:
        if self._logprobs is None:
            return []
        for token, entries in zip(increment.token_ids, increment.logprobs or (), strict=False):
            self._logprobs.push(token, entries)
        return self._logprobs.show(len(text))


@dataclass(slots=True)
class ChatAnswer:
    """Everything that was said of a choice."""

    text: str = ""
    calls: list[dict[str, str]] = field(default_factory=list)
    """Each with `id`, `name` and `arguments`."""
    logprobs: list[dict[str, Any]] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: int | str | None = None

    def add(self, said: Said) -> None:
        for part in said.parts:
            if isinstance(part, Text):
                self.text += part.text
            elif isinstance(part, CallBegins):
                self.calls.append({"id": part.id, "name": part.name, "arguments": ""})
            elif isinstance(part, CallArguments):
                self.calls[part.index]["arguments"] += part.text
        self.logprobs += said.logprobs
        self.token_ids += said.token_ids
        if said.finish_reason is not None:
            self.finish_reason, self.stop_reason = said.finish_reason, said.stop_reason
