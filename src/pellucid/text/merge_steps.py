"""How a text becomes tokens, merge by merge: what `pellucid tokenize --merges` shows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tokenizers import PreTokenizedString, models
from tokenizers import Tokenizer as Library

from pellucid.core.errors import BadInput
from pellucid.text.added import AddedTokens
from pellucid.text.merging import Merge, Priority, merge_symbols
from pellucid.text.pieces import Scores, Segmenter, score_priority
from pellucid.text.vocabulary import SPACE_MARK, Vocabulary


@dataclass(frozen=True, slots=True)
class MergeStep:
    """Two neighbours became one token. `position` is where `left` begins among the piece's first
    symbols; `rank` counts merges from 0 (None where scores decide, and `score` is set)."""

    left: str
    right: str
    merged: str
    id: int
    position: int
    rank: int | None
    score: float | None


@dataclass(frozen=True, slots=True)
class MergedPiece:
    """A stretch of text that merges by itself: its symbols at first, each merge in order, and
    the tokens at the end. No merges: it is one token, or nothing in it merges. Offsets are in
    characters; symbols are shown as text, U+FFFD for part of a character."""

    text: str
    start: int
    end: int
    symbols: list[str]
    steps: list[MergeStep]
    tokens: list[str]
    ids: list[int]


class Merger(Protocol):
    """Offsets are relative to the text given. `at_start`: nothing came before it."""

    def pieces(self, text: str, at_start: bool) -> list[MergedPiece]: ...


class RankMerger:
    """Merges by rank, over the pieces that the library's own pre-tokenizer cuts. Pieces in `whole`
    are one token as they stand."""

    def __init__(
        self,
        library: Library,
        merges: Sequence[Sequence[str]],
        vocabulary: Vocabulary,
        whole: Mapping[str, int],
        later: Library | None = None,
        added: AddedTokens | None = None,
    ) -> None:
        self._library = library
        self._later = later or library
        self._vocabulary = vocabulary
        self._whole = whole
        self._added = added or AddedTokens(())
        self._ranks: dict[tuple[str, str], int] = {}
        for rank, (left, right) in enumerate(merges):
            self._ranks.setdefault((left, right), rank)

    def pieces(self, text: str, at_start: bool) -> list[MergedPiece]:
        pieces = []
        for fragment in self._added.split(text):
            if fragment.token is not None:
                pieces.append(one_token(fragment.text, fragment.start, fragment.token.id))
                continue
            for word, (start, end) in self._words(fragment.text, at_start and not fragment.start):
                piece = self._piece(word, fragment.text[start:end])
                pieces.append(
                    replace(piece, start=fragment.start + start, end=fragment.start + end)
                )
        return pieces

    def _words(self, text: str, at_start: bool) -> list[tuple[str, tuple[int, int]]]:
        library = self._library if at_start else self._later
        state = PreTokenizedString(text)
        if library.normalizer is not None:
            state.normalize(library.normalizer.normalize)
        if library.pre_tokenizer is not None:
            library.pre_tokenizer.pre_tokenize(state)
        splits = state.get_splits(offset_referential="original", offset_type="char")
        return [(word, span) for word, span, _ in splits if word]

    def _piece(self, word: str, text: str) -> MergedPiece:
        if word in self._whole:
            return one_token(text, 0, self._whole[word])
        symbols = _symbols(word, self._vocabulary)
        return merged_piece(
            text, symbols, lambda left, right: self._ranks.get((left, right)), self._vocabulary
        )


class ScoreMerger:
    """Merges by score, over stretches that no token runs out of."""

    def __init__(self, scores: Scores, vocabulary: Vocabulary, space_prefix: bool) -> None:
        self._priority = score_priority(scores)
        self._segmenter = Segmenter(scores)
        self._vocabulary = vocabulary
        self._space_prefix = space_prefix

    def pieces(self, text: str, at_start: bool) -> list[MergedPiece]:
        pieces = []
        position = -int(self._space_prefix)
        for segment in self._segmenter.cut(SPACE_MARK * -position + text.replace(" ", SPACE_MARK)):
            start, end = max(position, 0), position + len(segment)
            position = end
            symbols = [*segment]
            piece = merged_piece(
                text[start:end], symbols, self._priority, self._vocabulary, by_score=True
            )
            pieces.append(replace(piece, start=start, end=end))
        return pieces


def library_merger(
    library: Library, later: Library | None, vocabulary: Vocabulary, added: AddedTokens
) -> Merger:
    """The merger of a tokenizer.json. Raises `BadInput` when its model does not merge."""
    if not isinstance(library.model, models.BPE):
        raise BadInput(
            f"this tokenizer does not merge pairs: it is a {type(library.model).__name__} model, "
            "which chooses its tokens another way"
        )
    state = json.loads(library.model.__getstate__())
    merges = [m.split(" ", 1) if isinstance(m, str) else m for m in state["merges"]]
    whole = vocabulary.id_of if state.get("ignore_merges") else {}
    return RankMerger(library, merges, vocabulary, whole, later, added)


def one_token(text: str, start: int, token_id: int) -> MergedPiece:
    """A stretch of text that is one token, whatever it holds."""
    return MergedPiece(text, start, start + len(text), [text], [], [text], [token_id])


def merged_piece(
    text: str,
    symbols: list[str],
    priority: Priority,
    vocabulary: Vocabulary,
    by_score: bool = False,
) -> MergedPiece:
    trace: list[Merge] = []
    final = merge_symbols(symbols, priority, trace)
    ids = vocabulary.id_of
    shown = _Shown(vocabulary)
    steps = [
        MergeStep(
            shown[merge.left],
            shown[merge.right],
            shown[merge.left + merge.right],
            ids[merge.left + merge.right],
            merge.position,
            None if by_score else int(merge.priority),
            -merge.priority if by_score else None,
        )
        for merge in trace
    ]
    spelled = [name for symbol in final for name in _symbols(symbol, vocabulary, whole=True)]
    known = [name for name in spelled if name in ids]
    return MergedPiece(
        text,
        0,
        len(text),
        [shown[symbol] for symbol in symbols],
        steps,
        [shown[name] for name in known],
        [ids[name] for name in known],
    )


def _symbols(word: str, vocabulary: Vocabulary, whole: bool = False) -> list[str]:
    """The characters of `word` (or `word` itself), by bytes where they are no tokens."""
    names: list[str] = []
    for char in [word] if whole else word:
        data = [f"<0x{byte:02X}>" for byte in char.encode()]
        spell_bytes = char not in vocabulary.id_of and vocabulary.spelling == "pieces"
        names += data if spell_bytes and all(b in vocabulary.id_of for b in data) else [char]
    return names


class _Shown(dict[str, str]):
    """Tokens' names as the text they stand for."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__()
        self._vocabulary = vocabulary

    def __missing__(self, name: str) -> str:
        token_id = self._vocabulary.id_of.get(name)
        known = token_id is not None and self._vocabulary.tokens[token_id] == name
        data = self._vocabulary.token_bytes(token_id) if known and token_id is not None else None
        self[name] = text = name if data is None else data.decode("utf-8", "replace")
        return text
