"""A vocabulary as the grammar compiler reads it: the bytes of each token, and which are special."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from llguidance import LLTokenizer

_HEADER = struct.Struct("<III")  # tokens, special ids, end ids


@dataclass(frozen=True, slots=True)
class TokenBytes:
    """Tokens by id, b"" where an id is none; ids of control tokens; ids that end an answer."""

    tokens: Sequence[bytes]
    special: Sequence[int]
    ends: Sequence[int]

    def write(self, stream: IO[bytes]) -> None:
        """As bytes, for another process on this machine."""
        lengths = array("I", map(len, self.tokens))
        ids = array("I", [*self.special, *self.ends])
        stream.write(_HEADER.pack(len(self.tokens), len(self.special), len(self.ends)))
        for part in (lengths.tobytes(), ids.tobytes(), b"".join(self.tokens)):
            stream.write(part)
        stream.flush()

    @classmethod
    def read(cls, stream: IO[bytes]) -> TokenBytes:
        """What `write` wrote."""
        n_tokens, n_special, n_ends = _HEADER.unpack(stream.read(_HEADER.size))
        lengths, ids = array("I"), array("I")
        lengths.frombytes(stream.read(n_tokens * lengths.itemsize))
        ids.frombytes(stream.read((n_special + n_ends) * ids.itemsize))
        data = stream.read(sum(lengths))
        tokens, at = [], 0
        for length in lengths:
            tokens.append(data[at : at + length])
            at += length
        return cls(tokens, ids[:n_special].tolist(), ids[n_special:].tolist())


def compiled(vocabulary: TokenBytes) -> LLTokenizer:
    """The trie of the vocabulary, and the classes of tokens that masks are built from quickly."""
    from llguidance import LLTokenizer

    return LLTokenizer(_Wrapper(vocabulary), eos_token=list(vocabulary.ends))  # type: ignore[arg-type]


class _Wrapper:
    """The attributes that llguidance takes from a tokenizer of Python's."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, vocabulary: TokenBytes) -> None:
        self.tokens = list(vocabulary.tokens)
        self.special_token_ids = list(vocabulary.special)
        self.eos_token_id = vocabulary.ends[0]

    def __call__(self, text: str) -> list[int]:
        # Forcing text in tokens of a tokenizer's own is off, and nothing else asks.
        raise NotImplementedError(f"no text is tokenised here: {text[:50]!r}")
