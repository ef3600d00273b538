"""ProcessClient: an `EngineClient` on an engine in a process of its own, which it keeps alive."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from pellucid.core.errors import BadInput
from pellucid.core.logs import LogForm
from pellucid.core.params import SamplingParams
from pellucid.core.record import MachineRecord, PageMap
from pellucid.engine.apart import front_of, open_text_of
from pellucid.engine.async_stream import AsyncStream
from pellucid.engine.client import ModelInfo, Options, Prompt
from pellucid.engine.conversation import PLAIN, Layout
from pellucid.engine.frontend import Frontend
from pellucid.engine.process.errand import Errand
from pellucid.engine.process.host import Opening
from pellucid.engine.process.supervisor import Patience, Supervisor
from pellucid.engine.records import Cursor, EngineAbout, Records
from pellucid.engine.remote import RemoteClient
from pellucid.engine.request import Request
from pellucid.engine.stats import EngineStats

logger = logging.getLogger("pellucid.engine")


class ProcessClient(RemoteClient):
    """Answers by a child process that computes; see `pellucid.engine.process`.

    Belongs to the event loop that `start` was called in. Errors are those of `EngineClient`;
    `PellucidError` while there is no child, after a bounded wait.
    """

    def __init__(
        self, supervisor: Supervisor, front: Frontend, model: ModelInfo, abort_s: float
    ) -> None:
        super().__init__(front, model)
        self._supervisor = supervisor
        self._abort_s = abort_s
        self._machine: MachineRecord | None = None
        self._errands: dict[str, Errand] = {}

    @classmethod
    async def start(
        cls,
        path: Path,
        *,
        note: Callable[[str], None] = logger.info,
        log: LogForm | None = None,
        patience: Patience | None = None,
        **arguments: Any,
    ) -> ProcessClient:
        """An engine for the model at `path`, ready; `arguments` are those of `LLM`, plain data.

        `note` is told what the engine decides, `log` is how its process logs. Raises what `LLM`
        raises.
        """
        seed = arguments.pop("seed", None)
        opening = Opening(str(path), arguments, log)
        patience = patience or Patience()
        supervisor = Supervisor(opening, note, patience)
        text = asyncio.create_task(asyncio.to_thread(open_text_of, path))
        try:
            model = await supervisor.start()
            front = front_of(model, *await text, seed, arguments.get("chat_template"))
        except BaseException:
            text.cancel()
            await supervisor.close()
            raise
        return cls(supervisor, front, model, patience.abort_s)

    @property
    def restarts(self) -> int:
        """How often an engine was started after the first."""
        return self._supervisor.restarts

    async def process_id(self) -> int:
        """Of the child that serves."""
        return (await self._supervisor.connection()).process.pid

    async def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        layout: Layout = PLAIN,
        **options: Unpack[Options],
    ) -> AsyncStream:
        request = await self._request(prompt, params, layout, **options)
        if request.params.structured_outputs is not None:  # compiled where it is used
            await self._call("check_grammar", asked=request.params.structured_outputs)
        if request.id in self._errands:
            raise BadInput(f"request_id {request.id!r} is taken by a request that is running")
        return self._start(request)

    async def abort(self, request_id: str) -> None:
        errand = self._errands.get(request_id)
        if errand is not None:
            errand.abort(self._abort_s)

    async def stats(self) -> EngineStats:
        return await self._supervisor.present().stats()

    async def records(self, cursor: Cursor, stamps_every: float | None = None) -> Records:
        return await self._supervisor.present().records(cursor, stamps_every)

    async def news(self, cursor: Cursor, stamps_every: float | None = None) -> Records:
        return await self._supervisor.present().news(cursor, stamps_every)

    async def page_map(self, with_tokens: bool = False) -> tuple[int, PageMap]:
        found: tuple[int, PageMap] = await self._call("page_map", with_tokens=with_tokens)
        return found

    async def about(self) -> EngineAbout:
        about = await self._supervisor.present().about()
        return about if about.machine is not None else replace(about, machine=self._machine)

    async def measure_machine(self) -> None:
        await self._call("measure_machine")
        self._machine = (await self.about()).machine

    async def check_health(self) -> None:
        await self._supervisor.check()

    async def close(self) -> None:
        self.lanes.close()
        await self._supervisor.close()

    def _start(self, request: Request) -> AsyncStream:
        def forget() -> None:
            self._errands.pop(request.id, None)

        def end() -> None:
            forget()
            errand.cut()

        errand = Errand(request, self._supervisor, forget)
        self._errands[request.id] = errand
        errand.start()
        return AsyncStream(request, errand.arrivals, end)

    async def _call(self, method: str, **arguments: Any) -> Any:
        connection = await self._supervisor.connection()
        return await connection.call(method, arguments)
