"""`GET /` and `GET /web/PATH`: the pages that show the engine at work."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from pellucid.server.errors import ApiError
from pellucid.server.pages import HEADERS, INDEX, pages

PREFIX: Final = "/web/"


async def index(request: Request) -> Response:
    return _answer(request, INDEX)


async def asset(request: Request) -> Response:
    """One file of the pages. Raises `ApiError` 404."""
    return _answer(request, request.path_params["path"])


def _answer(request: Request, name: str) -> Response:
    page = pages().get(name)
    if page is None:
        raise ApiError(404, f"{PREFIX}{name[:200]} is none of the pages' files: they begin at /")
    headers = {**HEADERS, "ETag": page.tag}
    if request.headers.get("if-none-match") == page.tag:
        return Response(status_code=304, headers=headers)
    return Response(page.content, headers={**headers, "Content-Type": page.media_type})
