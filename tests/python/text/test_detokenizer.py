"""The incremental detokenizer never differs from decoding the whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.core.errors import BadInput
from pellucid.text import Detokenizer
from tests.python.text.nasty import NASTY
from tests.python.text.vocabularies import byte_tokenizer, every_tokenizer, spm_tokenizer

TOKENIZERS = every_tokenizer()


@pytest.mark.parametrize("name", sorted(TOKENIZERS))
@given(data=st.data(), skip=st.booleans(), continuation=st.booleans())
def test_parts_join_to_the_whole(
    name: str, data: st.DataObject, skip: bool, continuation: bool
) -> None:
    tokenizer = TOKENIZERS[name]
    random_ids = st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=40)
    of_text = st.sampled_from(NASTY).map(tokenizer.encode)
    ids = data.draw(random_ids | of_text)
    detokenizer = Detokenizer(tokenizer, skip, continuation=continuation)
    parts = [detokenizer.push(token) for token in ids] + [detokenizer.finish()]
    assert "".join(parts) == tokenizer.decode(ids, skip, continuation=continuation)


@given(text=st.text(max_size=30))
def test_never_half_a_character(text: str) -> None:
    """Byte by byte, each part is a whole beginning of the text."""
    tokenizer = byte_tokenizer()
    detokenizer = Detokenizer(tokenizer)
    shown = ""
    for token in tokenizer.encode(text, add_special=False):
        shown += detokenizer.push(token)
        assert text.startswith(shown)
    assert shown == text and detokenizer.finish() == ""


def test_an_unfinished_character_is_replaced_at_the_end() -> None:
    tokenizer = byte_tokenizer()
    detokenizer = Detokenizer(tokenizer)
    ids = [piece.id for piece in tokenizer.pieces("\u20ac", add_special=False)][:2]
    assert [detokenizer.push(token) for token in ids] == ["", ""]
    assert detokenizer.finish() == "\ufffd" == tokenizer.decode(ids)


def test_bytes_that_cannot_go_on_are_replaced_at_once() -> None:
    tokenizer = byte_tokenizer()
    detokenizer = Detokenizer(tokenizer)
    lead = tokenizer.pieces("\u20ac", add_special=False)[0].id
    letter = tokenizer.encode("a", add_special=False)[0]
    assert detokenizer.push(lead) == ""
    assert detokenizer.push(letter) == "\ufffda"


def test_a_prefix_space_is_stripped_once() -> None:
    tokenizer = spm_tokenizer("bpe")
    space = tokenizer.encode(" ", add_special=False)[0]
    detokenizer = Detokenizer(tokenizer)
    data = tokenizer.vocabulary.token_bytes(space)
    assert detokenizer.push(space) == data.decode()[1:]
    assert detokenizer.push(space) == data.decode()


def test_unknown_ids_are_refused() -> None:
    with pytest.raises(BadInput, match="no token id"):
        Detokenizer(byte_tokenizer()).push(10**6)
