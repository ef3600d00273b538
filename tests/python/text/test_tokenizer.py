"""Encoding, decoding, offsets and merges, whatever the vocabulary."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.core.errors import BadInput
from pellucid.text import Tokenizer
from tests.python.text.nasty import BLANKS, NASTY
from tests.python.text.vocabularies import (
    byte_tokenizer,
    every_tokenizer,
    kind_metadata,
    kind_tokenizer,
    spm_tokenizer,
)

TOKENIZERS = every_tokenizer()
NAMES = sorted(TOKENIZERS)
BYTE_LEVEL = ["bytes", "gpt-2", "llama-bpe"]
TEXT = st.text(max_size=60) | st.sampled_from(NASTY + BLANKS)


@pytest.mark.parametrize("name", BYTE_LEVEL)
@given(text=TEXT)
def test_byte_level_round_trip(name: str, text: str) -> None:
    tokenizer = TOKENIZERS[name]
    ids = tokenizer.encode(text, add_special=False)
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


@pytest.mark.parametrize("name", ["gemma4", "spm", "spm flat", "spm no prefix", "unigram"])
@given(text=TEXT)
def test_byte_fallback_round_trip(name: str, text: str) -> None:
    """Byte fallback spells what no piece does; only U+2581 itself reads as a space, and the text
    behind an added token gets a space put before it."""
    tokenizer = TOKENIZERS[name]
    ids = tokenizer.encode(text, add_special=False)
    lossless = name != "unigram" or not text.endswith("\0")
    lossless = lossless and not any(char in text for char in ("\u2581", "\0", "<mark"))
    if lossless:
        assert tokenizer.decode(ids, skip_special_tokens=False) == text


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60)
@given(text=TEXT, special=st.booleans())
def test_pieces_tell_what_encode_does(name: str, text: str, special: bool) -> None:
    tokenizer = TOKENIZERS[name]
    pieces = tokenizer.pieces(text, parse_special=special)
    assert [piece.id for piece in pieces] == tokenizer.encode(text, parse_special=special)
    reached = 0
    for piece in pieces:
        assert 0 <= piece.start <= piece.end <= len(text)
        assert piece.start <= reached + 1 and piece.end >= piece.start
        reached = max(reached, piece.end)
        assert piece.bytes == tokenizer.token_bytes(piece.id)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "unigram"])
@settings(max_examples=60)
@given(text=TEXT)
def test_merging_step_by_step_gives_the_same_tokens(name: str, text: str) -> None:
    """The merges, applied one by one in Python, against the library in Rust."""
    tokenizer = TOKENIZERS[name]
    pieces = tokenizer.merge_steps(text)
    ids = [token for piece in pieces for token in piece.ids]
    assert ids == tokenizer.encode(text, add_special=False)
    for piece in pieces:
        assert len(piece.symbols) - len(piece.steps) <= max(len(piece.ids), 1)


def test_merges_come_in_rank_order_where_nothing_interferes() -> None:
    (piece,) = kind_tokenizer("gpt-2").merge_steps("aaaa")
    assert [(step.left, step.right, step.merged) for step in piece.steps] == [
        ("a", "a", "aa"),
        ("a", "a", "aa"),
        ("aa", "aa", "aaaa"),
    ]
    assert [step.position for step in piece.steps] == [0, 2, 0]
    assert piece.steps[0].rank == piece.steps[1].rank != piece.steps[2].rank


def test_offsets_of_a_split_character() -> None:
    pieces = byte_tokenizer().pieces("a\u20acb", add_special=False)
    assert [piece.bytes for piece in pieces] == [b"a", b"\xe2", b"\x82", b"\xac", b"b"]
    assert [(piece.start, piece.end) for piece in pieces] == [(0, 1)] + [(1, 2)] * 3 + [(2, 3)]


def test_user_defined_tokens_match_and_control_tokens_do_not() -> None:
    tokenizer = kind_tokenizer("gpt-2")
    ids = tokenizer.vocabulary.id_of
    plain = tokenizer.encode("<mark><|control|>", add_special=False)
    assert plain[0] == ids["<mark>"]
    assert ids["<|control|>"] not in plain
    parsed = tokenizer.encode("<mark><|control|>", parse_special=True, add_special=False)
    assert parsed == [ids["<mark>"], ids["<|control|>"]]


def test_longest_added_token_wins() -> None:
    tokenizer = kind_tokenizer("gpt-2")
    ids = tokenizer.encode("<mark >", add_special=False)
    assert ids[0] == tokenizer.vocabulary.id_of["<mark "]


def test_bos_and_eos_as_the_file_says() -> None:
    metadata = kind_metadata("llama-bpe")
    bos = metadata["tokenizer.ggml.bos_token_id"]
    tokenizer = Tokenizer.from_gguf(metadata, "f")
    assert tokenizer.add_bos and tokenizer.encode("")[:1] == [bos]
    assert tokenizer.encode("", add_special=False) == []
    metadata["tokenizer.ggml.add_bos_token"] = False
    metadata["tokenizer.ggml.add_eos_token"] = True
    tokenizer = Tokenizer.from_gguf(metadata, "f")
    assert tokenizer.encode("") == [metadata["tokenizer.ggml.eos_token_id"]]
    assert [piece.id for piece in tokenizer.pieces("")] == tokenizer.encode("")


def test_gemma4_takes_runs_of_newlines_whole() -> None:
    metadata = kind_metadata("gemma4")
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    metadata["tokenizer.ggml.tokens"] = [*tokens, "\n" * 13]  # type: ignore[misc]
    metadata["tokenizer.ggml.token_type"] = np.append(types, np.int32(1))  # type: ignore[arg-type]
    tokenizer = Tokenizer.from_gguf(metadata, "f")
    run, text = len(tokens), "a" + "\n" * 13 + "b"  # type: ignore[arg-type]
    assert tokenizer.encode(text, add_special=False)[1:-1] == [run]
    assert [piece.ids for piece in tokenizer.merge_steps(text)][1] == [run]
    assert run not in tokenizer.encode("\n" * 14)
    piece = tokenizer.pieces(text, add_special=False)[1]
    assert (piece.start, piece.end) == (1, 14)


def test_phi3_swallows_blanks_behind_its_special_tokens() -> None:
    metadata = kind_metadata("gpt-2") | {"general.name": "Phi-3 mini"}
    tokenizer = Tokenizer.from_gguf(metadata, "f")
    spaced = tokenizer.encode("<|control|> \n x", parse_special=True, add_special=False)
    tight = tokenizer.encode("<|control|>x", parse_special=True, add_special=False)
    assert spaced == tight


def test_bytes_that_are_no_utf8_become_replacement_characters() -> None:
    tokenizer = kind_tokenizer("gpt-2")
    assert tokenizer.encode(b"a\xffb\xe2\x82") == tokenizer.encode("a\ufffdb\ufffd\ufffd")
    assert tokenizer.encode("\u20ac".encode()) == tokenizer.encode("\u20ac")


@pytest.mark.parametrize("text", ["\ud83d", "a\udc00b"])
def test_lone_surrogates_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match="lone surrogate"):
        byte_tokenizer().encode(text)


@pytest.mark.parametrize("text", [None, 3, ["a"]])
def test_what_is_no_text_is_refused(text: object) -> None:
    with pytest.raises(BadInput, match="must be a string"):
        byte_tokenizer().encode(text)  # type: ignore[arg-type]


@pytest.mark.parametrize("unit", [" ", "\n", "a"])
def test_runs_that_would_make_the_library_panic_are_refused(
    unit: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BadInput, match="from character 0 on, 4000000 characters"):
        kind_tokenizer("qwen2").encode(unit * 12_000_000)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("token_id", [-1, 257, 1 << 40])
def test_unknown_ids_are_refused(token_id: int) -> None:
    for call in (byte_tokenizer().token_bytes, byte_tokenizer().token_text):
        with pytest.raises(BadInput, match="no token id"):
            call(token_id)
    with pytest.raises(BadInput, match="no token id"):
        byte_tokenizer().decode([0, token_id])


def test_special_tokens_are_left_out_of_decoded_text_unless_asked_for() -> None:
    tokenizer = byte_tokenizer()
    assert tokenizer.decode([66, 256]) == "B"
    assert tokenizer.decode([66, 256], skip_special_tokens=False) == "B<|end|>"
    assert tokenizer.special_ids == {256} and tokenizer.eos_ids == (256,)


def test_leading_space_goes_where_encoding_put_one() -> None:
    tokenizer = spm_tokenizer("bpe")
    ids = tokenizer.encode("the in", add_special=False)
    assert tokenizer.decode(ids) == "the in"
    assert tokenizer.decode(ids, continuation=True) == " the in"
    without = spm_tokenizer("bpe", "no_prefix")
    assert without.decode(without.encode(" the", add_special=False)) == " the"


def test_fingerprint_tells_vocabularies_apart() -> None:
    one = Tokenizer.from_gguf(kind_metadata("gpt-2"), "a")
    two = Tokenizer.from_gguf(kind_metadata("qwen2"), "b")
    assert one.fingerprint == two.fingerprint  # ids mean the same, however text is cut
    metadata = kind_metadata("gpt-2")
    metadata["tokenizer.ggml.tokens"][-1] = "<|other|>"  # type: ignore[index]
    assert Tokenizer.from_gguf(metadata, "c").fingerprint != one.fingerprint


@pytest.mark.parametrize("unit", ["a", " ", "\n", "1", "\u4f60", "ab ", "\U0001f469\u200d", "Aa"])
@pytest.mark.parametrize("name", ["gpt-2", "llama-bpe", "spm", "unigram"])
def test_long_repetitions_encode_and_come_back(name: str, unit: str) -> None:
    tokenizer = TOKENIZERS[name]
    text = unit * (60_000 // len(unit))
    assert tokenizer.decode(tokenizer.encode(text, add_special=False)) == text


@pytest.mark.parametrize("name", NAMES)
def test_long_texts_are_as_their_halves(name: str) -> None:
    """They go another way through the library, which lets other threads work meanwhile."""
    tokenizer = TOKENIZERS[name]
    line = "".join(NASTY).replace("\n", " ") + " the end.\n"
    half = line * (4000 // len(line))
    assert len(half) < 4096 < 2 * len(half)
    long = tokenizer.encode(half + half, add_special=False)
    assert [piece.id for piece in tokenizer.pieces(half + half, add_special=False)] == long
    cut = half.rfind("\n") + 1
    shorter = tokenizer.encode(half[:cut], add_special=False)
    assert long[: len(shorter) - 4] == shorter[:-4]
