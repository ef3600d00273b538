"""An application behind a real uvicorn on a port of its own, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import uvicorn

from pellucid.server import Settings, create_app
from pellucid.server.serving import uvicorn_config
from pellucid.server.settings import RequestLimits


class Running:
    """`url` and `http`, a client for it; `call` runs something in the server's event loop.

    `start` makes the client there, and it is closed there; in place of `client`, which is not."""

    def __init__(
        self,
        client: Any = None,
        limits: RequestLimits | None = None,
        start: Callable[[], Awaitable[Any]] | None = None,
        **settings: Any,
    ) -> None:
        self.client = client
        self._start = start
        self._traces = settings.pop("traces", None)
        given = {"served_model_names": ("tiny", "alias"), **settings}
        if limits is not None:
            given["limits"] = limits
        self._settings = Settings(**given)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        assert self._started.wait(60)
        port = self.server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.http = httpx.Client(base_url=self.url, timeout=60)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        if self._start is not None:
            self.client = await self._start()
        self.app = create_app(self.client, self._settings, self._traces)
        config = uvicorn_config(self.app, port=0, log_level="warning")
        self.server = uvicorn.Server(config)
        serving = asyncio.create_task(self.server.serve())
        while not self.server.started and not serving.done():
            await asyncio.sleep(0.005)
        self._started.set()
        await serving
        if self._start is not None:
            await self.client.close()

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What `function` returns in the event loop."""

        async def run() -> Any:
            return function(*arguments)

        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(60)

    def until(self, condition: Callable[[], bool]) -> None:
        """Waits in the event loop until `condition`; a test that waits in vain hangs no longer than
        a minute."""

        async def wait() -> None:
            while not condition():
                await asyncio.sleep(0.002)

        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(wait(), self._loop).result(60)

    def post(self, path: str, body: Any = None, **options: Any) -> httpx.Response:
        return self.http.post(path, json=body, **options)

    def close(self) -> None:
        self.http.close()
        self.server.should_exit = True
        self._thread.join(60)


def events_of(response: httpx.Response) -> list[str]:
    """The data of each event of a whole stream; other lines are none or comments."""
    found = []
    for line in response.text.split("\n"):
        if line.startswith("data: "):
            found.append(line.removeprefix("data: "))
        else:
            assert line == "" or line.startswith((":", "event: ")), line
    return found
