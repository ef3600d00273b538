"""Runs: nothing is lost, the same seed gives the same, and where theory has a formula it holds."""

from __future__ import annotations

import itertools
import math
import pickle
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.core.errors import BadInput
from pellucid.simulate.lengths import Fixed, Lengths, Lognormal, Uniform
from pellucid.simulate.pace import Pace
from pellucid.simulate.run import run
from pellucid.simulate.setup import ROUTINGS, Guessing, Path, Setup
from tests.python.simulate.steps import Constant, check_conserved, limits, made, summary

lengths = st.one_of(
    st.builds(Fixed, st.integers(1, 90)),
    st.builds(lambda a, b: Uniform(min(a, b), max(a, b)), st.integers(1, 90), st.integers(1, 90)),
    st.builds(Lognormal, st.floats(1, 60), st.floats(0.1, 2)),
)
setups = st.builds(
    Setup,
    st.builds(
        limits,
        max_num_seqs=st.integers(1, 8),
        max_num_batched_tokens=st.integers(8, 64),
        n_pages=st.integers(16, 60),
        max_model_len=st.sampled_from([100, 256]),
        prefix_caching=st.booleans(),
    ),
    st.builds(Constant, st.floats(1e-3, 1e-1), st.floats(0, 1e-3)),
    st.integers(1, 4),
    st.sampled_from(ROUTINGS),
    st.none() | st.builds(Guessing, st.integers(1, 5), st.floats(0, 1), st.floats(0, 0.3)),
    st.builds(Path, st.floats(0, 0.1), st.floats(0, 1e-4), st.floats(0, 0.1)),
    st.sampled_from([Pace(), Pace.of([(0.1, 0.15), (0.3, 0.2)])]),
)


@settings(max_examples=15, deadline=None)
@given(setups, st.floats(0.1, 1000), lengths, lengths, st.floats(0, 3), st.floats(0, 1), st.data())
def test_every_request_that_comes_ends(
    setup: Setup,
    rate: float,
    prompt: Lengths,
    output: Lengths,
    cv: float,
    shared: float,
    data: st.DataObject,
) -> None:
    traffic = made(rate, prompt, output, burstiness=cv, shared=shared)
    users = data.draw(st.none() | st.integers(1, 25), "users")
    seed = data.draw(st.integers(0, 5), "seed")
    found = run(setup, traffic, 25, seed, users=users)
    check_conserved(found)
    again = run(pickle.loads(pickle.dumps(setup)), traffic, 25, seed, users=users)  # noqa: S301
    assert again.tally.first_token == found.tally.first_token
    assert again.tally.ended == found.tally.ended
    assert again.tally.gaps == found.tally.gaps


def test_other_seeds_give_other_runs() -> None:
    setup = Setup(limits(), Constant())
    ended = {run(setup, made(5.0), 20, seed).ended for seed in range(5)}
    assert len(ended) == 5


@pytest.mark.parametrize(
    ("output", "second_moment"), [(Fixed(3), 9.0), (Uniform(1, 5), 11.0)], ids=["M/D/1", "M/G/1"]
)
@pytest.mark.parametrize("load", [0.3, 0.7])
def test_one_place_waits_as_pollaczek_and_khinchine_say(
    output: Lengths, second_moment: float, load: float
) -> None:
    # A request takes a step for each of its tokens; Poisson arrivals find one place.
    step = 0.01
    setup = Setup(limits(max_num_seqs=1), Constant(step))
    rate = load / (3 * step)
    found = summary(setup, made(rate, 20, output), 4_000, 1)
    assert found.ttft.mean is not None
    wait = found.ttft.mean - step  # its own first step
    expected = rate * second_moment * step**2 / (2 * (1 - load))
    # Theory's wait ends when the place is free; a step that begins at once is all there is to add.
    assert wait == pytest.approx(expected, rel=0.15)
    assert found.utilization == pytest.approx(load, rel=0.03)


def test_a_clock_without_load_never_waits() -> None:
    setup = Setup(limits(), Constant(0.01), path=Path(0.003, 0.0, 0.002))
    found = summary(setup, made(1.0, burstiness=0.0), 100)
    assert found.ttft.p99 == pytest.approx(0.01 + 0.003 + 0.002)
    assert (found.itl.p50, found.itl.p99) == pytest.approx((0.01, 0.01))
    assert found.e2e.p50 == pytest.approx(0.1 + 0.005)
    assert found.rate == pytest.approx(1.0)


@pytest.mark.parametrize("load", [0.5, 1.0, 2.0, 10.0])
def test_throughput_is_never_over_capacity(load: float) -> None:
    # At best 8 sequences have a token of each step, but for the one that is its prompt's.
    setup = Setup(limits(), Constant(0.01))
    capacity = 8 / 0.01
    found = summary(setup, made(load * capacity / 10), 2000)
    assert found.output_tokens <= capacity * 1.001
    if load < 1:
        assert found.output_tokens == pytest.approx(load * capacity, rel=0.1)
        assert not found.waiting.get("places", 0) > 0.5
    if load > 1:
        assert found.output_tokens == pytest.approx(capacity, rel=0.05)
        assert found.waiting["places"] > 0.9
        assert found.utilization > 0.99


def test_what_a_crowd_has_is_the_capacity() -> None:
    setup = Setup(limits(), Constant(0.01))
    found = summary(setup, made(1.0), 2000, users=16)
    assert found.output_tokens == pytest.approx(800, rel=0.02)
    assert found.served == pytest.approx(80, rel=0.03)


def test_where_pages_are_short_they_are_what_is_waited_for() -> None:
    setup = Setup(limits(n_pages=8), Constant(0.01))
    found = summary(setup, made(100.0, 60, 40), 150)
    assert found.waiting["pages"] > 0.9
    assert found.batch < 3


@pytest.mark.parametrize("routing", ROUTINGS)
def test_more_replicas_are_never_worse(routing: str) -> None:
    # But for chance: the same requests, a load that one replica cannot carry.
    setup = Setup(limits(), Constant(0.01), routing=routing)  # type: ignore[arg-type]
    traffic = made(150.0, 20, Uniform(5, 15))
    found = [summary(replace(setup, replicas=n), traffic, 700, 3) for n in (1, 2, 3, 6)]
    for fewer, more in itertools.pairwise(found):
        assert more.ttft.p95 <= fewer.ttft.p95 * 1.02  # type: ignore[operator]
        assert more.served >= fewer.served * 0.98


def test_replicas_by_themselves_are_one_each() -> None:
    # Round robin over clocks: each replica has every second request, as if alone.
    setup = Setup(limits(max_num_seqs=1), Constant(0.01), 2, "round-robin")
    both = summary(setup, made(100.0, 20, 1, burstiness=0.0), 200)
    alone = summary(replace(setup, replicas=1), made(50.0, 20, 1, burstiness=0.0), 100)
    assert both.ttft.p99 == pytest.approx(alone.ttft.p99)


def test_the_prefix_cache_is_the_real_one() -> None:
    setup = Setup(limits(n_pages=2000), Constant(0.01, 1e-4))
    shared = summary(setup, made(2.0, 128, 8, shared=0.75), 300)
    alone = summary(setup, made(2.0, 128, 8), 300)
    off = summary(
        replace(setup, limits=limits(n_pages=2000, prefix_caching=False)),
        made(2.0, 128, 8, shared=0.75),
        300,
    )
    assert shared.hit_rate == pytest.approx(96 / 128)  # six whole pages of 16
    assert alone.hit_rate == off.hit_rate == 0
    assert shared.ttft.p50 < off.ttft.p50  # type: ignore[operator]
    assert alone.ttft == off.ttft


def test_prefixes_are_kept_together_by_the_router_that_looks() -> None:
    # Eight texts, two replicas whose pages hold four each.
    setup = Setup(limits(n_pages=60), Constant(0.001, 1e-5), 2, "prefix")
    traffic = made(20.0, 180, 4, shared=0.9, texts=8)
    looked = summary(setup, traffic, 800)
    blind = summary(replace(setup, routing="round-robin"), traffic, 800)
    assert looked.hit_rate > blind.hit_rate + 0.1


@pytest.mark.parametrize(("tokens", "chance"), [(1, 0.5), (4, 0.7), (3, 0.0), (2, 1.0)])
def test_a_round_gives_what_its_acceptance_promises(tokens: int, chance: float) -> None:
    # Tokens of a step in decode: 1 + a + ... + a^k (Leviathan et al. 2023, eq. 1).
    setup = Setup(limits(), Constant(0.01), guessing=Guessing(tokens, chance))
    n_tokens = 400
    found = summary(setup, made(1.0, 20, n_tokens), 40, users=1)
    each = sum(chance**i for i in range(tokens + 1))
    assert found.per_token.mean == pytest.approx(0.01 / each, rel=0.03)


def test_drafts_take_their_time() -> None:
    setup = Setup(limits(), Constant(0.01), guessing=Guessing(4, 0.0, 0.1))
    found = summary(setup, made(1.0, 20, 100), 10, users=1)
    assert found.itl.p50 == pytest.approx(0.01 * (1 + 4 * 0.1))


def test_pace_is_that_of_its_trace() -> None:
    setup = Setup(
        limits(), Constant(0.01), pace=Pace.of([(0.012, 0.01)] * 50 + [(0.008, 0.01)] * 50)
    )
    found = summary(setup, made(1.0, 20, 200), 50, users=1)
    assert found.itl.mean == pytest.approx(0.01, rel=0.05)
    assert found.itl.p90 == pytest.approx(0.012, rel=0.02)


def test_what_the_context_does_not_hold_is_cut_and_counted() -> None:
    found = summary(Setup(limits(max_model_len=100), Constant()), made(1.0, 90, 30), 20)
    assert found.clipped == 20
    assert found.mean_prompt == 70


def test_prompts_and_answers_share_the_time_as_each_would_take() -> None:
    # A step for the prompt, nine for the rest of the answer: by themselves.
    setup = Setup(limits(), Constant(0.01))
    found = summary(setup, made(1.0, 20, 10), 400, users=1)
    assert found.prompt_share == pytest.approx(0.1, abs=0.03)


@pytest.mark.parametrize("count", [0, 1, 10**7])
def test_counts_out_of_range(count: int) -> None:
    with pytest.raises(BadInput, match="requests"):
        run(Setup(limits(), Constant()), made(1.0), count)


def test_burstier_arrivals_wait_longer() -> None:
    setup = Setup(limits(max_num_seqs=2), Constant(0.01))
    waits = [summary(setup, made(12.0, burstiness=cv), 1200).ttft.mean for cv in (0.0, 1.0, 3.0)]
    assert waits == sorted(waits)  # type: ignore[type-var]
    assert not math.isclose(waits[0], waits[2], rel_tol=0.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("n_pages", [24, 4096])
def test_a_cache_of_prefixes_that_none_shares_changes_nothing(n_pages: int) -> None:
    """It is left out where there are pages for all, and matters where some are preempted."""
    traffic = made(40.0, Uniform(20, 90), Uniform(5, 60))
    for seed in range(3):
        with_it, without = (
            summary(
                Setup(limits(n_pages=n_pages, prefix_caching=cached), Constant(0.01), 2),
                traffic, 300, seed,
            )
            for cached in (True, False)
        )  # fmt: skip
        assert (with_it == without) == (n_pages == 4096)
        assert (with_it.preempted == 0) == (n_pages == 4096)
