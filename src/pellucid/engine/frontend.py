"""Frontend: what callers say, as requests that an engine takes.

Text and conversations become tokens here, and every argument is checked against the model. It needs
the model's tokenizer and sizes alone, no weights, and may be used by several threads.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pellucid.core.errors import BadInput
from pellucid.core.params import SamplingParams
from pellucid.core.structured import StructuredOutputs
from pellucid.engine.conversation import PLAIN, Conversations, Layout, is_conversation
from pellucid.engine.inputs import Inputs, Prompt
from pellucid.engine.request import Request
from pellucid.sampling import sample_seed
from pellucid.text import ChatTemplates, Tokenizer

if TYPE_CHECKING:
    from pellucid.sampling.grammar import Grammar, GrammarCompiler


class Frontend:
    """The way in to one model. `seed` is the engine's: requests without one draw theirs from it,
    in the order in which they are made. `is_token`: bool [vocabulary], as `tokens_of` gives it."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        templates: ChatTemplates,
        defaults: SamplingParams,
        vocab_size: int,
        max_model_len: int,
        seed: int,
        is_token: NDArray[np.bool_],
    ) -> None:
        self.tokenizer = tokenizer
        self.inputs = Inputs(tokenizer, vocab_size, max_model_len)
        self.conversations = Conversations(tokenizer, templates)
        self.defaults = defaults
        self._is_token = is_token
        self._seed = seed
        self._numbers = itertools.count()

    @cached_property
    def _grammars(self) -> GrammarCompiler:
        from pellucid.sampling.grammar import GrammarCompiler  # most requests need none of it

        return GrammarCompiler(self.tokenizer, self._is_token)

    def close(self) -> None:
        """End the process that grammars are tried in, if one was needed."""
        if "_grammars" in self.__dict__:
            self._grammars.close()

    def default_params(self) -> SamplingParams:
        """What a request without parameters uses, a copy. Raises `BadInput` if the model's own
        settings do not fit its vocabulary."""
        return self.inputs.params(self.defaults)

    def conversation(self, messages: Any, layout: Layout) -> Prompt:
        """A conversation as a prompt; its text is what the model reads, control tokens shown.

        Raises `BadInput` as `Conversations.token_ids`, and `PromptTooLong`.
        """
        ids = self.conversations.token_ids(messages, layout, self.inputs.max_model_len)
        checked = self.inputs.prompt(ids, parse_special=False)
        text = self.tokenizer.decode(checked.token_ids, skip_special_tokens=False)
        return Prompt(checked.token_ids, text)

    def prompt(self, given: Any, layout: Layout = PLAIN, parse_special: bool = False) -> Prompt:
        """One prompt in any accepted form, or a conversation.

        Raises `BadInput` for arguments that this kind of prompt would not read, and as
        `Inputs.prompt` and `conversation` do.
        """
        began = time.perf_counter()
        if is_conversation(given):
            _refuse_unread(parse_special, "parse_special", "a prompt")
            found = self.conversation(given, layout)
        else:
            _refuse_unread(layout != PLAIN, "tools and the template's arguments", "messages")
            found = self.inputs.prompt(given, parse_special)
        return replace(found, seconds=time.perf_counter() - began)

    def next_id(self) -> str:
        """A number that no request has."""
        return str(next(self._numbers))

    def request(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        request_id: str | None = None,
        priority: int = 0,
        cache_salt: str | bytes | None = None,
        with_grammar: bool = True,
    ) -> Request:
        """A request for `prompt`; `params` None are the model's, `request_id` None its number.
        `priority`: lower runs first. `cache_salt`: only requests of the same salt share cached
        prefixes.

        A grammar is compiled if one is asked for, which may take seconds, unless `with_grammar` is
        False: `complete` does it then. Raises `BadInput` naming a parameter that this model cannot
        honour.
        """
        params = self.inputs.params(self.defaults if params is None else params)
        grammar = self.grammar(params.structured_outputs) if with_grammar else None
        number = next(self._numbers)
        # Numbered from 1: the first request does not use the engine's own seed.
        seed = sample_seed(self._seed, number + 1) if params.seed is None else params.seed
        room = self.inputs.room(prompt, params.max_tokens)
        name = str(number) if request_id is None else request_id
        return Request(
            name,
            prompt.token_ids,
            params,
            seed,
            room,
            prompt.text,
            _priority(priority),
            salt_of(cache_salt),
            grammar,
            prompt.seconds,
        )

    def complete(self, request: Request) -> Request:
        """`request` with the grammar that it asks for. Raises `BadInput`."""
        return replace(request, grammar=self.grammar(request.params.structured_outputs))

    def grammar(self, asked: StructuredOutputs | None) -> Grammar | None:
        """What `asked` is compiled to, once for equal ones. Raises `BadInput`."""
        return None if asked is None else self._grammars.compile(asked)


def _priority(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadInput(f"priority must be a whole number, not {value!r}")
    return value


def salt_of(value: Any) -> bytes:
    """A salt as the scheduler takes it. Raises `BadInput`."""
    if value is None:
        return b""
    if not isinstance(value, str | bytes):
        raise BadInput(f"cache_salt must be a string or bytes, not {value!r}")
    return value.encode() if isinstance(value, str) else value


def _refuse_unread(given: bool, what: str, use: str) -> None:
    if given:
        raise BadInput(f"{what} are for {use} alone: leave them out")
