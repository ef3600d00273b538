"""An application behind uvicorn: a socket of our own, signals, and a line when it listens."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Iterator

import uvicorn
from fastapi import FastAPI

from pellucid.core.errors import BadInput


class _Server(uvicorn.Server):
    """Ends in order at SIGINT and SIGTERM: what runs may finish; a second signal ends it at once.

    uvicorn's own way raises the signal again at the end, which would end the process as if it had
    been killed.
    """

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


def listen(host: str, port: int) -> socket.socket:
    """A socket to serve on. Raises `BadInput` for an address that cannot be had."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(found[0], socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(found[4])
    except (OSError, OverflowError, UnicodeError) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise BadInput(
            f"{host}:{port} cannot be listened on: {said}: choose another --host or --port"
        ) from error
    bound.set_inheritable(True)
    return bound


def address(bound: socket.socket) -> str:
    """Its address as a URL."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def serve(
    app: FastAPI, bound: socket.socket, *, ready: Callable[[], None] = lambda: None
) -> None:
    """Serve `app` on a bound socket until a signal; `ready` is called when requests are taken."""
    config = uvicorn.Config(app, lifespan="off", access_log=False, log_config=None, backlog=2048)
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[bound]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    if server.started:
        ready()
    await serving


def run(app: FastAPI, bound: socket.socket, *, ready: Callable[[], None] = lambda: None) -> None:
    """`serve` in an event loop of its own; uvloop's where there is one."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(serve(app, bound, ready=ready))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
