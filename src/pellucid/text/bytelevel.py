"""The printable alphabet in which byte-level BPE writes bytes (Radford et al. 2019, GPT-2).

Every byte has one character. Printable Latin-1 characters stand for themselves; the other 68
bytes take the characters from U+0100 on, in order, so that no token holds a space or a control.
"""

from __future__ import annotations

from typing import Final


def _alphabet() -> tuple[str, ...]:
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(0x100, 0x200))
    return tuple(chr(byte) if byte in printable else chr(next(spare)) for byte in range(256))


BYTE_TO_CHAR: Final = _alphabet()
CHAR_TO_BYTE: Final = {char: byte for byte, char in enumerate(BYTE_TO_CHAR)}


def encode_bytes(data: bytes) -> str:
    """`data` in the byte-level alphabet, one character a byte."""
    return "".join(map(BYTE_TO_CHAR.__getitem__, data))


def decode_chars(text: str) -> bytes:
    """The bytes that `text` writes; a text with a character outside the alphabet is itself UTF-8,
    as the `tokenizers` library has it."""
    try:
        return bytes(map(CHAR_TO_BYTE.__getitem__, text))
    except KeyError:
        return text.encode("utf-8", "replace")
