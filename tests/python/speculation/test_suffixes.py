"""The suffix automaton, against a search through the text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pellucid.speculation.suffixes import Suffixes


def longest_before(tokens: list[int]) -> int:
    """Length of the longest suffix that stands elsewhere in the text, by trying them all."""
    n = len(tokens)
    for length in range(n - 1, 0, -1):
        suffix = tokens[n - length :]
        if any(tokens[i : i + length] == suffix for i in range(n - length)):
            return length
    return 0


@given(st.lists(st.integers(0, 2), max_size=40) | st.lists(st.integers(0, 9), max_size=40))
def test_the_longest_suffix_that_stood_before_and_where(tokens: list[int]) -> None:
    suffixes = Suffixes()
    for n, token in enumerate(tokens, start=1):
        suffixes.extend([token])
        length, end = suffixes.match_length, suffixes.match_end
        assert length == longest_before(tokens[:n])
        if length:
            assert end < n
            assert tokens[end - length : end] == tokens[n - length : n]
    assert len(suffixes) == len(tokens)
    assert suffixes.n_states <= 2 * len(tokens) + 1


@given(st.lists(st.integers(0, 2), min_size=1, max_size=30), st.integers(0, 12))
def test_a_continuation_is_what_followed_there(tokens: list[int], count: int) -> None:
    suffixes = Suffixes()
    suffixes.extend(tokens)
    found = suffixes.continuation(count)
    if not suffixes.match_length:
        assert found == ()
        return
    whole = list(tokens)
    for i in range(count):  # as if each token copied was appended
        whole.append(whole[suffixes.match_end + i])
    assert list(found) == whole[len(tokens) :]


def test_a_later_place_is_preferred() -> None:
    suffixes = Suffixes()
    suffixes.extend([1, 2, 3, 9, 1, 2, 4, 9, 1, 2])
    assert suffixes.match_length == 3
    assert suffixes.continuation(1) == (4,)


def test_a_loop_goes_on() -> None:
    suffixes = Suffixes()
    suffixes.extend([7, 1, 2, 3, 1, 2, 3])
    assert suffixes.continuation(8) == (1, 2, 3, 1, 2, 3, 1, 2)
