"""`POST /v1/messages` and `POST /v1/messages/count_tokens`: Anthropic's form."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from pellucid.server.wire.chat import ToolName
from pellucid.server.wire.sampling import Count, Probability, StopString, UserName
from pellucid.server.wire.strict import Some, Wire, only

CacheControl = only({"type": "ephemeral"})


class TextBlock(Wire):
    type: Literal["text"]
    text: str
    citations: only([]) = None  # type: ignore[valid-type]
    cache_control: CacheControl = None  # type: ignore[valid-type]


class ToolUseBlock(Wire):
    type: Literal["tool_use"]
    id: str
    name: ToolName
    input: dict[str, Any]
    caller: only() = None  # type: ignore[valid-type]
    cache_control: CacheControl = None  # type: ignore[valid-type]


class ToolResultBlock(Wire):
    type: Literal["tool_result"]
    tool_use_id: str
    content: str | Some[TextBlock] | None = None
    is_error: bool | None = None
    cache_control: CacheControl = None  # type: ignore[valid-type]


Block = Annotated[TextBlock | ToolUseBlock | ToolResultBlock, Field(discriminator="type")]


class AnthropicMessage(Wire):
    role: Literal["user", "assistant"]
    content: str | Some[Block]


class AnthropicTool(Wire):
    name: ToolName
    description: str | None = None
    input_schema: dict[str, Any]
    type: only("custom") = None  # type: ignore[valid-type]
    cache_control: CacheControl = None  # type: ignore[valid-type]
    strict: bool | None = None


class AnthropicToolChoice(Wire):
    type: Literal["auto", "any", "tool", "none"]
    name: ToolName | None = None
    disable_parallel_tool_use: bool | None = None


class Metadata(Wire):
    user_id: UserName | None = None


class CountTokensRequest(Wire):
    model: str | None = None
    messages: Annotated[Some[AnthropicMessage], Field(min_length=1)]
    system: str | Some[TextBlock] | None = None
    tools: Some[AnthropicTool] | None = None
    tool_choice: AnthropicToolChoice | None = None
    thinking: only({"type": "disabled"}) = None  # type: ignore[valid-type]
    cache_control: CacheControl = None  # type: ignore[valid-type]
    lenient: bool | None = None


class MessagesRequest(CountTokensRequest):
    """Prefixes are cached whether `cache_control` says so or not; that is all it asks for."""

    max_tokens: Count
    stream: bool | None = None
    stop_sequences: Some[StopString] | None = None
    temperature: Annotated[float, Field(ge=0.0, le=100.0)] | None = None
    top_p: Probability | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None
    metadata: Metadata | None = None
    speculative: bool | None = None
    service_tier: only("auto", "standard_only") = None  # type: ignore[valid-type]
