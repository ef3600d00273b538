"""`POST /tokenize` and `POST /detokenize`."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from pellucid.core.errors import Overloaded, PellucidError, TimedOut
from pellucid.server.conversation import Tools, laid_out_with
from pellucid.server.errors import IN_PLACE, bad_request
from pellucid.server.events import unless_gone
from pellucid.server.logprobs import token_string
from pellucid.server.reading import read
from pellucid.server.routes.chat import as_messages, layout_of
from pellucid.server.service import Service
from pellucid.server.wire.tokens import DetokenizeRequest, TokenizeRequest
from pellucid.text import Tokenizer


async def tokenize(request: Request) -> JSONResponse:
    """Token ids of a text or a conversation, as a completion of it would be given them."""
    service: Service = request.app.state.service
    asking = await read(request, TokenizeRequest)
    service.model_named(asking.asked.model)
    since = request.state.journey.received
    ids = await unless_gone(request, _ids(service, asking.asked, since))
    body: dict[str, Any] = {
        "count": len(ids),
        "max_model_len": service.model.max_model_len,
        "tokens": ids,
    }
    if asking.asked.return_token_strs:
        body["token_strs"] = await service.client.lanes.run(
            len(ids), _strings, service.tokenizer, ids
        )
    return JSONResponse({**body, **asking.extras}, headers=asking.headers)


async def detokenize(request: Request) -> JSONResponse:
    """The text of token ids, under vLLM's name for it and llama-server's."""
    service: Service = request.app.state.service
    asking = await read(request, DetokenizeRequest)
    service.model_named(asking.asked.model)
    skip = bool(asking.asked.skip_special_tokens)
    try:
        decoding = service.client.lanes.run(
            len(asking.asked.tokens), service.tokenizer.decode, asking.asked.tokens, skip
        )
        since = request.state.journey.received
        text = await unless_gone(request, service.client.in_time(decoding, since))
    except (Overloaded, TimedOut) as error:
        raise await service.refusal(error) from error
    except PellucidError as error:
        raise bad_request(str(error), "tokens") from error
    body = {"prompt": text, "content": text, **asking.extras}
    return JSONResponse(body, headers=asking.headers)


async def _ids(service: Service, asked: TokenizeRequest, since: float) -> list[int]:
    if (asked.prompt is None) == (asked.messages is None):
        raise bad_request("give either prompt (a text) or messages (a conversation)", "prompt")
    try:
        if asked.prompt is not None:
            _refuse(asked, "messages", "tools add_generation_prompt continue_final_message")
            encoding = service.client.lanes.run(
                len(asked.prompt),
                service.tokenizer.encode,
                asked.prompt,
                parse_special=bool(asked.parse_special),
                add_special=asked.add_special_tokens is not False,
            )
            return await service.client.in_time(encoding, since)
        _refuse(asked, "prompt", "add_special_tokens parse_special")
        functions = [tool.function.model_dump(exclude_none=True) for tool in asked.tools or ()]
        messages = as_messages(asked.messages or [], service)
        layout = laid_out_with(layout_of(asked), service, Tools(functions))
        return await service.client.chat_token_ids(messages, layout)
    except PellucidError as error:
        param = "messages" if asked.prompt is None else "prompt"
        raise await service.refusal(error, param, {IN_PLACE: IN_PLACE}) from error


def _strings(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    return [token_string(tokenizer, token) for token in ids]


def _refuse(asked: TokenizeRequest, of: str, names: str) -> None:
    for name in names.split():
        if getattr(asked, name) is not None:
            raise bad_request(f"{name} is for {of} alone: leave it out", name)
