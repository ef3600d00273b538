"""A bound on how few tokens a text can be, and what is refused by it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.core.errors import BadInput, PromptTooLong
from pellucid.text import ChatTemplate, encode_chat
from pellucid.text.encoders import MAX_RUN, long_run
from tests.python.text import templates
from tests.python.text.nasty import BLANKS, NASTY
from tests.python.text.test_chat_encode import tokenizer as with_controls
from tests.python.text.vocabularies import byte_tokenizer, every_tokenizer

TOKENIZERS = every_tokenizer()
PARTS = st.text(max_size=20) | st.sampled_from([*NASTY, *BLANKS])
TEXT = st.lists(st.tuples(PARTS, st.integers(1, 9)).map(lambda pair: pair[0] * pair[1])).map(
    "".join
)


@pytest.mark.parametrize("name", sorted(TOKENIZERS))
@given(text=TEXT, special=st.booleans())
def test_no_text_is_fewer_tokens_than_its_bound(name: str, text: str, special: bool) -> None:
    tokenizer = TOKENIZERS[name]
    ids = tokenizer.encode(text, parse_special=special, add_special=False)
    assert tokenizer.fewest_ids(text) <= len(ids)


@pytest.mark.parametrize("name", sorted(set(TOKENIZERS) - {"unigram"}))
@given(data=st.data())
def test_nor_is_a_text_of_long_tokens(name: str, data: st.DataObject) -> None:
    """And the bound is there: of a long text it is more than nothing."""
    tokenizer = TOKENIZERS[name]
    texts = sorted((tokenizer.token_text(i) for i in range(tokenizer.vocab_size)), key=len)
    text = "".join(data.draw(st.lists(st.sampled_from(texts[-30:]), min_size=1, max_size=30)))
    ids = tokenizer.encode(text, parse_special=True, add_special=False)
    assert 1 <= tokenizer.fewest_ids(text) <= len(ids)


def test_the_bound_is_the_longest_token() -> None:
    """One of seven bytes, the control token's name, the others of one."""
    assert byte_tokenizer().fewest_ids("é" * 700) == 1400 // 7


def test_what_may_vanish_has_no_bound() -> None:
    """SentencePiece's unigram models drop blanks and fuse what they do not know."""
    assert TOKENIZERS["unigram"].fewest_ids("word " * 1000) == 0


def test_a_conversation_that_cannot_fit_is_refused_before_it_is_tokenised() -> None:
    tokenizer = with_controls()
    template = ChatTemplate(templates.ALL["chatml"])
    longest = max(len(t) for t in templates.SPECIALS)
    messages = [{"role": "user", "content": "x" * (longest * 5000)}]
    ids = encode_chat(tokenizer, template, messages)
    with pytest.raises(PromptTooLong, match=r"at least 50\d\d tokens and the context holds 4000"):
        encode_chat(tokenizer, template, messages, max_model_len=4000)
    # What only its tokens tell is not decided here, nor what is counted soon enough.
    assert encode_chat(tokenizer, template, messages, max_model_len=len(ids)) == ids
    messages[0]["content"] = "x" * (longest * 50)
    assert encode_chat(tokenizer, template, messages, max_model_len=10)


@given(
    runs=st.lists(st.tuples(st.sampled_from(["a", "b", " ", "\n", "\u3000"]), st.integers(1, 40))),
    most=st.integers(1, 15).map(lambda half: 2 * half),
)
@settings(max_examples=300)
def test_long_runs_are_found_where_they_begin(runs: list[tuple[str, int]], most: int) -> None:
    text = "".join(char * count for char, count in runs)
    found = re.search(rf"\s{{{most}}}|\S{{{most}}}", text)
    assert long_run(text, most) == (None if found is None else found.start())


def test_words_of_a_million_letters_are_looked_through_once() -> None:
    """To look for a run from each of their letters would take half an hour, with every other
    thread waiting."""
    text = ("a" * (MAX_RUN - 1) + " ") * 2
    assert long_run(text, MAX_RUN) is None
    assert long_run(text + "b" * MAX_RUN, MAX_RUN) == 2 * MAX_RUN
    with pytest.raises(BadInput, match=f"from character {MAX_RUN} on"):
        byte_tokenizer().encode("a" * (MAX_RUN - 1) + " " + "b" * MAX_RUN)
