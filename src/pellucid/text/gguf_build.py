"""Builds the encoder that GGUF metadata describes, through the `tokenizers` library."""

from __future__ import annotations

import re
from operator import methodcaller

from tokenizers import Regex, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Library

from pellucid.core.errors import FormatError
from pellucid.text.encoders import Encoder, LibraryEncoder, WholeLinesEncoder
from pellucid.text.gguf_vocab import PREFIX, GgufTokenizer
from pellucid.text.pieces import ScoreEncoder, ranked_merges, ranks_express
from pellucid.text.pretokenizers import Cut, PreTokenizer
from pellucid.text.vocabulary import SPACE_MARK, TokenKind, byte_value


def build_encoder(source: GgufTokenizer) -> Encoder:
    """Raises `FormatError` at merges or a character map that do not fit the vocabulary."""
    if source.rule is not None:
        return _rank_encoder(source, source.rule)
    if source.model == "t5":
        return _unigram_encoder(source)
    return _score_encoder(source)


def split_merges(source: GgufTokenizer) -> list[tuple[str, str]]:
    if set(map(_count_spaces, source.merges)) == {1}:  # all at once is thrice as fast
        parts = " ".join(source.merges).split(" ")
        return list(zip(parts[::2], parts[1::2], strict=True))
    return [(left, right) for left, _, right in (m.partition(" ") for m in source.merges)]


_count_spaces = methodcaller("count", " ")


def text_tokens(source: GgufTokenizer) -> dict[str, int]:
    """Tokens that text may become: control tokens are not among them, whatever merges say."""
    vocabulary = source.vocabulary
    tokens = dict(vocabulary.id_of)
    for token_id in vocabulary.ids_of_kind(TokenKind.CONTROL, TokenKind.UNKNOWN):
        del tokens[vocabulary.tokens[token_id]]
    return tokens


def _rank_encoder(source: GgufTokenizer, rule: PreTokenizer) -> Encoder:
    tokens = text_tokens(source)
    try:
        model = _bpe(tokens, split_merges(source), rule)
    except Exception:
        model = _bpe(tokens, _usable_merges(source, tokens), rule)
    library = Library(model)
    library.pre_tokenizer = _pre_tokenizer(rule)
    if rule.escape_spaces:
        library.normalizer = normalizers.Replace(" ", SPACE_MARK)
    encoder = LibraryEncoder(library)
    if not rule.whole_newline_runs:
        return encoder
    return WholeLinesEncoder(encoder, newline_runs(tokens))


def _pre_tokenizer(rule: PreTokenizer) -> pre_tokenizers.PreTokenizer:
    splits = [split_rule(split) for split in rule.splits]
    if rule.byte_level:
        splits.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    return pre_tokenizers.Sequence(splits)


def cuts_of(rule: PreTokenizer, text: str) -> list[str]:
    """The pieces that `rule` cuts a text into, in its alphabet."""
    return [piece for piece, _ in _pre_tokenizer(rule).pre_tokenize_str(text)]


def newline_runs(tokens: dict[str, int]) -> dict[str, int]:
    return {token: token_id for token, token_id in tokens.items() if not token.strip("\n")}


def split_rule(split: str | Cut) -> pre_tokenizers.PreTokenizer:
    if isinstance(split, Cut):
        return pre_tokenizers.Split(Regex(split.pattern), "merged_with_next")
    return pre_tokenizers.Split(Regex(split), "isolated")


def _bpe(tokens, merges, rule: PreTokenizer):  # type: ignore[no-untyped-def]
    return models.BPE(
        vocab=tokens,
        merges=merges,
        ignore_merges=rule.ignore_merges,
        byte_fallback=not rule.byte_level,
    )


def _usable_merges(source: GgufTokenizer, tokens: dict[str, int]) -> list[tuple[str, str]]:
    """Merges without those of control tokens. Raises `FormatError` at one that names no token."""
    usable = []
    known = source.vocabulary.id_of
    for rank, merge in enumerate(source.merges):
        left, gap, right = merge.partition(" ")
        if not (gap and left in known and right in known and left + right in known):
            raise FormatError(
                source.path, f"{PREFIX}merges", f"merge {rank} ({merge!r}) names an unknown token"
            )
        if left in tokens and right in tokens and left + right in tokens:
            usable.append((left, right))
    return usable


def _score_encoder(source: GgufTokenizer) -> Encoder:
    scores = piece_scores(source)
    byte_ids = _byte_ids(source)
    unk = source.unk_id
    if not ranks_express(scores):
        return ScoreEncoder(scores, source.vocabulary.id_of, byte_ids, unk, source.add_space_prefix)
    vocabulary = source.vocabulary
    tokens = {token: vocabulary.id_of[token] for token in scores}
    tokens |= {f"<0x{byte:02X}>": token_id for byte, token_id in byte_ids.items()}
    unk_token = vocabulary.tokens[unk] if unk is not None else None
    if unk is not None and unk_token is not None:
        tokens[unk_token] = unk
    library = Library(
        models.BPE(
            vocab=tokens,
            merges=ranked_merges(scores),
            unk_token=unk_token,
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    library.normalizer = _escaping(source.add_space_prefix)
    if not any(_INNER_SPACE.search(token) for token in scores):
        library.pre_tokenizer = pre_tokenizers.Split(Regex(_WORD), "isolated")
    return LibraryEncoder(library)


# No token runs from a word into the next space: words merge apart, which the library remembers.
_INNER_SPACE = re.compile(f"[^{SPACE_MARK}]{SPACE_MARK}")
_WORD = f"{SPACE_MARK}+[^{SPACE_MARK}]*|[^{SPACE_MARK}]+"


def _escaping(space_prefix: bool) -> normalizers.Normalizer:
    escape = normalizers.Replace(" ", SPACE_MARK)
    if not space_prefix:
        return escape
    return normalizers.Sequence([normalizers.Prepend(SPACE_MARK), escape])


def piece_scores(source: GgufTokenizer) -> dict[str, float]:
    """Scores of the tokens that text may become by merging."""
    assert source.scores is not None
    # User-defined tokens are cut out of the text before anything merges.
    barred = (TokenKind.CONTROL, TokenKind.UNKNOWN, TokenKind.BYTE, TokenKind.USER_DEFINED)
    vocabulary = source.vocabulary
    return {
        token: score
        for token, kind, score in zip(
            vocabulary.tokens, vocabulary.kinds, source.scores.tolist(), strict=True
        )
        if kind not in barred
    }


def _byte_ids(source: GgufTokenizer) -> dict[int, int]:
    vocabulary = source.vocabulary
    return {
        byte_value(vocabulary.tokens[token_id]): token_id
        for token_id in vocabulary.ids_of_kind(TokenKind.BYTE)
    }


def _unigram_encoder(source: GgufTokenizer) -> Encoder:
    vocabulary = source.vocabulary
    if source.unk_id is None:
        raise FormatError(
            source.path, f"{PREFIX}unknown_token_id", "missing: a unigram model needs one"
        )
    scores = piece_scores(source)
    lowest = min(scores.values(), default=0.0)
    bytes_fall_back = len(_byte_ids(source)) == 256
    pieces = []
    for token_id, token in enumerate(vocabulary.tokens):
        kind = vocabulary.kinds[token_id]
        if kind == TokenKind.USER_DEFINED:
            pieces.append((token, 0.0))
        elif kind == TokenKind.BYTE and bytes_fall_back:
            pieces.append((f"<0x{byte_value(token):02X}>", lowest))
        elif token in scores:
            pieces.append((token, scores[token]))
        else:
            # Ids are places in this list. A name with a space, which normalising escapes, keeps
            # the place of a token that text never becomes.
            pieces.append((f" {token_id}", lowest))
    library = Library(models.Unigram(pieces, source.unk_id, bytes_fall_back))
    library.normalizer = _unigram_normalizer(source)
    # A byte token's name in the text is text: cut it, so that no piece matches it.
    library.pre_tokenizer = pre_tokenizers.Split(Regex("<(?=0x[0-9A-F]{2}>)"), "isolated")
    return LibraryEncoder(library)


def _unigram_normalizer(source: GgufTokenizer) -> normalizers.Normalizer:
    steps: list[normalizers.Normalizer] = []
    if source.charsmap:
        steps.append(_precompiled(source))
    if source.remove_extra_whitespaces:
        steps.append(normalizers.Replace(Regex(r"\A +| +\z"), ""))
        steps.append(normalizers.Replace(Regex(" +"), " "))
    steps.append(_escaping(source.add_space_prefix or source.remove_extra_whitespaces))
    return normalizers.Sequence(steps)


def _precompiled(source: GgufTokenizer) -> normalizers.Normalizer:
    """SentencePiece's character map: a trie's size in bytes (uint32), the trie, replacements."""
    trie_bytes = int.from_bytes(source.charsmap[:4], "little")
    field = f"{PREFIX}precompiled_charsmap"
    if trie_bytes % 4 or 4 + trie_bytes >= len(source.charsmap):
        raise FormatError(source.path, field, "is no SentencePiece character map")
    try:
        return normalizers.Precompiled(source.charsmap)
    except Exception as error:
        raise FormatError(source.path, field, f"is no character map: {error}") from error
