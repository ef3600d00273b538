"""`POST /tokenize`, `POST /tokenize/pieces`, `POST /detokenize` and `POST /v1/embeddings`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Field

from pellucid.server.wire.chat import Message, Tool
from pellucid.server.wire.sampling import TokenId, UserName
from pellucid.server.wire.strict import Many, Some, Wire


class TokenizeRequest(Wire):
    """A text (`prompt`, or llama-server's `content`) or a conversation (`messages`)."""

    model: str | None = None
    prompt: Annotated[str | None, Field(validation_alias=AliasChoices("prompt", "content"))] = None
    messages: Annotated[Some[Message], Field(min_length=1)] | None = None
    tools: Some[Tool] | None = None
    add_special_tokens: Annotated[
        bool | None, Field(validation_alias=AliasChoices("add_special_tokens", "add_special"))
    ] = None
    parse_special: bool | None = None
    return_token_strs: Annotated[
        bool | None, Field(validation_alias=AliasChoices("return_token_strs", "with_pieces"))
    ] = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    lenient: bool | None = None


class PiecesRequest(Wire):
    """A text or a conversation, for its tokens one by one. `tokenizer`: another model's that is
    here, by name; a conversation has the served one's."""

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[Some[Message], Field(min_length=1)] | None = None
    tokenizer: str | None = None
    parse_special: bool | None = None
    merges: bool | None = None


class DetokenizeRequest(Wire):
    model: str | None = None
    tokens: Many[TokenId]
    skip_special_tokens: bool | None = None
    lenient: bool | None = None


class EmbeddingRequest(Wire):
    """`input` is a text, token ids, or a list of either."""

    model: str | None = None
    input: str | Many[str] | Many[TokenId] | Many[Many[TokenId]]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Field(ge=1)] | None = None
    user: UserName | None = None
    lenient: bool | None = None
