"""One error envelope, on every route and status and inside streams:

    {"error": {"message": ..., "type": ..., "param": ..., "code": ...}}

Anthropic's route says the same inside its own frame, `{"type": "error", "error": {...}}`, with its
own names of types.

| status | type | code |
|---|---|---|
| 400 | invalid_request_error | a reason where there is one, such as context_length_exceeded |
| 401 | authentication_error | invalid_api_key |
| 404 | invalid_request_error | model_not_found, not_found |
| 405 | invalid_request_error | method_not_allowed |
| 413 | invalid_request_error | request_too_large |
| 429 | rate_limit_error | queue_full |
| 500 | server_error | internal_error |
| 503 | service_unavailable_error | engine_unavailable |
| 504 | timeout_error | request_timeout |

Whoever asks with `Prefer: respond-async` (RFC 7240, 4.1) is told 202 in place of 429 and 503 where
`Retry-After` says when to ask again: the same envelope, of a state that passes. Browsers report
every other status to their users as a failure of the page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import JSONResponse

from pellucid.core.errors import (
    BadInput,
    Overloaded,
    PellucidError,
    PromptTooLong,
    TimedOut,
    Unavailable,
)

MAX_MESSAGE: Final = 2000
RETRY_S: Final = 5
"""After which a client asks again for an engine that is being started."""

_PASSING: Final = frozenset({429, 503})
_ASYNC: Final = re.compile(r"(?:^|,)\s*respond-async\s*(?:$|,|;)", re.IGNORECASE)

_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "service_unavailable_error",
    504: "timeout_error",
}
_ANTHROPIC_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_CODES: Final = {
    401: "invalid_api_key",
    403: "origin_not_allowed",
    404: "not_found",
    405: "method_not_allowed",
    413: "request_too_large",
    429: "queue_full",
    500: "internal_error",
    503: "engine_unavailable",
    504: "request_timeout",
}


class ApiError(Exception):
    """What a client is told instead of an answer.

    `param` is the path of the field to blame, such as `messages[0].content`; `retry_after` is in
    seconds.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message if len(message) <= MAX_MESSAGE else message[:MAX_MESSAGE] + "..."
        self.param = param
        self.code = code or _CODES.get(status)
        self.retry_after = retry_after

    def body(self, *, anthropic: bool = False) -> dict[str, Any]:
        """The envelope; in Anthropic's frame if asked."""
        error = {
            "message": self.message,
            "type": _TYPES.get(self.status, "invalid_request_error"),
            "param": self.param,
            "code": self.code,
        }
        if not anthropic:
            return {"error": error}
        error["type"] = _ANTHROPIC_TYPES.get(self.status, "invalid_request_error")
        return {"type": "error", "error": error}

    def response(
        self, path: str, headers: Mapping[str, str] | None = None, prefer: str = ""
    ) -> JSONResponse:
        """The whole response, in the form of the API that `path` belongs to; `prefer` is what the
        request's header of that name says."""
        merged, status = dict(headers or {}), self.status
        if self.retry_after is not None:
            merged["Retry-After"] = str(self.retry_after)
            if status in _PASSING and _ASYNC.search(prefer):
                merged["Preference-Applied"], status = "respond-async", 202
        if self.status == 401:
            merged["WWW-Authenticate"] = "Bearer"
        return JSONResponse(self.body(anthropic=speaks_anthropic(path)), status, headers=merged)


def bad_request(message: str, param: str | None, code: str | None = None) -> ApiError:
    return ApiError(400, message, param=param, code=code)


def speaks_anthropic(path: str) -> bool:
    return path == "/v1/messages" or path.startswith("/v1/messages/")


def api_error_of(error: Exception, params: Mapping[str, str] | None = None) -> ApiError:
    """What a client is told of `error`.

    `params` maps the engine's names of fields to those of the request; the field that a `BadInput`
    names at its beginning becomes `param`, and its message names what the client sent.
    """
    if isinstance(error, ApiError):
        return error
    if isinstance(error, PromptTooLong):
        return bad_request(
            f"this model's context holds {error.max_model_len} tokens and the prompt has "
            f"{error.how_many} (at least one is needed for the answer): shorten the prompt",
            (params or {}).get("prompt", "prompt"),
            "context_length_exceeded",
        )
    if isinstance(error, BadInput):
        said, names = str(error), params or {}
        return bad_request(_in_their_words(said, names), _field_named(said, names))
    if isinstance(error, Overloaded):
        return ApiError(429, str(error), retry_after=error.retry_after)
    if isinstance(error, Unavailable):
        return ApiError(503, str(error), retry_after=RETRY_S)
    if isinstance(error, TimedOut):
        return ApiError(504, str(error))
    if isinstance(error, PellucidError):
        return ApiError(500, str(error))
    return ApiError(500, "the server failed at this request; its log says why")


_BEGINNING: Final = re.compile(r"(the )?([a-z_]+)((?:\[[^\]]*\]|\.[a-z_]+)*)")
_WORDS: Final = frozenset({"prompt", "position", "chat", "conversation"})
"""That messages begin with, and that are no field's name."""
IN_PLACE: Final = "messages[]"
"""Among the names of a request's fields: its messages stand where the engine's do. Those that were
made of other things are not told apart by number."""


def _in_their_words(message: str, params: Mapping[str, str]) -> str:
    """Fields by the client's names: the one that it begins with, and others that are no words."""
    found = _BEGINNING.match(message)
    if found is not None and not found[1] and found[2] in params and found[2] not in _WORDS:
        message = _theirs(found, params) + message[found.end() :]
    others = [name for name, own in params.items() if "_" in name and name not in own]
    for name in others:
        message = re.sub(rf"\b{name}\b", params[name], message)
    return message


def _field_named(message: str, params: Mapping[str, str]) -> str | None:
    """The field that a message begins with: the name up to an index, a colon or a space."""
    found = _BEGINNING.match(message)
    return _theirs(found, params) if found is not None and found[2] in params else None


def _theirs(found: re.Match[str], params: Mapping[str, str]) -> str:
    moved = found[2] == "messages" and IN_PLACE not in params
    return params[found[2]] + ("" if moved else found[3])
