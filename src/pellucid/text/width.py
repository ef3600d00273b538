"""How few tokens a text can be: told at once, so that a prompt that cannot fit is not tokenised.

A token stands for no more of a text than the longest there is. That bounds their number from below
only where nothing of the text vanishes on the way: with a normaliser or a pre-tokenizer that may
take something away there is no bound.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tokenizers import Tokenizer as Library

from pellucid.text.bytelevel import BYTE_TO_CHAR

# Of canonical composition (Unicode Standard Annex 15): at most four characters become one.
_FOLDED: Final = 4
_KEEPING: Final = frozenset({"ByteLevel", "Split", "Metaspace", "Digits", "Punctuation"})


@dataclass(frozen=True, slots=True)
class Width:
    """The most that one token stands for: `most` bytes of UTF-8, or characters.

    `uncounted`: bytes that there is no token for. `folds`: how many characters may become one
    before they are tokenised.
    """

    most: int
    in_bytes: bool
    uncounted: bytes = b""
    folds: int = 1

    def fewest(self, text: str) -> int:
        """No fewer tokens than this are in `text`."""
        size = len(text) // self.folds
        if self.in_bytes and self.folds == 1:
            size = len(text.encode("utf-8", "replace").translate(None, self.uncounted))
        return -(-size // self.most)


def width_of(library: Library) -> Width | None:
    """Of the `tokenizers` library's tokens; None where there is no bound."""
    model: Any = library.model
    if type(model).__name__ != "BPE" or model.continuing_subword_prefix or model.end_of_word_suffix:
        return None
    added = library.get_added_tokens_decoder().values()
    if any(token.lstrip or token.rstrip for token in added):
        return None
    before = list(parts(library.pre_tokenizer))
    if not all(part["type"] in _KEEPING and part.get("behavior") != "Removed" for part in before):
        return None
    normal = list(parts(library.normalizer))
    vocab: Mapping[str, int] = library.get_vocab(with_added_tokens=False)
    longest = max((len(token.content.encode()) for token in added), default=0)
    most = max(longest, *map(len, vocab), 1)
    if any(part["type"] == "ByteLevel" for part in before):
        return _of_bytes(vocab, normal, most)
    spelled = all(f"<0x{byte:02X}>" in vocab for byte in range(256))
    kept = all(part["type"] == "Prepend" or _same_length(part) for part in normal)
    return Width(most, False) if spelled and kept and model.byte_fallback else None


def parts(component: Any) -> Iterable[dict[str, Any]]:
    """The settings of one of the library's components, a sequence as its members."""
    if component is None:
        return []
    state = json.loads(component.__getstate__())
    for name in ("normalizers", "pretokenizers", "decoders"):
        if name in state:
            members: list[dict[str, Any]] = state[name]
            return members
    return [state]


def _of_bytes(vocab: Mapping[str, int], normal: list[dict[str, Any]], most: int) -> Width | None:
    missing = bytes(byte for byte, char in enumerate(BYTE_TO_CHAR) if char not in vocab)
    if not normal:
        return Width(most, True, missing)
    composed = all(part["type"] == "NFC" for part in normal)
    return Width(most, True, b"", _FOLDED) if composed and not missing else None


def _same_length(part: Mapping[str, Any]) -> bool:
    """Whether it is a replacement of one character by one."""
    pattern = part.get("pattern")
    found = pattern.get("String") if isinstance(pattern, dict) else None
    return part["type"] == "Replace" and len(found or "") == len(part.get("content", "")) == 1
