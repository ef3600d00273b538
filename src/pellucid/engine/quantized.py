"""Weights quantised while a model is loaded, as `pellucid quantize` would have written them."""

from __future__ import annotations

import dataclasses
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pellucid.convert.source import Floats, rows_of
from pellucid.convert.write import in_order
from pellucid.core.errors import BadInput
from pellucid.core.spec import ModelSpec
from pellucid.models.weights import StoredTensor
from pellucid.ops.vocabulary import HostTensor
from pellucid.quant.mixes import Mix, fitting_type, is_quantized_in, wanted_type
from pellucid.quant.quantize import quantize
from pellucid.quant.types import READABLE_TYPES, TensorType, byte_count

Bytes = NDArray[np.uint8]

_PLAIN = frozenset({TensorType.F32, TensorType.F16, TensorType.BF16})


class AtLoad:
    """Turns a model's matrices in f32, f16 or bf16 into the types of a mix.

    What is quantised already stays as it is unless `requantize`, and so does all that a mix does
    not speak of.
    """

    def __init__(self, mix: Mix, spec: ModelSpec, path: Path, *, requantize: bool = False) -> None:
        self.path = path
        self._mix, self._spec, self._threads = mix, spec, os.cpu_count() or 1
        self._from = READABLE_TYPES if requantize else _PLAIN
        self._head = "token_embd.weight" if spec.tied_head else "output.weight"

    def type_of(self, name: str, shape: tuple[int, ...], stored: TensorType) -> TensorType:
        """The type that a tensor will have."""
        if stored not in self._from or not is_quantized_in(name, shape):
            return stored
        head, n_layers = name == self._head, self._spec.n_layers
        return fitting_type(wanted_type(self._mix, name, n_layers, is_head=head), shape[-1])

    def nbytes(self, stored: list[StoredTensor]) -> int:
        """Bytes of all weights. Raises `BadInput` for a model with nothing left to quantise."""
        types = [self.type_of(one.tensor.name, one.tensor.shape, one.type) for one in stored]
        pairs = list(zip(stored, types, strict=True))
        if not any(
            one.type in self._from and is_quantized_in(one.tensor.name, one.tensor.shape)
            for one in stored
        ):
            raise BadInput(
                f"{self.path}: its matrices are quantised already: leave quantization at None"
            )
        return sum(byte_count(type, one.tensor.shape) for one, type in pairs)

    def __call__(self, host: HostTensor) -> HostTensor:
        """The tensor in its new type. Raises `BadInput` naming one that cannot be quantised."""
        type = self.type_of(host.name, host.shape, host.type)
        if type is host.type:
            return host
        try:
            if host.parts:
                shape = host.shape[1:]
                parts = tuple(self._quantized(p, host.type, shape, type) for p in host.parts)
                made = dataclasses.replace(host, type=type, parts=parts, release=None)
            else:
                data = self._quantized(host.data, host.type, host.shape, type)
                made = dataclasses.replace(host, type=type, data=data, release=None)
        except BadInput as error:
            raise BadInput(f"{self.path}: tensor {host.name}: {error}") from error
        if host.release is not None:
            host.release()
        return made

    def _quantized(
        self, raw: Bytes, stored: TensorType, shape: tuple[int, ...], type: TensorType
    ) -> Bytes:
        work, pieces = partial(_encoded, type), rows_of(raw, stored, shape)
        with ThreadPoolExecutor(self._threads, "pellucid-quantize") as pool:
            return np.concatenate(list(in_order(pool, work, pieces, 2 * self._threads)))


def _encoded(type: TensorType, rows: Floats) -> Bytes:
    return quantize(rows, type)
