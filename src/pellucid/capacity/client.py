"""A client that takes little of the machine that it shares with the server: raw sockets, lines as
they come, nothing parsed before the stream has ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

from pellucid.core.errors import PellucidError

_FIRST_ID: Final = 1000  # above the special tokens of every family


@dataclass(slots=True)
class Heard:
    """An answer as it came: when it was asked for, and when each event came (`time.monotonic`).
    id: the request's, as the server calls it."""

    asked: float
    times: list[float] = field(default_factory=list)
    tokens: int = 0
    id: str = ""

    @property
    def ttft(self) -> float:
        return self.times[0] - self.asked

    @property
    def e2e(self) -> float:
        return self.times[-1] - self.asked


class Prompts:
    """Prompts of random tokens, so that no cache has them, of a vocabulary of `size`; the first
    `shared` of them are those of a common text."""

    def __init__(self, size: int, seed: int) -> None:
        self._size = size
        self._seed = seed
        self._random = random.Random(seed)

    def of(self, length: int, shared: int = 0, text: int = 0) -> list[int]:
        common = random.Random(f"{self._seed} {text}").choices(self._ids, k=shared)
        return common + self._random.choices(self._ids, k=length - shared)

    @property
    def _ids(self) -> range:
        return range(min(_FIRST_ID, self._size // 2), self._size)


def body_of(prompt: list[int], tokens: int) -> bytes:
    """A request for so many tokens exactly."""
    return json.dumps(
        {
            "prompt": prompt,
            "max_tokens": tokens,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ).encode()


async def ask(port: int, body: bytes) -> Heard:
    """POST to /v1/completions, and listen to the end. Raises `PellucidError` with what the server
    says if that is no answer."""
    heard = Heard(monotonic())
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    lines: list[bytes] = []
    try:
        head = _head(port, "POST /v1/completions", f"Content-Length: {len(body)}\r\n")
        writer.write(head + body)
        status = await reader.readline()
        while line := await reader.readline():
            if line.startswith(b"data: "):
                heard.times.append(monotonic())
                lines.append(line)
        _read(heard, status, lines)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    return heard


def _head(port: int, what: str, more: str = "") -> bytes:
    host = f"Host: 127.0.0.1:{port}\r\n"
    return f"{what} HTTP/1.1\r\n{host}{more}Connection: close\r\n\r\n".encode()


def _read(heard: Heard, status: bytes, lines: list[bytes]) -> None:
    if b" 200 " not in status or not lines or not lines[-1].startswith(b"data: [DONE]"):
        told = b" ".join([status.strip(), *lines[-2:]]).decode("utf-8", "replace")
        raise PellucidError(f"the server gave no answer: {told[:300]}")
    last = json.loads(lines[-2][6:])
    heard.id = last.get("id", "")
    heard.tokens = (last.get("usage") or {}).get("completion_tokens", 0)
    # The end's mark and the usage are no tokens.
    del heard.times[-2:]


async def get_json(port: int, path: str) -> Any:
    """What a GET gives."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 26)
    try:
        writer.write(
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode()
        )
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        writer.close()
    if b" 200 " not in head.split(b"\r\n")[0] or b"chunked" in head.lower():
        status = head.split(b"\r\n")[0].decode("latin-1")
        raise PellucidError(
            f"the server does not tell {path}: {status} {body[:200].decode('utf-8', 'replace')}"
        )
    return json.loads(body)
