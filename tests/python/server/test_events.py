"""Events put together from bytes are those that JSON gives."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from pellucid.server.events import Events, event, numbers, string


@given(
    head=st.dictionaries(st.text(), st.text() | st.lists(st.text())),
    index=st.integers(0, 10**6),
    text=st.text(),
    ids=st.lists(st.integers(0, 2**31)),
)
def test_whatever_fills_the_holes(
    head: dict[str, object], index: int, text: str, ids: list[int]
) -> None:
    def frame(i: object, t: object, n: object) -> dict[str, object]:
        return {"head": head, "choices": [{"index": i, "text": t, "ids": n, "end": None}]}

    made = Events(frame, 3).of(b"%d" % index, string(text), numbers(ids))
    assert made == event(frame(index, text, ids))
    assert json.loads(made.removeprefix(b"data: ")) == frame(index, text, ids)


def test_what_looks_like_a_hole_before_them_is_none() -> None:
    def frame(text: object) -> dict[str, object]:
        return {"ignored": ["\ue0000", '"\ue0000"'], "text": text}

    assert Events(frame, 1).of(string("a")) == event(frame("a"))
