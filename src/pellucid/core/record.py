"""What was done, as plain data: steps with their times, costs, tokens and page changes, requests,
and the weights that were loaded."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pellucid.core.cost import Cost
from pellucid.core.plan import Span


@dataclass(slots=True)
class PageChanges:
    """What happened to pages between two plans. Pages are listed by number, in order.

    taken: free pages that a sequence owns now. shared: pages of cached or forked positions that
    one more sequence owns. cached: full pages that went into the prefix cache. released: pages that
    lost their last owner; those in the prefix cache stay there, the others are free. evicted: pages
    dropped from the prefix cache, free now. copied: (source, destination). preempted: sequence id
    to the positions that it will have to compute again. ended: sequences that are over; what they
    owned, they own no more. owned: who came to own what, after those that ended or were preempted
    let go of all.
    """

    taken: list[int] = field(default_factory=list)
    shared: list[int] = field(default_factory=list)
    cached: list[int] = field(default_factory=list)
    released: list[int] = field(default_factory=list)
    evicted: list[int] = field(default_factory=list)
    copied: list[tuple[int, int]] = field(default_factory=list)
    preempted: dict[int, int] = field(default_factory=dict)
    ended: list[int] = field(default_factory=list)
    owned: list[Owned] = field(default_factory=list)


class PageCounts(NamedTuple):
    """How many pages are free, kept by the prefix cache alone, and owned by sequences."""

    free: int
    cached: int
    owned: int


class PageTable(NamedTuple):
    """The pages of a sequence, in the order of its positions; the first `computed` of these are
    known, `n_prompt` are its prompt's."""

    sequence: int
    pages: tuple[int, ...]
    computed: int
    n_prompt: int


class CachedPage(NamedTuple):
    """A page of the prefix cache, after the page `parent` or first of all (None): how often it was
    taken, in which plan it was stored or taken last, and its tokens where they were asked for."""

    page: int
    parent: int | None
    hits: int
    used: int
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PageMap:
    """Who owns the KV cache. idle: pages that the prefix cache keeps for nobody, first the one that
    would be evicted next. copies: pages that a sequence owns besides its table, to copy from."""

    plan: int
    tables: tuple[PageTable, ...]
    cached: tuple[CachedPage, ...]
    idle: tuple[int, ...]
    copies: tuple[tuple[int, int], ...]


class Owned(NamedTuple):
    """From its page number `first` on, a sequence owns `pages`, in the order of their positions."""

    sequence: int
    first: int
    pages: tuple[int, ...]


class SpanRecord(NamedTuple):
    """A span that a step computed: `n_tokens` positions of a sequence from `start` on, with
    `n_logits` rows of logits."""

    sequence: int
    start: int
    n_tokens: int
    n_logits: int

    @staticmethod
    def of(span: Span) -> SpanRecord:
        return SpanRecord(span.sequence, span.start, len(span.tokens), span.n_logits)


class Phases(NamedTuple):
    """Seconds of a step's parts: the plan, drafts, page copies and the form that the backend reads,
    the model's forward pass, the choice of tokens, and what came of them (positions moved, text,
    increments). Where drafts are checked, the tokens after the first are chosen as they are
    delivered."""

    schedule: float
    draft: float
    lower: float
    forward: float
    sample: float
    deliver: float


class GuessCheck(NamedTuple):
    """The check of one guess: the model's probability `p` of it, the `q` that it was drawn with
    (None: looked up, or forced by a grammar), and by rejection sampling the number from 0 to 1
    that decided: accepted below p / q (None by the exact rule)."""

    p: float
    q: float | None
    drawn: float | None = None


class RoundRecord(NamedTuple):
    """A draft that a step checked: the tokens guessed for a sequence, and how many of them it
    accepted. The step gave one token more, unless an accepted one ended the answer. checks: of the
    first guesses, as far as they came to be checked; told only while somebody watches."""

    sequence: int
    draft: tuple[int, ...]
    n_accepted: int
    checks: tuple[GuessCheck, ...] = ()


@dataclass(slots=True)
class StepRecord:
    """One step, as it was. Times are seconds of `time.monotonic`.

    number counts from 0. cost is the least that its spans take. tokens: sequence id to the tokens
    chosen. pages, n_running and n_waiting are as it left them. waiting: some of who waits, and why
    (request id, reason); told only while somebody watches. rounds: the drafts that it checked.
    stamps: seconds of each part of the forward pass, told only while somebody asks for them.

    Whoever runs the steps one after another adds what it saw of this one (`Turn`); until then, and
    where nobody does, `turn` is None.
    """

    number: int
    start: float
    seconds: Phases
    spans: tuple[SpanRecord, ...]
    cost: Cost
    changes: PageChanges
    tokens: Mapping[int, tuple[int, ...]]
    n_running: int
    n_waiting: int
    pages: PageCounts
    waiting: tuple[tuple[str, str], ...] = ()
    rounds: tuple[RoundRecord, ...] = ()
    stamps: array[float] | None = None
    turn: Turn | None = None

    @property
    def total_seconds(self) -> float:
        return sum(self.seconds)


class Turn(NamedTuple):
    """A step from outside, by its runner's own readings of the clock: seconds since the end of the
    step before, of the step itself, and of handing over what came of it."""

    wait: float
    step: float
    emit: float

    @property
    def wall(self) -> float:
        return self.wait + self.step + self.emit


RequestState = Literal["queued", "running", "finished", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """A request in the engine, as it is or as it ended. Times are seconds of `time.monotonic`, None
    for what has not happened.

    sequences: those of its answers, in order. steps: numbers of the first and the last that
    computed something of it, so far. guessed_tokens: those of its drafts; accepted_tokens: those
    of them that were right. tokenize_s, detokenize_s: seconds that its prompt took to become
    tokens, and its tokens to become text. seed: that its answers are drawn with.
    """

    id: str
    sequences: tuple[int, ...]
    state: RequestState
    queued: float
    started: float | None
    first_token: float | None
    last_token: float | None
    finished: float | None
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    preemptions: int
    finish_reason: str | None
    steps: tuple[int, int] | None
    guessed_tokens: int = 0
    accepted_tokens: int = 0
    tokenize_s: float = 0.0
    detokenize_s: float = 0.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class MachineRecord:
    """What `threads` threads do at best on this machine: bytes read from memory a second, and
    operations a second on 8-bit integers and on float32 (a multiply and an add are two). When that
    was measured last (seconds since 1970), and how long it took; since `best_since` the best
    counts, what was longer ago the less."""

    read_bytes_per_second: float
    int8_operations_per_second: float
    f32_operations_per_second: float
    threads: int
    measured_at: float
    measured_in_s: float
    best_since: float


class LoadRecord(NamedTuple):
    """A weight as it was loaded: by GGUF's name, its shape (rows first), the format that it is kept
    in, the bytes that its file has it in, and the seconds that reading and preparing it took."""

    name: str
    shape: tuple[int, ...]
    format: str
    nbytes: int
    seconds: float | None
