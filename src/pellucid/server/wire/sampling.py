"""Fields that the generating routes share: how tokens are chosen, and how the answer is asked for.

Names are OpenAI's, and vLLM's for what OpenAI has not. Ranges are those of `SamplingParams`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints

from pellucid.core.params import MAX_ANSWERS, MAX_BIAS, MAX_COUNT, MAX_LOGPROBS
from pellucid.server.wire.strict import Many, Some, Wire, few, only

Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
TokenId = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Probability = Annotated[float, Field(gt=0.0, le=1.0)]
Penalty = Annotated[float, Field(ge=-100.0, le=100.0)]
StopString = Annotated[str, StringConstraints(min_length=1)]
Bias = Annotated[float, Field(ge=-MAX_BIAS, le=MAX_BIAS)]
Seed = Annotated[int, Field(ge=-(1 << 63), le=(1 << 64) - 1)]
TopLogprobs = Annotated[int, Field(ge=0, le=MAX_LOGPROBS)]
UserName = Annotated[str, StringConstraints(max_length=512)]
RequestId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._:-]{1,128}$")]


class StreamOptions(Wire):
    include_usage: bool | None = None
    include_obfuscation: only(False) = None  # type: ignore[valid-type]


class JsonSchema(Wire):
    """`json_schema` of a response format."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")] | None = None
    description: str | None = None
    schema_: Annotated[dict[str, Any] | bool, Field(alias="schema")]
    strict: bool | None = None


class TextFormat(Wire):
    type: Literal["text"]


class JsonObjectFormat(Wire):
    type: Literal["json_object"]


class JsonSchemaFormat(Wire):
    type: Literal["json_schema"]
    json_schema: JsonSchema


ResponseFormat = Annotated[
    TextFormat | JsonObjectFormat | JsonSchemaFormat, Field(discriminator="type")
]


class Structured(Wire):
    """`structured_outputs`, as in vLLM: exactly one of these."""

    json_: Annotated[dict[str, Any] | str | bool | None, Field(alias="json")] = None
    json_object: Literal[True] | None = None
    regex: str | None = None
    choice: Many[str] | None = None
    grammar: str | None = None


class Choosing(Wire):
    """How tokens are chosen."""

    temperature: Annotated[float, Field(ge=0.0, le=100.0)] | None = None
    top_p: Probability | None = None
    top_k: Annotated[int, Field(ge=-1, le=MAX_COUNT)] | None = None
    min_p: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0.0, le=100.0)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: Annotated[dict[str, Bias], BeforeValidator(few)] | None = None
    seed: Seed | None = None
    ignore_eos: bool | None = None
    min_tokens: Annotated[int, Field(ge=0, le=MAX_COUNT)] | None = None
    stop_token_ids: Some[TokenId] | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    structured_outputs: Structured | None = None
    speculative: bool | None = None

    typical_p: only(1.0, 1) = None  # type: ignore[valid-type]
    length_penalty: only(1.0, 1) = None  # type: ignore[valid-type]
    use_beam_search: only(False) = None  # type: ignore[valid-type]
    early_stopping: only(False) = None  # type: ignore[valid-type]
    bad_words: only([]) = None  # type: ignore[valid-type]
    allowed_token_ids: only() = None  # type: ignore[valid-type]
    truncate_prompt_tokens: only(-1) = None  # type: ignore[valid-type]
    spaces_between_special_tokens: only(True) = None  # type: ignore[valid-type]


class Asking(Wire):
    """How the request itself is treated."""

    model: str | None = None
    user: UserName | None = None
    request_id: RequestId | None = None
    priority: Annotated[int, Field(ge=-(1 << 31), lt=1 << 31)] | None = None
    cache_salt: Annotated[str, StringConstraints(min_length=1, max_length=256)] | None = None
    lenient: bool | None = None

    service_tier: only("auto", "default") = None  # type: ignore[valid-type]
    store: only(False) = None  # type: ignore[valid-type]


class OpenAiGenerating(Choosing, Asking):
    """What completions and chat completions share."""

    n: Annotated[int, Field(ge=1, le=MAX_ANSWERS)] | None = None
    stop: StopString | Some[StopString] | None = None
    max_tokens: Count | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    response_format: ResponseFormat | None = None
    return_token_ids: bool | None = None

    metadata: only({}) = None  # type: ignore[valid-type]
