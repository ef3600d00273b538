"""Scoring: a prompt whose every position's row is wanted, and no answer."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Tokens

import numpy as np
from numpy.typing import NDArray

from pellucid.core.errors import PellucidError
from pellucid.scheduling import Sequence

Float32 = NDArray[np.float32]


class Scoring:
    """Rows of `token_ids`' positions, float32 [len(token_ids), width], filled step by step.

    `on_end` is called, in the thread that runs the engine, when the last one is there or when none
    will come any more.
    """

    def __init__(self, token_ids: Tokens[int], width: int) -> None:
        self.token_ids = token_ids
        self.sequence: Sequence | None = None
        self.on_end: Callable[[], None] | None = None
        self._rows = np.empty((len(token_ids), width), np.float32)
        self._filled = 0
        self._error: PellucidError | None = None

    @property
    def finished(self) -> bool:
        """True if nothing more will come."""
        return self._filled == len(self._rows) or self._error is not None

    def keep(self, start: int, rows: Float32) -> None:
        """Rows of positions from `start` on, float32 [n, width]."""
        self._filled = start + len(rows)
        self._rows[start : self._filled] = rows
        if self.finished and self.on_end is not None:
            self.on_end()

    def fail(self, error: PellucidError) -> None:
        """It cannot go on."""
        self._error = error
        if self.on_end is not None:
            self.on_end()

    def result(self) -> Float32:
        """Every row. Raises the error that ended it early."""
        if self._error is not None:
            raise self._error
        return self._rows
