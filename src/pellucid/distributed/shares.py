"""What each of several engines gets: of threads, and of the memory of a machine they share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pellucid.core.errors import BadInput
from pellucid.distributed.cluster import Cluster
from pellucid.engine.memory import available_memory, in_words


def shared_out(
    path: Path, engines: int, cluster: Cluster, arguments: dict[str, Any]
) -> dict[str, Any]:
    """The `arguments` of one of so many engines for the model at `path`: what they do not say of
    threads is shared out, and on a cluster of our own, which is this machine, memory too. Raises
    `BadInput` where there is too little."""
    given = dict(arguments)
    if given.get("threads") is None and given.get("backend") != "reference":  # which has one
        given["threads"] = cluster.threads(engines)
    if cluster.own and given.get("kv_cache_memory_bytes") is None:
        free = available_memory() // engines
        weights = _size(path)
        if weights >= free:
            raise BadInput(
                f"{path}: the weights of {engines} engines take {in_words(engines * weights)} and "
                f"{in_words(engines * free)} are free: have fewer, or more machines (--ray-address)"
            )
        given["kv_cache_memory_bytes"] = (free - weights) // 2
    return given


def _size(path: Path) -> int:
    files = path.iterdir() if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
