"""Probes: prompts that are read for what the model makes of them, with no answer."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from collections.abc import Sequence as Tokens

import numpy as np
from numpy.typing import NDArray

from pellucid.core.errors import BadInput, PellucidError
from pellucid.core.outputs import RequestMetrics
from pellucid.scheduling import Sequence

Float32 = NDArray[np.float32]

POOLINGS = ("mean", "last")


class Probe(ABC):
    """Takes the rows of `token_ids`' positions, step by step: all of them if `every`, else the
    last.

    `hidden`: the rows that logits are read from, else the logits. `first`: of `every` row, those
    from this position on. `salt`: probes and requests of
    different salts share no pages. `on_end` is called, in the thread
    that runs the engine, when the last row is there or when it is certain that it will not come.
    """

    def __init__(
        self,
        token_ids: Tokens[int],
        *,
        hidden: bool,
        every: bool,
        salt: bytes = b"",
        first: int = 0,
    ) -> None:
        self.first = first
        self.salt = salt
        self.token_ids = token_ids
        self.hidden = hidden
        self.every = every
        self.sequence: Sequence | None = None
        self.on_end: Callable[[], None] | None = None
        self._arrival = time.monotonic()
        self._started: float | None = None
        self._ended = self._arrival
        self._end = 0
        self._error: PellucidError | None = None

    @property
    def finished(self) -> bool:
        """True if nothing more will come."""
        return self._end == len(self.token_ids) or self._error is not None

    def mark_started(self, now: float) -> None:
        """Some of its positions are about to be computed."""
        if self._started is None:
            self._started = now

    def metrics(self) -> RequestMetrics:
        """What it took, once it has ended."""
        took = self._ended - self._arrival
        sequence = self.sequence
        return RequestMetrics(
            took if self._started is None else max(0.0, self._started - self._arrival),
            took,
            took,
            len(self.token_ids),
            0,
            0 if sequence is None else sequence.cached_tokens,
            0 if sequence is None else sequence.n_preemptions,
        )

    def keep(self, end: int, rows: Float32) -> None:
        """Rows, float32 [m, width], of the last positions before `end`."""
        self._take(end, rows)
        self._end = end
        if not self.finished:
            return
        self._ended = time.monotonic()
        if self.on_end is not None:
            self.on_end()

    def fail(self, error: PellucidError) -> None:
        """It cannot go on."""
        self._error = error
        if self.on_end is not None:
            self.on_end()

    def check(self) -> None:
        """Raises the error that ended it early."""
        if self._error is not None:
            raise self._error

    @abstractmethod
    def _take(self, end: int, rows: Float32) -> None: ...


class Scores(Probe):
    """The logits of every position, float32 [len(token_ids), vocabulary]."""

    def __init__(self, token_ids: Tokens[int], vocab_size: int) -> None:
        super().__init__(token_ids, hidden=False, every=True)
        self.rows = np.empty((len(token_ids), vocab_size), np.float32)

    def _take(self, end: int, rows: Float32) -> None:
        self.rows[end - len(rows) : end] = rows


class LastRow(Probe):
    """The logits of the last position, float32 [vocabulary]; the rest may come from the cache."""

    def __init__(self, token_ids: Tokens[int], salt: bytes = b"") -> None:
        super().__init__(token_ids, hidden=False, every=False, salt=salt)
        self.row = np.empty(0, np.float32)

    def _take(self, end: int, rows: Float32) -> None:
        if len(rows):
            self.row = rows[-1].copy()


class Pooled(Probe):
    """One vector of a prompt: the "mean" of its final hidden states, or the "last" of them; of
    length 1 if `normalize`.

    Raises `BadInput` for another pooling.
    """

    def __init__(
        self, token_ids: Tokens[int], width: int, pooling: str = "mean", normalize: bool = True
    ) -> None:
        if pooling not in POOLINGS:
            raise BadInput(f"pooling must be one of {', '.join(POOLINGS)}, not {pooling!r}")
        super().__init__(token_ids, hidden=True, every=pooling == "mean")
        self._normalize = normalize
        self._sum = np.zeros(width)
        self._n_summed = 0

    def _take(self, end: int, rows: Float32) -> None:
        fresh = max(0, end - self._n_summed)  # the others were seen before a preemption
        # One by one: the order, and so the sum, is that of the positions.
        for row in rows[max(0, len(rows) - fresh) :]:
            self._sum += row
        self._n_summed = max(self._n_summed, end)

    def vector(self) -> list[float]:
        """The vector. Raises `PellucidError` if the model's rows are no numbers."""
        vector = self._sum / (len(self.token_ids) if self.every else 1)
        length = float(np.linalg.norm(vector))
        if not np.isfinite(length):
            raise PellucidError("the model's hidden states are no numbers: its weights are damaged")
        if self._normalize and length:
            vector /= length
        values: list[float] = vector.astype(np.float32).tolist()
        return values
