"""Register: the requests of an engine, in the order in which they last changed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice
from time import monotonic
from typing import Final, NamedTuple, Protocol, TypeVar

from pellucid.core.record import RequestRecord

KEPT: Final = 512  # requests that have ended
_TOLD: Final = 1024  # changes that one reading gives at the most
_RUNNING_EVERY_S: Final = 0.25  # that those which only grow are told

Item = TypeVar("Item")


class Marks(NamedTuple):
    """How far a reader has read, and when (seconds of `time.monotonic`) it was told what runs."""

    changes: int = 0
    ends: int = 0
    running_told: float = -_RUNNING_EVERY_S


class Told(NamedTuple):
    """`next` is what to ask with next time; `left_out` counts what was too much to be kept."""

    records: list[RequestRecord]
    next: Marks
    left_out: int


class Known(Protocol):
    """A request on its way."""

    def record(self) -> RequestRecord: ...


class Register:
    """Written by the thread that runs the engine, read by any.

    Every change has a number, so that a reader asks for what changed since it looked last.
    """

    def __init__(self) -> None:
        self.changes = 0
        self.ends = 0
        self._live: dict[Known, int] = {}  # the last change of each, in order
        self._started: dict[Known, None] = {}
        self._ended: deque[tuple[int, RequestRecord]] = deque(maxlen=KEPT)

    def changed(self, request: Known) -> None:
        """It was queued, began, or gave its first token."""
        self.changes += 1
        if self._live.pop(request, None) is not None:
            self._started[request] = None
        self._live[request] = self.changes

    def ended(self, request: Known) -> None:
        """It is over."""
        self.ends += 1
        self._live.pop(request, None)
        self._started.pop(request, None)
        self._ended.append((self.ends, request.record()))

    def read(self, since: Marks, now: float | None = None) -> Told:
        """What changed since the `next` marks of an earlier reading, and four times a second
        whatever runs: it has grown."""
        now = monotonic() if now is None else now
        growing = now - since.running_told >= _RUNNING_EVERY_S
        marks = Marks(self.changes, self.ends, now if growing else since.running_told)
        recent = _whole(lambda: list(islice(reversed(self._live.items()), _TOLD)))
        running = _whole(lambda: list(self._started)) if growing else []
        ended = [pair for pair in _whole(lambda: list(self._ended)) if pair[0] > since.ends]
        live = [known for known, change in recent if change > since.changes]
        left_out = ended[0][0] - since.ends - 1 if ended else 0
        if len(live) == _TOLD:
            changed = _whole(lambda: list(self._live.values()))
            left_out += sum(change > since.changes for change in changed) - _TOLD
        records = [record for _, record in ended]
        records += [known.record() for known in dict.fromkeys([*running, *reversed(live)])]
        return Told(records, marks, left_out)


def _whole(read: Callable[[], Item]) -> Item:
    """What `read` gives, again where it was changed meanwhile."""
    while True:
        try:
            return read()
        except RuntimeError:
            continue
