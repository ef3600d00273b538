"""`POST /tokenize/pieces` and `GET /tokenize/tokenizers`: what became of a text, token by token.

They serve the tokenizer bench of the pages: each token with its bytes, its place in the text and
where it came from, and the merges that made it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import accumulate
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse

from pellucid.core.errors import BadInput, PellucidError
from pellucid.server.errors import bad_request
from pellucid.server.reading import read
from pellucid.server.routes.chat import as_messages
from pellucid.server.service import Service
from pellucid.server.tokenizers import Tokenizers
from pellucid.server.wire.tokens import PiecesRequest
from pellucid.text import Piece, Tokenizer

MOST_CHARACTERS: Final = 20_000
"""Each character costs some hundred bytes of answer, and its merges more."""


async def tokenizers(request: Request) -> JSONResponse:
    """Names of the tokenizers that are here; the first is the served model's."""
    found: Tokenizers = request.app.state.tokenizers
    return JSONResponse({"tokenizers": await found.names()})


async def token_pieces(request: Request) -> JSONResponse:
    service: Service = request.app.state.service
    found: Tokenizers = request.app.state.tokenizers
    asked = (await read(request, PiecesRequest)).asked
    service.model_named(asked.model)
    if (asked.prompt is None) == (asked.messages is None):
        raise bad_request("give either prompt (a text) or messages (a conversation)", "prompt")
    param = "messages" if asked.prompt is None else "prompt"
    try:
        tokenizer = await found.named(asked.tokenizer)
        if asked.prompt is not None:
            _bound(len(asked.prompt), "prompt")
            size = len(asked.prompt)
            body = await service.client.lanes.run(size, _of_text, tokenizer, asked)
        else:
            body = await _of_conversation(service, asked)
    except PellucidError as error:
        raise await service.refusal(error, param) from error
    return JSONResponse(body)


def _of_text(tokenizer: Tokenizer, asked: PiecesRequest) -> dict[str, Any]:
    text, special = asked.prompt or "", bool(asked.parse_special)
    pieces = tokenizer.pieces(text, parse_special=special)
    parts = [_part_of(tokenizer, piece) for piece in pieces]
    return _body(tokenizer, text, pieces, parts, special if asked.merges else None)


async def _of_conversation(service: Service, asked: PiecesRequest) -> dict[str, Any]:
    if asked.tokenizer is not None or asked.parse_special is not None:
        name = "tokenizer" if asked.tokenizer is not None else "parse_special"
        raise bad_request(f"{name} is for prompt alone: leave it out", name)
    messages = as_messages(asked.messages or [], service)
    ids = await service.client.chat_token_ids(messages)
    contents = [message.get("content") for message in messages]
    said = [content for content in contents if isinstance(content, str)]
    return await service.client.lanes.run(
        len(ids), _laid_out, service.tokenizer, ids, said, bool(asked.merges)
    )


def _laid_out(
    tokenizer: Tokenizer, ids: Sequence[int], said: Sequence[str], merges: bool
) -> dict[str, Any]:
    """Tokens of a conversation, placed in the text that they spell."""
    data = [tokenizer.token_bytes(token) for token in ids]
    text = b"".join(data).decode("utf-8", "replace")
    _bound(len(text), "messages")
    pieces = _placed(ids, data)
    spans = _said_spans(text, said)
    parts = [
        "text" if any(p.start < end and start < p.end for start, end in spans) else "template"
        for p in pieces
    ]
    return _body(tokenizer, text, pieces, parts, True if merges else None)


def _placed(ids: Sequence[int], data: Sequence[bytes]) -> list[Piece]:
    """Pieces with their offsets; a character belongs to every token that has bytes of it."""
    begun = list(accumulate(int(byte & 0xC0 != 0x80) for byte in b"".join(data)))
    pieces, at = [], 0
    for token, piece in zip(ids, data, strict=True):
        start = begun[at] - 1 if piece else (begun[at - 1] if at else 0)
        at += len(piece)
        end = begun[at - 1] if piece else start
        pieces.append(Piece(token, piece.decode("utf-8", "replace"), piece, max(start, 0), end))
    return pieces


def _said_spans(text: str, said: Sequence[str]) -> list[tuple[int, int]]:
    """Where the messages' own words stand, as the template wrote them: whole, or trimmed."""
    spans, at = [], 0
    for content in said:
        for form in (content, content.strip()):
            start = text.find(form, at) if form else -1
            if start >= 0:
                at = start + len(form)
                spans.append((start, at))
                break
    return spans


def _part_of(tokenizer: Tokenizer, piece: Piece) -> str:
    if piece.start == piece.end:
        return "added"
    return "special" if piece.id in tokenizer.special_ids else "text"


def _body(
    tokenizer: Tokenizer,
    text: str,
    pieces: Sequence[Piece],
    parts: Sequence[str],
    special: bool | None,
) -> dict[str, Any]:
    """special: how the merges read control tokens; None where they are not asked for."""
    merged, why_not = None, None
    if special is not None:
        try:
            merged = [asdict(piece) for piece in tokenizer.merge_steps(text, parse_special=special)]
        except BadInput as error:
            why_not = str(error)
    return {
        "text": text,
        "vocab_size": tokenizer.vocab_size,
        "pieces": [
            {
                "id": piece.id,
                "text": piece.text,
                "bytes": piece.bytes.hex(),
                "start": piece.start,
                "end": piece.end,
                "part": part,
            }
            for piece, part in zip(pieces, parts, strict=True)
        ],
        "merges": merged,
        "merges_why_not": why_not,
    }


def _bound(length: int, param: str) -> None:
    if length > MOST_CHARACTERS:
        raise bad_request(
            f"{param} has {length} characters and at most {MOST_CHARACTERS} are shown token by "
            "token: shorten it, or use /tokenize",
            param,
        )
