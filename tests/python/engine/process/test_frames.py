"""Messages survive any way of being cut into pieces, and errors keep their class and facts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.core.errors import BadInput, FormatError, PellucidError, PromptTooLong
from pellucid.core.outputs import Increment, RequestMetrics, TokenLogprob
from pellucid.engine.process.frames import MAX_FRAME, Frames, pack
from pellucid.engine.process.letters import Failure, fields_of, increment_of

MESSAGES = st.lists(st.one_of(st.text(), st.binary(max_size=300), st.tuples(st.integers())))


@given(MESSAGES, st.lists(st.integers(1, 40), min_size=1))
def test_messages_arrive_however_they_are_cut(messages: list[object], cuts: list[int]) -> None:
    data = b"".join(map(pack, messages))
    frames, seen, turn = Frames(), [], 0
    while data:
        size = cuts[turn % len(cuts)]
        seen += frames.feed(data[:size])
        data, turn = data[size:], turn + 1
    assert seen == messages


def test_a_length_out_of_bounds_is_no_message() -> None:
    with pytest.raises(PellucidError, match="no message"):
        list(Frames().feed((MAX_FRAME + 1).to_bytes(8, "little")))


@pytest.mark.parametrize(
    "error",
    [
        BadInput("logit_bias[7]: too much"),
        PromptTooLong(12, 10),
        FormatError(Path("a.gguf"), "header", "is damaged"),
    ],
)
def test_errors_are_the_same_on_the_other_side(error: PellucidError) -> None:
    [sent] = Frames().feed(pack(Failure.of(error)))
    received = sent.error()
    assert type(received) is type(error)
    assert str(received) == str(error)
    assert vars(received) == vars(error)


def test_a_fault_is_an_error_that_names_it() -> None:
    received = Failure.of(KeyError("x")).error()
    assert type(received) is PellucidError
    assert str(received) == "KeyError: 'x'"


def test_increments_are_the_same_on_the_other_side() -> None:
    metrics = RequestMetrics(0.1, 0.2, 0.3, 4, 5, 6)
    entries = [{3: TokenLogprob(3, -0.5, 1, "x")}]
    increment = Increment(1, "text", [3], entries, "stop", "x", metrics)
    [sent] = Frames().feed(pack(fields_of(increment)))
    assert increment_of(sent) == increment
