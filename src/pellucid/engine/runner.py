"""Runner: an engine in a thread of its own.

    callers --post--> inbox --between steps--> step, step, ... --outboxes--> event loops

Only that thread touches the engine. It sleeps on its inbox while there is nothing to do.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Protocol

from pellucid.core.errors import PellucidError, Unavailable
from pellucid.core.record import Turn
from pellucid.engine.engine import Engine
from pellucid.engine.outbox import Flushed

logger = logging.getLogger("pellucid")

Action = Callable[[], None]


class Between(Protocol):
    """What is done between two steps."""

    def step_done(self, now: float) -> None:
        """A step ended `now`, by `time.monotonic`; what it gave was not sent yet."""

    def rest(self) -> float | None:
        """The engine goes to sleep: after how many seconds `step_done` is to be called if nothing
        wakes it before; None for never."""


# Steps in a row that may fail before the engine counts as broken. One that fails ends the requests
# of the moment; those that come later may well succeed.
_MAX_FAILURES = 3


class Runner:
    """Runs the steps of `engine` while it has something to do.

    `unsent` holds the outboxes that a step filled; `between` may add to them. `wakeups` counts how
    often the thread was woken, `failure` is why it ended by itself.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.unsent: list[Flushed] = []
        self.between: Between | None = None
        self.wakeups = 0
        self.failure: PellucidError | None = None
        self._failures = 0
        self._turned = time.monotonic()  # when the last step was done with, or something woke us
        self._stopping = False
        self._ended = False
        # Its put may be called from a finaliser, wherever the garbage collector struck.
        self._inbox: queue.SimpleQueue[Action] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="pellucid-engine", daemon=True)
        self._thread.start()

    def post(self, action: Action) -> None:
        """Have `action` done between two steps, in the engine's thread. Waits for nothing."""
        self._inbox.put(action)
        if self._ended:
            self._obey_all()

    def stop(self) -> None:
        """End every request, then the thread, and return when it has ended."""
        self._inbox.put(self._stop)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _stop(self) -> None:
        self._stopping = True

    def _run(self) -> None:
        while not self._stopping and self.failure is None:
            self._sleep()
            while not (self._stopping or self.failure or self.engine.idle):
                self._step()
                self._obey_all()
        self.engine.close(self.failure or PellucidError("the engine was closed"))
        self._ended = True  # from here on, whoever posts sees to it
        self._obey_all()

    def _sleep(self) -> None:
        """Until something is asked, which is done."""
        action = self._awaited()
        self._turned = time.monotonic()
        self.wakeups += 1
        _do(action)
        self._obey_all()

    def _awaited(self) -> Action:
        between = self.between
        if between is not None and (pause := between.rest()) is not None:
            try:
                return self._inbox.get(timeout=pause)
            except queue.Empty:
                _do(functools.partial(between.step_done, time.monotonic()))
                self._send()
        return self._inbox.get()

    def _obey_all(self) -> None:
        """Do what was asked meanwhile, and send what came of it."""
        with contextlib.suppress(queue.Empty):
            while not self._inbox.empty():
                _do(self._inbox.get_nowait())
        self._send()

    def _step(self) -> None:
        before, begun = self._turned, time.monotonic()
        done = self._try_step()
        computed = time.monotonic()
        if self.between is not None:
            _do(functools.partial(self.between.step_done, computed))
        self._send()
        self._turned = now = time.monotonic()
        if done:
            turn = Turn(begun - before, computed - begun, now - computed)
            self.engine.ledger.turned(turn)

    def _try_step(self) -> bool:
        """Whether there was a step."""
        try:
            if not self.engine.step():
                raise RuntimeError("nothing is planned, and somebody waits")
            self._failures = 0
            return True
        except Exception as error:
            logger.exception("a step failed")
            self._failures += 1
            reason = f"{type(error).__name__}: {error}"
            if isinstance(error, Unavailable):  # what it computes with is gone for good
                self.failure = error
                return False
            self.engine.fail_all(PellucidError(f"the engine failed in a step: {reason}"))
            if self._failures == _MAX_FAILURES:
                self.failure = PellucidError(
                    f"the engine ended after {_MAX_FAILURES} steps in a row had failed, the last "
                    f"with {reason}: start it again"
                )
            return False

    def _send(self) -> None:
        while self.unsent:
            self.unsent.pop().flush()


def _do(action: Action) -> None:
    """What is asked may go wrong for who asked, and for nobody else."""
    try:
        action()
    except Exception:
        logger.exception("what was asked of the engine's thread failed")
