"""What each route honours, read off the very models that check its requests."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from pellucid.server.wire.chat import ChatRequest
from pellucid.server.wire.completions import CompletionRequest
from pellucid.server.wire.messages import CountTokensRequest, MessagesRequest
from pellucid.server.wire.responses import ResponsesRequest
from pellucid.server.wire.strict import is_only
from pellucid.server.wire.tokens import DetokenizeRequest, EmbeddingRequest, TokenizeRequest

REQUESTS: Final[dict[str, type[BaseModel]]] = {
    "/v1/completions": CompletionRequest,
    "/v1/chat/completions": ChatRequest,
    "/v1/responses": ResponsesRequest,
    "/v1/embeddings": EmbeddingRequest,
    "/v1/messages": MessagesRequest,
    "/v1/messages/count_tokens": CountTokensRequest,
    "/tokenize": TokenizeRequest,
    "/detokenize": DetokenizeRequest,
}


def honoured() -> dict[str, Any]:
    """By route: `fields` that are honoured, and `only`: fields taken at these values alone."""
    return {path: _of(model) for path, model in REQUESTS.items()}


def _of(model: type[BaseModel]) -> dict[str, Any]:
    fields: list[str] = []
    only: dict[str, Any] = {}
    for name, info in model.model_fields.items():
        allowed = is_only(info.metadata)
        if allowed is None:
            fields.append(_written(name, info))
        else:
            only[_written(name, info)] = allowed
    return {"fields": sorted(fields), "only": only}


def _written(name: str, info: FieldInfo) -> str:
    return info.alias or name
