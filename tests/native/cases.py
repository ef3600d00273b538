"""Forward passes that run on any backend, and random inputs for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gguf.quants
import numpy as np
from numpy.typing import NDArray

from pellucid import _native
from pellucid.core.spec import LayerSpec, ModelSpec
from pellucid.ops.step import Sequence as Rows
from pellucid.ops.step import Step
from pellucid.ops.vocabulary import HostTensor, Ops
from pellucid.quant.types import TensorType

Float32 = NDArray[np.float32]
Weights = Mapping[str, Any]
Forward = Callable[[Ops, Weights, Step], Any]

SIMD = [name for name, usable, _ in _native.matmul.considered() if usable]


def tensor(name: str, values: NDArray[Any], type: TensorType = TensorType.F32) -> HostTensor:
    """`values` as a file would hold them."""
    values = np.ascontiguousarray(values, np.float32)
    if type is TensorType.F32:
        data = values.reshape(-1).view(np.uint8)
    else:
        data = gguf.quants.quantize(values, gguf.GGMLQuantizationType(int(type))).reshape(-1)
        data = np.ascontiguousarray(data).view(np.uint8)
    return HostTensor(name, values.shape, type, data)


def random_rows(rows: int, width: int, seed: int = 0, scale: float = 1.0) -> Float32:
    """Values of very different sizes, as activations have."""
    rng = np.random.default_rng(seed)
    sizes = np.exp(rng.normal(0, 0.7, (rows, 1)))
    return (rng.standard_normal((rows, width)) * sizes * scale).astype(np.float32)


def layer_spec(**changes: Any) -> LayerSpec:
    fields: dict[str, Any] = {
        "n_heads": 4, "n_kv_heads": 2, "head_dim": 16, "ffn_dim": 96, "attention_scale": 0.25,
    }  # fmt: skip
    return LayerSpec(**(fields | changes))


def model_spec(layers: Sequence[LayerSpec], d_model: int = 64, vocab_size: int = 97) -> ModelSpec:
    return ModelSpec("test", d_model, vocab_size, 4096, 1e-5, tuple(layers))


def step_of(
    tokens: NDArray[Any],
    *,
    start: int = 0,
    logit_rows: Sequence[int] | None = None,
    page_size: int = 16,
    cache: object = None,
) -> Step:
    """One sequence in pages 0, 1, ..."""
    n = len(tokens)
    pages = np.arange(-(-(start + n) // page_size), dtype=np.int32)
    wanted = range(n) if logit_rows is None else logit_rows
    return Step(
        np.asarray(tokens, np.int32),
        np.arange(start, start + n, dtype=np.int32),
        np.asarray(wanted, np.int32),
        (Rows(0, n, start, pages),),
        page_size,
        cache,
    )


def run_on(
    ops: Ops,
    forward: Forward,
    rows: Float32,
    tensors: Mapping[str, HostTensor] | None = None,
    *,
    spec: ModelSpec | None = None,
    start: int = 0,
    logit_rows: Sequence[int] | None = None,
) -> Float32:
    """`forward(ops, weights, step)`, whose weights["x"] is a table of `rows`: embedding the
    step's tokens gives them back."""
    hosts = {"x": tensor("x", rows), **(tensors or {})}
    weights = {name: ops.load(host) for name, host in hosts.items()}
    run = ops.compile(lambda step: forward(ops, weights, step))
    spec = spec or model_spec([layer_spec()])
    cache = ops.new_cache(spec, -(-(start + len(rows)) // 16), 16)
    step = step_of(np.arange(len(rows)), start=start, logit_rows=logit_rows, cache=cache)
    return np.array(ops.to_numpy(run(step)))


def same_bits(a: Float32, b: Float32) -> bool:
    return a.shape == b.shape and bool(np.array_equal(a.view(np.uint32), b.view(np.uint32)))


def assert_close(actual: Float32, expected: Float32, tolerance: float) -> None:
    """|actual - expected| <= tolerance, a tolerance that a real fault would exceed: it must be far
    below what the values themselves are."""
    assert actual.shape == expected.shape
    assert tolerance < 1e-3 * float(np.abs(expected).max()), "the tolerance would pass zeros"
    error = float(np.abs(actual - expected).max())
    assert error <= tolerance, f"error {error:.3g} exceeds {tolerance:.3g}"
