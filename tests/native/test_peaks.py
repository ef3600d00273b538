"""The machine's peaks: every pass is there, bad numbers are refused, and no work is left out."""

from __future__ import annotations

from typing import Any

import pytest

from pellucid import _native

USABLE = [name for name, usable, _ in _native.matmul.considered() if usable]
MEGABYTE = 1 << 20


@pytest.fixture(scope="module")
def pool() -> Any:
    return _native.program.Pool(2)


@pytest.mark.parametrize("simd", USABLE)
def test_no_pass_is_faster_than_any_core(pool: Any, simd: str) -> None:
    """A compiler that drops the work would be: no core reads 1 TB/s or does 10^13 operations."""
    peaks = _native.peaks
    for rates, bound in (
        (peaks.reads(pool, 32 * MEGABYTE, 3, simd), 2 * 1e12),
        (peaks.int8(pool, 500, 3, simd), 2 * 1e13),
        (peaks.f32(pool, 500, 3, simd), 2 * 1e13),
    ):
        assert len(rates) == 3
        assert all(0 < rate < bound for rate in rates), rates


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("reads", (0, 1), "bytes is 0, must be from 1"),
        ("reads", (1 << 60, 1), "bytes is"),
        ("reads", (MEGABYTE, 0), "passes is 0"),
        ("int8", (0, 1), "rounds is 0"),
        ("f32", (1, -1), "passes is -1"),
        ("f32", (1, 1, "sse9"), 'unknown instruction set "sse9"'),
    ],
)
def test_bad_numbers_are_named(
    pool: Any, name: str, arguments: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        getattr(_native.peaks, name)(pool, *arguments)
