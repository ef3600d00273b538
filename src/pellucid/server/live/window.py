"""Window: the last records as JSON, made once each."""

from __future__ import annotations

import json
from array import array
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import fields
from time import monotonic
from typing import Any, Final

from pellucid.core.record import RequestRecord, StepRecord
from pellucid.costs.stages import Stage
from pellucid.engine.records import EngineAbout, Records
from pellucid.engine.stats import EngineStats
from pellucid.server.events import dumps
from pellucid.server.live.checks import check_request
from pellucid.server.live.forms import head, request_json, step_json
from pellucid.server.live.journeys import Journeys
from pellucid.server.live.spans import SpanForms

STEPS: Final = 512
REQUESTS: Final = 1024
_STATS: Final = tuple(each.name for each in fields(EngineStats))
STATS_EVERY_S: Final = 1 / 10
SPANNED: Final = 60
SPANS_EVERY_S: Final = 1 / 5  # half a millisecond each, of a model of 30 layers


class Parts:
    """Pieces of one message. `n` counts its records, spans aside."""

    __slots__ = ("requests", "spans", "stats", "steps")

    def __init__(
        self, steps: list[bytes], requests: list[bytes], stats: bytes, spans: list[bytes]
    ) -> None:
        self.steps = steps
        self.requests = requests
        self.stats = stats
        self.spans = spans

    @property
    def size(self) -> int:
        """Its bytes, about."""
        return sum(sum(map(len, part)) for part in (self.steps, self.requests, self.spans))

    @property
    def n(self) -> int:
        return len(self.steps) + len(self.requests)

    def message(self, dropped: int, engine: int, *, spans: bool) -> bytes:
        """The object that docs/records.md describes, as JSON; with its spans if asked for."""
        return b"".join(
            (
                b'{"engine":"%d","steps":[' % engine,
                b",".join(self.steps),
                b'],"requests":[',
                b",".join(self.requests),
                b'],"spans":[',
                b",".join(self.spans) if spans else b"",
                b'],"stats":',
                self.stats,
                b',"dropped":%d}' % dropped,
            )
        )


class Window:
    """The last steps and requests of one engine. The requests are kept as they were told last.

    Spans are many: only those of one step in `SPANS_EVERY_S` are made, and those of the last
    `SPANNED` such steps are kept. `ids`: whether steps tell the ids of tokens.
    """

    def __init__(
        self,
        about: EngineAbout,
        journeys: Journeys,
        *,
        steps: int = STEPS,
        all_spans: bool = False,
        ids: bool = False,
    ) -> None:
        self.engine = about.epoch
        self.dropped = 0
        self.limits = about.limits
        self._about = about
        self.stages: tuple[Stage, ...] | None = None
        """What the stamps of steps are of, once there are some."""
        self._span_forms: SpanForms | None = None
        self._spans: deque[bytes] = deque(maxlen=SPANNED)  # of a step each
        self._journeys = journeys
        self._n_sent = 0  # of the journeys' ends, those that were told
        self._all_spans = all_spans
        self._last_spanned = float("-inf")
        self._ids = ids
        self._steps: deque[bytes] = deque(maxlen=steps)
        self._requests: OrderedDict[str, RequestRecord] = OrderedDict()
        self._forms: dict[str, bytes] = {}
        self._of_sequence: dict[int, RequestRecord] = {}
        self._heads: dict[int, str] = {}
        self._stats = b"null"
        self._counted = float("-inf")
        # Tokens are counted of requests whose steps were all seen, once their last has come.
        self._first: int | None = None
        self._last = -1
        self._chosen: dict[int, array[int]] = {}  # of each token of a sequence, its step
        self._unchecked: set[str] = set()
        self._checks: dict[str, list[str]] = {}

    def of(self, sequence: int) -> RequestRecord | None:
        """The request that a sequence is an answer of."""
        return self._of_sequence.get(sequence)

    def head(self, sequence: int) -> str:
        """The beginning of what is said of a sequence."""
        found = self._heads.get(sequence)
        return head(sequence, None) if found is None else found

    def request(self, name: str) -> Any:
        """A request's JSON value as it is; None if it is not known."""
        form = self._forms.get(name)
        return None if form is None else json.loads(form)

    def seed_of(self, name: str) -> int:
        """That its answers are drawn with."""
        record = self._requests.get(name)
        return 0 if record is None else record.seed

    def steps_of(self, name: str) -> Mapping[int, Sequence[int]]:
        """For answers of a request, by number, the steps that chose its tokens: as far as all of
        them were seen."""
        record = self._requests.get(name)
        if record is None or record.steps is None or self._first is None:
            return {}
        if record.steps[0] < self._first:
            return {}
        chosen = self._chosen
        return {n: chosen.get(sequence, ()) for n, sequence in enumerate(record.sequences)}

    def take(self, records: Records, *, watching: bool) -> Parts:
        """Adds what was read; returns it. What nobody was there to see was not dropped."""
        if records.dropped:  # of what was missed no token can be counted
            self._first = None
            self._chosen.clear()
        changed = [record for record in records.requests if self._is_new(record)]
        changed += self._sent(changed)
        requests = [self._form(record) for record in changed]
        steps = [self._step(record) for record in records.steps]
        requests += self._checked()
        spans = self._spans_of(records)
        self._steps.extend(steps)
        self._count(records, at_once=not watching)
        self.dropped += records.dropped if watching else 0
        return Parts(steps, requests, self._stats, spans)

    def _count(self, records: Records, *, at_once: bool) -> None:
        """Tells what is counted some times a second, and whenever a request has changed."""
        now, stats = monotonic(), records.stats
        if at_once or records.requests or now >= self._counted + STATS_EVERY_S:
            self._counted = now
            self._stats = dumps({name: getattr(stats, name) for name in _STATS})

    def all(self) -> Parts:
        """Everything that it has."""
        steps, requests = list(self._steps), list(self._forms.values())
        return Parts(steps, requests, self._stats, list(self._spans))

    def with_all_requests(self, parts: Parts) -> Parts:
        """`parts` for a viewer that missed some: with every request as it is."""
        return Parts(parts.steps, list(self._forms.values()), parts.stats, parts.spans)

    def _step(self, record: StepRecord) -> bytes:
        if self._first is None:
            self._first = record.number
        self._last = record.number
        for sequence, tokens in record.tokens.items():
            if sequence in self._of_sequence:
                steps = self._chosen.setdefault(sequence, array("q"))
                steps.extend([record.number] * len(tokens))
        return step_json(record, self, self.limits, ids=self._ids)

    def _spans_of(self, records: Records) -> list[bytes]:
        """Of the last step that was stamped, or of all."""
        if records.stages is not None:
            self.stages = records.stages
            self._span_forms = SpanForms(self._about, records.stages)
        if self._span_forms is None:
            return []
        stamped = [record for record in records.steps if record.stamps is not None]
        wanted = stamped if self._all_spans else self._some(stamped)
        spans = [made for record in wanted if (made := self._span_forms.of(record))]
        if not self._all_spans:
            self._spans.extend(spans)
        return spans

    def _some(self, stamped: list[StepRecord]) -> list[StepRecord]:
        """The last, unless one was told just now."""
        if not stamped or stamped[-1].start - self._last_spanned < SPANS_EVERY_S:
            return []
        self._last_spanned = stamped[-1].start
        return stamped[-1:]

    def _checked(self) -> list[bytes]:
        """Requests whose tokens could be counted now, where the sums do not hold."""
        found = []
        for name in list(self._unchecked):
            record = self._requests.get(name)
            if record is None or record.steps is None or self._first is None:
                self._unchecked.discard(name)
            elif record.steps[1] <= self._last:
                self._unchecked.discard(name)
                journey = self._journeys.of(name)
                chosen = sum(len(self._chosen.get(sequence, ())) for sequence in record.sequences)
                told = None if journey is None else journey.told_tokens
                checks = check_request(record, chosen, told)
                if checks and record.steps[0] >= self._first:
                    self._checks[name] = checks
                    found.append(self._form(record))
        return found

    def _is_new(self, record: RequestRecord) -> bool:
        """Remembers it; False if nothing of it changed."""
        known = self._requests.get(record.id)
        if known is not None and (known == record or _is_later(known, record)):
            return False
        self._requests[record.id] = record
        self._requests.move_to_end(record.id)
        if record.state == "finished":
            self._unchecked.add(record.id)
        for sequence in record.sequences:
            if sequence not in self._of_sequence:
                self._heads[sequence] = head(sequence, record)
            self._of_sequence[sequence] = record
        while len(self._requests) > REQUESTS:
            self._forget()
        return True

    def _sent(self, others: list[RequestRecord]) -> list[RequestRecord]:
        """Those whose last byte has left since the last look, `others` aside."""
        told = {record.id for record in others}
        ended, self._n_sent = self._journeys.sent_since(self._n_sent)
        sent = [name for name in ended if name not in told]
        found = [record for name in sent if (record := self._requests.get(name)) is not None]
        # What the response says of its tokens is known now.
        self._unchecked.update(record.id for record in found if record.state == "finished")
        return found

    def _form(self, record: RequestRecord) -> bytes:
        checks = self._checks.get(record.id, ())
        form = dumps(request_json(record, self._journeys.of(record.id), checks))
        self._forms[record.id] = form
        return form

    def _forget(self) -> None:
        name, oldest = self._requests.popitem(last=False)
        self._forms.pop(name, None)
        self._checks.pop(name, None)
        for sequence in oldest.sequences:
            self._of_sequence.pop(sequence, None)
            self._heads.pop(sequence, None)
            self._chosen.pop(sequence, None)


def _is_later(known: RequestRecord, record: RequestRecord) -> bool:
    """Whether `record` is of an earlier moment, or of an earlier request of the same name: looks
    may cross."""
    if known.queued != record.queued:
        return known.queued > record.queued
    if known.finished is not None:
        return record.finished is None
    return known.output_tokens > record.output_tokens
