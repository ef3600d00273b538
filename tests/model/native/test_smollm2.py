"""SmolLM2 on the native backend: close to the truth, and the same bits in every traffic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pellucid.core.plan import Plan, Span
from pellucid.engine.loading import open_text
from pellucid.formats import open_checkpoint
from pellucid.models.registry import Model, load_model
from pellucid.ops.native import NativeOps
from tests.model.engine.judge import load_llama
from tests.model.engine.test_smollm2 import PROMPTS
from tests.model.models.runner import ask
from tests.native.cases import SIMD, same_bits
from tests.native.test_models import Request, logits, serve

Float32 = NDArray[np.float32]


@pytest.fixture(scope="module")
def model(smollm2_path: Path) -> Model:
    with open_checkpoint(smollm2_path) as checkpoint:
        return load_model(checkpoint, NativeOps(threads=2))


@pytest.fixture(scope="module")
def prompts(smollm2_path: Path) -> list[list[int]]:
    with open_checkpoint(smollm2_path) as checkpoint:
        tokenizer, _ = open_text(checkpoint)
    return [tokenizer.encode(prompt, parse_special=True) for prompt in PROMPTS]


@pytest.fixture(scope="module")
def judge(smollm2_path: Path) -> Any:
    """Transformers in float32 on the same weights."""
    return load_llama(smollm2_path)


def divergence(truth: Float32, ours: Float32) -> Float32:
    """KL(truth || ours) of each row, in nats."""

    def log_softmax(x: Float32) -> NDArray[np.float64]:
        x = x.astype(np.float64) - x.max(axis=1, keepdims=True)
        return x - np.log(np.exp(x).sum(axis=1, keepdims=True))

    p, q = log_softmax(truth), log_softmax(ours)
    return np.asarray((np.exp(p) * (p - q)).sum(axis=1), np.float32)


def test_close_to_the_truth(model: Model, judge: Any, prompts: list[list[int]]) -> None:
    """int8 activations and half-precision keys cost what they cost elsewhere: the bound is that of
    8-bit activations in general, far below what 4-bit weights have cost already."""
    text = [token for prompt in prompts for token in prompt]
    truth, ours = ask(judge, text), logits(model, tuple(text))
    kl = divergence(truth, ours)
    assert kl.mean() < 0.01, f"mean divergence {kl.mean():.4f}"
    assert np.mean(truth.argmax(1) == ours.argmax(1)) > 0.88
    shifted = np.roll(ours, 1, axis=0)  # and a wrong model is far away
    assert divergence(truth, shifted).mean() > 1.0


def test_greedy_text_parts_from_the_truths_only_where_two_tokens_are_close(
    model: Model, judge: Any, prompts: list[list[int]]
) -> None:
    import torch

    for prompt in prompts:
        with torch.no_grad():
            given_ids = torch.tensor([prompt])
            truth = judge.generate(
                given_ids, attention_mask=torch.ones_like(given_ids), max_new_tokens=8,
                do_sample=False, eos_token_id=None, pad_token_id=0,
            )[0].tolist()  # fmt: skip
        ours = prompt + greedy(model, prompt, 8)
        if ours != truth:
            parting = next(i for i in range(len(truth)) if ours[i] != truth[i])
            scores = ask(judge, truth[:parting])[-1]
            gap = scores[truth[parting]] - scores[ours[parting]]
            # In logits. Eight bits of an input move a score by a tenth or two.
            assert gap < 0.4, f"{truth[parting]} is {gap:.2f} ahead of {ours[parting]}"


def greedy(model: Model, prompt: list[int], count: int) -> list[int]:
    pages = tuple(range(-(-(len(prompt) + count) // 16)))
    cache = model.ops.new_cache(model.spec, len(pages), 16)
    chosen: list[int] = []
    start, tokens = 0, tuple(prompt)
    while len(chosen) < count:
        row = model.forward(Plan((Span(0, start, tokens, pages, 1),), 16), cache)[0]
        start, tokens = start + len(tokens), (int(row.argmax()),)
        chosen += tokens
    return chosen


@given(st.data())
@settings(max_examples=6)
def test_no_traffic_changes_a_bit(model: Model, prompts: list[list[int]], data: Any) -> None:
    requests = []
    for _ in range(data.draw(st.integers(2, 4))):
        prompt = data.draw(st.sampled_from(prompts))
        cut = data.draw(st.integers(1, len(prompt) - 1))
        ones = data.draw(st.integers(0, min(3, len(prompt) - cut)))
        chunks = [cut, *[1] * ones, len(prompt) - cut - ones]
        requests.append(Request(tuple(prompt), [c for c in chunks if c]))
    page_size, seed = data.draw(st.sampled_from([16, 64])), data.draw(st.integers(0, 1000))
    together = serve(model, requests, page_size, seed)
    for request, served in zip(requests, together, strict=True):
        assert same_bits(served, logits(model, request.tokens))


@pytest.mark.parametrize("simd", [name for name in SIMD if name != "generic"])
def test_threads_and_instruction_sets_give_the_same_bits(
    smollm2_path: Path, model: Model, prompts: list[list[int]], simd: str
) -> None:
    with open_checkpoint(smollm2_path) as checkpoint:
        other = load_model(checkpoint, NativeOps(threads=1, simd=simd))
    tokens = tuple(prompts[0] + prompts[8])
    assert same_bits(logits(other, tokens), logits(model, tokens))
