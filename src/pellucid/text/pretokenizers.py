"""Where a text is cut before merging: one rule for every kind that `tokenizer.ggml.pre` names.

A rule is a sequence of regular expressions (Oniguruma's syntax, which the `tokenizers` library
speaks). Each cuts the pieces the one before left: every match is a piece, and so is what lies
between two matches. The expressions are those of the tokenizers the kinds were named after; a
kind's meaning for bytes, BOS and merges is llama.cpp's. Where that program approximates an
expression (letter case outside ASCII, combining marks in `tekken` and `gpt-4o`), the expression
itself stands here.

Written so that time stays linear in the text: a plain translation of the rules for grouped
digits and capped runs of spaces looks ahead to the end of the run at every cut.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final


@dataclass(frozen=True, slots=True)
class Cut:
    """Each match begins a piece, which runs to the next match."""

    pattern: str


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """`splits` in order. `ignore_merges`: a piece that is a token is taken whole. `add_bos`: the
    default where the file says nothing. `byte_level`: pieces are bytes in the byte-level alphabet;
    otherwise characters, `<0xNN>` for those without a token. `escape_spaces`: a space is U+2581.
    `whole_newline_runs`: a run of newlines that is a token is taken whole."""

    splits: tuple[str | Cut, ...]
    ignore_merges: bool = False
    add_bos: bool = False
    byte_level: bool = True
    escape_spaces: bool = False
    whole_newline_runs: bool = False
    merges_required: bool = True


def _either(*alternatives: str) -> str:
    return "|".join(alternatives)


_SUFFIX = "'s|'t|'re|'ve|'m|'ll|'d"
_SUFFIX_ANY_CASE = f"(?i:{_SUFFIX})"
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_NEWLINES = r"\s*[\r\n]+"
_SPACES = r"\s+(?!\S)|\s+"
_BLANKS = _either(_NEWLINES, _SPACES)

_GPT2 = _either(_SUFFIX, r" ?\p{L}+", r" ?\p{N}+", r" ?[^\s\p{L}\p{N}]+", _SPACES)


def _llama3(numbers: str) -> str:
    return _either(_SUFFIX_ANY_CASE, _LETTERS, numbers, _SYMBOLS, _BLANKS)


# Words cut where a capital follows a small letter (GPT-4o's o200k and its kin).
_UPPER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}"
_LOWER = r"\p{Ll}\p{Lm}\p{Lo}\p{M}"


def _cased(suffix: str, but: str = "") -> str:
    lead, upper, lower = r"[^\r\n\p{L}\p{N}]?", f"[{_UPPER}{but}]", f"[{_LOWER}{but}]"
    return _either(f"{lead}{upper}*{lower}+{suffix}", f"{lead}{upper}+{lower}*{suffix}")


_SYMBOLS_SLASH = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_O200K = _either(_cased(f"{_SUFFIX_ANY_CASE}?"), r"\p{N}{1,3}", _SYMBOLS_SLASH, _BLANKS)
_TEKKEN = _either(_cased(""), r"\p{N}", _SYMBOLS_SLASH, _BLANKS)
_KIMI = _either(
    r"\p{Han}+",
    _cased(f"{_SUFFIX_ANY_CASE}?", but=r"&&[^\p{Han}]"),
    r"\p{N}{1,3}",
    _SYMBOLS,
    _BLANKS,
)

# Digits in threes counted from the right, as thousands are written: the first group of a run
# looks ahead once, the rest follow where the last match ended (\G).
_THOUSANDS = r"(?<!\p{N})\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))|\G(?<=\p{N})\p{N}{3}"
_THOUSANDS_WORD = r"(?<!\d)\d{1,3}(?=(?:\d{3})*\b)|\G(?<=\d)\d{3}"
_THOUSANDS_CUTS = r"(?:(?<!\d)\d{1,2}(?=(?:\d{3})+(?!\d)))?\K\d{3}"

_BLOOM = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
_LINES = r"[^\n]+|\n+"

_PUNCTUATION_RUN = r"[\p{P}$+<=>^~|]+"
_PUNCTUATION_RUN_TICK = r"[\p{P}$+<=>^~|`]+"
_THREE_DIGITS = "[0-9][0-9][0-9]"

# DeepSeek's tokenizers.
_ASCII_SYMBOL_WORD = r"[!-/:-@\[-`{-~][A-Za-z]+"
_MARKED_LETTERS = r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
_CJK_KANA = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_CJK_HANGUL = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_DEEPSEEK3 = _either(
    _ASCII_SYMBOL_WORD, _MARKED_LETTERS, r" ?[\p{P}\p{S}]+[\r\n]*", _NEWLINES, _SPACES
)
_SPARK = _either(_ASCII_SYMBOL_WORD, _MARKED_LETTERS, r" ?[\p{P}\p{S}]+", "[\r\n]", _SPACES)
# Cased letters as that tokenizer lists them: first and last code point, hexadecimal.
_CASED_RANGES = """
41-5a 61-7a b5 c0-d6 d8-f6 f8-1ba 1bc-1bf 1c4-293 295-2af 370-373 376-377 37b-37d 37f 386 388-38a
38c 38e-3a1 3a3-3f5 3f7-481 48a-52f 531-556 10a0-10c5 13a0-13f5 13f8-13fd 1c90-1cba 1cbd-1cbf
1d00-1d2b 1d6b-1d77 1d79-1d9a 1e00-1f15 1f18-1f1d 1f20-1f45 1f48-1f4d 1f50-1f57 1f59 1f5b 1f5d
1f5f-1f7d 1f80-1fb4 1fb6-1fbc 1fbe 1fc2-1fc4 1fc6-1fcc 1fd0-1fd3 1fd6-1fdb 1fe0-1fec 1ff2-1ff4
1ff6-1ffc 2102 2107 210a-2113 2115 2119-211d 2124 2126 2128 212a-212d 212f-2134 2139 213c-213f
2145-2149 214e 2183-2184 2c00-2c7b 2c7e-2ce4 2ceb-2cee 2cf2-2cf3 a640-a66d a680-a69b a722-a76f
a771-a787 a78b-a78e ab70-abbf fb00-fb06 fb13-fb17 ff21-ff3a ff41-ff5a 10400-1044f 104b0-104d3
104d8-104fb 10c80-10cb2 10cc0-10cf2 118a0-118df 1e900-1e943
"""


def _char_class(ranges: str) -> str:
    spans = (span.split("-") for span in ranges.split())
    return "".join("-".join(chr(int(end, 16)) for end in span) for span in spans)


_DEEPSEEK_LLM = (
    "[\r\n]",
    rf"\s?[{_char_class(_CASED_RANGES)}]+",
    "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
    r"\s+$",
    _CJK_HANGUL,
    r"\p{N}+",
)

# Youtu: Korean, full-width punctuation, Bopomofo, then Chinese with Japanese, each by itself.
_YOUTU_SCRIPTS = _either(
    "[\uac00-\ud7a3\u3131-\u318e]+",
    "[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+",
    "[\u3105-\u312f]+",
    _CJK_KANA,
)
_ASIAN_SCRIPTS = (
    "[\u4e00-\u9fff\u3400-\u4dbf\u8c48-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf"
    "\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff"
    "\uac00-\ud7af\u1100-\u11ff]+"
)

# Runs of spaces in powers of two. Not after a blank: there no newline lies ahead, and looking for
# one from each power of two would take quadratic time.
_JAIS2 = _either(
    _SUFFIX_ANY_CASE,
    _LETTERS,
    r"\p{N}{1,3}",
    _SYMBOLS,
    r"(?<![^\S\r\n])\s*[\r\n]+",
    *(rf"\s{{{width}}}(?!\S)" for width in (512, 256, 128, 64, 32, 16, 8, 4)),
    r"\s{1,2}(?!\S)|\s",
)
_CHAMELEON = (
    "<sentinel:[0-9]+>",
    "IMGIMG[A-I]{1,4}Z",
    r"[\t\n]|    |  ",
    r"\p{N}",
    r"[\p{P}!-/:-@\[-`{-~]",
    _GPT2,
)
_EXAONE_MOE = _either(
    _SUFFIX_ANY_CASE,
    r"[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+",
    r"\p{N}",
    r" ?[^\s\p{L}\p{N}]+[\r\n/]?",
    r"\s*[\r\n]",
    _SPACES,
)
_BAILING = _either("'(?i:[sdmt]|ll|ve|re)", _LETTERS, r"\p{N}", _SYMBOLS, r"\s*[\r\n]", _SPACES)
_SEED_CODER = _either(_SUFFIX_ANY_CASE, _LETTERS, r"\p{N}", r" ?[^\s\p{L}\p{N}\r\n]+", _BLANKS)
_QWEN35 = _either(
    _SUFFIX_ANY_CASE,
    r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+",
    r"\p{N}",
    r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",
    _BLANKS,
)
_YOUTU = _either(_cased(f"{_SUFFIX_ANY_CASE}?"), r"\p{N}", _SYMBOLS_SLASH, _BLANKS)

_PLAIN_GPT2 = PreTokenizer((_GPT2,))
_DIGITS_GPT2 = PreTokenizer((r"\p{N}", _GPT2))
_LLAMA3 = PreTokenizer((_llama3(r"\p{N}{1,3}"),))
_LLAMA_BPE = replace(_LLAMA3, ignore_merges=True, add_bos=True)
_QWEN2 = PreTokenizer((_llama3(r"\p{N}"),))
_DEEPSEEK_V3 = PreTokenizer((r"\p{N}{1,3}", _CJK_KANA, _DEEPSEEK3))
_CASED_WORDS = PreTokenizer((_O200K,))
_GROUPED_CASED_WORDS = PreTokenizer((_THOUSANDS_WORD, _O200K))
_PIECES = PreTokenizer((_LINES,), byte_level=False, escape_spaces=True)
_GEMMA4 = replace(_PIECES, whole_newline_runs=True, add_bos=True)

MISSING: Final = PreTokenizer((_PUNCTUATION_RUN, _GPT2, r"\p{N}+", _THREE_DIGITS))
"""What a file that names no kind means (llama.cpp's `default`)."""

_RULES: tuple[tuple[str, PreTokenizer], ...] = (
    ("default", MISSING),
    (
        "gpt-2 phi-2 mpt olmo jais trillion granite-docling exaone4 gigachat a.x-4.0 mellum "
        "modern-bert roberta-bpe jina-es jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code",
        _PLAIN_GPT2,
    ),
    (
        "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2",
        _DIGITS_GPT2,
    ),
    (
        "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
        _LLAMA_BPE,
    ),
    ("dbrx smaug-bpe chatglm-bpe", _LLAMA3),
    ("glm4 glm5", replace(_LLAMA3, ignore_merges=True)),
    (
        "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2",
        _QWEN2,
    ),
    ("qwen35", PreTokenizer((_QWEN35,))),
    ("ufakzeka", PreTokenizer((_either(_LETTERS, r"\p{N}", _SYMBOLS, _BLANKS),))),
    ("laguna", PreTokenizer((_LINES, _llama3(r"\p{N}")))),
    ("minicpm5", PreTokenizer((r"\p{N}{1,3}", _llama3(r"\p{N}+")), ignore_merges=True)),
    ("jais-2", PreTokenizer((_JAIS2,))),
    ("falcon", PreTokenizer((_PUNCTUATION_RUN_TICK, _GPT2, _THREE_DIGITS))),
    ("deepseek-llm", PreTokenizer(_DEEPSEEK_LLM)),
    (
        "deepseek-coder",
        PreTokenizer(("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK_HANGUL, r"\p{N}")),
    ),
    ("deepseek-v3 hunyuan-dense joyai-llm hy_v4", _DEEPSEEK_V3),
    ("spark2_5", PreTokenizer((r"\p{N}{1,3}", _CJK_KANA, _SPARK, r"\p{N}"))),
    ("youtu", PreTokenizer((_YOUTU_SCRIPTS, _YOUTU), ignore_merges=True)),
    ("afmoe", PreTokenizer((_THOUSANDS, _ASIAN_SCRIPTS, _DEEPSEEK3))),
    ("bloom poro-chat gpt3-finnish", PreTokenizer((_BLOOM,))),
    ("viking", PreTokenizer((_BLOOM, r"\p{N}"))),
    ("tekken", PreTokenizer((_TEKKEN,), ignore_merges=True, add_bos=True)),
    ("chameleon", PreTokenizer(_CHAMELEON, add_bos=True)),
    ("gpt-4o llama4 kanana2 talkie minimax-m2", _CASED_WORDS),
    ("granite-embed-multi-97m", replace(_CASED_WORDS, ignore_merges=True)),
    ("tiny_aya cohere2moe", _GROUPED_CASED_WORDS),
    ("kimi-k2", PreTokenizer((_KIMI,), merges_required=False)),
    ("superbpe", PreTokenizer((r"\p{N}+", Cut(_THOUSANDS_CUTS)))),
    ("bailingmoe bailingmoe2 llada-moe", PreTokenizer((_BAILING,))),
    ("seed-coder", PreTokenizer((_SEED_CODER,))),
    ("exaone-moe", PreTokenizer((_EXAONE_MOE,))),
    ("gemma4 granite-embed-multi-311m", _GEMMA4),
    ("sarvam-moe", _PIECES),
    ("whitespace", PreTokenizer((r"\S+",), byte_level=False)),
)

PRE_TOKENIZERS: Final = {name: rule for names, rule in _RULES for name in names.split()}
