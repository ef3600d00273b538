"""Reads a tokenizer from GGUF metadata, checking everything the encoder relies on.

Keys and their meaning: the GGUF specification's `tokenizer.ggml.*`; defaults where a file is
silent are llama.cpp's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pellucid.core.errors import FormatError, UnsupportedError
from pellucid.text.pretokenizers import MISSING, PRE_TOKENIZERS, PreTokenizer
from pellucid.text.special_names import CONTROL_NAMES, end_names
from pellucid.text.vocabulary import TokenKind, Vocabulary, byte_value

PREFIX: Final = "tokenizer.ggml."
MAX_TOKENS: Final = 1 << 24

# Models whose encoding this package implements, and llama.cpp's defaults: (bos, eos, unk) ids.
_MODELS: Final[dict[str, tuple[int | None, int | None, int | None]]] = {
    "gpt2": (None, None, None),
    "gemma4": (None, None, None),
    "llama": (1, 2, 0),
    "t5": (None, 1, 2),
}
_OTHER_MODELS: Final = "bert, rwkv, plamo2, hybriddna, whitespace"


@dataclass(frozen=True)
class GgufTokenizer:
    """What the metadata says. `rule` is None unless the model is byte-pair merges by rank;
    `scores` is None unless it is SentencePiece; ids are checked to be in the vocabulary."""

    path: Path
    model: str
    vocabulary: Vocabulary
    merges: list[str]
    scores: NDArray[np.float32] | None
    rule: PreTokenizer | None
    bos_id: int | None
    eos_ids: tuple[int, ...]
    unk_id: int | None
    add_bos: bool
    add_eos: bool
    add_space_prefix: bool
    remove_extra_whitespaces: bool
    charsmap: bytes
    lstrip: frozenset[int]
    rstrip: frozenset[int]


def read_gguf_tokenizer(metadata: Mapping[str, object], path: str | Path) -> GgufTokenizer:
    """Raises `FormatError` naming the field that is missing, of the wrong type or length, or out
    of range, and `UnsupportedError` naming a tokenizer model or pre-tokenizer kind we lack."""
    fields = Fields(metadata, Path(path))
    model = fields.text("model")
    if model is None:
        raise fields.error("model", "missing: the file holds no tokenizer", "use a complete file")
    if model not in _MODELS:
        raise UnsupportedError(
            f"{path}: {PREFIX}model is {model!r}, which is not supported: "
            f"this version reads {', '.join(_MODELS)} (and not {_OTHER_MODELS})"
        )
    rule = _rule(fields, model)
    tokens = _tokens(fields)
    merges = _merges(fields, rule) if rule else []
    kinds = _kinds(fields, len(tokens))
    id_of = _index(fields, tokens)
    bos, eos, unk = _MODELS[model]
    end_ids = _end_ids(fields, id_of, kinds, merges, eos)
    add_space_prefix = fields.flag("add_space_prefix", model == "llama")
    spells_bytes = rule is not None and rule.byte_level
    vocabulary = Vocabulary(
        tokens=tokens,
        kinds=kinds,
        spelling="bytes" if spells_bytes else "pieces",
        strip_prefix_space=add_space_prefix and rule is None,
        id_of=id_of,
    )
    _check_byte_tokens(fields, vocabulary)
    bos_id = fields.token_id("bos_token_id", len(tokens), bos)
    add_bos = fields.flag("add_bos_token", model == "llama" or bool(rule and rule.add_bos))
    add_eos = fields.flag("add_eos_token", model == "t5")
    _check_added(fields, "bos", add_bos, bos_id)
    _check_added(fields, "eos", add_eos, end_ids[0] if end_ids else None)
    lstrip, rstrip = _stripping(fields, vocabulary)
    return GgufTokenizer(
        path=fields.path,
        model=model,
        vocabulary=vocabulary,
        merges=merges,
        scores=None if rule else _scores(fields, len(tokens)),
        rule=rule,
        bos_id=bos_id,
        eos_ids=end_ids,
        unk_id=fields.token_id("unknown_token_id", len(tokens), unk),
        add_bos=add_bos and bos_id is not None,
        add_eos=add_eos and bool(end_ids),
        add_space_prefix=add_space_prefix,
        remove_extra_whitespaces=fields.flag("remove_extra_whitespaces", False),
        charsmap=fields.raw_bytes("precompiled_charsmap"),
        lstrip=lstrip,
        rstrip=rstrip,
    )


class Fields:
    """Typed, checked access to `tokenizer.ggml.*`."""

    def __init__(self, metadata: Mapping[str, object], path: Path) -> None:
        self.metadata = metadata
        self.path = path

    def error(self, key: str, problem: str, mend: str | None = None) -> FormatError:
        if mend is None:
            return FormatError(self.path, PREFIX + key, problem)
        return FormatError(self.path, PREFIX + key, problem, mend)

    def get(self, key: str) -> object:
        return self.metadata.get(PREFIX + key)

    def text(self, key: str) -> str | None:
        value = self.get(key)
        if value is not None and not isinstance(value, str):
            raise self.error(key, f"must be a string, not {_type_name(value)}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, bool | np.bool_):
            raise self.error(key, f"must be true or false, not {_type_name(value)}")
        return bool(value)

    def token_id(self, key: str, n_tokens: int, default: int | None) -> int | None:
        value = self.get(key)
        if value is None:
            return default if default is not None and default < n_tokens else None
        if not isinstance(value, Integral) or isinstance(value, bool | np.bool_):
            raise self.error(key, f"must be a token id, not {_type_name(value)}")
        if not 0 <= int(value) < n_tokens:
            raise self.error(
                key, f"{value} is no token: the vocabulary has ids 0 to {n_tokens - 1}"
            )
        return int(value)

    def strings(self, key: str) -> list[str] | None:
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not set(map(type, value)) <= {str}:
            raise self.error(key, f"must be an array of strings, not {_type_name(value)}")
        return value

    def numbers(self, key: str, kinds: str, length: int) -> NDArray[np.generic] | None:
        """A 1-D array whose dtype kind is one of `kinds` (NumPy's letters)."""
        value = self.get(key)
        if value is None:
            return None
        array = np.asarray(value) if isinstance(value, list | np.ndarray) else None
        if array is None or array.ndim != 1 or (array.dtype.kind not in kinds and array.size):
            wanted = "floating-point numbers" if "f" in kinds else "integers"
            raise self.error(key, f"must be an array of {wanted}, not {_type_name(value)}")
        if len(array) != length:
            raise self.error(key, f"has {len(array)} entries for {length} tokens")
        return array

    def raw_bytes(self, key: str) -> bytes:
        value = self.get(key)
        if value is None:
            return b""
        array = np.asarray(value) if isinstance(value, list | np.ndarray) else None
        if array is None or array.ndim != 1 or array.dtype.itemsize != 1:
            raise self.error(key, f"must be an array of bytes, not {_type_name(value)}")
        return array.tobytes()


def _type_name(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} with shape {value.shape}"
    if isinstance(value, list):
        kinds = sorted({type(item).__name__ for item in value})
        return f"an array of {' and '.join(kinds) or 'nothing'}"
    return type(value).__name__


def _rule(fields: Fields, model: str) -> PreTokenizer | None:
    """The pre-tokenizer; None for SentencePiece models, whose `pre` says nothing."""
    if model in ("llama", "t5"):
        return None
    kind = "gemma4" if model == "gemma4" else fields.text("pre")
    if not kind:
        return MISSING
    if kind not in PRE_TOKENIZERS:
        raise UnsupportedError(
            f"{fields.path}: {PREFIX}pre is {kind!r}, a pre-tokenizer this version does not know: "
            "guessing would change the tokens; use a newer version, or a file of a known kind"
        )
    return PRE_TOKENIZERS[kind]


def _tokens(fields: Fields) -> list[str]:
    tokens = fields.strings("tokens")
    if not tokens:
        raise fields.error("tokens", "missing or empty")
    if len(tokens) > MAX_TOKENS:
        raise fields.error("tokens", f"has {len(tokens)} entries, more than {MAX_TOKENS}")
    if "" in tokens:
        tokens = [token or f"[EMPTY_{index}]" for index, token in enumerate(tokens)]
    return tokens


def _index(fields: Fields, tokens: list[str]) -> dict[str, int]:
    id_of = dict(zip(tokens, range(len(tokens)), strict=True))
    if len(id_of) != len(tokens):
        first = next(index for index, token in enumerate(tokens) if id_of[token] != index)
        twin = id_of[tokens[first]]
        raise fields.error("tokens", f"token {first} and token {twin} are both {tokens[first]!r}")
    return id_of


def _kinds(fields: Fields, n_tokens: int) -> list[int]:
    array = fields.numbers("token_type", "iu", n_tokens)
    if array is None:
        return [int(TokenKind.NORMAL)] * n_tokens
    unknown = np.flatnonzero(~np.isin(array, list(TokenKind)))
    if unknown.size:
        bad = int(unknown[0])
        raise fields.error("token_type", f"token {bad} has type {array[bad]}, which is none")
    return list(map(int, array.tolist()))


def _scores(fields: Fields, n_tokens: int) -> NDArray[np.float32]:
    array = fields.numbers("scores", "f", n_tokens)
    if array is None:
        raise fields.error("scores", "missing: this kind of tokenizer merges by score")
    scores = array.astype(np.float32)
    if not np.isfinite(scores).all():
        raise fields.error("scores", f"entry {int(np.argmin(np.isfinite(scores)))} is not finite")
    return scores


def _merges(fields: Fields, rule: PreTokenizer) -> list[str]:
    merges = fields.strings("merges")
    if merges is None:
        if rule.merges_required:
            raise fields.error("merges", "missing: this kind of tokenizer merges by rank")
        return []
    return merges


def _check_byte_tokens(fields: Fields, vocabulary: Vocabulary) -> None:
    seen: dict[int, int] = {}
    for token_id in vocabulary.ids_of_kind(TokenKind.BYTE):
        token = vocabulary.tokens[token_id]
        try:
            byte = byte_value(token)
        except ValueError:
            raise fields.error(
                "tokens", f"byte token {token_id} is {token!r}, not <0x00> to <0xFF>"
            ) from None
        if seen.setdefault(byte, token_id) != token_id:
            raise fields.error("tokens", f"tokens {seen[byte]} and {token_id} are both byte {byte}")


def _end_ids(
    fields: Fields, id_of: dict[str, int], kinds: list[int], merges: list[str], default: int | None
) -> tuple[int, ...]:
    """End tokens: the file's eos, eot and eom, then those known by name. A token known by name
    is a control token whatever its type says, unless merges spell it as text."""
    n_tokens = len(kinds)
    ends = end_names(id_of)
    control = [*ends, *(name for name in CONTROL_NAMES if name in id_of)]
    plain = {name for name in control if kinds[id_of[name]] == TokenKind.NORMAL}
    spelled = {
        name
        for name in plain
        if any(f"{name[:cut]} {name[cut:]}" in merges for cut in range(1, len(name)))
    }
    for name in control:
        if name not in spelled:
            kinds[id_of[name]] = int(TokenKind.CONTROL)
    stated = [
        fields.token_id("eos_token_id", n_tokens, default),
        fields.token_id("eot_token_id", n_tokens, None),
        fields.token_id("eom_token_id", n_tokens, None),
    ]
    known = [id_of[name] for name in ends if name not in spelled]
    return tuple(dict.fromkeys(token for token in (*stated, *known) if token is not None))


def _check_added(fields: Fields, which: str, wanted: bool, token_id: int | None) -> None:
    if wanted and token_id is None and fields.get(f"add_{which}_token") is not None:
        raise fields.error(
            f"add_{which}_token", f"is true and {PREFIX}{which}_token_id names no token"
        )


def _stripping(fields: Fields, vocabulary: Vocabulary) -> tuple[frozenset[int], frozenset[int]]:
    """Ids of added tokens that swallow whitespace before / after them. GGUF has no key for it:
    llama.cpp goes by the model's name."""
    name = fields.metadata.get("general.name")
    pre = fields.get("pre")
    name = name.lower() if isinstance(name, str) else ""
    if isinstance(pre, str) and pre in ("jina-v2-de", "jina-v2-es", "jina-v2-code"):
        return frozenset({vocabulary.id_of.get("<mask>", -1)}), frozenset()
    if "phi-3" in name or "phi3" in name:
        kinds = (TokenKind.CONTROL, TokenKind.USER_DEFINED, TokenKind.UNKNOWN)
        keep = {vocabulary.id_of.get(token, -1) for token in ("<unk>", "<s>", "<|endoftext|>")}
        return frozenset(), frozenset(vocabulary.ids_of_kind(*kinds)) - keep
    return frozenset(), frozenset()
