"""Processes that run cases, each a plain child with a pipe: nothing of the caller's own program is
imported again in it, and it can be killed at any time."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import IO, Any, Final

from pellucid.core.errors import PellucidError

_SIZE: Final = struct.Struct("<Q")
_TOLD, _DONE, _FAILED = range(3)  # what an answer is
Told = Callable[[int], None]
_CODE: Final = (
    "import sys; sys.path[:] = {path!r}; from pellucid.simulate.workers import serve; serve({nice})"
)


class Worker:
    """One process. `call` has it run a function on its arguments, and waits."""

    def __init__(self, nice: int = 0) -> None:
        code = _CODE.format(path=sys.path, nice=nice)
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def call(self, function: Callable[..., Any], *arguments: Any, told: Told | None = None) -> Any:
        """Raises what the function raises, and `PellucidError` if the process ends under it. With
        `told` the function has one argument more, and what it calls that with comes to `told`."""
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None and answers is not None
        try:
            _send(asked, (function, arguments, told is not None))
            kind, found = _receive(answers)
            while kind == _TOLD:
                assert told is not None
                told(found)
                kind, found = _receive(answers)
        except (OSError, EOFError, ValueError) as error:  # ValueError: closed under it
            raise PellucidError("a process that simulates has ended before its run") from error
        if kind == _FAILED:
            raise found
        return found

    def close(self) -> None:
        """Ends it, whatever it does."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):  # what was never read goes with the process
                pipe.close()


class Workers:
    """As many as there are processes, started when they are needed."""

    def __init__(self, count: int, nice: int = 0) -> None:
        self._count = count
        self._nice = nice
        self._workers: list[Worker] = []

    def map(
        self,
        function: Callable[..., Any],
        tasks: list[tuple[Any, ...]],
        told: Told | None = None,
    ) -> list[Any]:
        """What comes of each task, in their order; they are begun in it. `told` is as in
        `Worker.call`, of one task at a time. Raises what the first that fails raises."""
        while len(self._workers) < min(self._count, len(tasks)):
            self._workers.append(Worker(self._nice))
        found: list[Any] = [None] * len(tasks)
        failures: list[BaseException] = []
        left = iter(range(len(tasks)))
        lock = threading.Lock()

        def tell(more: int) -> None:
            assert told is not None
            with lock:
                told(more)

        def work(worker: Worker) -> None:
            while True:
                with lock:
                    i = None if failures else next(left, None)
                if i is None:
                    return
                try:
                    found[i] = worker.call(function, *tasks[i], told=told and tell)
                except BaseException as error:  # handed to who waits
                    with lock:
                        failures.append(error)
                    return

        threads = [threading.Thread(target=work, args=(w,), daemon=True) for w in self._workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        return found

    def close(self) -> None:
        """Ends them all."""
        while self._workers:
            self._workers.pop().close()


def serve(nice: int) -> None:
    """The child's side: until its parent is gone."""
    if nice:
        os.nice(nice)
    asked, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what prints must not come between the answers
    gc.disable()  # of hundreds of replicas' pages, looked through again and again, none is garbage

    def tell(value: int) -> None:
        _send(answers, (_TOLD, value))

    while True:
        try:
            function, arguments, telling = _receive(asked)
        except (EOFError, KeyboardInterrupt):
            return
        try:
            found = _DONE, function(*arguments, tell) if telling else function(*arguments)
        except (BrokenPipeError, KeyboardInterrupt):
            return
        except Exception as error:  # to be raised at the parent's
            found = _FAILED, error
        try:
            _send(answers, found)
        except OSError:
            return
        del found, arguments
        gc.collect()


def _send(pipe: IO[bytes], value: Any) -> None:
    content = pickle.dumps(value)
    pipe.write(_SIZE.pack(len(content)) + content)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> Any:
    """Raises `EOFError` at the end. Both ends are this program's own."""
    head = pipe.read(_SIZE.size)
    if len(head) < _SIZE.size:
        raise EOFError
    return pickle.loads(pipe.read(_SIZE.unpack(head)[0]))  # noqa: S301 - from our own child
