"""Rotary frequencies of every kind of scaling against their papers' formulas, one at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.core.spec import RopeScaling, RopeSpec
from pellucid.ops.rotary import attention_factor, frequencies, rotations

BASES = st.floats(10.0, 1e7)
PAIRS = st.integers(2, 64)
FACTORS = st.floats(1.0, 64.0)
CONTEXTS = st.integers(16, 100_000)
NO_POSITIONS = np.zeros(1, np.int32)


def plain(base: float, pairs: int) -> list[float]:
    return [base ** (-i / pairs) for i in range(pairs)]


@given(BASES, PAIRS)
def test_unscaled(base: float, pairs: int) -> None:
    found = frequencies(RopeSpec(base, 2 * pairs), NO_POSITIONS)
    np.testing.assert_allclose(found[0], plain(base, pairs), rtol=1e-12)


@given(BASES, PAIRS, FACTORS)
def test_linear_divides_every_frequency(base: float, pairs: int, factor: float) -> None:
    rope = RopeSpec(base, 2 * pairs, scaling=RopeScaling("linear", factor))
    expected = [f / factor for f in plain(base, pairs)]
    np.testing.assert_allclose(frequencies(rope, NO_POSITIONS)[0], expected, rtol=1e-12)


@given(BASES, PAIRS, FACTORS, CONTEXTS, st.integers(0, 400_000))
def test_dynamic_grows_the_base_with_the_position(
    base: float, pairs: int, factor: float, context: int, position: int
) -> None:
    rope = RopeSpec(base, 2 * pairs, scaling=RopeScaling("dynamic", factor, context))
    found = frequencies(rope, np.array([0, position], np.int32))
    np.testing.assert_allclose(found[0], plain(base, pairs), rtol=1e-9)
    length = max(position + 1, context)
    grown = base * (factor * length / context - (factor - 1)) ** (pairs / (pairs - 1))
    np.testing.assert_allclose(found[1], plain(grown, pairs), rtol=1e-9)


@given(BASES, PAIRS, FACTORS, CONTEXTS, st.floats(0.5, 2.0), st.floats(1.1, 8.0))
def test_llama3_keeps_short_waves_and_stretches_long_ones(
    base: float, pairs: int, factor: float, context: int, low: float, apart: float
) -> None:
    high = low * apart
    scaling = RopeScaling("llama3", factor, context, low_freq_factor=low, high_freq_factor=high)
    found = frequencies(RopeSpec(base, 2 * pairs, scaling=scaling), NO_POSITIONS)[0]
    for frequency, got in zip(plain(base, pairs), found, strict=True):
        turns = context / (2 * math.pi / frequency)
        if turns >= high:
            expected = frequency
        elif turns <= low:
            expected = frequency / factor
        else:
            smooth = (turns - low) / (high - low)
            expected = (1 - smooth) * frequency / factor + smooth * frequency
        assert got == pytest.approx(expected, rel=1e-9)


@given(BASES, PAIRS, FACTORS, CONTEXTS, st.floats(4.0, 64.0), st.floats(0.25, 2.0))
def test_yarn_ramps_between_two_features(
    base: float, pairs: int, factor: float, context: int, fast: float, slow: float
) -> None:
    scaling = RopeScaling("yarn", factor, context, beta_fast=fast, beta_slow=slow)
    found = frequencies(RopeSpec(base, 2 * pairs, scaling=scaling), NO_POSITIONS)[0]

    def feature(turns: float) -> float:
        """Which feature turns so often in the old context."""
        return pairs * math.log(context / (2 * math.pi * turns)) / math.log(base)

    low = max(math.floor(feature(fast)), 0)
    high = min(math.ceil(feature(slow)), 2 * pairs - 1)
    for i, (frequency, got) in enumerate(zip(plain(base, pairs), found, strict=True)):
        ramp = min(max((i - low) / max(high - low, 0.001), 0.0), 1.0)
        expected = frequency / factor * ramp + frequency * (1 - ramp)
        assert got == pytest.approx(expected, rel=1e-9)


def test_factors_divide_each_its_own() -> None:
    scaling = RopeScaling("factors", attention_factor=1.0, factors=(1.0, 2.0, 8.0))
    found = frequencies(RopeSpec(100.0, 6, scaling=scaling), NO_POSITIONS)[0]
    expected = [f / by for f, by in zip(plain(100.0, 3), (1, 2, 8), strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [
        (None, 1.0),
        (RopeScaling("linear", 4.0), 1.0),
        (RopeScaling("dynamic", 4.0, 100), 1.0),
        (RopeScaling("llama3", 8.0, 100), 1.0),
        (RopeScaling("yarn", 4.0, 100), 0.1 * math.log(4.0) + 1.0),
        (RopeScaling("yarn", 1.0, 100), 1.0),
        (RopeScaling("yarn", 4.0, 100, attention_factor=0.7), 0.7),
        (RopeScaling("factors", 32.0, 4096), math.sqrt(1 + math.log(32) / math.log(4096))),
        (RopeScaling("factors", 1.0, 4096), 1.0),
        (RopeScaling("factors", 32.0, 4096, attention_factor=1.0), 1.0),
    ],
)
def test_attention_factor(scaling: RopeScaling | None, expected: float) -> None:
    assert attention_factor(scaling) == pytest.approx(expected, rel=1e-15)


@given(st.integers(0, 2**31 - 1), BASES)
def test_rotations_are_exact_at_far_positions(position: int, base: float) -> None:
    cos, sin = rotations(RopeSpec(base, 8), np.array([position], np.int32))
    assert cos.dtype == sin.dtype == np.float32
    for i, frequency in enumerate(plain(base, 4)):
        # The angle in float64 is off by its own rounding, which grows with the position.
        allowed = 2.0**-23 + position * frequency * 2.0**-51
        assert abs(cos[0, i] - math.cos(position * frequency)) <= allowed
        assert abs(sin[0, i] - math.sin(position * frequency)) <= allowed


def test_rotations_carry_the_attention_factor() -> None:
    scaling = RopeScaling("yarn", 4.0, 100, attention_factor=1.5)
    cos, sin = rotations(RopeSpec(100.0, 4, scaling=scaling), np.array([0, 3], np.int32))
    np.testing.assert_allclose(cos**2 + sin**2, 1.5**2, rtol=1e-6)
