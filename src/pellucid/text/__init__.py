"""Text to tokens and back: tokenizers, chat templates, incremental decoding, stop strings, BPE
training."""

from pellucid.text.detokenizer import Detokenizer
from pellucid.text.stops import StopMatcher
from pellucid.text.tokenizer import Piece, Tokenizer

__all__ = ["Detokenizer", "Piece", "StopMatcher", "Tokenizer"]
