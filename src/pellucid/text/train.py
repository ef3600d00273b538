"""Byte-pair encoding learnt from text (Sennrich et al. 2016; bytes as in GPT-2).

Start from the 256 bytes. Find the pair of neighbours that occurs most often, make it a token,
replace it everywhere, and repeat until the vocabulary is full. Merges do not cross the pieces
that GPT-2's pre-tokenizer cuts, so each distinct piece is merged once and counted as often as it
occurs, and a merge only revisits the pieces that hold its pair.
"""

from __future__ import annotations

import heapq
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from tokenizers import pre_tokenizers

from pellucid.core.errors import BadInput
from pellucid.text.bytelevel import BYTE_TO_CHAR, CHAR_TO_BYTE, encode_bytes
from pellucid.text.characters import as_text

N_BYTES: Final = 256
MAX_VOCAB: Final = 1 << 20
_CHUNK_CHARS: Final = 1 << 20
_MAX_WORD: Final = 1024  # bytes: what has no blanks for longer is learnt from in parts

Pair = tuple[int, int]
Progress = Callable[[int, int], None]
"""Called with the merges learnt so far and those wanted."""


@dataclass(frozen=True, slots=True)
class LearntMerge:
    """The pair of ids that became `token_id`, and how often it occurred when it did."""

    left: int
    right: int
    token_id: int
    count: int


@dataclass(frozen=True, slots=True)
class LearntVocabulary:
    """Tokens by id: the bytes 0 to 255, then one a merge in the order learnt, then specials."""

    tokens: list[bytes]
    merges: list[LearntMerge]
    special_tokens: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.tokens) + len(self.special_tokens)

    def to_json(self) -> str:
        """The vocabulary as a `tokenizer.json` of the `tokenizers` library."""
        names = [encode_bytes(token) for token in self.tokens]
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
        return json.dumps(
            {
                "version": "1.0",
                "truncation": None,
                "padding": None,
                "added_tokens": [
                    _special(len(names) + index, text)
                    for index, text in enumerate(self.special_tokens)
                ],
                "normalizer": None,
                "pre_tokenizer": {**byte_level, "trim_offsets": True},
                "post_processor": None,
                "decoder": {**byte_level, "trim_offsets": True},
                "model": {
                    "type": "BPE",
                    "dropout": None,
                    "unk_token": None,
                    "continuing_subword_prefix": None,
                    "end_of_word_suffix": None,
                    "fuse_unk": False,
                    "byte_fallback": False,
                    "ignore_merges": False,
                    "vocab": {name: index for index, name in enumerate(names)},
                    "merges": [[names[merge.left], names[merge.right]] for merge in self.merges],
                },
            },
            ensure_ascii=False,
            indent=1,
        )

    def save(self, path: str | Path) -> Path:
        """Writes `tokenizer.json` (into the folder, when `path` is one); returns its path."""
        file = Path(path)
        if file.is_dir():
            file = file / "tokenizer.json"
        file.write_text(self.to_json(), encoding="utf-8")
        return file


def train_bpe(
    texts: Iterable[str | bytes],
    vocab_size: int,
    *,
    special_tokens: Sequence[str] = (),
    progress: Progress | None = None,
) -> LearntVocabulary:
    """Learns a byte-level BPE vocabulary of `vocab_size` tokens, `special_tokens` included.

    Fewer come out when the texts run out of pairs that occur twice. Of pairs that occur equally
    often the one with the lower ids (left, then right) is merged first, so that the same texts
    give the same vocabulary. Raises `BadInput` at a size that cannot be had.
    """
    specials = _checked_specials(special_tokens)
    smallest = N_BYTES + len(specials)
    if not smallest <= vocab_size <= MAX_VOCAB:
        raise BadInput(
            f"a byte-level vocabulary of {vocab_size} tokens cannot be: it takes {smallest} "
            f"(256 bytes and {len(specials)} special tokens) to {MAX_VOCAB}"
        )
    words = _count_words(texts)
    if not words:
        raise BadInput("there is no text to learn from")
    state = _Pairs(words)
    tokens = [bytes([byte]) for byte in range(N_BYTES)]
    merges: list[LearntMerge] = []
    wanted = vocab_size - smallest
    while len(merges) < wanted:
        best = state.most_frequent()
        if best is None:
            break
        pair, count = best
        if encode_bytes(tokens[pair[0]] + tokens[pair[1]]) in specials:
            state.forbid(pair)  # the name is taken
            continue
        merges.append(LearntMerge(*pair, len(tokens), count))
        state.merge(pair, len(tokens))
        tokens.append(tokens[pair[0]] + tokens[pair[1]])
        if progress is not None:
            progress(len(merges), wanted)
    return LearntVocabulary(tokens, merges, specials)


class _Pairs:
    """How often each pair of neighbours occurs, and in which words, kept up to date."""

    def __init__(self, words: Counter[bytes]) -> None:
        self._words = [list(word) for word in words]
        self._counts = list(words.values())
        self._pairs: defaultdict[Pair, int] = defaultdict(int)
        self._places: defaultdict[Pair, set[int]] = defaultdict(set)
        self._forbidden: set[Pair] = set()
        for index, word in enumerate(self._words):
            for pair in pairwise(word):
                self._pairs[pair] += self._counts[index]
                self._places[pair].add(index)
        self._queue = [(-count, pair) for pair, count in self._pairs.items()]
        heapq.heapify(self._queue)

    def most_frequent(self) -> tuple[Pair, int] | None:
        """The pair that occurs most often, at least twice; None when there is none."""
        while self._queue:
            negative, pair = heapq.heappop(self._queue)
            count = self._pairs.get(pair, 0)
            if count < 2:
                continue
            if count == -negative:
                return pair, count
            heapq.heappush(self._queue, (-count, pair))  # it has become rarer since
        return None

    def forbid(self, pair: Pair) -> None:
        """Leaves `pair` unmerged for good."""
        del self._pairs[pair]
        self._forbidden.add(pair)

    def merge(self, pair: Pair, token: int) -> None:
        """Replaces `pair` by `token` in every word that holds it."""
        changed: defaultdict[Pair, int] = defaultdict(int)
        for index in self._places.pop(pair):
            self._merge_in(index, pair, token, changed)
        del self._pairs[pair]
        changed.pop(pair, None)
        for other, difference in changed.items():
            if other in self._forbidden:
                continue
            self._pairs[other] += difference
            # Only what grew needs a new entry: what shrank is found out when it comes up.
            if difference > 0:
                heapq.heappush(self._queue, (-self._pairs[other], other))

    def _merge_in(
        self, index: int, pair: Pair, token: int, changed: defaultdict[Pair, int]
    ) -> None:
        word, count = self._words[index], self._counts[index]
        merged = _replace(word, pair, token)
        for old in pairwise(word):
            changed[old] -= count
        for new in pairwise(merged):
            changed[new] += count
            self._places[new].add(index)
        self._words[index] = merged


def _replace(word: list[int], pair: Pair, token: int) -> list[int]:
    merged = []
    position = 0
    while position < len(word):
        if word[position : position + 2] == [*pair]:
            merged.append(token)
            position += 2
        else:
            merged.append(word[position])
            position += 1
    return merged


def _count_words(texts: Iterable[str | bytes]) -> Counter[bytes]:
    """Pieces that GPT-2's pre-tokenizer cuts, with how often each occurs."""
    splitter = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    counts: Counter[str] = Counter()
    for text in texts:
        for chunk in _chunks(as_text(text)):
            counts.update(piece for piece, _ in splitter.pre_tokenize_str(chunk))
    words: Counter[bytes] = Counter()
    for piece, count in counts.items():
        word = bytes(map(CHAR_TO_BYTE.__getitem__, piece))
        for start in range(0, len(word), _MAX_WORD):
            words[word[start : start + _MAX_WORD]] += count
    return words


def _chunks(text: str) -> Iterable[str]:
    """Stretches of about a million characters, cut behind a newline with no other blank beside
    it, where the pre-tokenizer cuts too."""
    start = 0
    for cut in _LONE_NEWLINE.finditer(text):
        if cut.start() + 1 - start >= _CHUNK_CHARS:
            yield text[start : cut.start() + 1]
            start = cut.start() + 1
    yield text[start:]


_LONE_NEWLINE: Final = re.compile(r"(?<=\S)\n(?=\S)")


def _special(token_id: int, text: str) -> dict[str, object]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": token_id, "content": text, **flags, "special": True}


def _checked_specials(special_tokens: Sequence[str]) -> tuple[str, ...]:
    specials = tuple(special_tokens)
    for text in specials:
        if not isinstance(text, str) or not text:
            raise BadInput(f"special tokens must be non-empty strings, not {text!r}")
        as_text(text)
    if taken := [text for text in specials if text in BYTE_TO_CHAR]:
        raise BadInput(f"{taken[0]!r} is a byte's token already: choose a longer special token")
    if len(set(specials)) != len(specials):
        raise BadInput("special tokens must differ from each other")
    return specials
