"""Windows: every token but the first is scored once, in order, with text before it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.quality.windows import windows


@given(st.integers(0, 300), st.integers(2, 50))
def test_every_token_once_in_order(n_tokens: int, size: int) -> None:
    found = list(windows(n_tokens, size))
    scored = [row for w in found for row in range(w.end - w.scored, w.end)]
    assert scored == list(range(max(0, n_tokens - 1)))
    for i, window in enumerate(found):
        assert 0 <= window.start < window.end <= n_tokens - 1
        assert window.end - window.start <= size
        before = window.end - window.scored - window.start
        assert before >= size // 2 if i else before == 0


def test_a_window_of_one_token_is_refused() -> None:
    with pytest.raises(ValueError, match="a window of 1 tokens"):
        list(windows(9, 1))
