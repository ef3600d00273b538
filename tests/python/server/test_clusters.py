"""Clusters of characters leave whole, and nothing else waits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.server.clusters import held_back

CLUSTERS = ["👩🏽‍🚀", "🇩🇪", "❤️", "👍🏿", "नि", "ก็", "\u1100\u1161\u11a8", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "✅"]


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_a_cluster_waits_until_it_can_grow_no_more(cluster: str) -> None:
    for n in range(1, len(cluster) + 1):
        assert held_back("text " + cluster[:n]) == n
    assert held_back("text " + cluster + "x") == 0


def test_two_flags_are_two() -> None:
    assert held_back("🇩🇪🇫🇷") == 2
    assert held_back("🇩🇪🇫") == 1


@pytest.mark.parametrize("text", ["", "Hello", "naïve", "日本語", "привет", "비빔밥", "x = 5;"])
def test_plain_text_never_waits(text: str) -> None:
    assert held_back(text) == 0


@given(st.text())
def test_no_more_is_held_than_there_is(text: str) -> None:
    assert 0 <= held_back(text) <= len(text)
