"""Tokenizer: text to ids and back, whatever file the vocabulary came from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pellucid.core.errors import BadInput
from pellucid.text.added import AddedToken, AddedTokens, Fragment
from pellucid.text.characters import as_text
from pellucid.text.encoders import Encoder
from pellucid.text.gguf_build import build_encoder
from pellucid.text.gguf_vocab import GgufTokenizer, read_gguf_tokenizer
from pellucid.text.vocabulary import TokenKind, Vocabulary
from pellucid.text.width import Width

if TYPE_CHECKING:
    from pellucid.text.merge_steps import MergedPiece, Merger

_STRETCH: Final = 1 << 16
_COUNTED: Final = 1 << 15  # the ids of so many characters are counted in some tens of milliseconds


@dataclass(frozen=True, slots=True)
class Piece:
    """One token of a text. `start` and `end` count characters of the text (equal where the
    token stands for nothing in it, as BOS does); tokens that share a character's bytes share its
    offsets. `text` is the token's own bytes read as UTF-8."""

    id: int
    text: str
    bytes: bytes
    start: int
    end: int


class Tokenizer:
    """Text to token ids and back. Immutable, and safe to share between threads.

    `bos_id`, and `eos_ids` (every token that ends an answer, the file's own first), are ids;
    `add_bos` and `add_eos` say whether `encode` adds them; `special_ids` are the control tokens,
    which text never becomes unless `parse_special` is given. `adds_bos_to_chat`: BOS belongs in
    front of a conversation whose template does not know it.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        encoder: Encoder,
        *,
        bos_id: int | None,
        eos_ids: tuple[int, ...],
        prefix_ids: tuple[int, ...] = (),
        suffix_ids: tuple[int, ...] = (),
        user_defined: Iterable[AddedToken] = (),
        control: Iterable[AddedToken] = (),
        adds_bos_to_chat: bool = False,
        make_merger: Callable[[], Merger] | None = None,
    ) -> None:
        self.vocabulary = vocabulary
        self.vocab_size = len(vocabulary)
        self.bos_id = bos_id
        self.eos_ids = eos_ids
        self.add_bos = bos_id is not None and bos_id in prefix_ids
        self.add_eos = bool(suffix_ids)
        self.adds_bos_to_chat = adds_bos_to_chat
        self._make_merger = make_merger
        self._prefix_ids = prefix_ids
        self._suffix_ids = suffix_ids
        self._encoder = encoder
        self._user_defined = tuple(user_defined)
        self._control = tuple(control)
        self._shown_texts: tuple[dict[int, str], dict[int, str]] = {}, {}

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, object], path: str | Path) -> Tokenizer:
        """The tokenizer of a GGUF file with these metadata; `path` is for messages.

        Raises `FormatError` and `UnsupportedError`, naming the file and the field.
        """
        source = read_gguf_tokenizer(metadata, path)
        user_defined = _added(source, TokenKind.USER_DEFINED)
        control = _added(source, TokenKind.CONTROL, TokenKind.UNKNOWN)
        encoder = build_encoder(source)
        return cls(
            source.vocabulary,
            encoder,
            bos_id=source.bos_id,
            eos_ids=source.eos_ids,
            prefix_ids=(source.bos_id,) if source.add_bos and source.bos_id is not None else (),
            suffix_ids=source.eos_ids[:1] if source.add_eos else (),
            user_defined=user_defined,
            control=control,
            adds_bos_to_chat=source.add_bos,
            make_merger=lambda: _gguf_merger(source, encoder),
        )

    @classmethod
    def from_folder(cls, path: str | Path) -> Tokenizer:
        """The tokenizer of a folder (or of a tokenizer.json) in Hugging Face's format.

        Raises `BadInput` when there is none, `FormatError` when a file is damaged and
        `UnsupportedError` naming what this version does not implement.
        """
        from pellucid.text.folder import read_folder

        source = read_folder(path)
        return cls(
            source.vocabulary,
            source.encoder,
            bos_id=source.bos_id,
            eos_ids=source.eos_ids,
            prefix_ids=source.prefix_ids,
            suffix_ids=source.suffix_ids,
            control=source.control,
            make_merger=source.make_merger,
        )

    @cached_property
    def special_ids(self) -> frozenset[int]:
        return frozenset(self.vocabulary.ids_of_kind(TokenKind.CONTROL, TokenKind.UNKNOWN))

    @cached_property
    def _text_splitter(self) -> AddedTokens:
        return AddedTokens(self._user_defined)

    @cached_property
    def _special_splitter(self) -> AddedTokens:
        return AddedTokens((*self._user_defined, *self._control))

    @cached_property
    def control_tokens(self) -> AddedTokens:
        """The control tokens alone, to split rendered chat templates by."""
        return AddedTokens(self._control)

    @property
    def fingerprint(self) -> str:
        """Equal exactly for tokenizers whose ids mean the same."""
        return self.vocabulary.fingerprint

    def encode(
        self, text: str | bytes, *, parse_special: bool = False, add_special: bool = True
    ) -> list[int]:
        """Token ids of `text`. Control tokens spelled in it are text, unless `parse_special`.
        `add_special` adds BOS and EOS where the file says so.

        In bytes, each byte that is not UTF-8 becomes U+FFFD. What a vocabulary has no token for
        (some byte-level ones lack control characters) is left out, or is its unknown token, as
        in every implementation of it. Raises `BadInput` at a lone surrogate, which is no
        character, and at a run of millions of blanks or of anything but blanks.
        """
        ids = list(self._prefix_ids) if add_special else []
        ids += self.encode_fragment(as_text(text), parse_special=parse_special)
        if add_special:
            ids += self._suffix_ids
        return ids

    def encode_fragment(
        self, text: str, *, at_start: bool = True, parse_special: bool = False
    ) -> list[int]:
        """Ids of a stretch of text, nothing added; `at_start`: no text or token precedes it."""
        ids: list[int] = []
        for fragment in self._split(text, parse_special):
            if fragment.token is not None:
                ids.append(fragment.token.id)
            else:
                ids += self._encoder.ids(fragment.text, at_start and fragment.start == 0)
        return ids

    def fewest_ids(self, text: str) -> int:
        """A lower bound on how many ids `text` is, special ones parsed or not, that costs next to
        nothing: 0 where none is known."""
        width = self._width
        return 0 if width is None else width.fewest(text)

    def surely(self, text: str, count: int) -> int | None:
        """As `fewest_ids`, if that is `count` or more and to count the ids would take long."""
        if len(text) < max(count, _COUNTED):
            return None
        fewest = self.fewest_ids(text)
        return fewest if fewest >= count else None

    @cached_property
    def _width(self) -> Width | None:
        """Of what `encode` takes text apart into, whole tokens included."""
        width = self._encoder.width
        whole = [*self._user_defined, *self._control]
        if width is None or any(token.lstrip or token.rstrip for token in whole):
            return None
        longest = max((len(token.text.encode()) for token in whole), default=0)
        return replace(width, most=max(width.most, longest))

    def pieces(
        self, text: str | bytes, *, parse_special: bool = False, add_special: bool = True
    ) -> list[Piece]:
        """The same tokens as `encode`, each with its bytes and where it stands in the text."""
        text = as_text(text)
        pieces = [self._piece(token, 0, 0) for token in self._prefix_ids if add_special]
        for fragment in self._split(text, parse_special):
            start = fragment.start
            if fragment.token is not None:
                pieces.append(self._piece(fragment.token.id, start, fragment.end))
                continue
            ids, spans = self._encoder.spans(fragment.text, start == 0)
            for token, (left, right) in zip(ids, spans, strict=True):
                pieces.append(self._piece(token, start + left, start + right))
        pieces += [
            self._piece(token, len(text), len(text)) for token in self._suffix_ids if add_special
        ]
        return pieces

    def merge_steps(self, text: str | bytes, *, parse_special: bool = False) -> list[MergedPiece]:
        """How `text` becomes tokens: each stretch that merges by itself, with every merge in the
        order BPE applies it. Raises `BadInput` when the vocabulary is not built of merges."""
        from pellucid.text.merge_steps import one_token

        text = as_text(text)
        pieces: list[MergedPiece] = []
        for fragment in self._split(text, parse_special):
            if fragment.token is not None:
                pieces.append(one_token(fragment.text, fragment.start, fragment.token.id))
                continue
            for piece in self._merger.pieces(fragment.text, fragment.start == 0):
                start, end = piece.start + fragment.start, piece.end + fragment.start
                pieces.append(replace(piece, start=start, end=end))
        ids = [token for piece in pieces for token in piece.ids]
        if ids != self.encode(text, parse_special=parse_special, add_special=False):
            raise BadInput(
                "the merges of this text cannot be shown one by one: the tokenizer normalises it "
                "together with an added token in it"
            )
        return pieces

    @cached_property
    def _merger(self) -> Merger:
        if self._make_merger is None:
            raise BadInput("this tokenizer does not say how it merges")
        return self._make_merger()

    def decode(
        self, ids: Sequence[int], skip_special_tokens: bool = True, *, continuation: bool = False
    ) -> str:
        """The text of `ids`. Bytes that are no UTF-8 become U+FFFD. `continuation`: the ids go on
        from others, so that a leading space is theirs and stays.

        Raises `BadInput` at an id the vocabulary does not have.
        """
        shown = self._shown[skip_special_tokens]
        # In stretches, between which other threads may run: there may be millions.
        stretches = (ids[at : at + _STRETCH] for at in range(0, len(ids), _STRETCH))
        data = b"".join([b"".join(map(shown.__getitem__, some)) for some in stretches])
        if self.vocabulary.strip_prefix_space and not continuation and data.startswith(b" "):
            data = data[1:]
        return data.decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes a token stands for; a control token's are its name's."""
        self.check_id(token_id)
        return self.vocabulary.token_bytes(token_id)

    def token_text(self, token_id: int) -> str:
        """The token as text, U+FFFD where it is part of a character."""
        return self.token_bytes(token_id).decode("utf-8", "replace")

    def shown_texts(self, skip_special_tokens: bool) -> dict[int, str]:
        """What ids were found to show where no half a character precedes them, so that it need not
        be decoded again. Detokenizers share it."""
        return self._shown_texts[skip_special_tokens]

    def check_id(self, token_id: int) -> None:
        if not 0 <= token_id < self.vocab_size:
            raise BadInput(
                f"{token_id} is no token id: this vocabulary has ids 0 to {self.vocab_size - 1}"
            )

    @cached_property
    def _shown(self) -> tuple[_Shown, _Shown]:
        return _Shown(self, skip_special=False), _Shown(self, skip_special=True)

    def _piece(self, token_id: int, start: int, end: int) -> Piece:
        data = self.vocabulary.token_bytes(token_id)
        return Piece(token_id, data.decode("utf-8", "replace"), data, start, end)

    def _split(self, text: str, parse_special: bool) -> Iterator[Fragment]:
        return (self._special_splitter if parse_special else self._text_splitter).split(text)


class _Shown(dict[int, bytes]):
    """What each id shows, found when it is first looked up."""

    def __init__(self, tokenizer: Tokenizer, *, skip_special: bool) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special

    def __missing__(self, token_id: int) -> bytes:
        self._tokenizer.check_id(token_id)
        vocabulary = self._tokenizer.vocabulary
        skipped = self._skip_special and vocabulary.is_special(token_id)
        shown = self[token_id] = b"" if skipped else vocabulary.token_bytes(token_id)
        return shown


def _added(source: GgufTokenizer, *kinds: TokenKind) -> list[AddedToken]:
    return [
        AddedToken(
            source.vocabulary.tokens[token_id],
            token_id,
            lstrip=token_id in source.lstrip,
            rstrip=token_id in source.rstrip,
        )
        for token_id in source.vocabulary.ids_of_kind(*kinds)
    ]


def _gguf_merger(source: GgufTokenizer, encoder: Encoder) -> Merger:
    from pellucid.text.gguf_merger import build_merger  # what only `--merges` asks for

    return build_merger(source, encoder)
