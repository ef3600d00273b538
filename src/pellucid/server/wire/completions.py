"""`POST /v1/completions`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from pellucid.core.params import MAX_COUNT
from pellucid.server.wire.sampling import OpenAiGenerating, TokenId, TopLogprobs
from pellucid.server.wire.strict import Many, only


class CompletionRequest(OpenAiGenerating):
    """`prompt` is a text, token ids, or a list of either: each is answered `n` times. With `echo`,
    `max_tokens` may be 0: the prompt is scored and nothing is added."""

    prompt: str | Many[str] | Many[TokenId] | Many[Many[TokenId]]
    max_tokens: Annotated[int, Field(ge=0, le=MAX_COUNT)] | None = None
    echo: bool | None = None
    parse_special: bool | None = None
    """Control tokens spelled in a text prompt are read as such."""
    logprobs: TopLogprobs | None = None
    best_of: Annotated[int, Field(ge=1)] | None = None

    add_special_tokens: only(True) = None  # type: ignore[valid-type]
    suffix: only("") = None  # type: ignore[valid-type]
    prompt_logprobs: only() = None  # type: ignore[valid-type]
