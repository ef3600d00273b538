"""Embeddings: pooled hidden states, whatever else runs beside them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pellucid import LLM, AsyncLLM, BadInput, PellucidError, PromptTooLong, SamplingParams
from pellucid.core.plan import Plan, Span
from pellucid.models.parts import head
from pellucid.ops.step import lower
from tests.python.engine.conftest import DEFAULTS
from tests.python.engine.tiny import CONTEXT
from tests.python.engine.traffic import MakeLLM, tokens

PROMPT = [(7 * i) % 250 for i in range(40)]


def hidden_rows(llm: LLM, prompt: list[int]) -> np.ndarray:
    """Every position's row, from the model itself."""
    model = llm.engine.model
    plan = Plan((Span(0, 0, tuple(prompt), (0,), len(prompt)),), CONTEXT)
    rows = model.hidden(lower(plan, model.ops.new_cache(model.spec, 1, CONTEXT)))
    return np.array(model.ops.to_numpy(rows))


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_the_vector_is_made_of_what_logits_are_read_from(
    llm: LLM, pooling: str, normalize: bool
) -> None:
    rows = hidden_rows(llm, PROMPT)
    model = llm.engine.model
    assert (
        head(model.ops, model.spec, model.weights, rows).tobytes() == llm.logits(PROMPT).tobytes()
    )
    expected = rows.astype(np.float64).mean(axis=0) if pooling == "mean" else rows[-1]
    if normalize:
        expected = expected / np.linalg.norm(expected)
    [output] = llm.embed(PROMPT, pooling=pooling, normalize=normalize)
    assert np.allclose(output.embedding, expected, rtol=1e-6, atol=1e-7)
    assert output.prompt_token_ids == PROMPT
    took = output.metrics
    assert took is not None
    assert 0 <= took.queue_time <= took.time_to_first_token == took.finished_time
    assert (took.prompt_tokens, took.generation_tokens) == (len(PROMPT), 0)


def test_what_the_cache_had_of_a_prompt_is_said(make_llm: MakeLLM) -> None:
    """The last row alone may stand on pages of before; a mean is of every row."""
    llm = make_llm(page_size=4, enable_prefix_caching=True)
    llm.generate([PROMPT], SamplingParams(max_tokens=1))
    for pooling, cached in ("last", len(PROMPT) - 1), ("mean", 0):
        [output] = llm.embed(PROMPT, pooling=pooling)
        assert output.metrics is not None
        assert output.metrics.cached_tokens == cached


def test_many_in_their_order_and_in_any_form(llm: LLM) -> None:
    assert llm.embed([]) == []
    texts = [f"text number {i}" for i in range(50)]
    outputs = llm.embed(texts)
    assert [output.prompt for output in outputs] == texts
    assert len({output.request_id for output in outputs}) == 50
    for text, output in list(zip(texts, outputs, strict=True))[::17]:
        assert llm.embed({"prompt": text})[0].embedding == output.embedding


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(tokens, min_size=1, max_size=CONTEXT),
    st.integers(1, 40),
    st.integers(1, 100),
    st.sampled_from(["mean", "last"]),
)
def test_neither_chunks_nor_neighbours_change_a_bit(
    make_llm: MakeLLM, llm: LLM, prompt: list[int], page_size: int, batched: int, pooling: str
) -> None:
    """Streams run beside it in the same steps, and neither notices the other."""
    [alone] = llm.embed(prompt, pooling=pooling)
    other = make_llm(page_size=page_size, max_num_seqs=1 + batched // 3, max_num_batched_tokens=60)
    params = SamplingParams(temperature=0.9, seed=1, max_tokens=9, ignore_eos=True)
    streams = [other.stream([1, 2, 3 + i], params) for i in range(3)]
    assert other.embed(prompt, pooling=pooling)[0].embedding == alone.embedding
    for i, stream in enumerate(streams):
        for _ in stream:
            pass
        assert stream.output().outputs == llm.generate([1, 2, 3 + i], params)[0].outputs


def test_event_loops_ask_for_vectors_too(tiny_path: Path, llm: LLM) -> None:
    async def scene() -> None:
        async with AsyncLLM(tiny_path, **DEFAULTS) as async_llm:
            prompts = [PROMPT[i:] for i in range(30)]
            found = await asyncio.gather(*(async_llm.embed(prompt) for prompt in prompts))
            expected = [output.embedding for output in llm.embed(prompts)]
            assert [output.embedding for output in found] == expected
            metrics = [output.metrics for output in found if output.metrics is not None]
            assert [one.prompt_tokens for one in metrics] == list(range(40, 10, -1))
            with pytest.raises(PromptTooLong):
                await async_llm.embed([1] * (CONTEXT + 1))

    asyncio.run(scene())


def test_what_cannot_be_embedded_is_refused(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match="pooling must be one of mean, last, not 'max'"):
        llm.embed("hello", pooling="max")
    with pytest.raises(BadInput, match="empty"):
        llm.embed([[]])
    with pytest.raises(PromptTooLong):
        llm.embed([[1] * (CONTEXT + 1)])
    assert len(llm.embed([[1] * CONTEXT])[0].embedding) == llm.spec.d_model
    hidden = llm.engine._passes.hidden

    def broken(step: Any) -> Any:
        return hidden(step) * float("nan")

    monkeypatch.setattr(llm.engine._passes, "hidden", broken)
    with pytest.raises(PellucidError, match="hidden states are no numbers"):
        llm.embed("hello")
