"""Stop strings over text in parts, against looking at the whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.core.errors import BadInput
from pellucid.text import StopMatcher

LETTERS = st.text("ab\u20ac", max_size=12)
PARTS = st.lists(st.text("ab\u20ac", max_size=4), max_size=10)
STOPS = st.lists(st.text("ab\u20ac", min_size=1, max_size=5), max_size=4)


def whole(text: str, stops: list[str], include: bool) -> tuple[str, str | None]:
    """The stop that ends first, and of those the longest, found by trying every end."""
    for end in range(len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            stop = max(found, key=len)
            return text[: end if include else end - len(stop)], stop
    return text, None


@given(parts=PARTS, stops=STOPS, include=st.booleans())
def test_as_looking_at_the_whole(parts: list[str], stops: list[str], include: bool) -> None:
    matcher = StopMatcher(stops, include)
    shown = "".join(matcher.push(part) for part in parts) + matcher.finish()
    assert (shown, matcher.matched) == whole("".join(parts), stops, include)


@given(parts=PARTS, stops=STOPS)
def test_never_leaks_and_never_holds_needlessly(parts: list[str], stops: list[str]) -> None:
    matcher = StopMatcher(stops)
    given_so_far = shown = ""
    for part in parts:
        given_so_far += part
        shown += matcher.push(part)
        if matcher.matched is not None:
            break
        held = given_so_far[len(shown) :]
        assert given_so_far == shown + held
        assert not held or any(stop.startswith(held) and stop != held for stop in stops)
        later = [given_so_far[start:] for start in range(len(shown), len(given_so_far))]
        earlier = [given_so_far[start:] for start in range(len(shown))]
        assert len(later) == len(held)
        assert not any(stop.startswith(tail) for tail in earlier for stop in stops)


def test_nothing_comes_after_a_match() -> None:
    matcher = StopMatcher(["END"])
    assert matcher.push("a E") == "a "
    assert matcher.push("ND more") == ""
    assert matcher.matched == "END"
    assert matcher.push("more") == "" and matcher.finish() == ""


def test_include_shows_the_stop_string_and_no_more() -> None:
    matcher = StopMatcher(["\n\n"], include=True)
    assert matcher.push("a\n") == "a"
    assert matcher.push("\nb") == "\n\n"


def test_one_string_is_one_stop() -> None:
    matcher = StopMatcher("ab")
    assert matcher.push("xab") == "x" and matcher.matched == "ab"


@pytest.mark.parametrize("stops", [[""], [3], ["a", None]])
def test_empty_and_foreign_stops_are_refused(stops: list[object]) -> None:
    with pytest.raises(BadInput, match="non-empty strings"):
        StopMatcher(stops)  # type: ignore[arg-type]
