"""A weight in whichever forms a recorded model asks for: packed, rows of a table, plain values."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pellucid import _native
from pellucid.ops.vocabulary import HostTensor
from pellucid.quant.dequantize import dequantize
from pellucid.quant.types import TensorType, byte_count

log = logging.getLogger(__name__)

_FLOATS = frozenset({TensorType.F32, TensorType.F16, TensorType.BF16})
# Types with kernels of their own; the others are dequantised when they are loaded.
NATIVE_TYPES = _FLOATS | {
    TensorType.Q4_0,
    TensorType.Q4_1,
    TensorType.Q5_0,
    TensorType.Q5_1,
    TensorType.Q8_0,
    TensorType.Q4_K,
    TensorType.Q5_K,
    TensorType.Q6_K,
}

# type, bytes, rows, columns, whether the bytes are a mapping, whether 16 bits are to be multiplied:
# as `_native.matmul.pack_all` takes it
RawMatrix = tuple[int, NDArray[np.uint8], int, int, bool, bool]

# Packed in one native call, which Ctrl-C waits for.
_BATCH_BYTES = 1 << 29


class NativeWeight:
    """One tensor of a model. Nothing is prepared before it is asked for.

    `pool` is the `_native.program.Pool` that packs, `arena` a `_native.matmul.Arena`, the memory
    that packed weights share.
    `stored_as` is the type the kernels compute with, which differs from the file's when that has
    no kernels. `activations`: what products with it are to read, "int8", "f32", or "bf16"
    where its type can.
    """

    def __init__(
        self, host: HostTensor, pool: Any, simd: str, arena: Any, activations: str = "int8"
    ) -> None:
        floats = activations == "f32"
        self._pack_all = _native.matmul.pack_all_for_floats if floats else _native.matmul.pack_all
        self.name = host.name
        self.shape = host.shape
        self._host = host
        self._pool = pool
        self._simd = simd
        self._arena = arena
        self._bf16 = activations == "bf16"
        self._packed: list[Any] = []
        self._rows_wanted = False
        self._nbytes = host.nbytes
        self.stored_as = host.type

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor as its file stores it."""
        return self._nbytes

    @property
    def activations(self) -> str:
        """What a product with this weight reads: "int8", "bf16" or "f32"."""
        return str(self.packed().activations)

    def packed(self) -> Any:
        """The matrix (out, in) as a `_native.matmul.Weight`."""
        if len(self.shape) != 2:
            raise ValueError(f"{self.name}: a linear layer's weight has 2 dimensions: {self.shape}")
        return self._all_packed()[0]

    def packed_experts(self) -> list[Any]:
        """The matrices (experts, out, in), one `_native.matmul.Weight` an expert."""
        if len(self.shape) != 3:
            raise ValueError(f"{self.name}: experts' weights have 3 dimensions: {self.shape}")
        return self._all_packed()

    def keep_rows(self) -> None:
        """`table` will be asked for, also after the matrix was packed."""
        self._rows_wanted = True

    def table(self) -> Any:
        """The rows (n, features) as a `_native.program.EmbeddingTable`."""
        type, data = self._readable()
        return _native.program.EmbeddingTable(int(type), data, *self.shape)

    def values(self) -> NDArray[np.float32]:
        """All values, float32 [n]: of a norm or a bias."""
        host = self._host
        return np.ascontiguousarray(dequantize(host.data, host.type, host.shape).reshape(-1))

    @property
    def packs_as_stored(self) -> bool:
        """Whether packing reads the file's own bytes, nothing dequantised before."""
        return self._host.type in NATIVE_TYPES

    def _all_packed(self) -> list[Any]:
        if not self._packed:
            self._keep(self._pack_all(self._matrices(), self._pool, self._simd, self._arena))
        return self._packed

    def _matrices(self) -> list[RawMatrix]:
        type, data = self._readable()
        out, features = self.shape[-2:]
        size = byte_count(type, (out, features))
        # Only the file's own bytes can be given back.
        mapped = self.packs_as_stored and self._host.release is not None
        whole = (data[at : at + size] for at in range(0, len(data), size))
        parts = self._host.parts if self.packs_as_stored else ()
        # Experts quantise their middle by blocks of int8.
        gains = _native.matmul.prefers_bf16(int(type), self._simd)
        bf16 = self._bf16 and len(self.shape) == 2 and gains
        return [(int(type), part, out, features, mapped, bf16) for part in (*parts, *whole)]

    def _keep(self, packed: list[Any]) -> None:
        self._packed = packed
        if self._host.release is not None:
            self._host.release()
        elif not self._rows_wanted:  # bytes of our own, which nobody reads again
            nothing = np.empty(0, np.uint8)
            self._host = dataclasses.replace(self._host, data=nothing, parts=())

    def _readable(self) -> tuple[TensorType, NDArray[np.uint8]]:
        """Type and bytes that native code reads: the file's own, or half precision in their place
        (float32 where that overflows)."""
        host = self._host
        if host.type in NATIVE_TYPES:
            return host.type, host.data
        data = np.concatenate(host.parts) if host.parts else host.data
        values = dequantize(data, host.type, host.shape)
        fits = not values.size or float(np.abs(values).max()) <= np.finfo(np.float16).max
        self.stored_as = TensorType.F16 if fits else TensorType.F32
        log.info("%s: %s has no kernel, kept as %s", self.name, host.type.name, self.stored_as.name)
        return self.stored_as, values.astype("<f2" if fits else "<f4").reshape(-1).view(np.uint8)


def pack_together(weights: Iterable[NativeWeight]) -> None:
    """Packs matrices, and stacks of them, by all threads and without holding up Python's others.

    Those that must be dequantised first are left for when they are asked for, one by one; those
    that another program uses are packed already.
    """
    left = (w for w in dict.fromkeys(weights) if w.packs_as_stored and not w._packed)
    for batch in _batches(left):
        matrices = [weight._matrices() for weight in batch]
        first = batch[0]
        every = list(chain.from_iterable(matrices))
        packed = iter(first._pack_all(every, first._pool, first._simd, first._arena))
        for weight, parts in zip(batch, matrices, strict=True):
            weight._keep([next(packed) for _ in parts])


def _batches(weights: Iterable[NativeWeight]) -> Iterator[list[NativeWeight]]:
    batch: list[NativeWeight] = []
    size = 0
    for weight in weights:
        if batch and size + weight.nbytes > _BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(weight)
        size += weight.nbytes
    if batch:
        yield batch
