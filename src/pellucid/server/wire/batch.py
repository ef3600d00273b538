"""A line of a batch: a request in a file, in OpenAI's form."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import StringConstraints

from pellucid.server.wire.strict import Wire

MAX_CUSTOM_ID = 512


class BatchLine(Wire):
    """`body` is what would be posted to `url`; `custom_id` tells its answer from others."""

    custom_id: Annotated[str, StringConstraints(min_length=1, max_length=MAX_CUSTOM_ID)]
    method: Literal["POST"]
    url: str
    body: dict[str, Any]
