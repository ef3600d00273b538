"""ProcessClient: an `EngineClient` on an engine in a process of its own, which it keeps alive."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from pellucid.core.errors import BadInput
from pellucid.core.logs import LogForm
from pellucid.core.outputs import EmbeddingOutput
from pellucid.core.params import SamplingParams
from pellucid.core.record import MachineRecord, PageMap
from pellucid.engine.apart import front_of, open_text_of
from pellucid.engine.async_stream import AsyncStream
from pellucid.engine.client import Messages, ModelInfo, Options, Prompt, is_short
from pellucid.engine.conversation import PLAIN, Layout
from pellucid.engine.frontend import Frontend
from pellucid.engine.likelihoods import Entries
from pellucid.engine.process.errand import Errand
from pellucid.engine.process.host import Opening
from pellucid.engine.process.supervisor import Patience, Supervisor
from pellucid.engine.records import Cursor, EngineAbout, Records
from pellucid.engine.request import Request
from pellucid.engine.retold import Moment
from pellucid.engine.stats import EngineStats
from pellucid.sampling.funnel import Funnel
from pellucid.text import Tokenizer

logger = logging.getLogger("pellucid.engine")


class ProcessClient:
    """Answers by a child process that computes; see `pellucid.engine.process`.

    Belongs to the event loop that `start` was called in. Errors are those of `EngineClient`;
    `PellucidError` while there is no child, after a bounded wait.
    """

    def __init__(
        self, supervisor: Supervisor, front: Frontend, model: ModelInfo, abort_s: float
    ) -> None:
        self.model = model
        self.tokenizer: Tokenizer = front.tokenizer
        self._supervisor = supervisor
        self._front = front
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

    async def chat_token_ids(self, messages: Messages, layout: Layout = PLAIN) -> list[int]:
        return await asyncio.to_thread(self._front.conversations.token_ids, messages, layout)

    async def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        layout: Layout = PLAIN,
        **options: Unpack[Options],
    ) -> AsyncStream:
        prepare = functools.partial(self._prepare, prompt, params, layout, **options)
        request = prepare() if is_short(prompt) else await asyncio.to_thread(prepare)
        if request.params.structured_outputs is not None:  # compiled where it is used
            await self._call("check_grammar", asked=request.params.structured_outputs)
        if request.id in self._errands:
            raise BadInput(f"request_id {request.id!r} is taken by a request that is running")
        return self._start(request)

    async def prompt_logprobs(
        self, token_ids: Sequence[int], count: int = 0, *, cache_salt: str | bytes | None = None
    ) -> list[Entries | None]:
        checked = self._front.inputs.token_ids(token_ids)
        entries: list[Entries | None] = await self._call(
            "prompt_logprobs", token_ids=checked, count=count, cache_salt=cache_salt
        )
        return entries

    async def embed(
        self,
        prompt: Prompt,
        *,
        pooling: str = "mean",
        normalize: bool = True,
        parse_special: bool = False,
    ) -> EmbeddingOutput:
        text = await asyncio.to_thread(self._front.inputs.text, prompt, parse_special)
        output: EmbeddingOutput = await self._call(
            "embed",
            prompt={"prompt_token_ids": text.token_ids},
            pooling=pooling,
            normalize=normalize,
        )
        return replace(output, prompt=text.text)

    async def abort(self, request_id: str) -> None:
        errand = self._errands.get(request_id)
        if errand is not None:
            errand.abort(self._abort_s)

    async def stats(self) -> EngineStats:
        return await self._supervisor.present().stats()

    async def records(self, cursor: Cursor, stamps_every: float | None = None) -> Records:
        return await self._supervisor.present().records(cursor, stamps_every)

    async def chances(
        self, prompt: tuple[int, ...], answer: tuple[int, ...], top: int, salt: bytes
    ) -> list[Entries | None]:
        entries: list[Entries | None] = await self._call(
            "chances", prompt=prompt, answer=answer, top=top, salt=salt
        )
        return entries

    async def funnel(self, moment: Moment) -> Funnel:
        found: Funnel = await self._call("funnel", moment=moment)
        return found

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
        await self._supervisor.close()

    def _prepare(
        self,
        prompt: Prompt,
        params: SamplingParams | None,
        layout: Layout,
        parse_special: bool = False,
        **options: Any,
    ) -> Request:
        checked = self._front.prompt(prompt, layout, parse_special)
        return self._front.request(checked, params, with_grammar=False, **options)

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
