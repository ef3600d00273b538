"""From an engine's arguments to replicas that serve."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pellucid.core.logs import LogForm
from pellucid.distributed.cluster import connected
from pellucid.distributed.placement import POLICIES, Policy
from pellucid.distributed.shares import shared_out
from pellucid.distributed.wanted import Wanted
from pellucid.ops import backend

if TYPE_CHECKING:
    from pellucid.distributed.client import ReplicaClient


@asynccontextmanager
async def replicas(
    path: Path, wanted: Wanted, log: LogForm | None, arguments: dict[str, Any], what: str
) -> AsyncIterator[ReplicaClient]:
    """Replicas of an engine for the model at `path`, ready, as long as this lasts.

    `arguments` are those of `LLM`; threads and memory that are not given are shared out among the
    replicas. `what` is what needs Ray. Raises as `connected` and `ReplicaClient.start`.
    """
    wanted.check()
    _check(arguments)
    # In this thread: Ray asks for signals of its own, and gets them back from us.
    with connected(wanted.address, wanted.most, what) as cluster:
        from pellucid.distributed.application import Application, Plan, Scale
        from pellucid.distributed.client import ReplicaClient
        from pellucid.distributed.replica import Opening

        arguments = shared_out(path, wanted.most, cluster, arguments)
        cpus = cluster.asks(arguments.get("threads"))
        cluster.check_room(wanted.least, cpus, "replicas")
        name = f"pellucid-{secrets.token_hex(4)}"
        plan = Plan(
            name=name,
            opening=Opening(name, str(path), arguments, log, wanted.hang_s, alone=cluster.own),
            scale=Scale(wanted.least, wanted.most, wanted.target, wanted.up_s, wanted.down_s),
            cpus=cpus,
            requests=wanted.requests,
            drain_s=wanted.drain_s,
        )
        policy: Policy = next(one for one in POLICIES if one == wanted.policy)
        client = await ReplicaClient.start(
            path,
            Application(plan),
            policy=policy,
            start_wait_s=wanted.start_wait_s,
            silence_s=wanted.silence_s,
        )
        try:
            yield client
        finally:
            await client.close()


def _check(arguments: dict[str, Any]) -> None:
    """What can be said of an engine before a cluster is started. Raises `BadInput`."""
    settings = {"kv_dtype": "kv_cache_dtype", "activations": "activations"}
    given = {name: arguments.get(argument) for name, argument in settings.items()}
    backend(arguments.get("backend", "native"), **given)
