"""A tokenizer from a folder of Hugging Face files: tokenizer.json and the configuration beside it.

`tokenizer.json` is run by the `tokenizers` library itself, so that encoding is what its authors
shipped. Decoding is ours, from each token's bytes; it follows the decoder the file declares.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tokenizers import AddedToken as LibraryToken
from tokenizers import Tokenizer as Library

from pellucid.core.errors import BadInput, FormatError, UnsupportedError
from pellucid.text.added import AddedToken, AddedTokens
from pellucid.text.config_files import MAX_TOKENIZER_BYTES, read_object, read_text
from pellucid.text.encoders import LibraryEncoder
from pellucid.text.gguf_vocab import MAX_TOKENS
from pellucid.text.merge_steps import Merger, library_merger
from pellucid.text.special_names import end_names
from pellucid.text.vocabulary import SPACE_MARK, Spelling, TokenKind, Vocabulary, byte_value
from pellucid.text.width import parts

_FILE: Final = "tokenizer.json"


@dataclass
class FolderTokenizer:
    vocabulary: Vocabulary
    encoder: LibraryEncoder
    make_merger: Callable[[], Merger]
    bos_id: int | None
    eos_ids: tuple[int, ...]
    prefix_ids: tuple[int, ...]
    suffix_ids: tuple[int, ...]
    control: list[AddedToken] = field(default_factory=list)


def read_folder(path: str | Path) -> FolderTokenizer:
    """Raises `BadInput` when there is no tokenizer.json, `FormatError` at a damaged file,
    `UnsupportedError` naming a decoder this package does not implement."""
    folder = Path(path)
    file = folder if folder.is_file() else folder / _FILE
    text = read_text(file, MAX_TOKENIZER_BYTES)
    if text is None:
        raise BadInput(
            f"{folder}: holds no {_FILE}: fetch it, or make one with transformers "
            "(AutoTokenizer.from_pretrained(folder).save_pretrained(folder))"
        )
    folder = file.parent
    library = _load(file, text)
    added: Mapping[int, LibraryToken] = library.get_added_tokens_decoder()
    vocabulary = _vocabulary(file, library, added)
    library.encode_special_tokens = True
    config = read_object(folder / "tokenizer_config.json")
    prefix, suffix = _surroundings(library)
    bos = _named(folder, config, "bos_token", vocabulary)
    eos = _named(folder, config, "eos_token", vocabulary)
    if "add_bos_token" in config or "add_eos_token" in config:
        prefix = (bos,) if config.get("add_bos_token") and bos is not None else ()
        suffix = (eos,) if config.get("add_eos_token") and eos is not None else ()
    if bos is None and prefix:
        bos = prefix[0]
    later = _without_first_space(library)
    user_defined = AddedTokens(
        _added(index, token) for index, token in added.items() if not token.special
    )
    return FolderTokenizer(
        vocabulary=vocabulary,
        encoder=LibraryEncoder(library, later),
        make_merger=lambda: library_merger(library, later, vocabulary, user_defined),
        bos_id=bos,
        eos_ids=_end_ids(folder, eos, vocabulary),
        prefix_ids=prefix,
        suffix_ids=suffix,
        control=[_added(index, token) for index, token in added.items() if token.special],
    )


def _load(file: Path, text: str) -> Library:
    try:
        return Library.from_str(text)
    except Exception as error:
        raise FormatError(file, "content", f"is no tokenizer: {error}") from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise FormatError(file, "content", "is no tokenizer the library can load") from error


def _vocabulary(file: Path, library: Library, added: Mapping[int, LibraryToken]) -> Vocabulary:
    id_of: dict[str, int] = library.get_vocab(with_added_tokens=True)
    highest = max(id_of.values(), default=-1)
    if highest < 0:
        raise FormatError(file, "model.vocab", "is empty")
    if highest >= MAX_TOKENS:
        raise FormatError(file, "model.vocab", f"id {highest} is above {MAX_TOKENS - 1}")
    tokens = [""] * (highest + 1)
    kinds = [int(TokenKind.UNUSED)] * (highest + 1)
    spelling, strip = _spelling(file, library)
    for token, token_id in id_of.items():
        if kinds[token_id] != TokenKind.UNUSED:
            raise FormatError(
                file, "model.vocab", f"{tokens[token_id]!r} and {token!r} are both id {token_id}"
            )
        tokens[token_id] = token
        kinds[token_id] = int(TokenKind.NORMAL)
    if any(part["type"] == "ByteFallback" for part in parts(library.decoder)):
        for byte in range(256):
            token_id = id_of.get(f"<0x{byte:02X}>", -1)
            if token_id >= 0:
                assert byte_value(tokens[token_id]) == byte
                kinds[token_id] = int(TokenKind.BYTE)
    for token_id, entry in added.items():
        kind = TokenKind.CONTROL if entry.special else TokenKind.USER_DEFINED
        kinds[token_id] = int(kind)
    return Vocabulary(tokens, kinds, spelling, strip, id_of)


def _spelling(file: Path, library: Library) -> tuple[Spelling, bool]:
    """How tokens spell text, and whether decoding takes a leading space away."""
    found = list(parts(library.decoder)) or list(parts(library.pre_tokenizer))
    names = {str(part["type"]) for part in found}
    if "ByteLevel" in names:
        return "bytes", False
    strip = False
    known = names <= {"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace", "Split"}
    for part in found:
        match part["type"]:
            case "Metaspace":
                known = known and part.get("replacement") == SPACE_MARK
                strip = strip or part.get("prepend_scheme", "always") != "never"
            case "Strip":
                known = known and part.get("content") == " " and part.get("stop") == 0
                strip = strip or part.get("start") == 1
            case "Replace":
                pattern = part.get("pattern")
                known = known and pattern == {"String": SPACE_MARK} and part.get("content") == " "
    if not known or not names & {"Replace", "Metaspace"}:
        raise UnsupportedError(
            f"{file}: decoder {' + '.join(sorted(names)) or 'missing'} is not supported: this "
            "version decodes byte-level and SentencePiece tokens"
        )
    return "pieces", strip


def _without_first_space(library: Library) -> Library | None:
    """A twin for text that something precedes, when the file puts a space before the very first
    word only; None where there is no such rule."""
    state = json.loads(library.to_str()) if _prepends_first(library) else None
    if state is None:
        return None
    for part in state["pre_tokenizer"].get("pretokenizers", [state["pre_tokenizer"]]):
        if part.get("prepend_scheme") == "first":
            part["prepend_scheme"] = "never"
    twin = Library.from_str(json.dumps(state))
    twin.encode_special_tokens = True
    return twin


def _prepends_first(library: Library) -> bool:
    return any(part.get("prepend_scheme") == "first" for part in parts(library.pre_tokenizer))


def _surroundings(library: Library) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Ids that the file's post-processor puts before and after a text."""
    encoding = library.encode("a", add_special_tokens=True)
    mask = encoding.special_tokens_mask
    inner = [index for index, special in enumerate(mask) if not special]
    if not inner:
        return (), ()
    return tuple(encoding.ids[: inner[0]]), tuple(encoding.ids[inner[-1] + 1 :])


def _added(token_id: int, token: LibraryToken) -> AddedToken:
    return AddedToken(
        token.content,
        token_id,
        lstrip=token.lstrip,
        rstrip=token.rstrip,
        single_word=token.single_word,
    )


def _named(
    folder: Path, config: Mapping[str, object], key: str, vocabulary: Vocabulary
) -> int | None:
    """The id of a token that tokenizer_config.json, else special_tokens_map.json, names."""
    value = config.get(key)
    if value is None:
        value = read_object(folder / "special_tokens_map.json").get(key)
    if isinstance(value, dict):
        value = value.get("content")
    if value is None:
        return None
    if not isinstance(value, str):
        raise FormatError(folder / "tokenizer_config.json", key, "must be a string")
    token_id = vocabulary.id_of.get(value)
    if token_id is None:
        raise FormatError(
            folder / "tokenizer_config.json", key, f"{value!r} is not in the vocabulary"
        )
    return token_id


def _end_ids(folder: Path, eos: int | None, vocabulary: Vocabulary) -> tuple[int, ...]:
    """End tokens: the tokenizer's own, those of generation_config.json (config.json where that
    says nothing), then control tokens that end turns by name."""
    stated = _id_list(folder / "generation_config.json", vocabulary)
    if not stated:
        stated = _id_list(folder / "config.json", vocabulary)
    ids = [] if eos is None else [eos]
    named = [
        token_id
        for name in end_names(vocabulary.id_of)
        if vocabulary.kinds[token_id := vocabulary.id_of[name]] == TokenKind.CONTROL
    ]
    return tuple(dict.fromkeys([*ids, *stated, *named]))


def _id_list(path: Path, vocabulary: Vocabulary) -> list[int]:
    value = read_object(path).get("eos_token_id")
    values: list[object] = value if isinstance(value, list) else [] if value is None else [value]
    ids = []
    for token_id in values:
        if not isinstance(token_id, int) or isinstance(token_id, bool) or token_id < 0:
            raise FormatError(path, "eos_token_id", f"{token_id!r} is no token id")
        # Models may have more rows than the tokenizer has tokens: those ids never come up.
        if token_id < len(vocabulary):
            ids.append(token_id)
    return ids
