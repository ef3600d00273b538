"""Stop strings in text that arrives in parts."""

from __future__ import annotations

from collections.abc import Sequence

from pellucid.core.errors import BadInput


class StopMatcher:
    """Passes text through until one of `stops` occurs in it.

    `push` returns the text that no longer can be part of a stop string; the longest tail that
    might still become one is held back. Of several matches the one that ends first counts, and of
    those the longest. `include` lets the stop string itself through.
    """

    def __init__(self, stops: Sequence[str], include: bool = False) -> None:
        if isinstance(stops, str):
            stops = (stops,)
        if not all(isinstance(stop, str) and stop for stop in stops):
            raise BadInput("stop strings must be non-empty strings")
        self._stops = tuple(dict.fromkeys(stops))
        self._include = include
        self._ends = {stop[-1] for stop in self._stops}
        self._chars = set().union(*self._stops)
        longest = max(map(len, self._stops), default=1)
        # By length, the proper beginnings of stop strings.
        self._starts = [
            tuple({stop[:length] for stop in self._stops if length < len(stop)})
            for length in range(longest)
        ]
        self._held = ""
        self.matched: str | None = None
        """The stop string that was found."""

    def push(self, text: str) -> str:
        """The text that is safe to show; nothing once a stop string was found."""
        if self.matched is not None:
            return ""
        self._held += text
        found = None if self._ends.isdisjoint(text) else self._find()
        if found is not None:
            start, self.matched = found
            shown = self._held[: start + len(self.matched) * self._include]
            self._held = ""
            return shown
        keep = self._possible_start()
        shown, self._held = (
            self._held[: len(self._held) - keep],
            self._held[len(self._held) - keep :],
        )
        return shown

    def finish(self) -> str:
        """What was held back, when no more text comes."""
        held, self._held = self._held, ""
        return held

    def _find(self) -> tuple[int, str] | None:
        found = [(self._held.find(stop), stop) for stop in self._stops]
        matches = [(start + len(stop), start, stop) for start, stop in found if start >= 0]
        if not matches:
            return None
        _, start, stop = min(matches)
        return start, stop

    def _possible_start(self) -> int:
        """Length of the longest tail that is the beginning of a stop string."""
        if not self._held or self._held[-1] not in self._chars:
            return 0
        for length in range(min(len(self._starts) - 1, len(self._held)), 0, -1):
            if self._held.endswith(self._starts[length]):
                return length
        return 0
