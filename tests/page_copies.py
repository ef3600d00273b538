"""What every backend's `copy_pages` must do, for any model over it."""

from __future__ import annotations

import re

import numpy as np
import pytest
from numpy.typing import NDArray

from pellucid.core.plan import Plan, Span
from pellucid.models.registry import Model

N_PAGES = 8
_FROM, _TO = (6, 1, 4), (0, 5, 3)
# Pairs that cannot be, and what the error says of them.
FAULTS: dict[str, tuple[list[tuple[int, int]], str]] = {
    "a source that is not there": (
        [(6, 0), (8, 5)],
        "pair 1, 8 to 5: page 8 is not among the cache's 8",
    ),
    "a negative target": ([(6, -1)], "pair 0, 6 to -1: page -1 is not among the cache's 8"),
    "a target named twice": ([(6, 0), (1, 0)], "pair 0, 6 to 0: another pair has the same target"),
    "a target that is a source": ([(6, 1), (1, 5)], "pair 0, 6 to 1: the target is also a source"),
    "a page onto itself": ([(6, 6)], "pair 0, 6 to 6: the target is also a source"),
    "a page beyond 32 bits": ([(6, 2**40)], "copy_pages"),
}


class _Run:
    """A model with one cache, and the logits of a span's last token."""

    def __init__(self, model: Model, page_size: int) -> None:
        self.model, self.page_size = model, page_size
        self.cache = model.ops.new_cache(model.spec, N_PAGES, page_size)
        rng = np.random.default_rng(5)
        self.prompt = tuple(
            int(t) for t in rng.integers(0, model.spec.vocab_size, 2 * page_size + 1)
        )

    def last(
        self, start: int, tokens: tuple[int, ...], pages: tuple[int, ...]
    ) -> NDArray[np.float32]:
        plan = Plan((Span(0, start, tokens, pages, 1),), self.page_size)
        return np.array(self.model.ops.to_numpy(self.model.forward(plan, self.cache)))

    def alone(self, *more: int) -> NDArray[np.float32]:
        return _Run(self.model, self.page_size).last(0, self.prompt + more, _FROM)


def check_copies(model: Model, page_size: int) -> None:
    """Two sequences go on from one prompt, on pages of their own; neither hears the other."""
    run = _Run(model, page_size)
    run.last(0, run.prompt, _FROM)
    model.ops.copy_pages(run.cache, list(zip(_FROM, _TO, strict=True)))
    end = len(run.prompt)
    np.testing.assert_array_equal(run.last(end, (7,), _FROM), run.alone(7))
    np.testing.assert_array_equal(run.last(end, (9,), _TO), run.alone(9))
    np.testing.assert_array_equal(run.last(end + 1, (3,), _FROM), run.alone(7, 3))
    np.testing.assert_array_equal(run.last(end + 1, (3,), _TO), run.alone(9, 3))
    assert not np.array_equal(run.alone(7, 3), run.alone(9, 3))


def check_refusal(model: Model, page_size: int, fault: str) -> None:
    """Nothing is copied when one pair is wrong."""
    pairs, message = FAULTS[fault]
    run = _Run(model, page_size)
    before = run.last(0, run.prompt, _FROM)
    with pytest.raises(ValueError, match=re.escape(message)):
        model.ops.copy_pages(run.cache, pairs)
    end = len(run.prompt)
    np.testing.assert_array_equal(run.last(end - 1, run.prompt[-1:], _FROM), before)


def check_no_pairs(model: Model, page_size: int) -> None:
    model.ops.copy_pages(_Run(model, page_size).cache, [])
