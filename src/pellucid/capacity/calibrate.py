"""Calibration: measure a served model here for some seconds, fit its step times, keep them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from pellucid.capacity.client import get_json
from pellucid.capacity.fit import Calibration, fit
from pellucid.capacity.observe import Observed, observe, phases
from pellucid.capacity.serving import served
from pellucid.core.spec import ModelSpec

Told = Callable[[int, int], None]


def server_flags(
    threads: int | None, kv_dtype: str, quantization: str | None, max_num_seqs: int | None
) -> list[str]:
    """Of a server that is as the plan says."""
    flags = ["--no-access-log", "--kv-cache-dtype", kv_dtype]
    for flag, value in (
        ("--threads", threads),
        ("--quantization", quantization),
        ("--max-num-seqs", max_num_seqs),
    ):
        if value is not None:
            flags += [flag, str(value)]
    return flags


def calibrate(model: Path, spec: ModelSpec, flags: list[str], told: Told) -> Calibration:
    """Serves the model, measures and fits. Raises `PellucidError` where it cannot be served."""
    with served(model, flags) as port:
        return fit(spec, asyncio.run(sweep(port, spec, told)))


async def sweep(port: int, spec: ModelSpec, told: Told) -> Observed:
    """The measured part, on a server that runs."""
    limits = (await get_json(port, "/live/about"))["limits"]
    plan = phases(limits["max_num_seqs"], limits["max_model_len"])
    return await observe(port, spec.vocab_size, plan, told)
