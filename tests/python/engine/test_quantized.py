"""Quantising at load: the very model that `pellucid quantize` writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pellucid import LLM
from pellucid.convert.folder import folder_source
from pellucid.convert.write import choose, write_quantized
from pellucid.core.errors import BadInput
from pellucid.formats import open_checkpoint
from pellucid.quant.mixes import mix_named
from tests.python.convert.tiny import tiny_llama


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("quantized") / "model")


def written(folder: Path, out: Path, type: str) -> Path:
    mix = mix_named(type)
    with open_checkpoint(folder) as checkpoint:
        source = folder_source(checkpoint)
        write_quantized(source, choose(source, mix, pure=False, requantize=False), mix, out)
    return out


def logits(path: Path, quantization: str | None = None) -> np.ndarray:  # type: ignore[type-arg]
    with LLM(path, backend="reference", quantization=quantization) as llm:
        ids = list(llm.tokenizer.encode("the newest wide widest"))
        return llm.logits(ids)


@pytest.mark.parametrize("type", ["q4_0", "q4_k_m", "q8_0", "bf16"])
def test_the_bits_are_those_of_the_file(folder: Path, tmp_path: Path, type: str) -> None:
    plain = written(folder, tmp_path / "plain.gguf", "f32")
    there = logits(plain, type)
    np.testing.assert_array_equal(there, logits(written(folder, tmp_path / "q.gguf", type)))
    assert not np.array_equal(there, logits(plain))


def test_a_folder_too(folder: Path, tmp_path: Path) -> None:
    """Rows of Q and K lie in another order there, so that sums are rounded otherwise."""
    file = logits(written(folder, tmp_path / "q.gguf", "q4_1"))
    np.testing.assert_allclose(logits(folder, "q4_1"), file, atol=1e-4 * np.abs(file).max())


def test_a_model_that_is_quantised_already(folder: Path, tmp_path: Path) -> None:
    file = written(folder, tmp_path / "q.gguf", "q8_0")
    with pytest.raises(BadInput, match="quantised already: leave quantization at None"):
        LLM(file, backend="reference", quantization="q4_0")
