"""An application behind uvicorn: a socket of our own, signals, and a line when it listens."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import resource
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator
from types import FrameType
from typing import Any, Final

import uvicorn
from fastapi import FastAPI

from pellucid.core.errors import BadInput
from pellucid.server.arrivals import arrivals
from pellucid.server.guard import Guard
from pellucid.server.settings import Settings

logger = logging.getLogger("pellucid.server")

_LAST_WORDS_S: Final = 10
_DESCRIPTORS: Final = 1 << 16


class _Server(uvicorn.Server):
    """Ends in order at SIGINT and SIGTERM: what runs may finish; a second signal ends it at once.

    uvicorn's own way raises the signal again at the end, which would end the process as if it had
    been killed.
    """

    def __init__(self, config: uvicorn.Config, guard: Guard, shutdown_timeout_s: float) -> None:
        super().__init__(config)
        self._guard = guard
        self._shutdown_timeout_s = shutdown_timeout_s

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self._guard.refuse_more()
        if self.force_exit:
            self._guard.end_all()
            return
        logger.info("shutting down: what runs has %g s", self._shutdown_timeout_s)
        loop = asyncio.get_running_loop()
        loop.call_later(self._shutdown_timeout_s, self._guard.end_all)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)


def allow_connections() -> None:
    """As many as the system lets this process have: the usual soft limit of 1,024 descriptors is
    there for programs that cannot count further, and fewer than may run and wait here."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def listen(host: str, port: int) -> socket.socket:
    """A socket to serve on. Raises `BadInput` for an address that cannot be had."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(found[0], socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(found[4])
    except (OSError, OverflowError, UnicodeError) as error:
        raise _unheard(host, port, error) from error
    bound.set_inheritable(True)
    return bound


def _unheard(host: str, port: int, error: Exception) -> BadInput:
    said = getattr(error, "strerror", None) or str(error)
    return BadInput(f"{host}:{port} cannot be listened on: {said}: choose another --host or --port")


def uvicorn_config(app: FastAPI, **more: Any) -> uvicorn.Config:
    """uvicorn as this application is meant to be behind it."""
    settings: Settings = app.state.service.settings
    return uvicorn.Config(
        app,
        http=arrivals(settings.stalled_client_s),
        ws="none",
        lifespan="off",
        access_log=False,
        backlog=2048,
        **more,
    )


def address(bound: socket.socket) -> str:
    """Its address as a URL."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def serve(
    app: FastAPI,
    bound: socket.socket,
    *,
    ready: Callable[[], None] = lambda: None,
    shutdown_timeout_s: float = 30.0,
) -> None:
    """Serve `app` on a bound socket until a signal; `ready` is called when requests are taken.

    At the signal nothing new is taken; what runs has `shutdown_timeout_s`, and is ended then with
    an error that says why. Raises `BadInput` if another process got to listen there first.
    """
    config = uvicorn_config(
        app,
        log_config=None,
        # For connections whose requests were ended: to say so.
        timeout_graceful_shutdown=math.ceil(shutdown_timeout_s) + _LAST_WORDS_S,
    )
    server = _Server(config, app.state.guard, shutdown_timeout_s)
    serving = asyncio.create_task(server.serve(sockets=[bound]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    if server.started:
        ready()
    try:
        await serving
    except OSError as error:  # another bound it too, and listens since
        if server.started:
            raise
        host, port = bound.getsockname()[:2]
        raise _unheard(host, port, error) from error


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run `work` in an event loop of its own: asyncio's, as uvloop's was no quicker (sending is
    nearly all that a token costs here, and the kernel does that)."""
    asyncio.run(work)


def tell_supervisor(state: str) -> None:
    """Tell systemd, if it asked for it (sd_notify: a datagram to a socket that it names)."""
    named = os.environ.get("NOTIFY_SOCKET")
    if not named:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told, contextlib.suppress(OSError):
        told.sendto(state.encode(), "\0" + named[1:] if named.startswith("@") else named)
