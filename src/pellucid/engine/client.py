"""EngineClient: all that a server knows of an engine.

The engine may run in the server's process (`LocalClient`) or in another. What crosses is plain data
that pickles: prompts, `SamplingParams` and ids in; `Increment`, `RequestOutput`, `EngineStats`,
`Records`, `EngineAbout`, `ModelInfo` and `PellucidError` out. Text is tokenised and conversations
are laid out on the client's side, off its event loop where they are long, so that an engine
elsewhere only computes.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypedDict, TypeVar, Unpack

from pellucid.core.outputs import EmbeddingOutput, Increment, RequestOutput
from pellucid.core.params import SamplingParams
from pellucid.core.record import PageMap
from pellucid.engine.async_llm import AsyncLLM
from pellucid.engine.conversation import PLAIN, Layout
from pellucid.engine.lanes import Lanes, size_of
from pellucid.engine.likelihoods import Entries
from pellucid.engine.pace import Pace
from pellucid.engine.records import Cursor, EngineAbout, Records
from pellucid.engine.retold import Moment
from pellucid.engine.stats import EngineStats
from pellucid.sampling.funnel import Funnel
from pellucid.text import Tokenizer

T = TypeVar("T")

Messages = Sequence[Mapping[str, Any]]
Prompt = str | Mapping[str, Any] | Sequence[Any]

# Characters or ids that are made ready within the time a thread takes to be asked.
_SHORT = 2_000


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a client needs to know of the model and its limits."""

    path: str
    name: str
    family: str
    max_model_len: int
    vocab_size: int
    embedding_size: int
    has_chat_template: bool
    chat_template: str | None
    """The template's source; `tool_template` that of conversations with tools."""
    tool_template: str | None
    default_params: SamplingParams
    speculative: dict[str, Any] | None = None
    """How tokens are guessed ahead: the fields that were set, as plain data."""


class Options(TypedDict, total=False):
    """Of a request, beside what is asked and how it is sampled; as `AsyncLLM.stream` takes them."""

    request_id: str | None
    priority: int
    cache_salt: str | bytes | None
    parse_special: bool


class AnswerStream(Protocol):
    """One request's increments, as they come.

    Leaving the loop by an exception, cancelling the task that waits and `aclose` end the request;
    iterating raises the `PellucidError` that ended it. `output()` is all that was seen so far, with
    the metrics once it is finished.
    """

    @property
    def request_id(self) -> str: ...

    @property
    def prompt_token_ids(self) -> list[int]: ...

    @property
    def finished(self) -> bool: ...

    def output(self) -> RequestOutput: ...

    def __aiter__(self) -> AnswerStream: ...

    async def __anext__(self) -> Increment: ...

    async def aclose(self) -> None: ...


class Teller(Protocol):
    """What tells of an engine: the part of `EngineClient` of these names."""

    async def records(self, cursor: Cursor, stamps_every: float | None = None) -> Records: ...

    async def news(self, cursor: Cursor, stamps_every: float | None = None) -> Records: ...

    async def about(self) -> EngineAbout: ...

    async def page_map(self, with_tokens: bool = False) -> tuple[int, PageMap]: ...


class EngineClient(Protocol):
    """An engine, from a server's event loop. Errors are `PellucidError`s: `BadInput` for what the
    caller can mend, others for what broke."""

    @property
    def model(self) -> ModelInfo: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def lanes(self) -> Lanes:
        """Where long texts are tokenised, off the event loop."""

    async def chat_token_ids(self, messages: Messages, layout: Layout = PLAIN) -> list[int]:
        """What the model would read of a conversation, however long. Raises `BadInput`."""

    async def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        layout: Layout = PLAIN,
        **options: Unpack[Options],
    ) -> AnswerStream:
        """Ask for an answer. `prompt`: text, ids, a mapping with one of them, or a conversation
        laid out as `layout` says. Raises `PromptTooLong` or `BadInput` before anything runs."""

    async def prompt_logprobs(
        self, token_ids: Sequence[int], count: int = 0, *, cache_salt: str | bytes | None = None
    ) -> list[Entries | None]:
        """For each token of a prompt its log-probability and those of the `count` likeliest, by id;
        None for the first. Raises as `stream`."""

    async def embed(
        self,
        prompt: Prompt,
        *,
        pooling: str = "mean",
        normalize: bool = True,
        parse_special: bool = False,
    ) -> EmbeddingOutput:
        """The vector of one prompt; several may be asked for at once. Raises as `stream`."""

    async def abort(self, request_id: str) -> None:
        """End a request; its stream ends with finish_reason "abort". None of that id: nothing."""

    async def stats(self) -> EngineStats: ...

    async def records(self, cursor: Cursor, stamps_every: float | None = None) -> Records:
        """What the engine recorded since `cursor`, by the ids that requests have here. Have the
        parts of a forward pass timed in `stamps_every` seconds from now on (0: of all)."""

    async def news(self, cursor: Cursor, stamps_every: float | None = None) -> Records:
        """As `records`, as soon as there may be something new: 30 times a second at the most, and
        twice a second at the least. For one reader; what it gives may overlap with `records`."""

    async def about(self) -> EngineAbout: ...

    async def measure_machine(self) -> None:
        """As `AsyncLLM.measure_machine`; an engine that is started again knows them too."""

    async def chances(
        self, prompt: tuple[int, ...], answer: tuple[int, ...], top: int, salt: bytes
    ) -> list[Entries | None]:
        """As `AsyncLLM.chances`."""

    async def funnel(self, moment: Moment) -> Funnel:
        """As `AsyncLLM.funnel`."""

    async def page_map(self, with_tokens: bool = False) -> tuple[int, PageMap]:
        """Who owns which page of the KV cache, and the number of the next step."""

    async def check_health(self) -> None:
        """Raises `PellucidError` if no request can be answered any more."""

    async def close(self) -> None: ...


class LocalClient:
    """An `EngineClient` on an engine in this process."""

    def __init__(self, llm: AsyncLLM) -> None:
        self._llm = llm
        self._pace = Pace()
        self.lanes = Lanes()
        self.tokenizer: Tokenizer = llm.tokenizer
        self.model = ModelInfo(
            path=str(llm.model_path),
            name=llm.spec.name,
            family=llm.spec.family,
            max_model_len=llm.max_model_len,
            vocab_size=llm.spec.vocab_size,
            embedding_size=llm.spec.d_model,
            has_chat_template=llm.has_chat_template,
            chat_template=llm.chat_template(with_tools=False),
            tool_template=llm.chat_template(with_tools=True),
            default_params=llm.get_default_sampling_params(),
            speculative=llm.speculates,
        )

    async def chat_token_ids(self, messages: Messages, layout: Layout = PLAIN) -> list[int]:
        size = size_of_prompt(messages, layout)
        return await self.lanes.run(size, self._llm.chat_token_ids, messages, layout)

    async def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        layout: Layout = PLAIN,
        **options: Unpack[Options],
    ) -> AnswerStream:
        prepare = functools.partial(
            self._llm.prepare, prompt, params, layout, with_grammar=False, **options
        )
        request = await read_in(self.lanes, prompt, layout, prepare)
        if request.params.structured_outputs is not None:  # which may take seconds to compile
            request = await asyncio.to_thread(self._llm.complete, request)
        return self._llm.start(request)

    async def prompt_logprobs(
        self, token_ids: Sequence[int], count: int = 0, *, cache_salt: str | bytes | None = None
    ) -> list[Entries | None]:
        return await self._llm.prompt_logprobs(token_ids, count, cache_salt=cache_salt)

    async def embed(
        self,
        prompt: Prompt,
        *,
        pooling: str = "mean",
        normalize: bool = True,
        parse_special: bool = False,
    ) -> EmbeddingOutput:
        read = functools.partial(self._llm.read, prompt, parse_special)
        text = await read_in(self.lanes, prompt, PLAIN, read)
        ids = {"prompt_token_ids": text.token_ids}
        output = await self._llm.embed(ids, pooling=pooling, normalize=normalize)
        return replace(output, prompt=text.text)

    async def abort(self, request_id: str) -> None:
        self._llm.abort(request_id)

    async def stats(self) -> EngineStats:
        return self._llm.stats()

    async def records(self, cursor: Cursor, stamps_every: float | None = None) -> Records:
        return self._llm.records(cursor, stamps_every)

    async def news(self, cursor: Cursor, stamps_every: float | None = None) -> Records:
        await self._pace.wait()
        return await self.records(cursor, stamps_every)

    async def chances(
        self, prompt: tuple[int, ...], answer: tuple[int, ...], top: int, salt: bytes
    ) -> list[Entries | None]:
        return await self._llm.chances(prompt, answer, top, salt)

    async def funnel(self, moment: Moment) -> Funnel:
        return await self._llm.funnel(moment)

    async def page_map(self, with_tokens: bool = False) -> tuple[int, PageMap]:
        return await self._llm.page_map(with_tokens)

    async def about(self) -> EngineAbout:
        return self._llm.about()

    async def measure_machine(self) -> None:
        await self._llm.measure_machine()

    async def check_health(self) -> None:
        self._llm.check_health()

    async def close(self) -> None:
        self.lanes.close()
        await asyncio.to_thread(self._llm.close)


async def read_in(lanes: Lanes, prompt: Prompt, layout: Layout, work: Callable[[], T]) -> T:
    """What `work` makes of a prompt: at once, or in its lane."""
    if is_short(prompt):
        return work()
    return await lanes.run(size_of_prompt(prompt, layout), work)


def is_short(prompt: Prompt) -> bool:
    """Whether it is tokenised in less time than a thread takes to be asked. No conversation is."""
    if isinstance(prompt, Sequence) and prompt and isinstance(prompt[0], Mapping):
        return False
    return size_of(prompt) <= _SHORT


def size_of_prompt(prompt: Prompt, layout: Layout = PLAIN) -> int:
    """How much text is read for it."""
    return size_of([prompt, layout.tools or (), layout.chat_template_kwargs or {}])
