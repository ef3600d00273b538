"""How much of a step is native code, and how much is Python's own."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from pellucid import _native
from pellucid.ops.native import NativeOps
from pellucid.ops.native.backend import CompiledForward
from pellucid.ops.step import Step


class ProgramClock:
    """A recorded program with a stopwatch around its runs; everything else is the program's.

    `seconds` are those of every run so far, and of the native sampler within `counting_sampling`.
    """

    def __init__(self, program: Any) -> None:
        self._inner = program
        self.seconds = 0.0

    def run(self, *arguments: Any) -> Any:
        return self._timed(self._inner.run, arguments)

    def run_plan(self, *arguments: Any) -> Any:
        return self._timed(self._inner.run_plan, arguments)

    @contextlib.contextmanager
    def counting_sampling(self) -> Iterator[None]:
        """While the block runs, native sampling counts too."""
        choose = _native.sampling.choose
        _native.sampling.choose = lambda *arguments: self._timed(choose, arguments)
        try:
            yield
        finally:
            _native.sampling.choose = choose

    def _timed(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        begin = time.perf_counter()
        try:
            return function(*arguments)
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
