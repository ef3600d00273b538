"""The tables and pictures of docs/quality.md are what the results say."""

from __future__ import annotations

import pytest
import quality_table

from pellucid.quality.picture import picture
from pellucid.quant.mixes import MIXES

RESULTS = quality_table.read(quality_table.RESULTS)


def test_the_page_says_what_the_results_say() -> None:
    page = quality_table.PAGE.read_text(encoding="utf-8")
    assert RESULTS
    assert page == quality_table.BLOCK.replaced(page, quality_table.render(RESULTS))


@pytest.mark.parametrize("name", RESULTS)
def test_every_type_is_there_and_drawn(name: str) -> None:
    report = RESULTS[name]
    assert quality_table.drawing(name).read_text(encoding="utf-8") == picture(report)
    types = {one.quantization for one in report.measured[1:]}
    assert types == {mix.name for mix in MIXES.values() if mix.quantizes}
    sizes = [one.bytes_per_token for one in report.measured]
    assert sizes == sorted(sizes, reverse=True)
