"""A short head's scores are the first of the whole head's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pellucid.core.plan import Plan, Span
from pellucid.formats import open_checkpoint
from pellucid.models.registry import load_model
from pellucid.models.short_head import with_short_head
from pellucid.ops import backend
from tests.python.engine.tiny import write_model


@pytest.mark.parametrize("n_rows", [1, 100, 260])
def test_scores_are_the_first_of_the_whole(tmp_path: Path, n_rows: int) -> None:
    check(tmp_path, n_rows, "reference")


def check(folder: Path, n_rows: int, name: str) -> None:
    """Bit for bit on the native backend; a BLAS rounds by the shape of a product."""
    ops = backend(name)
    with open_checkpoint(write_model(folder / "tiny.gguf")) as checkpoint:
        model = load_model(checkpoint, ops)
        short = with_short_head(model, checkpoint, n_rows)
        plan = Plan((Span(0, 0, (5, 77, 3, 200), (0,), 4),), 16)
        whole, first = (
            ops.to_numpy(one.forward(plan, ops.new_cache(one.spec, 1, 16))).copy()
            for one in (model, short)
        )
    assert first.shape == (4, n_rows)
    if name == "native":
        np.testing.assert_array_equal(first, whole[:, :n_rows])
    np.testing.assert_allclose(first, whole[:, :n_rows], rtol=1e-4, atol=1e-5)
