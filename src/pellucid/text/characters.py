"""What counts as text: characters of Unicode, no halves of them."""

from __future__ import annotations

from pellucid.core.errors import BadInput


def as_text(text: str | bytes) -> str:
    """`text` with every byte that is not UTF-8 replaced by U+FFFD.

    Raises `BadInput` at a lone surrogate, and at what is neither a string nor bytes.
    """
    if isinstance(text, bytes | bytearray | memoryview):
        escaped = bytes(text).decode("utf-8", "surrogateescape")
        return "".join("\ufffd" if "\udc80" <= char <= "\udcff" else char for char in escaped)
    if not isinstance(text, str):
        raise BadInput(f"text must be a string or UTF-8 bytes, not {type(text).__name__}")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise BadInput(
            f"the text has a lone surrogate (U+{ord(text[error.start]):04X}) at character "
            f"{error.start}, which is no character: remove it or send the whole pair"
        ) from None
    return text
