"""Vectors alone: a step that computes hidden rows and nothing else chooses no token."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pellucid import LLM


def test_a_step_without_logits_fails_nowhere(tiny_path: Path) -> None:
    """The model's table has rows that are no tokens, which are banned wherever one is chosen."""
    arguments = {"kv_cache_memory_bytes": 1 << 20, "enable_prefix_caching": False}
    with LLM(tiny_path, **arguments) as llm:
        alone = llm.embed("hello")[0].embedding
        assert np.isclose(np.linalg.norm(alone), 1.0)
        beside = llm.embed(["other", "hello", "hello there"])[1].embedding
    assert beside == alone
