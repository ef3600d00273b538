"""`POST /v1/chat/completions`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StringConstraints, ValidationInfo
from pydantic_core import PydanticCustomError

from pellucid.server.wire.sampling import Count, OpenAiGenerating, TopLogprobs
from pellucid.server.wire.strict import NOT_HONOURED, Some, Wire, only

ToolName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]


def _read_by_template(name: str | None, info: ValidationInfo) -> str | None:
    """`info.context` has the roles whose names the served model's template does not read."""
    if name is not None and info.context and info.data.get("role") in info.context:
        raise PydanticCustomError(
            NOT_HONOURED, "is nothing that this model's chat template reads: leave it out"
        )
    return name


Name = Annotated[str | None, AfterValidator(_read_by_template)]


class TextPart(Wire):
    type: Literal["text"]
    text: str


Content = str | Some[TextPart]


class SystemMessage(Wire):
    role: Literal["system", "developer"]
    content: Content
    name: Name = None


class UserMessage(Wire):
    role: Literal["user"]
    content: Content
    name: Name = None


class CalledFunction(Wire):
    name: ToolName
    arguments: str


class ToolCall(Wire):
    id: str
    type: Literal["function"] = "function"
    function: CalledFunction
    index: int | None = None


class AssistantMessage(Wire):
    role: Literal["assistant"]
    content: Content | None = None
    name: Name = None
    tool_calls: Some[ToolCall] | None = None
    refusal: only() = None  # type: ignore[valid-type]
    audio: only() = None  # type: ignore[valid-type]
    annotations: only([]) = None  # type: ignore[valid-type]
    function_call: only() = None  # type: ignore[valid-type]
    reasoning_content: only("") = None  # type: ignore[valid-type]


class ToolMessage(Wire):
    role: Literal["tool"]
    content: Content
    tool_call_id: str
    name: Name = None


Message = Annotated[
    SystemMessage | UserMessage | AssistantMessage | ToolMessage, Field(discriminator="role")
]


class Function(Wire):
    name: ToolName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Wire):
    type: Literal["function"]
    function: Function


class NamedFunction(Wire):
    name: ToolName


class NamedTool(Wire):
    type: Literal["function"]
    function: NamedFunction


ToolChoice = Literal["none", "auto", "required"] | NamedTool


class ChatRequest(OpenAiGenerating):
    """A conversation to go on with. `max_completion_tokens` and `max_tokens` mean the same."""

    messages: Annotated[Some[Message], Field(min_length=1)]
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: TopLogprobs | None = None
    tools: Some[Tool] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None

    prompt_logprobs: only() = None  # type: ignore[valid-type]
    modalities: only(["text"]) = None  # type: ignore[valid-type]
    audio: only() = None  # type: ignore[valid-type]
    prediction: only() = None  # type: ignore[valid-type]
    functions: only([]) = None  # type: ignore[valid-type]
    function_call: only() = None  # type: ignore[valid-type]
    reasoning_effort: only() = None  # type: ignore[valid-type]
    verbosity: only() = None  # type: ignore[valid-type]
    web_search_options: only() = None  # type: ignore[valid-type]
