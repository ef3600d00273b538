"""What nobody reads is joined: bounded, and the same answer in the end."""

from __future__ import annotations

from pellucid.core.outputs import Increment, RequestMetrics, TokenLogprob
from pellucid.core.params import SamplingParams
from pellucid.engine.async_stream import Arrivals
from pellucid.engine.gathered import Gathered
from pellucid.engine.request import Request


def letters() -> list[Increment]:
    """Three answers in turn, the last with the metrics."""
    found = []
    for token in range(1000):
        for index in range(3):
            entries = [{token: TokenLogprob(token, -1.0, 1)}]
            found.append(Increment(index, f"{token} ", [token], entries))
    for index in range(3):
        metrics = RequestMetrics(0, 1, 2, 3, 3000) if index == 2 else None
        found.append(
            Increment(index, "end", [7], [{7: TokenLogprob(7, 0, 1)}], "stop", None, metrics)
        )
    return found


def test_unread_increments_are_joined_and_nothing_is_lost() -> None:
    request = Request("x", (1,), SamplingParams(n=3, logprobs=0), 0, 2000)
    arrivals, unread, read = Arrivals(), Gathered(request), Gathered(request)
    for letter in letters():
        arrivals.receive(letter)
    assert len(arrivals.letters) < 80
    assert arrivals.letters[-1].metrics is not None
    for letter in arrivals.letters:
        unread.add(letter)
    for letter in letters():
        read.add(letter)
    assert unread.output() == read.output()
    assert unread.finished
