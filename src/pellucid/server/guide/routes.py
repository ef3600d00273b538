"""`GET /guide`, `/guide/NAME`, `/guide/assets/PATH`, and `POST /guide/look`, which its figures ask.

The pages are served without a key, since a browser that opens one cannot send it: they hold the
texts, and the model's name and sizes. What figures then ask for needs the key.
"""

from __future__ import annotations

import asyncio
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import Field
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response

from pellucid.core.errors import PellucidError
from pellucid.server.errors import ApiError
from pellucid.server.events import unless_gone
from pellucid.server.guide.chapters import assets, chapters
from pellucid.server.reading import read
from pellucid.server.service import Service
from pellucid.server.wire.strict import Wire

if TYPE_CHECKING:
    from pellucid.server.guide.look import Looks

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


class LookRequest(Wire):
    """`layer` None is that of the most focused head."""

    prompt: str
    layer: Annotated[int, Field(ge=0)] | None = None


class Guide:
    """The guide of one server's model. What it takes is imported when somebody reads it."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._pages: dict[str, str] = {}

    @cached_property
    def numbers(self) -> dict[str, Any]:
        from pellucid.server.guide.numbers import model_numbers

        info = self._service.model
        return model_numbers(Path(info.path), self._service.settings.model_name)

    @cached_property
    def looks(self) -> Looks:
        from pellucid.server.guide.look import Looker, Looks

        info = self._service.model
        return Looks(Looker(Path(info.path), self._service.tokenizer, info.max_model_len))

    def page(self, name: str) -> str:
        """A chapter, or the contents for "". Raises `ApiError` 404."""
        from pellucid.server.guide.page import chapter_page, contents_page

        if name not in self._pages:
            chapter = chapters().get(name)
            if chapter is None and name:
                raise ApiError(404, f"/guide/{name[:100]} is no chapter: they are listed at /guide")
            self._pages[name] = (
                contents_page(self.numbers)
                if chapter is None
                else chapter_page(chapter, self.numbers)
            )
        return self._pages[name]


async def page(request: Request) -> Response:
    """The contents, or the chapter that is named."""
    found: Guide = request.app.state.guide
    name = str(request.path_params.get("name", ""))
    return HTMLResponse(await asyncio.to_thread(found.page, name), headers=HEADERS)


async def asset(request: Request) -> Response:
    """A picture or a video of a chapter. Raises `ApiError` 404."""
    path = str(request.path_params["path"])
    if path not in assets():
        raise ApiError(404, f"/guide/assets/{path[:100]} is none of the guide's files")
    file, media_type = assets()[path]
    return FileResponse(file, media_type=media_type, headers=HEADERS)


async def look(request: Request) -> Response:
    """The inside of the model for a short prompt; whoever leaves takes nothing any more."""
    found: Guide = request.app.state.guide
    service: Service = request.app.state.service
    asked = (await read(request, LookRequest)).asked
    try:
        body = await unless_gone(request, found.looks.look(asked.prompt, asked.layer))
    except PellucidError as error:
        raise await service.refusal(error, "prompt") from error
    return JSONResponse(body)
