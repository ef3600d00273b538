"""`pellucid inspect`: a picture of a model file, and of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pellucid.cli.arguments import (
    find_model,
    json_option,
    model_argument,
    model_option,
    named_model,
    offline_option,
)
from pellucid.cli.output import write, write_json
from pellucid.core.errors import BadInput

if TYPE_CHECKING:
    from pellucid.core.spec import ModelSpec
    from pellucid.formats import Checkpoint


@click.command()
@model_argument
@model_option
@click.option(
    "--context",
    type=click.IntRange(min=1),
    metavar="N",
    help="Positions to reckon memory for. [the model's]",
)
@click.option("--machine", is_flag=True, help="Show what this machine offers, and no model.")
@offline_option
@json_option
def inspect_model(
    model_name: str | None,
    model: str | None,
    context: int | None,
    machine: bool,
    offline: bool,
    json: bool,
) -> None:
    """Draw what a model file holds.

    Layers, shapes, types, bytes, and the memory it needs at a context. Only headers are read.
    """
    from pellucid.cli.machine import describe_machine, draw_machine
    from pellucid.cli.picture import draw
    from pellucid.formats import open_checkpoint
    from pellucid.formats.inspect import describe

    if machine:
        if model_name or model:
            raise BadInput("--machine shows no model: give one or the other")
        facts = describe_machine()
        _print(json, facts, lambda: draw_machine(facts))
        return
    path = find_model(named_model(model_name, model), offline)
    with open_checkpoint(path) as checkpoint:
        description = describe(checkpoint)
        spec, refusal = _spec(checkpoint, context)
    memory = _memory(description.weight_bytes, description.parameters, spec, context)
    shown = {**description.to_json(), "supported": refusal is None, "refusal": refusal}
    _print(json, {**shown, "memory": memory}, lambda: draw(description, spec, refusal, memory))


def _print(json: bool, facts: dict[str, Any], picture: Any) -> None:
    if json:
        write_json(facts)
    else:
        write(picture())


def _spec(checkpoint: Checkpoint, context: int | None) -> tuple[ModelSpec | None, str | None]:
    """The model's specification, or why there is none: a file can be looked at all the same."""
    from pellucid.models.registry import read_spec

    try:
        return read_spec(checkpoint)[1], None
    except BadInput as error:
        return None, str(error)


def _memory(
    weight_bytes: int, parameters: int, spec: ModelSpec | None, context: int | None
) -> dict[str, Any]:
    """What running it takes on each backend, in bytes.

    The cache is reckoned by the allocator's own formula. `native` keeps weights as stored, where
    it has a kernel for their type, and the cache in half precision.
    """
    from pellucid.costs import NATIVE_LANES
    from pellucid.engine.memory import available_memory

    memory: dict[str, Any] = {"available": available_memory()}
    if spec is not None:
        memory["context"] = _positions(spec, context)
        memory["kv_cache_types"] = _kv_cache_types(spec)
    for backend, weights, dtype, lanes in (
        ("reference", 4 * parameters, "f32", 1),
        ("native", weight_bytes, "f16", NATIVE_LANES),
    ):
        memory[backend] = _need(weights, spec, memory.get("context", 0), dtype, lanes)
    return memory


def _kv_cache_types(spec: ModelSpec) -> dict[str, Any]:
    """What a position takes on the native backend by each type, and how many a GiB holds."""
    from pellucid.costs import KV_DTYPES, NATIVE_LANES, kv_bytes_per_token

    found = {}
    for dtype in KV_DTYPES:
        per_token = kv_bytes_per_token(spec, dtype, NATIVE_LANES)
        found[dtype] = {"per_token": per_token, "positions_per_gib": (1 << 30) // per_token}
    return found


def _need(
    weights: int, spec: ModelSpec | None, context: int, dtype: str, lanes: int
) -> dict[str, Any]:
    from pellucid.costs import kv_bytes_per_token

    if spec is None:
        return {"weights": weights}
    per_token = kv_bytes_per_token(spec, dtype, lanes)
    cache = context * per_token
    return {
        "weights": weights,
        "kv_cache_dtype": dtype,
        "kv_cache_per_token": per_token,
        "kv_cache": cache,
        "total": weights + cache,
    }


def _positions(spec: ModelSpec, context: int | None) -> int:
    if context is not None and context > spec.context_length:
        raise BadInput(
            f"--context {context} is above the {spec.context_length} positions that the "
            "model was made for: lower it"
        )
    return context or spec.context_length
