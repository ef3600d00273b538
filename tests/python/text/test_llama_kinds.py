"""Every pre-tokenizer kind against llama.cpp's answers for the same small vocabulary."""

from __future__ import annotations

import pytest
import regex

from pellucid.text.gguf_build import build_encoder
from pellucid.text.gguf_vocab import read_gguf_tokenizer
from pellucid.text.pretokenizers import PRE_TOKENIZERS
from tests.python.text.vocabularies import FILE, fixture, kind_metadata, kind_tokenizer

# llama.cpp knows these kinds' expressions approximately: letter case and marks in ASCII only,
# blanks outside ASCII never part of a range, digits grouped whatever follows. There the
# expressions that the kinds' own tokenizers publish are the judge, run by another engine.
_SUFFIX = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LEAD = r"[^\r\n\p{L}\p{N}]?"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def _cased(upper: str, lower: str, suffix: str) -> str:
    return f"{_LEAD}{upper}*{lower}+{suffix}|{_LEAD}{upper}+{lower}*{suffix}"


_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_NO_HAN = [f"(?:(?!\\p{{Han}}){letters})" for letters in (_UPPER, _LOWER)]
_O200K = rf"{_cased(_UPPER, _LOWER, _SUFFIX + '?')}|\p{{N}}{{1,3}}|{_REST}"
_CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
PUBLISHED = {
    "tekken": [rf"{_cased(_UPPER, _LOWER, '')}|\p{{N}}|{_REST}"],
    "gpt-4o": [_O200K],
    "granite-embed-multi-97m": [_O200K],
    "kimi-k2": [
        rf"\p{{Han}}+|{_cased(*_NO_HAN, _SUFFIX + '?')}|\p{{N}}{{1,3}}|{_REST.replace('/', '')}"
    ],
    "youtu": [
        "[\uac00-\ud7a3\u3131-\u318e]+"
        "|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+"
        "|[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        rf"{_cased(_UPPER, _LOWER, _SUFFIX + '?')}|\p{{N}}|{_REST}",
    ],
    "tiny_aya": [r"\d{1,3}(?=(?:\d{3})*\b)", _O200K],
    "superbpe": [r"\p{N}+", r"(?=(?:\d{3})+(?!\d))"],
    "afmoe": [
        r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))",
        "[\u4e00-\u9fff\u3400-\u4dbf\u8c48-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f"
        "\u2f00-\u2fdf\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f"
        "\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+",
        r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
        r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK, r"\p{N}"],
}
ALIASES = {
    "llama4": "gpt-4o",
    "kanana2": "gpt-4o",
    "talkie": "gpt-4o",
    "minimax-m2": "gpt-4o",
    "cohere2moe": "tiny_aya",
}
# The cased letters of deepseek-llm are a list of its own; llama.cpp judges all but the blanks.
APPROXIMATE = {*PUBLISHED, *ALIASES, "deepseek-llm"}
DATA = fixture("llama_kinds.json")


def _llama(kind: str, index: int) -> list[list[int]] | None:
    place = DATA["kinds"][kind][index]
    answer: list[list[int]] | None = None if place is None else DATA["answers"][index][place]
    return answer


def _ours(kind: str, text: str) -> list[list[int]]:
    tokenizer = kind_tokenizer(kind)
    return [
        tokenizer.encode(text, parse_special=special, add_special=False)
        for special in (False, True)
    ]


def test_every_kind_is_judged() -> None:
    assert set(DATA["kinds"]) == {*PRE_TOKENIZERS, "missing"}
    answered = [place for places in DATA["kinds"].values() for place in places if place is not None]
    assert len(answered) > 4000


@pytest.mark.parametrize("kind", sorted(set(DATA["kinds"]) - APPROXIMATE))
def test_kind_as_llama_cpp(kind: str) -> None:
    for index, text in enumerate(DATA["texts"]):
        answer = _llama(kind, index)
        if answer is not None:
            assert _ours(kind, text) == answer, repr(text)


@pytest.mark.parametrize("kind", sorted(APPROXIMATE))
def test_approximated_kind_as_llama_cpp_on_plain_text(kind: str) -> None:
    """Where the approximations do not matter, the two agree."""
    judged = 0
    for index, text in enumerate(DATA["texts"]):
        answer = _llama(kind, index)
        plain = text.isascii() and not regex.search(r"\d|[a-z][A-Z]|\s\s", text)
        if plain and answer is not None:
            judged += 1
            assert _ours(kind, text) == answer, repr(text)
    assert judged > 10


@pytest.mark.parametrize("kind", sorted(PUBLISHED))
def test_cuts_as_published(kind: str) -> None:
    """Where pieces end, against the published expressions in the `regex` package."""
    source = read_gguf_tokenizer(kind_metadata(kind), FILE)
    library = build_encoder(source).library  # type: ignore[attr-defined]
    for text in DATA["texts"]:
        ends = [end for _, (_, end) in library.pre_tokenizer.pre_tokenize_str(text)]
        pieces = [text] if text else []
        for pattern in PUBLISHED[kind]:
            pieces = [part for piece in pieces for part in _isolate(pattern, piece)]
        expected = [sum(map(len, pieces[: n + 1])) for n in range(len(pieces))]
        assert ends == expected, repr(text)


def _isolate(pattern: str, text: str) -> list[str]:
    """Each match a piece, and each gap between two."""
    parts, done = [], 0
    for match in regex.finditer(pattern, text):
        parts += [text[done : match.start()], match.group()]
        done = match.end()
    return [part for part in [*parts, text[done:]] if part]


@pytest.mark.parametrize("alias", sorted(ALIASES))
def test_aliases_share_a_rule(alias: str) -> None:
    assert PRE_TOKENIZERS[alias].splits == PRE_TOKENIZERS[ALIASES[alias]].splits
