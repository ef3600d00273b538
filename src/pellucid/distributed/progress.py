"""Progress: whether an engine that has something to do does it."""

from __future__ import annotations

from pellucid.core.errors import PellucidError
from pellucid.engine.stats import EngineStats


class Progress:
    """Looks at an engine again and again; `hang_s`: a step that takes longer is one that hangs."""

    def __init__(self, hang_s: float, now: float) -> None:
        self._hang_s = hang_s
        self._steps = -1
        self._moved = now

    def check(self, stats: EngineStats, now: float) -> None:
        """The engine's numbers at `now`, in seconds of any clock. Raises `PellucidError` for one
        that hangs."""
        busy = stats.running_sequences + stats.waiting_sequences
        if not busy or stats.steps != self._steps:
            self._steps, self._moved = stats.steps, now
        elif now - self._moved > self._hang_s:
            raise PellucidError(f"the engine has ended no step for {self._hang_s:g} s")
