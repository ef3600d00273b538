"""Request: what one call asks of the engine for one prompt, checked and complete."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pellucid.core.params import SamplingParams

if TYPE_CHECKING:
    from pellucid.sampling.grammar import Grammar


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt in tokens and how to go on from it.

    `params` belong to the request alone. `seed` is the caller's, or one drawn for this request.
    `max_tokens` is what each answer may have: `params.max_tokens`, or less where the context
    ends before. `priority`: lower runs first. `salt`: requests of different salts share no cached
    prefixes. `prompt` is the text it came from, if it came from one. `grammar` is what
    `params.structured_outputs` was compiled to. `tokenize_s`: seconds that it took to make its
    prompt tokens.
    """

    id: str
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams
    seed: int
    max_tokens: int
    prompt: str | None = None
    priority: int = 0
    salt: bytes = b""
    grammar: Grammar | None = None
    tokenize_s: float = field(default=0.0, compare=False)
