"""Which type each tensor gets."""

from __future__ import annotations

import pytest

from pellucid.core.errors import BadInput
from pellucid.quant.mixes import MIXES, fitting_type, is_quantized_in, mix_named, wanted_type
from pellucid.quant.quantize import WRITABLE_TYPES
from pellucid.quant.types import TensorType


def types_of(mix: str, kind: str, n_layers: int) -> list[str]:
    return [
        wanted_type(mix_named(mix), f"blk.{i}.{kind}.weight", n_layers, is_head=False).name
        for i in range(n_layers)
    ]


def test_medium_mixes_give_more_at_the_ends_and_every_third_layer() -> None:
    more = [0, 1, 4, 7, 10, 13, 14, 15]
    for mix, base in ("q4_k_m", "Q4_K"), ("q5_k_m", "Q5_K"):
        expected = ["Q6_K" if i in more else base for i in range(16)]
        assert types_of(mix, "attn_v", 16) == types_of(mix, "ffn_down", 16) == expected
        assert types_of(mix, "ffn_down_exps", 16) == expected
        assert set(types_of(mix, "ffn_up", 16)) == {base}
    assert set(types_of("q4_k_m", "attn_qkv", 4)) == {"Q5_K"}


def test_the_small_mix_gives_more_to_the_first_layers() -> None:
    assert types_of("q4_k_s", "attn_v", 16) == ["Q5_K"] * 4 + ["Q4_K"] * 12
    assert types_of("q4_k_s", "ffn_down", 16) == ["Q5_K"] * 2 + ["Q4_K"] * 14
    assert set(types_of("q5_k_s", "ffn_down", 16)) == {"Q5_K"}


def test_the_head_is_finer() -> None:
    head = {name: wanted_type(mix, "output.weight", 8, is_head=True) for name, mix in MIXES.items()}
    assert head["q4_0"] is head["q4_k_m"] is head["q6_k"] is TensorType.Q6_K
    assert head["q8_0"] is TensorType.Q8_0
    table = wanted_type(MIXES["q4_k_m"], "token_embd.weight", 8, is_head=False)
    assert table is TensorType.Q4_K


def test_rows_that_do_not_fit() -> None:
    assert fitting_type(TensorType.Q4_K, 512) is TensorType.Q4_K
    assert fitting_type(TensorType.Q4_K, 576) is TensorType.Q5_0
    assert fitting_type(TensorType.Q5_K, 576) is TensorType.Q5_1
    assert fitting_type(TensorType.Q6_K, 576) is TensorType.Q8_0
    assert fitting_type(TensorType.Q6_K, 100) is TensorType.F16


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("output_norm.weight", (64,)),
        ("blk.0.attn_q.bias", (64,)),
        ("blk.0.ffn_gate_inp.weight", (8, 64)),
        ("position_embd.weight", (128, 64)),
        ("blk.0.attn_q_norm.weight", (4, 64)),
        ("rope_freqs.weight", (32,)),
    ],
)
def test_what_stays_as_it_is(name: str, shape: tuple[int, ...]) -> None:
    assert not is_quantized_in(name, shape)


def test_names() -> None:
    assert mix_named("Q4_K").name == "q4_k_m"
    assert {mix.base for mix in MIXES.values()} <= WRITABLE_TYPES
    assert len({mix.file_type for mix in MIXES.values()}) == len(MIXES)
    with pytest.raises(BadInput, match="'q3_k' is none of those that are written: f32, f16"):
        mix_named("q3_k")
