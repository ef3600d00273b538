"""What the server is and how it does: `/health`, `/version`, `/v1/models` and `/props`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from pellucid import __version__
from pellucid.core.errors import PellucidError
from pellucid.distributed.report import Fleet
from pellucid.server.errors import ApiError
from pellucid.server.guard import Guard
from pellucid.server.honoured import honoured
from pellucid.server.params import sampling_in_effect
from pellucid.server.reading import IGNORED_HEADER, LENIENT_HEADER
from pellucid.server.service import Service


async def health(request: Request) -> JSONResponse:
    """200 while requests are answered, 503 while they cannot be."""
    guard: Guard = request.app.state.guard
    try:
        await guard.check_health()
        fleet = await guard.fleet()
    except PellucidError as error:
        raise ApiError(503, f"the engine is not available: {error}", retry_after=5) from error
    if fleet is None:
        return JSONResponse({"status": "ok"})
    status = "ok" if len(fleet.reports) >= fleet.least else "degraded"
    return JSONResponse({"status": status, "replicas": _replicas(fleet)})


def _replicas(fleet: Fleet) -> dict[str, Any]:
    """How each of them is, and why some are missing."""
    each: list[dict[str, Any]] = [
        {
            "name": report.name,
            "state": "ready",
            "node": report.node,
            "process_id": report.process_id,
            "requests_running": report.stats.running_sequences,
            "requests_waiting": report.stats.waiting_sequences,
        }
        for report in fleet.reports
    ]
    each += [{"name": name, "state": "silent"} for name in fleet.silent]
    found = {
        "ready": len(fleet.reports),
        "least": fleet.least,
        "most": fleet.most,
        "each": sorted(each, key=lambda one: str(one["name"])),
    }
    return found if fleet.trouble is None else {**found, "missing_because": fleet.trouble}


async def version(request: Request) -> JSONResponse:
    return JSONResponse({"version": __version__})


async def models(request: Request) -> JSONResponse:
    service: Service = request.app.state.service
    names = service.settings.served_model_names
    return JSONResponse({"object": "list", "data": [_card(service, name) for name in names]})


async def model(request: Request) -> JSONResponse:
    service: Service = request.app.state.service
    name = service.model_named(request.path_params["name"])
    return JSONResponse(_card(service, name))


async def props(request: Request) -> JSONResponse:
    """What this server honours, within which limits, and whose defaults apply."""
    service: Service = request.app.state.service
    info = service.model
    form = service.tool_format()
    defaults = sampling_in_effect(service.defaults)
    return JSONResponse(
        {
            "version": __version__,
            "build_info": f"pellucid {__version__}",
            "model": service.settings.model_name,
            "model_path": info.path,
            "family": info.family,
            "max_model_len": info.max_model_len,
            "vocab_size": info.vocab_size,
            "embedding_size": info.embedding_size,
            "chat_template": info.chat_template,
            "tool_format": form.name if form is not None else None,
            "default_generation_settings": {
                **defaults,
                "max_tokens": {"completions": service.defaults.max_tokens, "chat": None},
            },
            "default_generation_settings_from": (
                "the model's own generation settings where it has them, else OpenAI's"
            ),
            "speculative": info.speculative,
            "logprobs_mode": "raw: of the model's own distribution, before bias and filters",
            "limits": asdict(service.limits),
            "leniency": {
                "header": LENIENT_HEADER,
                "field": "lenient",
                "ignored_fields_header": IGNORED_HEADER,
                "ignored_fields_field": "ignored_fields",
            },
            "honours": honoured(),
        }
    )


def _card(service: Service, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": service.started,
        "owned_by": "pellucid",
        "root": service.model.path,
        "parent": None,
        "max_model_len": service.model.max_model_len,
    }
