"""The Ray cluster that work runs on: one that is there, or one of our own on this machine."""

from __future__ import annotations

import io
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pellucid.core.errors import BadInput, PellucidError
from pellucid.distributed.extra import alone_here, ray_for

logger = logging.getLogger("pellucid.distributed")

# Increments and lines of text pass through it, and no weights.
_OBJECT_STORE: Final = 128 << 20
_NAMESPACE: Final = "pellucid"
_TRIES: Final = 3
TOO_SLOW: Final = "timed out during startup"
"""In what Ray says of a node on a machine that is busy."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """One that is connected to. `own`: it ends with us. `nodes`: the processors that each has."""

    own: bool
    nodes: tuple[int, ...]

    @property
    def cpus(self) -> int:
        return sum(self.nodes)

    @property
    def workers(self) -> int:
        """The nodes that compute."""
        return max(1, sum(cpus > 0 for cpus in self.nodes))

    def threads(self, workers: int) -> int:
        """How many each of so many engines may compute with, that none waits for another's."""
        return max(1, min(max(self.nodes, default=1), self.cpus // workers))

    def asks(self, threads: int | None) -> int:
        """The processors that an engine of so many threads asks Ray for: on our own there is always
        one to be had."""
        return 1 if self.own or threads is None else threads


@contextmanager
def connected(address: str | None, workers: int, what: str) -> Iterator[Cluster]:
    """The cluster at `address` (HOST:PORT, or "auto" for the one of this machine), or, if that is
    None, one of our own that listens on this machine alone, big enough for `workers`.

    Raises `BadInput` without Ray, or for an address where there is none, `PellucidError` where no
    cluster starts.
    """
    if address is None:
        alone_here()
    ray = ray_for(what)
    if ray.is_initialized():  # whoever did that ends it
        yield Cluster(False, _nodes(ray))
        return
    folder = None if address is not None else Path(tempfile.mkdtemp(prefix="pellucid-ray-"))
    with redirect_stdout(_Said()):  # where Ray prints what befell its workers
        try:
            _connect(ray, address, workers, folder)
            yield Cluster(address is None, _nodes(ray))
        finally:
            _end(ray)
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)


def _connect(ray: Any, address: str | None, workers: int, folder: Path | None) -> None:
    settings: dict[str, Any] = {
        "address": address,
        "namespace": _NAMESPACE,
        "log_to_driver": False,
        "configure_logging": False,
    }
    if folder is not None:
        settings |= {
            "address": "local",
            # Of Ray's own, which only counts them: each worker asks for one.
            "num_cpus": max(os.cpu_count() or 1, workers + 1),
            "object_store_memory": _OBJECT_STORE,
            "include_dashboard": False,
            "_node_ip_address": "127.0.0.1",
            "_temp_dir": str(folder),
        }
    for name in ("ray", "ray.serve", "ray.data"):
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        _begin(ray, settings)
    except (ConnectionError, ValueError) as error:
        if address is None:
            raise PellucidError(f"Ray does not start on this machine: {error}") from error
        raise BadInput(
            f"--ray-address {address}: there is no Ray cluster: start one there (ray start "
            "--head), or leave it out for one on this machine"
        ) from error
    except Exception as error:
        raise PellucidError(f"Ray does not start: {type(error).__name__}: {error}") from error


def _begin(ray: Any, settings: dict[str, Any]) -> None:
    """Ray gives a node 30 s to start, whatever else the machine does: it is tried again."""
    for tries_left in range(_TRIES - 1, -1, -1):
        try:
            ray.init(**settings)
            return
        except Exception as error:
            if not tries_left or TOO_SLOW not in str(error):
                raise
            logger.warning("Ray did not start in time: it is tried again")
            _end(ray)


def _nodes(ray: Any) -> tuple[int, ...]:
    found = ray.nodes()
    return tuple(int(node["Resources"].get("CPU", 0)) for node in found if node["Alive"])


def _end(ray: Any) -> None:
    try:
        ray.shutdown()
    except Exception:
        logger.exception("Ray did not end in order")


class _Said(io.TextIOBase):
    """Lines that go to the log."""

    def write(self, text: str) -> int:
        for line in text.splitlines():
            if line.strip():
                logger.debug("Ray: %s", line.strip())
        return len(text)
