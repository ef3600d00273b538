"""Log-probabilities in OpenAI's two forms, and where each token stands in the text.

A token that is no whole number of characters is written `bytes:\\xf0\\x9f`, as OpenAI writes it,
and stands at the offset of the character it is part of. Offsets count characters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pellucid.core.outputs import TokenLogprob
from pellucid.text import Detokenizer, Tokenizer

Entries = Mapping[int, TokenLogprob]
"""The chosen token (first) and the likeliest, by id."""


def token_string(tokenizer: Tokenizer, token_id: int) -> str:
    """A token as a string: its text, or its bytes where they are no whole characters."""
    if token_id >= tokenizer.vocab_size:
        return f"token:{token_id}"
    data = tokenizer.token_bytes(token_id)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


class Ruler:
    """Where the tokens of an answer stand in its text, in characters from `start`."""

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool, start: int = 0) -> None:
        self._detokenizer = Detokenizer(tokenizer, skip_special_tokens, continuation=True)
        self.end = start

    def place(self, token_id: int) -> int:
        """The offset of the next token, whose text follows those before."""
        offset = self.end
        self.end += len(self._detokenizer.push(token_id))
        return offset


class CompletionLogprobs:
    """The lists of a completion's `logprobs`, filled token by token."""

    def __init__(self, tokenizer: Tokenizer, count: int) -> None:
        self._tokenizer = tokenizer
        self._count = count
        self.clear()

    def clear(self) -> None:
        self.tokens: list[str] = []
        self.token_logprobs: list[float | None] = []
        self.top_logprobs: list[dict[str, float] | None] = []
        self.text_offset: list[int] = []

    def __len__(self) -> int:
        return len(self.tokens)

    def add(self, token_id: int, entries: Entries | None, offset: int, text: str = "") -> None:
        """`entries` None: the first token of a prompt, which nothing predicted. `text`: how the
        token reads where that is not how its bytes do."""
        self.tokens.append(text or token_string(self._tokenizer, token_id))
        self.text_offset.append(offset)
        self.token_logprobs.append(None if entries is None else entries[token_id].logprob)
        self.top_logprobs.append(None if entries is None else self._top(token_id, entries))

    def take(self) -> dict[str, Any]:
        """What came since the last time."""
        taken = {
            "tokens": self.tokens,
            "token_logprobs": self.token_logprobs,
            "top_logprobs": self.top_logprobs,
            "text_offset": self.text_offset,
        }
        self.clear()
        return taken

    def _top(self, token_id: int, entries: Entries) -> dict[str, float]:
        """The likeliest, and the chosen one in any case. Of tokens that read the same, the
        likelier."""
        top: dict[str, float] = {}
        for entry in (*likeliest(entries, self._count), entries[token_id]):
            top.setdefault(token_string(self._tokenizer, entry.token_id), entry.logprob)
        return top


class ChatLogprobs:
    """The entries of a chat choice's `logprobs.content`: one for each token whose text is shown, at
    least in part. They leave with that text, so that joined `bytes` read as the joined text."""

    def __init__(self, tokenizer: Tokenizer, count: int, skip_special_tokens: bool) -> None:
        self._tokenizer = tokenizer
        self._count = count
        self._skip_special = skip_special_tokens
        self._ruler = Ruler(tokenizer, skip_special_tokens)
        self._waiting: list[tuple[int, dict[str, Any]]] = []
        self._shown = 0

    def push(self, token_id: int, entries: Entries) -> None:
        """The next token."""
        if self._skip_special and self._tokenizer.vocabulary.is_special(token_id):
            return
        item = self._item(entries[token_id])
        item["top_logprobs"] = [self._item(e) for e in likeliest(entries, self._count)]
        self._waiting.append((self._ruler.place(token_id), item))

    def show(self, n_characters: int) -> list[dict[str, Any]]:
        """Another `n_characters` were shown; the entries of tokens that begin before their end."""
        self._shown += n_characters
        ready = 0
        while ready < len(self._waiting) and self._waiting[ready][0] < self._shown:
            ready += 1
        items = [item for _, item in self._waiting[:ready]]
        del self._waiting[:ready]
        return items

    def _item(self, entry: TokenLogprob) -> dict[str, Any]:
        data = b""
        if entry.token_id < self._tokenizer.vocab_size:
            data = self._tokenizer.token_bytes(entry.token_id)
        return {
            "token": token_string(self._tokenizer, entry.token_id),
            "logprob": entry.logprob,
            "bytes": list(data),
        }


def likeliest(entries: Entries, count: int) -> Sequence[TokenLogprob]:
    """The `count` likeliest, in order."""
    return sorted(entries.values(), key=lambda entry: entry.rank)[:count]
