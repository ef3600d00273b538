"""The native backend's short head: the same bits as the first rows of the whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.python.models.test_short_head import check


@pytest.mark.parametrize("n_rows", [1, 37, 256])
def test_scores_are_the_first_of_the_whole(tmp_path: Path, n_rows: int) -> None:
    check(tmp_path, n_rows, "native")
