"""`POST /v1/completions`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from pellucid.core.errors import PellucidError
from pellucid.core.outputs import FinishReason, Increment
from pellucid.engine.client import AnswerStream
from pellucid.server.choices import CompletionChoice, Echo, as_increment
from pellucid.server.echo import echo_of
from pellucid.server.errors import bad_request
from pellucid.server.events import DONE, Events, event, numbers, string
from pellucid.server.merging import increments, metrics_of, outputs
from pellucid.server.params import completion_params, form_names
from pellucid.server.reading import Read
from pellucid.server.routes.streaming import answered
from pellucid.server.service import Call, Service
from pellucid.server.settings import RequestLimits
from pellucid.server.usage import timings, usage
from pellucid.server.wire.completions import CompletionRequest

OBJECT: Final = "text_completion"


async def completions(request: Request) -> Response:
    return await answered(request, CompletionRequest, Answering)


class Answering:
    """One request on its way."""

    def __init__(self, service: Service, call: Call, asking: Read[CompletionRequest]) -> None:
        asked = asking.asked
        self._service = service
        self._call = call
        self._asked = asked
        self._extras = asking.extras
        self._prompts = prompts_of(asked.prompt, service.limits)
        self._scoring_only = asked.max_tokens == 0
        self._params = completion_params(_at_least_one(asked), service.defaults, service.limits)
        _check_choices(len(self._prompts), self._params.n, service.limits)
        self._streams: list[AnswerStream] = []
        self._echoes: list[Echo | None] = []

    async def open(self) -> None:
        """Raises `ApiError` for what cannot be answered; afterwards the answers come."""
        service, call = self._service, self._call
        self._echoes = [None] * len(self._prompts)
        self._streams = await service.open_all(
            call,
            self._prompts,
            self._params,
            form_names(self._asked),
            bool(self._asked.parse_special),
        )
        try:
            if self._asked.echo:
                # Room is what its answers have; its time goes on.
                admission = service.client.more(call.since)
                self._echoes = [
                    await echo_of(
                        service.client,
                        admission,
                        prompt,
                        stream.prompt_token_ids,
                        self._params,
                        call.salt,
                        parse_special=bool(self._asked.parse_special),
                    )
                    for prompt, stream in zip(self._prompts, self._streams, strict=True)
                ]
        except PellucidError as error:
            await self._close()
            raise await service.refusal(error) from error
        except BaseException:
            await self._close()
            raise

    async def whole(self) -> dict[str, Any]:
        await self.open()
        try:
            answers = await outputs(self._streams)
        except PellucidError as error:
            raise await self._service.refusal(error) from error
        choices = self._choices()
        said = [
            choices[number * self._params.n + output.index].push(self._shown(as_increment(output)))
            for number, answer in enumerate(answers)
            for output in answer.outputs
        ]
        return {**self._head(), "choices": said, **self._costs()}

    async def events(self) -> AsyncGenerator[bytes, None]:
        choices = self._choices()
        head = self._head()
        options = self._asked.stream_options
        counted = bool(options is not None and options.include_usage)
        ending = {"usage": None} if counted else {}
        unfinished = len(choices)
        plain = _PlainEvents(lambda choice: {**head, "choices": [choice], **ending})
        async for number, increment in increments(self._streams):
            choice = choices[number * self._params.n + increment.index]
            increment = self._shown(increment)
            text = choice.text_alone(increment)
            if text is not None:
                if text or choice.gives_ids:
                    yield plain.of(choice, text, increment.token_ids)
                continue
            said = choice.push(increment)
            if said is None:
                continue
            unfinished -= said["finish_reason"] is not None
            last = not unfinished and not counted
            yield event({**head, "choices": [said], **(self._costs() if last else ending)})
        if counted:
            yield event({**head, "choices": [], **self._costs()})
        yield DONE

    def _shown(self, increment: Increment) -> Increment:
        """Nothing of the answer, where only the prompt was to be scored."""
        if not self._scoring_only:
            return increment
        finish: FinishReason | None = "length" if increment.finish_reason else None
        return replace(
            increment, text="", token_ids=[], logprobs=None, finish_reason=finish, stop_reason=None
        )

    def _choices(self) -> list[CompletionChoice]:
        return [
            CompletionChoice(
                number * self._params.n + index,
                self._service.tokenizer,
                self._params,
                echo=self._echoes[number],
                token_ids=bool(self._asked.return_token_ids),
                prompt_token_ids=stream.prompt_token_ids,
            )
            for number, stream in enumerate(self._streams)
            for index in range(self._params.n)
        ]

    def _head(self) -> dict[str, Any]:
        call = self._call
        return {
            "id": f"cmpl-{call.id}",
            "object": OBJECT,
            "created": call.created,
            "model": call.model,
            **self._extras,
        }

    def _costs(self) -> dict[str, Any]:
        metrics = metrics_of(self._streams)
        if self._scoring_only:
            metrics = [replace(m, generation_tokens=0) for m in metrics]
        return {"usage": usage(metrics), "timings": timings(metrics)}

    async def _close(self) -> None:
        for stream in self._streams:
            await stream.aclose()


class _PlainEvents:
    """Events of choices that grow by a text, and by its tokens where those are given."""

    def __init__(self, framed: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        def choice(index: Any, text: Any, **ids: Any) -> dict[str, Any]:
            return {"index": index, "text": text, "logprobs": None, "finish_reason": None, **ids}

        self._texts = Events(lambda i, text: framed(choice(i, text)), 2)
        self._with_ids = Events(lambda i, text, ids: framed(choice(i, text, token_ids=ids)), 3)

    def of(self, choice: CompletionChoice, text: str, token_ids: Sequence[int]) -> bytes:
        index = b"%d" % choice.index
        if choice.gives_ids:
            return self._with_ids.of(index, string(text), numbers(token_ids))
        return self._texts.of(index, string(text))


def prompts_of(given: Any, limits: RequestLimits, param: str = "prompt") -> list[Any]:
    """Each prompt as the engine takes it: a text, or token ids. Raises `ApiError`."""
    if isinstance(given, str):
        return [given]
    if not given:
        raise bad_request(f"{param} is empty: give at least one prompt", param)
    if isinstance(given[0], int):
        return [{"prompt_token_ids": given}]
    if len(given) > limits.prompts:
        raise bad_request(
            f"{param} has {len(given)} prompts and at most {limits.prompts} are taken at once",
            param,
        )
    return [item if isinstance(item, str) else {"prompt_token_ids": item} for item in given]


def _at_least_one(asked: CompletionRequest) -> CompletionRequest:
    """To score a prompt the engine is asked for a token that nobody sees."""
    if asked.max_tokens != 0:
        return asked
    if not asked.echo:
        raise bad_request("max_tokens 0 needs echo: there would be nothing to say", "max_tokens")
    return asked.model_copy(update={"max_tokens": 1, "min_tokens": None})


def _check_choices(prompts: int, n: int, limits: RequestLimits) -> None:
    if prompts * n > limits.choices:
        raise bad_request(
            f"n {n} for {prompts} prompts is {prompts * n} answers and at most {limits.choices} "
            "are given at once",
            "n",
        )
