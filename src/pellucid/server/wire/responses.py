"""`POST /v1/responses`: text and function calls. Nothing is stored."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints

from pellucid.server.wire.chat import ToolName
from pellucid.server.wire.sampling import Asking, Choosing, Count, TopLogprobs
from pellucid.server.wire.strict import Some, Wire, few, only


class InputText(Wire):
    type: Literal["input_text", "output_text", "text"]
    text: str
    annotations: only([]) = None  # type: ignore[valid-type]
    logprobs: list[Any] | None = None
    """Of an answer given back; it says nothing about how to go on."""


class InputMessage(Wire):
    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: str | Some[InputText]
    id: str | None = None
    status: Literal["in_progress", "completed", "incomplete"] | None = None
    phase: only("final_answer") = None  # type: ignore[valid-type]


class FunctionCall(Wire):
    type: Literal["function_call"]
    call_id: str
    name: ToolName
    arguments: str
    id: str | None = None
    status: Literal["in_progress", "completed", "incomplete"] | None = None


class FunctionCallOutput(Wire):
    type: Literal["function_call_output"]
    call_id: str
    output: str | Some[InputText]
    id: str | None = None
    status: Literal["in_progress", "completed", "incomplete"] | None = None


InputItem = InputMessage | FunctionCall | FunctionCallOutput


class PlainFormat(Wire):
    type: Literal["text"]


class JsonObject(Wire):
    type: Literal["json_object"]


class NamedSchema(Wire):
    type: Literal["json_schema"]
    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    schema_: Annotated[dict[str, Any] | bool, Field(alias="schema")]
    description: str | None = None
    strict: bool | None = None


class TextOptions(Wire):
    format: (
        Annotated[PlainFormat | JsonObject | NamedSchema, Field(discriminator="type")] | None
    ) = None
    verbosity: only("medium") = None  # type: ignore[valid-type]


class FunctionTool(Wire):
    type: Literal["function"]
    name: ToolName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class NamedFunctionTool(Wire):
    type: Literal["function"]
    name: ToolName


class ResponsesStreamOptions(Wire):
    include_obfuscation: only(False) = None  # type: ignore[valid-type]


class ResponsesRequest(Choosing, Asking):
    input: str | Annotated[Some[InputItem], Field(min_length=1)]
    instructions: str | None = None
    max_output_tokens: Count | None = None
    stream: bool | None = None
    stream_options: ResponsesStreamOptions | None = None
    text: TextOptions | None = None
    tools: Some[FunctionTool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedFunctionTool | None = None
    parallel_tool_calls: bool | None = None
    top_logprobs: TopLogprobs | None = None
    include: Some[Literal["message.output_text.logprobs"]] | None = None
    metadata: (
        Annotated[
            dict[
                Annotated[str, StringConstraints(max_length=64)],
                Annotated[str, StringConstraints(max_length=512)],
            ],
            BeforeValidator(few),
            Field(max_length=16),
        ]
        | None
    ) = None
    chat_template_kwargs: dict[str, Any] | None = None

    truncation: only("disabled") = None  # type: ignore[valid-type]
    background: only(False) = None  # type: ignore[valid-type]
    previous_response_id: only() = None  # type: ignore[valid-type]
    conversation: only() = None  # type: ignore[valid-type]
    prompt: only() = None  # type: ignore[valid-type]
    reasoning: only() = None  # type: ignore[valid-type]
    max_tool_calls: only() = None  # type: ignore[valid-type]
    prompt_cache_key: only() = None  # type: ignore[valid-type]
    safety_identifier: only() = None  # type: ignore[valid-type]
