"""A few processes that grammars are tried in, so that a slow grammar holds up few others."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from pellucid.sampling.grammar.killable import Killable
from pellucid.sampling.grammar.limits import GrammarLimits
from pellucid.sampling.grammar.vocabulary import TokenBytes


class Trials:
    """At most `limits.processes` at once; the second starts when the first is busy."""

    def __init__(self, vocabulary: TokenBytes, limits: GrammarLimits) -> None:
        self._all = [Killable(vocabulary, limits) for _ in range(limits.processes)]
        self._free = list(reversed(self._all))  # a stack: whoever was used last is used next
        self._places = threading.Semaphore(limits.processes)

    @property
    def pids(self) -> list[int]:
        """Of the processes that run."""
        return [pid for process in self._all if (pid := process.pid) is not None]

    @contextlib.contextmanager
    def one(self) -> Iterator[Killable]:
        """A process that nobody else uses meanwhile; waits for one."""
        with self._places:
            process = self._free.pop()
            try:
                yield process
            finally:
                self._free.append(process)

    def close(self) -> None:
        """End the processes. Another trial would start another."""
        for process in self._all:
            process.close()
