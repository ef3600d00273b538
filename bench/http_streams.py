"""A client for streams of events that takes little of the machine it shares with the server.

Standard library only: one connection a stream, lines as they come, each with its time; nothing is
parsed before the stream has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Answer:
    """What came of a request. `times` has one for each line of `data`, after the request's own."""

    began: float = 0.0
    head_at: float = 0.0
    status: int = 0
    times: list[float] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    heard: list[float] = field(default_factory=list)
    """Of anything, keep-alive comments too."""

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines if line != b"[DONE]"]

    @property
    def whole(self) -> bool:
        """True if it came to its end without an error."""
        return bool(self.lines) and self.lines[-1] == b"[DONE]" and self.error is None

    @property
    def error(self) -> dict[str, Any] | None:
        found = [event["error"] for event in self.events if "error" in event]
        return found[0] if found else None

    @property
    def token_ids(self) -> list[int]:
        """Of choice 0, where the request asked for them."""
        choices = (choice for event in self.events for choice in event.get("choices", ()))
        return [token for choice in choices for token in choice.get("token_ids") or ()]

    @property
    def head_after(self) -> float:
        """Seconds to the response's head."""
        return self.head_at - self.began

    @property
    def first_after(self) -> float:
        """Seconds to the first event."""
        return self.times[0] - self.began

    @property
    def longest_silence(self) -> float:
        """Between two events, in seconds."""
        return max((b - a for a, b in itertools.pairwise(self.times)), default=0.0)

    @property
    def longest_unheard(self) -> float:
        """Between two signs of life of any kind, from the request on."""
        heard = [self.began, *self.heard]
        return max((b - a for a, b in itertools.pairwise(heard)), default=0.0)


async def ask(
    port: int, path: str, body: Any, leave_after: int | None = None, answer: Answer | None = None
) -> Answer:
    """POST `body`, and listen to the end, or until `leave_after` events have come. What comes is in
    `answer` as it comes."""
    answer = answer or Answer()
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer.began = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(content)}"
    try:
        writer.write(head.encode() + b"\r\n\r\n" + content)
        answer.status = int((await reader.readline()).split()[1])
        answer.head_at = time.perf_counter()
        while line := await reader.readline():
            now = time.perf_counter()
            if line.startswith(b"data: "):
                answer.times.append(now)
                answer.lines.append(line[6:].rstrip())
            if line.startswith((b"data: ", b":")):
                answer.heard.append(now)
            if leave_after is not None and len(answer.lines) >= leave_after:
                break
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    return answer


async def get(port: int, path: str) -> tuple[int, str]:
    """Status and body of a GET."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    content = await reader.read()
    writer.close()
    head, _, body = content.partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()


async def metrics(port: int) -> dict[str, float]:
    """Every sample of `/metrics`, by its name without the prefix and the model's labels."""
    _, text = await get(port, "/metrics")
    found: dict[str, float] = {}
    for name, labels, value in re.findall(r"^pellucid_(\w+)\{([^}]*)\} (\S+)$", text, re.MULTILINE):
        told = re.findall(r'(\w+)="([^"]*)"', labels)
        extra = [text for key, text in told if key not in ("engine", "model_name")]
        found[" ".join([name, *extra])] = float(value)
    return found


class Server:
    """`pellucid serve` in a process of its own, its log in a file."""

    def __init__(self, model: Path, log: Path, *flags: str) -> None:
        self._log = log
        with log.open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pellucid", "serve", str(model), "--port", "0", *flags],
                stderr=stderr,
            )
        self.port = self._port()

    def _port(self) -> int:
        for _ in range(2400):
            found = re.search(r'"url": "http://[^"]*:(\d+)"', self._log.read_text())
            if found is not None:
                return int(found[1])
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise SystemExit(f"the server does not start: {self._log.read_text()[-500:]}")

    def engine(self) -> int:
        """The engine's process id."""
        tasks = Path(f"/proc/{self.process.pid}/task")
        found = [int(pid) for task in tasks.iterdir() for pid in _words(task / "children")]
        if not found:
            raise SystemExit("the server has no engine process")
        return found[0]

    def close(self) -> int:
        """Its exit code after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def resident_bytes(pid: int) -> int:
    """Memory of a process that is its own: neither files nor what it shares."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def descriptors(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def processor_seconds(pid: int) -> float:
    """Of all cores together, since it began."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def served(model: Path, log: Path, *flags: str) -> Iterator[Server]:
    server = Server(model, log, *flags)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.close()
