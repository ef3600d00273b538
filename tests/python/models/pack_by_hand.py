"""Packed checkpoints made number by number, as the formats' descriptions have it.

GPTQ: word [i, o] of qweight holds the numbers of inputs i * n to i * n + n - 1 of output o, lowest
bits first; qzeros the same along outputs, one less than the zero (v1). AWQ: a word holds eight
outputs of one input, in the order 0 2 4 6 1 3 5 7.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from tests.python.convert.tiny import tiny_llama

AWQ = (0, 2, 4, 6, 1, 3, 5, 7)
Array = NDArray[Any]


def word(numbers: list[int], bits: int) -> int:
    """Numbers from the lowest bits on, as a signed word."""
    whole = sum((number % (1 << bits)) << (bits * i) for i, number in enumerate(numbers))
    return whole - (1 << 32) if whole >= 1 << 31 else whole


def along_inputs(numbers: Array, bits: int) -> Array:
    n = 32 // bits
    words = [
        [word([int(x) for x in numbers[i : i + n, o]], bits) for o in range(numbers.shape[1])]
        for i in range(0, len(numbers), n)
    ]
    return np.array(words, np.int32)


def along_outputs(numbers: Array, bits: int, order: tuple[int, ...] | None = None) -> Array:
    n = 32 // bits
    places = order or tuple(range(n))
    words = [
        [word([int(row[o + place]) for place in places], bits) for o in range(0, len(row), n)]
        for row in numbers
    ]
    return np.array(words, np.int32)


def matrix(
    rng: np.random.Generator,
    out: int,
    inputs: int,
    *,
    method: str = "gptq",
    bits: int = 4,
    group: int = 32,
    symmetric: bool = False,
    scattered: bool = False,
    v2: bool = False,
) -> tuple[dict[str, Array], Array]:
    """A packed matrix's tensors, and what it means: float32 (out, in)."""
    size = inputs if group == -1 else group
    groups, top = inputs // size, 1 << bits
    numbers = rng.integers(0, top, (inputs, out))
    zeros = np.full((groups, out), top // 2) if symmetric else rng.integers(0, top, (groups, out))
    scales = (rng.uniform(0.5, 1.5, (groups, out)) * 0.4 / top).astype(np.float16)
    of_input = np.arange(inputs) // size
    if scattered:
        of_input = rng.permutation(of_input)
    meaning = scales.astype(np.float32)[of_input] * (numbers - zeros[of_input]).astype(np.float32)
    if method == "awq":
        tensors = {
            "qweight": along_outputs(numbers, bits, AWQ),
            "qzeros": along_outputs(zeros, bits, AWQ),
        }
    else:
        tensors = {
            "qweight": along_inputs(numbers, bits),
            "qzeros": along_outputs(zeros if v2 else zeros - 1, bits),
            "g_idx": of_input.astype(np.int32),
        }
    return {**tensors, "scales": scales}, np.ascontiguousarray(meaning.T)


def packed_llama(folder: Path, **how: Any) -> tuple[Path, Path]:
    """Two folders of one tiny Llama: its matrices packed, and as float32."""
    plain = tiny_llama(folder / "plain")
    packed = tiny_llama(folder / "packed")
    weights = load_file(plain / "model.safetensors")
    kept, rng = {}, np.random.default_rng(7)
    for name, values in list(weights.items()):
        if not name.endswith("_proj.weight"):
            kept[name] = values
            continue
        parts, weights[name] = matrix(rng, *values.shape, **how)
        base = name.removesuffix("weight")
        kept |= {f"{base}{part}": array for part, array in parts.items()}
    save_file(weights, plain / "model.safetensors")
    save_file(kept, packed / "model.safetensors")
    describe(packed, quantization_config(**how))
    return packed, plain


def quantization_config(
    method: str = "gptq", bits: int = 4, group: int = 32, v2: bool = False, **others: Any
) -> dict[str, Any]:
    common = {"quant_method": method, "bits": bits, "group_size": group}
    if method == "awq":
        return {**common, "zero_point": True, "version": "gemm"}
    form = "gptq_v2" if v2 else "gptq"
    scattered, symmetric = others.get("scattered", False), others.get("symmetric", False)
    return {**common, "checkpoint_format": form, "desc_act": scattered, "sym": symmetric}


def describe(folder: Path, quantization: dict[str, Any]) -> None:
    """Put it into the folder's config.json."""
    file = folder / "config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps({**config, "quantization_config": quantization}))
