"""The generator against its published answers, and the numbers made of it."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.sampling.random import philox, sample_seed, uniform

# Philox4x32-10 of the Random123 library's known answers.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]

seeds = st.integers(0, (1 << 64) - 1)
positions = st.integers(0, 1 << 40)


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_known_answers(
    counter: tuple[int, int, int, int], key: tuple[int, int], words: str
) -> None:
    assert " ".join(f"{word:08x}" for word in philox(counter, key)) == words


@given(seeds, positions)
def test_uniform_lies_in_its_interval_and_repeats(seed: int, position: int) -> None:
    u = uniform(seed, position)
    assert 0.0 <= u < 1.0
    assert uniform(seed, position) == u


def test_largest_bits_stay_below_one() -> None:
    assert ((1 << 64) - 1 >> 11) * 2.0**-53 < 1.0


@given(seeds, positions)
def test_another_seed_or_position_gives_another_number(seed: int, position: int) -> None:
    u = uniform(seed, position)
    assert uniform(seed ^ 1, position) != u
    assert uniform(seed ^ 1 << 63, position) != u
    assert uniform(seed, position + 1) != u
    assert uniform(seed, position + (1 << 32)) != u


@given(seeds, positions)
def test_a_number_is_the_top_53_bits_of_its_words(seed: int, position: int) -> None:
    """Every bit a float64 of this interval can hold, so that other implementations can agree."""
    low = (1 << 32) - 1
    first, second, _, _ = philox((position & low, position >> 32, 0, 0), (seed & low, seed >> 32))
    assert uniform(seed, position) * 2**53 == (first << 32 | second) >> 11


def test_negative_seeds_are_taken_modulo_2_64() -> None:
    assert uniform(-1, 3) == uniform((1 << 64) - 1, 3)


def test_numbers_fill_the_interval_evenly() -> None:
    for numbers in (
        [uniform(7, position) for position in range(4000)],
        [uniform(seed, 7) for seed in range(4000)],
    ):
        # The mean of n uniforms deviates by sqrt(1 / 12n) = 0.0046; five of these allowed.
        assert abs(statistics.fmean(numbers) - 0.5) < 0.023
        tenths = [sum(int(10 * u) == tenth for u in numbers) for tenth in range(10)]
        assert sum((count - 400) ** 2 / 400 for count in tenths) < 33.7  # p = 1e-4 at 9 degrees


@given(seeds)
def test_samples_of_a_request_have_seeds_of_their_own(seed: int) -> None:
    assert sample_seed(seed, 0) == seed
    derived = [sample_seed(seed, index) for index in range(16)]
    assert len(set(derived)) == 16
    # Those of a neighbouring seed are others: samples of two requests do not repeat each other.
    assert not set(derived[1:]) & {sample_seed(seed + 1, index) for index in range(16)}
