"""The Ray cluster that work runs on: one that is there, or one of our own on this machine."""

from __future__ import annotations

import logging
import os
import platform
import re
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pellucid.core.errors import BadInput, PellucidError
from pellucid.distributed.extra import alone_here, ray_for
from pellucid.distributed.folder import own_folder

logger = logging.getLogger("pellucid.distributed")

# Increments and lines of text pass through it, and no weights.
_OBJECT_STORE: Final = 128 << 20
_NAMESPACE: Final = "pellucid"
_TRIES: Final = 3
_REACH_S: Final = 10.0
TOO_SLOW: Final = "timed out during startup"
"""In what Ray says of a node on a machine that is busy."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """One that is connected to. `own`: it ends with us. `nodes`: the processors that each has.
    `address`: by which other processes of this machine reach it."""

    own: bool
    nodes: tuple[int, ...]
    address: str = ""

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

    def check_room(self, workers: int, cpus: float, what: str) -> None:
        """Raises `BadInput` where so many workers of so many processors never find room."""
        room = sum(int(node // cpus) for node in self.nodes)
        if room < workers:
            raise BadInput(
                f"{workers} {what} of {cpus:g} processors each: the cluster has room for {room} "
                f"({', '.join(map(str, self.nodes))} processors by node): have fewer, or "
                "fewer threads"
            )

    def asks(self, threads: int | None) -> int:
        """The processors that an engine of so many threads asks Ray for: on our own there is always
        one to be had."""
        return 1 if self.own or threads is None else threads


@contextmanager
def connected(
    address: str | None, workers: int, what: str, *, prints: bool = False
) -> Iterator[Cluster]:
    """The cluster at `address` (HOST:PORT, or "auto" for the one of this machine), or, if that is
    None, one of our own that listens on this machine alone, big enough for `workers`. Nothing that
    is printed in this process meanwhile goes to standard output, but, where it `prints`, what does
    not come from Ray's threads.

    Raises `BadInput` without Ray, or for an address where there is none, `PellucidError` where no
    cluster starts.
    """
    if address is None:
        alone_here()
    ray = ray_for(what)
    if ray.is_initialized():  # whoever did that ends it
        yield Cluster(False, _nodes(ray), _address(ray))
        return
    printing = sys.stdout
    place = own_folder() if address is None else nullcontext()
    with place as folder, redirect_stdout(_Said()):  # where Ray prints what befell its workers
        try:
            _connect(ray, address, workers, folder)
            cluster = Cluster(address is None, _nodes(ray), _address(ray))
            with redirect_stdout(_Said(printing if prints else None)):
                yield cluster
        finally:
            _end(ray)


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
    else:
        _check_reached(str(address))
    for name in ("ray", "ray.serve", "ray.data"):
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        _begin(ray, settings)
    except (ConnectionError, ValueError) as error:
        if address is None:
            raise PellucidError(f"Ray does not start on this machine: {error}") from error
        raise _no_cluster(address) from error
    except RuntimeError as error:
        if "Version mismatch" not in str(error):
            raise PellucidError(f"Ray does not start: {error}") from error
        raise BadInput(f"--ray-address {address}: {_versions(str(error), ray)}") from error
    except Exception as error:
        raise PellucidError(f"Ray does not start: {type(error).__name__}: {error}") from error


def _check_reached(address: str) -> None:
    """Raises `BadInput` at once where nobody listens: Ray asks for minutes."""
    if address == "auto":
        return
    host, colon, port = address.rpartition(":")
    if "://" in address or not (colon and host and port.isdecimal()):
        raise BadInput(f"--ray-address {address}: it is to be HOST:PORT, or auto")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACH_S).close()
    except (OSError, OverflowError) as error:
        raise _no_cluster(address) from error


def _no_cluster(address: str) -> BadInput:
    return BadInput(
        f"--ray-address {address}: there is no Ray cluster: start one there (ray start --head), or "
        "leave it out for one on this machine"
    )


def _versions(said: str, ray: Any) -> str:
    """What is to be done about a cluster of other versions."""
    found = re.findall(r"(Ray|Python): (\S+)", said)
    there = ", ".join(f"{name} {version}" for name, version in found[:2])
    return (
        f"the cluster runs {there or 'other versions of Ray or Python'}, and this is Ray "
        f"{ray.__version__}, Python {platform.python_version()}: they must be the same"
    )


def _begin(ray: Any, settings: dict[str, Any]) -> None:
    """Ray gives a node 30 s to start, whatever else the machine does: it is tried again."""
    for tries_left in range(_TRIES - 1, -1, -1):
        try:
            with _signals_kept():
                ray.init(**settings)
            return
        except Exception as error:
            if not tries_left or TOO_SLOW not in str(error):
                raise
            logger.warning("Ray did not start in time: it is tried again")
            _end(ray)


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Ray sets what is done at SIGTERM; where we have something to do then, we do that."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    here = threading.current_thread() is threading.main_thread()
    if here and before not in (None, signal.SIG_DFL):
        signal.signal(signal.SIGTERM, before)


def _address(ray: Any) -> str:
    return str(ray.get_runtime_context().gcs_address)


def _nodes(ray: Any) -> tuple[int, ...]:
    found = ray.nodes()
    return tuple(int(node["Resources"].get("CPU", 0)) for node in found if node["Alive"])


def _end(ray: Any) -> None:
    try:
        ray.shutdown()
    except Exception:
        logger.exception("Ray did not end in order")


class _Said:
    """Standard output, as it is meanwhile: lines go to the log. With `printing`, only those that
    Ray's threads write, and all else goes there."""

    def __init__(self, printing: Any = None) -> None:
        self._printing = printing

    def write(self, text: str) -> int:
        if self._printing is not None and not _is_rays():
            return int(self._printing.write(text))
        for line in text.splitlines():
            if line.strip():
                logger.debug("Ray: %s", line.strip())
        return len(text)

    def flush(self) -> None:
        if self._printing is not None:
            self._printing.flush()

    def isatty(self) -> bool:
        return self._printing is not None and bool(self._printing.isatty())

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.__stdout__ if self._printing is None else self._printing, name)


def _is_rays() -> bool:
    return threading.current_thread().name.startswith("ray_")
