"""How much of a step is native code, and how much is Python's own."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pellucid.ops.native import NativeOps
from pellucid.ops.native.backend import CompiledForward
from pellucid.ops.step import Step


class ProgramClock:
    """A recorded program with a stopwatch around its `run`; everything else is the program's."""

    def __init__(self, program: Any) -> None:
        self._inner = program
        self.seconds = 0.0

    def run(self, *arguments: Any) -> Any:
        begin = time.perf_counter()
        try:
            return self._inner.run(*arguments)
        finally:
            self.seconds += time.perf_counter() - begin

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class TimedNativeOps(NativeOps):
    """The native backend; `clock` has counted the seconds within the program of the model that
    was compiled last."""

    clock: ProgramClock

    def compile(self, forward: Callable[[Step], Any]) -> CompiledForward:
        compiled = super().compile(forward)
        self.clock = ProgramClock(compiled._program)
        compiled._program = self.clock
        return compiled
