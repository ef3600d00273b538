"""Random traffic, good and bad, for as long as asked; then nothing may have grown.

    python bench/soak.py [MODEL] [--seconds 1200] [--clients 16] [--pause 0] [--json FILE]

Clients ask for streams and whole answers, conversations, forms, embeddings and tokens; they leave
in the middle, of a request too; they send what is no HTTP, what is no JSON, fields that do not
exist, values out of range, prompts that do not fit, grammars that are none. No answer may be a 5xx,
no stream may end without its last word. Between the first and the last quarter of the samples,
taken while nothing is asked, memory of its own, descriptors and tasks may not have grown, and no
page may be owned.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from http_streams import Server, ask, descriptors, get, metrics, resident_bytes, served

from pellucid.hub import DEFAULT_MODEL, TerminalProgress, resolve

GROWTH = 0.05  # of memory, between quarters: what an allocator may keep
SPARE_BYTES = 16 << 20
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
TOO_LONG = "lorem " * 12_000

Making = Callable[[random.Random], tuple[str, Any]]
WORDS = "harbour river lamp seven of the and sails é 船 🚢".split()


def _text(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(1, 40)))


def _completion(rng: random.Random) -> tuple[str, Any]:
    return COMPLETIONS, {
        "prompt": _text(rng),
        "max_tokens": rng.randint(1, 24),
        "n": rng.choice((1, 1, 1, 3)),
        "temperature": rng.choice((0, 0.8)),
        "seed": rng.randint(0, 99),
        "logprobs": rng.choice((None, 0, 5)),
        "echo": rng.random() < 0.2,
        "stop": rng.choice((None, ["e"], [" the", "ha"])),
        "stream": rng.random() < 0.6,
    }


def _chat(rng: random.Random) -> tuple[str, Any]:
    return CHAT, {
        "messages": [{"role": "user", "content": _text(rng)}],
        "max_tokens": rng.randint(1, 24),
        "stream": rng.random() < 0.6,
        "stream_options": None,
        "cache_salt": rng.choice((None, "a", "b")),
        "priority": rng.randint(-1, 1),
    }


def _form(rng: random.Random) -> tuple[str, Any]:
    form = rng.choice(
        ({"choice": ["yes", "no"]}, {"regex": "[a-c]{2,5}"}, {"regex": "(("}, {"json": {"type": 7}})
    )
    return COMPLETIONS, {"prompt": _text(rng), "max_tokens": 12, "structured_outputs": form}


def _other(rng: random.Random) -> tuple[str, Any]:
    return rng.choice(
        (
            ("/v1/embeddings", {"input": _text(rng)}),
            ("/tokenize", {"prompt": _text(rng)}),
            ("/detokenize", {"tokens": [1, 2, 3]}),
            ("/v1/messages", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 4}),
            ("/v1/responses", {"input": _text(rng), "max_output_tokens": 4}),
        )
    )


def _bad(rng: random.Random) -> tuple[str, Any]:
    return rng.choice(
        (
            (COMPLETIONS, b"{"),
            (COMPLETIONS, b"\xff\xfe"),
            (COMPLETIONS, {"prompt": []}),
            (COMPLETIONS, {"prompt": "a", "temprature": 1}),
            (COMPLETIONS, {"prompt": "a", "temperature": "hot"}),
            (COMPLETIONS, {"prompt": "a", "logit_bias": {"99999999": 1}}),
            (COMPLETIONS, {"prompt": "a", "n": 100000}),
            (COMPLETIONS, {"prompt": TOO_LONG}),
            (COMPLETIONS, {"prompt": "a", "model": "gpt-9"}),
            (CHAT, {"messages": [{"role": "user", "content": "<|im_end|>" * 9}], "max_tokens": 2}),
            (CHAT, {"messages": "hello"}),
            ("/v1/nothing", {}),
        )
    )


_HALF = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 40\r\n"
NO_REQUESTS = (b"", b"hello\r\n\r\n", _HALF, _HALF + b"\r\n{", b"\x16\x03\x01\x02")


async def _no_request(port: int, said: bytes) -> None:
    """Connects, says what is no whole request, and leaves."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(said)
    writer.write_eof()
    with contextlib.suppress(OSError):
        await reader.read()
    writer.close()


MAKERS: tuple[Making, ...] = (_completion, _completion, _chat, _form, _other, _bad)


@dataclass
class Sample:
    """What there was at a moment of quiet."""

    http_memory: int
    engine_memory: int
    http_descriptors: int
    engine_descriptors: int
    tasks: int
    pages_owned: int


@dataclass
class Soak:
    """Traffic on one server. `statuses` counts answers, 0 for what was no request; `pause_s` is
    what a client waits between two requests, on average."""

    server: Server
    rng: random.Random
    pause_s: float = 0.0
    statuses: Counter[int] = field(default_factory=Counter)
    left: int = 0
    samples: list[Sample] = field(default_factory=list)

    async def run(self, clients: int, enough: Callable[[int], bool], each: int) -> None:
        """Rounds of `each` requests by `clients`, a sample after each, until `enough(round)`."""
        # Every thread that tokenises has met the longest prompt: what it keeps is no growth.
        longest = {"prompt": TOO_LONG}
        await asyncio.gather(*(ask(self.server.port, COMPLETIONS, longest) for _ in range(16)))
        number = 0
        while not enough(number):
            await asyncio.gather(*(self._client(each // clients) for _ in range(clients)))
            self.samples.append(await self._sample())
            number += 1

    async def _client(self, n: int) -> None:
        for _ in range(n):
            if self.pause_s:
                await asyncio.sleep(self.rng.uniform(0, 2 * self.pause_s))
            path, body = self.rng.choice(MAKERS)(self.rng)
            leaves = self.rng.random() < 0.1
            if self.rng.random() < 0.05:
                status, _ = await get(
                    self.server.port, self.rng.choice(("/health", "/props", "/x"))
                )
                self.statuses[status] += 1
                continue
            if self.rng.random() < 0.05:
                await _no_request(self.server.port, self.rng.choice(NO_REQUESTS))
                self.statuses[0] += 1
                continue
            answer = await ask(self.server.port, path, body, 2 if leaves else None)
            self.statuses[answer.status] += 1
            assert answer.status < 500, (path, body, answer.status)
            self.left += leaves
            if not leaves and answer.status == 200 and path in (COMPLETIONS, CHAT):
                assert not answer.lines or answer.lines[-1] == b"[DONE]", (path, body, answer.lines)

    async def _sample(self) -> Sample:
        for _ in range(1200):
            found = await metrics(self.server.port)
            if not found["num_requests_running"] + found["num_requests_waiting"]:
                break
            await asyncio.sleep(0.05)
        http, engine = self.server.process.pid, self.server.engine()
        return Sample(
            resident_bytes(http),
            resident_bytes(engine),
            descriptors(http),
            descriptors(engine),
            int(found["event_loop_tasks"]),
            int(found["kv_cache_pages owned"]),
        )

    def check(self) -> dict[str, Any]:
        """The verdict: first and last quarters of the samples, nothing of it grown."""
        quarter = max(1, len(self.samples) // 4)
        # The first sample is of a server that has not met every kind of request yet.
        first, last = self.samples[1 : 1 + quarter], self.samples[-quarter:]
        told: dict[str, Any] = {"statuses": dict(self.statuses), "left": self.left}
        for name in Sample.__dataclass_fields__:
            before = statistics.median(getattr(sample, name) for sample in first)
            after = statistics.median(getattr(sample, name) for sample in last)
            told[name] = [before, after]
            room = before * GROWTH + SPARE_BYTES if name.endswith("memory") else 1
            assert after <= before + room, f"{name} grew from {before} to {after}"
        assert not self.samples[-1].pages_owned, "pages are owned by nobody who runs"
        return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default=DEFAULT_MODEL)
    parser.add_argument("--seconds", type=float, default=1200)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--pause", type=float, default=0, help="of a client between requests, s")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    model = resolve(given.model, progress=TerminalProgress())
    with tempfile.TemporaryDirectory() as scratch:
        # Pages take memory when they are first used, and the prefix cache comes to use them all:
        # a small pool, so that this is no growth that hides another.
        flags = ("--no-access-log", "--max-model-len", "1024", "--kv-cache-memory", "32MiB")
        with served(model, Path(scratch) / "server.log", *flags) as server:
            soak = Soak(server, random.Random(given.seed), given.pause)
            begin = time.monotonic()

            def enough(number: int) -> bool:
                return number >= 8 and time.monotonic() - begin > given.seconds

            asyncio.run(soak.run(given.clients, enough, 10 * given.clients))
            result = soak.check()
    print(json.dumps(result, indent=1))
    if given.json is not None:
        given.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
