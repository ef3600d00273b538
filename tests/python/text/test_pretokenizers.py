"""Rules written for linear time cut where their plain forms do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

from pellucid.text.gguf_build import split_rule
from pellucid.text.pretokenizers import PRE_TOKENIZERS, Cut

WIDTHS = (512, 256, 128, 64, 32, 16, 8, 4)
PLAIN = {
    "afmoe": r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))",
    "tiny_aya": r"\d{1,3}(?=(?:\d{3})*\b)",
    "superbpe": r"(?=(?:\d{3})+(?!\d))",
    "jais-2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
    + "|".join(rf"\s{{{width}}}(?!\S)" for width in WIDTHS)
    + r"|\s{1,2}(?!\S)|\s{1}",
}
PLACE = {"superbpe": 1}


def cut(split: pre_tokenizers.PreTokenizer, text: str) -> list[str]:
    return [piece for piece, _ in split.pre_tokenize_str(text)]


@pytest.mark.parametrize("kind", sorted(PLAIN))
@given(
    parts=st.lists(
        st.tuples(st.sampled_from("15\u00bd\u00b2\u0663 a_!\n\r\t"), st.integers(1, 9)), max_size=9
    )
)
def test_as_the_plain_form(kind: str, parts: list[tuple[str, int]]) -> None:
    text = "".join(char * count for char, count in parts)
    fast = PRE_TOKENIZERS[kind].splits[PLACE.get(kind, 0)]
    plain = pre_tokenizers.Split(Regex(PLAIN[kind]), "isolated")
    if isinstance(fast, Cut):  # works on what the rule before it leaves: runs of numbers
        text = "".join(char for char in text if char.isnumeric())
    assert cut(split_rule(fast), text) == cut(plain, text)


@pytest.mark.parametrize("unit", ["1", " ", "a", "\n", "A", "a\u0301", "'", "1 "])
def test_no_rule_takes_quadratic_time(unit: str) -> None:
    """A quarter of a million characters each: hours, if a rule looked ahead at every cut."""
    text = (unit * 250_000)[:250_000]
    for rule in {PRE_TOKENIZERS[kind].splits: None for kind in ("afmoe", "tiny_aya", "jais-2")}:
        sequence = pre_tokenizers.Sequence([split_rule(split) for split in rule])
        assert "".join(piece for piece, _ in sequence.pre_tokenize_str(text)) == text
