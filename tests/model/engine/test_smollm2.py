"""SmolLM2 from its GGUF file: against transformers on the same weights, and against itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pellucid import LLM, SamplingParams
from pellucid.models.registry import Model
from tests.model.engine.judge import load_llama
from tests.model.models.runner import ask, changed, layer_with, wrong_layer, wrong_rope_sign
from tests.python.engine.recorder import run

Float32 = NDArray[np.float32]

PROMPTS = [
    "The quick brown fox jumps over the lazy dog and then",
    "Im Herbst fallen die Blätter von den Bäumen, weil",
    "La capitale de la France est Paris, une ville où",
    "El agua hierve a cien grados y entonces",
    "吾輩は猫である。名前はまだ無い。",
    "人工智能的发展历史可以追溯到",
    "Москва — столица России, и в ней",
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
    "#include <stdio.h>\n\nint main(void) {\n    for (int i = 0;",
    "<|im_start|>user\nWrite a haiku about the sea. 🌊<|im_end|>\n<|im_start|>assistant\n",
]
CONTINUATION = 64


@pytest.fixture(scope="module")
def llm(smollm2_path: Path) -> LLM:
    return LLM(
        smollm2_path,
        backend="reference",
        max_model_len=512,
        kv_cache_memory_bytes=1 << 30,
        max_num_seqs=10,
    )


@pytest.fixture(scope="module")
def judge(smollm2_path: Path) -> Any:
    return load_llama(smollm2_path)


def tokens_of(llm: LLM, prompt: str) -> list[int]:
    return llm.tokenizer.encode(prompt, parse_special=True)


def relative_tolerance(model: Model) -> float:
    """How far apart, relative to a row's norm, two right float32 implementations may be.

    A product over K terms is off by about sqrt(K) units of 2^-24; the residual stream adds up
    some eight such results a layer, whose errors are independent and so grow with their root.
    """
    spec = model.spec
    longest = max(max(spec.d_model, layer.ffn_dim) for layer in spec.layers)
    return float(2.0**-24 * longest**0.5 * (8 * spec.n_layers) ** 0.5)


def distance(ours: Float32, truth: Float32) -> float:
    """The largest error of a row, relative to the row."""
    return float(np.max(np.linalg.norm(ours - truth, axis=1) / np.linalg.norm(truth, axis=1)))


@pytest.fixture(scope="module")
def text(llm: LLM) -> list[int]:
    """All the prompts in a row."""
    return [token for prompt in PROMPTS for token in tokens_of(llm, prompt)]


@pytest.fixture(scope="module")
def truth(judge: Any, text: list[int]) -> Float32:
    return ask(judge, text)


def test_weights_are_transformers_bit_for_bit(llm: LLM, judge: Any) -> None:
    assert llm._engine is not None
    ours = llm._engine.model.weights
    state = judge.state_dict()
    for part, theirs in (
        ("token_embd", "model.embed_tokens"),
        ("blk.0.ffn_down", "model.layers.0.mlp.down_proj"),
        ("blk.29.attn_v", "model.layers.29.self_attn.v_proj"),
        ("output_norm", "model.norm"),
    ):
        assert np.array_equal(ours[f"{part}.weight"], state[f"{theirs}.weight"].numpy())


def test_logits_agree_with_transformers(llm: LLM, text: list[int], truth: Float32) -> None:
    assert llm._engine is not None
    allowed = relative_tolerance(llm._engine.model)
    off = distance(llm.logits(text), truth)
    assert off <= allowed, (
        f"rows are off by {off:.3g} of their norm, float32 explains {allowed:.3g}"
    )


def test_embeddings_agree_with_transformers(llm: LLM, judge: Any, text: list[int]) -> None:
    import torch

    with torch.no_grad():
        states = judge.model(torch.tensor([text])).last_hidden_state[0].double().numpy()
    allowed = relative_tolerance(llm.engine.model)
    for pooling, truth in ("mean", states.mean(axis=0)), ("last", states[-1]):
        [output] = llm.embed([text], pooling=pooling, normalize=False)
        off = distance(np.array([output.embedding]), truth[None])
        assert off <= allowed, f"{pooling}: off by {off:.3g}, float32 explains {allowed:.3g}"
        [unit] = llm.embed([text], pooling=pooling)
        assert np.allclose(unit.embedding, truth / np.linalg.norm(truth), atol=allowed)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("wrong rope sign", wrong_rope_sign),
        ("a scale off by 0.1 %", changed("blk.7.attn_output.weight", lambda w: w * 1.001)),
        ("one layer's window", wrong_layer(layer_with(window=64), 11)),
        ("an epsilon of 1e-6", lambda m: dataclasses.replace(m, spec=_with_epsilon(m, 1e-6))),
    ],
)
def test_a_planted_fault_is_found(
    llm: LLM, text: list[int], truth: Float32, name: str, fault: Callable[[Model], Model]
) -> None:
    engine = llm._engine
    assert engine is not None
    passes, right = engine._passes, engine.model
    passes._model = fault(right)
    try:
        off = distance(llm.logits(text), truth)
    finally:
        passes._model = right
    assert off > relative_tolerance(right), f"{name}: {off:.3g} passes for right"


def _with_epsilon(model: Model, eps: float) -> Any:
    return dataclasses.replace(model.spec, norm_eps=eps)


def test_greedy_continuations_equal_transformers_token_for_token(llm: LLM, judge: Any) -> None:
    """Our continuation is theirs if each of its tokens is theirs after the same prefix."""
    params = SamplingParams(temperature=0, max_tokens=CONTINUATION, ignore_eos=True)
    prompts = [tokens_of(llm, prompt) for prompt in PROMPTS]
    for prompt, output in zip(prompts, llm.generate(prompts, params), strict=True):
        ours = output.outputs[0].token_ids
        assert len(ours) == CONTINUATION
        scores = ask(judge, prompt + ours)[len(prompt) - 1 : -1]
        theirs = scores.argmax(axis=1).tolist()
        assert ours == theirs, f"{output.outputs[0].text!r}"


def test_cache_chunks_and_neighbours_change_no_bit(llm: LLM, smollm2_path: Path) -> None:
    requests = [
        (tokens_of(llm, PROMPTS[i])[:length], SamplingParams(seed=i, max_tokens=5, **ways))
        for i, length, ways in (
            (0, 9, {"temperature": 0}),
            (4, 14, {"temperature": 1.0}),
            (7, 3, {"temperature": 0.7, "top_p": 0.9, "n": 2}),
        )
    ]
    small = {"max_model_len": 64, "kv_cache_memory_bytes": 1 << 26}
    naive = LLM(smollm2_path, backend="reference", kv_cache=False, max_num_seqs=1, **small)
    alone, expected = [], {}
    for request in requests:
        answers, rows = run(naive, [request])
        alone += answers
        expected |= rows
    naive.close()
    paged = LLM(
        smollm2_path,
        backend="reference",
        page_size=5,
        max_num_seqs=3,
        max_num_batched_tokens=7,
        **small,
    )
    together, rows = run(paged, requests)
    assert together == alone
    assert rows == expected
