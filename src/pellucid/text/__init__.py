"""Text to tokens and back: tokenizers, chat templates, incremental decoding, stop strings, BPE
training."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pellucid.text.chat import ChatTemplate as ChatTemplate
    from pellucid.text.chat_encode import encode_chat as encode_chat
    from pellucid.text.chat_sources import ChatTemplates as ChatTemplates
    from pellucid.text.chat_sources import folder_chat_templates as folder_chat_templates
    from pellucid.text.chat_sources import gguf_chat_templates as gguf_chat_templates
    from pellucid.text.chat_sources import given_chat_template as given_chat_template
    from pellucid.text.detokenizer import Detokenizer as Detokenizer
    from pellucid.text.merge_steps import MergedPiece as MergedPiece
    from pellucid.text.merge_steps import MergeStep as MergeStep
    from pellucid.text.stops import StopMatcher as StopMatcher
    from pellucid.text.tokenizer import Piece as Piece
    from pellucid.text.tokenizer import Tokenizer as Tokenizer
    from pellucid.text.train import LearntVocabulary as LearntVocabulary
    from pellucid.text.train import train_bpe as train_bpe

_HOMES = {
    "ChatTemplate": "chat",
    "ChatTemplates": "chat_sources",
    "Detokenizer": "detokenizer",
    "LearntVocabulary": "train",
    "MergeStep": "merge_steps",
    "MergedPiece": "merge_steps",
    "Piece": "tokenizer",
    "StopMatcher": "stops",
    "Tokenizer": "tokenizer",
    "encode_chat": "chat_encode",
    "folder_chat_templates": "chat_sources",
    "gguf_chat_templates": "chat_sources",
    "given_chat_template": "chat_sources",
    "train_bpe": "train",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    """Loads a name's module when it is first used: a plain prompt never needs Jinja2."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
