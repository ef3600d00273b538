"""BPE training against doing it the slow way."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.core.errors import BadInput
from pellucid.text import Tokenizer, train_bpe
from tests.python.text.nasty import NASTY

Word = tuple[int, ...]


def naive_merges(text: str, wanted: int) -> list[tuple[int, int, int]]:
    """Counts every pair anew before each merge."""
    splitter = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    spans = [span for _, span in splitter.pre_tokenize_str(text)]
    words = Counter(tuple(text[a:b].encode()) for a, b in spans)
    merges = []
    for token in range(256, 256 + wanted):
        pairs: Counter[tuple[int, int]] = Counter()
        for word, count in words.items():
            for pair in pairwise(word):
                pairs[pair] += count
        if not pairs or max(pairs.values()) < 2:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append((*best, pairs[best]))
        words = Counter({merged(word, best, token): n for word, n in words.items()})
    return merges


def merged(word: Word, pair: tuple[int, int], token: int) -> Word:
    result: list[int] = []
    for symbol in word:
        if result and (result[-1], symbol) == pair:
            result[-1] = token
        else:
            result.append(symbol)
    return tuple(result)


@settings(max_examples=60)
@given(text=st.text("ab \n\u20acc", max_size=120), wanted=st.integers(0, 25))
def test_as_counting_anew(text: str, wanted: int) -> None:
    learnt = train_bpe([text + "x"], 256 + wanted)
    found = [(merge.left, merge.right, merge.count) for merge in learnt.merges]
    assert found == naive_merges(text + "x", wanted)


def test_opens_in_the_library_and_here(tmp_path: Path) -> None:
    text = "the cat and the dog and the bird " * 5 + "".join(NASTY)
    learnt = train_bpe([text, b"bytes \xff too"], 400, special_tokens=["<|end|>"])
    file = learnt.save(tmp_path)
    assert file.name == "tokenizer.json"
    library = tokenizers.Tokenizer.from_file(str(file))
    ours = Tokenizer.from_folder(tmp_path)
    assert ours.vocab_size == len(learnt) == library.get_vocab_size() == 400
    for sample in [*NASTY, "the cat <|end|> and"]:
        ids = ours.encode(sample, parse_special=True)
        assert ids == library.encode(sample).ids
        assert ours.decode(ids, skip_special_tokens=False) == sample
    end = ours.vocabulary.id_of["<|end|>"]
    assert end == 399 and end not in ours.encode("<|end|>")


def test_the_same_text_gives_the_same_file_however_it_is_cut() -> None:
    parts = ["one two two\n", "three three three\n"]
    whole = train_bpe(["".join(parts)], 300).to_json()
    assert train_bpe(parts, 300).to_json() == whole == train_bpe(reversed(parts), 300).to_json()


def test_progress_counts_to_the_end() -> None:
    seen: list[tuple[int, int]] = []
    train_bpe(["aaaa bbbb aaaa bbbb"], 259, progress=lambda done, of: seen.append((done, of)))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_a_merge_never_takes_a_special_tokens_name() -> None:
    learnt = train_bpe(["ab ab ab abc abc"], 260, special_tokens=["ab"])
    assert b"ab" not in learnt.tokens


def test_stops_when_nothing_repeats() -> None:
    assert train_bpe(["abcdef"], 1000).merges == []


@pytest.mark.parametrize(
    ("size", "specials", "problem"),
    [
        (10, (), "takes 256"),
        (256, ("<s>",), "takes 257"),
        (1 << 30, (), "to 1048576"),
        (300, ("",), "non-empty"),
        (300, ("<s>", "<s>"), "differ"),
        (300, ("a",), "byte's token"),
    ],
)
def test_impossible_requests(size: int, specials: tuple[str, ...], problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        train_bpe(["text"], size, special_tokens=specials)


def test_no_text_is_refused() -> None:
    with pytest.raises(BadInput, match="no text"):
        train_bpe([], 300)
