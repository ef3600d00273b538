"""What an answer cost, as clients are told."""

from __future__ import annotations

from pellucid.core.outputs import RequestMetrics
from pellucid.server.usage import timings

PLAIN = RequestMetrics(0.1, 0.3, 1.3, 10, 21, cached_tokens=4)
GUESSED = RequestMetrics(0.1, 0.3, 0.8, 10, 21, guessed_tokens=12, accepted_tokens=9)


def test_guesses_are_told_where_there_were_some() -> None:
    assert not [name for name in timings([PLAIN]) if name.startswith("draft")]
    told = timings([PLAIN, GUESSED])
    assert (told["draft_n"], told["draft_n_accepted"]) == (12, 9)
    assert (told["cache_n"], told["prompt_n"], told["predicted_n"]) == (4, 16, 42)
    assert told["mean_itl_ms"] == 25.0
