"""Keys and values by pages: what each type of the cache makes of a vector."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from pellucid.ops.reference.pages import Pages, new_pages, rotate, rotate_back

Float32 = NDArray[np.float32]
EPS = float(np.finfo(np.float32).eps)

values = st.floats(-1000, 1000, width=32)


@st.composite
def vectors(draw: st.DrawFn) -> Float32:
    """[n, heads, head_dim]"""
    shape = draw(st.integers(1, 5)), draw(st.integers(1, 2)), draw(st.integers(1, 200))
    return draw(arrays(np.float32, shape, elements=values))


def kept(type: str, x: Float32, page_size: int = 3) -> Float32:
    """What is read of `x` stored from slot 0 on."""
    n, heads, head_dim = x.shape
    pages = new_pages(type, (n, page_size, heads), head_dim)
    rows = np.arange(n)
    pages.store(rows // page_size, rows % page_size, x)
    found = pages.read(np.arange(n))
    return found.reshape(-1, heads, head_dim)[:n]


@given(arrays(np.float32, st.tuples(st.integers(1, 3), st.sampled_from([32, 64])), elements=values))
def test_a_rotation_keeps_lengths_and_is_undone(x: Float32) -> None:
    turned = rotate(x)
    size = np.linalg.norm(x.astype(np.float64), axis=1)
    factor = 1 if x.shape[1] == 64 else np.sqrt(2)
    np.testing.assert_allclose(
        np.linalg.norm(turned.astype(np.float64), axis=1), factor * size, rtol=1e-5, atol=1e-30
    )
    least = np.finfo(np.float32).tiny  # below it numbers are rounded to a fixed step
    np.testing.assert_allclose(rotate_back(turned), x, atol=16 * EPS * float(size.max()) + least)


@given(vectors(), st.sampled_from(["int8", "int4"]))
def test_no_vector_is_off_by_more_than_about_half_a_step_of_each_feature(
    x: Float32, type: str
) -> None:
    """In its rotated block a feature is off by half a step, and parameters by what half precision
    takes away (scales below its normal numbers most); in int4 the ends of a grid lie up to a
    quarter of a step inside the range. A rotation keeps the length of that."""
    steps = 254 if type == "int8" else 10
    error = np.linalg.norm((kept(type, x) - x).astype(np.float64), axis=2)
    size = np.linalg.norm(x.astype(np.float64), axis=2)  # no rotated feature is beyond it
    features = x.shape[2] + 31
    half_steps = size / steps * np.sqrt(features)
    assert np.all(error <= 1.02 * half_steps + 1e-3 * size + 8e-6 * np.sqrt(features))


@given(vectors(), st.sampled_from(["f16", "int8", "int4"]), st.integers(0, 4))
def test_what_is_kept_of_a_vector_depends_on_it_alone(x: Float32, type: str, index: int) -> None:
    i = index % len(x)
    np.testing.assert_array_equal(kept(type, x)[i], kept(type, x[i : i + 1], page_size=1)[0])


@given(vectors())
def test_floats_are_rounded_one_by_one(x: Float32) -> None:
    np.testing.assert_array_equal(kept("f32", x), x)
    np.testing.assert_array_equal(kept("f16", x), x.astype(np.float16).astype(np.float32))


@pytest.mark.parametrize("type", ["int8", "int4"])
def test_zeros_stay_zeros(type: str) -> None:
    assert not np.any(kept(type, np.zeros((2, 2, 80), np.float32)))


@pytest.mark.parametrize("type", ["f16", "int8", "int4"])
def test_huge_numbers_are_held_and_no_number_stays_none(type: str) -> None:
    x = np.full((3, 1, 64), 1.0, np.float32)
    x[0, 0, 7], x[1, 0, 7] = 1e30, np.nan
    y = kept(type, x)
    assert np.all(np.isfinite(y[0]))
    assert abs(y[0, 0, 7] - 65504) < 0.1 * 65504
    assert np.isnan(y[1, 0, 7])
    assert np.all(np.isfinite(y[2]))


@pytest.mark.parametrize("type", ["f32", "f16", "int8", "int4"])
def test_copies_take_all_of_a_page(type: str) -> None:
    x = np.random.default_rng(0).standard_normal((4, 2, 96)).astype(np.float32)
    pages: Pages = new_pages(type, (3, 4, 2), 96)
    pages.store(np.zeros(4, int), np.arange(4), x)
    pages.copy([0], [2])
    found = pages.read(np.array([0, 1, 2]))
    np.testing.assert_array_equal(found[0], found[2])
    assert np.any(found[0])
    assert not np.any(found[1])
