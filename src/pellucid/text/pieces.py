"""SentencePiece vocabularies that merge by score (Kudo & Richardson 2018, `model_type: bpe`).

Two neighbours merge when together they are a token; the token with the highest score first, and
of equal scores the leftmost. A list of ranked merges says the same, and the `tokenizers` library
can run it, unless scores repeat or a token has a character that is none itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cached_property

from pellucid.text.encoders import Span
from pellucid.text.merging import Priority, merge_symbols
from pellucid.text.vocabulary import SPACE_MARK
from pellucid.text.width import Width

Scores = Mapping[str, float]
_CACHED_SEGMENTS = 1 << 16


def ranked_merges(scores: Scores) -> list[tuple[str, str]]:
    """Every way to make each token of two, best token first."""
    merges = [
        (-score, token[:cut], token[cut:])
        for token, score in scores.items()
        for cut in range(1, len(token))
        if token[:cut] in scores and token[cut:] in scores
    ]
    merges.sort()
    return [(left, right) for _, left, right in merges]


def ranks_express(scores: Scores) -> bool:
    """Whether ranked merges give the same tokens as the scores."""
    longer = {token: score for token, score in scores.items() if len(token) > 1}
    repeated = any(count > 1 for count in Counter(longer.values()).values())
    return not repeated and all(char in scores for char in set().union(*map(set, longer)))


def score_priority(scores: Scores) -> Priority:
    def priority(left: str, right: str) -> float | None:
        score = scores.get(left + right)
        return None if score is None else -score

    return priority


class Segmenter:
    """Cuts a text wherever no token spans the two neighbours: the stretches, mostly words, merge
    apart from each other, whatever the scores."""

    def __init__(self, scores: Scores) -> None:
        self._pairs = {token[i : i + 2] for token in scores for i in range(len(token) - 1)}

    def cut(self, text: str) -> list[str]:
        if not text:
            return []
        cuts = [i for i in range(1, len(text)) if text[i - 1 : i + 1] not in self._pairs]
        return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


class ScoreEncoder:
    """Merges by score in Python, for vocabularies that ranks cannot express. Segments are
    remembered."""

    def __init__(
        self,
        scores: Scores,
        id_of: Mapping[str, int],
        byte_ids: Mapping[int, int],
        unk_id: int | None,
        space_prefix: bool,
    ) -> None:
        self._priority = score_priority(scores)
        self._id_of = {token: id_of[token] for token in scores}
        self._byte_ids = byte_ids
        self._unk_id = unk_id
        self._space_prefix = space_prefix
        self._segmenter = Segmenter(scores)
        self._seen: dict[str, list[str]] = {}

    @cached_property
    def width(self) -> Width | None:
        if len(self._byte_ids) < 256:
            return None  # what has no token fuses, or vanishes
        return Width(max(map(len, self._id_of), default=1), in_bytes=False)

    def ids(self, text: str, at_start: bool) -> list[int]:
        return self.spans(text, at_start)[0]

    def spans(self, text: str, at_start: bool) -> tuple[list[int], list[Span]]:
        ids: list[int] = []
        spans: list[Span] = []
        escaped = text.replace(" ", SPACE_MARK)
        shift = int(self._space_prefix)
        position = -shift
        for segment in self._segmenter.cut(SPACE_MARK * shift + escaped):
            for symbol in self._merged(segment):
                span = (max(position, 0), position + len(symbol))
                for token in self._symbol_ids(symbol):
                    fused = token == self._unk_id and ids and ids[-1] == token
                    if fused:
                        spans[-1] = (spans[-1][0], span[1])
                    else:
                        ids.append(token)
                        spans.append(span)
                position += len(symbol)
        return ids, spans

    def _merged(self, segment: str) -> list[str]:
        known = self._seen.get(segment)
        if known is None:
            known = merge_symbols(list(segment), self._priority)
            if len(self._seen) < _CACHED_SEGMENTS and len(segment) < 256:
                self._seen[segment] = known
        return known

    def _symbol_ids(self, symbol: str) -> list[int]:
        token = self._id_of.get(symbol)
        if token is not None:
            return [token]
        data = symbol.encode()
        if all(byte in self._byte_ids for byte in data):
            return [self._byte_ids[byte] for byte in data]
        return [] if self._unk_id is None else [self._unk_id]
