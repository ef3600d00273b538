"""`echo`: a prompt said before its answer, with the log-probabilities of its tokens if asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pellucid.core.params import SamplingParams
from pellucid.server.choices import Echo
from pellucid.server.guard import Admission, Guard
from pellucid.server.logprobs import CompletionLogprobs, Ruler
from pellucid.text import Tokenizer


async def echo_of(
    client: Guard,
    admission: Admission,
    prompt: Any,
    ids: Sequence[int],
    params: SamplingParams,
    salt: bytes,
    *,
    parse_special: bool = False,
) -> Echo:
    """`prompt` as it is said again; `admission` is that of its request. A text is
    said as it was given, token ids as they read."""
    text = prompt if isinstance(prompt, str) else _read(client.tokenizer, ids, params)
    if params.logprobs is None:
        return Echo(text)
    entries = await client.prompt_logprobs(
        ids, params.logprobs, cache_salt=salt, admission=admission
    )
    said = CompletionLogprobs(client.tokenizer, params.logprobs)

    def say() -> Echo:
        places = _places(client.tokenizer, prompt, ids, params, parse_special)
        for token, of_token, (offset, reading) in zip(ids, entries, places, strict=True):
            said.add(token, of_token, offset, reading)
        return Echo(text, said.take())

    return await client.lanes.run(max(len(text), len(ids)), say)


def _read(tokenizer: Tokenizer, ids: Sequence[int], params: SamplingParams) -> str:
    return tokenizer.decode(ids, params.skip_special_tokens, continuation=True)


def _places(
    tokenizer: Tokenizer,
    prompt: Any,
    ids: Sequence[int],
    params: SamplingParams,
    parse_special: bool,
) -> Iterator[tuple[int, str]]:
    """For each token its offset, and how it reads where its bytes do not tell."""
    text = prompt if isinstance(prompt, str) else ""
    pieces = tokenizer.pieces(text, parse_special=parse_special)
    if [piece.id for piece in pieces] == list(ids):
        for piece in pieces:
            whole = "\ufffd" not in piece.text and piece.end > piece.start
            yield piece.start, text[piece.start : piece.end] if whole else ""
        return
    ruler = Ruler(tokenizer, params.skip_special_tokens)
    for token in ids:
        yield ruler.place(token), ""
