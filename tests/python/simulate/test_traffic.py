"""Traffic: what is made has the figures it was asked for, what is recorded is as it was."""

from __future__ import annotations

import itertools
import json
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.core.errors import BadInput
from pellucid.simulate.draws import draws
from pellucid.simulate.lengths import Fixed, Lognormal, Uniform, parse_lengths
from pellucid.simulate.recorded import read_log
from pellucid.simulate.traffic import Job, Made, Recorded
from tests.python.simulate.steps import made


@given(st.integers(0, 2**70), st.integers(0, 100), st.integers(0, 10**9))
def test_a_draw_is_a_function_of_seed_stream_and_index(seed: int, stream: int, index: int) -> None:
    one, other = draws(seed, stream), draws(seed, stream)
    other.at(index + 1).random()
    first = [one.at(index).random(), one.random()]
    assert first == [other.at(index).random(), other.random()]
    assert first != [draws(seed, stream + 1).at(index).random()] * 2
    assert all(0 <= x < 1 for x in first)


def test_draws_are_uniform_and_unlike_their_neighbours() -> None:
    found = [draws(7, 0).at(i).random() for i in range(4000)]
    assert statistics.mean(found) == pytest.approx(0.5, abs=0.02)
    assert statistics.pvariance(found) == pytest.approx(1 / 12, rel=0.05)
    assert abs(statistics.correlation(found[1:], found[:-1])) < 0.05


@pytest.mark.parametrize("cv", [0.0, 0.5, 1.0, 2.0])
def test_gaps_have_their_mean_and_their_variation(cv: float) -> None:
    jobs = made(4.0, burstiness=cv).jobs(20_000, 3)
    gaps = [b.at - a.at for a, b in itertools.pairwise(jobs)]
    assert statistics.mean(gaps) == pytest.approx(0.25, rel=0.05)
    assert statistics.pstdev(gaps) / statistics.mean(gaps) == pytest.approx(cv, rel=0.05, abs=1e-9)


@pytest.mark.parametrize("lengths", [Fixed(7), Uniform(10, 30), Lognormal(200, 1.0)])
def test_lengths_have_their_mean(lengths: Fixed | Uniform | Lognormal) -> None:
    found = [lengths.draw(draws(1, 1).at(i)) for i in range(20_000)]
    assert statistics.mean(found) == pytest.approx(lengths.mean, rel=0.03)
    assert min(found) >= 1
    assert parse_lengths(lengths.words, "x") == lengths
    if isinstance(lengths, Lognormal):
        assert statistics.pstdev(found) / statistics.mean(found) == pytest.approx(1.0, rel=0.1)
    if isinstance(lengths, Uniform):
        assert (min(found), max(found)) == (10, 30)


@pytest.mark.parametrize(
    "text", ["", "0", "-5", "900-100", "1-", "lognormal:5", "lognormal:0:1", "lognormal:9:0",
             "lognormal:9:11", "1e3", "normal:3:1", "999999999", "nan"],
)  # fmt: skip
def test_lengths_that_are_none_are_named(text: str) -> None:
    with pytest.raises(BadInput, match="--prompt-tokens"):
        parse_lengths(text, "--prompt-tokens")


def test_a_rate_changes_the_pace_and_nothing_else() -> None:
    traffic = Made(1.0, Uniform(1, 9), Uniform(1, 9), 1.0, 0.5, 3)
    slow, fast = traffic.jobs(50, 2), traffic.at_rate(4.0).jobs(50, 2)
    assert [job.at / 4 for job in slow] == pytest.approx([job.at for job in fast])
    assert [job[1:] for job in slow] == [job[1:] for job in fast]


@pytest.mark.parametrize(
    ("field", "value"),
    [("rate", 0), ("rate", -1), ("rate", float("nan")), ("burstiness", -1), ("burstiness", 21),
     ("shared", -0.1), ("shared", 1.1), ("texts", 0)],
)  # fmt: skip
def test_traffic_that_cannot_be_is_refused(field: str, value: float) -> None:
    given = {"rate": 1.0, "prompt": Fixed(1), "output": Fixed(1), field: value}
    with pytest.raises(BadInput):
        Made(**given)  # type: ignore[arg-type]


LOG = [
    {"arrival_s": 12.5, "prompt_tokens": 30, "output_tokens": 4, "prefix": "a", "prefix_tokens": 9},
    {"arrival_s": 10.0, "prompt_tokens": 20, "output_tokens": 5},
    {"timestamp": 11, "prompt_tokens": 10, "output_tokens": 6, "prefix": "a", "prefix_tokens": 99},
]


def test_a_log_is_replayed_as_it_was() -> None:
    log = read_log([json.dumps(line) for line in LOG] + ["", "\n"], "log")
    jobs = log.jobs(3, 0)
    assert [job.at for job in jobs] == [0.0, 1.0, 2.5]
    assert [job.prompt for job in jobs] == [20, 10, 30]
    assert [job.shared for job in jobs] == [0, 10, 9]
    assert jobs[1].text == jobs[2].text != jobs[0].text
    assert log.rate == pytest.approx(2 / 2.5)
    assert log.at_rate(8.0).rate == pytest.approx(8.0)
    assert [job.at for job in log.at_rate(8.0).jobs(3, 0)] == pytest.approx([0, 0.1, 0.25])


def test_a_log_that_ends_begins_again() -> None:
    log = Recorded((Job(0.0, 1, 1), Job(1.0, 2, 1), Job(3.0, 3, 1)))
    jobs = log.jobs(7, 0)
    assert [job.prompt for job in jobs] == [1, 2, 3, 1, 2, 3, 1]
    assert [job.at for job in jobs] == pytest.approx([0, 1, 3, 4.5, 5.5, 7.5, 9])
    other = log.jobs(5, 4)
    assert other[0].at == 0
    assert all(a.at <= b.at for a, b in itertools.pairwise(other))


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        ([], "no request"),
        (["{}"], "line 1"),
        (["nonsense"], "line 1 is no JSON"),
        (["[1]"], "no object"),
        (['{"arrival_s": 1, "prompt_tokens": 0, "output_tokens": 1}'], "prompt_tokens"),
        (['{"arrival_s": 1, "prompt_tokens": 1, "output_tokens": true}'], "output_tokens"),
        (['{"arrival_s": NaN, "prompt_tokens": 1, "output_tokens": 1}'], "time of arrival"),
        (['{"arrival_s": 1, "prompt_tokens": 1, "output_tokens": 1}'], "two requests"),
        (['{"arrival_s": 1, "prompt_tokens": 1, "output_tokens": 1}'] * 2, "two times"),
        (["[" * 100_000], "line 1"),
    ],
)  # fmt: skip
def test_logs_that_are_none_say_where(lines: list[str], what: str) -> None:
    with pytest.raises(BadInput, match=what):
        read_log(lines, "log")
