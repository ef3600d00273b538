"""The other end of a worker: starts it, asks it, and ends it."""

from __future__ import annotations

import json
import selectors
import subprocess
import time
from pathlib import Path
from typing import Any


class WorkerError(Exception):
    """A worker that answered with an error, in time or not at all."""


class Worker:
    """A process that serves requests (`serve.py`).

    `configuration` is its first request; `info` is what it answered. Raises `WorkerError` if it
    cannot start. Its own messages go to `log`.
    """

    def __init__(
        self,
        python: str,
        script: Path,
        configuration: dict[str, Any],
        log: Path,
        *,
        timeout: float = 300.0,
    ) -> None:
        self.name = script.stem
        self._timeout = timeout
        self._log = log
        with log.open("ab") as messages:
            self._process = subprocess.Popen(
                [python, str(script)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=messages,
                bufsize=0,
            )
        self._pending = b""
        try:
            self.info = self._ask(configuration)
        except WorkerError:
            self.close()
            raise

    def measure(self, case: dict[str, Any], salt: int) -> float:
        """Tokens a second. Raises `WorkerError`."""
        answer = self._ask({"do": "measure", "case": case, "salt": salt})
        return float(answer["tokens"]) / float(answer["seconds"])

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
        except OSError as error:
            raise WorkerError(f"{self.name} has ended: {self._last_words()}") from error
        answer: dict[str, Any] = json.loads(self._line())
        if "error" in answer:
            raise WorkerError(f"{self.name}: {answer['error']}")
        return answer

    def _line(self) -> bytes:
        """The next line; none in time, or none ever, is an error."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + self._timeout
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._pending:
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    raise WorkerError(f"{self.name}: no answer within {self._timeout:.0f} s")
                chunk = self._process.stdout.read(1 << 16)
                if not chunk:
                    raise WorkerError(f"{self.name} has ended: {self._last_words()}")
                self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"
