"""The cost of a step: SmolLM2 by hand, and how it grows."""

from __future__ import annotations

import dataclasses

from pellucid.core.plan import Span
from pellucid.core.spec import LayerSpec, ModelSpec
from pellucid.costs import Cost, WeightSize, step_cost
from pellucid.costs.operations import attention

D, FFN, VOCAB, LAYERS = 576, 1536, 49152, 30
LAYER = LayerSpec(n_heads=9, n_kv_heads=3, head_dim=64, ffn_dim=FFN, attention_scale=0.125)
SPEC = ModelSpec("llama", D, VOCAB, 8192, 1e-5, (LAYER,) * LAYERS, tied_head=True)
_PARTS = {
    "attn_norm": (D,),
    "attn_q": (D, D),
    "attn_k": (192, D),
    "attn_v": (192, D),
    "attn_output": (D, D),
    "ffn_norm": (D,),
    "ffn_gate": (FFN, D),
    "ffn_up": (FFN, D),
    "ffn_down": (D, FFN),
}


def q4_1(shape: tuple[int, ...]) -> WeightSize:
    if len(shape) == 1:
        return WeightSize(shape, 4 * shape[0])
    return WeightSize(shape, shape[0] * shape[1] * 20 // 32)


WEIGHTS = {
    f"blk.{i}.{name}.weight": q4_1(shape) for i in range(LAYERS) for name, shape in _PARTS.items()
}
WEIGHTS["token_embd.weight"] = WeightSize((VOCAB, D), VOCAB * D * 34 // 32)
WEIGHTS["output_norm.weight"] = WeightSize((D,), 4 * D)
MATRICES = LAYERS * (2 * D * D + 2 * 192 * D + 3 * FFN * D)


def span(start: int, length: int, n_logits: int = 1) -> Span:
    return Span(0, start, (1,) * length, (), n_logits)


def test_a_token_reads_every_weight_once() -> None:
    cost = step_cost(SPEC, WEIGHTS, [span(10, 1)], "f16")
    stored = sum(weight.nbytes for weight in WEIGHTS.values())
    assert cost.weights_read == stored + D * 34 // 32  # and a row of the table, as the embedding
    assert cost.kv_read == LAYERS * 11 * 2 * 3 * 64 * 2
    products = 2 * (MATRICES + VOCAB * D)
    scores = LAYERS * 4 * 9 * 64 * 11
    norms = (2 * LAYERS + 1) * 4 * D
    assert cost.operations == products + scores + norms


def test_a_batch_reads_weights_once_and_computes_for_each() -> None:
    one = step_cost(SPEC, WEIGHTS, [span(10, 1)], "f16")
    eight = step_cost(SPEC, WEIGHTS, [span(10, 1)] * 8, "f16")
    assert eight.operations == 8 * one.operations
    assert eight.weights_read - one.weights_read == 7 * D * 34 // 32


def test_rows_without_logits_end_at_the_last_attention() -> None:
    prefill = step_cost(SPEC, WEIGHTS, [span(0, 512)], "f16")
    everything = step_cost(SPEC, WEIGHTS, [span(0, 512, 512)], "f16")
    last = 2 * (D * D + 3 * FFN * D) + 4 * D  # of a row: output, MLP and its norm
    head = 2 * VOCAB * D + 4 * D
    assert everything.operations - prefill.operations == 511 * (last + head)


def test_no_spans_cost_nothing() -> None:
    assert step_cost(SPEC, WEIGHTS, [], "f16") == Cost()


def test_biases_head_norms_and_experts_have_their_places() -> None:
    layer = dataclasses.replace(LAYER, n_experts=8, n_experts_used=2)
    spec = dataclasses.replace(SPEC, layers=(layer, layer), tied_head=False)
    at = [span(0, 4, 4)]

    def alone(name: str, *shape: int) -> Cost:
        cost = step_cost(spec, {name: WeightSize(shape, 1000)}, at, "f16")
        seen = attention(layer, [(0, 4)], "f16")
        return Cost(cost.operations - 2 * seen.operations, cost.weights_read)

    assert alone("output.weight", VOCAB, D) == Cost(2 * 4 * VOCAB * D, 1000)
    assert alone("token_embd.weight", VOCAB, D).operations == 0  # a table, and no head
    assert alone("blk.0.attn_q.bias", D) == Cost(4 * D, 1000)
    assert alone("blk.0.attn_q_norm.weight", 64) == Cost(4 * 4 * 9 * 64, 1000)
    assert alone("blk.1.attn_k_norm.weight", 64) == Cost(4 * 4 * 3 * 64, 1000)
    assert alone("blk.0.ffn_up_exps.weight", 8, FFN, D) == Cost(2 * 8 * D * FFN, 1000)
    assert alone("token_embd_norm.weight", D) == Cost(4 * 4 * D, 1000)
