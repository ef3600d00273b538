"""RemoteClient: what every `EngineClient` of an engine elsewhere does on its own side.

Text is tokenised and conversations are laid out here; what is left to be computed is called by
name, wherever the engine is.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Unpack

from pellucid.core.outputs import EmbeddingOutput
from pellucid.core.params import SamplingParams
from pellucid.engine.client import (
    Messages,
    ModelInfo,
    Options,
    Prompt,
    read_in,
    size_of_prompt,
)
from pellucid.engine.conversation import PLAIN, Layout
from pellucid.engine.frontend import Frontend
from pellucid.engine.lanes import Lanes
from pellucid.engine.likelihoods import Entries
from pellucid.engine.pace import Pace
from pellucid.engine.records import Cursor, Records
from pellucid.engine.request import Request
from pellucid.engine.retold import Moment
from pellucid.sampling.funnel import Funnel
from pellucid.text import Tokenizer


class RemoteClient(ABC):
    """Errors are those of `EngineClient`."""

    def __init__(self, front: Frontend, model: ModelInfo) -> None:
        self.model = model
        self.tokenizer: Tokenizer = front.tokenizer
        self._front = front
        self._pace = Pace()
        self.lanes = Lanes()

    @abstractmethod
    async def records(self, cursor: Cursor, stamps_every: float | None = None) -> Records:
        """As `EngineClient.records`."""

    async def news(self, cursor: Cursor, stamps_every: float | None = None) -> Records:
        await self._pace.wait()
        return await self.records(cursor, stamps_every)

    @abstractmethod
    async def _call(self, method: str, **arguments: Any) -> Any:
        """What that method of the engine gives."""

    async def chat_token_ids(self, messages: Messages, layout: Layout = PLAIN) -> list[int]:
        size = size_of_prompt(messages, layout)
        return await self.lanes.run(size, self._front.conversations.token_ids, messages, layout)

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
        read = functools.partial(self._front.inputs.text, prompt, parse_special)
        text = await read_in(self.lanes, prompt, PLAIN, read)
        output: EmbeddingOutput = await self._call(
            "embed",
            prompt={"prompt_token_ids": text.token_ids},
            pooling=pooling,
            normalize=normalize,
        )
        return replace(output, prompt=text.text)

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

    async def _request(
        self,
        prompt: Prompt,
        params: SamplingParams | None,
        layout: Layout,
        **options: Unpack[Options],
    ) -> Request:
        """The request, checked but for its grammar, which is compiled where it is used."""
        prepare = functools.partial(self._prepare, prompt, params, layout, **options)
        return await read_in(self.lanes, prompt, layout, prepare)

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
