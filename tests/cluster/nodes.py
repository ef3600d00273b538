"""A Ray cluster of several nodes on this machine, from Ray's own utility, and what tests ask of it.

Nodes are raylets with workers of their own; they are small, and they end with the test.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pellucid.distributed.cluster import TOO_SLOW
from pellucid.distributed.extra import alone_here, ray_for

STORE = 80 << 20


@contextmanager
def cluster_of(head: int, *others: int) -> Iterator[Any]:
    """A cluster whose nodes have so many processors; connected. `others` may be removed."""
    alone_here()
    ray = ray_for("this test")
    from ray.cluster_utils import Cluster

    logging.getLogger("ray").setLevel(logging.ERROR)
    first = {"num_cpus": head, "object_store_memory": STORE, "include_dashboard": False}
    cluster = patiently(lambda: Cluster(initialize_head=True, head_node_args=first))
    try:
        cluster.others = [add_node(cluster, count) for count in others]
        ray.init(
            address=cluster.address, namespace="test", log_to_driver=False, configure_logging=False
        )
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def add_node(cluster: Any, cpus: int) -> Any:
    """One more."""
    return patiently(lambda: cluster.add_node(num_cpus=cpus, object_store_memory=STORE))


def patiently(start: Callable[[], Any]) -> Any:
    """What `start` gives, as soon as Ray finds that the machine is quick enough."""
    while True:
        try:
            return start()
        except Exception as error:
            if TOO_SLOW not in str(error):
                raise


async def until(true: Callable[[], Awaitable[Any]]) -> Any:
    """What `true` gives once that counts as true; that it comes to that is what is tested."""
    while not (found := await true()):
        await asyncio.sleep(0.05)
    return found
