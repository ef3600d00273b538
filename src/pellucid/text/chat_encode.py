"""A conversation to ids, such that no text of the caller's becomes a control token.

The template writes control tokens as text, and text is all that comes out of it. So before
rendering, every control token that a string of the caller's spells is broken by a mark, a
character found in neither input nor template; likewise a piece of one at a string's ends, which the
template's own text might complete. The rendered text is split at the control tokens that are left,
which are the template's; then the marks go, and what lies between is encoded as plain text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from pellucid.core.errors import BadInput, PromptTooLong
from pellucid.text.chat import ChatTemplate, Message, Place, plain
from pellucid.text.tokenizer import Tokenizer

# Roles that templates build control tokens of (`<|user|>`) and compare with.
KNOWN_ROLES: Final = frozenset(
    "system developer user assistant model tool function ipython observation tool_response "
    "documents context".split()
)
# Noncharacters: never text of their own, not escaped in JSON unless all of Unicode is.
_MARKS: Final = [*map(chr, range(0xFDD0, 0xFDF0)), *(chr(p << 16 | 0xFFFE) for p in range(1, 17))]
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def encode_chat(
    tokenizer: Tokenizer,
    template: ChatTemplate,
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]] | None = None,
    documents: Sequence[Mapping[str, Any]] | None = None,
    add_generation_prompt: bool = True,
    continue_final_message: bool = False,
    max_model_len: int | None = None,
    **template_kwargs: Any,
) -> list[int]:
    """Token ids of the conversation, as the template lays it out.

    BOS is what the template writes. Only where the template never mentions it and the
    vocabulary came from a GGUF file that asks for one is it added in front, as llama.cpp does;
    Hugging Face adds none. Raises `BadInput` as `ChatTemplate.render` does, and `PromptTooLong`,
    before it is tokenised, where it surely has `max_model_len` tokens or more.
    """
    given = [
        plain(messages, "messages"),
        plain(tools, "tools"),
        plain(documents, "documents"),
        plain(template_kwargs, "chat_template_kwargs"),
    ]
    guard = _Guard(tokenizer, template, given)
    text = template.render_protected(
        messages,
        tools,
        documents,
        add_generation_prompt,
        continue_final_message,
        template_kwargs,
        guard.protect,
    )
    if max_model_len is not None:
        fewest = tokenizer.surely(guard.restore(text), max_model_len)
        if fewest is not None:
            raise PromptTooLong(fewest, max_model_len, at_least=True)
    ids: list[int] = []
    for fragment in tokenizer.control_tokens.split(text):
        if fragment.token is not None:
            ids.append(fragment.token.id)
        else:
            between = guard.restore(fragment.text)
            ids += tokenizer.encode_fragment(between, at_start=fragment.start == 0)
    if _wants_bos(tokenizer, template) and ids[:1] != [tokenizer.bos_id]:
        assert tokenizer.bos_id is not None
        ids.insert(0, tokenizer.bos_id)
    return ids


def _wants_bos(tokenizer: Tokenizer, template: ChatTemplate) -> bool:
    if not tokenizer.adds_bos_to_chat or tokenizer.bos_id is None:
        return False
    named = tokenizer.vocabulary.tokens[tokenizer.bos_id]
    return "bos_token" not in template.source and named not in template.source


class _Guard:
    """Breaks control tokens in strings, and puts the strings together again."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate, given: object) -> None:
        self._control = tokenizer.control_tokens
        self._source = template.source
        single = sorted(token.text for token in self._control if len(token.text) == 1)
        marks = _unused("\0".join([template.source, *_strings(given)]), 1 + len(single))
        self._mark = marks[0]
        self._stand_ins = dict(zip(single, marks[1:], strict=True))
        self._translation = str.maketrans(self._stand_ins)

    def protect(self, text: str, place: Place) -> str:
        if place == "role":
            if text in KNOWN_ROLES or self._quoted(text):
                return text
            return self._broken(self._mark.join(["", text[:1], text[1:], ""]))
        safe = self._broken(text)
        if place == "key" and _NAME.match(text):
            return safe  # templates look names up; they do not complete a control token
        if safe == text and self._quoted(text):
            return text  # a word the template itself compares with
        lengths = range(1, min(len(text), self._control.longest) + 1)
        if self._control.holds(text) or any(self._control.ends(text[:n]) for n in lengths):
            safe = self._mark + safe
        if any(self._control.begins(text[-n:]) for n in lengths):
            safe += self._mark
        return safe

    def restore(self, text: str) -> str:
        """Without marks, also where a template wrote them as JSON escapes."""
        text = text.replace(self._mark, "").replace(_escaped(self._mark), "")
        for original, stand_in in self._stand_ins.items():
            text = text.replace(stand_in, original).replace(_escaped(stand_in), original)
        return text

    def _broken(self, text: str) -> str:
        """Every control token in `text`, overlapping ones too, has a mark after its first
        character. Tokens of one character are stood in for."""
        return self._control.break_up(text, self._mark).translate(self._translation)

    def _quoted(self, text: str) -> bool:
        return f"'{text}'" in self._source or f'"{text}"' in self._source


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _strings(key)
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


def _unused(text: str, count: int) -> list[str]:
    """Marks that occur in `text` neither plainly nor as JSON escapes."""
    lowered = text.lower()
    unused = (mark for mark in _MARKS if mark not in text and _escaped(mark) not in lowered)
    free = list(islice(unused, count))  # each is looked for in all of a text of megabytes
    if len(free) < count:
        raise BadInput(
            "the conversation uses up the noncharacters (U+FDD0 to U+FDEF and their like) that "
            "keep text apart from control tokens: remove them"
        )
    return free


def _escaped(char: str) -> str:
    """`char` as JSON escapes it, in lower case."""
    data = char.encode("utf-16-be").hex()
    return "".join(f"\\u{data[i : i + 4]}" for i in range(0, len(data), 4))
