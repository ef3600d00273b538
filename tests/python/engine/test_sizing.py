"""The memory there is, and what an engine makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.core.errors import BadInput
from pellucid.core.spec import LayerSpec, ModelSpec
from pellucid.costs import kv_bytes_per_token
from pellucid.engine.memory import _group_available, available_memory, in_words
from pellucid.engine.sizing import Asked, describe, limits_for

SPEC = ModelSpec(
    family="llama",
    d_model=64,
    vocab_size=100,
    context_length=1000,
    norm_eps=1e-5,
    layers=(LayerSpec(n_heads=4, n_kv_heads=2, head_dim=16, ffn_dim=64, attention_scale=0.25),) * 3,
)
TOKEN = kv_bytes_per_token(SPEC)


def test_this_machine_has_some_memory() -> None:
    assert 1 << 20 < available_memory() < 1 << 62


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 1 << 62),
        ({"memory.max": "max\n", "memory.current": "5", "memory.stat": ""}, 1 << 62),
        ({"memory.max": "1000\n", "memory.current": "300\n", "memory.stat": "anon 300\n"}, 700),
        (
            {
                "memory.max": "1000",
                "memory.current": "900",
                "memory.stat": "anon 100\nactive_file 500\ninactive_file 300\n",
            },
            900,
        ),
        ({"memory.max": "1000", "memory.current": "2000", "memory.stat": ""}, 0),
        ({"memory.max": "junk", "memory.current": "0", "memory.stat": ""}, 1 << 62),
    ],
)
def test_a_containers_limit(tmp_path: Path, files: dict[str, str], expected: int) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert _group_available(tmp_path) == expected


def test_sizes_in_words() -> None:
    assert [in_words(n) for n in (0, 1023, 1536, 5 << 20, 3 << 30)] == [
        "0 bytes",
        "1023 bytes",
        "1.5 KiB",
        "5 MiB",
        "3 GiB",
    ]


@given(
    st.integers(0, 3000 * TOKEN),
    st.one_of(st.none(), st.integers(1, 1000)),
    st.one_of(st.none(), st.integers(1, 40)),
    st.one_of(st.none(), st.integers(40, 600)),
    st.integers(1, 64),
    st.sampled_from(["f32", "f16"]),
)
def test_limits_keep_to_the_budget_and_hold_one_context(
    budget: int,
    length: int | None,
    n_seqs: int | None,
    batched: int | None,
    page_size: int,
    dtype: str,
) -> None:
    asked = Asked(length, n_seqs, batched, page_size)
    page_bytes = page_size * kv_bytes_per_token(SPEC, dtype)
    try:
        limits = limits_for(SPEC, asked, budget, dtype)
    except BadInput:
        assert max(length or 2, 2) > budget // page_bytes * page_size
        return
    assert limits.n_pages * page_bytes <= budget
    assert limits.n_pages * page_size >= limits.max_model_len
    assert limits.max_model_len == length if length else limits.max_model_len <= 1000
    assert limits.max_num_seqs == (n_seqs or min(32, limits.max_num_batched_tokens))
    # Never more than all sequences can use.
    assert limits.n_pages <= limits.max_num_seqs * -(-max(limits.max_model_len, 2) // page_size)


def test_a_longer_context_than_the_models_is_refused() -> None:
    with pytest.raises(BadInput, match="max_model_len 1001 is above the 1000"):
        limits_for(SPEC, Asked(max_model_len=1001), 1 << 30, "f32")
    with pytest.raises(BadInput, match=r"a context of 500 needs .* lower max_model_len"):
        limits_for(SPEC, Asked(max_model_len=500), 400 * TOKEN, "f32")


def test_the_line_says_why_the_pool_is_what_it_is() -> None:
    asked = Asked(max_model_len=500, max_num_seqs=4)
    whole = 4 * 512 * TOKEN
    assert describe(SPEC, limits_for(SPEC, asked, 2 * whole, "f32"), 2 * whole, "f32").endswith(
        "context 500 of the model's 1000: 4 sequences of it fit at once"
    )
    tight = limits_for(SPEC, asked, whole // 2, "f32")
    assert describe(SPEC, tight, whole // 2, "f32").endswith(
        f"as much as {in_words(whole // 2)} hold, half of the memory free beside the weights"
    )
    assert describe(SPEC, tight, whole // 2, "f32", given=True).endswith("kv_cache_memory_bytes")
