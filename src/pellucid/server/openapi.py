"""The OpenAPI document, made of the models that check requests: it says what is so."""

from __future__ import annotations

from typing import Any, Final

from pydantic.json_schema import models_json_schema

from pellucid import __version__
from pellucid.server.honoured import REQUESTS

_REFERENCE: Final = "#/components/schemas/{model}"

# Of a stream, one event.
_EVENT: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["data"],
    "properties": {"data": {"type": "string"}, "event": {"type": "string"}},
}

_ERROR: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}

_SUMMARIES: Final = {
    "/v1/completions": "Go on from a prompt",
    "/v1/chat/completions": "Go on with a conversation",
    "/v1/responses": "Go on with a conversation, in the form of Responses",
    "/v1/embeddings": "A vector for each text",
    "/v1/messages": "Go on with a conversation, in Anthropic's form",
    "/v1/messages/count_tokens": "How many tokens a conversation has",
    "/tokenize": "Token ids of a text or a conversation",
    "/detokenize": "The text of token ids",
    "/health": "Whether requests are answered",
    "/version": "Which version this is",
    "/v1/models": "The models that are served",
    "/v1/models/{name}": "One of them",
    "/props": "What is honoured, within which limits, with which defaults",
}
_STREAMS: Final = frozenset(
    {"/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages"}
)
_PLACES: Final = ("/health", "/version", "/v1/models", "/v1/models/{name}", "/props")
_FAILURES: Final = {
    "400": "A field cannot be honoured; `param` names it",
    "401": "No valid API key",
    "404": "No such model or route",
    "413": "The body is too large",
    "429": "Too many requests wait; `Retry-After` says when to ask again",
    "500": "The server failed",
    "503": "The engine is not available",
}


def document(with_keys: bool) -> dict[str, Any]:
    """The document; `with_keys` if a key is asked for."""
    _, definitions = models_json_schema(
        [(model, "validation") for model in dict.fromkeys(REQUESTS.values())],
        by_alias=True,
        ref_template=_REFERENCE,
    )
    schemas = {**definitions.get("$defs", {}), "Error": _ERROR}
    paths: dict[str, Any] = {path: {"post": _post(path)} for path in REQUESTS}
    paths |= {path: {"get": _get(path)} for path in _PLACES}
    found: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "Pellucid", "version": __version__},
        "paths": paths,
        "components": {"schemas": schemas},
    }
    if with_keys:
        found["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        found["security"] = [{"key": []}]
        paths["/health"]["get"]["security"] = []
    return found


def _post(path: str) -> dict[str, Any]:
    schema = {"$ref": _REFERENCE.format(model=REQUESTS[path].__name__)}
    answer: dict[str, Any] = {"application/json": {"schema": {"type": "object"}}}
    if path in _STREAMS:
        answer["text/event-stream"] = {"schema": _EVENT}
    return {
        "summary": _SUMMARIES[path],
        "operationId": _name(path),
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
        "responses": {"200": {"description": "Done", "content": answer}, **_failures()},
    }


def _get(path: str) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": _SUMMARIES[path],
        "operationId": _name(path),
        "responses": {
            "200": {
                "description": "Done",
                "content": {"application/json": {"schema": {"type": "object"}}},
            },
            **_failures(),
        },
    }
    if "{name}" in path:
        operation["parameters"] = [
            {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
        ]
    return operation


def _failures() -> dict[str, Any]:
    schema = {"$ref": _REFERENCE.format(model="Error")}
    return {
        status: {"description": said, "content": {"application/json": {"schema": schema}}}
        for status, said in _FAILURES.items()
    }


def _name(path: str) -> str:
    return path.strip("/").translate(str.maketrans("/{}", "___")).strip("_")
