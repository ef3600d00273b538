"""`POST /live/funnel`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from pellucid.server.wire.strict import Wire


class FunnelRequest(Wire):
    """Token `index` of answer number `answer` of a request; `sampling` are parameters in place of
    its own."""

    request: str
    index: Annotated[int, Field(ge=0)]
    answer: Annotated[int | None, Field(ge=0)] = None
    sampling: dict[str, Any] | None = None
    lenient: bool | None = None
