"""A Ray cluster of several nodes on this machine, from Ray's own utility, and what tests ask of it.

Nodes are raylets with workers of their own; they are small, and they end with the test.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pellucid.distributed.cluster import TOO_SLOW
from pellucid.distributed.extra import alone_here, ray_for

STORE = 80 << 20
STARTS = 5
PATIENCE_S = 240.0
"""What is waited for comes in seconds; after this long it does not come at all."""


@contextmanager
def cluster_of(head: int, *others: int) -> Iterator[Any]:
    """A cluster whose nodes have so many processors; connected. `others` may be removed."""
    alone_here()
    ray = ray_for("this test")
    from ray.cluster_utils import Cluster

    logging.getLogger("ray").setLevel(logging.ERROR)
    folder = tempfile.mkdtemp(prefix="pellucid-ray-")
    first = {
        "num_cpus": head,
        "object_store_memory": STORE,
        "include_dashboard": False,
        "temp_dir": folder,
    }
    cluster = patiently(lambda: Cluster(initialize_head=True, head_node_args=first))
    try:
        cluster.others = [add_node(cluster, count) for count in others]
        ray.init(
            address=cluster.address, namespace="test", log_to_driver=False, configure_logging=False
        )
        yield cluster
    finally:
        frozen = set().union(*(processes_of(node) for node in cluster.list_all_nodes()))
        signal_all(frozen, signal.SIGCONT)
        ray.shutdown()
        cluster.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


def add_node(cluster: Any, cpus: int) -> Any:
    """One more."""
    return patiently(lambda: cluster.add_node(num_cpus=cpus, object_store_memory=STORE))


def patiently(start: Callable[[], Any]) -> Any:
    """What `start` gives, as soon as Ray finds that the machine is quick enough."""
    for left in range(STARTS - 1, -1, -1):
        try:
            return start()
        except Exception as error:
            if not left or TOO_SLOW not in str(error):
                raise
    raise AssertionError


async def until(true: Callable[[], Awaitable[Any]]) -> Any:
    """What `true` gives once that counts as true; that it comes to that is what is tested."""
    async with asyncio.timeout(PATIENCE_S):
        while not (found := await true()):
            await asyncio.sleep(0.05)
        return found


def processes_of(node: Any) -> set[int]:
    """All that a node is made of."""
    infos = [info for kind in node.all_processes.values() for info in kind]
    return set().union(*(tree(info.process.pid) for info in infos))


def tree(root: int) -> set[int]:
    """A process and all that came of it."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(folder.name))
    found, new = set(), [root]
    while new:
        found.update(new)
        new = [child for parent in new for child in children.get(parent, ())]
    return found


def signal_all(pids: set[int], sent: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, sent)


def processes_named(name: str, root: int | None = None) -> list[int]:
    """Those that call themselves that: of the tree of `root`, or of this process."""
    found = []
    for pid in tree(os.getpid() if root is None else root):
        command = Path(f"/proc/{pid}/cmdline")
        with suppress(OSError):
            if name.encode() in command.read_bytes():
                found.append(pid)
    return found
