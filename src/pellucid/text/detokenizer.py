"""Ids to text as they come, never half a character."""

from __future__ import annotations

import codecs

from pellucid.text.tokenizer import Tokenizer


class Detokenizer:
    """Text of a growing sequence of ids. What `push` and `finish` return, joined, is
    `tokenizer.decode` of all the ids, with the same arguments.

    A character split over tokens is held back until it is whole; bytes that can no longer become
    a character are U+FFFD at once. `continuation`: the ids go on from a prompt, so that a leading
    space is part of the answer.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        skip_special_tokens: bool = True,
        *,
        continuation: bool = False,
    ) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special_tokens
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._strip_space = tokenizer.vocabulary.strip_prefix_space and not continuation
        self._between = not self._strip_space  # a token that comes now gives what it always gives
        self._known = tokenizer.shown_texts(skip_special_tokens)

    def push(self, token_id: int) -> str:
        """The text that `token_id` completes, often empty. Raises `BadInput` at an unknown id."""
        if self._between:
            known = self._known.get(token_id)
            if known is not None:
                return known
        return self._decode(token_id)

    def _decode(self, token_id: int) -> str:
        self._tokenizer.check_id(token_id)
        vocabulary = self._tokenizer.vocabulary
        if self._skip_special and vocabulary.is_special(token_id):
            return ""
        data = vocabulary.token_bytes(token_id)
        if self._strip_space and data:
            self._strip_space = False
            data = data.removeprefix(b" ")
        text = self._decoder.decode(data)
        alone, self._between = (
            self._between,
            not self._strip_space and not self._decoder.getstate()[0],
        )
        if alone and self._between:
            self._known[token_id] = text
        return text

    def finish(self) -> str:
        """What was held back: U+FFFD for an unfinished character."""
        return self._decoder.decode(b"", final=True)
