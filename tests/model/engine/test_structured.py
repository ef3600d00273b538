"""Structured outputs on real vocabularies."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from pellucid import LLM, BadInput, SamplingParams
from pellucid.core.structured import StructuredOutputs
from pellucid.engine.loading import tokens_of
from pellucid.formats import open_checkpoint
from pellucid.sampling.grammar import GrammarCompiler
from pellucid.text import Tokenizer

LITERAL = "비빔밥 👩🏽‍🚀 naïve ✅"
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["kind", "brave"]}, "maxItems": 2},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def llm(smollm2_path: Path) -> LLM:
    return LLM(smollm2_path, max_model_len=256, kv_cache_memory_bytes=1 << 28)


def structured(temperature: float = 0.0, **fields: object) -> SamplingParams:
    return SamplingParams(
        temperature=temperature,
        seed=7,
        max_tokens=80,
        structured_outputs=fields,  # type: ignore[arg-type]
    )


def test_answers_hold_their_form_beside_free_ones(llm: LLM) -> None:
    asked = [
        structured(1.0, json=PERSON),
        SamplingParams(temperature=1.0, seed=1, max_tokens=20),
        structured(0.7, choice=[LITERAL]),
        structured(0.0, json=PERSON),
        structured(1.5, regex=r"\d{3}-[A-F]{2}(, \d{1,2}){3}"),
    ]
    prompts = [f"Question {i}: who lives here?" for i in range(len(asked))]
    outputs = llm.generate(prompts, asked)
    for prompt, params, output in zip(prompts, asked, outputs, strict=True):
        [alone] = llm.generate(prompt, params)
        assert output.outputs == alone.outputs
    for output in (outputs[0], outputs[3]):
        jsonschema.validate(json.loads(output.outputs[0].text), PERSON)
    assert outputs[2].outputs[0].text == LITERAL


def test_a_byte_that_no_token_spells_is_said_by_its_request_alone(llm: LLM) -> None:
    free = SamplingParams(temperature=0, max_tokens=5)
    before = llm.generate("hello", free)[0].outputs
    with pytest.raises(BadInput, match="no text that this vocabulary can spell"):
        llm.generate("hello", structured(choice=["a\x04b"]))
    assert llm.generate("hello", free)[0].outputs == before


def check_masks(tokenizer: Tokenizer, rows: int) -> None:
    """Masks of three states of a simple form, against every token spelled out."""
    compiler = GrammarCompiler(tokenizer, tokens_of(tokenizer, rows))
    matcher = compiler.compile(StructuredOutputs(regex="[a-c]{2,4}(\n|é)?")).start()
    spelled = [tokenizer.token_bytes(token) for token in range(tokenizer.vocab_size)]
    whole = [
        letters + end
        for n in range(2, 5)
        for letters in _words(b"abc", n)
        for end in (b"", b"\n", "é".encode())
    ]
    prefixes = {text[:n] for text in whole for n in range(1, len(text) + 1)}
    so_far = b""
    while True:
        bits = np.unpackbits(matcher.mask().view(np.uint8), bitorder="little")
        assert len(bits) >= rows and not bits[tokenizer.vocab_size :].any()
        allowed = set(np.flatnonzero(bits).tolist())
        expected = {
            token
            for token, data in enumerate(spelled)
            if data and so_far + data in prefixes and token not in tokenizer.special_ids
        }
        ends = set(tokenizer.eos_ids) if so_far in whole else set()
        # Of tokens that spell the same, one is enough.
        assert allowed <= expected | ends and ends <= allowed
        assert {spelled[t] for t in allowed - ends} == {spelled[t] for t in expected}
        if not expected:
            break
        token = min(expected)
        so_far += spelled[token]
        matcher.accept(token)
        if matcher.finished:
            break
    assert so_far in whole
    compiler.close()


def _words(letters: bytes, n: int) -> list[bytes]:
    if n == 0:
        return [b""]
    return [bytes([letter]) + rest for letter in letters for rest in _words(letters, n - 1)]


def test_masks_are_the_tokens_that_fit(llm: LLM) -> None:
    check_masks(llm.tokenizer, llm.spec.vocab_size)


def test_masks_of_a_large_padded_vocabulary(qwen_path: Path) -> None:
    with open_checkpoint(qwen_path) as checkpoint:
        tokenizer = Tokenizer.from_gguf(checkpoint.metadata, qwen_path)
    check_masks(tokenizer, tokenizer.vocab_size + 100)
