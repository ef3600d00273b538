"""The worker's other end: a process that tries grammars, and is killed when one takes too long."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import threading
import time
from typing import IO

from pellucid.core.errors import PellucidError
from pellucid.sampling.grammar.limits import GrammarLimits
from pellucid.sampling.grammar.vocabulary import TokenBytes
from pellucid.sampling.grammar.worker import LENGTH

_START_SECONDS = 120.0  # a large vocabulary on a busy machine


class Killable:
    """Tries grammars one at a time. The process starts at the first, and again after a kill."""

    def __init__(self, vocabulary: TokenBytes, limits: GrammarLimits) -> None:
        self._vocabulary = vocabulary
        self._limits = limits
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = False
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """Of the process, if one runs."""
        return None if self._process is None else self._process.pid

    def reason_against(self, grammar: str) -> str:
        """Why the grammar cannot be used; "" if it can.

        A process that dies is asked once more: something else may have ended it. Raises
        `PellucidError` when no process can be started.
        """
        with self._lock:
            try:
                for _ in range(2):
                    self._start()
                    reason = self._ask(grammar)
                    if reason is not None:
                        return reason
            except BaseException:  # an answer may be under way: whose would the next one be?
                self._kill()
                raise
        return "it is too deep or too large to be compiled in the memory allowed: simplify it"

    def start(self) -> None:
        """Have the process begin to read the vocabulary; does not wait for it."""
        with self._lock:
            self._begin()

    def close(self) -> None:
        """End the process. Another trial would start another."""
        self._kill()

    def _begin(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self._kill()
        command = [sys.executable, "-m", "pellucid.sampling.grammar.worker"]
        arguments = [str(self._limits.memory), str(self._limits.seconds)]
        try:
            self._process = subprocess.Popen(
                [*command, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                    "OPENBLAS_NUM_THREADS": "1",  # its other threads would only take memory
                },
                start_new_session=True,  # Ctrl-C is for us, and not for it
            )
            self._vocabulary.write(self._input)
        except OSError as error:
            raise PellucidError(
                f"no process can be started to compile grammars in: {error}"
            ) from error

    def _start(self) -> None:
        self._begin()
        if not self._ready:
            if self._answer(_START_SECONDS) is None:
                raise PellucidError("the process that compiles grammars did not start: try again")
            self._ready = True

    def _ask(self, grammar: str) -> str | None:
        """The process's answer; None when it died over it."""
        data = grammar.encode()
        with contextlib.suppress(BrokenPipeError):  # it ended: there will be no answer
            self._input.write(LENGTH.pack(len(data)) + data)
            self._input.flush()
        answer = self._answer(self._limits.seconds)
        if answer is None:
            died = self._process is None or self._process.poll() is not None
            self._kill()
            if not died:
                return (
                    f"it takes more than {self._limits.seconds:g} seconds to compile: simplify it"
                )
        return answer

    def _answer(self, seconds: float) -> str | None:
        """The next answer; None when the process ended, or was not done in time."""
        until = time.monotonic() + seconds
        header = self._read(LENGTH.size, until)
        data = None if header is None else self._read(LENGTH.unpack(header)[0], until)
        return None if data is None else data.decode("utf-8", "replace")

    def _read(self, count: int, until: float) -> bytes | None:
        assert self._process is not None and self._process.stdout is not None
        poller, data = select.poll(), b""
        descriptor = self._process.stdout.fileno()
        poller.register(descriptor, select.POLLIN)
        while len(data) < count:
            left = until - time.monotonic()
            if left <= 0 or not poller.poll(left * 1000):
                return None
            part = os.read(descriptor, count - len(data))
            if not part:
                self._process.wait()
                return None
            data += part
        return data

    def _kill(self) -> None:
        process, self._process, self._ready = self._process, None, False
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):  # what is unwritten has no reader
                        pipe.close()

    @property
    def _input(self) -> IO[bytes]:
        assert self._process is not None and self._process.stdin is not None
        return self._process.stdin

    def __del__(self) -> None:
        self._kill()
