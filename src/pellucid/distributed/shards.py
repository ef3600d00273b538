"""Shards: work in pieces, done by engines all over a cluster with Ray Data.

Pieces go out in blocks, each block to an engine that has room; what comes of them comes back block
by block, in whatever order they end. An engine that ends is started again, and its blocks are done
again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from pellucid.core.errors import PellucidError
from pellucid.distributed.extra import ray_for

logger = logging.getLogger("pellucid.distributed")

# Of an engine at once: while the last answers of one end, it has those of the next.
_BLOCKS: Final = 2


class Engine(Protocol):
    """Made once in each worker; called by several threads. Both sides are columns by name."""

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]: ...


def in_shards(
    rows: Sequence[Mapping[str, Any]],
    engine: Callable[..., Engine],
    arguments: tuple[Any, ...],
    *,
    engines: int,
    cpus: int,
    block: int,
) -> Iterator[dict[str, Any]]:
    """What `engines` engines, each made as `engine(*arguments)`, make of blocks of `block` rows, as
    it comes. A cluster must be connected. Raises `PellucidError` where an engine fails at a block.
    """
    ray_for("this")
    import ray.data

    _be_quiet(ray.data.DataContext.get_current())
    pool = ray.data.ActorPoolStrategy(
        size=engines,
        max_tasks_in_flight_per_actor=_BLOCKS,
        max_concurrent_calls_per_actor=_BLOCKS,
        enable_true_multi_threading=True,
    )
    data = ray.data.from_items(list(rows), override_num_blocks=-(-len(rows) // block)).map_batches(
        engine,
        batch_size=None,
        compute=pool,
        fn_constructor_args=arguments,
        num_cpus=cpus,
        zero_copy_batch=True,
    )
    try:
        yield from data.iter_batches(batch_size=None, prefetch_batches=0, batch_format="numpy")
    except ray.exceptions.RayError as error:
        raise PellucidError(_said(error)) from error


def _be_quiet(context: Any) -> None:
    context.enable_progress_bars = False
    context.enable_operator_progress_bars = False
    context.print_on_execution_start = False
    for name in ("ray.data", "ray.data._internal"):
        logging.getLogger(name).setLevel(logging.ERROR)


def _said(error: Exception) -> str:
    """The last line of what was raised over there."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1].removeprefix("pellucid.core.errors.PellucidError: ") if lines else str(error)
