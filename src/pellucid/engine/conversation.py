"""Conversations to prompts, through the model's own chat template."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from pellucid.core.errors import BadInput
from pellucid.text import ChatTemplates, Tokenizer

if TYPE_CHECKING:
    from pellucid.text import ChatTemplate

Message = Mapping[str, Any]

# What a template is given in any case; naming one again would contradict it.
_TAKEN = frozenset(
    "tokenizer template messages tools add_generation_prompt continue_final_message "
    "max_model_len".split()
)

_OURS = _TAKEN | {"bos_token", "eos_token"}


@dataclass(frozen=True, slots=True)
class Layout:
    """How a conversation is laid out, beside its messages."""

    tools: Sequence[Mapping[str, Any]] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    chat_template_kwargs: Mapping[str, Any] | None = None


PLAIN = Layout()


class Conversations:
    """Lays conversations out for one model."""

    def __init__(self, tokenizer: Tokenizer, templates: ChatTemplates) -> None:
        self._tokenizer = tokenizer
        self._templates = templates
        self._compiled = cache(self._compile)  # compiling costs milliseconds

    @property
    def possible(self) -> bool:
        """True if the model has a chat template."""
        return bool(self._templates)

    def source(self, with_tools: bool) -> str | None:
        """The template's source, None if the model has none."""
        return self._compiled(with_tools).source if self.possible else None

    def token_ids(
        self, messages: Sequence[Message], layout: Layout, max_model_len: int | None = None
    ) -> list[int]:
        """Ids of a conversation. Raises `BadInput` as `pellucid.text.encode_chat` does (of
        `max_model_len` too), and when the model has no template."""
        from pellucid.text import encode_chat  # brings Jinja2, which a plain prompt never needs

        given = dict(layout.chat_template_kwargs or {})
        for name in given:
            if not isinstance(name, str) or name in _TAKEN:
                raise BadInput(f"chat_template_kwargs: {name!r} is not for templates: leave it out")
        template = self._compiled(bool(layout.tools))
        for name in given:
            if name not in template.variables:
                raise BadInput(
                    f"chat_template_kwargs: {name!r} is nothing that this model's chat template "
                    f"reads: leave it out{_close_to(name, template.variables - _OURS)}"
                )
        return encode_chat(
            self._tokenizer,
            template,
            messages,
            layout.tools,
            add_generation_prompt=layout.add_generation_prompt,
            continue_final_message=layout.continue_final_message,
            max_model_len=max_model_len,
            **given,
        )

    def _compile(self, with_tools: bool) -> ChatTemplate:
        return self._templates.choose(self._tokenizer, with_tools=with_tools)


def _close_to(name: str, names: Iterable[str]) -> str:
    from difflib import get_close_matches

    found = get_close_matches(name, sorted(names), 1)
    return f", or did you mean {found[0]!r}" if found else ""


def is_conversation(given: Any) -> bool:
    """A list of messages, as against a prompt or a list of prompts: its first item has a role."""
    return (
        not isinstance(given, str)  # the commonest, and no list
        and isinstance(given, Sequence)
        and bool(given)
        and isinstance(given[0], Mapping)
        and "role" in given[0]
    )
