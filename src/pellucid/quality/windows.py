"""Windows: how a long text is put before a model whose context is short."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Window(NamedTuple):
    """Tokens [start, end) of a text see one another; the last `scored` rows each score the token
    after theirs."""

    start: int
    end: int
    scored: int


def windows(n_tokens: int, size: int) -> Iterator[Window]:
    """Windows of at most `size` tokens that score every token of the text but the first, once, in
    order.

    Each begins half a window after the one before, so that from the second on a token has at least
    half a window of text before it. Raises `ValueError` for a window of fewer than two tokens.
    """
    if size < 2:
        raise ValueError(f"a window of {size} tokens")
    done, rows = 0, n_tokens - 1
    while done < rows:
        end = min(rows, done + (size if done == 0 else size // 2))
        yield Window(max(0, end - size), end, end - done)
        done = end
