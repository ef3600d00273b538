"""OneReplica: what one replica says of what it does, for whoever looks at that one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from pellucid.core.record import MachineRecord, PageMap
from pellucid.engine.apart import own_id
from pellucid.engine.pace import Pace
from pellucid.engine.process.letters import records_of
from pellucid.engine.records import Cursor, EngineAbout, Records

Ask = Callable[..., Awaitable[Any]]


class OneReplica:
    """The part of `EngineClient` that tells of an engine. `ask(method, **arguments)` has it from
    the replica, raising `Unavailable` once that is gone; `machine` are peaks that were measured
    for all."""

    def __init__(self, ask: Ask, machine: Callable[[], MachineRecord | None]) -> None:
        self._ask = ask
        self._machine = machine
        self._pace = Pace()

    async def records(self, cursor: Cursor, stamps_every: float | None = None) -> Records:
        told = await self._ask("records", cursor=cursor, stamps_every=stamps_every)
        return records_of(told, own_id)

    async def news(self, cursor: Cursor, stamps_every: float | None = None) -> Records:
        await self._pace.wait()
        return await self.records(cursor, stamps_every)

    async def about(self) -> EngineAbout:
        about: EngineAbout = await self._ask("about")
        return about if about.machine is not None else replace(about, machine=self._machine())

    async def page_map(self, with_tokens: bool = False) -> tuple[int, PageMap]:
        found: tuple[int, PageMap] = await self._ask("page_map", with_tokens=with_tokens)
        return found
