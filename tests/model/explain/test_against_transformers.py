"""What a watched pass saw, against transformers' own hidden states and attention weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid.explain.inside import look_inside
from pellucid.formats import open_checkpoint
from tests.model.models import (
    test_bloom,
    test_gemma,
    test_gpt2,
    test_llama,
    test_mistral,
    test_mpt,
    test_qwen3,
    test_qwen3_moe,
)
from tests.model.models.runner import Built, Case

CASES: dict[str, Case] = {
    "gpt2": test_gpt2.TestGPT2.CASES["plain"],
    "llama": test_llama.TestLlama.CASES["plain"],
    "mistral": test_mistral.TestMistral.CASES["a window of 7"],
    "gemma2": test_gemma.TestGemma2.CASES["caps that bite"],
    "gemma3": test_gemma.TestGemma3.CASES["five near, one far"],
    "qwen3": test_qwen3.TestQwen3.CASES["plain"],
    "qwen3-moe": test_qwen3_moe.TestQwen3Moe.CASES["plain"],
    "bloom": test_bloom.TestBloom.CASES["six heads"],
    "mpt": test_mpt.TestMPT.CASES["six heads"],
}
LENGTH = 21


@pytest.mark.parametrize("name", CASES)
def test_hidden_states_and_attention_are_transformers_own(name: str, tmp_path: Path) -> None:
    built = Built(CASES[name], tmp_path)
    truth = _asked(built.judge, tokens := built.tokens(LENGTH))
    context = built.case.context or built.spec.context_length
    with open_checkpoint(tmp_path) as checkpoint:
        inside = look_inside(checkpoint, tokens, context)
    n_layers = inside.spec.n_layers
    assert len(truth.hidden_states) == n_layers + 1
    for index in range(
        n_layers
    ):  # their last one is normed already: the lens's logits stand for it
        theirs = truth.hidden_states[index][0, -1].numpy()
        _agree(inside.residuals[index], theirs, f"stream before layer {index}")
    _agree(inside.lens[-1], truth.logits[0, -1].numpy(), "logits")
    for index, heads in enumerate(inside.heads):
        theirs = truth.attentions[index][0].numpy()  # [heads, T, T]
        for head in range(heads.layer.n_heads):
            np.testing.assert_allclose(
                heads.matrix(head), theirs[head], atol=2e-5, err_msg=f"layer {index}, head {head}"
            )


def _asked(judge: Any, tokens: list[int]) -> Any:
    import torch

    with torch.no_grad():
        return judge(
            torch.tensor([tokens]),
            use_cache=False,
            output_hidden_states=True,
            output_attentions=True,
        )


def _agree(ours: np.ndarray, theirs: np.ndarray, what: str) -> None:
    scale = float(np.abs(theirs).max())
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=2e-5 * scale, err_msg=what)
