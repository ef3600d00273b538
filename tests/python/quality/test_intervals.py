"""Intervals hold what they promise, on numbers whose mean is known."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid.quality.intervals import BLOCK, MIN_BLOCKS, Bootstrap


def test_the_true_mean_is_within_about_as_often_as_promised() -> None:
    """Neighbours that are alike: blocks of them vary, and single tokens hide it."""
    rng = np.random.default_rng(5)
    n, held, naive = 2048, 0, 0
    bootstrap = Bootstrap(n)
    for _ in range(200):
        each = np.repeat(rng.exponential(size=n // 8), 8)
        figure = bootstrap.mean(each)
        held += figure.low <= 1 <= figure.high
        naive += abs(each.mean() - 1) <= 1.96 * each.std() / n**0.5
    assert 175 <= held <= 198
    assert naive < 130


def test_what_becomes_of_a_mean_keeps_its_interval() -> None:
    each = np.random.default_rng(1).exponential(size=1000)
    bootstrap = Bootstrap(1000)
    plain, made = bootstrap.mean(each), bootstrap.mean(each, np.exp)
    assert made.value == pytest.approx(np.exp(each.mean()))
    assert (made.low, made.high) == pytest.approx((np.exp(plain.low), np.exp(plain.high)))
    assert plain.low < plain.value < plain.high


def test_a_quantile() -> None:
    each = np.random.default_rng(2).permutation(np.arange(4000.0))
    figure = Bootstrap(4000).quantile(each, 0.99)
    assert figure.value == pytest.approx(0.99 * 3999)
    assert 3900 < figure.low < figure.value < figure.high < 3999


def test_a_second_run_gives_the_same_and_a_constant_has_no_width() -> None:
    each = np.random.default_rng(3).random(777)
    assert Bootstrap(777).mean(each) == Bootstrap(777).mean(each)
    constant = Bootstrap(777).mean(np.full(777, 0.25))
    assert constant.low == constant.value == constant.high == 0.25


def test_few_tokens_are_refused() -> None:
    Bootstrap(BLOCK * MIN_BLOCKS)
    with pytest.raises(ValueError, match="fewer than"):
        Bootstrap(BLOCK * MIN_BLOCKS - 1)
