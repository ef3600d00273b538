"""The mean squares that a text gives to the inputs of every matrix."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pellucid.convert import calibrate as module
from pellucid.convert.calibrate import calibrate
from pellucid.core.errors import BadInput
from pellucid.formats import open_checkpoint
from pellucid.text import Tokenizer
from tests.python.convert.tiny import tiny_llama

TEXT = "low lower lowest new newer newest wide wider widest " * 4


def test_mean_squares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny_llama(tmp_path / "model")
    tokenizer = Tokenizer.from_folder(folder)
    ids = tokenizer.encode(TEXT)
    seen: list[tuple[int, int]] = []
    monkeypatch.setattr(module, "WINDOW", len(ids) // 2)
    with open_checkpoint(folder) as checkpoint:
        importance = calibrate(checkpoint, tokenizer, TEXT, lambda *counts: seen.append(counts))
        found = importance.squares
        embedded = checkpoint.read("model.embed_tokens.weight")[ids]
        norm = checkpoint.read("model.layers.0.input_layernorm.weight")
    assert importance.tokens == len(ids) and importance.window == len(ids) // 2
    assert seen[-1] == (len(ids), len(ids)) and len(seen) in (2, 3)
    # The input of Q, K and V: the embedding, normed, of every token alike.
    rms = np.sqrt((embedded**2).mean(axis=1, keepdims=True) + 1e-5)
    expected = ((embedded / rms * norm) ** 2).mean(axis=0)
    for part in "qkv":
        np.testing.assert_allclose(found[f"blk.0.attn_{part}.weight"], expected, rtol=1e-4)
    rows = {name: len(squares) for name, squares in found.items()}
    assert rows == {
        "blk.0.attn_q.weight": 64,
        "blk.0.attn_k.weight": 64,
        "blk.0.attn_v.weight": 64,
        "blk.0.attn_output.weight": 64,
        "blk.0.ffn_gate.weight": 64,
        "blk.0.ffn_up.weight": 64,
        "blk.0.ffn_down.weight": 96,
        "token_embd.weight": 64,  # as the head
    }


def test_a_text_too_short(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path / "model")
    with open_checkpoint(folder) as checkpoint, pytest.raises(BadInput, match="has 0 tokens"):
        calibrate(checkpoint, Tokenizer.from_folder(folder), "")
