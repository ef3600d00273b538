"""GPTQ and AWQ checkpoints on the native backend."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pellucid import LLM
from tests.python.models.pack_by_hand import packed_llama
from tests.python.models.test_packed import FORMS, TEXT


@pytest.mark.parametrize("form", list(FORMS))
def test_native_answers_as_the_reference(tmp_path: Path, form: str) -> None:
    """But for activations of 8 bits, and half precision where no block type holds the weights."""
    packed, plain = packed_llama(tmp_path, **FORMS[form][0])
    answers = []
    for path, backend in (packed, "native"), (packed, "reference"), (plain, "native"):
        with LLM(path, backend=backend, kv_cache_dtype="f32") as llm:
            answers.append(llm.logits(list(llm.tokenizer.encode(TEXT))))
    ours, exact, unpacked = answers
    size = float(np.abs(exact).max())
    assert np.abs(ours - exact).max() < 0.03 * size
    assert np.abs(ours - unpacked).max() < 0.03 * size
    assert not np.array_equal(ours, exact)


def test_quantised_further_at_load(tmp_path: Path) -> None:
    """What no block type holds is quantised when it is asked for; what one holds stays."""
    packed, plain = packed_llama(tmp_path, scattered=True)
    answers = []
    for path in packed, plain:
        with LLM(path, quantization="q8_0") as llm:
            answers.append(llm.logits(list(llm.tokenizer.encode(TEXT))))
    np.testing.assert_allclose(*answers, atol=0.03 * float(np.abs(answers[0]).max()))
