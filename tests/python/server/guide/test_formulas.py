"""The formulas that are worked out with the running model's numbers: each is computed, and what it
says is what `costs` predicts."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid.costs import kv_bytes_per_token, pages_for
from pellucid.engine.sizing import Asked
from pellucid.explain.source import open_source
from pellucid.ops.rotary import frequencies
from pellucid.server.guide.chapters import chapters
from pellucid.server.guide.numbers import CONTEXT, CROWD, GUESSED, in_words, model_numbers

UNITS = {"B": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "ms": 1e-3}
UNITS |= {f"{prefix}B": UNITS[prefix] for prefix in "kMGT"} | {"GB/s": 1e9}
# LaTeX to Python, in this order.
RULES = (
    (r"\\left\\lceil(.*?)\\right\\rceil", r"ceil(\1)"),
    (r"\\log_2 ([\d,]+)", r"log2(\1)"),
    (r"\\text\{([\d.,]+)\u00a0?\s?([A-Za-z/]*)\}", r"(\1*U\2)"),
    (r"\\frac\{((?:[^{}]|\{[^{}]*\})*)\}\{((?:[^{}]|\{[^{}]*\})*)\}", r"((\1)/(\2))"),
    (r"\^\{([^{}]*)\}", r"**(\1)"),
    (r"\^", "**"),
    (r"\\times", "*"),
    (r"\\pi", "pi"),
    (r"(?<=\d),(?=\d{3})", ""),
)


def value(source: str) -> float:
    """What a side of a formula comes to. Raises `NameError` where it has letters."""
    for pattern, replacement in RULES:
        source = re.sub(pattern, replacement, source)
    source = re.sub(r"\*U([A-Za-z/]*)\)", lambda unit: f"*{UNITS.get(unit[1], 1)!r})", source)
    known = {"__builtins__": {}, "ceil": math.ceil, "log2": math.log2, "pi": math.pi}
    return float(eval(source, known))  # noqa: S307 - the chapters are the repository's own


def worked(source: str, words: dict[str, str]) -> list[tuple[str, list[float]]]:
    """Displayed formulas without a variable left, once numbers are filled in, and their sides."""
    filled = re.sub(r"\{\{(\w+)\}\}", lambda name: words[name[1]], source)
    found = []
    for formula in re.findall(r"\$\$(.*?)\$\$", filled, re.DOTALL):
        plain = re.sub(r"\\text\{[\d.,\u00a0 ]+[A-Za-z/]*\}|\\[a-z]+", "", formula)
        if not re.search(r"[A-Za-z\\]", plain) and "=" in formula:
            found.append((formula, [value(side) for side in formula.split("=")]))
    return found


@pytest.fixture(scope="module")
def numbers(tiny_path: Path) -> dict[str, Any]:
    return model_numbers(tiny_path, "tiny")


@pytest.mark.parametrize("name", chapters())
def test_each_chapter_works_a_formula_out_and_it_is_right(
    name: str, numbers: dict[str, Any]
) -> None:
    found = worked(chapters()[name].source, in_words(numbers))
    assert found
    for formula, sides in found:
        # Both sides are rounded to three digits or so.
        assert sides[1:] == pytest.approx([sides[0]] * (len(sides) - 1), rel=0.015), formula


def test_a_wrong_formula_is_found_out() -> None:
    assert worked(r"$$ 2 \times \text{96.6 MB} = \text{19 GB} $$", {})[0][1] == [193.2e6, 19e9]
    assert worked(r"$$ \left\lceil \frac{1000}{16} \right\rceil = 62 $$", {})[0][1] == [63, 62]
    assert worked(r"$$ a \times 2 = 4 $$", {}) == []


def test_what_the_formulas_come_to_is_what_costs_predict(
    tiny_path: Path, numbers: dict[str, Any]
) -> None:
    priced = open_source(tiny_path).priced
    spec, predicted = priced.spec, numbers["predicted"]
    words = in_words(numbers)
    per_token = kv_bytes_per_token(spec, "f16")
    assert numbers["kv_bytes"] == per_token
    assert numbers["operations"] == priced.decode(0).operations
    assert numbers["weight_bytes"] == priced.weight_bytes
    assert predicted["round_weights"] == priced.decode(0).weights_read
    # One position more that is looked back at costs what chapter 4 says.
    further = priced.decode(CONTEXT + 1).operations - priced.decode(CONTEXT).operations
    assert numbers["attention_operations"] == further
    assert predicted["head_operations"] == 2 * spec.vocab_size * spec.d_model
    assert predicted["prefill_operations"] == priced.prefill(CONTEXT).operations
    assert predicted["alone_kv"] == (CONTEXT + 1) * per_token
    crowd = priced.decode(CONTEXT, CROWD)
    assert predicted["crowd_read"] == crowd.weights_read + crowd.kv_read
    several = priced.decode(CONTEXT, rows=GUESSED).bytes_moved / priced.decode(CONTEXT).bytes_moved
    assert float(words["guessed_times"]) == pytest.approx(several, abs=1e-3)
    page_size = Asked().page_size
    assert words["thousand_pages"] == str(pages_for(1000, page_size))
    rope = spec.layers[0].rope
    assert rope is not None
    slowest = frequencies(rope, np.zeros(1, np.int32)).min()
    said = float(words["slowest_round"].replace(",", ""))
    assert said == pytest.approx(2 * math.pi / slowest, abs=1)
