"""Builds what shows the merges of a GGUF file's vocabulary, one by one."""

from __future__ import annotations

from pellucid.core.errors import BadInput
from pellucid.text.encoders import Encoder, LibraryEncoder, WholeLinesEncoder
from pellucid.text.gguf_build import newline_runs, piece_scores, split_merges, text_tokens
from pellucid.text.gguf_vocab import GgufTokenizer
from pellucid.text.merge_steps import Merger, RankMerger, ScoreMerger


def build_merger(source: GgufTokenizer, encoder: Encoder) -> Merger:
    """Raises `BadInput` when the vocabulary's model does not merge."""
    inner = encoder.inner if isinstance(encoder, WholeLinesEncoder) else encoder
    if source.rule is not None and isinstance(inner, LibraryEncoder):
        tokens = text_tokens(source)
        merges = [pair for pair in split_merges(source) if "".join(pair) in tokens]
        whole = tokens if source.rule.ignore_merges else {}
        if source.rule.whole_newline_runs:
            whole = newline_runs(tokens)
        return RankMerger(inner.library, merges, source.vocabulary, whole)
    if source.model == "t5":
        raise BadInput(
            "this tokenizer does not merge pairs: it is a unigram model, which chooses the "
            "likeliest pieces"
        )
    return ScoreMerger(piece_scores(source), source.vocabulary, source.add_space_prefix)
