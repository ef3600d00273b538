"""An engine that says what a test tells it to: everything of the real one but the model."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.core.errors import PellucidError, Unavailable
from pellucid.core.outputs import (
    EmbeddingOutput,
    Increment,
    RequestMetrics,
    RequestOutput,
    TokenChoice,
    TokenLogprob,
)
from pellucid.core.params import SamplingParams
from pellucid.engine.answer import Answer
from pellucid.engine.client import ModelInfo
from pellucid.engine.conversation import PLAIN, Layout
from pellucid.engine.frontend import Frontend
from pellucid.engine.gathered import Gathered
from pellucid.engine.lanes import Lanes
from pellucid.engine.records import Cursor, EngineAbout, Records
from pellucid.engine.request import Request
from pellucid.engine.stats import EngineStats
from pellucid.formats import open_checkpoint
from pellucid.text import Tokenizer, gguf_chat_templates

CONTEXT = 2000
NO_STATS = EngineStats(
    **{f.name: 0 for f in fields(EngineStats) if f.default is MISSING}  # type: ignore[arg-type]
)
Script = Callable[[Request, int], str]
"""What answer `index` of a request says; then comes the end token."""


def hello(request: Request, index: int) -> str:
    return "Hello, world."


class FakeStream:
    """A request on its way. Between tokens it waits for the client's `gate`."""

    def __init__(self, client: FakeClient, request: Request) -> None:
        self._client = client
        self._request = request
        self._gathered = Gathered(request)
        self._answers = [Answer(request, i, client.tokenizer) for i in range(request.params.n)]
        self._scripts = [iter(client.tokens_of(request, i)) for i in range(request.params.n)]
        self._steps = self._run()
        self._closed = self.aborted = False
        client.live[request.id] = self

    @property
    def request_id(self) -> str:
        return self._request.id

    @property
    def prompt_token_ids(self) -> list[int]:
        return list(self._request.prompt_token_ids)

    @property
    def finished(self) -> bool:
        return self._gathered.finished

    def output(self) -> RequestOutput:
        return self._gathered.output()

    def __aiter__(self) -> FakeStream:
        return self

    async def __anext__(self) -> Increment:
        try:
            increment = await anext(self._steps)
        except StopAsyncIteration:
            self._end()
            raise
        except BaseException:
            await self.aclose()
            raise
        self._gathered.add(increment)
        return increment

    async def aclose(self) -> None:
        if not self._closed and not self.finished:
            self._client.abandoned.append(self.request_id)
        self._end()

    def _end(self) -> None:
        self._closed = True
        self._client.live.pop(self.request_id, None)

    async def _run(self) -> AsyncIterator[Increment]:
        while not all(answer.finished for answer in self._answers):
            for answer, script in zip(self._answers, self._scripts, strict=True):
                if answer.finished:
                    continue
                await self._client.gate.wait()
                if self._client.breaks_with is not None:
                    raise self._client.breaks_with
                if self.aborted:
                    increment = answer.abort()
                else:
                    increment = answer.take(self._choice(next(script)))
                if increment.finish_reason and all(a.finished for a in self._answers):
                    increment.metrics = self._metrics()
                yield increment
                await asyncio.sleep(0)

    def _choice(self, token: int) -> TokenChoice:
        count = self._request.params.logprobs
        if count is None:
            return TokenChoice(token)
        others = [t for t in range(count + 1) if t != token][: max(count - 1, 0)]
        top = [TokenLogprob(token, -0.5, 1)]
        top += [TokenLogprob(t, -1.0 - i, i + 2) for i, t in enumerate(others)]
        return TokenChoice(token, TokenLogprob(token, -0.5, 1), top[:count])

    def _metrics(self) -> RequestMetrics:
        n_tokens = sum(answer.n_tokens for answer in self._answers)
        return RequestMetrics(0.001, 0.011, 0.111, len(self.prompt_token_ids), n_tokens, 3)


class FakeClient:
    """An `EngineClient`. `script` says what answers say, `gate` holds them up while it is clear,
    `door` what is made ready for them, `refuses_with` is raised in place
    of a stream, `breaks_with` instead of the next token.
    `seen` are the requests that came, `live` those not ended, `abandoned` those that were ended
    early, `salts` and `priorities` theirs."""

    def __init__(self, path: Path, script: Script = hello, template: str | None = None) -> None:
        with open_checkpoint(path) as checkpoint:
            metadata = checkpoint.metadata
        self.tokenizer = Tokenizer.from_gguf(metadata, path)
        if template is not None:
            metadata = {**metadata, "tokenizer.chat_template": template}
        templates = gguf_chat_templates(metadata, path)
        self.lanes = Lanes()
        self.gate = asyncio.Event()
        self.door = asyncio.Event()
        self.pages: tuple[int, int, int] | None = (8, 0, 0)
        self.live: dict[str, FakeStream] = {}
        self.reset(script)
        defaults = SamplingParams()
        vocab = self.tokenizer.vocab_size
        is_token = np.ones(vocab, np.bool_)
        self._front = Frontend(self.tokenizer, templates, defaults, vocab, CONTEXT, 0, is_token)
        self._numbers = itertools.count()
        source = templates.sources.get("default")
        self.model = ModelInfo(
            path=str(path),
            name="tiny",
            family="llama",
            max_model_len=CONTEXT,
            vocab_size=vocab,
            embedding_size=4,
            has_chat_template=bool(templates),
            default_params=defaults,
            chat_template=source,
            tool_template=source,
        )

    def reset(self, script: Script = hello) -> None:
        self.script = script
        self.embedded = 0
        self.gate.set()
        self.door.set()
        self.breaks_with: PellucidError | None = None
        self.refuses_with: PellucidError | None = None
        self.failure: PellucidError | None = None
        self.seen: list[Request] = []
        self.salts: list[bytes] = []
        self.priorities: list[int] = []
        self.abandoned: list[str] = []

    def tokens_of(self, request: Request, index: int) -> list[int]:
        text = self.script(request, index)
        return [*text.encode(), *([self.tokenizer.eos_ids[0]] * CONTEXT)]

    async def stream(
        self,
        prompt: Any,
        params: SamplingParams | None = None,
        layout: Layout = PLAIN,
        *,
        request_id: str | None = None,
        parse_special: bool = False,
        priority: int = 0,
        cache_salt: bytes = b"",
    ) -> FakeStream:
        await self.check_health()
        await self.door.wait()
        if self.refuses_with is not None:
            raise self.refuses_with
        checked = self._front.prompt(prompt, layout, parse_special)
        asked = params or self._front.defaults
        free = replace(asked, structured_outputs=None)  # scripts follow no grammar
        request = self._front.request(checked, free, request_id=request_id)
        request = replace(request, params=asked)
        self.seen.append(request)
        self.salts.append(cache_salt)
        self.priorities.append(priority)
        return FakeStream(self, request)

    async def chat_token_ids(self, messages: Any, layout: Layout = PLAIN) -> list[int]:
        return self._front.conversations.token_ids(messages, layout)

    async def prompt_logprobs(
        self, token_ids: Sequence[int], count: int, *, cache_salt: bytes = b""
    ) -> list[dict[int, TokenLogprob] | None]:
        """Token t has log-probability -t / 100."""
        found: list[dict[int, TokenLogprob] | None] = [None]
        for token in token_ids[1:]:
            entry = TokenLogprob(token, -token / 100, 1)
            found.append({token: entry})
        return found

    async def embed(self, prompt: Any, **options: Any) -> EmbeddingOutput:
        text = self._front.inputs.prompt(prompt, False)
        self.embedded += 1
        await self.gate.wait()
        metrics = RequestMetrics(0.001, 0.011, 0.011, len(text.token_ids), 0)
        vector = [float(len(text.token_ids)), 0.5, 0.0, -1.0]
        return EmbeddingOutput(
            str(next(self._numbers)), None, list(text.token_ids), vector, metrics
        )

    async def abort(self, request_id: str) -> None:
        if request_id in self.live:
            self.live[request_id].aborted = True

    async def stats(self) -> EngineStats:
        """With `pages` free, cached and owned; None is an engine that does not answer."""
        if self.pages is None:
            raise Unavailable("there is no engine")
        free, cached, owned = self.pages
        return replace(NO_STATS, pages_free=free, pages_cached=cached, pages_owned=owned)

    async def records(self, cursor: Cursor, stamps_every: float | None = None) -> Records:
        """There is no engine that records anything."""
        raise Unavailable("there is no engine")

    async def news(self, cursor: Cursor, stamps_every: float | None = None) -> Records:
        raise Unavailable("there is no engine")

    async def measure_machine(self) -> None:
        raise Unavailable("there is no engine")

    async def chances(self, *arguments: Any) -> Any:
        raise Unavailable("there is no engine")

    async def funnel(self, moment: Any) -> Any:
        raise Unavailable("there is no engine")

    async def page_map(self, with_tokens: bool = False) -> Any:
        raise Unavailable("there is no engine")

    async def about(self) -> EngineAbout:
        raise Unavailable("there is no engine")

    async def check_health(self) -> None:
        if self.failure is not None:
            raise self.failure

    async def close(self) -> None:
        return None
