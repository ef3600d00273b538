from __future__ import annotations

import pytest

from pellucid.cli.picture import _count, _ranges, draw
from pellucid.core.spec import LayerSpec, ModelSpec, RopeSpec
from pellucid.formats.inspect import Description, Group, TensorRow, TypeTotal


def row(name: str, bytes: int = 100) -> TensorRow:
    return TensorRow(name, (10, 20), "Q4_0", 200, bytes, 4.5)


def description(*groups: Group, name: str = "A model") -> Description:
    return Description(
        path="/models/a.gguf",
        kind="gguf",
        architecture="llama",
        name=name,
        files=("/models/a.gguf",),
        file_bytes=2000,
        weight_bytes=1500,
        parameters=3000,
        types=(TypeTotal("Q4_0", 3, 3000, 1500),),
        groups=groups,
        metadata={},
    )


LAYERS = (
    Group(None, 200, 100, (row("token_embd.weight"),)),
    Group(0, 200, 100, (row("blk.0.attn_q.weight"),)),
    Group(1, 200, 100, (row("blk.1.attn_q.weight"),)),
    Group(2, 200, 300, (row("blk.2.attn_q.weight", 100), row("blk.2.extra", 200))),
)
GB = 10**9
MEMORY = {"reference": {"weights": 12_000}, "native": {"weights": 1500}, "available": GB}
LAYER = LayerSpec(9, 3, 64, 1536, 0.125, rope=RopeSpec(10_000.0, 64))
SPEC = ModelSpec("llama", 576, 49152, 8192, 1e-5, (LAYER,) * 3, tied_head=True)


def test_layers_that_look_the_same_are_drawn_once() -> None:
    picture = draw(description(*LAYERS), SPEC, None, MEMORY)
    assert "layers 0-1, each: 100 B" in picture
    assert "layer 2: 300 B" in picture
    assert picture.count("attn_q.weight") == 2
    assert "layer 0-2  9 heads of 64, 3 for keys and values, RoPE base 10000, MLP 1536" in picture
    assert "3000" not in picture.splitlines()[0]


def test_says_why_a_model_is_not_supported_and_draws_it_all_the_same() -> None:
    picture = draw(description(*LAYERS), None, "architecture 'odd' is not implemented", MEMORY)
    assert "not supported: architecture 'odd' is not implemented" in picture
    assert "token_embd.weight" in picture


def need(weights: int, cache: int) -> dict[str, object]:
    return {
        "weights": weights,
        "kv_cache_dtype": "f32",
        "kv_cache_per_token": 10,
        "kv_cache": cache,
        "total": weights + cache,
    }


def test_two_warnings_for_two_ways_not_to_fit() -> None:
    def memory(reference: dict[str, object]) -> str:
        facts = {"context": 99, "available": GB, "reference": reference, "native": need(1, 1)}
        return draw(description(), SPEC, None, facts)

    assert "not fit" not in memory(need(GB // 2, GB // 2))
    assert "reference: the weights do not fit" in memory(need(2 * GB, 1))
    assert "reference: this context does not fit" in memory(need(GB // 2, GB))
    assert "memory for 99 positions, 1 GB free" in memory(need(1, 1))


def test_a_file_cannot_command_the_terminal() -> None:
    evil = description(
        Group(None, 1, 1, (row("\x1b[2Jname\n"),)), name="\x1b]0;title\x07 model\r\n"
    )
    picture = draw(evil, None, "x", MEMORY)
    assert all(char.isprintable() or char == "\n" for char in picture)


@pytest.mark.parametrize(
    ("numbers", "shown"), [([0, 1, 2], "0-2"), ([5], "5"), ([0, 2, 3, 9], "0, 2-3, 9")]
)
def test_ranges(numbers: list[int], shown: str) -> None:
    assert _ranges(numbers) == shown


@pytest.mark.parametrize(
    ("number", "shown"), [(12, "12"), (1234, "1.234 k"), (134_500_000, "134.5 M"), (8e9, "8 B")]
)
def test_counts(number: int, shown: str) -> None:
    assert _count(number) == shown
