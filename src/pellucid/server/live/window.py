"""Window: the last records as JSON, made once each."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import asdict
from typing import Final

from pellucid.core.record import RequestRecord
from pellucid.engine.records import Records
from pellucid.scheduling import Limits
from pellucid.server.events import dumps
from pellucid.server.live.forms import request_json, step_json

STEPS: Final = 512
REQUESTS: Final = 1024


class Parts:
    """Pieces of one message. `n` counts its records."""

    __slots__ = ("requests", "stats", "steps")

    def __init__(self, steps: list[bytes], requests: list[bytes], stats: bytes) -> None:
        self.steps = steps
        self.requests = requests
        self.stats = stats

    @property
    def size(self) -> int:
        """Its bytes, about."""
        return sum(map(len, self.steps)) + sum(map(len, self.requests))

    @property
    def n(self) -> int:
        return len(self.steps) + len(self.requests)

    def message(self, dropped: int, engine: int) -> bytes:
        """The object that docs/records.md describes, as JSON."""
        return b"".join(
            (
                b'{"engine":"%d","steps":[' % engine,
                b",".join(self.steps),
                b'],"requests":[',
                b",".join(self.requests),
                b'],"spans":[],"stats":',
                self.stats,
                b',"dropped":%d}' % dropped,
            )
        )


class Window:
    """The last steps and requests of one engine. The requests are kept as they were told last."""

    def __init__(self, limits: Limits, engine: int) -> None:
        self.engine = engine
        self.dropped = 0
        self._limits = limits
        self._steps: deque[bytes] = deque(maxlen=STEPS)
        self._requests: OrderedDict[str, RequestRecord] = OrderedDict()
        self._forms: dict[str, bytes] = {}
        self._of_sequence: dict[int, RequestRecord] = {}
        self._stats = b"null"

    def of(self, sequence: int) -> RequestRecord | None:
        """The request that a sequence is an answer of."""
        return self._of_sequence.get(sequence)

    def take(self, records: Records, *, watching: bool) -> Parts:
        """Adds what was read; returns it. What nobody was there to see was not dropped."""
        requests = [form for record in records.requests if (form := self._request(record))]
        steps = [dumps(step_json(record, self, self._limits)) for record in records.steps]
        self._steps.extend(steps)
        self._stats = dumps(asdict(records.stats))
        self.dropped += records.dropped if watching else 0
        return Parts(steps, requests, self._stats)

    def all(self) -> Parts:
        """Everything that it has."""
        return Parts(list(self._steps), list(self._forms.values()), self._stats)

    def with_all_requests(self, parts: Parts) -> Parts:
        """`parts` for a viewer that missed some: with every request as it is."""
        return Parts(parts.steps, list(self._forms.values()), parts.stats)

    def _request(self, record: RequestRecord) -> bytes | None:
        """Its JSON; None if nothing is new."""
        if self._requests.get(record.id) == record:
            return None
        self._requests[record.id] = record
        self._requests.move_to_end(record.id)
        for sequence in record.sequences:
            self._of_sequence[sequence] = record
        while len(self._requests) > REQUESTS:
            self._forget()
        form = self._forms[record.id] = dumps(request_json(record))
        return form

    def _forget(self) -> None:
        name, oldest = self._requests.popitem(last=False)
        self._forms.pop(name, None)
        for sequence in oldest.sequences:
            self._of_sequence.pop(sequence, None)
