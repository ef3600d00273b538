"""Supervisor: sees to it that there is an engine process.

start --> SERVING --child ended--> STARTING --ready--> SERVING
             |                      |  ^ `--failed: a longer pause--.
             `--close--> CLOSED <---'  `-----------------------------'
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from pellucid.core.errors import BadInput, PellucidError, Unavailable
from pellucid.engine.client import ModelInfo
from pellucid.engine.process.connection import Connection
from pellucid.engine.process.host import Opening

logger = logging.getLogger("pellucid.engine")


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds. start_wait_s: how long a request waits for an engine that is starting. answer_s: in
    which a child says that it is there. abort_s: in which it ends a request. hang_s: in which a
    step ends, or the child is killed. longest_pause_s: between two starts that failed; steady_s: a
    child that lived so long is started again without a pause."""

    start_wait_s: float = 15.0
    answer_s: float = 10.0
    abort_s: float = 5.0
    hang_s: float = 300.0
    longest_pause_s: float = 30.0
    steady_s: float = 30.0


class Supervisor:
    """`restarts` counts the children that were started after the first."""

    def __init__(self, opening: Opening, note: Callable[[str], None], patience: Patience) -> None:
        self.restarts = 0
        self._opening = opening
        self._note = note
        self._patience = patience
        self._connection: Connection | None = None
        self._serving = asyncio.Event()
        self._why = Unavailable("the engine process is starting")
        self._lost: Connection | None = None  # whose end `_keep` does not know of yet
        self._closed = False
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> ModelInfo:
        """The first child. Raises what keeps it from starting."""
        self._connection, model = await Connection.open(self._opening, self._note)
        # Another time there may be less memory: what was promised to clients stays.
        arguments = {**self._opening.arguments, "max_model_len": model.max_model_len}
        self._opening = replace(self._opening, arguments=arguments)
        self._serving.set()
        self._tasks = [asyncio.create_task(self._keep()), asyncio.create_task(self._watch())]
        return model

    async def connection(self) -> Connection:
        """The child that serves, waited for. Raises `PellucidError` if there is none in time."""
        self._notice_end()
        if not self._serving.is_set() and not self._closed:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._serving.wait(), self._patience.start_wait_s)
        return self.present()

    def present(self) -> Connection:
        """The child that serves now. Raises `Unavailable` if there is none, `BadInput` if there
        will be none."""
        if self._closed:
            raise BadInput("this engine is closed: make another one")
        self._notice_end()
        if not self._serving.is_set() or self._connection is None:
            raise self._why
        return self._connection

    async def check(self) -> None:
        """Raises `PellucidError` if there is no child, or one that does not answer."""
        answer_s = self._patience.answer_s
        try:
            await asyncio.wait_for(self.present().stats(), answer_s)
        except TimeoutError:
            raise PellucidError(f"the engine process has not answered for {answer_s:g} s") from None

    async def close(self) -> None:
        """End the child. Streams that run are given an error."""
        self._closed = True
        self._serving.set()  # nobody need wait
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._connection is not None:
            await self._connection.close()

    def _notice_end(self) -> None:
        """A child that has left is none, even before `_keep` has woken up."""
        connection = self._connection
        if self._serving.is_set() and connection is not None and not connection.is_open:
            self._serving.clear()
            self._lost = connection
        if self._lost is not None:  # how it ended is known a moment later
            self._why = _again_soon(self._lost)

    async def _keep(self) -> None:
        pause = 0.0
        while True:
            assert self._connection is not None
            began = time.monotonic()
            await self._connection.ended.wait()
            self._serving.clear()
            self._lost, self._why = None, _again_soon(self._connection)
            logger.error("%s: it is started again", self._connection.reason)
            if time.monotonic() - began > self._patience.steady_s:
                pause = 0.0
            self._connection = await self._again(pause)
            pause = self._longer(pause)
            self._serving.set()
            logger.info("the engine serves again")

    async def _again(self, pause: float) -> Connection:
        """Another child, as soon as one starts."""
        while True:
            await asyncio.sleep(pause)
            pause = self._longer(pause)
            self.restarts += 1
            try:
                connection, _ = await Connection.open(self._opening, self._note)
                return connection
            except PellucidError as error:
                self._why = Unavailable(f"the engine does not start again: {error}")
                logger.error("%s: the next try is in %g s", self._why, pause)

    def _longer(self, pause: float) -> float:
        return min(max(2 * pause, 0.5), self._patience.longest_pause_s)

    async def _watch(self) -> None:
        """Kills a child that has requests and ends no step."""
        hang_s = self._patience.hang_s
        steps, moved = -1, time.monotonic()
        while True:
            await asyncio.sleep(hang_s / 4)
            connection = self._connection
            if not self._serving.is_set() or connection is None or not connection.busy:
                moved = time.monotonic()
                continue
            with contextlib.suppress(TimeoutError, PellucidError):
                stats = await asyncio.wait_for(connection.stats(), hang_s / 4)
                if stats.steps != steps:
                    steps, moved = stats.steps, time.monotonic()
            if time.monotonic() - moved > hang_s:
                logger.error("the engine has ended no step for %g s: it is killed", hang_s)
                connection.kill()


def _again_soon(lost: Connection) -> Unavailable:
    return Unavailable(f"{lost.reason}, and is being started again")
