"""AsyncLLM: the engine for event loops."""

from __future__ import annotations

import asyncio
import functools
import weakref
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pellucid.core.errors import BadInput, PellucidError
from pellucid.core.outputs import EmbeddingOutput, RequestOutput
from pellucid.core.params import SamplingParams
from pellucid.core.record import MachineRecord, PageMap, StepRecord
from pellucid.core.spec import ModelSpec
from pellucid.core.structured import StructuredOutputs
from pellucid.engine.async_stream import Arrivals, AsyncStream
from pellucid.engine.conversation import PLAIN, Layout
from pellucid.engine.engine import Engine
from pellucid.engine.frontend import salt_of
from pellucid.engine.generation import Generation, Sink
from pellucid.engine.inputs import Prompt
from pellucid.engine.likelihoods import Entries
from pellucid.engine.llm import LLM
from pellucid.engine.machine import machine_peaks
from pellucid.engine.outbox import Flushed, Line, Outbox
from pellucid.engine.probe import Pooled, Probe, Scores
from pellucid.engine.records import (
    BEGINNING,
    Cursor,
    EngineAbout,
    Records,
    describe_engine,
    read_records,
)
from pellucid.engine.request import Request
from pellucid.engine.retold import Moment, chances_of, funnel_of, row_of
from pellucid.engine.runner import Between, Runner
from pellucid.engine.stats import EngineStats
from pellucid.hub import DEFAULT_MODEL
from pellucid.sampling.funnel import Funnel
from pellucid.text import Tokenizer

Value = TypeVar("Value")


class AsyncLLM:
    """A model that answers in event loops; arguments and errors as those of `LLM`, or of what is
    given as its `kind`.

    The engine has a thread of its own, which sleeps while there is nothing to do. Methods may be
    called from several event loops in several threads; a stream belongs to the loop that it was
    opened in.
    """

    def __init__(
        self,
        model: str | Path = DEFAULT_MODEL,
        *,
        kind: Callable[..., LLM] = LLM,
        **arguments: Any,
    ) -> None:
        self._llm = kind(model, **arguments)
        self._engine = self._llm.engine
        self._runner = Runner(self._engine)
        self._active: dict[str, Generation] = {}
        self._machine: MachineRecord | None = None
        self._outboxes: dict[asyncio.AbstractEventLoop, Outbox] = {}
        # At the interpreter's end, too: no thread may be in a step then.
        self._close = weakref.finalize(self, self._runner.stop)

    @property
    def model_path(self) -> Path:
        return self._llm.model_path

    @property
    def tokenizer(self) -> Tokenizer:
        return self._llm.tokenizer

    @property
    def spec(self) -> ModelSpec:
        return self._llm.spec

    @property
    def max_model_len(self) -> int:
        return self._llm.max_model_len

    @property
    def speculates(self) -> dict[str, Any] | None:
        """How tokens are guessed ahead, None if they are not."""
        return self._engine.speculates

    @property
    def has_chat_template(self) -> bool:
        """Whether conversations are possible."""
        return self._llm.has_chat_template

    def chat_template(self, *, with_tools: bool) -> str | None:
        """The source of the model's chat template, None if it has none."""
        return self._llm.front.conversations.source(with_tools)

    def get_default_sampling_params(self) -> SamplingParams:
        """As `LLM.get_default_sampling_params`."""
        return self._llm.get_default_sampling_params()

    def stream(
        self,
        prompt: str | Mapping[str, Any] | Sequence[Any],
        sampling_params: SamplingParams | None = None,
        *,
        request_id: str | None = None,
        priority: int = 0,
        cache_salt: str | bytes | None = None,
        parse_special: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> AsyncStream:
        """One answer as it comes: an asynchronous iterator of `Increment`s.

        `prompt` is what `LLM.stream` takes: a prompt in any form, or a conversation. `request_id`
        names the request for `abort`; None is a number. `priority`: lower runs first. `cache_salt`:
        only requests of the same salt share cached prefixes. Raises `PromptTooLong` or `BadInput`
        at once. Text becomes tokens in the calling thread: see `prepare` for long ones.
        """
        layout = Layout(tools, add_generation_prompt, continue_final_message, chat_template_kwargs)
        return self.start(
            self.prepare(
                prompt,
                sampling_params,
                layout,
                parse_special=parse_special,
                request_id=request_id,
                priority=priority,
                cache_salt=cache_salt,
            )
        )

    def prepare(
        self,
        prompt: str | Mapping[str, Any] | Sequence[Any],
        sampling_params: SamplingParams | None,
        layout: Layout,
        *,
        parse_special: bool = False,
        request_id: str | None = None,
        priority: int = 0,
        cache_salt: str | bytes | None = None,
        with_grammar: bool = True,
    ) -> Request:
        """What `stream` asks of the engine, checked, for `start`, or without its grammar for
        `complete`. May be called in any thread."""
        front = self._llm.front
        checked = front.prompt(prompt, layout, parse_special)
        return front.request(
            checked,
            sampling_params,
            request_id=request_id,
            priority=priority,
            cache_salt=cache_salt,
            with_grammar=with_grammar,
        )

    def read(self, prompt: Any, parse_special: bool = False) -> Prompt:
        """A prompt that nothing need come after, checked. May be called in any thread. Raises
        `PromptTooLong` or `BadInput`."""
        return self._llm.front.inputs.text(prompt, parse_special)

    def chat_token_ids(
        self, messages: Sequence[Mapping[str, Any]], layout: Layout = PLAIN
    ) -> list[int]:
        """What the model would read of a conversation, however long. Raises `BadInput`."""
        return self._llm.front.conversations.token_ids(messages, layout)

    def start(self, request: Request) -> AsyncStream:
        """Have the engine answer `request`, in the running event loop.

        Raises `BadInput` for an id that another request of the moment has, and when this AsyncLLM
        is closed; `PellucidError` when the engine has broken down.
        """
        arrivals = Arrivals()
        line = self._line(arrivals.receive)
        line.cut = self.submit(request, line)
        return AsyncStream(request, arrivals, functools.partial(self.post, line.cut))

    def submit(self, request: Request, sink: Sink) -> Callable[[], None]:
        """Have the engine answer `request`; in its thread, what comes goes to `sink`. Returns what
        ends the request, for `post`. Raises as `start`."""
        self._check_open()
        generation = self._engine.prepare(request, sink)
        if self._active.setdefault(request.id, generation) is not generation:
            raise BadInput(f"request_id {request.id!r} is taken by a request that is running")
        generation.on_end = functools.partial(self._active.pop, request.id, None)
        self.post(functools.partial(_enlist, self._engine, generation))
        return functools.partial(self._engine.abort, generation)

    async def check_grammar(self, asked: StructuredOutputs) -> None:
        """Have `asked` compiled, so that `complete` need not wait. Raises `BadInput`."""
        await asyncio.to_thread(self._llm.front.grammar, asked)

    def complete(self, request: Request) -> Request:
        """`request` with the grammar that it asks for. May be called in any thread. Raises
        `BadInput`."""
        return self._llm.front.complete(request)

    def post(self, action: Callable[[], None]) -> None:
        """Have `action` done between two steps, in the engine's thread. Waits for nothing."""
        self._runner.post(action)

    @property
    def unsent(self) -> list[Flushed]:
        """Whatever is put here in the engine's thread is flushed at the end of the step."""
        return self._runner.unsent

    def between_steps(self, between: Between) -> None:
        """Have `between` told of each step, in the engine's thread."""
        self._runner.between = between

    @property
    def engine(self) -> Engine:
        """For what is done in its thread."""
        return self._engine

    async def generate(
        self,
        prompt: str | Mapping[str, Any] | Sequence[Any],
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        **options: Any,
    ) -> AsyncIterator[RequestOutput]:
        """One answer as it grows: everything so far, each time something was added.

        `options` are those of `stream`. Leaving the loop ends the request.
        """
        async with self.stream(prompt, sampling_params, request_id=request_id, **options) as stream:
            async for _ in stream:
                yield stream.output()

    def abort(self, request_id: str) -> None:
        """End a request by its id, from any thread; its stream ends with what it has, its
        finish_reason "abort". Nothing happens if no such request is running."""
        generation = self._active.get(request_id)
        if generation is not None:
            self._runner.post(functools.partial(self._engine.abort, generation))

    async def logits(self, token_ids: Sequence[int]) -> NDArray[np.float32]:
        """As `LLM.logits`, beside whatever else runs."""
        checked = self._llm.front.inputs.token_ids(token_ids)
        scores = Scores(checked, self.spec.vocab_size)
        await self._probe(scores)
        return scores.rows

    async def prompt_logprobs(
        self,
        token_ids: Sequence[int],
        count: int = 0,
        *,
        cache_salt: str | bytes | None = None,
    ) -> list[Entries | None]:
        """How likely the model finds each token of a prompt, beside the `count` likeliest in its
        place: entries by id, the token's own first; None for the first token. Raises `BadInput` as
        `logits`."""
        checked = self._llm.front.inputs.token_ids(token_ids)
        probe = self._engine.likelihoods(checked, count, salt_of(cache_salt))
        await self._probe(probe)
        return probe.entries()

    async def chances(
        self, prompt: tuple[int, ...], answer: tuple[int, ...], top: int, salt: bytes
    ) -> list[Entries | None]:
        """For each token of an answer its log-probability beside those of the `top` likeliest, by
        id, computed again: the same as at first."""
        probe = chances_of(self._engine, prompt, answer, top, salt)
        await self._probe(probe)
        return probe.entries()[len(prompt) :]

    async def funnel(self, moment: Moment) -> Funnel:
        """The sampler's stages in a choice, computed again. Raises as the choice did."""
        probe = row_of(moment)
        await self._probe(probe)
        return funnel_of(self._engine, moment, probe)

    async def embed(
        self,
        prompt: str | Mapping[str, Any] | Sequence[Any],
        *,
        pooling: str = "mean",
        normalize: bool = True,
        parse_special: bool = False,
    ) -> EmbeddingOutput:
        """The vector of one prompt, as `LLM.embed`."""
        text = self.read(prompt, parse_special)
        probe = Pooled(text.token_ids, self.spec.d_model, pooling, normalize)
        await self._probe(probe)
        return EmbeddingOutput(
            self._llm.front.next_id(),
            text.text,
            list(text.token_ids),
            probe.vector(),
            probe.metrics(),
        )

    async def waiting(self) -> list[tuple[str, str]]:
        """The requests that wait, and why: (request id, reason), an entry for each answer."""
        return await self._between_steps(self._engine.waiting)

    async def page_map(self, with_tokens: bool = False) -> tuple[int, PageMap]:
        """Who owns which page, and the number of the next step."""
        return await self._between_steps(functools.partial(self._engine.page_map, with_tokens))

    def subscribe(self, receive: Callable[[StepRecord], object]) -> Callable[[], None]:
        """Have `receive` called in the running event loop with the record of each step from now on;
        the result ends that."""
        line = self._line(receive)
        line.cut = self._engine.subscribe(line.send)
        return line.cut

    def stats(self) -> EngineStats:
        """What runs, what waits, and what was done so far."""
        return self._engine.stats()

    def records(self, cursor: Cursor = BEGINNING, stamps_every: float | None = None) -> Records:
        """What was recorded since `cursor`, the one that the last call gave; from any thread.

        Whoever asks at least once a second counts as watching: steps then tell more, and one in
        `stamps_every` seconds (0: each) how long the parts of its forward pass took.
        """
        return read_records(self._engine, cursor, stamps_every)

    def about(self) -> EngineAbout:
        """What the engine is: its model, limits, cache and memory."""
        return describe_engine(self._engine, self._machine)

    async def measure_machine(self) -> None:
        """Have the machine's peaks measured, if they are not known, for `about`: in less than a
        second, in which steps are slow."""
        model = self._engine.model
        weights = sum(int(weight.nbytes) for _, weight in model.weights.items())
        measure = functools.partial(machine_peaks, model.ops.threads, weights=weights)
        self._machine = await asyncio.to_thread(measure)

    def check_health(self) -> None:
        """Raises `PellucidError` if no request can be answered any more."""
        self._check_open()

    def close(self) -> None:
        """End every request and the engine's thread, and let go of weights and cache. Streams that
        run raise `PellucidError`; any later call raises `BadInput`."""
        self._close()
        self._llm.close()

    async def __aenter__(self) -> AsyncLLM:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.close)

    def _check_open(self) -> None:
        if not self._close.alive:
            raise BadInput("this AsyncLLM is closed: make another one")
        if self._runner.failure is not None:
            raise self._runner.failure

    async def _probe(self, probe: Probe) -> None:
        self._check_open()
        ended = asyncio.Event()
        line = self._line(lambda _: ended.set())
        line.cut = functools.partial(self._engine.stop_probe, probe)
        probe.on_end = functools.partial(line.send, None)
        self._runner.post(functools.partial(_start_probe, self._engine, probe))
        try:
            await ended.wait()
        finally:
            if not probe.finished:
                self._runner.post(line.cut)
        probe.check()

    async def _between_steps(self, function: Callable[[], Value]) -> Value:
        """What `function` returns in the engine's thread."""
        self._check_open()
        found: asyncio.Future[Value] = asyncio.get_running_loop().create_future()

        def receive(value: Value) -> None:
            if not found.done():
                found.set_result(value)

        line = self._line(receive)
        self._runner.post(lambda: line.send(function()))
        return await found

    def _line(self, receive: Any) -> Line:
        """A way from the engine's thread to a receiver in the running event loop."""
        loop = asyncio.get_running_loop()
        outbox = self._outboxes.get(loop)
        if outbox is None:
            for closed in [known for known in self._outboxes if known.is_closed()]:
                del self._outboxes[closed]
            outbox = self._outboxes[loop] = Outbox(loop, self._runner.unsent)
        return Line(outbox, receive)


def _enlist(engine: Engine, generation: Generation) -> None:
    try:
        engine.enlist(generation)
    except Exception as error:
        generation.fail(_as_ours(error))


def _start_probe(engine: Engine, probe: Probe) -> None:
    try:
        engine.start_probe(probe)
    except Exception as error:
        probe.fail(_as_ours(error))


def _as_ours(error: Exception) -> PellucidError:
    if isinstance(error, PellucidError):
        return error
    return PellucidError(f"the engine failed: {type(error).__name__}: {error}")
