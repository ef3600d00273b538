"""Metadata that is wrong gives one error that names the file and the field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.core.errors import BadInput, FormatError, UnsupportedError
from pellucid.text import Tokenizer
from pellucid.text.pretokenizers import PRE_TOKENIZERS
from tests.python.text.vocabularies import kind_metadata, spm_metadata

Metadata = dict[str, Any]
KEY = "tokenizer.ggml."


def changed(**values: object) -> Callable[[], Metadata]:
    """The byte-level vocabulary with keys replaced, or taken out where None."""

    def make() -> Metadata:
        metadata = kind_metadata("gpt-2")
        for key, value in values.items():
            if value is None:
                del metadata[KEY + key]
            else:
                metadata[KEY + key] = value
        return metadata

    return make


def spm_changed(**values: object) -> Callable[[], Metadata]:
    def make() -> Metadata:
        metadata = spm_metadata("bpe", "plain")
        for key, value in values.items():
            metadata[KEY + key] = value
            if value is None:
                del metadata[KEY + key]
        return metadata

    return make


def _tokens() -> list[str]:
    tokens: Any = kind_metadata("gpt-2")[KEY + "tokens"]
    return list(tokens)


def _types(value: int, at: int = 0) -> Any:
    types: Any = kind_metadata("gpt-2")[KEY + "token_type"]
    copy = types.copy()
    copy[at] = value
    return copy


N = len(_tokens())
SPM_N = len(spm_metadata("bpe", "plain")[KEY + "tokens"])  # type: ignore[arg-type]
BROKEN: list[tuple[str, Callable[[], Metadata], str, str]] = [
    ("no model", changed(model=None), "model", "no tokenizer"),
    ("model not text", changed(model=3), "model", "must be a string"),
    ("pre not text", changed(pre=["gpt-2"]), "pre", "must be a string"),
    ("no tokens", changed(tokens=None), "tokens", "missing"),
    ("empty tokens", changed(tokens=[]), "tokens", "missing or empty"),
    ("tokens are numbers", changed(tokens=np.arange(4)), "tokens", "array of strings"),
    ("a token is a number", changed(tokens=["a", 3]), "tokens", "int and str"),
    ("tokens are text", changed(tokens="abc"), "tokens", "array of strings"),
    ("twice", changed(tokens=[*_tokens()[:-1], "a"]), "tokens", "are both 'a'"),
    ("types too short", changed(token_type=np.ones(3, np.int32)), "token_type", f"for {N} tokens"),
    ("types are floats", changed(token_type=np.ones(N)), "token_type", "array of integers"),
    ("types are text", changed(token_type=["x"] * N), "token_type", "array of integers"),
    ("types have axes", changed(token_type=np.ones((N, 1), np.int32)), "token_type", "shape"),
    ("type 7", changed(token_type=_types(7)), "token_type", "token 0 has type 7"),
    ("type -1", changed(token_type=_types(-1, 5)), "token_type", "token 5 has type -1"),
    ("byte token", changed(token_type=_types(6)), "tokens", "byte token 0"),
    ("no merges", changed(merges=None), "merges", "missing"),
    ("merges are numbers", changed(merges=np.arange(3)), "merges", "array of strings"),
    ("merge of one", changed(merges=["ab"]), "merges", "merge 0"),
    ("merge of strangers", changed(merges=["a b", "zz qq"]), "merges", "unknown token"),
    ("merge makes a stranger", changed(merges=["! \u0143"]), "merges", "merge 0"),
    ("bos is text", changed(bos_token_id="1"), "bos_token_id", "must be a token id"),
    ("bos is a flag", changed(bos_token_id=True), "bos_token_id", "must be a token id"),
    ("bos beyond", changed(bos_token_id=N), "bos_token_id", f"0 to {N - 1}"),
    ("eos negative", changed(eos_token_id=-1), "eos_token_id", "is no token"),
    ("eot beyond", changed(eot_token_id=1 << 40), "eot_token_id", "is no token"),
    ("unk beyond", changed(unknown_token_id=N + 5), "unknown_token_id", "is no token"),
    ("add_bos is a number", changed(add_bos_token=1), "add_bos_token", "true or false"),
    (
        "add_bos without bos",
        changed(add_bos_token=True, bos_token_id=None),
        "add_bos_token",
        "names no token",
    ),
    ("no scores", spm_changed(scores=None), "scores", "missing"),
    ("scores too long", spm_changed(scores=np.ones(SPM_N + 1)), "scores", f"for {SPM_N} tokens"),
    ("score nan", spm_changed(scores=np.full(SPM_N, np.nan)), "scores", "not finite"),
    (
        "scores are text",
        spm_changed(scores=["1"] * SPM_N),
        "scores",
        "array of floating-point numbers",
    ),
    (
        "charsmap",
        lambda: (
            spm_metadata("unigram", "plain")
            | {KEY + "precompiled_charsmap": np.frombuffer(b"\xff" * 40, np.uint8)}
        ),
        "precompiled_charsmap",
        "character map",
    ),
    (
        "charsmap is text",
        lambda: spm_metadata("unigram", "plain") | {KEY + "precompiled_charsmap": "x"},
        "precompiled_charsmap",
        "array of bytes",
    ),
]


@pytest.mark.parametrize(
    ("make", "key", "problem"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN]
)
def test_names_the_file_and_the_field(make: Callable[[], Metadata], key: str, problem: str) -> None:
    with pytest.raises(FormatError) as caught:
        Tokenizer.from_gguf(make(), "model.gguf")
    message = str(caught.value)
    assert message.startswith(f"model.gguf: {KEY}{key}: ") and problem in message
    assert "\n" not in message


@pytest.mark.parametrize(
    "token", ["<0x-1>", "<0x1>", "<0x100>", "<0xGG>", "0x00", "<0x+1>", "<0x 1>"]
)
def test_byte_tokens_are_read_strictly(token: str) -> None:
    metadata = spm_metadata("bpe", "plain")
    types: Any = metadata[KEY + "token_type"]
    tokens: Any = metadata[KEY + "tokens"]
    tokens[int(np.flatnonzero(types == 6)[3])] = token
    with pytest.raises(FormatError, match=f"{KEY}tokens.*is '?{token[:3]}"):
        Tokenizer.from_gguf(metadata, "model.gguf")


@pytest.mark.parametrize("model", ["bert", "rwkv", "plamo2", "no_vocab", "made-up"])
def test_other_models_are_refused_by_name(model: str) -> None:
    with pytest.raises(UnsupportedError, match=f"model.gguf: {KEY}model is '{model}'"):
        Tokenizer.from_gguf(changed(model=model)(), "model.gguf")


def test_an_unknown_kind_is_an_error_and_not_a_guess() -> None:
    with pytest.raises(UnsupportedError, match=f"{KEY}pre is 'gpt-9'"):
        Tokenizer.from_gguf(changed(pre="gpt-9")(), "model.gguf")


def test_the_kinds_the_issue_names_are_known() -> None:
    named = (
        "gpt-2 llama-bpe qwen2 smollm deepseek-llm deepseek-coder falcon starcoder command-r mpt "
        "refact tekken"
    )
    assert set(named.split()) <= set(PRE_TOKENIZERS)


def test_an_empty_token_keeps_its_place() -> None:
    tokens = _tokens()
    metadata = changed(tokens=[*tokens, ""], token_type=np.ones(N + 1, np.int32))()
    assert Tokenizer.from_gguf(metadata, "f").vocab_size == N + 1


def test_end_tokens_by_name_are_control_tokens() -> None:
    types: Any = kind_metadata("gpt-2")[KEY + "token_type"]
    metadata = changed(
        tokens=[*_tokens(), "<|im_end|>", "<end_of_turn>"],
        token_type=np.append(types, np.array([4, 1], np.int32)),
    )()
    tokenizer = Tokenizer.from_gguf(metadata, "f")
    assert tokenizer.eos_ids == (N - 1, N, N + 1)
    assert {N, N + 1} <= tokenizer.special_ids
    assert not {N, N + 1} & set(tokenizer.encode("<|im_end|><end_of_turn>"))


def test_a_token_that_merges_spell_is_text_whatever_its_name() -> None:
    """`</s>` is a closing tag in many byte-level vocabularies."""
    types: Any = kind_metadata("gpt-2")[KEY + "token_type"]
    merges: Any = kind_metadata("gpt-2")[KEY + "merges"]
    metadata = changed(
        tokens=[*_tokens(), "</", "</s", "</s>"],
        token_type=np.append(types, np.array([1, 1, 1], np.int32)),
        merges=["< /", "</ s", "</s >", *merges],
        pre="laguna",
    )()
    tokenizer = Tokenizer.from_gguf(metadata, "f")
    assert tokenizer.eos_ids == (N - 1,)
    metadata[KEY + "merges"] = merges
    assert N + 2 in Tokenizer.from_gguf(metadata, "f").eos_ids


def test_merges_never_spell_a_control_token() -> None:
    """Nor does a piece taken whole: a file's own merges cannot hand text the reins."""
    tokens, types = _tokens(), kind_metadata("gpt-2")[KEY + "token_type"]
    metadata = changed(
        tokens=[*tokens, "zq"],
        token_type=np.append(types, np.array([3], np.int32)),  # type: ignore[arg-type]
        merges=["z q"],
        pre="llama-bpe",
    )()
    tokenizer = Tokenizer.from_gguf(metadata, "f")
    assert N not in tokenizer.encode("zq zq", add_special=False)
    assert N in tokenizer.encode("zq", parse_special=True, add_special=False)


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.text(max_size=3),
    st.lists(st.text(max_size=3), max_size=5),
    st.lists(st.integers(-(2**31), 2**31 - 1), max_size=5).map(lambda v: np.array(v, np.int32)),
)
KEYS = ["model", "pre", "tokens", "token_type", "merges", "scores", "bos_token_id", "eos_token_id"]
KEYS += ["add_bos_token", "unknown_token_id", "add_space_prefix", "precompiled_charsmap"]


@settings(max_examples=150)
@given(
    base=st.sampled_from(["gpt-2", "gemma4", "bpe", "unigram"]),
    junk=st.dictionaries(st.sampled_from(KEYS), JUNK, min_size=1, max_size=4),
)
def test_junk_is_an_error_or_a_tokenizer_that_works(base: str, junk: Metadata) -> None:
    metadata = spm_metadata(base, "plain") if base in ("bpe", "unigram") else kind_metadata(base)
    metadata |= {KEY + key: value for key, value in junk.items()}
    try:
        tokenizer = Tokenizer.from_gguf(metadata, "f.gguf")
    except BadInput as error:
        assert "f.gguf" in str(error)
        return
    ids = tokenizer.encode("ab \u20ac<mark>")
    assert all(0 <= token < tokenizer.vocab_size for token in ids)
    tokenizer.decode(ids)
