"""Batches on an engine that says what seed it was given."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pellucid.batch.index import Index
from pellucid.batch.output import Output
from pellucid.batch.run import Manner, Run, Tally
from pellucid.engine.request import Request
from pellucid.server.offline import Offline
from pellucid.server.settings import Settings
from tests.python.server.fake import FakeClient

LIMIT = 4096
MODEL, SETTINGS = b"mmmm", b"ssss"
NAMES = ("tiny", "alias")


def by_seed(request: Request, index: int) -> str:
    """What stands for sampling: the seed decides."""
    return f"{request.prompt} -> {request.seed:016x}.{index}"


def line(custom_id: str, body: dict[str, Any] | None = None, **others: Any) -> dict[str, Any]:
    return {
        "custom_id": custom_id,
        "method": "POST",
        "url": "/v1/completions",
        "body": {"prompt": f"of {custom_id}", "max_tokens": 60} if body is None else body,
        **others,
    }


def write_lines(path: Path, lines: Iterable[dict[str, Any] | bytes]) -> Path:
    """JSON, or bytes as they are."""
    raw = [item if isinstance(item, bytes) else json.dumps(item).encode() for item in lines]
    path.write_bytes(b"".join(item + b"\n" for item in raw))
    return path


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(item) for item in path.read_bytes().split(b"\n")[:-1]]


def run(
    client: FakeClient,
    source: Path,
    target: Path,
    *,
    seed: int = 0,
    in_flight: int = 4,
    model: bytes = MODEL,
    settings: bytes = SETTINGS,
    on_line: Callable[[Tally], object] = lambda _: None,
) -> Tally:
    """Do a batch, or what is left of it."""

    async def work() -> Tally:
        index = Index(source, LIMIT)
        tally = Tally()
        with Output(target) as output:
            index.strike_off(output, model, settings)
            await Run(
                Offline(client, Settings(served_model_names=NAMES)),
                output,
                Manner(model, settings, seed, in_flight),
                lambda: (on_line(tally), None)[1],
                tally,
            ).answer(index.undone())
        return tally

    client.gate.set()
    return asyncio.run(work())
