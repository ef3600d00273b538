"""A model's scores of every token of a text, a few rows at a time."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pellucid.core.errors import BadInput, PellucidError
from pellucid.core.plan import Plan, Span
from pellucid.costs import pages_for
from pellucid.engine.memory import in_words
from pellucid.models.registry import Model
from pellucid.quality.windows import windows

Float32 = NDArray[np.float32]

PAGE_SIZE = 16
ROWS = 128  # of scores at a time: 80 MB where a vocabulary has 150,000 tokens


def scores(
    model: Model, ids: Sequence[int], first: Sequence[int], size: int, path: Path
) -> Iterator[Float32]:
    """Row i scores token i + 1 of `ids`, in order: float32 [m, vocabulary], m at most `ROWS`.

    Every window of `size` positions begins with the tokens `first`. Raises `PellucidError` naming
    `path` for a model that makes no numbers of the text.
    """
    pages = tuple(range(pages_for(size, PAGE_SIZE)))
    cache = model.ops.new_cache(model.spec, len(pages), PAGE_SIZE)
    for window in windows(len(ids), size - len(first)):
        tokens = (*first, *ids[window.start : window.end])
        unscored = len(tokens) - window.scored
        for start in range(0, len(tokens), ROWS):
            chunk = tokens[start : start + ROWS]
            wanted = max(0, min(len(chunk), start + len(chunk) - unscored))
            plan = Plan((Span(0, start, chunk, pages, wanted),), PAGE_SIZE)
            rows = model.ops.to_numpy(model.forward(plan, cache))
            if not np.isfinite(rows).all():
                raise PellucidError(
                    f"{path}: its scores of the text are infinite or no numbers: it is damaged"
                )
            if wanted:
                yield rows


class Spool:
    """Scores on the disk, in a file without a name that goes with the process.

    What a model is held against is computed once, and never in memory together with another model.
    Raises `BadInput` where the disk has no room for `n_rows` of `width`.
    """

    def __init__(self, n_rows: int, width: int) -> None:
        folder, need = tempfile.gettempdir(), 4 * n_rows * width
        free = shutil.disk_usage(folder).free
        if need > free:
            raise BadInput(
                f"{folder}: the scores of {n_rows} tokens take {in_words(need)} and "
                f"{in_words(free)} are free: compare fewer tokens (--tokens), or let TMPDIR name "
                "another folder"
            )
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - open as long as this is
        self._row_bytes = 4 * width
        self._width = width

    def append(self, rows: Float32) -> None:
        """Rows [m, width] behind those that are there. Raises `PellucidError` on a full disk."""
        try:
            self._file.write(np.ascontiguousarray(rows, np.float32).data)
        except OSError as error:
            raise PellucidError(
                f"{tempfile.gettempdir()}: scores cannot be kept: {error.strerror}: compare fewer "
                "tokens (--tokens), or let TMPDIR name another folder"
            ) from error

    def rows(self, first: int, count: int) -> Float32:
        """Rows [count, width] from `first` on."""
        self._file.flush()
        raw = os.pread(self._file.fileno(), count * self._row_bytes, first * self._row_bytes)
        return np.frombuffer(raw, np.float32).reshape(count, self._width)

    def close(self) -> None:
        self._file.close()
