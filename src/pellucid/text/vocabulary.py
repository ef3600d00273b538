"""Vocabulary: a tokenizer's tokens and what each is for, whichever file they came from."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pellucid.text.bytelevel import decode_chars

SPACE_MARK = "\u2581"  # how SentencePiece writes a space inside a token

Spelling = Literal["bytes", "pieces"]


class TokenKind(IntEnum):
    """What a token is for; the numbers are GGUF's `tokenizer.ggml.token_type`."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3  # never text: only a template or `parse_special` writes it
    USER_DEFINED = 4  # text that is always one token
    UNUSED = 5
    BYTE = 6  # `<0x41>`: one byte, where no other token fits


@dataclass(frozen=True)
class Vocabulary:
    """Tokens by id, as the file spells them, and each one's `TokenKind`.

    `spelling` is `bytes` (byte-level alphabet) or `pieces` (SentencePiece: U+2581 is a space, byte
    tokens are `<0xNN>`). `strip_prefix_space`: encoding put a space before the text, so decoding
    takes one away.
    """

    tokens: list[str]
    kinds: list[int]
    spelling: Spelling
    strip_prefix_space: bool = False
    id_of: dict[str, int] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not self.id_of:
            self.id_of.update((token, index) for index, token in enumerate(self.tokens))

    def __len__(self) -> int:
        return len(self.tokens)

    def ids_of_kind(self, *kinds: TokenKind) -> list[int]:
        """Ids of these kinds, in order."""
        found: list[int] = np.flatnonzero(np.isin(self._kind_array, kinds)).tolist()
        return found

    @cached_property
    def _kind_array(self) -> NDArray[np.int8]:
        return np.asarray(self.kinds, dtype=np.int8)

    def is_special(self, token_id: int) -> bool:
        return self.kinds[token_id] in (TokenKind.CONTROL, TokenKind.UNKNOWN)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes a token stands for in the text."""
        token, kind = self.tokens[token_id], self.kinds[token_id]
        if kind in (TokenKind.CONTROL, TokenKind.USER_DEFINED, TokenKind.UNKNOWN):
            return token.encode("utf-8", "replace")
        if kind == TokenKind.BYTE:
            return bytes([byte_value(token)])
        if self.spelling == "bytes":
            return decode_chars(token)
        return token.replace(SPACE_MARK, " ").encode("utf-8", "replace")

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over every token and kind: equal exactly when ids mean the same in both."""
        digest = hashlib.sha256(self.spelling.encode())
        for token, kind in zip(self.tokens, self.kinds, strict=True):
            data = token.encode("utf-8", "surrogatepass")
            digest.update(b"%d %d " % (kind, len(data)) + data)
        return digest.hexdigest()


def byte_value(token: str) -> int:
    """The byte of a token written `<0xNN>`; ValueError when it is not one."""
    if len(token) != 6 or not token.startswith("<0x") or token[5] != ">":
        raise ValueError(token)
    digits = token[3:5]
    if not all(digit in "0123456789abcdefABCDEF" for digit in digits):
        raise ValueError(token)
    return int(digits, 16)
