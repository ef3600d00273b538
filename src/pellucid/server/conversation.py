"""A conversation with tools, whichever API it came by, on its way through the engine."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pellucid.core.errors import BadInput, PellucidError
from pellucid.core.outputs import RequestMetrics
from pellucid.core.params import SamplingParams
from pellucid.core.structured import StructuredOutputs
from pellucid.engine.client import AnswerStream
from pellucid.engine.conversation import Layout
from pellucid.server.choices import ChatAnswer, ChatChoice, Said, as_increment
from pellucid.server.errors import bad_request
from pellucid.server.merging import increments, metrics_of
from pellucid.server.params import check_size, named_form
from pellucid.server.service import Call, Service
from pellucid.server.settings import RequestLimits
from pellucid.server.tools.parser import ToolParser


@dataclass(frozen=True, slots=True)
class Tools:
    """The tools of a request. `choice` is "auto", "none", "required" or the name of one."""

    functions: Sequence[Mapping[str, Any]] = ()
    """Each with `name`, and `description`, `parameters` and `strict` where given."""
    choice: str = "auto"
    named: bool = False
    parallel: bool = True
    param: str = "tools"
    choice_param: str = "tool_choice"

    @property
    def offered(self) -> bool:
        return bool(self.functions) and (self.named or self.choice != "none")

    @property
    def forced(self) -> bool:
        return self.named or self.choice == "required"

    @property
    def names(self) -> frozenset[str]:
        return frozenset(function["name"] for function in self.functions)

    def check(self, limits: RequestLimits) -> None:
        """Raises `ApiError` naming what cannot be."""
        if len(self.functions) > limits.tools:
            raise bad_request(
                f"{self.param} has {len(self.functions)} entries and at most {limits.tools} are "
                "taken",
                self.param,
            )
        if len(self.names) != len(self.functions):
            raise bad_request(f"{self.param}: two tools have the same name", self.param)
        if self.forced and not self.functions:
            raise bad_request(
                f"{self.choice_param} asks for a call and {self.param} has no tool: give one",
                self.choice_param,
            )
        if self.named and self.choice not in self.names:
            raise bad_request(
                f"{self.choice_param}: no tool is called {self.choice!r}", self.choice_param
            )
        for place, function in enumerate(self.functions):
            check_size(function.get("parameters") or {}, limits, f"{self.param}[{place}]")


class Conversation:
    """One request to go on with a conversation: `open` it, then take it whole or in parts."""

    def __init__(
        self,
        service: Service,
        call: Call,
        messages: Sequence[Mapping[str, Any]],
        params: SamplingParams,
        layout: Layout,
        tools: Tools,
        names: Mapping[str, str] | None = None,
    ) -> None:
        self._service = service
        self.call = call
        self._messages = messages
        self._tools = tools
        self._names = dict(names or {})
        self._layout = laid_out_with(layout, service, tools)
        self._format = service.tool_format() if tools.offered else None
        self.params = self._formed(params)
        self._stream: AnswerStream | None = None

    @property
    def prompt_token_ids(self) -> list[int]:
        return self._opened.prompt_token_ids

    @property
    def metrics(self) -> list[RequestMetrics]:
        """Once it has ended."""
        return metrics_of([self._opened])

    async def open(self) -> None:
        """Raises `ApiError` for what cannot be answered."""
        self._stream = await self._service.open(
            self.call,
            self._messages,
            self.params,
            self._layout,
            param="messages",
            names=self._names,
        )

    async def count(self) -> int:
        """How many tokens the model would read. Raises `ApiError`."""
        try:
            return len(await self._service.client.chat_token_ids(self._messages, self._layout))
        except PellucidError as error:
            raise await self._service.refusal(error, "messages", self._names) from error

    async def whole(self) -> list[ChatAnswer]:
        """Every answer. Raises `ApiError`."""
        await self.open()
        try:
            if self._format is not None and self._only_one:
                return await self._until_complete()
            async for _ in increments([self._opened]):
                pass
        except PellucidError as error:
            raise await self._service.refusal(error, "messages", self._names) from error
        answers = []
        for output, choice in zip(self._opened.output().outputs, self._choices(), strict=True):
            answer = ChatAnswer()
            answer.add(choice.push(as_increment(output)))
            answers.append(answer)
        return answers

    async def _until_complete(self) -> list[ChatAnswer]:
        """Every answer, where one may be complete before the model ends it."""
        answers = [ChatAnswer() for _ in range(self.params.n)]
        async for index, said in self.parts():
            answers[index].add(said)
        return answers

    async def parts(self) -> AsyncGenerator[tuple[int, Said], None]:
        """What is said of each choice as it comes. Once every choice has ended the engine is told
        to stop; the end of the parts is when it has."""
        choices = self._choices()
        open_ = len(choices)
        source = increments([self._opened])
        try:
            async for _, increment in source:
                choice = choices[increment.index]
                if choice.finished:
                    continue
                said = choice.push(increment)
                if choice.finished:
                    open_ -= 1
                    if not open_ and not self._opened.finished:
                        await self._service.client.abort(self._opened.request_id)
                yield increment.index, said
        finally:
            await source.aclose()

    @property
    def _opened(self) -> AnswerStream:
        assert self._stream is not None, "open() comes first"
        return self._stream

    @property
    def _only_one(self) -> bool:
        """Whether an answer ends with its first call."""
        return self._tools.named or not self._tools.parallel

    def _choices(self) -> list[ChatChoice]:
        return [
            ChatChoice(index, self._service.tokenizer, self.params, self._parser(index))
            for index in range(self.params.n)
        ]

    def _parser(self, index: int) -> ToolParser | None:
        if self._format is None:
            return None
        new_id = partial(self.call.tool_call_id, index)
        return ToolParser(self._format, self._tools.names, only_one=self._only_one, new_id=new_id)

    def _formed(self, params: SamplingParams) -> SamplingParams:
        """`params` with what the tools ask for: a grammar where a call must be made."""
        form, tools = self._format, self._tools
        if form is None:
            return params
        if form.bare:  # its mark is a control token, which must be seen
            params = replace(params, skip_special_tokens=False)
        if params.structured_outputs is not None:
            raise bad_request(
                f"{tools.param} and a form for the answer "
                f"({self._names.get('structured_outputs', 'structured_outputs')}) exclude each "
                f"other: give one of them, or {tools.choice_param} none",
                tools.param,
            )
        strict = any(function.get("strict") for function in tools.functions)
        if not tools.forced and not strict:
            return params
        chosen = [f for f in tools.functions if not tools.named or f["name"] == tools.choice]
        grammar = form.as_grammar(
            chosen, several=tools.parallel and not tools.named, text=not tools.forced
        )
        self._names |= named_form(tools.param)
        try:
            return replace(params, structured_outputs=StructuredOutputs(grammar=grammar))
        except BadInput as error:
            raise bad_request(str(error), tools.param) from error


def laid_out_with(layout: Layout, service: Service, tools: Tools) -> Layout:
    """`layout` with the tools that are offered. Raises `ApiError` for tools that cannot be."""
    tools.check(service.limits)
    if not tools.offered:
        return layout
    if service.tool_format() is None:
        raise bad_request(
            f"{tools.param}: this model's chat template lays out no tools, or in no form that is "
            "known here: serve it with a template that does (--chat-template)",
            tools.param,
        )
    functions = [{k: v for k, v in f.items() if k != "strict"} for f in tools.functions]
    return replace(layout, tools=[{"type": "function", "function": f} for f in functions])
