"""Real vocabularies against llama.cpp's answers, and SmolLM2's chat against transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Library

from pellucid.formats import open_checkpoint
from pellucid.text import Detokenizer, Tokenizer, encode_chat, gguf_chat_templates
from pellucid.text.bytelevel import BYTE_TO_CHAR
from tests.python.text.nasty import NASTY

FIXTURES = Path(__file__).parents[2] / "python" / "text" / "fixtures"


def metadata_of(path: Path) -> dict[str, Any]:
    with open_checkpoint(path) as checkpoint:
        return dict(checkpoint.metadata)


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path) -> Tokenizer:
    return Tokenizer.from_gguf(metadata_of(smollm2_path), smollm2_path)


@pytest.fixture(scope="module")
def qwen(qwen_path: Path) -> Tokenizer:
    return Tokenizer.from_gguf(metadata_of(qwen_path), qwen_path)


def check_against_llama(tokenizer: Tokenizer, name: str) -> None:
    data = json.loads((FIXTURES / name).read_text(encoding="ascii"))
    for text, answers in zip(data["texts"], data["answers"], strict=True):
        for special, answer in zip((False, True), answers, strict=True):
            ids = tokenizer.encode(text, parse_special=special, add_special=False)
            assert ids == answer, repr(text)


def test_smollm2_as_llama_cpp(smollm2: Tokenizer) -> None:
    check_against_llama(smollm2, "llama_smollm2.json")


def test_qwen_as_llama_cpp(qwen: Tokenizer) -> None:
    check_against_llama(qwen, "llama_qwen2.json")


@pytest.fixture(scope="module")
def smollm2_library(smollm2_path: Path) -> Library:
    """SmolLM2's tokenizer.json as its authors built it: single digits, then GPT-2's cuts."""
    metadata = metadata_of(smollm2_path)
    tokens = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    library = Library(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    library.decoder = decoders.ByteLevel()
    types = metadata["tokenizer.ggml.token_type"]
    library.add_special_tokens([t for t, kind in zip(tokens, types, strict=True) if kind == 3])
    return library


@given(text=st.text(max_size=80) | st.sampled_from(NASTY))
def test_smollm2_as_tokenizers(smollm2: Tokenizer, smollm2_library: Library, text: str) -> None:
    assert smollm2.encode(text, parse_special=True) == smollm2_library.encode(text).ids


@settings(max_examples=50)
@given(text=st.text(max_size=80))
def test_round_trip_of_every_byte_the_vocabulary_has(smollm2: Tokenizer, text: str) -> None:
    """SmolLM2's vocabulary lacks 21 bytes, control characters among them: no text that has them
    can come back, in any implementation."""
    known = smollm2.vocabulary.id_of
    lacking = {byte for byte, char in enumerate(BYTE_TO_CHAR) if char not in known}
    ids = smollm2.encode(text, add_special=False)
    kept = bytes(byte for byte in text.encode() if byte not in lacking)
    assert smollm2.decode(ids, skip_special_tokens=False) == kept.decode("utf-8", "replace")


@given(data=st.data())
def test_streaming_equals_decoding(smollm2: Tokenizer, data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(0, smollm2.vocab_size - 1), max_size=30))
    detokenizer = Detokenizer(smollm2, skip_special_tokens=False)
    shown = "".join(map(detokenizer.push, ids)) + detokenizer.finish()
    assert shown == smollm2.decode(ids, skip_special_tokens=False)


def test_smollm2_end_tokens_and_merges(smollm2: Tokenizer) -> None:
    names = [smollm2.token_text(token) for token in smollm2.eos_ids]
    assert names == ["<|im_end|>", "<|endoftext|>"]
    for text in NASTY:
        ids = [token for piece in smollm2.merge_steps(text) for token in piece.ids]
        assert ids == smollm2.encode(text, add_special=False), repr(text)


CONVERSATIONS = [
    [{"role": "user", "content": "What is the capital of France?"}],
    [
        {"role": "system", "content": "Answer in German."},
        {"role": "user", "content": "Wie sp\u00e4t ist es?\n\n1234 \u4f60\u597d"},
        {"role": "assistant", "content": " Zw\u00f6lf. "},
        {"role": "user", "content": "Danke"},
    ],
]


@pytest.mark.parametrize("messages", CONVERSATIONS)
@pytest.mark.parametrize("prompt", [True, False])
def test_smollm2_chat_as_transformers(
    smollm2: Tokenizer,
    smollm2_library: Library,
    smollm2_path: Path,
    messages: list[dict[str, str]],
    prompt: bool,
) -> None:
    from transformers import PreTrainedTokenizerFast

    templates = gguf_chat_templates(metadata_of(smollm2_path), smollm2_path)
    judge = PreTrainedTokenizerFast(
        tokenizer_object=smollm2_library, bos_token="<|im_start|>", eos_token="<|im_end|>"
    )
    judge.chat_template = templates.sources["default"]
    want = judge.apply_chat_template(messages, add_generation_prompt=prompt)["input_ids"]
    template = templates.choose(smollm2)
    assert encode_chat(smollm2, template, messages, add_generation_prompt=prompt) == want


def test_qwen_library_agrees_where_the_published_rule_is_run(qwen_path: Path) -> None:
    """Qwen2's published expression, run by the library over the same merges, all of NASTY."""
    metadata = metadata_of(qwen_path)
    tokens = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    library = Library(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    published = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(published), "isolated"),
            pre_tokenizers.ByteLevel(False, use_regex=False),
        ]
    )
    tokenizer = Tokenizer.from_gguf(metadata, qwen_path)
    for text in NASTY:
        assert tokenizer.encode(text, add_special=False) == library.encode(text).ids
