"""`POST /v1/embeddings`."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse

from pellucid.core.errors import PellucidError
from pellucid.core.outputs import EmbeddingOutput
from pellucid.server.errors import bad_request
from pellucid.server.events import unless_gone
from pellucid.server.reading import Read, read
from pellucid.server.routes.completions import prompts_of
from pellucid.server.service import Call, Service
from pellucid.server.usage import embeddings_usage, timings
from pellucid.server.wire.tokens import EmbeddingRequest


async def embeddings(request: Request) -> JSONResponse:
    service: Service = request.app.state.service
    asking = await read(request, EmbeddingRequest)
    call = service.call(request, asking.asked)
    body = await unless_gone(request, answer(service, call, asking))
    return JSONResponse(body, headers=asking.headers)


async def answer(service: Service, call: Call, asking: Read[EmbeddingRequest]) -> dict[str, Any]:
    """The body of a response. Raises `ApiError`."""
    asked = asking.asked
    size = service.model.embedding_size
    if asked.dimensions not in (None, size):
        raise bad_request(
            f"dimensions {asked.dimensions}: this model's vectors have {size} and are not cut: "
            "leave it out",
            "dimensions",
        )
    prompts = prompts_of(asked.input, service.limits, "input")
    found = await _embed(service, call, prompts)
    as_text = asked.encoding_format == "base64"
    metrics = [output.metrics for output in found if output.metrics is not None]
    return {
        "object": "list",
        "data": [
            {"object": "embedding", "index": i, "embedding": _written(output.embedding, as_text)}
            for i, output in enumerate(found)
        ],
        "model": call.model,
        "usage": embeddings_usage(metrics),
        "timings": timings(metrics),
        **asking.extras,
    }


async def _embed(service: Service, call: Call, prompts: list[Any]) -> list[EmbeddingOutput]:
    """A vector for each prompt. If one is refused the others are let go."""
    with await service.admit(call, len(prompts)) as admission:
        asked = [service.client.embed(prompt, admission=admission) for prompt in prompts]
        tasks = list(map(asyncio.ensure_future, asked))
        try:
            return list(await asyncio.gather(*tasks))
        except PellucidError as error:
            raise await service.refusal(error, "input") from error
        finally:
            for task in tasks:
                task.cancel()


def _written(vector: Sequence[float], as_text: bool) -> Any:
    """Little-endian float32 in base64, or numbers."""
    if as_text:
        return base64.b64encode(np.asarray(vector, "<f4").tobytes()).decode()
    return list(vector)
